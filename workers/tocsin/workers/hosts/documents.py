"""A settings file of a host, JSON or TOML: read, changed by place, and written in one step.

TOML keeps its comments and its layout. JSON keeps its order and its indentation; one with comments
or trailing commas is refused, with what to add by hand, because writing it would lose them.
"""

from __future__ import annotations

import json
import math
import os
import re
import tempfile
from collections.abc import Iterable, Mapping, MutableMapping, MutableSequence, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

from tocsin.broker.errors import InvalidInput

OPERATION = "connect"

Place: TypeAlias = tuple[str, ...]
"""The keys that lead from the top of a file to a value."""


class Put(NamedTuple):
    """A value at a place, instead of whatever is there."""

    place: Place
    value: Any


class Add(NamedTuple):
    """One more item of the list at a place, unless it has an equal one."""

    place: Place
    item: Any


Change: TypeAlias = Put | Add


def changes_of(settings: Mapping[str, Any], above: Place = ()) -> list[Change]:
    """What merges `settings` into a file: tables into tables, lists by item, other values put."""
    found: list[Change] = []
    for name, value in settings.items():
        place = (*above, name)
        if isinstance(value, Mapping):
            found += changes_of(value, place)
        elif isinstance(value, list):
            found += [Add(place, item) for item in value]
        else:
            found.append(Put(place, value))
    return found


def as_text(path: Path, changes: Iterable[Change]) -> str:
    """The changes alone, as they would stand in an empty file of that kind."""
    document = _Json("{}") if path.suffix.startswith(".json") else _Toml("")
    for change in changes:
        apply(document.root, change)
    return document.text()


def plain(value: Any) -> Any:
    """A value without the layout that it has in its file."""
    return value.unwrap() if hasattr(value, "unwrap") else value


def apply(root: MutableMapping[str, Any], change: Change) -> list[Place]:
    """Carries out a change, and returns the places of tables and lists that it had to make.

    Raises `TypeError` where something else stands in its way.
    """
    made = []
    table: Any = root
    for depth, name in enumerate(change.place[:-1], 1):
        if name not in table:
            table[name] = {}
            made.append(change.place[:depth])
        table = table[name]
        if not isinstance(table, MutableMapping):
            raise TypeError(f"{'.'.join(change.place[:depth])} is not a table")
    last = change.place[-1]
    if isinstance(change, Put):
        table[last] = change.value
    elif last not in table:
        table[last] = [change.item]
        made.append(change.place)
    elif not isinstance(table[last], MutableSequence):
        raise TypeError(f"{'.'.join(change.place)} is not a list")
    elif change.item not in plain(table[last]):
        table[last].append(change.item)
    return made


def find(root: Mapping[str, Any], place: Sequence[str]) -> tuple[Any, bool]:
    """What is at a place, without layout, and whether anything is."""
    value: Any = root
    for name in place:
        if not isinstance(value, Mapping) or name not in value:
            return None, False
        value = value[name]
    return plain(value), True


def holder(root: MutableMapping[str, Any], place: Sequence[str]) -> Any:
    """The table that holds the last key of a place that is there."""
    table: Any = root
    for name in place[:-1]:
        table = table[name]
    return table


class _Toml:
    """TOML, by tomlkit."""

    NAME = "TOML"

    def __init__(self, text: str) -> None:
        import tomlkit  # here, because most commands change no file

        self.root: MutableMapping[str, Any] = tomlkit.parse(text)

    def text(self) -> str:
        return self.root.as_string()  # type: ignore[attr-defined, no-any-return]


_HALF = re.compile(r"[\ud800-\udfff]")


