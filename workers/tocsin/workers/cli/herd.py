"""`tocsin herd`: open, list, show, close; the tree of herds under herds; and the journal."""

from __future__ import annotations

from typing import Annotated, Any

import typer
from rich.text import Text
from rich.tree import Tree

from tocsin.broker import HerdTree
from tocsin.broker.errors import UnknownHerd
from tocsin.broker.herds import HerdRecord
from tocsin.broker.ids import PARENT
from tocsin.workers.cli.agent import roster_rows
from tocsin.workers.cli.blocks import Facts, Rows, clean, state
from tocsin.workers.cli.history import follow, line
from tocsin.workers.cli.inputs import confirm
from tocsin.workers.cli.session import SeatName, Session, command, read_seat
from tocsin.workers.cli.settings import given_settings, plain_settings, record_rows
from tocsin.workers.credentials import StoredSeat

app = typer.Typer(
    name="herd", no_args_is_help=True, help="Herds: one parent agent and its children."
)

HerdArgument = Annotated[
    str | None,
    typer.Argument(metavar="[HERD]", show_default=False, help="Default: the herd of the seat."),
]
TopArgument = Annotated[
    str | None,
    typer.Argument(metavar="[HERD]", show_default=False, help="Default: all herds."),
]


def _as_json(record: HerdRecord) -> dict[str, Any]:
    return {
        "herd": record.herd,
        "state": record.state,
        "under": record.under,
        "settings": plain_settings(record.settings),
        "sources": record.sources,
    }


@command(app, "open", example="tocsin herd open release-42 --set stale_wait_threshold=10")
def open_herd(
    session: Session,
    herd: Annotated[str, typer.Argument(metavar="HERD", help="a-z, 0-9, '_' and '-'.")],
    settings: Annotated[
        list[str] | None,
        typer.Option(
            "--set", metavar="NAME=VALUE", show_default=False, help="A setting of this herd."
        ),
    ] = None,
    under: Annotated[
        str | None,
        typer.Option(
            metavar="HERD/AGENT",
            show_default=False,
            help="The agent of another herd that leads this one.",
        ),
    ] = None,
    task: Annotated[
        str | None,
        typer.Option(
            metavar="TASK",
            show_default=False,
            help="With --under: the one task it serves; else whatever that agent does.",
        ),
    ] = None,
    print_token: Annotated[
        bool, typer.Option("--print-token", help="Show the parent's token too.")
    ] = False,
) -> None:
    """Open a herd and become its parent; or reopen one whose parent's seat is on this machine.

    The parent's token is stored as a seat and becomes the current one. Settings that are not given
    take the layers of this machine (`tocsin settings`); reopening changes only the given ones.
    With --under it closes when that agent does; the seat of that agent, or of its parent, must be
    on this machine.
    """
    given = given_settings(settings or [])
    name = SeatName(herd, PARENT)
    session.credentials.prepare()
    known = session.credentials.get(str(name))
    parent = session.broker.open_herd(
        herd,
        settings=given,
        under=under,
        token=known.token if known else None,
        under_token=_leading(session, under) if under and not known else None,
        task=task,
    )
    session.keep(name, StoredSeat(token=parent.token, generation=1), use=True)
    record = _as_json(parent.herd_record())
    token = parent.token if print_token else None
    opened = "reopened" if known else "opened"
    session.out.result(
        record | {"token": token},
        Facts([(opened, herd), ("under", under), ("you are", str(name)), ("token", token)]),
    )
    session.out.note(f"Your seat is in {session.credentials.path}, and is the current one.")


def _leading(session: Session, under: str) -> str:
    """The token by which a herd may be opened under an agent: its own, or its parent's."""
    leader = read_seat(under, "--under")
    names = (leader, SeatName(leader.herd, PARENT))
    return session.sit(next((name for name in names if session.has(name)), leader)).token


@command(app, "list", example="tocsin herd list")
def list_herds(session: Session) -> None:
    """List the herds of the fleet, with their states, how many tasks each keeps, and whom they
    are under. An orphan is one whose herd or agent above is gone."""
    found = sorted(
        (each for top in session.broker.tree() for each in top.walk()), key=lambda each: each.herd
    )
    session.out.result(
        [
            {"herd": each.herd, "state": each.state, "tasks": each.tasks}
            | ({"under": each.under, "tie": each.tie} if each.under else {})
            for each in found
        ],
        Rows(
            ("herd", "state", "tasks kept", "under"),
            [
                (
                    Text(each.herd, style="bold"),
                    state(each.state),
                    str(each.tasks),
                    Text.assemble(each.under, *_mark(each)) if each.under else "",
                )
                for each in found
            ],
            empty=_NO_HERDS,
            whole=("herd",),
        ),
    )


