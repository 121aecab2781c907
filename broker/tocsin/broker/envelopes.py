"""What users are handed: envelopes, tasks, agents, receipts, lines of the journal. Frozen models.

Times are aware datetimes in UTC. Fields that a record leaves empty are None (`records` reads them).
"""

from __future__ import annotations

from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any

from pydantic import BaseModel, ConfigDict

from tocsin.broker.states import TaskState


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


class SessionState(StrEnum):
    """What a session of a host does."""

    STARTED = "started"
    WORKING = "working"
    IDLE = "idle"
    ENDED = "ended"


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
    """One immutable message between two agents.

    `sender` is proven by its token, or, of another herd (`herd/agent`), was by its own herd when it
    accepted the message; `@tocsin` is the broker itself, and no agent can bear that
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


class Delegated(Task):
    """A task that was just given to a child, and whether anything can wake that child for it."""

    wake_path: str | None
    """The path by which it can be woken; see `AgentInfo`."""
    wakeable: bool
    """False: the task waits until its child looks by itself."""


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


class TurnsInfo(Model):
    """The turns of an agent that has a runner, and what they have come to."""

    runner: str
    """What runs them, in a word or two."""
    queue: str
    account: str | None
    state: str
    """`none`, `due` (also while mail is gathered, or it is put off), `launched` or `running`."""
    number: int
    """The last turn."""
    reason: str | None
    """Why there is one: mail, nudge or retry."""
    since: datetime | None
    ended: str | None
    """What was decided when the last one ended."""
    failures: int
    """In a row."""
    wakes: int
    """How often there was mail that wakes."""
    turns: int
    """How many were begun."""
    characters: int
    """Of mail that they were handed."""
    seconds: float
    """That they ran, in all."""


class SessionInfo(Model):
    """A live session: one run of a host, such as `claude-code` or `pi`, on an agent's seat."""

    host: str
    session: str
    """As the host calls it."""
    instance: str
    """The process that spoke for it last."""
    state: SessionState
    since: datetime
    paths: tuple[str, ...]
    """The paths by which it can be woken, in the order they are tried."""


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
    herds: tuple[str, ...]
    """Herds under this agent, by name."""
    registered_at: datetime
    active_at: datetime | None
    progress: str | None
    fraction: float | None
    turns: TurnsInfo | None = None
    """None for an agent that has processes of its own."""
    wakeable: bool
    """Whether there is a path by which it can be woken now; if not, mail waits until it looks."""
    wake_path: str | None
    """That path: `turn` (it has a runner), `bell` (a live instance that waits in `next_turn`), or
    the first path of a live session that is proven: a try by it was confirmed, and no three in a
    row since then came to nothing."""
    sessions: tuple[SessionInfo, ...]
    """Its live sessions, oldest first."""


class Waiting(Model):
    """What is unread, in short: that it is there, and not what it says."""

    message_id: str
    kind: Kind
    sender: str
    delivery: Delivery
    wakes: bool
    created_at: datetime
    shown_at: datetime | None
    """When it was first shown; None if it never was."""


class WakeTry(Model):
    """The last try to wake a recipient by one path."""

    path: str
    """`bell`: the processes of the agent that wait for mail; `turn`: its runner; any other was
    reported by whoever tried it for a session."""
    at: datetime
    reached: int | None
    """How many processes a bell reached; 0: nobody. None on a Cluster, where no server knows, and
    for other paths."""
    ok: bool | None = None
    """Whether a reported try seemed to go well."""
    tries: int = 1
    """How often it was reported to be tried by this path."""
    confirmed_at: datetime | None = None
    """When the mail was shown or taken after a reported try, which confirms it."""
    detail: str | None = None
    """What the report said of it."""


class Receipt(Model):
    """How far an envelope got, with times.

    `state` is queued, held, delayed, accepted, shown or taken; in the end handled, dead, or
    withdrawn: taken back. Mail to another herd is outgoing, then forwarded or refused; that it was
    taken there is not told, that it was handled or is dead is. `by` is the instance that holds or
    handled it. Of showings the first counts, of takings the last.
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
    forwarded_at: datetime | None
    """When the other herd took it in, of mail to one."""
    handled_at: datetime | None
    ended_at: datetime | None
    by: str | None
    attempts: int
    """Of handlers, and of mail that is outgoing, how often it could not be forwarded."""
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
