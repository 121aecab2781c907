"""Connects a host to a seat: what goes into which of its files, and takes it out again.

An entry names the seat and never its token, so that it outlives a rotation; and says where the
fleet is only if a process without any variables would not find it. It holds the whole path of the
command, because hosts have a `PATH` of their own.
"""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tocsin.broker.errors import InvalidInput
from tocsin.broker.settings import ConnectionSettings
from tocsin.broker.settings_files import Resolved, resolve_connection, user_file
from tocsin.broker.urls import parse
from tocsin.workers.addresses import is_remote
from tocsin.workers.hosts import claude_code, codex, opencode, pi
from tocsin.workers.hosts.documents import (
    OPERATION,
    Change,
    Document,
    as_text,
    changes_of,
    find,
)
from tocsin.workers.hosts.doorbell import sessions_folder
from tocsin.workers.hosts.events import HookedHost
from tocsin.workers.hosts.files import Files
from tocsin.workers.hosts.servers import SERVERS, Scope
from tocsin.workers.hosts.sessions import command as hook_command

SEAT = "TOCSIN_SEAT"

_FOLDERS = ("TOCSIN_DIR", "XDG_CONFIG_HOME", "XDG_DATA_HOME", "XDG_STATE_HOME")
"""Where seats and settings lie, if not where every process of this user looks."""

_AUTHORITY = "SSL_CERT_FILE"
"""The certificate of an authority of one's own, which a server over HTTPS may need."""

_HOOKED: dict[str, HookedHost] = {claude_code.NAME: claude_code, codex.NAME: codex}
"""Hosts that run hooks of ours at the moments of a session."""

_EXTENSIONS = {"pi": pi.EXTENSION, "opencode": opencode.EXTENSION}
"""Hosts in which a program of ours does what hooks do in others."""


def program() -> str:
    """The whole path of the command `tocsin` that is running."""
    beside = Path(sys.executable).with_name("tocsin")
    found = str(beside) if beside.exists() else shutil.which("tocsin")
    if found is None:
        raise InvalidInput(OPERATION, f"there is no command `tocsin` beside {sys.executable}")
    return os.path.abspath(found)  # noqa: PTH100 - a link to it stays one, and outlives an upgrade


def variables(seat: str, connection: Resolved[ConnectionSettings]) -> dict[str, str]:
    """The environment of an entry: the seat, and what is needed to find its fleet from anywhere."""
    far = is_remote(connection.settings.url)
    paths = {
        name: os.path.abspath(os.environ[name])  # noqa: PTH100 - as written, links and all
        for name in (*_FOLDERS, *([_AUTHORITY] if far else []))
        if os.environ.get(name)
    }
    home = {name: os.environ[name] for name in ("HOME",) if name in os.environ}
    bare = resolve_connection(cwd="/", environ=home | paths).settings
    found = {SEAT: seat}
    for name in ("url", "fleet"):
        value = getattr(connection.settings, name)
        if value == getattr(bare, name):
            continue  # any process of this user finds it
        if name == "url" and parse(value).secrets:
            raise InvalidInput(
                OPERATION,
                f"the url of {connection.origin(name)} has a password, which does not belong into "
                f'files of other programs; write `url = "..."` into {user_file()}, readable for '
                "you alone, and repeat",
            )
        found[f"TOCSIN_{name.upper()}"] = value
    return found | paths


@dataclass(frozen=True)
class Piece:
    """One file, and what of it is ours: changes to it, or all of its text."""

    part: str
    path: Path
    changes: Sequence[Change] = ()
    text: str = ""

    def shown(self) -> str:
        """What goes into the file."""
        return self.text or as_text(self.path, self.changes)


class Host:
    """One host, for the sessions of one scope."""

    def __init__(self, name: str, scope: Scope, folder: Path, files: Files | None = None) -> None:
        self.name = name
        self.servers = SERVERS[name]
        self._files = Files() if files is None else files
        self._server = self.servers.path(scope, folder)
        self._paths = {"server": self._server}
        if name in _HOOKED:
            self._paths["hooks"] = _HOOKED[name].settings_path(scope, folder)
        if name in _EXTENSIONS:
            self._paths["extension"] = _EXTENSIONS[name].path(scope, folder)

    def pieces(self, command: str, env: dict[str, str]) -> list[Piece]:
        """What connects the host to the seat that `env` names."""
        pieces = [self._piece("server", [self.servers.change([command, "mcp"], env)])]
        if self.name in _HOOKED:
            words = hook_command(self.name, sessions_folder(), env)
            pieces.append(self._piece("hooks", changes_of(_HOOKED[self.name].hooks(words))))
        if self.name in _EXTENSIONS:
            text = _EXTENSIONS[self.name].text([command], env)
            pieces.append(self._piece("extension", text=text))
        return pieces

    def _piece(self, what: str, changes: Sequence[Change] = (), text: str = "") -> Piece:
        return Piece(f"{self.name} {what}", self._paths[what], changes, text)

    def check_seat(self, pieces: Sequence[Piece], env: dict[str, str]) -> None:
        """Refuses to take the place of another agent: one host in one scope has one seat."""
        entry, _ = find(Document(self._server, pieces[0].changes).root, self.servers.place)
        other = entry.get(self.servers.variables) if isinstance(entry, dict) else None
        if not isinstance(other, dict):
            return
        for name in (SEAT, "TOCSIN_FLEET", "TOCSIN_URL"):
            if SEAT in other and other.get(name) != env.get(name):
                raise InvalidInput(
                    OPERATION,
                    f"{self._server} is there for {_told(other)}, and one host has one seat in "
                    "each folder, and one for the user; connect in another folder, or with "
                    "--replace if it is to be this one from now on",
                )

    def put(self, pieces: Sequence[Piece]) -> list[Path]:
        """Puts all pieces in place, and returns the files that changed. All of them, or none."""
        with self._files.all_or_none([piece.path for piece in pieces]):
            return [piece.path for piece in pieces if self._put(piece)]

    def _put(self, piece: Piece) -> bool:
        if piece.text:
            return self._files.lay(piece.path, piece.part, piece.text)
        return self._files.put(piece.path, piece.part, piece.changes)

    def undo(self) -> tuple[list[Path], list[str]]:
        """Takes everything out again: the files, and what somebody changed and is left in them."""
        files, left = [], []
        for what, path in reversed(self._paths.items()):
            kept = self._files.undo(path, f"{self.name} {what}")
            if kept is not None:
                files.append(path)
                left += [f"{place} in {path}" for place in kept]
        return files, left


def _told(other: dict[str, str]) -> str:
    where = [f"fleet {other['TOCSIN_FLEET']}"] if "TOCSIN_FLEET" in other else []
    return " of ".join([f"seat {other[SEAT]}", *where])
