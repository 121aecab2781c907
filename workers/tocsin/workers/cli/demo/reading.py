"""What the demo's agents do for a living: read a file tree, and one file of it. Plain, no model."""

from __future__ import annotations

import ast
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

MOST_FILES = 20_000
MOST_BYTES = 1_000_000

_PASSED_OVER = {"__pycache__", "build", "dist", "node_modules", "venv", "target"}


@dataclass(frozen=True)
class Reading:
    """What reading a file tree found. `longest` is a path inside it, of Python if there is any."""

    files: int
    lines: int
    python: int
    longest: str
    longest_lines: int

    def __str__(self) -> str:
        return (
            f"{self.files:,} files with {self.lines:,} lines, {self.python:,} files of them Python"
        )


def find_tree(start: Path) -> Path:
    """The repository of Tocsin around a folder, else the source of the installed package."""
    for folder in (start, *start.parents):
        if (folder / "pyproject.toml").is_file() and (folder / "broker/tocsin/broker").is_dir():
            return folder
    import tocsin.broker

    return Path(str(tocsin.broker.__file__)).resolve().parents[1]


def measure(tree: Path) -> Reading:
    """Reads every text file of a tree, hidden and generated folders aside."""
    counts: list[tuple[bool, int, str]] = []
    for path in _files(tree):
        try:
            text = path.read_text("utf-8") if path.stat().st_size <= MOST_BYTES else None
        except (OSError, UnicodeDecodeError):
            continue
        if text is not None:
            name = path.relative_to(tree).as_posix()
            counts.append((path.suffix == ".py", len(text.splitlines()), name))
    _, longest_lines, longest = max(counts, default=(False, 0, ""))
    return Reading(
        files=len(counts),
        lines=sum(lines for _, lines, _ in counts),
        python=sum(python for python, _, _ in counts),
        longest=longest,
        longest_lines=longest_lines,
    )


def where_to_start(path: Path) -> str:
    """Where a newcomer should start in a file, judged by what is in it."""
    try:
        text = path.read_text("utf-8")
    except (OSError, UnicodeDecodeError):
        return f"nowhere, {path.name} cannot be read"
    lines = len(text.splitlines())
    parts = _parts(text) if path.suffix == ".py" else []
    if not parts:
        return f"at the top; its {lines} lines have no parts to choose from"
    size, line, name = max(parts)
    return f"at {name}, line {line}: {size} of {lines} lines, the largest of {len(parts)} parts"


def _files(tree: Path) -> Iterator[Path]:
    seen = 0
    for folder, folders, names in os.walk(tree):
        folders[:] = sorted(
            name for name in folders if not name.startswith(".") and name not in _PASSED_OVER
        )
        for name in sorted(names):
            seen += 1
            if seen > MOST_FILES:
                return
            if not name.startswith(".") and name.isprintable():
                yield Path(folder, name)


def _parts(text: str) -> list[tuple[int, int, str]]:
    """Size in lines, first line and name of each class and function at the top of a module."""
    try:
        body = ast.parse(text).body
    except (SyntaxError, ValueError):
        return []
    return [
        (part.end_lineno - part.lineno + 1, part.lineno, part.name)
        for part in body
        if isinstance(part, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
        and part.end_lineno is not None
    ]
