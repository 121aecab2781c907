"""pi as a process of its own, told what to do by lines of JSON, as an editor does.

Facts: earendil-works/pi, `packages/coding-agent/docs/rpc.md` and `json.md`.
"""

from __future__ import annotations

import json
import subprocess
import threading
from collections import deque
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any


class Pi:
    """One run of pi: what it says, and whether it works."""

    def __init__(self, words: Sequence[str], environ: Mapping[str, str], folder: Path) -> None:
        self._process = subprocess.Popen(
            list(words),
            cwd=folder,
            env=dict(environ),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        self.said: deque[dict[str, Any]] = deque(maxlen=2_000)
        self.errors: deque[str] = deque(maxlen=50)
        self.settled = 0
        self.began = 0
        self._changed = threading.Condition()
        for target in (self._read, self._hear):
            threading.Thread(target=target, daemon=True).start()

    @property
    def idle(self) -> bool:
        """Whether no run is under way."""
        return self.began == self.settled

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            record = json.loads(line)
            with self._changed:
                self.said.append(record)
                kind = record.get("type")
                if kind == "agent_start" and self.idle:
                    self.began += 1
                elif kind == "agent_settled":
                    self.settled = self.began
                self._changed.notify_all()

    def _hear(self) -> None:
        assert self._process.stderr is not None
        for line in self._process.stderr:
            self.errors.append(line.decode("utf-8", "replace").rstrip())

    def tell(self, kind: str, **more: Any) -> None:
        """One command."""
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps({"type": kind, **more}).encode() + b"\n")
        self._process.stdin.flush()

    def close(self) -> int:
        """Ends it as an editor does, and returns how it ended."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            return self._process.wait(20)
        except subprocess.TimeoutExpired:
            self._process.kill()
            return self._process.wait()
