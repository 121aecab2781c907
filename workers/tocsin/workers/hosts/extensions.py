"""A program of ours that runs inside a host: one file, made for one seat."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path

from tocsin.workers.hosts.servers import Scope

_HERE = "tocsin.workers.hosts"
_FILE = "tocsin.ts"


@dataclass(frozen=True)
class Extension:
    """Where a host looks for such files, and ours."""

    source: str
    project: str
    """The folder of a project, relative to it."""
    user: Callable[[Mapping[str, str]], Path]
    """The folder of a user."""

    def path(self, scope: Scope, folder: Path, environ: Mapping[str, str] | None = None) -> Path:
        """Where it lies."""
        given = os.environ if environ is None else environ
        below = folder / self.project if scope is Scope.PROJECT else self.user(given)
        return below / _FILE

    def text(self, command: Sequence[str], environ: Mapping[str, str]) -> str:
        """The file, for the seat that `environ` names."""
        place = {"command": list(command), "env": dict(environ)}
        text = files(_HERE).joinpath(self.source).read_text("utf-8")
        return text.replace("__TOCSIN__", json.dumps(place, indent=2))
