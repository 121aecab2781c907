"""A hundred thousand messages in and out: the memory of the server and of its client stays flat."""

from __future__ import annotations

import os
import subprocess
from datetime import timedelta
from pathlib import Path

from benchmarks.fleets import QUESTION, SETTINGS
from benchmarks.measuring import Options, Place, place, seconds, show
from tocsin.broker import Parent
from tocsin.broker._sync.agent import Agent
from tocsin.scheduler import Scheduler

PASSED = 100_000
"""Messages that go in and out."""

LOOKS = 10
BATCH = 100
AFTER_RETENTION = timedelta(hours=1, minutes=1)


def resident(pid: int) -> int:
    """Bytes that a process holds of the machine's memory."""
    statm = Path(f"/proc/{pid}/statm")
    if statm.exists():
        return int(statm.read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    told = subprocess.run(["ps", "-o", "rss=", "-p", str(pid)], capture_output=True, check=True)
    return int(told.stdout) * 1024


def _pass_through(parent: Parent, planner: Agent, count: int) -> None:
    for _ in range(count // BATCH):
        for _ in range(BATCH):
            parent.message("planner", QUESTION)
        planner.receive(limit=BATCH).ack()


def _row(here: Place, name: str, took: float) -> list[str]:
    server: dict[str, int] = here.plain.info()
    sizes = (
        here.used_memory(),
        resident(int(server["process_id"])),
        resident(os.getpid()),
    )
    speed = f"{PASSED / LOOKS / took:,.0f}" if took else ""
    return [name, *(f"{size / 2**20:.1f} MB" for size in sizes), speed]


def _rows() -> list[list[str]]:
    with place() as here:
        parent = here.broker.open_herd("soak", settings=SETTINGS)
        token = parent.register("planner").token
        assert token is not None
        planner = here.broker.join("soak", "planner", token)
        scheduler, rows = Scheduler(here.broker), []

        def an_hour() -> None:
            _pass_through(parent, planner, PASSED // LOOKS)
            here.clock.advance(AFTER_RETENTION)
            scheduler.tick()

        an_hour()  # what is made once is there from here on
        rows.append(_row(here, "0", 0.0))
        for look in range(1, LOOKS + 1):
            took = seconds(an_hour)
            rows.append(_row(here, f"{PASSED // LOOKS * look:,}", took))
    return rows


def run(options: Options) -> None:
    """Memory over time; each row is an hour of the fleet, after which receipts end."""
    columns = ["messages handled", "data held", "server RSS", "client RSS", "messages/s"]
    title = f"soak: {PASSED:,} messages in and out, an hour of the fleet for each {LOOKS}th of them"
    show(options.console, title, columns, _rows())
