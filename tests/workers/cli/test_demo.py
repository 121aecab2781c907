"""`tocsin demo`: the main job lived by real processes, and judged on what really happened."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console
from typer.testing import CliRunner

from tests.waiting import wait_until
from tests.workers.cli import lived as story
from tests.workers.cli.lived import lived
from tests.workers.cli.long_running import Running, finish, gone, running, wait_until_gone
from tocsin.workers.cli.app import app
from tocsin.workers.cli.demo.pace import THRESHOLD, Pace
from tocsin.workers.cli.demo.performance import Performance
from tocsin.workers.cli.demo.promises import PROMISES, Judge
from tocsin.workers.cli.demo.reading import find_tree, measure, where_to_start
from tocsin.workers.cli.demo.timeline import event_row

Start = Callable[..., Running]

SABOTAGES = {
    "silence-settles-nothing": {
        "never answered": story.never("request_answered", "task_1"),
        "done while it waits": story.earlier("completed", 3, "task_1"),
        "turn not ended": story.never("handled"),
        "not idle": story.never("status"),
    },
    "one-reminder": {
        "two": story.twice("reminded", "task_1"),
        "none": story.never("reminded", "task_1"),
        "none of the second wait": story.never("reminded", "task_2"),
        "below the threshold": story.earlier("reminded", 0.5, "task_2"),
    },
    "reminder-wakes-nobody": {
        "woken by it": story.otherwise("is_woken", "task_1", kind="reminder"),
        "a turn too early": story.earlier("taken", 1),
    },
    "reminder-is-found": {
        "not found": story.never("sees_reminder", "task_2"),
        "found twice": story.twice("sees_reminder", "task_1"),
        "another question": story.otherwise("sees_reminder", "task_1", question="Another?"),
    },
    "late-answer-counts": {"never ran": story.never("running", "task_1")},
    "summary-is-real": {
        "made up": story.otherwise("is_woken", "task_1", summary="All is well."),
        "another answer": story.otherwise("answers", "task_1", answer="elsewhere"),
    },
    "one-settlement": {
        "two": story.twice("accepted", "task_1"),
        "not woken": story.never("is_woken", "task_2"),
    },
    "deadline-blocks": {
        "too early": story.earlier("blocked", 1),
        "another reason": story.otherwise("blocked", error="its owner said so"),
    },
    "nothing-else": {
        "a third task": story.besides("failed", "task_3"),
        "a dead letter": story.besides("dead"),
        "a lost process": story.besides("lost"),
    },
    "nothing-left": {"a process": story.left_behind("process 42 (scout)")},
}


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    with running(tmp_path) as start:
        yield start


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A small file tree, so that reading it takes no time."""
    folder = tmp_path / "code"
    (folder / "deep").mkdir(parents=True)
    (folder / "README.md").write_text("# Code\n\nA reader starts here.\n")
    (folder / "deep" / "engine.py").write_text("def start():\n    return 1\n\n\nKEY = 2\n")
    (folder / ".hidden").write_text("not read\n")
    (folder / "photo.bin").write_bytes(b"\xff\xfe\x00not text")
    return folder


def test_the_story_is_lived_and_every_promise_kept(tmp_path: Path, tree: Path) -> None:
    """The document has the events, the verdicts, and processes that all are gone."""
    done = finish(tmp_path, "demo", "--speed", "600", "--tree", str(tree), "--json")
    document = json.loads(done.stdout)
    kept = {promise["name"]: promise["verdict"] for promise in document["promises"]}
    assert kept == dict.fromkeys((promise.name for promise in PROMISES), "kept"), document
    assert done.returncode == 0 and document["kept"] and document["stuck"] is None
    pids = document["processes"]
    assert set(pids) == {"parent", "scout", "planner", "scheduler", "server"}
    assert all(gone(pid) for pid in pids.values())
    said = [event["what"] for event in document["events"] if event["source"] == "agent"]
    assert said.count("sees_reminder") == said.count("is_woken") == 2
    states = [event["state"] for event in document["events"] if event["state"]]
    assert states[-4:] == ["created", "running", "waiting", "blocked"]


