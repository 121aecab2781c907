"""The records of the model: agents, tasks, mail and the requests that some of it is; refusals."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NamedTuple

OPEN = ("created", "running", "waiting")
UNREAD = ("accepted", "shown")
MINUTE, HOUR, DAY = 60_000, 3_600_000, 86_400_000


def bare(ref: str) -> str:
    """An id without its prefix, of which the broker makes the ids of its own mail."""
    return ref.split("_", 1)[1]


class Refused(Exception):
    """The broker must refuse this, naming one of `codes`."""

    def __init__(self, *codes: str) -> None:
        super().__init__(*codes)
        self.codes = frozenset(codes)


def refuse(**codes: bool) -> None:
    """Refuses if any of the conditions holds."""
    found = [code for code, holds in codes.items() if holds]
    if found:
        raise Refused(*found)


@dataclass
class Settings:
    """The policy of the herd, in ms where a time is meant."""

    threshold: float = 5.0
    reply_timeout: int = 20 * MINUTE
    task_deadline: int = DAY
    away_after: int = 10 * MINUTE
    max_attempts: int = 2
    task_retention: int = 7 * DAY
    receipt_retention: int = HOUR


class Seat(NamedTuple):
    """Who calls: an instance of one generation of an agent."""

    agent: str
    generation: int
    instance: str


class Hold(NamedTuple):
    """Mail in hand; `delivery` is which of its deliveries was taken, None where it was shown."""

    id: str
    delivery: int | None = None


class Settled(NamedTuple):
    """How a task ended; `error` is None where the wording is the broker's own."""

    task: str
    agent: str
    state: str
    summary: str
    error: str | None
    at: int


@dataclass
class Agent:
    """A generation of an agent, and the instances that serve it."""

    name: str
    generation: int
    open: bool = True
    instances: set[str] = field(default_factory=set)
    held_up_since: int | None = None
    away_told: bool = False
    absences: int = 0
    forget_at: int | None = None

    @property
    def live(self) -> bool:
        """Whether any process serves it."""
        return bool(self.instances)


@dataclass
class Task:
    """A task; `slot_since` is None while it is queued and once it has settled."""

    id: str
    agent: str
    generation: int
    content: tuple[Any, ...]
    description: str
    created_at: int
    deadline: int
    state: str = "created"
    episode: int = 0
    reminded: bool = False
    watch: str | set[str] | None = None
    slot_since: int | None = None
    settled: Settled | None = None
    forget_at: int | None = None

    @property
    def open(self) -> bool:
        """Whether it has not settled."""
        return self.state in OPEN


@dataclass
class Request:
    """The expectation of a reply; `was` are its recipients before it was rerouted."""

    opened_at: int
    deadline: int | None
    state: str = "open"
    was: list[str] = field(default_factory=list)
    reply: str | None = None
    answer: str | None = None


@dataclass
class Mail:
    """An envelope and how far it got: queued, delayed, accepted, shown, taken; then its end."""

    id: str
    kind: str
    sender: str
    recipient: str
    wakes: bool
    steer: bool = False
    task: str | None = None
    body: str | None = None
    reply_to: str | None = None
    late: bool = False
    episode: int | None = None
    content: tuple[Any, ...] = ()
    sender_generation: int = 0
    state: str = "accepted"
    by: str | None = None
    delivery: int = 0
    attempts: int = 0
    handed_over: bool = False
    meant_for: int | None = None
    """The generation of its recipient."""
    delayed_until: int | None = None
    forget_at: int | None = None
    request: Request | None = None
