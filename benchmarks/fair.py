"""How long reminders of quiet herds wait while one herd has a flood of them, in real time."""

from __future__ import annotations

import statistics
import time
from datetime import timedelta
from typing import Any

import redis

from benchmarks.fleets import Herd, open_herds, open_waits
from benchmarks.measuring import Options, show
from benchmarks.schedulers import FLEET, inbox, now, schedulers, until
from tocsin.broker import Broker, HerdSettings, ScaledClock
from tocsin.broker.embedded import EmbeddedServer
from tocsin.broker.herds import set_settings

FACTOR = 60.0
"""The fleet's minute, the shortest threshold there is, is a second."""

QUIET = 20
"""Herds with one wait each, over all partitions."""

OFF = HerdSettings(stale_wait_threshold=0, reply_timeout=timedelta(0))
ON = HerdSettings(stale_wait_threshold=1)


def _reminded(plain: redis.Redis, herd: Herd) -> int:
    return int(plain.xlen(inbox(herd.parent)))


def _row(backlog: int, count: int) -> list[str]:
    with (
        EmbeddedServer(durable=False) as server,
        redis.Redis.from_url(server.url, decode_responses=True) as plain,
        Broker.connect(server.url, fleet=FLEET, clock=ScaledClock(FACTOR)) as broker,
    ):
        quiet = open_herds(broker, QUIET)
        (busy,) = open_herds(broker, 1, max(1, backlog), first=QUIET)
        for herd in (busy, *quiet):
            broker.run(set_settings(herd.parent, OFF, "argument"))
        open_waits(broker, [busy] * backlog)
        time.sleep(1.0)  # a minute of the fleet, so that all of them are due
        with schedulers(server.url, count):
            for herd in quiet:
                broker.run(set_settings(herd.parent, ON, "argument"))
            opened = {}
            for number, herd in enumerate(quiet):
                opened[number] = now(plain)
                open_waits(broker, [herd])
            began = now(plain)
            broker.run(set_settings(busy.parent, ON, "argument"))
            until(lambda: all(_reminded(plain, herd) for herd in quiet), "all reminders")
            until(lambda: _reminded(plain, busy) >= backlog, "the whole backlog")
        delays = [_at(plain, herd) - opened[n] - 1_000 for n, herd in enumerate(quiet)]
        took = max(1, _at(plain, busy) - began) if backlog else 0
        return [
            f"{backlog:,}",
            str(count),
            f"{took / 1000:.1f} s",
            f"{backlog / took * 1000:,.0f}" if backlog else "-",
            f"{statistics.median(delays):.0f} ms",
            f"{max(delays):.0f} ms",
        ]


def _at(plain: redis.Redis, herd: Herd) -> int:
    """When the last reminder of a herd was added, by the server's clock."""
    last: Any = plain.xrevrange(inbox(herd.parent), count=1)
    ((entry, _),) = last
    return int(str(entry).partition("-")[0])


def run(options: Options) -> None:
    """Times reminders of 20 herds while another has 100,000 due, under 1, 2 and 4 schedulers."""
    show(
        options.console,
        f"fair: reminders of {QUIET} herds while one other herd has a backlog of due waits",
        ["due in one herd", "schedulers", "fired in", "a second", "median delay", "worst delay"],
        [_row(0, 1), *(_row(options.backlog, count) for count in (1, 2, 4))],
    )
