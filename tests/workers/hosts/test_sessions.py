"""Sessions of hosts with a real server: their hooks run as hosts run them, and somebody listens."""

from __future__ import annotations

import json
import os
import signal
import stat
import subprocess
import time

import pytest

from tests.waiting import wait_until
from tests.workers.hosts.conftest import PATIENCE
from tocsin.broker.embedded import EmbeddedServer
from tocsin.workers.hosts.doorbell import MAIL, SILENT, TASK, WAKING
from tocsin.workers.hosts.events import Moment


def test_a_session_of_claude_code(machine):
    """It is told who it is; hears in its turn of steer mail, at its end of waking mail; and sleeps
    until its waiter wakes it with what came meanwhile."""
    session = machine.session()
    greeting = session.begin()
    assert greeting is not None and "agent scout of herd release-42" in greeting
    assert session.context(Moment.PROMPT, prompt="hi") is None
    steer = machine.send("use B", "--steer")
    session.flagged(MAIL)
    text = session.context(Moment.TOOL, tool_name="Bash", tool_response="x" * 100_000)
    assert text is not None and steer in text and "| use B" in text
    machine.cli.good("ack", steer, "--seat", session.seat)
    waking = machine.send("come")
    session.flagged(WAKING)
    answer = session.hook(Moment.STOP, stop_hook_active=False)
    assert answer is not None and answer["decision"] == "block" and waking in answer["reason"]
    machine.cli.good("inbox", "--seat", session.seat)
    session.flagged(WAKING, False)
    assert session.hook(Moment.STOP, stop_hook_active=True) is None
    waiter = session.start(Moment.WAIT)
    wait_until(lambda: session.files.waiter, "it to wait")
    later = machine.send("and again")
    out, err = waiter.communicate(timeout=PATIENCE)
    assert (waiter.returncode, out) == (2, "") and later in err and "and again" not in err

    def tries():
        receipt = machine.cli.json("receipt", later, "--seat", "release-42/parent")
        return [each for each in receipt["wake"] if each["path"] == "stop-hook"]

    wait_until(tries, "the try in the receipt", PATIENCE)
    machine.cli.good("inbox", "--seat", session.seat)
    scout = next(each for each in machine.roster() if each["agent"] == "scout")
    assert (scout["wakeable"], scout["wake_path"]) == (True, "stop-hook")
    session.end()


def test_an_earlier_waiter_goes_and_a_later_one_is_woken(machine):
    """Of each session one waits; at its end it is let go, with a code that wakes nobody."""
    session = machine.session()
    session.begin()
    first = session.start(Moment.WAIT)
    wait_until(lambda: session.files.waiter, "the first to wait")
    second = session.start(Moment.WAIT)
    assert first.wait(PATIENCE) not in (0, 2)
    wait_until(lambda: _reads(session.files.folder / "wake"), "the second to wait")
    session.end()
    assert second.wait(PATIENCE) == 0
    for process in (first, second):
        process.communicate()


def _reads(pipe):
    try:
        os.close(os.open(pipe, os.O_WRONLY | os.O_NONBLOCK))
    except OSError:
        return False
    return True


def test_a_sub_agent_hears_nothing(machine):
    """What happens inside of a sub-agent of the session is not the agent's turn."""
    session = machine.session()
    session.begin()
    machine.send("use B", "--steer")
    session.flagged(MAIL)
    assert session.hook(Moment.TOOL, agent_id="agent-1", agent_type="Explore") is None
    assert session.hook(Moment.STOP, agent_id="agent-1") is None
    assert session.hook(Moment.TOOL) is not None


def test_a_host_within_a_host_hears_nothing(machine, as_host):
    """A host that was started by a tool call of a session has its seat, and is not that agent."""
    outer = machine.session()
    outer.begin()
    machine.send("use B", "--steer")
    outer.flagged(MAIL)
    inner = machine.session("s-2", host="codex")
    for moment in (Moment.START, Moment.PROMPT, Moment.TOOL, Moment.STOP):
        process = inner.start(moment, by=as_host, source="startup")
        assert process.communicate(timeout=PATIENCE) == ("", "") and process.returncode == 0
    assert inner.files.raised(SILENT) and inner.files.listener is None
    assert outer.hook(Moment.TOOL) is not None
    inner.files.remove()


def test_a_second_session_is_told_of_the_first(machine):
    """Two live sessions of one seat are one too many: the user's agent says so."""
    machine.session().begin()
    greeting = machine.session("s-2").begin()
    assert greeting is not None and "Tell your user" in greeting and "s-1" in greeting


def test_a_listener_ends_with_its_host(machine, as_host):
    """A host that is killed leaves neither a process nor a file."""
    session = machine.session()
    begun = machine.cli.home / "begun"
    session.command(Moment.START)
    process = session.start(Moment.START, by=as_host)
    process.communicate(timeout=PATIENCE)
    wait_until(lambda: not session.files.folder.exists(), "the listener to end", PATIENCE)
    assert not begun.exists()


def test_a_newer_listener_takes_the_place_of_the_older(machine):
    """Of each session one process listens; the older one ends and takes nothing away."""
    session = machine.session()
    session.begin()
    older = session.files.listener
    words = ("--session", "s-1", "--detach", "--seat", session.seat)
    assert machine.cli.start("hook", "claude-code", "listen", *words).communicate() == ("", "")
    wait_until(lambda: session.files.listener not in (None, older), "the newer one", PATIENCE)
    wait_until(lambda: not _runs(older), "the older one to end", PATIENCE)
    assert session.files.record["seat"] == session.seat


