"""The files of a host's session on this machine: what is there for its hooks, and who listens.

    sessions/<host>-<session>/     mode 0700
        pid       the process that listens, and when it began; a newer one takes its place by
                  writing its own
        beat      when it was last seen to run, in seconds of the clock
        state     what the hooks last saw: `working` or `idle`
        mail      there while quiet or steer mail is there to be handed over
        waking    there while mail that wakes has not been shown
        task      there while a task is open and nothing is awaited
        silent    there if this session speaks for nobody
        wake      a pipe from who listens to the session's waiter; `waiter` is the latter's process
        record    whose session it is, and how it can be woken
        turn      how often this turn was continued
    sessions/seats/<seat>/handed   what an agent was handed, or told of, and when; beside it `lock`

`hook.sh` reads them without starting Python, so names and meanings stand in both.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import re
import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from platformdirs import user_state_path

from tocsin.workers.lineage import Process

MAIL, WAKING, TASK, SILENT = "mail", "waking", "task", "silent"

WORKING, IDLE = "working", "idle"

_PLAIN = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]{0,99}")

BEATS_EVERY, STILL = 10.0, 30.0
"""Seconds between two beats of who listens, and after which one without a beat is taken for still,
as if it did not run; `hook.sh` counts the same."""

_KEPT = 7 * 24 * 3_600.0
"""Seconds after which it is forgotten that something was handed over."""

_MOST_KEPT = 2_000


def sessions_folder() -> Path:
    """Where the sessions of this user have their files."""
    return user_state_path("tocsin", appauthor=False) / "sessions"


def _write(path: Path, text: str) -> None:
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=".new-")
    with os.fdopen(handle, "w", encoding="utf-8") as file:
        file.write(text)
    Path(name).replace(path)


def _read_json(path: Path) -> dict[str, Any]:
    try:
        found = json.loads(path.read_text("utf-8"))
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


class SessionFiles:
    """The files of one session."""

    def __init__(self, folder: Path, host: str, session: str) -> None:
        plain = session if _PLAIN.fullmatch(session) else _digest(session)
        self.host = host
        self.session = session
        self.sessions = folder
        self.folder = folder / f"{host}-{plain}"
        self._pipe: int | None = None

    def make(self) -> None:
        """Makes the folder, for its owner alone."""
        self.sessions.mkdir(parents=True, exist_ok=True, mode=0o700)
        self.folder.mkdir(exist_ok=True, mode=0o700)

    def remove(self) -> None:
        """Removes all of it."""
        shutil.rmtree(self.folder, ignore_errors=True)

    def raised(self, flag: str) -> bool:
        """Whether a flag is up."""
        return (self.folder / flag).exists()

    def flag(self, flag: str, up: bool) -> None:
        """Puts a flag up or down."""
        with suppress(OSError):
            if up:
                (self.folder / flag).touch(mode=0o600)
            else:
                (self.folder / flag).unlink(missing_ok=True)

    @property
    def record(self) -> dict[str, Any]:
        """Whose session it is and how it can be woken; empty if nobody said."""
        return _read_json(self.folder / "record")

    def keep(self, record: dict[str, Any]) -> None:
        """Replaces the record, and makes the folder if need be."""
        self.make()
        _write(self.folder / "record", json.dumps(record))

    @property
    def turn(self) -> dict[str, Any]:
        """What was done at the ends of this turn."""
        return _read_json(self.folder / "turn")

    def keep_turn(self, turn: dict[str, Any]) -> None:
        """Replaces that; the next turn begins with an empty one."""
        _write(self.folder / "turn", json.dumps(turn))

    @property
    def state(self) -> tuple[str, float]:
        """What the hooks last saw of the session, and when (by `time.time`)."""
        path = self.folder / "state"
        try:
            return path.read_text("utf-8").strip() or IDLE, path.stat().st_mtime
        except OSError:
            return IDLE, 0.0

    def say(self, state: str) -> None:
        """Notes what was seen of the session."""
        with suppress(OSError):
            (self.folder / "state").write_text(f"{state}\n", "utf-8")

    @property
    def listener(self) -> int | None:
        """The process that listens for this session, if it runs."""
        return self._running("pid")

    def is_heard(self) -> bool:
        """Whether somebody listens, and is not frozen."""
        try:
            beat = int((self.folder / "beat").read_text("utf-8"))
        except (OSError, ValueError):
            return False
        return self.listener is not None and time.time() - beat < STILL

    def claim(self) -> None:
        """This process listens from here on, and whoever did before ends."""
        self.beat()
        _write(self.folder / "pid", f"{Process.of(os.getpid())}\n")

    def beat(self) -> None:
        """Who listens runs."""
        with suppress(OSError):
            _write(self.folder / "beat", f"{time.time():.0f}\n")

    def holds(self) -> bool:
        """Whether this process still is the one that listens."""
        kept = self._process("pid")
        return kept is not None and kept.pid == os.getpid()

    def is_left(self) -> bool:
        """Whether no newer process took the place of this one."""
        kept = self._process("pid")
        return kept is None or kept.pid == os.getpid()

    @property
    def waiter(self) -> int | None:
        """The process that waits to wake the session, if it runs."""
        return self._running("waiter")

    def _process(self, name: str) -> Process | None:
        try:
            return Process.read((self.folder / name).read_text("utf-8"))
        except (OSError, ValueError):
            return None

    def _running(self, name: str) -> int | None:
        kept = self._process(name)
        return kept.pid if kept is not None and kept.runs() else None

    def hold_pipe(self) -> None:
        """Keeps the pipe open for a waiter: where it ends, whoever listened is gone.

        It is held whether or not somebody reads it.
        """
        if self._pipe is not None:
            return
        with suppress(FileExistsError):
            os.mkfifo(self.folder / "wake", 0o600)
        nobody = os.open(self.folder / "wake", os.O_RDONLY | os.O_NONBLOCK)
        self._pipe = os.open(self.folder / "wake", os.O_WRONLY | os.O_NONBLOCK)
        os.close(nobody)

    def let_pipe_go(self) -> None:
        """Ends what a waiter reads."""
        if self._pipe is not None:
            os.close(self._pipe)
        self._pipe = None

    def write_pipe(self, text: str) -> bool:
        """Writes a line to the waiter, which ends with it; whether there is one.

        The pipe is let go, so that nothing stays in it for a later one.
        """
        try:
            self.hold_pipe()
            assert self._pipe is not None
            os.write(self._pipe, f"{' '.join(text.split())}\n".encode())
        except OSError:  # nobody reads
            return False
        finally:
            self.let_pipe_go()
        return True


def in_running_hosts(folder: Path) -> Iterator[tuple[SessionFiles, Process]]:
    """The sessions whose host still runs, with its process; removes the files of what ended."""
    for path in sorted(folder.glob("*-*")) if folder.is_dir() else ():
        record = _read_json(path / "record")
        process = Process.read(record.get("process"))
        if process is None:
            continue
        if process.runs():
            yield SessionFiles(folder, record["host"], record["session"]), process
        else:
            shutil.rmtree(path, ignore_errors=True)


def _digest(*words: str) -> str:
    return hashlib.sha256("\x00".join(words).encode()).hexdigest()[:24]


class Handed:
    """What was handed over to one agent by hooks of this machine, shared by all its sessions."""

    def __init__(self, folder: Path, server: str, fleet: str, seat: str) -> None:
        self._folder = folder / "seats" / _digest(server, fleet, seat)

    @contextmanager
    def open(self) -> Iterator[dict[str, dict[str, float]]]:
        """By message: `at`, when it was handed over (or first heard of), `told`, when it was last
        pointed to, and `stops`, how many ends of a turn it put off.

        What is changed inside is kept. One process at a time.
        """
        self._folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        lock = os.open(self._folder / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX)
            found = _read_json(self._folder / "handed")
            before = json.dumps(found)
            yield found
            fresh = {
                message: facts
                for message, facts in found.items()
                if time.time() - facts.get("at", 0.0) < _KEPT
            }
            kept = dict(sorted(fresh.items(), key=lambda each: each[1].get("at", 0.0)))
            while len(kept) > _MOST_KEPT:
                kept.pop(next(iter(kept)))
            if json.dumps(kept) != before:
                _write(self._folder / "handed", json.dumps(kept))
        finally:
            os.close(lock)
