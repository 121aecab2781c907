"""pi as a process of its own, told what to do by lines of JSON, as an editor does.

Facts: earendil-works/pi, `packages/coding-agent/docs/rpc.md` and `json.md`.
"""

from __future__ import annotations

import json
import subprocess
import threading
from collections import deque
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests.hosts.story import until, written

PREFIX, PATH = "mcp__tocsin__", "send-user-message"

VARIABLES = {"PI_OFFLINE": "1", "PI_TELEMETRY": "0", "PI_SKIP_VERSION_CHECK": "1"}


def set_up(folder: Path, home: Path, model: str) -> None:
    """Its model is the one at this address."""
    provider = {"baseUrl": f"{model}/v1", "apiKey": "none", "api": "openai-completions"}
    models = {"providers": {"script": provider | {"models": [{"id": "scripted"}]}}}
    written(home / ".pi/agent/models.json", models)


class Pi:
    """One run of pi: what it says, and whether it works."""

    def __init__(self, environ: Mapping[str, str], folder: Path) -> None:
        self._process = subprocess.Popen(
            ["pi", "--mode", "rpc", "--provider", "script", "--model", "scripted"],
            cwd=folder,
            env=dict(environ),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        self._said: deque[dict[str, Any]] = deque(maxlen=2_000)
        self._errors: deque[str] = deque(maxlen=50)
        self._settled = 0
        self.runs = 0
        for target in (self._read, self._hear):
            threading.Thread(target=target, daemon=True).start()
        self._tell("get_state", id="up")
        until(lambda: self._said, "pi to be up", self)

    @property
    def idle(self) -> bool:
        """Whether no run is under way."""
        return self.runs == self._settled

    @property
    def said(self) -> str:
        """The last that it said."""
        return f"{list(self._said)[-5:]}\n{list(self._errors)}"

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            record = json.loads(line)
            self._said.append(record)
            kind = record.get("type")
            if kind == "agent_start" and self.idle:
                self.runs += 1
            elif kind == "agent_settled":
                self._settled = self.runs

    def _hear(self) -> None:
        assert self._process.stderr is not None
        for line in self._process.stderr:
            self._errors.append(line.decode("utf-8", "replace").rstrip())

    def _tell(self, kind: str, **more: Any) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps({"type": kind, **more}).encode() + b"\n")
        self._process.stdin.flush()

    def close(self) -> None:
        """Ends it as an editor does."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            assert self._process.wait(20) == 0, self.said
        finally:
            self._process.kill()
            self._process.wait()
