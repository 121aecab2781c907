"""`TranscriptProbe`: the bytes of the transcripts below a directory, whatever happens to them."""

from __future__ import annotations

import errno
import os
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from tests.fleets import token_of
from tocsin.broker import Broker, errors
from tocsin.broker.scripts import Call
from tocsin.workers.child.probe import TranscriptProbe, publish


def write(path: Path, size: int) -> Path:
    """A file of so many bytes."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"x" * size)
    return path


def test_files_that_appear_and_grow(tmp_path):
    """All `*.jsonl` files count, below folders too, and nothing else."""
    probe = TranscriptProbe(tmp_path)
    assert probe() == {"transcript": 0}
    first = write(tmp_path / "a.jsonl", 10)
    assert probe() == {"transcript": 10}
    write(tmp_path / "project/session/b.jsonl", 5)
    write(tmp_path / "notes.txt", 1_000)
    write(tmp_path / "jsonl", 1_000)
    assert probe() == {"transcript": 15}
    with first.open("ab") as file:
        file.write(b"yy")
    assert probe() == {"transcript": 17}


def test_files_that_rotate_and_shrink(tmp_path):
    """The total goes down; whoever gets it knows that growth counts from there."""
    probe = TranscriptProbe(tmp_path)
    current = write(tmp_path / "a.jsonl", 100)
    assert probe() == {"transcript": 100}
    current.rename(tmp_path / "a.jsonl.1")
    write(tmp_path / "a.jsonl", 3)
    assert probe() == {"transcript": 3}
    os.truncate(tmp_path / "a.jsonl", 1)
    assert probe() == {"transcript": 1}
    (tmp_path / "a.jsonl").unlink()
    assert probe() == {"transcript": 0}


def test_a_directory_that_is_not_there(tmp_path):
    """Not yet, not a directory: nothing is counted; not any more: what was counted last stands."""
    probe = TranscriptProbe(tmp_path / "run")
    assert probe() == {"transcript": 0}
    write(tmp_path / "run/a.jsonl", 7)
    assert probe() == {"transcript": 7}
    (tmp_path / "run").rename(tmp_path / "elsewhere")
    assert probe() == {"transcript": 7}
    (tmp_path / "elsewhere").rename(tmp_path / "run")
    assert probe() == {"transcript": 7}
    assert TranscriptProbe(write(tmp_path / "file.jsonl", 9))() == {"transcript": 0}


def test_links_are_not_followed(tmp_path):
    """Neither to files nor to folders outside, nor round in circles."""
    run, outside = tmp_path / "run", tmp_path / "outside"
    write(run / "a.jsonl", 4)
    write(outside / "secret.jsonl", 1_000)
    (run / "b.jsonl").symlink_to(outside / "secret.jsonl")
    (run / "folder").symlink_to(outside)
    (run / "round").symlink_to(run)
    (run / "nowhere.jsonl").symlink_to(tmp_path / "nowhere")
    assert TranscriptProbe(run)() == {"transcript": 4}


def test_what_is_no_plain_file_is_not_counted(tmp_path):
    """A pipe or a folder of that name."""
    os.mkfifo(tmp_path / "pipe.jsonl")
    write(tmp_path / "folder.jsonl/a.jsonl", 2)
    assert TranscriptProbe(tmp_path)() == {"transcript": 2}


@pytest.mark.parametrize("vanishes", ["the file", "the folder"])
def test_what_vanishes_while_it_is_read(tmp_path, monkeypatch, vanishes):
    """Listed, and gone when it is looked at: left out."""
    write(tmp_path / "a.jsonl", 4)
    doomed = write(tmp_path / "run/b.jsonl", 5)
    real = os.scandir

    def scandir(folder):
        entries = list(real(folder))
        if Path(folder) == tmp_path / "run" and doomed.exists() and vanishes == "the file":
            doomed.unlink()
        if Path(folder) == tmp_path and doomed.exists() and vanishes == "the folder":
            doomed.unlink()
            doomed.parent.rmdir()
        return iter(entries)

    monkeypatch.setattr(os, "scandir", scandir)
    assert TranscriptProbe(tmp_path)() == {"transcript": 4}


def test_a_folder_that_may_not_be_read(tmp_path, monkeypatch):
    """What is not ours is left out."""
    write(tmp_path / "a.jsonl", 4)
    write(tmp_path / "locked/b.jsonl", 5)
    real = os.scandir

    def scandir(folder):
        if Path(folder).name == "locked":
            raise PermissionError(folder)
        return real(folder)

    monkeypatch.setattr(os, "scandir", scandir)
    assert TranscriptProbe(tmp_path)() == {"transcript": 4}


@pytest.mark.parametrize("number", [errno.EACCES, errno.ESTALE, errno.ENAMETOOLONG])
def test_a_directory_that_cannot_be_looked_at(tmp_path, monkeypatch, number):
    """As if it were not there: no failure, and no sign of work when it is back."""
    write(tmp_path / "a.jsonl", 4)
    probe = TranscriptProbe(tmp_path)
    assert probe() == {"transcript": 4}

    def refused(*_: object, **__: object) -> Any:
        raise OSError(number, os.strerror(number))

    with monkeypatch.context() as away:
        away.setattr(os, "scandir", refused)
        away.setattr(Path, "stat", refused)
        assert not probe.there
        assert probe() == {"transcript": 4}
    assert probe() == {"transcript": 4}


def test_a_name_that_no_directory_has(tmp_path):
    """Counts nothing, like one that is not there."""
    for name in ("a" * 5000, "\0", tmp_path / "nowhere", write(tmp_path / "file", 1)):
        probe = TranscriptProbe(name)
        assert not probe.there
        assert probe() == {"transcript": 0}


def test_a_source_of_its_own_name(tmp_path):
    """Two directories of one agent are two sources."""
    write(tmp_path / "a.jsonl", 4)
    assert TranscriptProbe(str(tmp_path), source="build")() == {"build": 4}


# ------------------------------------------------------------------ publishing


class Away:
    """A broker whose server is away for its first calls."""

    def __init__(self, broker: Broker, calls: int) -> None:
        self._broker = broker
        self._left = calls

    def run(self, call: Call[bool]) -> bool:
        self._left -= 1
        if self._left >= 0:
            raise errors.Unavailable("probe", "no answer")
        return self._broker.run(call)


def test_publishing_totals(sync_broker, tmp_path):
    """At once and on a cadence, until told to stop; a server that is away is said once."""
    parent = sync_broker.open_herd("h")
    scout = sync_broker.join("h", "scout", token_of(parent.register("scout")))
    write(tmp_path / "a.jsonl", 1)
    pauses: list[float] = []
    warnings: list[str] = []

    def pause(seconds: float) -> bool:
        pauses.append(seconds)
        write(tmp_path / "a.jsonl", len(pauses))
        return len(pauses) == 6

    away: Any = Away(sync_broker, 3)
    scout.broker = away
    every = timedelta(seconds=5)
    probe = TranscriptProbe(tmp_path)
    publish(scout, probe, every, pause=pause, warn=warnings.append)

    assert pauses == [5.0] * 6
    assert len(warnings) == 1 and "no answer" in warnings[0]
    (info,) = [each for each in parent.roster() if each.agent == "scout"]
    assert info.active_at is not None


def test_publishing_for_an_agent_that_is_closed(sync_broker, tmp_path):
    """It has nobody to publish for any more."""
    parent = sync_broker.open_herd("h")
    scout = sync_broker.join("h", "scout", token_of(parent.register("scout")))
    parent.close("scout")
    with pytest.raises(errors.AgentClosed):
        publish(scout, TranscriptProbe(tmp_path), timedelta(seconds=5))
