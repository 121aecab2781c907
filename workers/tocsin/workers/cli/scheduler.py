"""`tocsin scheduler`: the process that fires timers, in the foreground."""

from __future__ import annotations

import asyncio
import json
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any

import typer

from tocsin.broker import AsyncBroker
from tocsin.broker.alerts import Alert, document
from tocsin.broker.errors import InvalidInput, Unavailable
from tocsin.broker.ids import make_id
from tocsin.broker.settings import NotifySettings, parse_duration, parse_setting
from tocsin.broker.settings_files import resolve_notify
from tocsin.scheduler import AsyncScheduler
from tocsin.scheduler.health import check
from tocsin.scheduler.outlets import AsyncOutlet
from tocsin.workers.cli.blocks import Facts
from tocsin.workers.cli.output import REFUSED
from tocsin.workers.cli.serving import LogFormat, log_to_stderr, serve
from tocsin.workers.cli.session import Session, command

app = typer.Typer()


@command(app, "scheduler", example="tocsin scheduler --log-format json")
def scheduler(
    session: Session,
    once: Annotated[
        bool, typer.Option("--once", help="Fire what is due now, print how much, and end.")
    ] = False,
    repair_every: Annotated[
        str,
        typer.Option(
            "--repair-every",
            metavar="DURATION",
            help="How often it compares all records with what is derived from them, after a first "
            "time at its start; 0: never.",
        ),
    ] = "10m",
    health: Annotated[
        bool,
        typer.Option(
            "--health",
            help="Look whether the schedulers of this machine do their work; end with 0 if so.",
        ),
    ] = False,
    max_lag: Annotated[
        str,
        typer.Option(
            "--max-lag", metavar="DURATION", help="How late timers may be before --health fails."
        ),
    ] = "30s",
    log_format: Annotated[
        LogFormat, typer.Option("--log-format", help="How its log on stderr is written.")
    ] = LogFormat.HUMAN,
    notify_command: Annotated[
        str | None,
        typer.Option(
            metavar="WORDS",
            show_default=False,
            help="Tell a human by this command, run without a shell; alerts are JSON on its stdin.",
        ),
    ] = None,
    notify_url: Annotated[
        str | None,
        typer.Option(
            metavar="URL", show_default=False, help="Tell a human by posting alerts, as JSON."
        ),
    ] = None,
    notify_private: Annotated[
        bool | None,
        typer.Option(
            show_default=False, help="Whether that url may lead to a private or loopback address."
        ),
    ] = None,
    notify_events: Annotated[
        str | None,
        typer.Option(metavar="A,B", show_default=False, help="Tell of these events alone."),
    ] = None,
    test_notify: Annotated[
        bool, typer.Option("--test-notify", help="Send a sample alert, and end.")
    ] = False,
) -> None:
    """Fire the fleet's timers: reminders, deadlines, leases, retention. Run as many as you like.

    Now and then it repairs what was lost beside the records, as `tocsin doctor --repair` does.
    It runs until SIGTERM or Ctrl-C and then ends with 0. While the server is
    away it waits; only --once gives up (69).

    --health, a container's health check, ends with 1 if no scheduler reports
    from this machine, if one hangs, one of its duties has stopped, or the
    fleet's oldest timer is late by more than --max-lag.

    With --notify-command or --notify-url, or those settings, it tells a
    human, once each, of reminders, blocked and failed tasks, dead letters,
    agents that are away from open work, and questions to agents of which
    no process runs.
    """
    every = parse_duration(repair_every, operation="scheduler", field="--repair-every") or None
    options = {
        "notify_command": notify_command,
        "notify_url": notify_url,
        "notify_private": notify_private,
        "notify_events": notify_events,
    }
    notify = _notify({name: given for name, given in options.items() if given is not None})
    if health:
        longest = parse_duration(max_lag, operation="scheduler", field="--max-lag")
        _health(session, longest)
        return
    log_to_stderr(log_format)
    if test_notify:
        asyncio.run(_test(session, notify))
    else:
        asyncio.run(_once(session, notify, every) if once else _run(session, notify, every))


def _health(session: Session, max_lag: timedelta) -> None:
    found = check(session.broker, max_lag)
    lag = None if found.lag is None else round(found.lag / timedelta(milliseconds=1))
    session.out.result(
        {
            "healthy": not found.problems,
            "problems": found.problems,
            "lag_ms": lag,
            "schedulers": found.schedulers,
        },
        "; ".join(found.problems)
        or f"{len(found.schedulers)} at work, no timer later than {lag} ms",
    )
    if found.problems:
        raise typer.Exit(REFUSED)


def _notify(options: dict[str, Any]) -> NotifySettings:
    """How a human is told: what the options say, over the other layers."""
    values = {
        name: parse_setting(name, value, where="--" + name.replace("_", "-"))
        for name, value in options.items()
    }
    return resolve_notify(NotifySettings(**values)).settings


async def _test(session: Session, notify: NotifySettings) -> None:
    if notify.target is None:
        raise InvalidInput(
            "notify", "no human is told: give --notify-command or --notify-url, or set one"
        )
    fleet = session.connection.settings.fleet
    alert = Alert(make_id("alert"), "test", "none", datetime.now(UTC), 1, {})
    sample = document(alert, fleet, notify.notify_preview)
    [failure] = await AsyncOutlet(notify).tell([sample])
    if failure is not None:
        raise Unavailable("notify", failure)
    session.out.result(sample, f"Told {notify.target}: {json.dumps(sample)}")


def _connect(session: Session) -> AsyncBroker:
    place = session.place("scheduler")
    return AsyncBroker.connect(place.url, fleet=place.fleet, partitions=place.partitions)


def _scheduler(
    session: Session, broker: AsyncBroker, notify: NotifySettings, every: timedelta | None
) -> AsyncScheduler:
    place = session.connection.settings
    return AsyncScheduler(broker, notify, repair_every=every, rq_url=place.rq_url)


async def _run(session: Session, notify: NotifySettings, every: timedelta | None) -> None:
    async with _connect(session) as broker:
        with suppress(Unavailable):  # it waits for the server; what it is refused for stays
            await broker.fleet()
        await serve(_scheduler(session, broker, notify, every))


async def _once(session: Session, notify: NotifySettings, every: timedelta | None) -> None:
    async with _connect(session) as broker:
        fired = await _scheduler(session, broker, notify, every).tick()
    facts = [(duty.replace("_", " "), str(count)) for duty, count in sorted(fired.items())]
    session.out.result(fired, Facts(facts) if facts else "Nothing was due.")
