"""When a plan is due: cron expressions in their zones, single moments, steady intervals. Pure.

A slot is a moment at which a plan is to run; it is the same whoever works it out, and whenever. The
arithmetic of cron is cronsim's, which does as Debian's cron does where clocks are changed: what has
a set time of day runs once on each local day, also if that time is left out (then right after) or
comes twice (then the first time); what runs every hour or more often runs on by real time.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from difflib import get_close_matches
from enum import StrEnum
from zoneinfo import ZoneInfo, available_timezones

from cronsim import CronSim, CronSimError

from tocsin.broker.clock import from_ms, to_ms
from tocsin.broker.durations import MAX_DURATION, MILLISECOND
from tocsin.broker.errors import InvalidInput
from tocsin.broker.masking import shown
from tocsin.broker.validation import check_duration, check_line

SHORTEST = timedelta(minutes=1)
"""No plan runs more often, as with cron."""

CATCH_UP = 100
"""Slots that are made up for at most, however many were missed: the newest."""

BATCH = 2_000
"""Slots that one look at a plan counts at most; the next look goes on behind them."""

LATE = timedelta(minutes=1)
"""A slot that nobody saw to for so long was missed."""


LAST_YEAR = 9_000
"""Of a moment: later ones have no local time in some zones."""


class Recurrence(StrEnum):
    """What a plan goes by."""

    CRON = "cron"
    AT = "at"
    EVERY = "every"


class Missed(StrEnum):
    """What becomes of slots that passed while no scheduler ran."""

    ONCE = "once"
    """One run makes up for all of them."""
    SKIP = "skip"
    """None; the plan goes on with the next slot."""
    ALL = "all"
    """A run for each, of the newest 100."""


@dataclass(frozen=True)
class Schedule:
    """What a plan goes by, with what its record has of it."""

    kind: Recurrence
    rule: str
    """The cron expression, the moment in ms, or the interval in ms."""
    zone: str
    """In which days and hours are counted."""
    start: datetime
    """Where intervals are counted from."""

    def after(self, moment: datetime) -> Iterator[datetime]:
        """The slots after a moment, in the plan's zone, one by one."""
        zone = ZoneInfo(self.zone)
        if self.kind is Recurrence.CRON:
            for slot in CronSim(self.rule, moment.astimezone(zone)):
                if slot > moment:  # not the first of two equal hours, seen from the second
                    yield slot
        elif self.kind is Recurrence.AT:
            at = from_ms(self.rule)
            if at > moment:
                yield at.astimezone(zone)
        else:
            step = int(self.rule) * MILLISECOND
            slot = self.start + step * (max(timedelta(0), moment - self.start) // step + 1)
            while True:
                yield slot.astimezone(zone)
                slot += step


@dataclass(frozen=True)
class Firing:
    """What one look at a plan came to."""

    slots: list[datetime]
    """Those to run now, oldest first."""
    missed: int
    """How many more are passed over."""
    reached: datetime
    """Up to when all slots are seen to by that."""
    next: datetime | None
    """When to look again; None if there are no more slots."""


def due(
    schedule: Schedule,
    upto: datetime,
    now: datetime,
    missed: Missed,
    late: timedelta = LATE,
    looked: datetime | None = None,
) -> Firing:
    """What is to be done at `now` with the slots of a plan whose slots to `upto` were seen to.

    A slot is late by when the plan was to be looked at (`looked`), if that was later: one that was
    put off is not missed.
    """
    newest: deque[datetime] = deque(maxlen=CATCH_UP)
    before, count, following = upto, 0, None
    for slot in schedule.after(upto):
        if slot > now:
            following = slot
            break
        if len(newest) == CATCH_UP:
            before = newest[0]
        newest.append(slot)
        count += 1
        if count == BATCH:
            return Firing([], count - len(newest), before, now)
    if missed is Missed.ALL:
        slots = list(newest)
    else:
        slots = [
            slot
            for slot in list(newest)[-1:]
            if missed is Missed.ONCE or now - max(slot, looked or slot) <= late
        ]
    return Firing(slots, count - len(slots), newest[-1] if newest else upto, following)


def read_zone(operation: str, value: object) -> ZoneInfo:
    """The time zone of this name; None is UTC."""
    name = check_line(operation, "tz", "UTC" if value is None else value)
    known = available_timezones()
    if name not in known:
        near = get_close_matches(name, known, n=1)
        hint = f"; did you mean {near[0]}?" if near else ""
        raise InvalidInput(
            operation, f"tz {shown(name)} is no time zone such as Europe/Paris or UTC{hint}"
        )
    return ZoneInfo(name)


def read_schedule(
    operation: str, *, cron: object, at: object, every: object, tz: object
) -> tuple[Recurrence, str, str]:
    """Kind, rule and zone of what was given: exactly one of `cron`, `at`, `every`."""
    given = {"cron": cron, "at": at, "every": every}
    named = [name for name, value in given.items() if value is not None]
    if len(named) != 1:
        said = " and ".join(named) or "none"
        raise InvalidInput(operation, f"give one of cron, at and every; given: {said}")
    zone = read_zone(operation, tz)
    if cron is not None:
        return Recurrence.CRON, _read_cron(operation, cron), zone.key
    if at is not None:
        return Recurrence.AT, str(to_ms(_read_moment(operation, at, zone, tz))), zone.key
    step = check_duration(operation, "every", every)
    if step * MILLISECOND < SHORTEST:
        raise InvalidInput(operation, f"every must be from 1 minute to {MAX_DURATION.days} days")
    return Recurrence.EVERY, str(step), zone.key


def _read_cron(operation: str, value: object) -> str:
    text = " ".join(check_line(operation, "cron", value).split())
    rule = (
        "minute hour day month weekday, such as '0 2 * * 1-5' (at 02:00 on working days) or "
        "'*/15 * * * *' (every quarter of an hour)"
    )
    if len(text.split(" ")) != 5:
        raise InvalidInput(operation, f"cron {shown(text)} must have five fields: {rule}")
    try:
        found = next(CronSim(text, datetime(2000, 1, 1, tzinfo=UTC)), None)
    except CronSimError as wrong:
        why = str(wrong).lower()
        raise InvalidInput(
            operation, f"cron {shown(text)} cannot be read ({why}): {rule}"
        ) from None
    if found is None:
        raise InvalidInput(operation, f"cron {shown(text)} names a day that never comes")
    return text


def _read_moment(operation: str, value: object, zone: ZoneInfo, tz: object) -> datetime:
    if not isinstance(value, datetime):
        raise InvalidInput(operation, f"at must be a datetime, not {shown(value)}")
    if value.utcoffset() is None:
        if tz is None:
            raise InvalidInput(operation, "at has no time zone; give an aware datetime, or tz")
        value = value.replace(tzinfo=zone)
    if value.year > LAST_YEAR:
        raise InvalidInput(operation, f"at must be in the year {LAST_YEAR} or before")
    return value
