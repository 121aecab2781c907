"""`tocsin agent`: register children, list the herd, close a child."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Annotated

import typer
from rich.text import Text

from tocsin.broker import AgentInfo
from tocsin.workers.cli.blocks import Facts, Rows, age, brief, state
from tocsin.workers.cli.complete import complete_agent
from tocsin.workers.cli.credentials import StoredSeat
from tocsin.workers.cli.inputs import confirm
from tocsin.workers.cli.session import SeatName, Session, command

app = typer.Typer(
    name="agent", no_args_is_help=True, help="The agents of a herd: register, list, close."
)

AgentName = Annotated[
    str, typer.Argument(metavar="AGENT", help="The agent's name.", autocompletion=complete_agent)
]


@command(app, "register", example="tocsin agent register scout --role researcher", seat=True)
def register_agent(
    session: Session,
    agent: Annotated[str, typer.Argument(metavar="AGENT", help="a-z, 0-9, '_' and '-'.")],
    role: Annotated[str | None, typer.Option(help="What it is for, in a few words.")] = None,
    label: Annotated[str | None, typer.Option(help="Its name for people.")] = None,
    exist_ok: Annotated[
        bool, typer.Option("--exist-ok", help="Keep an agent that is registered already.")
    ] = False,
    print_token: Annotated[
        bool, typer.Option("--print-token", help="Show the token too, to carry it elsewhere.")
    ] = False,
) -> None:
    """Register a child of the herd, and store its token as a seat of this machine.

    From then on `TOCSIN_SEAT=herd/agent` is all that a process here needs to speak for it.
    """
    parent = session.parent()
    session.credentials.prepare()
    made = parent.register(agent, role=role, label=label, exist_ok=exist_ok)
    name = SeatName(made.herd, made.agent)
    if made.token is not None:
        session.keep(name, StoredSeat(token=made.token, generation=made.generation))
    shown = made if print_token else made.model_copy(update={"token": None})
    session.out.result(
        shown,
        Facts(
            [
                ("registered" if made.token else "kept", str(name)),
                ("generation", str(made.generation)),
                ("token", shown.token),
            ]
        ),
    )
    if made.token is not None:
        session.out.note(f"Its seat is in {session.credentials.path}; use it with --seat {name}.")
    elif session.credentials.get(str(name)) is None:
        session.out.note(
            f"Its token is not on this machine; `tocsin seat rotate {name}` makes one."
        )


def roster_rows(agents: Sequence[AgentInfo], now: datetime) -> Rows:
    """The roster as a table."""
    rows = []
    for each in agents:
        questions = [
            f"{len(ids)} {word}"
            for ids, word in ((each.waited_on_by, "to answer"), (each.waits_for, "asked"))
            if ids
        ]
        process = Text("live", style="green") if each.present else Text("-", style="dim")
        rows.append(
            (
                Text(each.agent, style="bold"),
                brief(" · ".join(part for part in (each.label, each.role) if part), 40),
                state(each.state),
                Text.assemble(process, f", {each.status}" if each.status else ""),
                str(each.unread),
                ", ".join(questions) or "-",
                age(each.active_at, now) + (f" “{brief(each.progress)}”" if each.progress else ""),
                ", ".join(each.tasks) + (f" +{len(each.queued)} queued" if each.queued else ""),
                ", ".join(each.herds),
            )
        )
    columns = ("agent", "label, role", "state", "process", "unread", "questions", "worked")
    return Rows((*columns, "tasks", "herds"), rows, whole=("agent",))


@command(app, "list", example="tocsin agent list --json", seat=True)
def list_agents(session: Session) -> None:
    """Show every agent of the herd: presence, tasks, unread mail, and who waits on whom."""
    found = session.parent().roster()
    session.out.result(found, roster_rows(found, session.now()))


@command(app, "close", example='tocsin agent close scout --reason "no longer needed"', seat=True)
def close_agent(
    session: Session,
    agent: AgentName,
    reason: Annotated[str | None, typer.Option(help="Told to whoever waits on it.")] = None,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask at a terminal.")] = False,
) -> None:
    """Close a child: its tasks are cancelled, who waits on it is told, its seat here is forgotten.

    Its name can be registered anew, as another generation.
    """
    parent = session.parent()
    confirm(session.out, f"Close agent {agent} of herd {parent.herd}?", yes=yes)
    parent.close(agent, reason=reason)
    session.credentials.drop(f"{parent.herd}/{agent}")
    session.out.result(
        {"herd": parent.herd, "agent": agent, "state": "closed"},
        f"Closed {parent.herd}/{agent}.",
    )
