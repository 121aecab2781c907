"""The demo's story as it should be lived, written down; for tests that sabotage it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

from tocsin.workers.cli.demo.events import Event, Record
from tocsin.workers.cli.demo.pace import THRESHOLD

START = datetime(2026, 1, 1, tzinfo=UTC)
READING = "12 files with 3,400 lines, 9 files of them Python"
ANSWER = "at Envelope, line 60: 30 of 347 lines, the largest of 9 parts"
NO_REPLY = "no reply from planner to message msg_2"


class Writer:
    """Writes a record, event by event."""

    def __init__(self) -> None:
        self.record = Record(THRESHOLD, timedelta(minutes=8))
        self._seconds = 0.0

    def at(self, minutes: float) -> Writer:
        self._seconds = minutes * 60
        return self

    def journal(self, what: str, who: str = "", task: str | None = None, **facts: Any) -> Writer:
        return self._write(who, what, task, facts, journal=True)

    def said(self, who: str, what: str, task: str, **facts: Any) -> Writer:
        return self._write(who, what, task, facts, journal=False)

    def _write(
        self, who: str, what: str, task: str | None, facts: dict[str, Any], *, journal: bool
    ) -> Writer:
        self._seconds += 0.1
        moment = START + timedelta(seconds=self._seconds)
        text = "" if journal else f"{what.replace('_', ' ')}"
        self.record.events.append(Event(moment, who, what, text, task, facts, journal))
        return self


def lived() -> Record:
    """The record of a demo in which every promise was kept."""
    writer = Writer()
    _until_the_wait(writer.at(0), "task_1", "Where?")
    writer.at(7.1).journal("request_answered", "scout", "task_1")
    writer.journal("running", task="task_1")
    writer.said("planner", "answers", "task_1", answer=ANSWER)
    _settle(writer, "completed", "task_1", summary=f"{READING}. Start {ANSWER}.")
    _until_the_wait(writer.at(8), "task_2", "May I?")
    _settle(writer.at(16.1), "blocked", "task_2", error=NO_REPLY)
    writer.record.ended = True
    writer.record.left = ()
    return writer.record


def _until_the_wait(writer: Writer, task: str, question: str) -> None:
    start = writer._seconds / 60
    writer.journal("delegated", "parent", task).journal("running", task=task)
    writer.said("scout", "reads", task, reading=READING)
    writer.journal("waiting", "scout", task, episode=1)
    writer.said("scout", "asks", task, question=question)
    writer.journal("handled", "scout").journal("status", "scout", status="idle")
    writer.at(start + 5.1).journal("reminded", "scheduler", task, tasks=[task])
    writer.said("parent", "sees_reminder", task, question=question)


def _settle(
    writer: Writer, state: str, task: str, summary: str | None = None, error: str | None = None
) -> None:
    writer.journal(state, "scout", task, error=error)
    writer.journal("accepted", "scout", task, kind="task_settled")
    writer.journal("taken", "parent")
    writer.said("parent", "is_woken", task, kind="task_settled", summary=summary)


Sabotage = Callable[[Record], None]
"""Changes a record so that a promise in it is broken."""


def twice(what: str, task: str | None = None) -> Sabotage:
    """It happens a second time."""

    def sabotage(record: Record) -> None:
        place = record.events.index(_the(record, what, task))
        record.events.insert(place + 1, record.events[place])

    return sabotage


def never(what: str, task: str | None = None) -> Sabotage:
    """It does not happen at all."""
    return lambda record: record.events.remove(_the(record, what, task))


def earlier(what: str, minutes: float, task: str | None = None) -> Sabotage:
    """It happens too early."""

    def sabotage(record: Record) -> None:
        event = _the(record, what, task)
        record.events.remove(event)
        early = replace(event, at=event.at - timedelta(minutes=minutes))
        place = sum(each.at <= early.at for each in record.events)
        record.events.insert(place, early)

    return sabotage


def otherwise(what: str, task: str | None = None, **facts: Any) -> Sabotage:
    """It happens with other content."""

    def sabotage(record: Record) -> None:
        event = _the(record, what, task)
        record.events[record.events.index(event)] = replace(event, facts={**event.facts, **facts})

    return sabotage


def besides(what: str, task: str | None = None) -> Sabotage:
    """Something else happens, too."""
    event = Event(START, "scout", what, "", task, {}, journal=True)
    return lambda record: record.events.append(replace(event, at=record.events[-1].at))


def left_behind(*what: str) -> Sabotage:
    """Something outlives the end."""
    return lambda record: setattr(record, "left", what)


def _the(record: Record, what: str, task: str | None) -> Event:
    event = record.first(what, task)
    assert event is not None
    return event