def test_the_same_story_with_children_as_turns(tmp_path: Path, tree: Path) -> None:
    """Two workers run a program for each turn of scout and planner; every promise is kept."""
    done = finish(
        tmp_path, "demo", "--runner", "rq", "--speed", "300", "--tree", str(tree), "--json"
    )
    document = json.loads(done.stdout)
    kept = {promise["name"]: promise["verdict"] for promise in document["promises"]}
    assert kept == dict.fromkeys((promise.name for promise in PROMISES), "kept"), document
    pids = document["processes"]
    assert set(pids) == {"parent", "worker-1", "worker-2", "scheduler", "server"}
    assert all(gone(pid) for pid in pids.values())


def test_people_see_a_timeline(tmp_path: Path, tree: Path) -> None:
    """Piped it is plain text: minutes, who did what, the task's state, and the promises."""
    done = finish(tmp_path, "demo", "--speed", "1000", "--tree", str(tree))
    lines = done.stdout.splitlines()
    assert done.returncode == 0, done.stdout + done.stderr
    assert "\x1b" not in done.stdout
    assert any(re.match(r" 0:\d\d  parent     delegates to scout", line) for line in lines)
    assert any("scheduler  reminds parent, quietly" in line for line in lines)
    assert any("is woken" in line and line.endswith("task 2 blocked") for line in lines)
    assert sum("✓" in line for line in lines) == len(PROMISES)
    assert lines[-1].startswith(f"All {len(PROMISES)} promises kept")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_nothing_is_left_however_it_ends(start: Start, tree: Path, number: int) -> None:
    """Interrupted, terminated or killed in the midst of it, it takes all its processes along."""
    demo = start("demo", "--tree", str(tree))
    wait_until(lambda: "planner" in demo.line(), "the question to be taken", timeout=30)
    pids = descendants(demo.pid)
    assert len(pids) == 6  # four roles, the server and its watcher
    assert demo.end(number) == (-number if number == signal.SIGKILL else 130), demo.errors
    wait_until_gone(*pids)


def test_an_agent_that_dies_ends_it_with_its_name(start: Start, tree: Path) -> None:
    """The demo does not wait for an agent that is no more: it says which, and ends with 1."""
    demo = start("demo", "--tree", str(tree))
    wait_until(lambda: "planner" in demo.line(), "the question to be taken", timeout=30)
    pids = descendants(demo.pid)
    (planner,) = (pid for pid, command in pids.items() if command.endswith("player planner"))
    os.kill(planner, signal.SIGKILL)
    assert demo.wait() == 1
    assert "the process of planner ended with -9" in "".join(demo.errors)
    wait_until_gone(*pids)


def descendants(pid: int) -> dict[int, str]:
    """The processes below one, with their command lines."""
    found: dict[int, str] = {}
    for child, parent, command in _processes():
        if parent == pid:
            found |= {child: command, **descendants(child)}
    return found


