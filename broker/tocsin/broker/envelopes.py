"""What crosses the wire, as frozen models, and how each is read from a record.

Times are aware datetimes in UTC. Fields that a record leaves empty are None.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any

from pydantic import BaseModel, ConfigDict

from tocsin.broker.clock import from_ms
from tocsin.broker.rendering import body_of
from tocsin.broker.states import RETURN_CODES, TaskState


class Kind(StrEnum):
    """What an envelope is."""

    MESSAGE = "message"
    REQUEST = "request"
    REPLY = "reply"
    TASK = "task"
    TASK_SETTLED = "task_settled"
    REMINDER = "reminder"
    NOTICE = "notice"


class Delivery(StrEnum):
    """When an agent at work sees it: in its next turn, or at a safe point of the running one."""

    FOLLOW_UP = "follow_up"
    STEER = "steer"


class Outcome(StrEnum):
    """How its owner may settle a task."""

    COMPLETED = "completed"
    BLOCKED = "blocked"
    FAILED = "failed"


class Status(StrEnum):
    """What an agent's process does. Says nothing about its tasks."""

    WORKING = "working"
    IDLE = "idle"


class Wake(StrEnum):
    """Which settlements of watched tasks wake the parent."""

    EACH = "each"
    ALL = "all"


class ReturnWhen(StrEnum):
    """When `wait` returns."""

    ALL = "all"
    FIRST = "first"


class Model(BaseModel):
    """Base of all of them: frozen, and closed to unknown fields."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class Envelope(Model):
    """One immutable message between two agents of a herd.

    `sender` is proven by its token; `@tocsin` is the broker itself, and no agent can bear that
    name. `attempts` counts earlier handlers that raised or died holding it. `late` marks a reply
    whose request had ended before it came.
    """

    message_id: str
    kind: Kind
    sender: str
    recipient: str
    herd: str
    task_id: str | None
    thread_id: str | None
    reply_to: str | None
    expects_reply: bool
    delivery: Delivery
    trigger_turn: bool
    body: str
    data: dict[str, Any]
    created_at: datetime
    late: bool
    attempts: int


class Settlement(Model):
    """How a task ended; the same for everyone who asks, ever after."""

    task_id: str
    agent: str
    status: TaskState
    ok: bool
    return_code: int
    summary: str | None
    error: str | None
    completed_at: datetime


class Task(Model):
    """A tracked unit of work, as it stood when it was read."""

    id: str
    agent: str
    state: TaskState
    description: str
    created_at: datetime
    started_at: datetime | None
    deadline: datetime
    watched: bool
    continues: str | None
    episode: int
    waiting_since: datetime | None
    open_requests: tuple[str, ...]
    question: str | None
    """The question that was open when it settled, for a task that continues it."""
    settlement: Settlement | None


class Sent(Model):
    """What became of a sent envelope.

    `duplicate`: nothing was delivered, because the envelope that `message_id` names stands already.
    `superseded`: that one says something else, and this one is in the journal only. `late`: it is
    a reply to a request that had already ended; it is kept and delivered, and changes nothing.
    """

    message_id: str
    duplicate: bool = False
    superseded: bool = False
    late: bool = False


class Reply(Model):
    """The answer to an ask. `waited` is how long it took, `extensions` how often work moved on
    the window; `late`: it came after the ask had ended."""

    message_id: str
    request_id: str
    sender: str
    body: str
    data: dict[str, Any]
    late: bool
    created_at: datetime
    waited: timedelta
    extensions: int


class Seat(Model):
    """An agent's place in its herd. `token` is shown once; None where it was not made now."""

    herd: str
    agent: str
    generation: int
    token: str | None = None

    def __repr__(self) -> str:
        return f"Seat({self.herd}/{self.agent}, generation {self.generation})"

    __str__ = __repr__


class AgentInfo(Model):
    """An agent as the roster shows it."""

    agent: str
    state: str
    generation: int
    role: str | None
    label: str | None
    status: str | None
    present: bool
    instances: tuple[str, ...]
    tasks: tuple[str, ...]
    queued: tuple[str, ...]
    unread: int
    waited_on_by: tuple[str, ...]
    """Open requests that wait for this agent's answer."""
    waits_for: tuple[str, ...]
    """Open requests that this agent made."""
    registered_at: datetime
    active_at: datetime | None
    progress: str | None
    fraction: float | None


class WakeTry(Model):
    """The last try to wake a recipient by one path."""

    path: str
    """`bell`: the processes of the agent that wait for mail."""
    at: datetime
    reached: int | None
    """How many processes it reached; 0: nobody. None on a Cluster, where no server knows."""


class Receipt(Model):
    """How far an envelope got, with times.

    `state` is queued, held, delayed, accepted, shown or taken; in the end handled, dead, or
    withdrawn: taken back. `by` is the instance that holds or handled it. Of showings the first
    counts, of takings the last.
    """

    message_id: str
    kind: Kind
    sender: str
    recipient: str
    task_id: str | None
    state: str
    accepted_at: datetime
    wakes: bool
    wake: tuple[WakeTry, ...]
    """The paths by which it was tried to wake the recipient."""
    not_tried: str | None
    """Why none was; None if one was."""
    shown_at: datetime | None
    shown_by: str | None
    taken_at: datetime | None
    taken_by: str | None
    comes_at: datetime | None
    """When it is there again, while it is delayed."""
    handled_at: datetime | None
    ended_at: datetime | None
    by: str | None
    attempts: int
    error: str | None
    """What its last failed handler, or its holder's death, left."""
    reason: str | None
    """Why it is dead or was taken back."""
    request: str | None
    """What became of a request: open, answered, expired, cancelled, settled, dead, no_reply,
    ceiling_active, agent_closed, asker_closed."""
    answered_by: str | None
    reply: str | None


class JournalEntry(Model):
    """One line of a herd's history. `id` is where to read on from."""

    id: str
    event: str
    at: datetime
    fields: dict[str, Any]


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


def read_agent(row: list[Any]) -> AgentInfo:
    """The roster's row of one agent."""
    name, flat, instances, tasks, queued, unread, asked, asking = row
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
        registered_at=from_ms(record["registered_at"]),
        active_at=_time(record.get("active_at")),
        progress=record.get("progress") or None,
        fraction=float(record["fraction"]) if record.get("fraction") else None,
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


def _wakes(record: Mapping[str, str]) -> tuple[WakeTry, ...]:
    tries = []
    for field in sorted(record):
        if field.startswith("wake:"):
            at, heard = record[field].split(" ")
            reached = None if heard == "-1" else int(heard)
            path = field.removeprefix("wake:")
            tries.append(WakeTry(path=path, at=from_ms(at), reached=reached))
    return tuple(tries)


def _not_tried(record: Mapping[str, str]) -> str:
    if record["wakes"] == "1":
        return _NOT_YET.get(record["state"], "it ended before it was there to be read")
    return f"it is quiet: {_QUIET.get(Kind(record['kind']), 'it waits for the next turn')}"


def read_receipt(message_id: str, flat: list[str]) -> Receipt:
    """The receipt of a message record."""
    record = pairs(flat)
    wake = _wakes(record)
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
        handled_at=_time(record.get("handled_at")),
        ended_at=_time(record.get("ended_at")),
        by=record.get("by") or None,
        attempts=int(record["attempts"]),
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
