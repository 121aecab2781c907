"""OpenCode as a server, asked over HTTP, as its own screens do.

Facts: opencode.ai/docs/server (`/session`, `/event`) and /docs/plugins: it brings the package of
its plugins into each folder that holds some, unless that is there.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import threading
from collections import deque
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import httpx2

from tests.hosts.story import until, written
from tests.node import install

PREFIX, PATH = "tocsin_", "prompt"

VARIABLES = {
    "OPENCODE_DISABLE_AUTOUPDATE": "1",
    "OPENCODE_DISABLE_MODELS_FETCH": "1",
    "OPENCODE_DISABLE_LSP_DOWNLOAD": "1",
    "OPENCODE_DISABLE_DEFAULT_PLUGINS": "1",
}

_PLUGINS = Path(__file__).with_name("plugins.json")


def set_up(folder: Path, home: Path, model: str) -> None:
    """Its model is the one at this address; the package of its plugins is there, from `folder`."""
    config = home / ".config/opencode"
    options = {"baseURL": f"{model}/v1", "apiKey": "none"}
    provider = {
        "npm": "@ai-sdk/openai-compatible",
        "options": options,
        "models": {"scripted": {"name": "scripted"}},
    }
    permission = {"bash": "allow", "external_directory": "allow"}
    document: dict[str, Any] = {"provider": {"script": provider}, "permission": permission}
    for name in ("model", "small_model"):
        document[name] = "script/scripted"
    written(config / "opencode.json", document)
    install(_PLUGINS, folder / "plugins")
    shutil.copytree(folder / "plugins", config, symlinks=True, dirs_exist_ok=True)


class OpenCode:
    """One server with one session: what it says, and whether it works."""

    def __init__(self, environ: Mapping[str, str], folder: Path) -> None:
        self._process = subprocess.Popen(
            ["opencode", "serve", "--port", "0"],
            cwd=folder,
            env=dict(environ),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        self._lines: deque[str] = deque(maxlen=50)
        self._events: deque[dict[str, Any]] = deque(maxlen=50)
        self.runs, self.idle = 0, True
        threading.Thread(target=self._read, daemon=True).start()
        address = until(self._address, "OpenCode to listen", self)
        self._http = httpx2.Client(base_url=address, timeout=60, trust_env=False)
        self._session = self._http.post("/session", json={"title": "scout"}).json()["id"]
        threading.Thread(target=self._hear, daemon=True).start()
        until(lambda: self._events, "its events", self)
        parts = [{"type": "text", "text": "Hello"}]
        self._http.post(f"/session/{self._session}/message", json={"parts": parts})

    def _address(self) -> str:
        words = " ".join(self._lines).split()
        return next((word for word in words if word.startswith("http://")), "")

    @property
    def said(self) -> str:
        """The last that it said."""
        return f"{list(self._events)[-5:]}\n{list(self._lines)}"

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self._lines.append(line.rstrip())

    def _hear(self) -> None:
        with suppress(httpx2.HTTPError), self._http.stream("GET", "/event", timeout=None) as events:
            for line in events.iter_lines():
                if not line.startswith("data:"):
                    continue
                event = json.loads(line.removeprefix("data:"))
                self._events.append(event)
                if event["type"] == "session.status":
                    idle = event["properties"]["status"]["type"] == "idle"
                    self.runs += self.idle and not idle
                    self.idle = idle

    def close(self) -> None:
        """Ends it as its terminal does."""
        self._process.terminate()
        try:
            self._process.wait(20)
        finally:
            self._process.kill()
            self._process.wait()
