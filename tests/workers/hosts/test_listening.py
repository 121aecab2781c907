"""The listener that an extension of a host starts: lines of JSON in and out, and when it ends."""

from __future__ import annotations

import json
import os
import queue
import signal
import subprocess
import threading
from contextlib import nullcontext
from typing import Any

import pytest

from tests.waiting import wait_until
from tests.workers.cli.conftest import PROGRAM
from tests.workers.hosts.conftest import PATIENCE
from tocsin.broker import Broker
from tocsin.broker.embedded import EmbeddedServer
from tocsin.workers.hosts import listening as listening_for
from tocsin.workers.hosts.doorbell import Handed, SessionFiles


class Listening:
    """A listener, and what it says."""

    def __init__(self, machine, session: str = "s-1", host: str = "pi", **environ: str) -> None:
        self.files = SessionFiles(machine.sessions, host, session)
        self.process = subprocess.Popen(
            [*PROGRAM, "hook", host, "listen", "--session", session],
            env=machine.environ | {"TOCSIN_SEAT": "release-42/scout"} | environ,
            cwd=machine.cli.home,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self._lines: queue.Queue[str] = queue.Queue()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self._lines.put(line)

    def ready(self) -> Listening:
        """Waits until it has the files of its session."""
        wait_until((self.files.folder / "wake").exists, "it to listen", PATIENCE)
        return self

    def tell(self, **said: Any) -> None:
        """Tells it something."""
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(said) + "\n")
        self.process.stdin.flush()

    def said(self) -> dict[str, Any]:
        """The next thing it says."""
        found: dict[str, Any] = json.loads(self._lines.get(timeout=PATIENCE))
        return found

    def end(self) -> int:
        """Ends it as a host does that ends: nothing more comes on stdin."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        return self.gone()

    def gone(self) -> int:
        """How it ended, once it has; all it said is read."""
        code = self.process.wait(PATIENCE)
        self._reader.join(PATIENCE)
        assert self.process.stdout is not None and self.process.stdin is not None
        self.process.stdout.close()
        self.process.stdin.close()
        return code


@pytest.fixture
def listening(machine):
    """Starts listeners, which do not outlive the test."""
    started = []

    def start(*args, **how):
        started.append(Listening(machine, *args, **how))
        return started[-1]

    yield start
    for each in started:
        if each.process.poll() is None:
            each.end()


def test_an_idle_session_is_woken(machine, listening):
    """Mail that wakes is said to be there, with its ids, and no word of its body."""
    listener = listening().ready()
    sent = machine.send("secret words")
    said = listener.said()
    assert said["event"] == "wake" and said["messages"] == [sent]
    assert sent in said["text"] and "secret" not in said["text"]
    listener.tell(tried="send-user-message", ok=True, messages=[sent])
    assert listener.end() == 0
    assert not listener.files.folder.exists()


def test_a_busy_session_is_handed_what_does_not_wait(machine, listening):
    """While it works steer mail is handed over in full; of waking mail it is told at once."""
    listener = listening().ready()
    listener.tell(state="working")
    wait_until(lambda: listener.files.state[0] == "working", "it to hear", PATIENCE)
    waking = machine.send("come")
    steer = machine.send("use B", "--steer")
    said = {each["event"]: each for each in (listener.said(), listener.said())}
    assert said["mail"]["delivery"] == "steer"
    assert steer in said["mail"]["text"] and "| use B" in said["mail"]["text"]
    assert said["wake"]["messages"] == [waking]


def test_it_is_there_as_long_as_it_listens(machine, listening):
    """The agent is present while its session is, and gone with it."""

    def present():
        return next(each["present"] for each in machine.roster() if each["agent"] == "planner")

    listener = listening(TOCSIN_SEAT="release-42/planner")
    wait_until(present, "its presence", PATIENCE)
    listener.process.send_signal(signal.SIGTERM)
    assert listener.gone() == 0
    wait_until(lambda: not present(), "its end", PATIENCE)


def test_it_says_again_that_its_session_is_there(url, fleet_name, tmp_path, monkeypatch):
    """Where nothing else renews a lease, as far away over HTTP, the session would seem to end."""
    monkeypatch.setattr(listening_for, "SAYS_EVERY", 0.0)
    monkeypatch.setattr(listening_for, "LOCAL", 0.01)
    with Broker.connect(url, fleet=fleet_name) as broker:
        parent = broker.open_herd("h")
        scout = broker.join("h", "scout", str(parent.register("scout").token))
        files = SessionFiles(tmp_path / "sessions", "pi", "s-1")
        handed = Handed(tmp_path / "sessions", url, fleet_name, "h/scout")
        listener = listening_for.Listener(
            "pi", ("tmux",), files, handed, lambda: nullcontext(scout), say=lambda _: None
        )
        said: list[str] = []

        def report(host: str, session: str, state: str, paths: list[str]) -> None:
            said.append(state)
            if len(said) == 3:
                listener.stop()

        monkeypatch.setattr(scout, "report_session", report)
        listener.run()
        assert said == ["idle", "idle", "idle", "ended"]
        parent.close_herd()


def test_a_newer_one_takes_its_place(listening):
    """Of each session there is one listener: the older one ends, and its files are the newer's."""
    older = listening().ready()
    newer = listening()
    assert older.gone() == 0
    wait_until(lambda: newer.files.listener == newer.process.pid, "the newer one", PATIENCE)
    assert newer.end() == 0


def test_it_goes_on_without_a_broker(machine, listening):
    """A broker that is away is waited for; what came meanwhile is then said."""
    with EmbeddedServer(durable=False) as away:
        url = away.url
    listener = listening(TOCSIN_URL=url).ready()
    assert listener.process.poll() is None
    os.kill(listener.process.pid, signal.SIGTERM)
    assert listener.gone() == 0


def test_broken_lines_are_nothing(machine, listening):
    """What is no JSON object on its stdin is passed over."""
    listener = listening().ready()
    assert listener.process.stdin is not None
    listener.process.stdin.write("{\n[]\nnull\n" + "[" * 5_000 + '\n{"state": 5}\n{"tried": []}\n')
    listener.process.stdin.flush()
    sent = machine.send("come")
    assert listener.said()["messages"] == [sent]
