"""What scripts answer with, as models: the flat lists of stored records, read.

A record is a hash, and comes as a list of fields and values; all of it is text. No I/O.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Any, TypeVar

from tocsin.broker.clock import from_ms
from tocsin.broker.envelopes import (
    AgentInfo,
    Delegated,
    Delivery,
    Envelope,
    JournalEntry,
    Kind,
    Receipt,
    SessionInfo,
    SessionState,
    Settlement,
    Task,
    TurnsInfo,
    Waiting,
    WakeTry,
)
from tocsin.broker.rendering import body_of
from tocsin.broker.runners import from_json
from tocsin.broker.states import RETURN_CODES, TaskState

T = TypeVar("T")

log = logging.getLogger("tocsin.broker")


def decode(answer: Any) -> Any:
    """An answer with its bytes as text; what is not UTF-8 is replaced, never raised."""
    if isinstance(answer, bytes):
        return answer.decode("utf-8", "replace")
    if isinstance(answer, list):  # of bytes mostly: a call for each would double what this costs
        return [
            item.decode("utf-8", "replace") if isinstance(item, bytes) else decode(item)
            for item in answer
        ]
    if isinstance(answer, dict):
        return {decode(name): decode(value) for name, value in answer.items()}
    return answer


def pairs(flat: list[Any]) -> dict[str, Any]:
    """A record from its flat list of fields and values."""
    return dict(zip(flat[::2], flat[1::2], strict=True))


def read_whole(
    herd: str, what: str, rows: Sequence[list[Any]], read: Callable[[list[Any]], T]
) -> list[T]:
    """What each row of a list says. One of a damaged record is left out, and named in the log."""
    whole = []
    for row in rows:
        try:
            whole.append(read(row))
        except (LookupError, ValueError, TypeError) as error:
            why = f"{type(error).__name__}: {error}" if row[1] else "it was written over"
            log.warning(
                "herd %s: %s %s is left out, because its record cannot be read (%s); see what "
                "`tocsin doctor` finds",
                herd,
                what,
                row[0],
                why,
            )
    return whole


def _time(value: str | None) -> datetime | None:
    return from_ms(value) if value else None


def read_envelope(herd: str, record: Mapping[str, str]) -> Envelope:
    """The envelope of a message record, with the text of those that Tocsin writes."""
    data = json.loads(record["data"]) if record.get("data") else {}
    kind = Kind(record["kind"])
    return Envelope(
        message_id=record["id"],
        kind=kind,
        sender=record["sender"],
        recipient=record["to"],
        herd=herd,
        task_id=record.get("task") or None,
        thread_id=record.get("thread") or None,
        reply_to=record.get("reply_to") or None,
        expects_reply=kind is Kind.REQUEST,
        delivery=Delivery(record["delivery"]),
        trigger_turn=record["wakes"] == "1",
        body=body_of(kind, data, record.get("body", "")),
        data=data,
        created_at=from_ms(record["accepted_at"]),
        late=record.get("late") == "1",
        attempts=int(record["attempts"]),
    )


def read_settlement(task_id: str, record: Mapping[str, str]) -> Settlement | None:
    """The settlement of a task record; None while it is open."""
    state = TaskState(record["state"])
    if not state.terminal:
        return None
    return Settlement(
        task_id=task_id,
        agent=record["agent"],
        status=state,
        ok=state is TaskState.COMPLETED,
        return_code=RETURN_CODES[state],
        summary=record.get("summary") or None,
        error=record.get("error") or None,
        completed_at=from_ms(record["settled_at"]),
    )


def read_task(task_id: str, flat: list[str], questions: list[str]) -> Task:
    """The task of a task record."""
    record = pairs(flat)
    return Task(
        id=task_id,
        agent=record["agent"],
        state=TaskState(record["state"]),
        description=record["description"],
        created_at=from_ms(record["created_at"]),
        started_at=_time(record.get("started_at")),
        deadline=from_ms(record["deadline"]),
        watched=bool(record.get("watch")),
        continues=record.get("continues") or None,
        episode=int(record["episode"]),
        waiting_since=_time(record.get("waiting_since")),
        open_requests=tuple(questions),
        question=record.get("question") or None,
        settlement=read_settlement(task_id, record),
    )


def read_delegated(task_id: str, flat: list[str], path: str) -> Delegated:
    """A task as `delegate` tells of it."""
    task = read_task(task_id, flat, [])
    return Delegated(**dict(task), wake_path=path or None, wakeable=path != "")


def _read_turns(record: Mapping[str, str]) -> TurnsInfo | None:
    if not record.get("turn_state"):
        return None
    runner = from_json(record["runner"])
    return TurnsInfo(
        runner=runner.named,
        queue=runner.queue,
        account=runner.account,
        state=record["turn_state"],
        number=int(record.get("turn", 0)),
        reason=record.get("turn_reason"),
        since=_time(record.get("turn_since")),
        ended=record.get("turn_ended"),
        failures=int(record.get("failures", 0)),
        wakes=int(record.get("wakes", 0)),
        turns=int(record.get("turns", 0)),
        characters=int(record.get("characters", 0)),
        seconds=int(record.get("turn_ms", 0)) / 1000,
    )


def read_session(row: list[str]) -> SessionInfo:
    """One session of an agent."""
    host, session, instance, state, since, paths = row
    return SessionInfo(
        host=host,
        session=session,
        instance=instance,
        state=SessionState(state),
        since=from_ms(since),
        paths=tuple(paths.split()),
    )


def read_waiting(row: list[str]) -> Waiting:
    """One row of what is unread."""
    message, kind, sender, delivery, wakes, accepted, shown = row
    return Waiting(
        message_id=message,
        kind=Kind(kind),
        sender=sender,
        delivery=Delivery(delivery),
        wakes=wakes == "1",
        created_at=from_ms(accepted),
        shown_at=_time(shown),
    )


def read_agent(row: list[Any]) -> AgentInfo:
    """The roster's row of one agent."""
    name, flat, instances, tasks, queued, unread, asked, asking, led, path, sessions = row
    record = pairs(flat)
    return AgentInfo(
        agent=name,
        state=record["state"],
        generation=int(record["generation"]),
        role=record.get("role") or None,
        label=record.get("label") or None,
        status=record.get("status") or None,
        present=bool(instances),
        instances=tuple(instances),
        tasks=tuple(tasks),
        queued=tuple(queued),
        unread=unread,
        waited_on_by=tuple(asked),
        waits_for=tuple(asking),
        herds=tuple(sorted(led)),
        registered_at=from_ms(record["registered_at"]),
        active_at=_time(record.get("active_at")),
        progress=record.get("progress") or None,
        fraction=float(record["fraction"]) if record.get("fraction") else None,
        turns=_read_turns(record),
        wakeable=path != "",
        wake_path=path or None,
        sessions=tuple(read_session(each) for each in sessions),
    )


