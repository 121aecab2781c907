"""When plans are due: cron in its zone, one moment, steady intervals; what is made up for."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from itertools import islice
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tocsin.broker.clock import to_ms
from tocsin.broker.errors import InvalidInput
from tocsin.broker.schedules import (
    BATCH,
    CATCH_UP,
    Missed,
    Recurrence,
    Schedule,
    due,
    read_schedule,
)

PARIS = ZoneInfo("Europe/Paris")
START = datetime(2026, 1, 1, tzinfo=UTC)
MINUTE = timedelta(minutes=1)


def cron(rule: str, zone: str = "Europe/Paris") -> Schedule:
    return Schedule(Recurrence.CRON, rule, zone, START)


def every(step: timedelta) -> Schedule:
    return Schedule(Recurrence.EVERY, str(step // timedelta(milliseconds=1)), "UTC", START)


def shown(schedule: Schedule, after: datetime, count: int) -> list[str]:
    return [f"{slot:%m-%d %H:%M %z}" for slot in islice(schedule.after(after), count)]


@pytest.mark.parametrize(
    ("rule", "after", "slots"),
    [
        (
            "30 2 * * *",
            datetime(2026, 3, 28, 12, tzinfo=PARIS),
            ["03-29 03:00 +0200", "03-30 02:30 +0200"],
        ),
        (
            "30 2 * * *",
            datetime(2026, 10, 24, 12, tzinfo=PARIS),
            ["10-25 02:30 +0200", "10-26 02:30 +0100"],
        ),
        (
            "0 2 * * 1-5",
            datetime(2026, 3, 27, 12, tzinfo=PARIS),
            ["03-30 02:00 +0200", "03-31 02:00 +0200"],
        ),
        (
            "0 * * * *",
            datetime(2026, 10, 25, 1, 30, tzinfo=PARIS),
            ["10-25 02:00 +0200", "10-25 02:00 +0100", "10-25 03:00 +0100"],
        ),
    ],
)
def test_clock_changes(rule, after, slots):
    """One run per local day, spring and autumn; what is hourly runs on."""
    assert shown(cron(rule), after, len(slots)) == slots


@settings(max_examples=40, deadline=None)
@given(
    st.integers(0, 2 * 365 * 24 * 60),
    st.sampled_from(["30 2 * * *", "0 3 * * *", "15 1,2 * * *", "*/20 * * * *", "59 1 * * 0"]),
    st.sampled_from(["Europe/Paris", "America/New_York", "Australia/Lord_Howe", "Asia/Kolkata"]),
)
def test_slots_are_the_same_from_wherever_one_looks(minutes, rule, zone):
    """Each slot is later than the one before, and none is seen from one side only."""
    after = START + minutes * MINUTE
    slots = [to_ms(slot) for slot in islice(cron(rule, zone).after(after), 6)]
    assert slots == sorted(set(slots)) and slots[0] > to_ms(after)
    second = islice(cron(rule, zone).after(datetime.fromtimestamp(slots[0] / 1000, UTC)), 5)
    assert [to_ms(slot) for slot in second] == slots[1:]


@settings(max_examples=40, deadline=None)
@given(
    st.integers(0, 2 * 365 * 24 * 60),
    st.sampled_from(["Europe/Paris", "America/New_York", "Australia/Lord_Howe", "Asia/Kolkata"]),
    st.integers(0, 23),
    st.integers(0, 59),
)
def test_a_daily_time_runs_once_on_each_local_day(minutes, zone, hour, minute):
    """Whatever the zone does to its clocks."""
    slots = islice(cron(f"{minute} {hour} * * *", zone).after(START + minutes * MINUTE), 3)
    days = [slot.date() for slot in slots]
    assert days == [days[0] + timedelta(days=n) for n in range(3)]


def test_intervals_do_not_drift():
    """Counted from the start, however late a look comes."""
    schedule = every(timedelta(minutes=90))
    late = START + timedelta(minutes=90 * 1000, seconds=89)
    assert next(schedule.after(late)) == START + timedelta(minutes=90 * 1001)
    assert next(schedule.after(START)) == START + timedelta(minutes=90)


def test_one_moment_comes_once():
    """After it there is none."""
    at = START + MINUTE
    schedule = Schedule(Recurrence.AT, str(to_ms(at)), "UTC", START)
    assert list(schedule.after(START)) == [at]
    assert list(schedule.after(at)) == []


@pytest.mark.parametrize(
    ("missed", "runs"), [(Missed.ONCE, [72]), (Missed.SKIP, []), (Missed.ALL, range(1, 73))]
)
def test_what_is_made_up_for(missed, runs):
    """Case 24: six hours of every five minutes are one run, none, or each."""
    now = START + timedelta(hours=6, minutes=2)
    found = due(every(5 * MINUTE), START, now, missed)
    assert found.slots == [START + 5 * n * MINUTE for n in runs]
    assert len(found.slots) + found.missed == 72
    assert (found.reached, found.next) == (START + 360 * MINUTE, START + 365 * MINUTE)


def test_a_slot_that_is_on_time_is_not_missed():
    """`skip` runs what is seen to within a minute."""
    now = START + 5 * MINUTE + timedelta(seconds=59)
    assert due(every(5 * MINUTE), START, now, Missed.SKIP).slots == [START + 5 * MINUTE]


@pytest.mark.parametrize("missed", Missed)
def test_long_absences_are_made_up_for_in_bounded_looks(missed):
    """Ten days of every minute: no look counts more than so many, the newest are made up for."""
    schedule, upto, runs, passed = every(MINUTE), START, [], 0
    now = START + timedelta(days=10)
    for _ in range(100):
        found = due(schedule, upto, now, missed)
        assert len(found.slots) + found.missed <= BATCH
        runs += found.slots
        passed += found.missed
        upto = found.reached
        if found.next is not None and found.next > now:
            break
    assert len(runs) + passed == 10 * 24 * 60
    last = 10 * 24 * 60
    wanted = {
        Missed.ONCE: [last],
        Missed.SKIP: [last],
        Missed.ALL: range(last - CATCH_UP + 1, last + 1),
    }
    assert runs == [START + n * MINUTE for n in wanted[missed]]


def test_nothing_is_due_before_the_first_slot():
    """A look then only tells when the next is to be."""
    found = due(cron("0 2 * * *", "UTC"), START, START, Missed.ONCE)
    assert (found.slots, found.missed, found.reached) == ([], 0, START)
    assert found.next == START + timedelta(hours=2)


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({}, "give one of cron, at and every; given: none"),
        ({"cron": "0 2 * * *", "every": timedelta(days=1)}, "given: cron and every"),
        ({"cron": ""}, "must have five fields"),
        ({"cron": "0 2 * *"}, "must have five fields: minute hour day month weekday"),
        ({"cron": "0 0 2 * * *"}, "must have five fields"),
        ({"cron": "60 2 * * *"}, "bad minute"),
        ({"cron": "0 0 30 2 *"}, "bad day-of-month"),
        ({"cron": "0 2 * * 1\n5"}, "must be one line"),
        ({"cron": 5}, "must be text"),
        ({"cron": "0 2 * * *", "tz": "Europe/Pariss"}, "did you mean Europe/Paris?"),
        ({"cron": "0 2 * * *", "tz": "../../etc/passwd"}, "is no time zone"),
        ({"cron": "0 2 * * *", "tz": 1}, "must be text"),
        ({"at": datetime(2030, 1, 1)}, "no time zone"),  # noqa: DTZ001
        ({"at": "2030-01-01"}, "must be a datetime"),
        ({"every": 60}, "must be a timedelta"),
        ({"every": timedelta(seconds=59)}, "from 1 minute to 366 days"),
        ({"every": timedelta(days=367)}, "between 0 and 366 days"),
    ],
)
def test_what_is_refused(given, says):
    """Each refusal names the field and says what would do."""
    options = {"cron": None, "at": None, "every": None, "tz": None} | given
    with pytest.raises(InvalidInput) as refusal:
        read_schedule("plan", **options)
    assert says in refusal.value.detail


def test_a_moment_may_have_its_zone_beside_it():
    """A naive one is of `tz`; an aware one keeps its own."""
    at = datetime(2030, 7, 1, 9)  # noqa: DTZ001
    naive = read_schedule("plan", cron=None, every=None, at=at, tz="Europe/Paris")
    aware = datetime(2030, 7, 1, 7, tzinfo=UTC)
    assert naive == (Recurrence.AT, str(to_ms(aware)), "Europe/Paris")