def _processes() -> Iterator[tuple[int, int, str]]:
    """Id, parent and command line of every process: from /proc, or by `ps` where there is none."""
    if Path("/proc/self/stat").exists():
        for folder in Path("/proc").glob("[0-9]*"):
            try:
                parent = (folder / "stat").read_text().rpartition(")")[2].split()[1]
                command = (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode().strip()
            except OSError:
                continue  # it ended
            yield int(folder.name), int(parent), command
        return
    listing = subprocess.check_output(["ps", "-A", "-ww", "-o", "pid=,ppid=,args="], text=True)
    for line in listing.splitlines():
        child, parent, command = line.split(None, 2)
        if not command.startswith("ps "):
            yield int(child), int(parent), command.strip()


def test_a_story_well_lived_keeps_every_promise() -> None:
    """The record that the sabotages below start from."""
    judge = Judge()
    judge.look(lived())
    judge.close()
    assert {promise.name: now.word for promise, now in judge.verdicts.items()} == dict.fromkeys(
        (promise.name for promise in PROMISES), "kept"
    )


@pytest.mark.parametrize(
    ("name", "sabotage"),
    [
        pytest.param(name, sabotage, id=f"{name}: {what}")
        for name, ways in SABOTAGES.items()
        for what, sabotage in ways.items()
    ],
)
def test_a_sabotaged_promise_is_the_one_that_breaks(name: str, sabotage: story.Sabotage) -> None:
    """Each promise sees what breaks it, and says what it saw."""
    record = lived()
    sabotage(record)
    judge = Judge()
    judge.look(record)
    judge.close()
    details = {promise.name: now.detail for promise, now in judge.broken}
    assert details.get(name), details


def test_every_promise_is_sabotaged_here() -> None:
    """No promise is in the list that nothing could break."""
    assert set(SABOTAGES) == {promise.name for promise in PROMISES}


def test_a_broken_promise_ends_the_demo_with_its_name(
    monkeypatch: pytest.MonkeyPatch, tree: Path
) -> None:
    """The exit code is 1, and stderr names the promise and what happened instead."""

    async def run(play: Performance) -> None:
        play.record = lived()
        story.twice("reminded", "task_1")(play.record)
        play.judge.look(play.record)

    monkeypatch.setattr(Performance, "run", run)
    result = CliRunner().invoke(app, ["demo", "--tree", str(tree)])
    assert result.exit_code == 1
    assert "exactly one reminder. task task_1 raised 2 reminders in one wait" in result.stderr
    as_json = CliRunner().invoke(app, ["demo", "--tree", str(tree), "--json"])
    assert as_json.exit_code == 1
    document = json.loads(as_json.stdout)
    broken = [each["name"] for each in document["promises"] if each["verdict"] == "broken"]
    assert broken == ["one-reminder"] and not document["kept"]


def test_a_promise_that_was_not_seen_kept_is_broken() -> None:
    """A story that ends before its promises came about has not kept them."""
    judge = Judge()
    judge.close()
    assert len(judge.broken) == len(PROMISES)


@pytest.mark.parametrize("speed", [1, 60, 600, 1000])
def test_the_story_keeps_its_order_at_any_speed(speed: float) -> None:
    """Between reminder, late answer and deadline there are real seconds, however fast it runs."""
    pace = Pace(speed)
    for moment, seconds in ((pace.answer_after, 2), (pace.reply_within, 3)):
        assert pace.real_seconds(moment - THRESHOLD) >= seconds
    assert pace.reply_timeout > pace.answer_after


def test_scout_really_reads(tree: Path) -> None:
    """What is counted is what is there: text files, hidden and binary ones aside."""
    reading = measure(tree)
    assert (reading.files, reading.lines, reading.python) == (2, 8, 1)
    assert (reading.longest, reading.longest_lines) == ("deep/engine.py", 5)
    assert where_to_start(tree / reading.longest).startswith("at start, line 1: 2 of 5 lines")
    assert where_to_start(tree / "README.md").startswith("at the top")
    assert measure(tree / "deep" / "none").files == 0


def test_without_a_repository_the_installed_source_is_read(tmp_path: Path) -> None:
    """Run elsewhere the demo reads the package itself; in the repository, that."""
    here = Path(__file__).resolve().parents[3]
    assert find_tree(here / "tests") == here
    assert (find_tree(tmp_path) / "broker" / "envelopes.py").is_file()


def test_words_of_a_file_cannot_move_the_cursor() -> None:
    """What an agent says is shown with its control characters made visible."""
    record = lived()
    row = event_row(replace(record.events[2], text="reads \x1b[2J.py"), record)
    assert row is not None
    console = Console(width=100)
    with console.capture() as capture:
        console.print(row)
    assert "reads \\x1b[2J.py" in capture.get()


def test_another_server_is_refused(tmp_path: Path) -> None:
    """The demo never touches a server of anybody's."""
    refused = finish(tmp_path, "demo", "--url", "redis://127.0.0.1:6379/0")
    assert refused.returncode == 2 and "leave out --url" in refused.stderr
