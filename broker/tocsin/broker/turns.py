"""Turns of children that have a runner: claimed, ended, launched. Operation -> `Call`; no I/O.

Who runs a turn (`claim`, `look`, `end`) needs no seat: whoever holds the server's url is the
operator. It makes a token for the turn, which proves the agent while the turn runs. A scheduler
launches turns (`due`, `take_slots`, `launched`); what it does twice, or not to the end, is without
effect, because whoever claims a turn first has it.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any, Literal, NamedTuple

from tocsin.broker import keys
from tocsin.broker.caller import Caller, Fleet, word
from tocsin.broker.clock import from_ms, to_ms
from tocsin.broker.envelopes import Model
from tocsin.broker.errors import InvalidInput
from tocsin.broker.herds import HerdRecord, read_record
from tocsin.broker.ids import PARENT, make_id
from tocsin.broker.records import pairs
from tocsin.broker.runners import Runner, check_runner, from_json
from tocsin.broker.scripts import Call, call
from tocsin.broker.validation import check_count, check_name, printable
from tocsin.broker.versions import MINE

TAIL = 4_000
"""Characters of a turn's output that are kept of one that failed."""

Reason = Literal["mail", "nudge", "retry"]
"""Why there is a turn: mail that wakes, a task that was left open, an earlier one that failed."""


class How(StrEnum):
    """How a turn ended, as whoever ran it saw it."""

    EXITED = "exited"
    """By itself, with an exit code."""
    CRASHED = "crashed"
    """By a signal, or it could not be started."""
    TIMEOUT = "timeout"
    """It took longer than its runner allows, and was ended."""
    PROVIDER_ERROR = "provider_error"
    """Its model's provider failed."""
    LIMITED = "limited"
    """A usage limit was reached, which is no failure."""
    STOPPED = "stopped"
    """It was asked to (`wait_stop`), or its worker ends."""


class Decision(StrEnum):
    """What the broker decided when a turn had ended."""

    IDLE = "idle"
    """Nothing is left to do."""
    WAITS = "waits"
    """Its task waits for an answer, which brings the next turn."""
    CONTINUES = "continues"
    """Mail that wakes has come meanwhile: the next turn is due."""
    NUDGED = "nudged"
    """Its task is open and nothing moves it on: another turn is due."""
    LEFT_OPEN = "left_open"
    """So it is, after as many of those as may be: the parent is told, quietly."""
    RETRIED = "retried"
    """It failed, and is tried again after a pause."""
    FAILED = "failed"
    """It failed once too often, and its task with it."""
    PARKED = "parked"
    """A usage limit was reached: the next turn is due when it ends."""
    STOPPED = "stopped"
    """What it held is given back; the next turn is due if it wakes."""
    CLOSED = "closed"
    """Its agent was closed."""
    OVER = "over"
    """It had ended before: it was lost, or its agent is gone. Nothing was changed."""


class Ending(Model):
    """How a turn ended, to be reported once by whoever ran it."""

    kind: How
    exit_code: int | None = None
    signal: int | None = None
    error: str | None = None
    """What is known of why it failed, for people; goes into the task's error."""
    tail: str = ""
    """The end of its output."""
    session: str | None = None
    """The session that the next turn goes on with."""
    limited_until: datetime | None = None
    """When a usage limit ends, where that was said."""
    account_limited: bool = True
    """Whether the limit is that of the runner's account, so that all its turns pause."""

    @property
    def outcome(self) -> str:
        """`clean`, `failed`, `limited` or `stopped`."""
        if self.kind in (How.LIMITED, How.STOPPED):
            return self.kind.value
        return "clean" if self.kind is How.EXITED and self.exit_code == 0 else "failed"

    @property
    def why(self) -> str:
        """What happened, in words."""
        words = {
            How.EXITED: f"it exited with code {self.exit_code}",
            How.CRASHED: "it could not be run"
            if self.signal is None
            else f"it was killed by signal {self.signal}",
            How.TIMEOUT: "it ran into its time-out",
            How.PROVIDER_ERROR: "its provider failed",
            How.LIMITED: "its usage limit is reached",
            How.STOPPED: "it was stopped",
        }[self.kind]
        return printable(f"{words}: {self.error}"[:1_000]) if self.error else words


