"""Processes that a test starts, talks to in lines, freezes and kills."""

from __future__ import annotations

import contextlib
import os
import queue
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Self

import pytest

ROOT = Path(__file__).parents[2]
ANSWER_WITHIN = 30.0


class Program:
    """One of `programs.py` in a process of its own, which ends with the test."""

    def __init__(self, name: str, *arguments: str, env: dict[str, str] | None = None) -> None:
        self.name = name
        self._lines: queue.Queue[str | None] = queue.Queue()
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.acceptance.programs", name, *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=ROOT,
            env=os.environ | (env or {}),
        )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    @property
    def pid(self) -> int:
        return self._process.pid

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self._lines.put(line.rstrip("\n"))
        self._lines.put(None)

    def says(self, word: str, timeout: float = ANSWER_WITHIN) -> str:
        """What follows `word` on the next line that begins with it; fails after `timeout` s."""
        while True:
            try:
                line = self._lines.get(timeout=timeout)
            except queue.Empty:
                pytest.fail(f"{self.name} did not say {word!r} within {timeout} s")
            if line is None:
                pytest.fail(f"{self.name} ended with {self._process.wait()} before {word!r}")
            first, _, rest = line.partition(" ")
            if first == word:
                return rest

    def tell(self, word: str) -> None:
        """Sends one line."""
        assert self._process.stdin is not None
        self._process.stdin.write(word + "\n")
        self._process.stdin.flush()

    def freeze(self) -> None:
        """SIGSTOP."""
        self._process.send_signal(signal.SIGSTOP)

    def thaw(self) -> None:
        """SIGCONT."""
        self._process.send_signal(signal.SIGCONT)

    def kill(self) -> None:
        """SIGKILL, and waits until it is gone."""
        self._process.kill()
        self._process.wait(10)

    def end(self) -> int:
        """SIGTERM; its exit code."""
        self._process.terminate()
        return self._process.wait(10)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        if self._process.poll() is None:
            self.kill()
        self._reader.join(10)
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                with contextlib.suppress(OSError):
                    pipe.close()
