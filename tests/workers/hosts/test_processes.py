"""Processes that files of a session name: killed, frozen, or others that have their numbers."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.waiting import wait_until
from tests.workers.hosts.conftest import PATIENCE
from tocsin.workers import lineage
from tocsin.workers.hosts.doorbell import MAIL, SessionFiles, in_running_hosts
from tocsin.workers.hosts.events import Moment
from tocsin.workers.lineage import Process


@pytest.fixture
def other():
    """A process that has nothing to do with Tocsin."""
    process = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    yield process
    process.kill()
    process.wait()


def is_stopped(pid):
    """Whether a signal has stopped a process; it takes effect a moment after it was sent."""
    proc = Path(f"/proc/{pid}/stat")
    words = ["ps", "-o", "stat=", "-p", str(pid)]
    text = proc.read_text().rpartition(")")[2] if proc.exists() else subprocess.check_output(words)
    return "T" in str(text)


def awake(session):
    """Whether somebody waits for the session's pipe, and somebody else would write to it."""
    return session.files.waiter and session.files.is_heard()


def reported(machine):
    """The states of scout's sessions, as who listens for them said."""
    scout = next(each for each in machine.roster() if each["agent"] == "scout")
    return [each["state"] for each in scout["sessions"]]


def test_the_number_of_a_process_is_not_the_process(machine, other):
    """A later one of the same number is neither taken for who listens or waits, nor ended."""
    session = machine.session()
    session.begin()
    os.kill(session.files.listener, signal.SIGKILL)
    wait_until(lambda: session.files.listener is None, "it to be gone", PATIENCE)
    for name in ("pid", "waiter"):
        (session.files.folder / name).write_text(f"{other.pid} 1\n")
    assert session.files.listener is None and session.files.waiter is None
    assert session.hook(Moment.PROMPT, prompt="hi") is None
    wait_until(session.files.is_heard, "another one to listen", PATIENCE)
    waiter = session.start(Moment.WAIT)
    wait_until(lambda: awake(session), "it to wait", PATIENCE)
    session.end()
    assert waiter.wait(PATIENCE) == 0
    waiter.communicate()
    assert other.poll() is None


def test_a_session_ends_though_nobody_listens(machine, other):
    """Its files go, its waiter goes, and who was about to listen makes nothing anew."""
    session = machine.session()
    session.begin()
    waiter = session.start(Moment.WAIT)
    wait_until(lambda: awake(session), "it to wait", PATIENCE)
    listener = session.files.listener
    for name in ("pid", "waiter"):
        (session.files.folder / name).write_text(f"{other.pid} 1\n")
    os.kill(listener, signal.SIGSTOP)
    try:
        wait_until(lambda: is_stopped(listener), "it to be frozen")
        session.hook(Moment.END, reason="other")
        assert not session.files.folder.exists()
    finally:
        os.kill(listener, signal.SIGCONT)
    assert waiter.wait(PATIENCE) == 0
    waiter.communicate()
    words = ("hook", "claude-code", "listen", "--session", "s-1", "--wakes", "--seat", session.seat)
    assert machine.cli.start(*words).communicate(timeout=PATIENCE) == ("", "")
    assert not session.files.folder.exists() and other.poll() is None


def test_a_session_ends_with_its_process_though_the_number_goes_on(tmp_path, other):
    """What a dead host left is removed, also when another process has its number."""
    alive, dead = (SessionFiles(tmp_path, "codex", name) for name in ("alive", "dead"))
    process = Process.of(other.pid)
    for files, kept in ((alive, process), (dead, Process(other.pid, "1"))):
        files.keep({"host": "codex", "session": files.session, "process": str(kept)})
    found = [(files.session, kept) for files, kept in in_running_hosts(tmp_path)]
    assert found == [("alive", process)]
    assert alive.folder.exists() and not dead.folder.exists()