class Ended(NamedTuple):
    """What was decided, and when the next turn is due, where it is put off."""

    decision: Decision
    next_at: datetime | None


@dataclass(frozen=True)
class Claimed:
    """What whoever claimed a turn learns."""

    generation: int
    herd: HerdRecord
    runner: Runner
    reason: Reason
    attempt: int
    session: str | None


def check_turn(operation: str, herd: object, agent: object, number: object) -> tuple[str, str, int]:
    """The names and number of a turn."""
    child = check_name(operation, "agent", agent)
    if child == PARENT:
        raise InvalidInput(operation, "a parent has no runner, and so no turns")
    count = check_count(operation, "number", number, 2**53)
    return check_name(operation, "herd", herd), child, count


def claim(caller: Caller, number: int) -> Call[Claimed | None]:
    """Begins a turn by this caller's instance and token; None if it is somebody else's, or over."""

    def read(answer: list[Any]) -> Claimed | None:
        if word(answer) == "over":
            return None
        facts = pairs(answer[3])
        return Claimed(
            generation=int(answer[1]),
            herd=read_record(caller.herd, answer[2]),
            runner=from_json(facts["runner"]),
            reason=facts["reason"],
            attempt=int(facts["attempt"]),
            session=facts["session"] or None,
        )

    return caller.call("turn_claim", "claim_turn", read, turn=number, version=str(MINE))


def look(caller: Caller, number: int) -> Call[str | None]:
    """Why the turn must stop; None while it may go on."""

    def read(answer: list[Any]) -> str | None:
        if word(answer) == "running":
            return None
        return str(answer[1]) if word(answer) == "stop" else "it is over: it was lost, or ended"

    return caller.call("turn_look", "wait_stop", read, turn=number)


def end(caller: Caller, number: int, ending: Ending) -> Call[Ended]:
    """Reports how the turn ended."""

    def read(answer: list[Any]) -> Ended:
        if word(answer) == "over":
            return Ended(Decision.OVER, None)
        return Ended(Decision(answer[1]), from_ms(answer[2]) if answer[2] else None)

    return caller.call(
        "turn_end",
        "end",
        read,
        turn=number,
        kind=ending.outcome,
        why=ending.why,
        tail=printable(ending.tail[-TAIL:]),
        session=printable(ending.session or "")[:1_000],
        till="" if ending.limited_until is None else to_ms(ending.limited_until),
    )


def employ(caller: Caller, agent: object, runner: object) -> Call[None]:
    """Gives a child a runner, another one, or none."""
    return caller.call(
        "agent_employ",
        "set_runner",
        lambda _: None,
        call=make_id("call"),
        child=check_name("set_runner", "agent", agent),
        runner=check_runner(runner),
    )


# ------------------------------------------------------------------ launching


@dataclass(frozen=True)
class DueTurn:
    """A turn that is to be launched."""

    herd: str
    agent: str
    number: int
    lane: str
    reason: Reason
    place: float
    """How many turns of its herd are to be launched before it, as far as its partition knows."""
    lasts: int
    """Milliseconds after which it is surely over: so long it may keep its slot."""
    task: str

    @property
    def queue(self) -> str:
        """The queue that it is put into."""
        return self.lane.split("/")[0]

    @property
    def slot(self) -> str:
        """What it is called where slots are counted."""
        return f"{self.lane}/{self.herd}/{self.agent}/{self.number}"


@dataclass(frozen=True)
class DueTurns:
    """What a partition has: turns to be launched, and slots to be given back."""

    turns: list[DueTurn]
    freed: list[str]


def due(fleet: Fleet, partition: str, limit: int) -> Call[DueTurns]:
    """The turns of a partition that are to be launched, some of each lane."""

    def read(answer: list[Any]) -> DueTurns:
        found = [
            DueTurn(herd, agent, int(number), lane, reason, float(place), int(lasts), task)
            for herd, agent, number, lane, reason, place, lasts, task in answer[2:]
        ]
        return DueTurns(found, answer[1])

    return call(
        "turns_due",
        read,
        operation="launch",
        key=partition,
        clock=fleet.clock_argument,
        herd="",
        limit=limit,
    )


