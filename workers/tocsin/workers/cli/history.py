"""The herd's journal: its lines for people, and following it while it is written."""

from __future__ import annotations

from collections.abc import Iterator

from rich.text import Text

from tocsin.broker import JournalEntry, Parent
from tocsin.broker.signals import Signal
from tocsin.workers.cli.blocks import STYLES, Line, brief, one_line

LOOK_AGAIN = 0.5
"""Seconds between looks at the journal while somebody watches; a settlement is seen at once."""

PAGE = 1_000
"""Entries that one look reads at most."""

_STYLES = STYLES | {
    "accepted": "cyan",
    "forwarded": "blue",
    "shown": "blue",
    "taken": "blue",
    "handled": "green",
    "returned": "yellow",
    "reminded": "yellow",
    "withdrawn": "magenta",
    "dead": "red",
    "lost": "red",
    "refused": "red",
    "set_aside": "red",
}
"""The colour of each event that is no state of a task."""

_SHOWN_FIRST = ("event", "agent", "sender", "recipient", "task", "message", "tasks", "messages")
_OF_AGENTS = ("text", "error", "reason", "detail", "summary", "body")


def _who(entry: JournalEntry) -> str:
    fields = entry.fields
    if "sender" in fields or "recipient" in fields:
        return f"{fields.get('sender', '')} → {fields.get('recipient', '')}".strip(" ")
    return str(fields.get("agent", ""))


def _ids(entry: JournalEntry) -> list[str]:
    found = [entry.fields[name] for name in ("task", "message") if entry.fields.get(name)]
    for name in ("tasks", "messages"):
        listed = entry.fields.get(name) or []
        found += [item[0] if isinstance(item, list) else item for item in listed]
    return [str(each) for each in found]


def line(entry: JournalEntry) -> Line:
    """An entry on one line: local time, event, who, which ids, what else. Agents are quoted."""
    parts: list[str | tuple[str, str]] = [
        (f"{entry.at.astimezone():%Y-%m-%d %H:%M:%S %Z}  ", "dim"),
        (f"{one_line(entry.event):<18}", _STYLES.get(entry.event, "bold")),
        f" {one_line(_who(entry)):<22}",
        (" ".join([*map(one_line, _ids(entry)), ""]), "cyan"),
    ]
    for name, value in entry.fields.items():
        if name in _SHOWN_FIRST or value in (None, "", False, [], {}):
            continue
        said = f"“{brief(str(value))}”" if name in _OF_AGENTS else one_line(str(value))
        parts.extend([(f" {one_line(name)} ", "dim"), said])
    return Line(Text.assemble(*parts))


def concerns(entry: JournalEntry, tasks: set[str]) -> bool:
    """Whether an entry is about one of these tasks."""
    fields = entry.fields
    named = fields.get("tasks") or []
    return fields.get("task") in tasks or not tasks.isdisjoint(named)


def follow(parent: Parent, after: str | None) -> Iterator[JournalEntry]:
    """The entries after `after` as they are written, until the herd is closed."""
    signal = Signal()
    ended = parent.herd_record().state == "closed"  # and nothing more will come
    with parent.broker.hear(parent.bell, "settled", signal):
        while True:
            signal.clear()
            entries = parent.journal(after=after, limit=PAGE)
            for entry in entries:
                after = entry.id
                yield entry
                if entry.event == "closed" and "agent" not in entry.fields:
                    return
            if len(entries) < PAGE:
                if ended:
                    return
                signal.wait(LOOK_AGAIN)
