"""`tocsin agent`: register children, say how they are run, list the herd, close a child."""

from __future__ import annotations

import json
import shlex
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.text import Text

from tocsin.broker import AgentInfo, SessionInfo
from tocsin.broker.envelopes import TurnsInfo
from tocsin.broker.errors import InvalidInput, UnknownAgent
from tocsin.broker.runners import Runner, read_runner
from tocsin.broker.settings_files import resolve_runner
from tocsin.broker.validation import NAME
from tocsin.workers.cli.blocks import Facts, Rows, age, brief, state, when
from tocsin.workers.cli.complete import complete_agent
from tocsin.workers.cli.inputs import confirm, read_text
from tocsin.workers.cli.session import SeatName, Session, command
from tocsin.workers.credentials import StoredSeat

app = typer.Typer(
    name="agent", no_args_is_help=True, help="The agents of a herd: register, list, close."
)

AgentName = Annotated[
    str, typer.Argument(metavar="AGENT", help="The agent's name.", autocompletion=complete_agent)
]


Program = Annotated[
    str | None,
    typer.Option(
        "--command",
        metavar="WORDS",
        show_default=False,
        help="Run its turns by this program, without a shell; it needs no process of its own.",
    ),
]
Function = Annotated[
    str | None,
    typer.Option(
        "--callable",
        metavar="MODULE:FUNCTION",
        show_default=False,
        help="Run its turns by this function in Python.",
    ),
]
Source = Annotated[
    str | None,
    typer.Option(
        "--runner",
        metavar="NAME|FILE",
        show_default=False,
        help="The same with all its fields: table runners.NAME of your settings file, or a JSON "
        "file (a path with a dot or slash), or - for stdin.",
    ),
]
Profile = Annotated[
    str | None,
    typer.Option(
        show_default=False, help="What kind of program: claude-code, codex, opencode, pi."
    ),
]
QueueName = Annotated[
    str | None, typer.Option(show_default=False, help="The RQ queue of its turns.")
]
Account = Annotated[
    str | None,
    typer.Option(show_default=False, help="The provider account whose limits it shares."),
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
    program: Program = None,
    function: Function = None,
    runner: Source = None,
    profile: Profile = None,
    queue: QueueName = None,
    account: Account = None,
    print_token: Annotated[
        bool, typer.Option("--print-token", help="Show the token too, to carry it elsewhere.")
    ] = False,
) -> None:
    """Register a child of the herd, and store its token as a seat of this machine.

    From then on `TOCSIN_SEAT=herd/agent` is all that a process here needs to speak for it.

    A child with a --command, --callable or --runner needs no process: mail
    that wakes it makes a turn due, which a `tocsin worker` runs. With
    --exist-ok, one that is given takes the place of the one it has.
    """
    options = {"profile": profile, "queue": queue, "account": account}
    given = _runner(runner, program, function, options)
    parent = session.parent()
    session.credentials.prepare()
    made = parent.register(agent, role=role, label=label, exist_ok=exist_ok, runner=given)
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
                ("runner", given.named if given else None),
            ]
        ),
    )
    if made.token is not None:
        session.out.note(f"Its seat is in {session.credentials.path}; use it with --seat {name}.")
    elif session.credentials.get(str(name)) is None:
        session.out.note(
            f"Its token is not on this machine; `tocsin seat rotate {name}` makes one."
        )


def _runner(
    source: str | None, program: str | None, function: str | None, options: dict[str, str | None]
) -> Runner | None:
    """The runner that the options say; those that are given are put over the source's fields."""
    ways = [each for each in (source, program, function) if each is not None]
    fields: dict[str, Any] = {name: value for name, value in options.items() if value is not None}
    if len(ways) > 1:
        raise InvalidInput("register", "give one of --command, --callable and --runner")
    if not ways:
        if fields:
            named = ", ".join(f"--{name}" for name in fields)
            raise InvalidInput("register", f"{named}: give a --command, --callable or --runner too")
        return None
    if program is not None:
        try:
            fields["command"] = shlex.split(program)
        except ValueError as failure:
            raise InvalidInput("register", f"--command cannot be parted: {failure}") from None
    elif function is not None:
        fields["function"] = function
    elif NAME.fullmatch(ways[0]):
        return resolve_runner(ways[0], over=fields)
    else:
        fields = _read_runner(ways[0]) | fields
    return read_runner(fields)


