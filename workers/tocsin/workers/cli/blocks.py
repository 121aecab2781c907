"""What a command shows to people: tables, facts, quotations, times. Data is never markup.

Everything that came from an agent or a server goes through `clean`, so that no control character
of it reaches a terminal, and longer texts of agents through `Quoted`, each line of which is marked,
so that they cannot pass for words of Tocsin.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from rich import box
from rich.console import Console, ConsoleOptions, RenderResult
from rich.table import Table
from rich.text import Text

_HIDDEN = {"Cc", "Cf", "Cs", "Co", "Zl", "Zp"}
_HARMLESS = "\n\t\u200c\u200d"
"""Joiners stay: scripts and emoji are made with them."""

_BAR = "│ "
_LONGEST_CELL = 2_000

STYLES = {
    "created": "cyan",
    "running": "blue",
    "waiting": "yellow",
    "completed": "green",
    "blocked": "red",
    "failed": "red",
    "timed_out": "red",
    "cancelled": "magenta",
    "active": "green",
    "paused": "yellow",
    "removed": "dim",
    "ended": "dim",
    "open": "green",
    "closing": "yellow",
    "closed": "dim",
}
"""The colour of each state."""


def clean(text: str) -> str:
    """`text` with what could move a cursor, colour or reorder a line made visible: `\\x1b`."""
    text = text.replace("\r\n", "\n")
    return "".join(
        letter
        if letter in _HARMLESS or unicodedata.category(letter) not in _HIDDEN
        else letter.encode("unicode_escape", "backslashreplace").decode("ascii")
        for letter in text
    )


def one_line(text: str) -> str:
    """The same, on one line."""
    return " ⏎ ".join(line.strip() for line in clean(text).replace("\t", " ").split("\n"))


def brief(text: str, most: int = 60) -> str:
    """The beginning of a text, on one line."""
    line = one_line(text.strip())
    return line if len(line) <= most else line[: most - 1].rstrip() + "…"


def state(word: str) -> Text:
    """A state in its colour."""
    return Text(one_line(word), style=STYLES.get(word, ""))


def span(duration: timedelta) -> str:
    """About how long: `3 min`, `2 h`, `5 days`."""
    seconds = abs(duration).total_seconds()
    for size, most, unit in ((1, 90, "s"), (60, 5_400, "min"), (3_600, 172_800, "h")):
        if seconds < most:
            return f"{round(seconds / size)} {unit}"
    return f"{round(seconds / 86_400)} days"


def age(moment: datetime | None, now: datetime) -> str:
    """How long ago, or in how long: `3 min ago`, `in 20 min`, `now`; `-` for never."""
    if moment is None:
        return "-"
    passed = now - moment
    if abs(passed) < timedelta(seconds=1):
        return "now"
    return f"{span(passed)} ago" if passed > timedelta(0) else f"in {span(passed)}"


def when(moment: datetime | None, now: datetime) -> str:
    """A moment in local time with its zone, and its age: `2026-03-01 14:05:09 CET (3 min ago)`."""
    if moment is None:
        return "-"
    return f"{moment.astimezone():%Y-%m-%d %H:%M:%S %Z} ({age(moment, now)})"


Cell = str | Text
"""One value in a table; a `str` is data and is cleaned, a `Text` is ours."""


def cell(value: Cell) -> Text:
    """A cell as it is printed: one line."""
    return value if isinstance(value, Text) else Text(brief(value, _LONGEST_CELL))


@dataclass(frozen=True)
class Rows:
    """A table. Columns named in `whole` are never broken over lines."""

    columns: Sequence[str]
    rows: Sequence[Sequence[Cell]]
    empty: str = "Nothing to show."
    whole: Collection[str] = ()

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        if not self.rows:
            yield Text(self.empty, style="dim")
            return
        shape = box.SIMPLE_HEAD if console.is_terminal else None
        table = Table(box=shape, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
        for name in self.columns:
            table.add_column(
                Text(name), overflow="fold", no_wrap=name in self.whole, min_width=len(name)
            )
        for row in self.rows:
            table.add_row(*(cell(value) for value in row))
        yield table


@dataclass(frozen=True)
class Facts:
    """Names with their values, one a line; those without a value (None) are left out."""

    facts: Sequence[tuple[str, Cell | None]]

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        table = Table.grid(padding=(0, 2, 0, 0))
        table.add_column(style="bold", no_wrap=True)
        table.add_column(overflow="fold")
        for name, value in self.facts:
            if value is not None:
                table.add_row(Text(name), cell(value))
        yield table


@dataclass(frozen=True)
class Quoted:
    """The words of an agent, every printed line behind a bar."""

    text: str
    style: str = "cyan"

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        width = max(1, options.max_width - len(_BAR))
        for line in clean(self.text).expandtabs(4).split("\n"):
            pieces = Text(line).wrap(console, width, overflow="fold") if line else [Text("")]
            for piece in pieces:
                yield Text.assemble((_BAR, self.style), piece)


@dataclass(frozen=True)
class Line:
    """One line of ours with words of others in it; where it wraps, the rest is indented."""

    text: Text

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        width = options.max_width
        first, *_ = self.text.wrap(console, width) or [self.text]
        yield first
        rest = self.text[len(first) :]
        rest = rest[len(rest.plain) - len(rest.plain.lstrip()) :]
        if rest:
            indent = min(4, width - 1)
            for piece in rest.wrap(console, width - indent):
                yield Text.assemble(" " * indent, piece)
