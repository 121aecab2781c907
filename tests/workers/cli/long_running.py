"""Commands that run until they are told to stop, as real processes that never outlive the test."""

from __future__ import annotations

import json
import os
import queue
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

from tests.waiting import TIMEOUT, wait_until
from tocsin.broker import Broker, Kind, TaskState

PROGRAM = (sys.executable, "-m", "tocsin.workers.cli.app")


def environment(home: Path) -> dict[str, str]:
    """An environment in which nobody has set anything up."""
    environ = {name: value for name, value in os.environ.items() if not name.startswith("TOCSIN_")}
    return environ | {
        "HOME": str(home),
        "XDG_CONFIG_HOME": str(home / "config"),
        "XDG_DATA_HOME": str(home / "data"),
    }


def finish(home: Path, *arguments: str, **environ: str) -> subprocess.CompletedProcess[str]:
    """A command that ends by itself, once it has."""
    return subprocess.run(
        [*PROGRAM, *arguments],
        env=environment(home) | environ,
        cwd=home,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


class Running:
    """A command that runs: its lines as they come, its end."""

    def __init__(self, home: Path, *arguments: str, **environ: str) -> None:
        self.process = subprocess.Popen(
            [*PROGRAM, *arguments],
            env=environment(home) | environ,
            cwd=home,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self.pid = self.process.pid
        self.errors: list[str] = []
        self._lines: queue.Queue[str] = queue.Queue()
        self._threads = [
            threading.Thread(target=self._read, args=(self.process.stdout, self._lines.put)),
            threading.Thread(target=self._read, args=(self.process.stderr, self.errors.append)),
        ]
        for thread in self._threads:
            thread.start()

    def _read(self, stream: Any, keep: Callable[[str], None]) -> None:
        with stream:
            for line in stream:
                keep(line)

    def line(self) -> str:
        """The next line of stdout."""
        try:
            return self._lines.get(timeout=30)
        except queue.Empty:
            raise AssertionError(f"no line came; stderr: {self.errors}") from None

    def document(self) -> Any:
        """The next line of stdout, which is JSON."""
        return json.loads(self.line())

    def end(self, number: int = signal.SIGTERM) -> int:
        """Sends a signal and returns the exit code."""
        self.process.send_signal(number)
        return self.wait()

    def wait(self) -> int:
        """Returns the exit code once it ended."""
        code = self.process.wait(30)
        for thread in self._threads:
            thread.join(30)
        return code

    def close(self) -> None:
        """Ends it, whatever became of the test."""
        if self.process.poll() is None:
            self.process.kill()
        self.wait()


@contextmanager
def running(home: Path) -> Iterator[Callable[..., Running]]:
    """Starts commands, and ends those that still run when the test is over."""
    started: list[Running] = []

    def start(*arguments: str) -> Running:
        started.append(Running(home, *arguments))
        return started[-1]

    try:
        yield start
    finally:
        for each in started:
            each.close()


def gone(pid: int) -> bool:
    """Whether the process is no more."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    return False


def wait_until_gone(*pids: int) -> None:
    """Returns once none of the processes is left."""
    wait_until(lambda: all(gone(pid) for pid in pids), f"processes {pids} to be gone")


def assert_timers_fire(url: str, fleet: str, herd: str = "release-42") -> None:
    """A question's reply deadline passes and blocks its task: some scheduler is at work."""
    with Broker.connect(url, fleet=fleet) as broker:
        parent = broker.open_herd(herd)
        scout = broker.join(herd, "scout", str(parent.register("scout").token))
        parent.register("planner")
        task = parent.delegate("scout", "Find how auth works", watch=True)
        assert scout.next_turn(timeout=TIMEOUT) is not None
        scout.message(
            "planner",
            "Which?",
            task=task.id,
            expects_reply=True,
            reply_within=timedelta(milliseconds=50),
        )
        turn = parent.next_turn(timeout=TIMEOUT)
        assert turn is not None and [envelope.kind for envelope in turn] == [Kind.TASK_SETTLED]
        assert parent.task(task.id).state is TaskState.BLOCKED