def _runs(pid):
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def test_without_a_seat_there_is_nothing(machine):
    """No seat, or a variable that the host passed on unexpanded: no word, no process, no file."""
    session = machine.session()
    for named in ("", "${TOCSIN_SEAT}", "${TOCSIN_SEAT:-}"):
        session.variables = {"TOCSIN_SEAT": named}
        assert session.hook(Moment.START, source="startup") is None
    session.variables = {"TOCSIN_TURN": "1", "TOCSIN_SEAT": session.seat}
    assert session.hook(Moment.START, source="startup") is None, "a worker hands its turn its mail"
    assert not machine.sessions.exists()


def test_a_cleared_environment_is_enough(machine):
    """A host that clears PATH and all else runs what is there by absolute paths alone."""
    session = machine.session()
    machine.environ.pop("PATH")
    assert "scout" in (session.begin() or "")


def test_a_host_that_says_nothing_we_know_is_left_alone(machine):
    """Broken events, and those of other kinds, are answered with nothing."""
    session = machine.session()
    command = session.command(Moment.TOOL)
    for text in (
        "",
        "{",
        "[]",
        "null",
        '{"session_id": 5}',
        '{"session_id":"../../x"}',
        "[" * 9_999,
    ):
        done = subprocess.run(
            ["/bin/sh", "-c", command],
            input=text,
            capture_output=True,
            text=True,
            env=machine.environ | session.variables,
            timeout=PATIENCE,
            check=False,
        )
        assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


@pytest.mark.parametrize("host", ["claude-code", "codex", "generic"])
def test_a_moment_that_there_is_not_is_said_in_words(machine, host):
    """With `--debug`, on stderr, with those that there are; it ends well all the same."""
    session = machine.session(host=host)
    with machine.cli.start(
        *("hook", host, "run", "nonsense", "--debug", "--seat", session.seat),
        stdin=subprocess.PIPE,
    ) as process:
        said, errors = process.communicate(json.dumps({"session_id": "s-1"}), PATIENCE)
    assert (process.returncode, said) == (0, "")
    assert errors == "there is no moment 'nonsense'; there are start, prompt, tool, stop, end\n"


def test_the_name_of_a_session_is_no_path(machine):
    """A session whose name could lead elsewhere has its files where all have, and ends like all."""
    session = machine.session("../../x")
    session.begin()
    assert session.files.folder.parent == machine.sessions
    session.end()


def test_a_broker_that_is_down_or_hangs_is_not_noticed(machine):
    """While there is no broker, or a frozen one, hooks end well, soon, and say nothing; when it is
    back the listener hears again."""
    session = machine.session()
    with EmbeddedServer(durable=False) as server:
        url = machine.environ["TOCSIN_URL"]
        machine.environ["TOCSIN_URL"] = server.url
        pid = server.pid
        os.kill(pid, signal.SIGSTOP)
        try:
            began = time.monotonic()
            assert session.hook(Moment.START, source="startup") is None
            assert session.hook(Moment.TOOL) is None
            assert time.monotonic() - began < PATIENCE
        finally:
            os.kill(pid, signal.SIGCONT)
    assert session.hook(Moment.STOP, stop_hook_active=False) is None
    assert session.files.listener is not None
    machine.environ["TOCSIN_URL"] = url


def test_the_files_of_a_session_are_its_owners(machine):
    """Folders are for their owner alone; the pipe, too."""
    session = machine.session()
    session.begin()
    wait_until((session.files.folder / "wake").exists, "the pipe")
    for path in (machine.sessions, session.files.folder, session.files.folder / "wake"):
        assert stat.S_IMODE(path.stat().st_mode) & 0o077 == 0


def test_each_turn_is_told_that_a_task_is_open(machine):
    """Also where a host does not say that a turn goes on: what was done in the last one is over."""
    session = machine.session(host="generic")
    session.hook(Moment.START)
    wait_until(lambda: session.files.listener, "the listener to run", PATIENCE)
    machine.cli.good("task", "delegate", "scout", "look", "--seat", "release-42/parent")
    machine.cli.good("inbox", "--seat", session.seat)
    session.flagged(TASK)
    for _ in range(2):
        session.flagged(WAKING, False)
        assert session.hook(Moment.PROMPT) is None
        answer = session.hook(Moment.STOP)
        assert answer is not None and answer["continue"]
        assert session.hook(Moment.STOP) is None
    session.end()


def test_a_token_in_a_variable_is_enough(machine):
    """Its listener has it from there too, so that a session without a seat file is woken."""
    words = ("agent", "register", "guest", "--print-token", "--seat", "release-42/parent")
    token = machine.cli.json(*words)["token"]
    machine.cli.good("seat", "forget", "release-42/guest")
    session = machine.session(seat="release-42/guest")
    session.variables["TOCSIN_TOKEN"] = token
    session.begin()
    waiter = session.start(Moment.WAIT)
    wait_until(lambda: session.files.waiter, "it to wait")
    message = machine.send("come", to="guest")
    _, err = waiter.communicate(timeout=PATIENCE)
    assert waiter.returncode == 2 and message in err
    session.end()
