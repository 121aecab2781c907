"""Turns in tests: a herd whose children have runners, and one turn run as a job would run it."""

from __future__ import annotations

import multiprocessing
import os
import sys
from collections.abc import Mapping
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, Self

from tests.waiting import wait_until
from tocsin.broker import AgentInfo, Broker, CallableRunner, CommandRunner, HerdSettings, Parent
from tocsin.workers.child import job

LONG = 30.0

_fork = multiprocessing.get_context("forkserver")
_fork.set_forkserver_preload(["tocsin.workers.child.worker"])


def _job(turn: dict[str, Any], environ: dict[str, str], says: Connection) -> None:
    os.environ.update(environ)
    sys.path[:0] = filter(None, environ.get("PYTHONPATH", "").split(os.pathsep))
    says.send(job.run_turn(**turn))


class Job:
    """A turn's job in a process, which is forked as a work horse is."""

    def __init__(self, turn: Mapping[str, Any], environ: dict[str, str]) -> None:
        self._said, says = _fork.Pipe(duplex=False)
        self.process = _fork.Process(target=_job, args=(dict(turn), environ, says))
        self.process.start()
        says.close()

    def came_to(self) -> str:
        """What it came to, when it has ended; empty if it did not say."""
        self.process.join(LONG)
        assert self.process.exitcode is not None, "the job did not end"
        try:
            return str(self._said.recv())
        except EOFError:
            return ""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.process.kill()
        self.process.join(LONG)
        self._said.close()


def python(text: str) -> list[str]:
    """The words of a program in Python."""
    return [sys.executable, "-c", text]


class Turning:
    """A herd of which `scout` and `planner` have runners."""

    def __init__(self, broker: Broker, url: str, fleet: str, **settings: Any) -> None:
        self.broker, self.url, self.fleet = broker, url, fleet
        self.parent: Parent = broker.open_herd("h", settings=HerdSettings(**settings))

    def child(
        self, runner: CommandRunner | CallableRunner, name: str = "scout"
    ) -> Mapping[str, Any]:
        """Registers a child; the arguments of its first turn's job."""
        self.parent.register(name, runner=runner)
        return self.turn(1, name)

    def turn(self, number: int, name: str = "scout") -> dict[str, Any]:
        """The arguments of a turn's job."""
        return {"fleet": self.fleet, "herd": "h", "agent": name, "turn": number}

    def start(self, turn: Mapping[str, Any], **environ: str) -> Job:
        """Runs a turn's job in a process."""
        return Job(turn, {"TOCSIN_URL": self.url, **environ})

    def run(self, turn: Mapping[str, Any], **environ: str) -> str:
        """What a turn came to, run to its end."""
        with self.start(turn, **environ) as job:
            return job.came_to()

    def known(self, name: str = "scout") -> AgentInfo:
        """A child as the roster shows it."""
        return next(each for each in self.parent.roster() if each.agent == name)

    def endings(self) -> list[dict[str, Any]]:
        """How turns ended, by the journal."""
        return [
            entry.fields
            for entry in self.parent.journal(limit=1_000)
            if entry.event == "turn_ended"
        ]

    def until_running(self, path: Path) -> None:
        """Until a program has left its mark."""
        wait_until(path.exists, f"{path.name} to be there", LONG)
