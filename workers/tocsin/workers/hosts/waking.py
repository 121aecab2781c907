"""How a session whose host is idle can be woken: a try of one path, and what came of it.

That a try went well says no more than that somebody took the word: a session has woken when the
mail is shown. So nothing but ids and names of agents is in what is said here.
"""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from tocsin.workers import channels
from tocsin.workers.hosts.doorbell import SessionFiles
from tocsin.workers.lineage import Process

_PATIENCE = 20.0
"""Seconds that a program has which wakes a session."""

_PANE = "#{pane_pid} #{pane_dead} #{pane_in_mode} #{pane_current_command}"

Record = Mapping[str, Any]


class Tried(NamedTuple):
    """What came of a try."""

    ok: bool
    detail: str


def record_of_environment(environ: Mapping[str, str] | None = None) -> dict[str, Any]:
    """What of its environment says how this session can be woken."""
    found = os.environ if environ is None else environ
    record: dict[str, Any] = {}
    pane, server = found.get("TMUX_PANE"), found.get("TMUX", "").partition(",")[0]
    if pane and server and (shown := _shown(server, pane)):
        record["tmux"] = {"server": server, "pane": pane, "shows": shown}
    template = found.get("TOCSIN_WAKE_COMMAND")
    if template:
        record["command"] = template
    return record


def chain(paths: Sequence[str], record: Record) -> list[str]:
    """Those of a host's paths that this session has, in order."""
    needs = {"tmux": "tmux" in record, "command": "command" in record}
    needs["queue"] = shutil.which("codex") is not None
    needs["channel"] = channels.is_open(_host(record))
    return [path for path in paths if needs.get(path, True)]


def _host(record: Record) -> Process | None:
    return Process.read(record.get("process"))


def attempt(path: str, files: SessionFiles, record: Record, text: str) -> Tried:
    """Tries one path."""
    return _PATHS[path](files, record, text)


def _stop_hook(files: SessionFiles, record: Record, text: str) -> Tried:
    """The waiter of the session ends with a code that wakes its host."""
    if files.write_pipe(text):
        return Tried(True, "")
    return Tried(False, "no hook of this session waits")


def _channel(files: SessionFiles, record: Record, text: str) -> Tried:
    """The host's own MCP server says it, and the host takes it up if its user lets it."""
    host = _host(record)
    if host is not None and channels.say(host, text):
        return Tried(True, "")
    return Tried(False, "its MCP server is gone")


def _queue(files: SessionFiles, record: Record, text: str) -> Tried:
    """Codex keeps it for the thread, which takes it up when it is idle."""
    program = shutil.which("codex")
    if program is None:
        return Tried(False, "codex is not on the PATH")
    return _run([program, "queue", "--thread", files.session, "--message", text])


def _command(files: SessionFiles, record: Record, text: str) -> Tried:
    """A command of the user's, without a shell; `{text}`, `{session}`, `{seat}` are filled in."""
    values = {"{text}": text, "{session}": files.session, "{seat}": str(record.get("seat", ""))}
    try:
        words = shlex.split(record["command"])
    except ValueError as error:
        return Tried(False, f"the command cannot be read: {error}")
    return _run([_filled(word, values) for word in words])


def _filled(word: str, values: Mapping[str, str]) -> str:
    for name, value in values.items():
        word = word.replace(name, value)
    return word


def _tmux(files: SessionFiles, record: Record, text: str) -> Tried:
    """Types it into the host's pane, if that shows what it showed when the session began."""
    pane = record["tmux"]
    host = _host(record)
    if host is None or not host.runs():
        return Tried(False, "its host is gone")
    if _shown(pane["server"], pane["pane"]) != pane["shows"]:
        return Tried(False, "the pane shows something else")
    keys = ["tmux", "-S", pane["server"], "send-keys", "-t", pane["pane"]]
    typed = _run([*keys, "-l", text])
    return _run([*keys, "Enter"]) if typed.ok else typed


def _shown(server: str, pane: str) -> str | None:
    """The process and program of a pane that takes input; None of any other."""
    done = _run(["tmux", "-S", server, "display-message", "-p", "-t", pane, _PANE])
    words = done.detail.split(None, 3)
    if not done.ok or len(words) < 4 or words[1:3] != ["0", "0"]:
        return None
    return f"{words[0]} {words[3]}"


def _run(words: Sequence[str]) -> Tried:
    try:
        done = subprocess.run(
            words,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_PATIENCE,
            check=False,
        )
    except (OSError, ValueError, subprocess.TimeoutExpired) as error:
        return Tried(False, f"{Path(words[0]).name}: {type(error).__name__}")
    said = (done.stdout if done.returncode == 0 else done.stderr).strip()
    return Tried(done.returncode == 0, said[:300])


_PATHS: dict[str, Callable[[SessionFiles, Record, str], Tried]] = {
    "stop-hook": _stop_hook,
    "channel": _channel,
    "queue": _queue,
    "command": _command,
    "tmux": _tmux,
}