class Counts(NamedTuple):
    """Turns of a partition: to be launched, held for their herd, launched or running."""

    due: int
    held: int
    turning: int


def count(fleet: Fleet, partition: str) -> Call[Counts]:
    """How many turns a partition has."""
    return call(
        "turns_count",
        lambda answer: Counts(*(int(each) for each in answer[1:])),
        operation="turns",
        key=partition,
        clock=fleet.clock_argument,
        herd="",
    )


@dataclass(frozen=True)
class Slots:
    """Of each turn that wanted a slot, what is full (empty: it has one), and in how many seconds an
    account goes on that is paused."""

    full: list[str]
    next_in: float | None


def take_slots(fleet: Fleet, freed: Sequence[str], wanted: Sequence[DueTurn]) -> Call[Slots]:
    """Gives slots back, and takes one for each turn, in this order, as far as there are."""

    def read(answer: list[Any]) -> Slots:
        full = ["" if each == "1" else each for each in answer[1:-1]]
        return Slots(full, float(answer[-1]) / 1000 if answer[-1] else None)

    return call(
        "slots_take",
        read,
        operation="launch",
        key=keys.fleet(fleet.name),
        clock=fleet.clock_argument,
        freed=json.dumps(list(freed)),
        wanted=json.dumps([(each.slot, each.lasts) for each in wanted]),
    )


def freed(fleet: Fleet, partition: str, slots: Sequence[str]) -> Call[str]:
    """Notes that these slots were given back."""
    return call(
        "turns_freed",
        word,
        operation="launch",
        key=partition,
        clock=fleet.clock_argument,
        herd="",
        slots=json.dumps(list(slots)),
    )


def launched(fleet: Fleet, turn: DueTurn) -> Call[str]:
    """Notes that a turn stands in its queue."""
    return call(
        "turn_launched",
        word,
        operation="launch",
        key=fleet.partition(turn.herd),
        clock=fleet.clock_argument,
        herd=turn.herd,
        child=turn.agent,
        turn=turn.number,
        lane=turn.lane,
    )


class SlotCount(Model):
    """Turns at once of the fleet, of a queue or of an account, and how many may be."""

    scope: str
    """`fleet`, `queue/<name>` or `account/<name>`."""
    taken: int
    limit: int
    paused_ms: int
    """So long no turn of an account is launched, because its usage limit is reached."""


def read_slots(fleet: Fleet) -> Call[list[SlotCount]]:
    """What is taken of all limits."""

    def read(answer: list[Any]) -> list[SlotCount]:
        rows = [
            SlotCount(scope=scope, taken=int(taken), limit=int(limit), paused_ms=int(paused))
            for scope, taken, limit, paused in answer[1:]
        ]
        return sorted(rows, key=lambda row: (row.scope != "fleet", row.scope))

    return call(
        "slots_read",
        read,
        operation="slots",
        key=keys.fleet(fleet.name),
        clock=fleet.clock_argument,
    )


def limit_slots(fleet: Fleet, scope: object, limit: object) -> Call[None]:
    """How many turns at once `fleet`, `queue/x` or `account/x` may have; None: as by default."""
    return _set_slots(
        fleet,
        _check_scope("limit_turns", scope),
        "default" if limit is None else str(check_count("limit_turns", "limit", limit, 100_000)),
        "",
    )


def pause_account(fleet: Fleet, account: str, until: datetime | None) -> Call[None]:
    """No turn of this account is launched until then; None: they are again."""
    return _set_slots(fleet, f"account/{account}", "", str(to_ms(until)) if until else "0")


def _set_slots(fleet: Fleet, scope: str, limit: str, paused: str) -> Call[None]:
    return call(
        "slots_set",
        lambda _: None,
        operation="limit_turns",
        key=keys.fleet(fleet.name),
        scope=scope,
        limit=limit,
        paused=paused,
    )


def _check_scope(operation: str, scope: object) -> str:
    kind, _, name = scope.partition("/") if isinstance(scope, str) else ("", "", "")
    if scope == "fleet":
        return "fleet"
    if kind not in ("queue", "account"):
        raise InvalidInput(operation, "scope must be fleet, queue/<name> or account/<name>")
    return f"{kind}/{check_name(operation, kind, name)}"
