"""`tocsin scheduler`: the process that fires timers, in the foreground."""

from __future__ import annotations

import asyncio
from typing import Annotated

import typer

from tocsin.broker import AsyncBroker
from tocsin.scheduler import AsyncScheduler
from tocsin.workers.cli.blocks import Facts
from tocsin.workers.cli.serving import LogFormat, log_to_stderr, serve
from tocsin.workers.cli.session import Session, command

app = typer.Typer()


@command(app, "scheduler", example="tocsin scheduler --log-format json")
def scheduler(
    session: Session,
    once: Annotated[
        bool, typer.Option("--once", help="Fire what is due now, print how much, and end.")
    ] = False,
    log_format: Annotated[
        LogFormat, typer.Option("--log-format", help="How its log on stderr is written.")
    ] = LogFormat.HUMAN,
) -> None:
    """Fire the fleet's timers: reminders, deadlines, leases, retention. Run as many as you like.

    It runs until SIGTERM or Ctrl-C and then ends with 0. While the server is
    away it waits; only --once gives up (69).
    """
    log_to_stderr(log_format)
    asyncio.run(_once(session) if once else _run(session))


def _connect(session: Session) -> AsyncBroker:
    place = session.connection.settings
    return AsyncBroker.connect(place.url, fleet=place.fleet)


async def _run(session: Session) -> None:
    async with _connect(session) as broker:
        await serve(broker)


async def _once(session: Session) -> None:
    async with _connect(session) as broker:
        fired = await AsyncScheduler(broker).tick()
    facts = [(duty.replace("_", " "), str(count)) for duty, count in sorted(fired.items())]
    session.out.result(fired, Facts(facts) if facts else "Nothing was due.")