_NO_HERDS = "This fleet has no herds; open one with `tocsin herd open NAME`."

_MARKS = {
    "claimed": ("not confirmed yet", "yellow"),
    "closing": ("closes too", "yellow"),
    "orphaned": ("orphan", "bold red"),
}


def _mark(herd: HerdTree) -> list[str | tuple[str, str]]:
    """What is to be said of how a herd stands with the one above, where something is."""
    return ["  ", _MARKS[herd.tie]] if herd.tie in _MARKS else []


@command(app, "tree", example="tocsin herd tree release-42")
def tree(session: Session, herd: TopArgument = None) -> None:
    """Show herds and the herds under their agents, of the whole fleet or from one herd down.

    Orphans stand at the top, each with the reason: whom it was under is gone, so nobody above
    closes it any more.
    """
    tops = session.broker.tree()
    if herd is not None:
        tops = [each for top in tops for each in top.walk() if each.herd == herd]
        if not tops:
            raise UnknownHerd("tree", f"there is no herd '{herd}'; see `tocsin herd list`")
    session.out.result(tops, *(map(_grown, tops) if tops else [Text(_NO_HERDS, style="dim")]))


def _grown(herd: HerdTree, branch: Tree | None = None) -> Tree:
    agent = herd.under.partition("/")[2] if herd.under else ""
    line = Text.assemble((herd.herd, "bold"), "  ", state(herd.state), *_mark(herd))
    if branch is not None:
        line = Text.assemble((f"{agent}: ", "dim"), line)
    elif herd.under:
        line.append(f"  was under {herd.under}" if herd.tie == "orphaned" else f"  {herd.under}")
    if herd.reason:
        line.append(f" ({clean(herd.reason)})")
    grown = Tree(line) if branch is None else branch.add(line)
    for each in herd.herds:
        _grown(each, grown)
    return grown


@command(app, "show", example="tocsin herd show release-42", seat=True)
def show_herd(session: Session, herd: HerdArgument = None) -> None:
    """Show a herd: its agents, and its settings with the layer that each came from."""
    parent = session.parent(herd)
    record, agents = parent.herd_record(), parent.roster()
    session.out.result(
        _as_json(record) | {"agents": agents},
        Facts([("herd", record.herd), ("state", state(record.state)), ("under", record.under)]),
        "",
        roster_rows(agents, session.now()),
        "",
        record_rows(record),
    )


@command(app, "close", example="tocsin herd close release-42")
def close_herd(
    session: Session,
    herd: Annotated[str, typer.Argument(metavar="HERD", help="The herd's name.")],
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask at a terminal.")] = False,
) -> None:
    """Close every agent of a herd, then the herd. Its records stay readable for a while.

    Open tasks are cancelled. The parent's seat is kept, because it is what reads the records.
    """
    parent = session.parent(herd)
    confirm(session.out, f"Close herd {herd} with all its agents?", yes=yes)
    parent.close_herd()
    children = [name for name in session.credentials.seats() if name.startswith(f"{herd}/")]
    session.credentials.drop(*(name for name in children if name != f"{herd}/{PARENT}"))
    session.out.result({"herd": herd, "state": "closed"}, f"Closed herd {herd}.")


@command(app, "journal", example="tocsin herd journal --follow", seat=True)
def journal(
    session: Session,
    herd: HerdArgument = None,
    live: Annotated[
        bool, typer.Option("--follow", "-f", help="Go on with what happens, until it is closed.")
    ] = False,
    after: Annotated[
        str | None, typer.Option(metavar="ID", show_default=False, help="Only after this entry.")
    ] = None,
    limit: Annotated[int, typer.Option(metavar="N", help="At most so many past entries.")] = 100,
) -> None:
    """Show the history of the herd, oldest first: every transition, with its time."""
    parent = session.parent(herd)
    past = parent.journal(after=after, limit=limit)
    if not live:
        session.out.result(past, *(line(entry) for entry in past))
        return
    session.staying()
    for entry in past:
        session.out.event(entry, line(entry))
    for entry in follow(parent, past[-1].id if past else after):
        session.out.event(entry, line(entry))
