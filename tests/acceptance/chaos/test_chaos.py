"""Half a minute of chaos, as `make chaos SECONDS=30 SEED=3` runs it; less on several servers."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.requirements import proves

ROOT = Path(__file__).parents[3]
SEED = 3


@pytest.mark.long
@proves("P1", "P9", "P10", "P11", "P12", "P16")
@pytest.mark.parametrize(
    ("on", "seconds", "also"),
    [
        ("server", 30, ("reminders", "late replies")),
        ("cluster", 12, ("slot moves",)),
        ("sentinel", 8, ()),
    ],
    ids=["server", "cluster", "sentinel"],
)
def test_a_fleet_whose_parts_are_killed_frozen_and_cut_off(tmp_path, on, seconds, also):
    """Cases 1, 2, 17, 18, 21, 25, 32: nothing is lost, nothing done twice, one reminder a wait."""
    command = [sys.executable, "-m", "tests.acceptance.chaos", "--json", "--keep", str(tmp_path)]
    run = subprocess.run(
        [*command, "--on", on, "--seconds", str(seconds), "--seed", str(SEED)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=180,
        check=False,
    )

    assert run.stdout, f"the driver broke; logs in {tmp_path}\n{run.stderr}"
    said = json.loads(run.stdout)
    assert not said["violations"], f"seed {SEED}; logs in {tmp_path}: {said['violations']}"
    assert run.returncode == said["lost"] == said["duplicates handled in effect"] == 0
    did = ("messages", "kills", "freezes", "cuts", "servers killed", *also)
    assert all(said[name] for name in did), f"a run in which too little happened: {said}"
