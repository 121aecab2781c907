"""Plans: tasks that children are given at planned times. Operation -> `Call`; no I/O.

A plan is a record of its herd. When its slots are is worked out here (`schedules`), whoever asks;
that each is seen to once, `plan_fire` sees to: it takes what was worked out only from where the
record is, and moves that on in the same step.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import islice
from typing import Any
from zoneinfo import ZoneInfo

from tocsin.broker import keys
from tocsin.broker.caller import Caller, Fleet, digest, word
from tocsin.broker.clock import ScaledClock, from_ms, to_ms
from tocsin.broker.durations import MILLISECOND
from tocsin.broker.envelopes import Model, Task
from tocsin.broker.errors import InvalidInput
from tocsin.broker.records import pairs, read_task
from tocsin.broker.schedules import (
    LATE,
    Missed,
    Recurrence,
    Schedule,
    due,
    read_schedule,
)
from tocsin.broker.scripts import Call, call
from tocsin.broker.validation import (
    check_choice,
    check_duration,
    check_flag,
    check_id,
    check_name,
    check_text,
)

SHOWN = 5
"""Next runs that a plan tells."""

LISTED = 10_000
"""Plans of a partition that one look lists at most."""


class Plan(Model):
    """A plan, as it stood when it was read. `at` and `next_runs` are in its zone, others in UTC.

    `state` is active or paused; then ended, when it has no more slots, or removed. `reason` says
    why it gives no tasks; `problem`, what kept its last slot from giving one.
    """

    id: str
    agent: str
    description: str
    kind: Recurrence
    cron: str | None
    at: datetime | None
    every: timedelta | None
    tz: str
    missed: Missed
    queue: bool
    watch: bool
    deadline: timedelta | None
    """What its tasks have, from when they are given; None: the herd's `task_deadline`."""
    state: str
    reason: str | None
    problem: str | None
    created_at: datetime
    next_runs: tuple[datetime, ...]
    runs: int
    """Tasks it gave."""
    skipped: int
    """Slots that passed unused: missed, or its child was busy."""
    last_slot: datetime | None
    last_run: datetime | None
    last_task: str | None


def _schedule(record: dict[str, str]) -> Schedule:
    return Schedule(
        Recurrence(record["kind"]), record["rule"], record["zone"], from_ms(record["created_at"])
    )


def _time(value: str | None) -> datetime | None:
    return from_ms(value) if value else None


def _read(row: list[Any], now: str) -> Plan:
    plan_id, flat, gone = row
    record = pairs(flat)
    schedule, active = _schedule(record), record["state"] == "active" and not gone
    kind, rule = schedule.kind, schedule.rule
    return Plan(
        id=plan_id,
        agent=record["agent"],
        description=record["description"],
        kind=kind,
        cron=rule if kind is Recurrence.CRON else None,
        at=from_ms(rule).astimezone(ZoneInfo(schedule.zone)) if kind is Recurrence.AT else None,
        every=int(rule) * MILLISECOND if kind is Recurrence.EVERY else None,
        tz=record["zone"],
        missed=Missed(record["missed"]),
        queue=record["queue"] == "1",
        watch=record["watch"] == "1",
        deadline=int(record["lasts"]) * MILLISECOND if record["lasts"] else None,
        state="paused" if gone else record["state"],
        reason=gone or record["reason"] or None,
        problem=record["problem"] or None,
        created_at=schedule.start,
        next_runs=tuple(islice(schedule.after(from_ms(now)), SHOWN)) if active else (),
        runs=int(record["runs"]),
        skipped=int(record["skipped"]),
        last_slot=_time(record.get("last_slot")),
        last_run=_time(record.get("last_at")),
        last_task=record.get("last_task"),
    )


def _changed(answer: list[Any]) -> Plan:
    return _read(*answer[1:])


def add(
    caller: Caller,
    agent: object,
    description: object,
    *,
    cron: object,
    at: object,
    every: object,
    tz: object,
    missed: object,
    deadline: object,
    watch: object,
    queue: object,
    key: str | None,
) -> Call[Plan]:
    """Makes a plan."""
    op = "plan"
    name = check_name(op, "agent", agent)
    text = check_text(op, "description", description)
    kind, rule, zone = read_schedule(op, cron=cron, at=at, every=every, tz=tz)
    policy = check_choice(op, "missed", missed, Missed)
    lasts = "" if deadline is None else str(check_duration(op, "deadline", deadline))
    if lasts == "0":
        raise InvalidInput(op, "deadline must be more than 0")
    flags = check_flag(op, "queue", queue), check_flag(op, "watch", watch)
    content = digest(
        child=name, text=text, rule=(kind, rule, zone), missed=policy, lasts=lasts, flags=flags
    )
    return caller.call(
        "plan_add",
        op,
        _changed,
        plan=caller.new_id("plan", op, key),
        child=name,
        description=text,
        kind=kind,
        rule=rule,
        zone=zone,
        missed=policy,
        queue=flags[0],
        watch=flags[1],
        lasts=lasts,
        digest=content,
    )


