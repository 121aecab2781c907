"""The folder of a turn: whose it is, and that none is left behind whatever was killed."""

from __future__ import annotations

import os
import tempfile
import time
from pathlib import Path

from tocsin.broker.settings import ConnectionSettings
from tocsin.workers.child import folder
from tocsin.workers.child.prompt import Story


def aged(path: Path, days: float) -> Path:
    """As if it had been there for so long."""
    os.utime(path, (time.time() - days * 86_400,) * 2)
    return path


def test_folders_whose_processes_were_all_killed_are_removed(tmp_path, monkeypatch):
    """Not that of a turn that runs, nor one that is being made, however slowly, nor another's."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    story = Story(
        herd="h", agent="scout", number=1, reason="mail", attempt=1, session=None, mail=(), tasks=()
    )
    with folder.Folder(ConnectionSettings(), story, "tok_" + "a" * 43) as running:
        kept = [running.path, tmp_path / "tocsin-turn-new", tmp_path / "other"]
        left = [tmp_path / "tocsin-turn-left", tmp_path / "tocsin-turn-lost"]
        for path in (*kept[1:], *left):
            path.mkdir()
            (path / "seats.json").touch()
        (left[0] / "lock").touch()
        for path, days in ((kept[0], 9), (kept[1], 0.9), (kept[2], 9), (left[0], 0), (left[1], 2)):
            aged(path, days)
        assert folder.sweep() == len(left)
        assert [path for path in left if path.exists()] == []
        assert [path for path in kept if not path.exists()] == []
        assert folder.sweep() == 0
    assert not running.path.exists()
