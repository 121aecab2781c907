"""The folder of one turn: its prompt, its mail as JSON, its seat. Nobody else may look into it."""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import tempfile
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Self

from tocsin.broker.settings import ConnectionSettings
from tocsin.workers.child.prompt import Story
from tocsin.workers.credentials import Credentials, StoredSeat

ESSENTIAL = (
    *("PATH", "HOME", "USER", "LOGNAME", "SHELL", "TMPDIR"),
    *("LANG", "LC_ALL", "LC_CTYPE", "TZ", "TERM"),
)
"""What a program gets of its worker's environment without being told by name."""


_PREFIX = "tocsin-turn-"
_LOST = 24 * 3_600.0
"""Seconds after which a folder without a lock is nobody's: the machine may have slept when it was
to get one."""


def sweep() -> int:
    """Removes this user's folders whose processes were all killed, so that nobody did; how many."""
    removed = 0
    for path in Path(tempfile.gettempdir()).glob(f"{_PREFIX}*"):
        with suppress(OSError):
            found = path.lstat()
            lost = time.time() - found.st_mtime > _LOST
            if found.st_uid == os.getuid() and (lost or (path / "lock").exists()):
                lock = os.open(path / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
                try:
                    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    shutil.rmtree(path, ignore_errors=True)
                    removed += 1
                finally:
                    os.close(lock)
    return removed


class Folder:
    """A folder that is gone when it is left. The token is in its seat file, mode 0600.

    Its lock is held as long as its process lives.
    """

    def __init__(self, place: ConnectionSettings, story: Story, token: str) -> None:
        self.path = Path(tempfile.mkdtemp(prefix=_PREFIX))  # mode 0700
        made = self.path / "lock.new"
        self._lock = os.open(made, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        fcntl.flock(self._lock, fcntl.LOCK_EX)
        made.rename(self.path / "lock")  # under its name it is locked from the first moment
        self._place, self._story = place, story
        try:
            self.prompt.write_text(story.text(), encoding="utf-8")
            self._turn.write_text(json.dumps(story.document(), indent=1), encoding="utf-8")
            seat = f"{story.herd}/{story.agent}"
            Credentials(place, self.path).put(seat, StoredSeat(token=token), use=True)
        except BaseException:
            self.remove()
            raise

    @property
    def prompt(self) -> Path:
        """The prompt as text."""
        return self.path / "prompt.txt"

    @property
    def _turn(self) -> Path:
        return self.path / "turn.json"

    @property
    def _session(self) -> Path:
        return self.path / "session"

    @property
    def session(self) -> str | None:
        """What the program wrote as its session, if it did."""
        try:
            text = self._session.read_bytes()[:1_000].decode().strip()
        except (OSError, UnicodeDecodeError):
            return None
        return text or None

    def environ(
        self, own: Mapping[str, str], passed: tuple[str, ...], given: Mapping[str, str]
    ) -> dict[str, str]:
        """The turn's environment: what is essential, `passed` by name, `given`, and its seat."""
        names = (*ESSENTIAL, *passed)
        return {
            **{name: own[name] for name in names if name in own},
            **given,
            "TOCSIN_URL": self._place.url,
            "TOCSIN_FLEET": self._place.fleet,
            "TOCSIN_HERD": self._story.herd,
            "TOCSIN_AGENT": self._story.agent,
            "TOCSIN_TURN": str(self._story.number),
            "TOCSIN_DIR": str(self.path),
            "TOCSIN_PROMPT_FILE": str(self.prompt),
            "TOCSIN_TURN_FILE": str(self._turn),
            "TOCSIN_SESSION_FILE": str(self._session),
        }

    def remove(self) -> None:
        """Removes it."""
        shutil.rmtree(self.path, ignore_errors=True)
        os.close(self._lock)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.remove()
