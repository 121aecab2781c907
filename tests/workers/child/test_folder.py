"""The folder of a turn: whose it is, and that none is left behind whatever was killed."""

from __future__ import annotations

import os
import tempfile
import time
from pathlib import Path

from tocsin.broker.settings import ConnectionSettings
from tocsin.workers.child import folder
from tocsin.workers.child.prompt import Story


def aged(path: Path) -> Path:
    """As if it had been there for some minutes."""
    os.utime(path, (time.time() - 300,) * 2)
    return path


def test_folders_whose_processes_were_all_killed_are_removed(tmp_path, monkeypatch):
    """Not that of a turn that runs, nor one that is just being made, nor anything else."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    story = Story(
        herd="h", agent="scout", number=1, reason="mail", attempt=1, session=None, mail=(), tasks=()
    )
    with folder.Folder(ConnectionSettings(), story, "tok_" + "a" * 43) as running:
        kept = [aged(running.path), tmp_path / "tocsin-turn-new", tmp_path / "other"]
        for path in kept[1:]:
            path.mkdir()
        aged(kept[2])
        left = tmp_path / "tocsin-turn-left"
        left.mkdir()
        (left / "seats.json").touch()
        aged(left)
        assert folder.sweep() == 1
        assert not left.exists()
        assert [path for path in kept if not path.exists()] == []
        assert folder.sweep() == 0
    assert not running.path.exists()
