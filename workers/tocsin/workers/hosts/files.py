"""What Tocsin put into files of hosts, so that it can be put anew, and taken out again, exactly.

    files = Files()
    files.put(path, "hooks", changes_of({"hooks": {"Stop": [...]}}))   # again: instead of the last
    files.undo(path, "hooks")                                          # as it was before

The notes are in `hosts.json` beside the seats, mode 0600, since they hold what was there before.
One part of one file is one note. What somebody changed since is left as it is, and told.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, ValidationError

from tocsin.broker.errors import InvalidInput
from tocsin.workers.credentials import folder_of
from tocsin.workers.hosts.documents import (
    OPERATION,
    Change,
    Document,
    Place,
    Put,
    find,
    holder,
    read,
    replace,
)


class _Closed(BaseModel):
    model_config = ConfigDict(extra="forbid", hide_input_in_errors=True)


class _Done(_Closed):
    """One change that was made. `before` counts only where `had`; of an item of a list, neither."""

    place: Place
    value: Any
    item: bool = False
    had: bool = False
    before: Any = None


class _Note(_Closed):
    """One part of one file: what was put in, and the tables, lists and file made for it."""

    path: Path
    part: str
    done: list[_Done] = []
    made: list[Place] = []
    created: bool = False
    folders: list[Path] = []
    """Those that were made for a file that was created, the deepest first."""
    digest: str | None = None
    """Of the file as it was left."""
    text: str | None = None
    """Of the file before, to the byte; None of one that is wholly ours."""


class _Notes(_Closed):
    version: int = 1
    notes: list[_Note] = []


class Files:
    """The files of hosts on this machine, as far as Tocsin changed them."""

    def __init__(self, folder: Path | None = None) -> None:
        self.folder = folder_of() if folder is None else folder
        self._path = self.folder / "hosts.json"

    def parts(self) -> list[tuple[Path, str]]:
        """What is in place: each file and part."""
        return [(note.path, note.part) for note in self._read().notes]

    def put(self, path: Path, part: str, changes: Sequence[Change]) -> bool:
        """Puts changes into a file, instead of what this part put there before.

        Returns whether the file is another one now. A broken file is refused and stays as it is.
        """
        path = path.absolute()
        with self._noting() as notes:
            document = Document(path, changes)
            old = _take(notes, path, part)
            created = not document.exists if old is None else old.created
            folders = _missing(path) if old is None else old.folders
            changed = [] if old is None else _take_out(document, old)
            note = _Note(
                path=path, part=part, created=created, folders=folders, text=document.text()
            )
            if old is not None and changed:
                note.made = [place for place in old.made if find(document.root, place)[1]]
            for change in changes:
                _carry_out(document, change, note, {done.place: done for done in changed})
            note.digest = None if changed else _digest(document.text())
            notes.notes.append(note)
            self._save(notes)  # first: what is in a file and not in the notes stays for ever
            return document.write()

    def lay(self, path: Path, part: str, text: str) -> bool:
        """Lays down a file that is wholly ours. One that is somebody else's is refused."""
        path = path.absolute()
        with self._noting() as notes:
            old = _take(notes, path, part)
            digest = _digest_of(path)
            ours = _digest(text)
            if digest not in (None, ours, old.digest if old is not None else None):
                raise InvalidInput(
                    OPERATION,
                    f"{path} is there and not as Tocsin wrote it; move it away, and repeat",
                )
            folders = _missing(path) if old is None else old.folders
            if digest != ours:
                replace(path, text)
            notes.notes.append(
                _Note(path=path, part=part, created=True, folders=folders, digest=ours)
            )
            return digest != ours

    def undo(self, path: Path, part: str) -> list[str] | None:
        """Takes out what this part put into a file; None if it has nothing there.

        Returns the places that somebody changed since and that are therefore left, by name.
        """
        path = path.absolute()
        with self._noting() as notes:
            note = _take(notes, path, part)
            if note is None:
                return None
            if note.text is None:
                return _remove(note)
            document = Document(path)
            left = [".".join(done.place) for done in _take_out(document, note)]
            others = [each for each in notes.notes if each.path == path]
            if note.created and others:
                others[0].created = True  # the last one out removes the file
                others[0].folders = note.folders
            if note.created and not document.root and not others:
                document.remove()
                _remove_folders(note)
            elif document.exists:
                document.write()
            return left

    @contextmanager
    def all_or_none(self, paths: Sequence[Path]) -> Iterator[None]:
        """If the block is refused, these files and what is noted of them are as before it."""
        kept = {path: read(path) for path in (each.absolute() for each in paths)}
        noted = [note for note in self._read().notes if note.path in kept]
        try:
            yield
        except InvalidInput:
            with self._noting() as notes:
                notes.notes = [note for note in notes.notes if note.path not in kept] + noted
                for path, text in kept.items():
                    if text is None:
                        path.resolve().unlink(missing_ok=True)
                    elif read(path) != text:
                        replace(path.resolve(), text)
            raise

    def _read(self) -> _Notes:
        try:
            return _Notes.model_validate_json(self._path.read_bytes())
        except (FileNotFoundError, NotADirectoryError):
            return _Notes()
        except OSError as failure:
            reason = failure.strerror
        except ValidationError:
            reason = "it is not as this version of Tocsin writes it; restore it or move it away"
        raise InvalidInput(OPERATION, f"{self._path} cannot be read: {reason}")

    @contextmanager
    def _noting(self) -> Iterator[_Notes]:
        """The notes, for one process at a time. As the block leaves them they are written back, or
        as they were if it fails."""
        try:
            self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC
            lock = os.open(self.folder / "hosts.lock", flags, 0o600)
        except OSError as failure:
            raise InvalidInput(
                OPERATION, f"{self.folder} cannot be written: {failure.strerror}"
            ) from None
        try:
            fcntl.flock(lock, fcntl.LOCK_EX)
            notes, before = self._read(), self._read()
            try:
                yield notes
            except BaseException:
                self._save(before)
                raise
            self._save(notes)
        finally:
            os.close(lock)

    def _save(self, notes: _Notes) -> None:
        replace(self._path, notes.model_dump_json(indent=2, exclude_defaults=True) + "\n")


