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
    ask_window: int = 10 * MINUTE
    ask_ceiling: int = 4 * HOUR
    grace: int = MINUTE // 2
    max_attempts: int = 2
    task_retention: int = 7 * DAY
    receipt_retention: int = HOUR
    dead_retention: int = 30 * DAY


class Seat(NamedTuple):
    """Who calls: an instance of one generation of an agent."""

    agent: str
    generation: int
    instance: str


class Hold(NamedTuple):
    """Mail in hand; `delivery` is which of its deliveries was taken, None where it was shown."""

    id: str
    delivery: int | None = None


class Outcome(NamedTuple):
    """What came of an ask: `pending`, `answered` by a reply, or the code of the error it ended in.

    `limit` is what a `no_reply` or `ceiling_active` ran into, `reason` why a `no_reply` got none.
    """

    how: str
    reply: str = ""
    reason: str = ""
    limit: str = ""


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
    acts: list[int] = field(default_factory=list)
    """When it showed that it works."""
    totals: dict[str, dict[str, int]] = field(default_factory=dict)
    """Instance -> what it last counted of its work, by source."""
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
    done: tuple[Any, ...] | None = None
    """What its owner said of how it ended."""
    settled: Settled | None = None
    forget_at: int | None = None

    @property
    def open(self) -> bool:
        """Whether it has not settled."""
        return self.state in OPEN


@dataclass
class Ask:
    """What an ask has beside the request that it is: its limits, and the calls on the line."""

    window: int
    ceiling_at: int
    probing: bool
    round: int = 1
    calls: dict[str, str] = field(default_factory=dict)
    """Waiting call -> its instance."""
    totals: dict[str, dict[str, int]] = field(default_factory=dict)
    """Instance -> what its probes last counted, by source."""
    grew: list[int] = field(default_factory=list)
    """When a probe saw growth."""
    rerouted_at: int = 0
    """Since when its target has it: from then on that has a whole window."""
    silence: str = ""
    limit: str = ""
    untold: bool = False
    """Whether the news of its end is held for whoever waits."""
    confirmed: set[str] = field(default_factory=set)
    """Calls that said they have the answer."""


@dataclass
class Request:
    """The expectation of a reply; `was` are its recipients before it was rerouted."""

    opened_at: int
    deadline: int | None
    state: str = "open"
    was: list[str] = field(default_factory=list)
    reply: str | None = None
    answer: str | None = None
    ask: Ask | None = None

    @property
    def answerable(self) -> bool:
        """Whether an answer is still of use: also after an ask that got none in time."""
        ran_out = self.state in ("no_reply", "ceiling_active")
        return self.state == "open" or (ran_out and self.reply is None)


@dataclass
class Mail:
    """An envelope and how far it got: queued, held, delayed, accepted, shown, taken; its end."""

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
