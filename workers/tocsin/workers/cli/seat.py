"""`tocsin seat`: the tokens that this machine keeps, so that commands need only a name."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.text import Text

from tocsin.broker import Seat, agents
from tocsin.broker.errors import BrokerError, InvalidInput, Unavailable
from tocsin.broker.ids import PARENT, make_token
from tocsin.broker.scripts import Call
from tocsin.workers.addresses import operators_own
from tocsin.workers.cli.blocks import Facts, Rows
from tocsin.workers.cli.complete import complete_seat
from tocsin.workers.cli.inputs import confirm, read_token
from tocsin.workers.cli.session import SeatName, Session, command, read_seat
from tocsin.workers.credentials import StoredSeat

app = typer.Typer(
    name="seat",
    no_args_is_help=True,
    help="Seats: whose tokens this machine keeps, and which one is current.",
)

SeatArgument = Annotated[
    str, typer.Argument(metavar="HERD/AGENT", help="The seat.", autocompletion=complete_seat)
]


@command(app, "add", example="tocsin seat add release-42/scout < token.txt")
def add(
    session: Session,
    named: SeatArgument,
    use: Annotated[bool, typer.Option("--use", help="Make it the current seat.")] = False,
    unchecked: Annotated[
        bool, typer.Option("--no-check", help="Store it without asking the server.")
    ] = False,
) -> None:
    """Store a token that was made elsewhere, read from stdin, or asked for at a terminal.

    It is never an argument, because arguments stand in process lists and shell histories.
    """
    name = read_seat(named)
    token = read_token(session.out, "seat add", str(name))
    stored = StoredSeat(token=token)
    if not unchecked:
        joined = session.join(name, token)
        stored = StoredSeat(token=token, generation=joined.caller.generation)
    session.credentials.put(str(name), stored, use=use)
    _show(session, name, stored, "stored in")


def _show(session: Session, name: SeatName, stored: StoredSeat, done: str) -> None:
    session.out.result(
        {
            "herd": name.herd,
            "agent": name.agent,
            "generation": stored.generation,
            "current": session.credentials.current == str(name),
            "file": str(session.credentials.path),
        },
        Facts([("seat", str(name)), (done, str(session.credentials.path))]),
    )


@command(app, "list", example="tocsin seat list")
def list_seats(session: Session) -> None:
    """List the seats of the fleet on this machine. Tokens are never shown."""
    place = session.credentials
    current = place.current
    rows = [(name, seat.generation) for name, seat in place.seats().items()]
    session.out.result(
        [
            {
                "herd": name.split("/")[0],
                "agent": name.split("/")[1],
                "generation": generation,
                "current": name == current,
            }
            for name, generation in rows
        ],
        Rows(
            ("", "seat", "generation"),
            [
                (
                    Text("*", style="bold green") if name == current else "",
                    Text(name, style="bold"),
                    str(generation or "-"),
                )
                for name, generation in rows
            ],
            empty=f"No seats of fleet {place.fleet} at {place.server} on this machine.",
            whole=("seat",),
        ),
    )
    session.out.note(f"fleet {place.fleet} at {place.server}, in {place.path}")


@command(app, "use", example="tocsin seat use release-42/parent")
def use_seat(session: Session, named: SeatArgument) -> None:
    """Choose the seat that commands speak for when they are not told otherwise."""
    name = read_seat(named)
    session.credentials.use(str(name))
    stored = session.credentials.seats()[str(name)]
    _show(session, name, stored, "is now current in")


@command(app, "rotate", example="tocsin seat rotate release-42/scout", seat=True)
def rotate(
    session: Session,
    target: Annotated[
        str | None,
        typer.Argument(
            metavar="[HERD/AGENT]",
            show_default=False,
            help="Default: the seat itself.",
            autocompletion=complete_seat,
        ),
    ] = None,
    print_token: Annotated[
        bool, typer.Option("--print-token", help="Show the new token, to carry it elsewhere.")
    ] = False,
) -> None:
    """Give an agent a new token and store it here; the old one stops at once, everywhere.

    Needs the seat of the herd's parent, or the agent's own. With the parent's it also brings back a
    child's seat whose token was lost.
    """
    name = session.seat() if target is None else read_seat(target)
    stored = _rotated(session, name)
    token = stored.token if print_token else None
    session.out.result(
        {
            "herd": name.herd,
            "agent": name.agent,
            "generation": stored.generation,
            "token": token,
        },
        Facts(
            [
                ("rotated", str(name)),
                ("stored in", str(session.credentials.path)),
                ("token", token),
            ]
        ),
    )


def _change(session: Session, name: SeatName, token: str) -> Call[Seat]:
    """The call that gives `name` this token, by its parent if that seat is here, else by itself."""
    parent = SeatName(name.herd, PARENT)
    joined = session.sit(parent if session.has(parent) else name)
    return agents.rotate(joined.caller, name.agent, token)


def _rotated(session: Session, name: SeatName) -> StoredSeat:
    """A new token in force and stored. It is stored first: what happens between loses no seat."""
    place, token = session.credentials, make_token()
    if session.is_remote:
        return _rotated_there(session, name)
    call = _change(session, name, token)
    old = place.get(str(name))
    former = old.token if old else None
    place.put(str(name), StoredSeat(token=token, former=former))
    try:
        seat = session.broker.run(call)
    except Unavailable:
        raise  # which of the two is in force is not known; both are kept
    except BrokerError:
        if old is None:
            place.drop(str(name))
        else:
            place.put(str(name), old)
        raise
    stored = StoredSeat(token=token, generation=seat.generation)
    place.put(str(name), stored)
    return stored


def _rotated_there(session: Session, name: SeatName) -> StoredSeat:
    """The same where the server makes the token: a parent's own would be lost with an answer."""
    if name.agent == PARENT:
        raise operators_own("rotate")
    session.credentials.prepare()
    seat = session.parent(name.herd).rotate(name.agent)
    assert seat.token is not None
    stored = StoredSeat(token=seat.token, generation=seat.generation)
    session.keep(name, stored)
    return stored


@command(app, "revoke", example="tocsin seat revoke release-42/scout")
def revoke(session: Session, named: SeatArgument) -> None:
    """Stop a child's token everywhere and forget it here. `rotate` lets somebody in again.

    Needs the seat of the herd's parent. Processes that serve the child are refused from now on.
    """
    name = read_seat(named)
    if name.agent == PARENT:
        raise InvalidInput(
            "seat revoke",
            "nobody could open or close the herd any more; rotate the parent's token instead",
        )
    if session.is_remote:
        generation = session.parent(name.herd).rotate(name.agent).generation
    else:
        generation = session.broker.run(_change(session, name, make_token())).generation
    session.credentials.drop(str(name))
    session.out.result(
        {"herd": name.herd, "agent": name.agent, "generation": generation, "revoked": True},
        f"Revoked {name}; `tocsin seat rotate {name}` makes a new token.",
    )


@command(app, "forget", example="tocsin seat forget release-42/scout")
def forget(
    session: Session,
    named: SeatArgument,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask at a terminal.")] = False,
) -> None:
    """Remove a seat from this machine only; its token stays in force elsewhere."""
    name = read_seat(named)
    if session.credentials.get(str(name)) is None:
        raise InvalidInput("seat forget", session.credentials.unknown(str(name)))
    confirm(session.out, f"Forget the token of {name} on this machine?", yes=yes)
    session.credentials.drop(str(name))
    session.out.result(
        {"herd": name.herd, "agent": name.agent, "forgotten": True}, f"Forgot {name}."
    )
