"""The paths that wake a host whose session is idle: a try of each, and what came of it."""

from __future__ import annotations

import asyncio
import os
import shutil
import stat
import subprocess
from pathlib import Path

import pytest

from tests.waiting import wait_until
from tocsin.workers import channels
from tocsin.workers.hosts import claude_code, codex, generic
from tocsin.workers.hosts.doorbell import SessionFiles
from tocsin.workers.hosts.waking import attempt, chain, record_of_environment
from tocsin.workers.lineage import Process

TEXT = "Tocsin: a message waits for you; $(touch x) `touch x` 'quoted'"


@pytest.fixture
def files(tmp_path: Path) -> SessionFiles:
    files = SessionFiles(tmp_path / "sessions", "codex", "0199-abc")
    files.make()
    return files


def program(folder: Path, name: str, code: int = 0) -> Path:
    """A program that writes its words down, one a line."""
    path = folder / name
    path.write_text(f'#!/bin/sh\nprintf "%s\\n" "$@" > {folder}/said\necho done >&2\nexit {code}\n')
    path.chmod(0o755)
    return path


def test_a_waiter_is_woken_by_what_is_written(files):
    """Without a waiter the path fails at once; one that waits gets the text."""
    files.hold_pipe()
    assert stat.S_ISFIFO((files.folder / "wake").stat().st_mode)
    assert not attempt("stop-hook", files, {}, TEXT).ok
    reader = subprocess.Popen(
        ["/bin/sh", "-c", 'exec cat <"$0"', str(files.folder / "wake")],
        stdout=subprocess.PIPE,
        text=True,
    )
    wait_until(lambda: attempt("stop-hook", files, {}, TEXT).ok, "the reader to be woken")
    assert reader.communicate(timeout=10)[0] == TEXT + "\n"


async def test_a_channel_is_open_as_long_as_the_hosts_own_server_reads(
    files, tmp_path, monkeypatch
):
    """It is a path of the session then alone; each text arrives as one line, in order."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    record, told = {"process": str(Process.of(os.getpid()))}, asyncio.Queue[str]()
    assert chain(claude_code.CHAIN, record) == ["stop-hook"]
    async with channels.opened(os.getpid(), told.put):
        assert chain(claude_code.CHAIN, record) == ["stop-hook", "channel"]
        assert chain(claude_code.CHAIN, {"process": str(Process.of(1))})
        reused = str(Process(os.getpid(), "1"))
        assert chain(claude_code.CHAIN, {"process": reused}) == ["stop-hook"]
        for text in (TEXT, "two\nlines"):
            assert attempt("channel", files, record, text).ok
        assert await asyncio.wait_for(told.get(), 10) == TEXT
        assert await asyncio.wait_for(told.get(), 10) == "two lines"
    assert chain(claude_code.CHAIN, record) == ["stop-hook"]
    assert not attempt("channel", files, record, TEXT).ok


def test_codex_queues_it(files, tmp_path, monkeypatch):
    """Codex is handed the text as one word, for the thread of the session; a failure is told."""
    monkeypatch.setenv("PATH", str(tmp_path))
    assert chain(codex.CHAIN, {}) == []
    program(tmp_path, "codex")
    assert chain(codex.CHAIN, {}) == ["queue"]
    assert attempt("queue", files, {}, TEXT).ok
    words = (tmp_path / "said").read_text().splitlines()
    assert words == ["queue", "--thread", "0199-abc", "--message", TEXT]
    program(tmp_path, "codex", code=1)
    assert attempt("queue", files, {}, TEXT) == (False, "done")


def test_a_command_of_the_users_runs_without_a_shell(files, tmp_path):
    """Its places are filled in; nothing of the text is run."""
    record = {
        "seat": "r/scout",
        "command": f"{program(tmp_path, 'wake')} {{seat}} 's={{session}}' {{text}}",
    }
    assert chain(generic.CHAIN, record) == ["command"]
    assert attempt("command", files, record, TEXT).ok
    assert (tmp_path / "said").read_text().splitlines() == ["r/scout", "s=0199-abc", TEXT]
    assert not attempt("command", files, {"command": "/nowhere/at/all"}, TEXT).ok
    assert not attempt("command", files, {"command": "'open"}, TEXT).ok


def test_the_environment_says_which_paths_there_are(monkeypatch):
    """Outside of tmux there is no pane to type into; a host that has a waiter has that path."""
    assert record_of_environment({}) == {}
    assert record_of_environment({"TOCSIN_WAKE_COMMAND": "x"}) == {"command": "x"}
    assert record_of_environment({"TMUX": "/nowhere,1,0", "TMUX_PANE": "%0"}) == {}
    assert chain(claude_code.CHAIN, {}) == ["stop-hook"]


@pytest.mark.skipif(shutil.which("tmux") is None, reason="there is no tmux here")
def test_tmux_types_into_the_pane_that_shows_what_it_showed(files, tmp_path, monkeypatch):
    """The text is typed, to the letter, and sent; into another program, or a dead host's, never."""
    server = str(tmp_path / "tmux")
    monkeypatch.delenv("TMUX", raising=False)

    def tmux(*words: str) -> str:
        done = subprocess.run(
            ["tmux", "-S", server, "-f", "/dev/null", *words],
            capture_output=True, text=True, check=True, timeout=30,
        )  # fmt: skip
        return done.stdout.strip()

    said = tmp_path / "typed"
    tmux("new-session", "-d", "-x", "200", "-y", "50", f"exec cat > {said}")
    try:
        pane = tmux("list-panes", "-F", "#{pane_id}")
        wait_until(lambda: tmux("list-panes", "-F", "#{pane_current_command}") == "cat", "cat")
        record = record_of_environment({"TMUX": f"{server},1,0", "TMUX_PANE": pane})
        record["process"] = str(Process.of(os.getpid()))
        assert chain(codex.CHAIN, record)[-1] == "tmux"
        assert attempt("tmux", files, record, TEXT).ok
        wait_until(lambda: said.exists() and said.read_text() == TEXT + "\n", "what was typed")
        for other in (Process(os.getpid(), "1"), Process(2**22 + 1, "1")):
            tried = attempt("tmux", files, record | {"process": str(other)}, TEXT)
            assert tried == (False, "its host is gone")
        tmux("respawn-pane", "-k", "-t", pane, "exec sleep 600")
        tried = attempt("tmux", files, record, TEXT)
        assert tried == (False, "the pane shows something else")
    finally:
        tmux("kill-server")