class _Json:
    """JSON, indented as it was."""

    NAME = "plain JSON without comments"

    def __init__(self, text: str) -> None:
        self.root: MutableMapping[str, Any] = json.loads(
            text or "{}", object_pairs_hook=_once, parse_constant=_refuse, parse_float=_finite
        )
        if not isinstance(self.root, dict):
            raise ValueError("its top is not an object")
        indent = re.match(r"\s*\{\s*?\n([ \t]+)", text)
        self._indent: str | int = indent[1] if indent else 2

    def text(self) -> str:
        text = json.dumps(self.root, indent=self._indent, ensure_ascii=False)
        # Half of a pair, as JavaScript writes it of a cut emoji, has no other form than its escape.
        return _HALF.sub(lambda half: f"\\u{ord(half[0]):04x}", text) + "\n"


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a key stands twice in one object")
    return found


def _finite(number: str) -> float:
    found = float(number)
    if not math.isfinite(found):  # it would be written as no JSON at all
        raise ValueError(f"{number} is too large a number to be kept")
    return found


def _refuse(word: str) -> Any:
    raise ValueError(f"{word} is not JSON")


class Document:
    """One settings file, as it is now or as it would be made."""

    def __init__(self, path: Path, changes: Sequence[Change] = ()) -> None:
        """Reads `path`. A file that cannot be changed safely is refused, naming the `changes`."""
        self.path = path.resolve()  # a link into a folder of dotfiles stays a link
        self.before = read(path)
        self._text = self.before
        self._parsed = _Json if path.suffix.startswith(".json") else _Toml
        try:
            self._document = self._parsed(self.before or "")
        except (ValueError, RecursionError) as failure:
            by_hand = f", or add this by hand:\n{as_text(path, changes)}" if changes else ""
            raise InvalidInput(
                OPERATION,
                f"{path} is left as it is, because it is not {self._parsed.NAME}: {failure}; "
                f"mend it and repeat{by_hand}",
            ) from None

    @property
    def exists(self) -> bool:
        """Whether the file is there."""
        return self.before is not None

    @property
    def root(self) -> MutableMapping[str, Any]:
        """Its content, to change in place."""
        return self._document.root

    def apply(self, change: Change) -> list[Place]:
        """Carries out a change, and returns the places of what it had to make for it."""
        try:
            return apply(self.root, change)
        except TypeError as wrong:
            raise InvalidInput(
                OPERATION, f"{self.path} is left as it is: {wrong}; mend it and repeat"
            ) from None

    def text(self) -> str:
        """Its text: as it lies there, or as the content now says."""
        if self._text is not None and self.root == self._parsed(self._text).root:
            return self._text
        return self._document.text()

    def restore(self, text: str) -> None:
        """Makes the content what a text says that was the file's before."""
        self._text = text
        self._document = self._parsed(text)

    def write(self) -> bool:
        """Replaces the file by what the content is now; False if it says that already."""
        text = self.text()
        if text == self.before:
            return False
        if read(self.path) != self.before:
            raise InvalidInput(OPERATION, f"{self.path} was changed at this moment; repeat")
        replace(self.path, text)
        return True

    def remove(self) -> None:
        """Removes the file."""
        self.path.unlink(missing_ok=True)


def read(path: Path) -> str | None:
    """The text of a file; None where there is none."""
    try:
        return path.read_bytes().decode("utf-8")
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (OSError, UnicodeDecodeError) as failure:
        reason = failure.strerror if isinstance(failure, OSError) else "it is not UTF-8"
        raise InvalidInput(OPERATION, f"{path} cannot be read: {reason}") from None


def replace(path: Path, text: str) -> None:
    """Writes a file in one step. A new one is its owner's alone, an old one keeps its mode."""
    temporary: Path | None = None
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(dir=path.parent, prefix=".tocsin-")  # mode 0600
        temporary = Path(name)
        with os.fdopen(handle, "w", encoding="utf-8", newline="") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        with suppress(FileNotFoundError):
            temporary.chmod(path.stat().st_mode & 0o7777)
        temporary.replace(path)
    except OSError as failure:
        if temporary is not None:
            temporary.unlink(missing_ok=True)
        raise InvalidInput(OPERATION, f"{path} cannot be written: {failure.strerror}") from None