_QUIET = {
    Kind.REMINDER: "a reminder never wakes",
    Kind.NOTICE: "this notice waits for the next turn",
    Kind.REPLY: "it came late, and nothing that is still open waits for it",
    Kind.TASK_SETTLED: "its task is not watched, or others of its watch are still open",
}
_NOT_YET = {
    "queued": "its task waits for a slot",
    "held": "it is held for the call that waits for it",
}


def _read_try(
    path: str, at: str, result: str, tries: str = "1", confirmed: str = "-", detail: str = ""
) -> WakeTry:
    reported = result in ("ok", "failed")
    return WakeTry(
        path=path,
        at=from_ms(at),
        reached=None if reported or result == "-1" else int(result),
        ok=result == "ok" if reported else None,
        tries=int(tries),
        confirmed_at=None if confirmed == "-" else from_ms(confirmed),
        detail=detail or None,
    )


def read_tries(record: Mapping[str, str]) -> tuple[WakeTry, ...]:
    """By which paths it was tried to wake the recipient of a message, as its record says."""
    return tuple(
        _read_try(field.removeprefix("wake:"), *record[field].split(" ", 4))
        for field in sorted(record)
        if field.startswith("wake:")
    )


def _not_tried(record: Mapping[str, str]) -> str:
    if "/" in record["to"]:
        return "its recipient is woken in its own herd"
    if record["wakes"] == "1":
        return _NOT_YET.get(record["state"], "it ended before it was there to be read")
    return f"it is quiet: {_QUIET.get(Kind(record['kind']), 'it waits for the next turn')}"


def read_receipt(message_id: str, flat: list[str]) -> Receipt:
    """The receipt of a message record."""
    record = pairs(flat)
    wake, there = read_tries(record), record.get("there")
    if there:  # what was heard of it from another herd
        record |= {
            "state": there,
            f"{'handled' if there == 'handled' else 'ended'}_at": record["there_at"],
        }
    return Receipt(
        message_id=message_id,
        kind=Kind(record["kind"]),
        sender=record["sender"],
        recipient=record["to"],
        task_id=record.get("task") or None,
        state=record["state"],
        accepted_at=from_ms(record["accepted_at"]),
        wakes=record["wakes"] == "1",
        wake=wake,
        not_tried=None if wake else _not_tried(record),
        shown_at=_time(record.get("shown_at")),
        shown_by=record.get("shown_by"),
        taken_at=_time(record.get("taken_at")),
        taken_by=record.get("taken_by"),
        comes_at=_time(record.get("comes_at") if record["state"] == "delayed" else None),
        forwarded_at=_time(record.get("forwarded_at")),
        handled_at=_time(record.get("handled_at")),
        ended_at=_time(record.get("ended_at")),
        by=record.get("by") or None,
        attempts=int(record.get("tries", record["attempts"])),
        error=record.get("error") or None,
        reason=record.get("reason") or None,
        request=record.get("request") or None,
        answered_by=record.get("answered_by") or None,
        reply=record.get("reply") or None,
    )


def read_journal(row: list[str]) -> JournalEntry:
    """One line of the journal."""
    fields = json.loads(row[1])
    event, at = fields.pop("event"), from_ms(fields.pop("at"))
    return JournalEntry(id=row[0], event=event, at=at, fields=fields)
