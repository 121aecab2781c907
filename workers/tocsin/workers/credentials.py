"""The seats of this machine: whose token is known here, for which fleet. One file, mode 0600.

The file is `seats.json` in `TOCSIN_DIR` or the platform's folder for the data of `tocsin`. A seat
belongs to a fleet on a server, so that a token is never offered to another one; the server is known
by its address, without user or password. Each change replaces the file in one step, under a lock.
"""

from __future__ import annotations

import fcntl
import os
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

from platformdirs import user_data_path
from pydantic import BaseModel, ConfigDict, ValidationError

from tocsin.broker.errors import InvalidInput
from tocsin.broker.settings import ConnectionSettings
from tocsin.broker.urls import Shape, parse

_LOOPBACK = {"localhost", "127.0.0.1", "::1"}
_OPERATION = "seat"


class _Closed(BaseModel):
    model_config = ConfigDict(extra="forbid", hide_input_in_errors=True)


class StoredSeat(_Closed):
    """What is kept of one seat. `former`: a token that a rotation may have left in force."""

    token: str
    generation: int | None = None
    former: str | None = None

    def __repr__(self) -> str:
        return f"StoredSeat(generation {self.generation})"


class _Place(_Closed):
    """The seats of one fleet on one server."""

    server: str
    fleet: str
    current: str | None = None
    seats: dict[str, StoredSeat] = {}


class _File(_Closed):
    version: int = 1
    places: list[_Place] = []

    def place(self, server: str, fleet: str) -> _Place:
        """The place of a fleet, made if it is not there."""
        for place in self.places:
            if (place.server, place.fleet) == (server, fleet):
                return place
        self.places.append(_Place(server=server, fleet=fleet))
        return self.places[-1]


def folder_of(environ: Mapping[str, str] | None = None) -> Path:
    """Where Tocsin keeps what is this machine's: `TOCSIN_DIR`, or the platform's folder."""
    given = (os.environ if environ is None else environ).get("TOCSIN_DIR")
    return Path(given).expanduser() if given else user_data_path("tocsin", appauthor=False)


def server_of(url: str) -> str:
    """The address by which a server is known: no secrets, defaults filled in, one loopback."""
    place = parse(url)
    if place.shape is not Shape.SINGLE:
        return place.name
    parts = urlsplit(url)
    number = parse_qs(parts.query).get("db", [""])[0]
    if parts.scheme == "unix":
        return f"unix://{parts.path}?db={number or 0}"
    host = parts.hostname or ""
    host = "127.0.0.1" if host in _LOOPBACK else host
    host = f"[{host}]" if ":" in host else host
    if parts.scheme in ("http", "https"):
        port = parts.port or (443 if parts.scheme == "https" else 80)
        return f"{parts.scheme}://{host}:{port}{parts.path.rstrip('/').removesuffix('/mcp')}"
    number = number or parts.path.strip("/") or "0"
    return f"{parts.scheme}://{host}:{parts.port or 6379}/{number}"


class Credentials:
    """The seats of one fleet on this machine."""

    def __init__(self, connection: ConnectionSettings, folder: Path | None = None) -> None:
        self.folder = folder_of() if folder is None else folder
        self.path = self.folder / "seats.json"
        self.server = server_of(connection.url)
        self.fleet = connection.fleet

    @property
    def current(self) -> str | None:
        """The seat chosen with `tocsin seat use`."""
        return self._read().place(self.server, self.fleet).current

    def seats(self) -> dict[str, StoredSeat]:
        """The seats by name, `herd/agent`."""
        return dict(sorted(self._read().place(self.server, self.fleet).seats.items()))

    def get(self, name: str) -> StoredSeat | None:
        """One seat, if it is known here."""
        return self.seats().get(name)

    def prepare(self) -> None:
        """Refuses now what would keep a token from being stored in a moment."""
        with self._change():
            pass

    def put(self, name: str, seat: StoredSeat, *, use: bool = False) -> None:
        """Stores a seat in place of what was known of it; with `use` it becomes the current one."""
        with self._change() as place:
            place.seats[name] = seat
            if use:
                place.current = name

    def drop(self, *names: str) -> None:
        """Forgets seats."""
        with self._change() as place:
            for name in names:
                place.seats.pop(name, None)
                if place.current == name:
                    place.current = None

    def use(self, name: str) -> None:
        """Makes a stored seat the current one."""
        with self._change() as place:
            if name not in place.seats:
                raise InvalidInput(_OPERATION, self.unknown(name))
            place.current = name

    def unknown(self, name: str) -> str:
        """The sentence that a seat is not known here, with what to do."""
        return (
            f"seat {name} of fleet {self.fleet} at {self.server} is not on this machine; add it "
            "with `tocsin seat add`, or see which are with `tocsin seat list`"
        )

    def _read(self) -> _File:
        try:
            handle = os.open(self.path, os.O_RDONLY | os.O_CLOEXEC)
        except (FileNotFoundError, NotADirectoryError):
            return _File()
        except OSError as failure:
            raise InvalidInput(
                _OPERATION, f"{self.path} cannot be read: {failure.strerror}"
            ) from None
        with os.fdopen(handle, "rb") as file:
            facts = os.fstat(file.fileno())
            if facts.st_mode & 0o077:
                raise InvalidInput(
                    _OPERATION,
                    f"{self.path} holds tokens and others may use it (mode "
                    f"{facts.st_mode & 0o777:04o}); run `chmod 600 {self.path}`, and rotate the "
                    "tokens if somebody may have read them",
                )
            if facts.st_uid != os.geteuid():
                raise InvalidInput(
                    _OPERATION,
                    f"{self.path} belongs to another user; set TOCSIN_DIR to a folder of your own",
                )
            text = file.read()
        try:
            return _File.model_validate_json(text)
        except ValidationError as failure:
            first = failure.errors(include_url=False, include_context=False, include_input=False)[0]
            where = ".".join(str(part) for part in first["loc"]) or "its text"
        raise InvalidInput(
            _OPERATION,
            f"{self.path} is not a seat file as this version of Tocsin writes it, at {where}; "
            "restore it or move it away",
        )

    @contextmanager
    def _change(self) -> Iterator[_Place]:
        """The place of this fleet, written back when the block ends well."""
        try:
            self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            lock = os.open(self.folder / "seats.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as failure:
            raise InvalidInput(
                _OPERATION, f"{self.folder} cannot be written: {failure.strerror}"
            ) from None
        try:
            fcntl.flock(lock, fcntl.LOCK_EX)
            content = self._read()
            yield content.place(self.server, self.fleet)
            content.places = [place for place in content.places if place.seats]
            self._replace(content.model_dump_json(indent=2, exclude_none=True) + "\n")
        finally:
            os.close(lock)

    def _replace(self, text: str) -> None:
        temporary: Path | None = None
        try:
            handle, name = tempfile.mkstemp(dir=self.folder, prefix=".seats-")  # mode 0600
            temporary = Path(name)
            with os.fdopen(handle, "w", encoding="utf-8") as file:
                file.write(text)
                file.flush()
                os.fsync(file.fileno())
            temporary.replace(self.path)
        except OSError as failure:
            if temporary is not None:
                temporary.unlink(missing_ok=True)
            raise InvalidInput(
                _OPERATION, f"{self.path} cannot be written: {failure.strerror}"
            ) from None
