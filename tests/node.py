"""Node and packages of npm for programs that test against them, each in a folder of its own."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path


def install(wanted: Path, folder: Path) -> Path:
    """Brings what a `package.json` names, unless it is there; returns the folder of commands."""
    commands = folder / "node_modules/.bin"
    kept = folder / "package.json"
    if (folder / "node_modules").exists() and kept.read_text() == wanted.read_text():
        return commands
    npm = shutil.which("npm")
    if npm is None:
        sys.exit("npm is needed: install it, or leave this to a machine that has it")
    folder.mkdir(parents=True, exist_ok=True)
    shutil.copy(wanted, folder / "package.json")
    words = [npm, "install", "--no-audit", "--no-fund", "--loglevel", "error"]
    subprocess.run(words, cwd=folder, check=True)
    return commands
