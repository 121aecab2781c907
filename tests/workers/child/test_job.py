"""One turn, from its claim to its end: what its program gets, and how each end is reported."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import stat
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from tests.proxy import Proxy
from tests.requirements import proves
from tests.waiting import wait_until
from tests.workers.child.turning import LONG, Turning, python
from tocsin.broker import Broker, CallableRunner, CommandRunner, How, errors
from tocsin.broker.scripts import load
from tocsin.workers.child import job

NOW = timedelta(0)


@pytest.fixture
def herd(url: str, fleet_name: str) -> Iterator[Turning]:
    with Broker.connect(url, fleet=fleet_name) as broker:
        turning = Turning(broker, url, fleet_name)
        yield turning
        turning.parent.close_herd()


def command(text: str, **fields: Any) -> CommandRunner:
    """A runner of a program in Python, whose turns are due at once."""
    return CommandRunner(python(text), wake_batch=NOW, **fields)


SHOW = """
import json, os, pathlib, sys
print(json.dumps({
    "environ": dict(os.environ), "prompt": sys.stdin.read(), "cwd": os.getcwd(),
    "turn": json.load(open(os.environ["TOCSIN_TURN_FILE"])),
    "seat": oct(os.stat(os.environ["TOCSIN_DIR"] + "/seats.json").st_mode),
}))
pathlib.Path(os.environ["TOCSIN_SESSION_FILE"]).write_text("s-17")
raise SystemExit(3)
"""


def test_what_a_program_gets(herd, tmp_path):
    """Prompt, JSON, its place, its seat file, variables that are named; nothing else leaks."""
    runner = command(
        SHOW.replace("print(", f"open({str(tmp_path / 'seen')!r}, 'w').write("),
        cwd=str(tmp_path),
        env={"GIVEN": "1"},
        pass_env=("PASSED", "ABSENT"),
    )
    turn = herd.child(runner)
    task = herd.parent.delegate("scout", "Find how auth works")
    herd.run(turn, PASSED="2", SECRET="3", TOCSIN_TOKEN="tok_other", TOCSIN_SEAT="h/parent")
    seen = json.loads((tmp_path / "seen").read_text())
    environ = seen["environ"]
    assert (environ["GIVEN"], environ["PASSED"], environ["TOCSIN_AGENT"]) == ("1", "2", "scout")
    assert not {"SECRET", "ABSENT", "TOCSIN_TOKEN", "TOCSIN_SEAT"} & set(environ)
    assert (environ["TOCSIN_URL"], environ["TOCSIN_FLEET"]) == (herd.url, herd.fleet)
    assert seen["cwd"] == str(tmp_path)
    assert seen["seat"] == oct(stat.S_IFREG | 0o600)
    assert "Find how auth works" in seen["prompt"] and task.id in seen["prompt"]
    assert "tok_" not in seen["prompt"] and "tok_" not in json.dumps(environ)
    assert [each["task_id"] for each in seen["turn"]["mail"]] == [task.id]
    assert seen["turn"]["turn"] == 1
    assert not Path(environ["TOCSIN_DIR"]).exists()


def test_a_session_is_handed_on(herd, tmp_path):
    """What one turn says its session is, the next one is resumed with, behind its command."""
    text = (
        "import os, sys\n"
        f"open({str(tmp_path / 'log')!r}, 'a').write(' '.join(sys.argv[1:]) + '.')\n"
        "open(os.environ['TOCSIN_SESSION_FILE'], 'w').write('s-17')\n"
    )
    turn = herd.child(command(text, resume=("--resume", "{session}")))
    herd.parent.message("scout", "one")
    assert herd.run(turn) == "idle"
    herd.parent.message("scout", "two")
    assert herd.run(herd.turn(2)) == "idle"
    assert (tmp_path / "log").read_text() == ".--resume s-17."


def test_a_turn_that_is_not_to_be_run_does_nothing(herd, tmp_path):
    """Case 16: a stale job, one that is there twice, one of a herd that is gone end at once."""
    turn = herd.child(command(f"open({str(tmp_path / 'log')!r}, 'a').write('x')"))
    assert herd.run(turn) == "over"
    herd.parent.message("scout", "one")
    assert [herd.run(turn), herd.run(turn), herd.run(herd.turn(9))] == ["idle", "over", "over"]
    assert herd.run(turn | {"herd": "gone"}).startswith("over")
    assert (tmp_path / "log").read_text() == "x"


def test_commands_work_inside(herd):
    """`tocsin reply`, `progress` and `done` find fleet and seat by themselves."""
    tocsin = "import subprocess, os, json, sys\n" + (
        "turn = json.load(open(os.environ['TOCSIN_TURN_FILE']))\n"
        "def tocsin(*words): subprocess.run([sys.executable, '-m', 'tocsin.workers.cli.app', "
        "*words], check=True)\n"
        "tocsin('progress', 'on it')\n"
        "tocsin('reply', turn['mail'][0]['message_id'], 'yes')\n"
    )
    turn = herd.child(command(tocsin))
    asked = herd.parent.message("scout", "Is it?", expects_reply=True)
    assert herd.run(turn) == "idle"
    assert herd.parent.receipt(asked.message_id).request == "answered"
    assert herd.known().progress == "on it"


ENDS: dict[str, tuple[str, dict[str, Any], str, str]] = {
    "well": ("pass", {}, "clean", "idle"),
    "a code": ("raise SystemExit(7)", {}, "failed", "retried"),
    "a signal": ("import os; os.kill(os.getpid(), 9)", {}, "failed", "retried"),
    "time-out": ("import time; time.sleep(60)", {"turn_timeout": 0.5}, "failed", "retried"),
    "a limit": (
        "import sys; print('usage limit reached, try again in 1h', file=sys.stderr); sys.exit(1)",
        {},
        "limited",
        "parked",
    ),
    "a limit by the runner's word": (
        "print('quota gone')",
        {"limit_patterns": ("quota gone",)},
        "limited",
        "parked",
    ),
    "an error by the runner's word": (
        "print('no model')",
        {"error_patterns": ("no model",)},
        "failed",
        "retried",
    ),
}


@pytest.mark.parametrize("name", ENDS)
def test_how_it_ends(herd, name):
    """Case 16: each way to end is told to the broker once, in words that say which it was."""
    text, fields, kind, decided = ENDS[name]
    fields = {
        field: timedelta(seconds=value) if isinstance(value, float) else value
        for field, value in fields.items()
    }
    turn = herd.child(command(text, **fields))
    herd.parent.message("scout", "one")
    assert herd.run(turn) == decided
    [ending] = herd.endings()
    assert (ending["how"], ending["decided"]) == (kind, decided)


def test_a_program_that_is_not_there(herd):
    """Says so, and its task fails with it when that was the last try."""
    turn = herd.child(CommandRunner(["no-such-program"], wake_batch=NOW, retries=0))
    task = herd.parent.delegate("scout", "work")
    assert herd.run(turn) == "failed"
    settled = herd.parent.task(task.id)
    assert settled.state == "failed"
    assert settled.settlement is not None
    assert "no-such-program could not be started" in str(settled.settlement.error)


def test_the_tail_of_a_failure_is_kept_without_secrets(herd):
    """The task's error has the end of the output, and neither the turn's token nor a password."""
    text = (
        "import os, json\n"
        "seats = json.load(open(os.environ['TOCSIN_DIR'] + '/seats.json'))\n"
        "print('x' * 100_000)\nprint(seats)\nprint('the last words')\nraise SystemExit(1)"
    )
    turn = herd.child(command(text, retries=0))
    task = herd.parent.delegate("scout", "work")
    herd.run(turn)
    settlement = herd.parent.task(task.id).settlement
    assert settlement is not None
    error = str(settlement.error)
    assert "the last words" in error and "ended with 1" in error
    assert "tok_" not in error and len(error) < 6_000


TOKEN = (
    "import json, os, re, sys\n"
    "seats = open(os.environ['TOCSIN_DIR'] + '/seats.json').read()\n"
    "token = re.search('tok_[^\"]*', seats)[0]\n"
)


@pytest.mark.parametrize(
    ("profile", "text"),
    [
        ("command", "print('rate limit', token, file=sys.stderr)"),
        ("command", "print('x' * 480 + token)"),
        ("codex", "print(json.dumps({'type': 'error', 'message': 'bad ' + token}))"),
    ],
    ids=["standard error", "a line that is cut", "an event"],
)
def test_no_secret_is_in_the_reason_of_a_failure(herd, profile, text):
    """Case 31: nor in what a program says of itself, nor half of one where a line was cut."""
    turn = herd.child(command(f"{TOKEN}{text}\nsys.exit(1)", profile=profile, retries=0))
    task = herd.parent.delegate("scout", "work")
    assert herd.run(turn) == "failed"
    settlement = herd.parent.task(task.id).settlement
    assert settlement is not None and "***" in str(settlement.error)
    assert "tok_" not in str(settlement.error) + str(herd.endings())


def test_a_key_that_a_program_was_given_is_not_in_the_reason_of_a_failure(herd):
    """Case 31: of its environment and of its runner; short values are words like any other."""
    text = "import os\nprint([os.environ[n] for n in ('PROVIDER_KEY', 'KEY', 'MODE')])\nexit(1)"
    given = {"KEY": "sk-of-the-runner", "MODE": "fast"}
    turn = herd.child(command(text, pass_env=["PROVIDER_KEY"], env=given, retries=0))
    task = herd.parent.delegate("scout", "work")
    assert herd.run(turn, PROVIDER_KEY="sk-of-the-worker") == "failed"
    settlement = herd.parent.task(task.id).settlement
    assert settlement is not None and "['***', '***', 'fast']" in str(settlement.error)


def test_a_clean_end_may_complete(herd):
    """With `on_exit="complete"` what it printed last is the summary of its task."""
    turn = herd.child(command("print('JWT, see auth.py')", on_exit="complete"))
    task = herd.parent.delegate("scout", "work")
    assert herd.run(turn) == "idle"
    settled = herd.parent.task(task.id)
    assert settled.settlement is not None
    assert (settled.state, settled.settlement.summary) == ("completed", "JWT, see auth.py")


def waits(path: Path) -> str:
    """A program that leaves a mark, and then one of how it was ended."""
    return (
        "import signal, sys, time\n"
        f"def end(*_): open({str(path.with_name('ended'))!r}, 'w'); sys.exit(0)\n"
        "signal.signal(signal.SIGTERM, end)\n"
        f"open({str(path)!r}, 'w')\n"
        "time.sleep(600)\n"
    )


@pytest.mark.parametrize("how", ["cancel", "close"])
def test_it_is_stopped(herd, tmp_path, how):
    """Cancelling its task or closing its agent ends a running turn, politely first."""
    turn = herd.child(command(waits(tmp_path / "up")))
    task = herd.parent.delegate("scout", "work")
    with herd.start(turn) as job:
        herd.until_running(tmp_path / "up")
        if how == "cancel":
            herd.parent.cancel(task.id, reason="enough")
        else:
            herd.parent.close("scout")
        job.came_to()
    assert (tmp_path / "ended").exists()
    assert herd.parent.task(task.id).state == "cancelled"


def test_a_deaf_program_is_killed(herd, tmp_path):
    """After `stop_grace`, with all that it started."""
    text = f"import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN)\n{waits(tmp_path / 'up')}"
    text = text.replace("signal.signal(signal.SIGTERM, end)\n", "")
    turn = herd.child(command(text, stop_grace=timedelta(milliseconds=200)))
    task = herd.parent.delegate("scout", "work")
    with herd.start(turn) as job:
        herd.until_running(tmp_path / "up")
        herd.parent.cancel(task.id)
        assert job.came_to() == "stopped"


def test_a_worker_that_ends_gives_its_turn_back(herd, tmp_path):
    """Case 16: SIGTERM stops the program, the mail is as it was, and the turn is due again."""
    turn = herd.child(command(waits(tmp_path / "up")))
    herd.parent.delegate("scout", "work")
    with herd.start(turn) as job:
        herd.until_running(tmp_path / "up")
        job.process.terminate()
        assert job.came_to() == "stopped"
    assert (tmp_path / "ended").exists()
    assert herd.endings()[0]["how"] == "stopped"
    (tmp_path / "up").unlink()
    with herd.start(herd.turn(2)) as job:
        herd.until_running(tmp_path / "up")
        job.process.terminate()
        job.came_to()


def test_a_killed_job_leaves_no_program(herd, tmp_path):
    """Case 16: SIGKILL the process of the job: its program is ended, its folder removed."""
    text = f"import os\nopen({str(tmp_path / 'where')!r}, 'w').write(os.environ['TOCSIN_DIR'])\n"
    turn = herd.child(command(text + waits(tmp_path / "up")))
    herd.parent.delegate("scout", "work")
    with herd.start(turn) as job:
        herd.until_running(tmp_path / "up")
        job.process.kill()
        job.came_to()
    wait_until((tmp_path / "ended").exists, "the program to end", LONG)
    folder = Path((tmp_path / "where").read_text())
    wait_until(lambda: not folder.exists(), "its folder to go", LONG)


@proves("P10", "P12")
@pytest.mark.parametrize("lost", ["the report", "the answer to it", "the server"])
def test_the_server_away_at_the_moment_a_turn_ends(herd, tmp_path, lost):
    """Case 16: how it ended is said when the server is back, once; a finished task stays so, and
    the mail that was in hand is handled."""
    up, go = tmp_path / "up", tmp_path / "go"
    text = (
        "import json, os, pathlib, subprocess, sys, time\n"
        "task = json.load(open(os.environ['TOCSIN_TURN_FILE']))['mail'][0]['task_id']\n"
        "tocsin = [sys.executable, '-m', 'tocsin.workers.cli.app']\n"
        "subprocess.run([*tocsin, 'done', task, '--summary', 'JWT'], check=True)\n"
        f"open({str(up)!r}, 'w').write(str(os.getpid()))\n"
        f"while not pathlib.Path({str(go)!r}).exists(): time.sleep(0.01)\n"
    )
    assert herd.run(herd.child(command("pass"), "planner")) == "over"
    herd.parent.message("planner", "so that the server knows how a turn ends")
    assert herd.run(herd.turn(1, "planner")) == "idle"
    turn = herd.child(command(text))
    task = herd.parent.delegate("scout", "work")
    with Proxy(herd.url) as proxy, herd.start(turn, TOCSIN_URL=proxy.url) as job:
        herd.until_running(up)
        if lost == "the server":
            proxy.freeze()
        else:
            cut = proxy.cut_next(load("turn_end").sha, before=lost == "the report")
        go.touch()
        if lost == "the server":
            program = Path(f"/proc/{up.read_text()}")
            wait_until(lambda: not program.exists(), "the program to end", LONG)
            proxy.cut_all()
            proxy.thaw()
        assert job.came_to() == "idle"
        assert lost == "the server" or cut.happened
    assert [each["how"] for each in herd.endings()] == ["clean", "clean"]
    settled = herd.parent.task(task.id).settlement
    assert settled is not None and (settled.status, settled.summary) == ("completed", "JWT")
    assert [each.kind for each in herd.parent.inbox()] == ["task_settled"]
    assert herd.known().unread == 0


def test_a_server_that_is_away_before_a_turn_began_fails_none():
    """Its mail cannot be had: the turn is given back, as by a worker that is told to stop."""

    class Away:
        def receive(self, **_: Any) -> None:
            raise errors.Unavailable("receive", "the server does not answer")

    class Claimed:
        child = Away()

    claimed: Any = Claimed()
    nothing: Any = None
    ending = job._run(claimed, nothing, nothing, nothing)
    assert (ending.kind, "does not answer" in str(ending.error)) == (How.STOPPED, True)


def called(turn):
    turn.progress(f"{turn.reason} {turn.number}: {turn.mail[0].body}, session {turn.session}")
    turn.session = "kept"
    turn.done(summary="by a function")


async def called_async(turn):
    await turn.progress(f"{turn.mail[0].body} from {turn.mail[0].sender}")
    asked = await turn.message("parent", "May I?", expects_reply=True)
    turn.session = asked.message_id


def raises(turn):
    raise ValueError("no")


def exits(turn):
    raise SystemExit(3)


def says_why(turn):
    raise SystemExit("no model")


def leaves(turn):
    raise SystemExit


def waits_on(turn):
    import threading

    turn.progress("up")
    threading.Event().wait(600)


def deaf(turn):
    import time

    turn.progress("up")
    while True:
        try:
            time.sleep(600)
        except BaseException:
            continue


async def told_late(turn):
    loop = asyncio.get_running_loop()
    close = loop.close

    def closed():
        close()
        os.kill(os.getpid(), signal.SIGTERM)

    loop.close = closed  # type: ignore[method-assign]


def function(name: str, **fields: Any) -> CallableRunner:
    return CallableRunner(f"tests.workers.child.test_job:{name}", wake_batch=NOW, **fields)


def test_a_function_runs_a_turn(herd):
    """It has its mail and its task, and settles it; the session it leaves it finds again."""
    turn = herd.child(function("called"))
    task = herd.parent.delegate("scout", "work")
    assert herd.run(turn) == "idle"
    settled = herd.parent.task(task.id)
    assert settled.settlement is not None
    assert (settled.state, settled.settlement.summary) == ("completed", "by a function")
    assert herd.known().progress == "mail 1: work, session None"
    herd.parent.delegate("scout", "more")
    herd.run(herd.turn(2))
    assert herd.known().progress == "mail 2: more, session kept"


def test_an_async_function_runs_a_turn(herd):
    """The same, awaited; its question makes its task wait."""
    turn = herd.child(function("called_async"))
    task = herd.parent.delegate("scout", "work")
    assert herd.run(turn) == "waits"
    assert herd.parent.task(task.id).state == "waiting"
    assert herd.known().progress == "work from parent"


def test_a_function_that_is_told_to_end_in_its_last_moment_says_how_it_ended(herd):
    """Its loop has closed, its process not yet: it is given back, not lost with the process."""
    turn = herd.child(function("told_late"))
    herd.parent.message("scout", "work")
    assert herd.run(turn) == "stopped"
    assert [each["how"] for each in herd.endings()] == ["stopped"]


def test_a_function_that_raises_has_failed(herd):
    """With its exception as the reason."""
    turn = herd.child(function("raises", retries=0))
    task = herd.parent.delegate("scout", "work")
    assert herd.run(turn) == "failed"
    settlement = herd.parent.task(task.id).settlement
    assert settlement is not None and "ValueError: no" in str(settlement.error)


@pytest.mark.parametrize(
    ("name", "how", "decided"),
    [
        ("exits", "failed", "failed"),
        ("says_why", "failed", "failed"),
        ("leaves", "clean", "nudged"),
    ],
)
def test_a_function_that_exits_has_ended(herd, name, how, decided):
    """As a program with that code: it is neither lost nor given back, which would be for ever."""
    turn = herd.child(function(name, retries=0))
    herd.parent.delegate("scout", "work")
    assert herd.run(turn) == decided
    [ending] = herd.endings()
    assert ending["how"] == how
    assert name == "leaves" or f"test_job:{name} ended" in ending["why"]


def test_a_function_that_is_not_there(herd):
    """Is named."""
    turn = herd.child(function("absent", retries=0))
    task = herd.parent.delegate("scout", "work")
    herd.run(turn)
    settlement = herd.parent.task(task.id).settlement
    assert settlement is not None and "cannot be imported" in str(settlement.error)


@pytest.mark.parametrize("name", ["waits_on", "deaf"])
def test_a_function_is_stopped(herd, name):
    """A cancel interrupts it where it is; one that goes on ends with its process."""
    turn = herd.child(function(name, stop_grace=timedelta(milliseconds=300)))
    task = herd.parent.delegate("scout", "work")
    with herd.start(turn) as job:
        wait_until(lambda: herd.known().progress == "up", "the function to run", LONG)
        herd.parent.cancel(task.id)
        job.came_to()
    assert herd.endings()[0]["how"] == "stopped"


def test_output_of_a_coding_agent_counts_as_work(herd, tmp_path):
    """Events and the transcript of its own session are published while the turn runs."""
    script = tmp_path / "claude"
    script.write_text(
        "#!/bin/sh\n"
        "cat > /dev/null\n"
        'echo \'{"type": "system", "session_id": "s-1"}\'\n'
        'echo \'{"type": "result", "session_id": "s-1", "is_error": false, "result": "Done."}\'\n'
    )
    script.chmod(0o755)
    runner = CommandRunner([str(script)], profile="claude-code", wake_batch=NOW, on_exit="complete")
    turn = herd.child(runner)
    task = herd.parent.delegate("scout", "work")
    assert herd.run(turn, HOME=str(tmp_path)) == "idle"
    settlement = herd.parent.task(task.id).settlement
    assert settlement is not None and settlement.summary == "Done."
    assert os.environ.get("HOME") != str(tmp_path)
