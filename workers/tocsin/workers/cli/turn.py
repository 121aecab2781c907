"""`tocsin turn`: how many turns of children with a runner there are, and may be, at once."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from typing import Annotated

import typer

from tocsin.broker import keys, turns
from tocsin.broker.connections import Server
from tocsin.broker.errors import BrokerError, InvalidInput
from tocsin.broker.turns import SlotCount
from tocsin.workers.cli.blocks import Rows, span
from tocsin.workers.cli.findings import Finding, Health
from tocsin.workers.cli.session import Session, command

app = typer.Typer(
    name="turn",
    no_args_is_help=True,
    help="Turns of children that have a runner: how many at once.",
)


@command(app, "slots", example="tocsin turn slots --json")
def show_slots(session: Session) -> None:
    """Show how many turns are launched or run, and may be: of the fleet, each queue and account.

    An account is paused while its usage limit is reached. Needs no seat.
    """
    found = session.broker.turn_slots()
    session.out.result(found, _table(found))


@command(app, "limit", example="tocsin turn limit queue/gpu 4")
def limit_turns(
    session: Session,
    scope: Annotated[
        str,
        typer.Argument(metavar="SCOPE", help="fleet, queue/NAME or account/NAME."),
    ],
    limit: Annotated[str, typer.Argument(metavar="N", help='A number, or "default".')],
) -> None:
    """Set how many turns there may be at once. What runs goes on; needs no seat.

    A herd's own limit is its setting `turns_at_once`.
    """
    if limit != "default" and not limit.isdecimal():
        raise InvalidInput("limit_turns", f"limit must be a number or default, not {limit[:40]!r}")
    session.broker.limit_turns(scope, None if limit == "default" else int(limit))
    found = session.broker.turn_slots()
    session.out.result(found, _table(found))


def _table(found: list[SlotCount]) -> Rows:
    rows = [
        (
            each.scope,
            str(each.taken),
            str(each.limit),
            span(timedelta(milliseconds=each.paused_ms)) if each.paused_ms else "-",
        )
        for each in found
    ]
    return Rows(("scope", "at once", "limit", "paused for"), rows, whole=("scope",))


def check_turns(session: Session) -> Iterator[Finding]:
    """What doctor finds of turns; nothing where no child has a runner that has worked."""
    broker = session.broker
    fleet = broker.fleet()
    partitions = [keys.partition(fleet.name, number) for number in range(fleet.partitions)]
    due = running = 0
    for answer in broker.link.run_many([turns.count(fleet, each) for each in partitions]):
        if isinstance(answer, BrokerError):
            raise answer
        due, running = due + answer.due + answer.held, running + answer.turning
    slots = broker.turn_slots()
    if not due and not running and len(slots) == 1:
        return
    yield Finding("turns", Health.GOOD, f"{due} due, {running} launched or running")
    for each in slots:
        if each.taken >= each.limit:
            detail = f"{each.scope} has all its {each.limit} (`tocsin turn limit`): others wait"
            yield Finding("turns", Health.WARNING, detail)
        if each.paused_ms:
            detail = (
                f"{each.scope} is paused for {span(timedelta(milliseconds=each.paused_ms))}: its "
                "usage limit is reached"
            )
            yield Finding("turns", Health.WARNING, detail)
    used = {each.scope.partition("/")[2] for each in slots if each.scope.startswith("queue/")}
    yield from _check_workers(session, sorted(used))


def _check_workers(session: Session, used: list[str]) -> Iterator[Finding]:
    from tocsin.scheduler.launching import Queues  # slow to import

    place = session.connection.settings
    queues = Queues(Server(place.queues_url), place.fleet)
    try:
        listening = queues.workers()
    except BrokerError as error:
        detail = f"the Redis of RQ, which starts turns, is away: {error.detail}"
        yield Finding("workers", Health.BROKEN, detail)
        return
    finally:
        queues.close()
    for name in used:
        if not listening.get(name):
            detail = f"no worker of queue {name} runs, so its turns wait; run `tocsin worker`"
            yield Finding("workers", Health.WARNING, detail)
    if listening:
        said = ", ".join(f"{count} of {name}" for name, count in sorted(listening.items()))
        yield Finding("workers", Health.GOOD, f"of RQ, by queue: {said}")
