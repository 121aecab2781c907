"""What happened in the demo: lines of the herd's journal, and what the agents' processes print.

The journal is the broker's own word; what an agent prints is only shown, or compared with it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from tocsin.broker import JournalEntry, TaskState
from tocsin.broker.clock import from_ms

SCHEDULER = "scheduler"

STATES = frozenset(state.value for state in TaskState)
_BEGINS = "delegated"


@dataclass(frozen=True)
class Event:
    """One thing that happened, at a moment of the fleet's clock."""

    at: datetime
    who: str
    what: str
    text: str = ""
    """For people; empty: the event is for the checks only."""
    task: str | None = None
    facts: Mapping[str, Any] = field(default_factory=dict)
    journal: bool = False
    """Whether the broker says so, and not an agent."""

    @property
    def state(self) -> str | None:
        """The state that the task came into, if this says so."""
        if not self.journal:
            return None
        if self.what == _BEGINS:
            return TaskState.CREATED.value
        return self.what if self.what in STATES and self.task else None


def from_journal(entry: JournalEntry) -> Event:
    """A line of the herd's journal as an event."""
    fields = entry.fields
    tasks = fields.get("tasks") or []
    task = fields.get("task") or (tasks[0] if tasks else None)
    who, text = fields.get("agent") or fields.get("sender") or "", ""
    if entry.event == _BEGINS:
        who = "parent"
    elif entry.event == "reminded":
        who, text = SCHEDULER, "reminds parent, quietly, that its task waits"
    elif entry.event == TaskState.BLOCKED:
        who, text = SCHEDULER, f"ends the wait: {_without_id(str(fields.get('error')))}"
    return Event(entry.at, who, entry.event, text, task, fields, journal=True)


def _without_id(error: str) -> str:
    return error.partition(" to message")[0]


def from_line(role: str, line: str) -> Event | None:
    """A line that an agent's process printed as an event; None if it is not one."""
    try:
        said = json.loads(line)
        return Event(
            from_ms(said["at"]), role, said["what"], said["text"], said["task"], said["facts"]
        )
    except (ValueError, KeyError, TypeError):
        return None


@dataclass
class Record:
    """All that happened so far, and what the checks need to know besides."""

    threshold: timedelta
    reply_within: timedelta
    events: list[Event] = field(default_factory=list)
    ended: bool = False
    """Whether the parent's part is over: nothing more is to come."""
    left: tuple[str, ...] | None = None
    """Processes and keys that outlived the end; None: nobody has looked yet."""

    @property
    def tasks(self) -> list[str]:
        """The tasks, in the order they were delegated."""
        return [event.task for event in self.all(_BEGINS) if event.task and event.journal]

    @property
    def start(self) -> datetime | None:
        """When the first task was delegated: minute 0."""
        return next((event.at for event in self.all(_BEGINS)), None)

    def minute(self, event: Event) -> float:
        """The fleet's minutes from the start to an event."""
        start = self.start
        return 0.0 if start is None else (event.at - start) / timedelta(minutes=1)

    def all(self, what: str, task: str | None = None, who: str | None = None) -> list[Event]:
        """The events of a kind, of one task and one agent if given."""
        return [
            event
            for event in self.events
            if event.what == what and task in (None, event.task) and who in (None, event.who)
        ]

    def first(self, what: str, task: str | None = None, who: str | None = None) -> Event | None:
        """The first of them; None if there is none yet."""
        return next(iter(self.all(what, task, who)), None)

    def states(self, task: str) -> list[str]:
        """The states a task went through, by the journal."""
        return [event.state for event in self.events if event.task == task and event.state]