def test_a_listener_that_is_killed_is_replaced_while_its_session_sleeps(machine):
    """Its waiter notices, starts another one, and is woken by it."""
    session = machine.session()
    session.begin()
    waiter = session.start(Moment.WAIT)
    wait_until(lambda: awake(session), "it to wait", PATIENCE)
    killed = session.files.listener
    os.kill(killed, signal.SIGKILL)
    wait_until(lambda: session.files.listener not in (None, killed), "another one", PATIENCE)
    message = machine.send("come")
    out, err = waiter.communicate(timeout=PATIENCE)
    assert (waiter.returncode, out) == (2, "") and message in err
    session.end()


def test_a_listener_that_is_frozen_is_replaced(machine):
    """Hooks hand over what came, and start another one; the earlier one ends, and says no end."""
    session = machine.session()
    session.begin()
    frozen = session.files.listener
    process = Process.of(frozen)
    os.kill(frozen, signal.SIGSTOP)
    try:
        wait_until(lambda: is_stopped(frozen), "it to be frozen")
        (session.files.folder / "beat").write_text("1\n")
        assert not session.files.is_heard()
        steer = machine.send("use B", "--steer")
        text = session.context(Moment.TOOL, tool_name="Bash")
        assert text is not None and steer in text
        wait_until(lambda: reported(machine) == ["working"], "another one to listen", PATIENCE)
    finally:
        os.kill(frozen, signal.SIGCONT)
    wait_until(lambda: not process.runs(), "it to end", PATIENCE)
    assert reported(machine) == ["working"]
    machine.send("use C", "--steer")
    session.flagged(MAIL)
    session.end()


def test_a_listener_shows_that_it_runs(machine):
    """It was taken for frozen, and with its next beat is not any more."""
    session = machine.session()
    session.begin()
    (session.files.folder / "beat").write_text("1\n")
    assert not session.files.is_heard()
    wait_until(session.files.is_heard, "the next beat", PATIENCE)


@pytest.mark.parametrize("text", ['{"session_id":"s 1"}', '{"session_id": "%s"}' % ("x" * 101)])
def test_names_of_sessions_that_are_no_names_of_files(machine, text):
    """A space, or more than a file's name should have: the session has its files, and ends."""
    session = machine.session(text.partition(": ")[2][1:-2] or "s 1")
    session.begin()
    assert session.files.folder.name.removeprefix("claude-code-").isalnum()
    session.end()


def test_the_id_of_a_session_may_follow_a_space(machine):
    """Hosts write their JSON with spaces after colons, or without them."""
    session = machine.session()
    session.begin()
    done = subprocess.run(
        ["/bin/sh", "-c", session.command(Moment.END)],
        input='{"session_id": "s-1", "hook_event_name": "SessionEnd"}',
        env=machine.environ | session.variables,
        text=True,
        timeout=PATIENCE,
        check=True,
    )
    assert done.returncode == 0
    wait_until(lambda: not session.files.folder.exists(), "the listener to end", PATIENCE)


def test_a_process_is_told_from_a_later_one(other):
    """It runs until it has ended, also while nobody has asked how; a kept one is read back."""
    process = Process.of(other.pid)
    assert process.runs() and Process.read(f"{process}\n") == process
    assert not Process(other.pid, "1").runs()
    other.kill()
    wait_until(lambda: not process.runs(), "it to end", PATIENCE)
    other.wait()
    assert not process.runs() and not Process.of(other.pid).runs()
    for text in (None, 5, "", "5", "x y", "-5 1"):
        assert Process.read(text) is None


@pytest.mark.skipif(shutil.which("ps") is None, reason="there is no ps here")
def test_a_system_without_proc_has_the_same_of_ps(other, monkeypatch):
    """What `ps` says of a process: parent, name, when it began, and whether it has ended."""
    monkeypatch.setattr(lineage, "_looking", lineage._of_ps)
    process = Process.of(other.pid)
    assert process.runs() and " " not in process.began
    look = lineage._of_ps()
    assert look(other.pid).parent == os.getpid()
    assert look(os.getpid()).name == lineage._of_proc(os.getpid()).name
    other.kill()
    wait_until(lambda: not process.runs(), "it to end", PATIENCE)