def listing(caller: Caller, plan: object = None) -> Call[list[Plan]]:
    """The herd's plans, oldest first; or the one that is named."""
    op = "plans"
    return caller.call(
        "plan_list",
        op,
        lambda answer: [_read(row, answer[1]) for row in answer[2:]],
        plan="" if plan is None else check_id(op, "plan", plan, "plan"),
    )


def pause(caller: Caller, plan: object) -> Call[Plan]:
    """Pauses a plan."""
    op = "pause_plan"
    plan_id = check_id(op, "plan", plan, "plan")
    return caller.call("plan_pause", op, _changed, plan=plan_id)


def resume(caller: Caller, plan: object) -> Call[Plan]:
    """Has a paused plan go on."""
    op = "resume_plan"
    plan_id = check_id(op, "plan", plan, "plan")
    return caller.call("plan_resume", op, _changed, plan=plan_id)


def remove(caller: Caller, plan: object) -> Call[Plan]:
    """Removes a plan."""
    op = "remove_plan"
    plan_id = check_id(op, "plan", plan, "plan")
    return caller.call("plan_remove", op, _changed, plan=plan_id)


def run_now(caller: Caller, plan: object, key: str | None) -> Call[Task]:
    """Has a plan give its task now."""
    op = "run_plan"
    plan_id = check_id(op, "plan", plan, "plan")
    task = caller.new_id("task", op, key)
    return caller.call(
        "plan_run",
        op,
        lambda answer: read_task(task, answer[1], answer[2]),
        plan=plan_id,
        task=task,
    )


# -------------------------------------------------------------------- as a scheduler sees them


@dataclass(frozen=True)
class DuePlan:
    """A plan that is to be looked at now."""

    herd: str
    plan: str
    record: dict[str, str]


@dataclass(frozen=True)
class DuePlans:
    """The plans of a partition, and which of them are to be looked at now."""

    now: datetime
    next_in: float | None
    """Real seconds until the next that is not due yet; None if there is none."""
    planned: dict[tuple[str, str], datetime]
    """Herd and plan -> when it is to be looked at."""
    due: list[DuePlan]


def _member(name: str) -> tuple[str, str]:
    herd, _, plan = name.partition("/")
    return herd, plan


def look(fleet: Fleet, partition: str, limit: int) -> Call[DuePlans]:
    """The plans of a partition, and the records of so many that are due."""

    def read(answer: list[Any]) -> DuePlans:
        planned = {_member(name): from_ms(at) for name, at in pairs(answer[3]).items()}
        due = [DuePlan(herd, plan, pairs(flat)) for herd, plan, flat in answer[4:]]
        next_in = float(answer[2]) / 1000 if answer[2] else None
        return DuePlans(from_ms(answer[1]), next_in, planned, due)

    return call(
        "plans_due",
        read,
        operation="plans",
        key=partition,
        clock=fleet.clock_argument,
        herd="",
        listed=LISTED,
        limit=limit,
    )


def fire(fleet: Fleet, plan: DuePlan, now: datetime) -> Call[list[str]]:
    """Sees to the slots of a plan that have come by `now`; what came of it, and the tasks given."""
    record = plan.record
    factor = fleet.clock.factor if isinstance(fleet.clock, ScaledClock) else 1.0
    looked = from_ms(record["next"]) if record.get("next") else now
    found = due(
        _schedule(record),
        from_ms(record["upto"]),
        now,
        Missed(record["missed"]),
        LATE * factor,
        looked=looked,
    )
    return call(
        "plan_fire",
        lambda answer: [word(answer), *answer[1:]],
        operation="plans",
        key=fleet.partition(plan.herd),
        clock=fleet.clock_argument,
        herd=plan.herd,
        plan=plan.plan,
        upto=record["upto"],
        slots=json.dumps([str(to_ms(slot)) for slot in found.slots]),
        missed=found.missed,
        reached=to_ms(found.reached),
        next="" if found.next is None else to_ms(found.next),
    )


def take_chore(fleet: Fleet, chore: str, slot: datetime) -> Call[bool]:
    """Whether the caller is the one that does a chore of the fleet for this slot."""
    return call(
        "chore_take",
        lambda answer: word(answer) == "taken",
        operation="plans",
        key=keys.partition(fleet.name, 0),
        clock=fleet.clock_argument,
        herd="",
        chore=chore,
        slot=to_ms(slot),
    )
