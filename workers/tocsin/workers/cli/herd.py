"""`tocsin herd`: open, list, show, close; and its journal."""

from __future__ import annotations

from typing import Annotated, Any

import typer
from rich.text import Text

from tocsin.broker.herds import HerdRecord
from tocsin.broker.ids import PARENT
from tocsin.workers.cli.agent import roster_rows
from tocsin.workers.cli.blocks import Facts, Rows, state
from tocsin.workers.cli.credentials import StoredSeat
from tocsin.workers.cli.history import follow, line
from tocsin.workers.cli.inputs import confirm
from tocsin.workers.cli.session import SeatName, Session, command
from tocsin.workers.cli.settings import given_settings, plain_settings, record_rows

app = typer.Typer(
    name="herd", no_args_is_help=True, help="Herds: one parent agent and its children."
)

HerdArgument = Annotated[
    str | None,
    typer.Argument(metavar="[HERD]", show_default=False, help="Default: the herd of the seat."),
]


def _as_json(record: HerdRecord) -> dict[str, Any]:
    return {
        "herd": record.herd,
        "state": record.state,
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
    print_token: Annotated[
        bool, typer.Option("--print-token", help="Show the parent's token too.")
    ] = False,
) -> None:
    """Open a herd and become its parent; or reopen one whose parent's seat is on this machine.

    The parent's token is stored as a seat and becomes the current one. Settings that are not given
    take the layers of this machine (`tocsin settings`); reopening changes only the given ones.
    """
    given = given_settings(settings or [])
    name = SeatName(herd, PARENT)
    session.credentials.prepare()
    known = session.credentials.get(str(name))
    parent = session.broker.open_herd(herd, settings=given, token=known.token if known else None)
    session.keep(name, StoredSeat(token=parent.token, generation=1), use=True)
    record = _as_json(parent.herd_record())
    token = parent.token if print_token else None
    opened = "reopened" if known else "opened"
    session.out.result(
        record | {"token": token},
        Facts([(opened, herd), ("you are", str(name)), ("token", token)]),
    )
    session.out.note(f"Your seat is in {session.credentials.path}, and is the current one.")


@command(app, "list", example="tocsin herd list")
def list_herds(session: Session) -> None:
    """List the herds of the fleet, with their states and how many tasks each keeps."""
    found = session.broker.herds()
    session.out.result(
        [{"herd": name, "state": at, "tasks": tasks} for name, at, tasks in found],
        Rows(
            ("herd", "state", "tasks kept"),
            [(Text(name, style="bold"), state(at), str(tasks)) for name, at, tasks in found],
            empty="This fleet has no herds; open one with `tocsin herd open NAME`.",
            whole=("herd",),
        ),
    )


@command(app, "show", example="tocsin herd show release-42", seat=True)
def show_herd(session: Session, herd: HerdArgument = None) -> None:
    """Show a herd: its agents, and its settings with the layer that each came from."""
    parent = session.parent(herd)
    record, agents = parent.herd_record(), parent.roster()
    session.out.result(
        _as_json(record) | {"agents": agents},
        Facts([("herd", record.herd), ("state", state(record.state))]),
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
