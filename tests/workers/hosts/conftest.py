"""A machine with a host's sessions on it, which run the hooks that Tocsin would install."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.waiting import wait_until
from tests.workers.cli.conftest import Cli, cli  # noqa: F401 - a fixture
from tocsin.workers.hosts.doorbell import SessionFiles
from tocsin.workers.hosts.events import NAMES, Moment

PATIENCE = 30.0


class Hosted:
    """One session of a host: it runs the hooks as the host does, by its shell, with an event."""

    def __init__(self, machine: Machine, host: str, session: str, seat: str) -> None:
        self.machine = machine
        self.host = host
        self.session = session
        self.seat = seat
        self.files = SessionFiles(machine.sessions, host, session)
        self.variables = {"TOCSIN_SEAT": seat}
        machine.hosted.append(self)

    def command(self, moment: Moment) -> str:
        """What the host runs at a moment."""
        settings = self.machine.settings(self.host)["hooks"]
        if self.host == "generic":
            return str(settings[moment])
        name = NAMES[Moment.STOP if moment is Moment.WAIT else moment]
        entries = settings[name][0]["hooks"]
        return str(entries[1 if moment is Moment.WAIT else 0]["command"])

    def start(
        self, moment: Moment, by: tuple[str, ...] = ("/bin/sh", "-c"), **fields: Any
    ) -> subprocess.Popen[str]:
        """Runs a hook, with the host's event on its stdin."""
        event = {"session_id": self.session, "cwd": str(self.machine.cli.home)}
        event |= {"hook_event_name": NAMES.get(moment, "Stop"), **fields}
        process = subprocess.Popen(
            [*by, self.command(moment)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd=self.machine.cli.home,
            env=self.machine.environ | self.variables,
        )
        assert process.stdin is not None
        process.stdin.write(json.dumps(event, separators=(",", ":")))
        process.stdin.close()
        process.stdin = None
        return process

    def hook(self, moment: Moment, **fields: Any) -> dict[str, Any] | None:
        """What the host is answered; a hook always ends well and says nothing on stderr."""
        process = self.start(moment, **fields)
        out, err = process.communicate(timeout=PATIENCE)
        assert (process.returncode, err) == (0, "")
        return json.loads(out) if out else None

    def context(self, moment: Moment, **fields: Any) -> str | None:
        """What the model reads beside."""
        answer = self.hook(moment, **fields)
        return None if answer is None else answer["hookSpecificOutput"]["additionalContext"]

    def begin(self, **fields: Any) -> str | None:
        """The session begins, and its listener hears."""
        said = self.context(Moment.START, source="startup", **fields)
        wait_until(lambda: self.files.listener, "the listener to run", PATIENCE)
        return said

    def end(self) -> None:
        """The session ends, and its listener with it."""
        self.hook(Moment.END, reason="other")
        wait_until(lambda: not self.files.folder.exists(), "the listener to end", PATIENCE)

    def flagged(self, flag: str, up: bool = True) -> None:
        """Waits until a flag is up, or down."""
        wait_until(lambda: self.files.raised(flag) is up, f"{flag} to be {up}", PATIENCE)


class Machine:
    """A machine with the seats of a herd, and the sessions of hosts on it."""

    def __init__(self, cli: Cli) -> None:  # noqa: F811
        self.cli = cli
        cli.variables["XDG_STATE_HOME"] = str(cli.home / "state")
        self.sessions = cli.home / "state/tocsin/sessions"
        self.hosted: list[Hosted] = []
        self._settings: dict[str, Any] = {}
        kept = ("PATH", "LANG", "SHELL")
        self.environ = cli.variables | {
            name: os.environ[name] for name in kept if name in os.environ
        }

    def settings(self, host: str) -> Any:
        """What Tocsin puts into a host's settings."""
        if host not in self._settings:
            self._settings[host] = self.cli.json("hook", host, "print")
        return self._settings[host]

    def session(
        self, name: str = "s-1", host: str = "claude-code", seat: str = "release-42/scout"
    ) -> Hosted:
        """A session that has not begun."""
        return Hosted(self, host, name, seat)

    def send(self, body: str, *options: str, to: str = "scout", seat: str = "parent") -> str:
        """The id of a message of another agent."""
        words = ("message", to, body, *options, "--seat", f"release-42/{seat}")
        return str(self.cli.json(*words)["message_id"])

    def roster(self) -> list[dict[str, Any]]:
        """The agents of the herd."""
        found: list[dict[str, Any]] = self.cli.json("agent", "list", "--seat", "release-42/parent")
        return found


@pytest.fixture
def machine(cli: Cli) -> Iterator[Machine]:  # noqa: F811
    """A machine with a herd of parent, scout and planner."""
    machine = Machine(cli)
    cli.staff("scout", "planner")
    yield machine
    for hosted in machine.hosted:
        if hosted.files.folder.exists():
            hosted.end()
    cli.good("herd", "close", "release-42", "--yes")


HOLDER = """
import subprocess, sys
done = subprocess.run(["/bin/sh", "-c", sys.argv[1]], stdin=sys.stdin)
sys.stdout.flush()
if len(sys.argv) > 2:
    open(sys.argv[2], "w").close()
    import time; time.sleep(600)
"""


@pytest.fixture
def as_host(tmp_path: Path) -> tuple[str, ...]:
    """A program that runs a hook as a host of its own would: it is the hook's parent."""
    path = tmp_path / "host.py"
    path.write_text(HOLDER)
    return (sys.executable, str(path))
