"""A fleet whose children run as turns: workers and a scheduler as processes, and what they did."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections import Counter
from contextlib import ExitStack, suppress
from datetime import timedelta
from pathlib import Path
from typing import Any, Self

from tests.acceptance.processes import ROOT
from tests.waiting import wait_until
from tests.workers.cli.long_running import Running
from tocsin.broker import Broker, CommandRunner, HerdSettings, Parent, Task
from tocsin.scheduler import Scheduler

AGENT = (sys.executable, str(ROOT / "tests" / "acceptance" / "scripted_agent.py"))

SHORT: dict[str, Any] = {
    "lease": timedelta(seconds=2),
    "lease_renewal": timedelta(milliseconds=500),
    "grace": timedelta(seconds=1),
    "journal_limit": 1_000_000,
    "max_attempts": 1_000,
}
"""So that a turn whose worker was killed is missed soon, and mail that was in many is not dead."""


class Fleet:
    """A herd of scouts, which ask a planner; workers and schedulers, by name."""

    def __init__(self, url: str, fleet: str, folder: Path, **settings: Any) -> None:
        self.url, self.name, self.folder = url, fleet, folder
        self.queues = f"{url.rpartition('/')[0]}/1"
        """RQ's own database, which may be flushed."""
        self._stack = ExitStack()
        self.broker = self._stack.enter_context(Broker.connect(url, fleet=fleet))
        self.parent: Parent = self.broker.open_herd("h", settings=HerdSettings(**settings))
        self.running: dict[str, Running] = {}
        self._scheduling: list[tuple[Scheduler, threading.Thread]] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        for name in list(self.running):
            self.kill(name)
        for scheduler, thread in self._scheduling:
            scheduler.stop()
            thread.join(30)
        with suppress(Exception):
            self.parent.close_herd()
        self._stack.close()

    def scouts(self, count: int, **runner: Any) -> list[str]:
        """Registers scouts and their planner."""
        runner = {"wake_batch": timedelta(milliseconds=100), **runner}
        made = CommandRunner([*AGENT, str(self.folder)], resume=("--resume", "{session}"), **runner)
        names = [f"scout-{number}" for number in range(count)]
        for name in (*names, "planner"):
            self.parent.register(name, runner=made)
        return names

    def start(self, kind: str, name: str, *arguments: str, **environ: str) -> Running:
        """Starts a `worker` or a `scheduler`."""
        place = ("--url", self.url, "--fleet", self.name)
        environ = {"TOCSIN_RQ_URL": self.queues, **environ}
        running = Running(self.folder, kind, *place, *arguments, **environ)
        self.running[name] = running
        return running

    def schedule(self) -> None:
        """A scheduler in this process, for tests that kill none."""
        scheduler = Scheduler(self.broker, rq_url=self.queues)
        thread = threading.Thread(target=scheduler.run, daemon=True)
        thread.start()
        self._scheduling.append((scheduler, thread))

    def kill(self, name: str) -> None:
        """SIGKILL, and waits until it is gone."""
        running = self.running.pop(name)
        running.process.kill()
        running.wait()

    def horses(self, name: str) -> list[int]:
        """The processes of the jobs that a worker runs."""
        return children(self.running[name].pid)

    def tasks(self) -> list[Task]:
        """All tasks of the herd."""
        return self.parent.tasks()

    def until_settled(self, count: int, within: float) -> list[Task]:
        """Until so many tasks have settled."""

        def settled() -> bool:
            return sum(task.state.terminal for task in self.tasks()) >= count

        wait_until(settled, f"{count} tasks to settle", within)
        return self.tasks()

    def began(self) -> Counter[str]:
        """How many turns each agent's program began."""
        path = self.folder / "turns"
        lines = path.read_text().splitlines() if path.exists() else []
        return Counter(line.split()[0] for line in lines)

    def events(self, *names: str) -> list[dict[str, Any]]:
        """What the journal says of these, from its first line on."""
        found, after = [], "0-0"
        while page := self.parent.journal(after=after, limit=1_000):
            after = page[-1].id
            found += [entry.fields | {"event": entry.event} for entry in page]
        return [each for each in found if each["event"] in names]


def children(pid: int) -> list[int]:
    """The processes that a process started, and that have not ended."""
    found = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            fields = path.read_text().rpartition(")")[2].split()
            if int(fields[1]) == pid and fields[0] != "Z":
                found.append(int(path.parent.name))
    return found


def kill(*pids: int) -> None:
    """SIGKILL to each that is there."""
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