def _take(notes: _Notes, path: Path, part: str) -> _Note | None:
    """Takes a note out of the notes, if it is there."""
    for note in notes.notes:
        if (note.path, note.part) == (path, part):
            notes.notes.remove(note)
            return note
    return None


def _carry_out(
    document: Document, change: Change, note: _Note, changed: Mapping[Place, _Done]
) -> None:
    """Carries out a change and notes it. `changed`: what of the last time is not as it was left."""
    place, value = change
    before, had = find(document.root, place)
    if isinstance(change, Put):
        last = changed.get(place)
        had, before = (had, before) if last is None else (last.had, last.before)
        note.done.append(_Done(place=place, value=value, had=had, before=before))
    elif had and isinstance(before, list) and value in before:
        return  # somebody else's, and just what is wanted
    else:
        note.done.append(_Done(place=place, value=value, item=True))
    note.made += document.apply(change)


def _take_out(document: Document, note: _Note) -> list[_Done]:
    """Undoes the changes of a note. Returns those that are not as it left them any more.

    A file that is just as it was left becomes just what it was before.
    """
    if note.text is not None and _digest(document.text()) == note.digest:
        document.restore(note.text)
        return []
    left = []
    for done in reversed(note.done):
        found, there = find(document.root, done.place)
        if not (there and (done.value in found if done.item else found == done.value)):
            if there:
                left.append(done)
            continue
        table, last = holder(document.root, done.place), done.place[-1]
        if done.item:
            del table[last][found.index(done.value)]
        elif done.had:
            table[last] = done.before
        else:
            del table[last]
    for place in reversed(note.made):
        found, there = find(document.root, place)
        if there and not found:
            del holder(document.root, place)[place[-1]]
    return left


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def _digest_of(path: Path) -> str | None:
    with suppress(FileNotFoundError, NotADirectoryError):
        return hashlib.sha256(path.read_bytes()).hexdigest()
    return None


def _remove(note: _Note) -> list[str]:
    if _digest_of(note.path) not in (None, note.digest):
        return [note.path.name]
    note.path.unlink(missing_ok=True)
    _remove_folders(note)
    return []


def _missing(path: Path) -> list[Path]:
    """The folders above a file that are not there, the deepest first."""
    return [folder for folder in path.parents if not folder.exists()]


def _remove_folders(note: _Note) -> None:
    """Those that are empty of the folders that were made for a file."""
    with suppress(OSError):
        for folder in note.folders:
            folder.rmdir()
