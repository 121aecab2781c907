"""A person at a terminal: a command on a pseudo-terminal, what is typed into it, what it shows."""

from __future__ import annotations

import contextlib
import os
import pty
import subprocess
import time
from typing import Any

import pytest

from tests.waiting import TIMEOUT


class Terminal:
    """A command whose stdin, stdout and stderr are a terminal of its own."""

    def __init__(self, command: list[str], **how: Any) -> None:
        self._side, other = pty.openpty()
        self._process = subprocess.Popen(
            command, stdin=other, stdout=other, stderr=other, start_new_session=True, **how
        )
        os.close(other)
        os.set_blocking(self._side, False)
        self.screen = ""

    def _read(self) -> None:
        with contextlib.suppress(BlockingIOError, OSError):
            while more := os.read(self._side, 65_536):
                self.screen += more.decode("utf-8", "replace")

    def expect(self, text: str) -> None:
        """Waits until the screen shows `text`."""
        until = time.monotonic() + TIMEOUT * 3
        while text not in self.screen:
            self._read()
            if time.monotonic() > until:
                pytest.fail(f"waited for {text!r}; the screen has {self.screen!r}")
            time.sleep(0.01)

    def type(self, text: str) -> None:
        """Types a line."""
        os.write(self._side, f"{text}\n".encode())

    def end(self) -> int:
        """Waits for the command's end; its exit code."""
        until = time.monotonic() + TIMEOUT * 3
        while self._process.poll() is None:
            self._read()
            if time.monotonic() > until:
                self._process.kill()
                pytest.fail(f"waited for the end; the screen has {self.screen!r}")
            time.sleep(0.01)
        self._read()
        os.close(self._side)
        return self._process.returncode
