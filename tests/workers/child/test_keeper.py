"""A kept program: what it gets, what is heard of it, and that nothing of it outlives anybody."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest

from tests.waiting import wait_until

LONG = 30.0

KEPT = """
import json, os, sys, threading
from pathlib import Path
from tocsin.workers.child.keeper import Keeper

heard, over, up = {"stdout": b"", "stderr": b""}, threading.Event(), threading.Event()
def hear(stream, data):
    heard[stream] += data
    if b"up" in heard["stdout"]:
        up.set()

words, folder, mode = json.loads(sys.argv[1]), Path(sys.argv[2]), sys.argv[3]
(folder / "prompt.txt").write_text("the prompt")
keeper = Keeper()
keeper.start(words, cwd=folder, env={"PATH": os.environ["PATH"], "A": "1"},
             stdin=folder / "prompt.txt", grace=0.2, heard=hear, ended=over.set)
print(keeper.pid, flush=True)
if mode == "stop":
    up.wait()
    import signal
    keeper.signal(signal.SIGTERM)
over.wait()
keeper.close()
print(json.dumps({"status": keeper.status, "failure": keeper.failure,
                  **{name: text.decode() for name, text in heard.items()}}))
"""


def start(tmp_path: Path, *words: str, mode: str = "wait") -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", KEPT, json.dumps(words), str(tmp_path), mode],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


def finish(process: subprocess.Popen[str]) -> dict[str, object]:
    out, _ = process.communicate("\n", timeout=LONG)
    found: dict[str, object] = json.loads(out.splitlines()[-1])
    return found


def group(process: subprocess.Popen[str]) -> int:
    assert process.stdout is not None
    return int(process.stdout.readline())


def anybody(group: int) -> bool:
    """Whether a process of the group still runs; who is dead and not yet buried does not."""
    try:
        os.killpg(group, 0)
    except (ProcessLookupError, PermissionError):  # the latter on macOS, of the dead
        return False
    found = [stat(path) for path in Path("/proc").glob("[0-9]*/stat")]
    return any(int(each[2]) == group and each[0] != "Z" for each in found) or not found


def gone(group: int) -> bool:
    return not anybody(group)


def stat(path: Path) -> list[str]:
    """What Linux tells of a process: state, parent, group."""
    try:
        return path.read_text().rpartition(")")[2].split()
    except OSError:  # it ended meanwhile
        return ["Z", "0", "0"]


def python(text: str) -> tuple[str, ...]:
    return (sys.executable, "-c", text)


def test_a_program_runs_and_ends(tmp_path):
    """It gets its words without a shell, its folder, its environment, its prompt; nothing else."""
    text = "import os,sys; print(sys.argv[1], os.getcwd(), sorted(os.environ), sys.stdin.read())"
    with start(tmp_path, *python(text), "$HOME; ls") as process:
        found = finish(process)
    assert found["status"] == 0 and found["failure"] is None
    said = str(found["stdout"])
    assert said.startswith(f"$HOME; ls {tmp_path} [") and said.endswith("the prompt\n")
    assert "'A', " in said and "VIRTUAL_ENV" not in said and "USER" not in said


def test_no_open_file_of_ours_reaches_it(tmp_path):
    """It has standard input, output and error, and no connection of its worker."""
    text = "import os; print(sorted(int(n) for n in os.listdir('/dev/fd'))[:4])"
    with start(tmp_path, *python(text)) as process:
        assert str(finish(process)["stdout"]).startswith("[0, 1, 2")


@pytest.mark.parametrize(
    ("text", "status"),
    [("raise SystemExit(7)", 7), ("import os; os.kill(os.getpid(), 9)", -9)],
    ids=["code", "signal"],
)
def test_how_it_ended(tmp_path, text, status):
    """An exit code, or the signal that ended it, and both streams to their ends."""
    wordy = "import sys; print('o' * 200_000, flush=True); print('e', file=sys.stderr, flush=True)"
    with start(tmp_path, *python(f"{wordy}; {text}")) as process:
        found = finish(process)
    assert found["status"] == status
    assert (len(str(found["stdout"])), found["stderr"]) == (200_001, "e\n")


def test_a_program_that_is_not_there(tmp_path):
    """Is told by name."""
    with start(tmp_path, "no-such-program") as process:
        assert "no-such-program could not be started" in str(finish(process)["failure"])


CHILDREN = (
    "import subprocess, sys, time\n"
    "one = [sys.executable, '-c', 'import time; time.sleep(600)']\n"
    "subprocess.Popen(one)\n"
    "print('up', flush=True)\n"
)


def test_what_it_leaves_behind_ends_with_it(tmp_path):
    """A child that it started in the background, and that holds its output open, is ended."""
    with start(tmp_path, *python(CHILDREN)) as process:
        pid = group(process)
        assert finish(process)["stdout"] == "up\n"
    wait_until(lambda: not anybody(pid), "the group to end", LONG)


def test_a_signal_reaches_all_of_it(tmp_path):
    """SIGTERM goes to the group; the keeper stays to say how the program ended."""
    with start(tmp_path, *python(CHILDREN + "time.sleep(600)"), mode="stop") as process:
        pid = group(process)
        assert finish(process)["status"] == -signal.SIGTERM
    wait_until(lambda: not anybody(pid), "the group to end", LONG)


@pytest.mark.parametrize("deaf", [False, True], ids=["hears", "deaf"])
def test_nothing_outlives_its_worker(tmp_path, deaf):
    """SIGKILL its parent: the group gets SIGTERM, then SIGKILL, and its folder is removed."""
    folder = tmp_path / "turn"
    folder.mkdir()
    ignore = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN)\n" if deaf else ""
    up = tmp_path / "up"
    text = f"{ignore}open({str(up)!r}, 'w')\n{CHILDREN}time.sleep(600)"
    with start(folder, *python(text)) as process:
        pid = group(process)
        wait_until(up.exists, "the program to run", LONG)
        process.kill()
        wait_until(lambda: not anybody(pid), "the group to end", LONG)
        wait_until(lambda: not folder.exists(), "the folder to go", LONG)


def test_nothing_outlives_its_keeper(tmp_path):
    """SIGKILL the keeper: its parent ends the group and says so."""
    up = tmp_path / "up"
    with start(tmp_path, *python(f"open({str(up)!r}, 'w')\n{CHILDREN}time.sleep(600)")) as process:
        pid = group(process)
        wait_until(up.exists, "the program to run", LONG)
        os.kill(pid, signal.SIGKILL)
        assert finish(process)["status"] == -signal.SIGKILL
    wait_until(lambda: not anybody(pid), "the group to end", LONG)


def test_a_keeper_that_keeps_nothing(tmp_path):
    """Ends when it is closed, and when its parent ends."""
    text = (
        "from tocsin.workers.child.keeper import Keeper\n"
        "one, two = Keeper(), Keeper()\none.close()\none.close()\nprint(one.pid, two.pid)"
    )
    done = subprocess.run(python(text), capture_output=True, text=True, timeout=LONG, check=True)
    for pid in map(int, done.stdout.split()):
        wait_until(partial(gone, pid), "the keeper to end", LONG)