def _read_runner(file: str) -> dict[str, Any]:
    try:
        stdin = read_text("-", "register", "--runner") if file == "-" else None
        found = json.loads(Path(file).read_text("utf-8") if stdin is None else stdin)
    except OSError as failure:
        raise InvalidInput("register", f"--runner {file}: {failure.strerror}") from None
    except ValueError as failure:
        raise InvalidInput("register", f"--runner {file} is not JSON: {failure}") from None
    if not isinstance(found, dict):
        raise InvalidInput("register", f"--runner {file} must hold a JSON object")
    return found


@command(app, "runner", example="tocsin agent runner scout --none", seat=True)
def change_runner(
    session: Session,
    agent: AgentName,
    program: Program = None,
    function: Function = None,
    runner: Source = None,
    profile: Profile = None,
    queue: QueueName = None,
    account: Account = None,
    none: Annotated[
        bool, typer.Option("--none", help="Take its runner away; it needs a process from then on.")
    ] = False,
) -> None:
    """Change how the turns of a child are run, or take its runner away.

    A turn that runs goes on to its end with the old runner, unless there is no new one.
    """
    options = {"profile": profile, "queue": queue, "account": account}
    given = _runner(runner, program, function, options)
    if (given is None) != none:
        raise InvalidInput("set_runner", "give one of --command, --callable, --runner and --none")
    parent = session.parent()
    parent.set_runner(agent, given)
    name = given.named if given else None
    session.out.result(
        {"herd": parent.herd, "agent": agent, "runner": name},
        f"{parent.herd}/{agent} is run by {name}."
        if name
        else f"{parent.herd}/{agent} has no runner any more: it needs a process of its own.",
    )


def _process(agent: AgentInfo) -> Text:
    if agent.turns is not None:
        styles = {"running": "green", "due": "yellow", "launched": "yellow"}
        word = "no turn" if agent.turns.state == "none" else f"turn {agent.turns.state}"
        return Text(word, style=styles.get(agent.turns.state, "dim"))
    found = Text("live", style="green") if agent.present else Text("-", style="dim")
    if len(agent.sessions) > 1:
        found.append(f", {len(agent.sessions)} sessions", style="yellow")
    if not agent.wakeable and agent.state == "open":
        found.append(", unwakeable", style="yellow")
    return found


def roster_rows(agents: Sequence[AgentInfo], now: datetime) -> Rows:
    """The roster as a table."""
    rows = []
    for each in agents:
        questions = [
            f"{len(ids)} {word}"
            for ids, word in ((each.waited_on_by, "to answer"), (each.waits_for, "asked"))
            if ids
        ]
        process = _process(each)
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
    found = session.agent().roster()
    session.out.result(found, roster_rows(found, session.now()))


@command(app, "show", example="tocsin agent show scout", seat=True)
def show_agent(session: Session, agent: AgentName) -> None:
    """Show one agent of the herd, and of one with a runner, its turns and what they came to."""
    found = next((each for each in session.parent().roster() if each.agent == agent), None)
    if found is None:
        raise UnknownAgent("show", f"the herd has no agent {agent[:64]!r}; see `tocsin agent list`")
    facts: list[tuple[str, str | Text | None]] = [
        ("agent", found.agent),
        ("label, role", " · ".join(filter(None, (found.label, found.role))) or None),
        ("state", state(found.state)),
        ("generation", str(found.generation)),
        ("process", _process(found)),
        ("unread", str(found.unread)),
        ("tasks", ", ".join(found.tasks) or None),
        ("woken by", found.wake_path),
        *(("session", _session(each, session.now())) for each in found.sessions),
    ]
    if found.turns is not None:
        facts += _turns(found.turns, session.now())
    session.out.result(found, Facts(facts))


def _session(each: SessionInfo, now: datetime) -> str:
    paths = f", offers {', '.join(each.paths)}" if each.paths else ""
    return f"{each.host} {each.session}: {each.state}, since {when(each.since, now)}{paths}"


def _turns(turns: TurnsInfo, now: datetime) -> list[tuple[str, str | Text | None]]:
    account = f", account {turns.account}" if turns.account else ""
    last = f"{turns.number}: {turns.state}, {turns.reason}" if turns.number else None
    return [
        ("runner", f"{turns.runner} in queue {turns.queue}{account}"),
        ("turn", last and f"{last}, {age(turns.since, now)}"),
        ("last ended", turns.ended),
        ("failures in a row", str(turns.failures) if turns.failures else None),
        ("woken", f"{turns.wakes} times"),
        ("turns", f"{turns.turns}, {turns.seconds:,.1f} s in all"),
        ("handed over", f"{turns.characters:,} characters"),
    ]


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
