"""Whose time counts: the server's, whatever the clocks of hosts and people say."""

from __future__ import annotations

import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta, timezone

import pytest

from tests.acceptance.processes import Program
from tests.fleets import reminders
from tests.requirements import proves
from tests.topologies import operator
from tests.waiting import wait_until
from tocsin.broker import Broker, HerdSettings, ScaledClock, errors
from tocsin.scheduler import Scheduler

FACTOR = 60
"""One minute, the least threshold, is a second."""

SETTINGS = HerdSettings(stale_wait_threshold=1, reply_timeout=timedelta(0))


@pytest.fixture
def fast(url: str, fleet_name: str) -> Iterator[Broker]:
    """A broker of a fleet that lives fast."""
    with Broker.connect(url, fleet=fleet_name, clock=ScaledClock(FACTOR)) as broker:
        yield broker


@proves("P1")
@pytest.mark.everywhere
def test_hosts_with_wrong_clocks(fast, url, fleet_name):
    """Case 22: the agents' host ahead, the scheduler's behind: reminded at the age set."""
    parent = fast.open_herd("h", settings=SETTINGS)
    scout = parent.register("scout").token
    parent.register("planner")
    with (
        Program("asker", url, fleet_name, "h", "scout", scout, "600") as asker,
        Program("scheduler", url, fleet_name, "-600") as scheduler,
    ):
        asker.says("joined")
        scheduler.says("runs")
        task = parent.delegate("scout", "x")
        asker.says("asked")

        (reminder,) = wait_until(lambda: reminders(parent.inbox()), "the reminder")
        assert scheduler.end() == 0

    assert parent.task(task.id).state == "waiting"
    _is_of_its_age(parent, reminder)


def _is_of_its_age(parent, reminder) -> None:
    """It was sent when the wait was a minute old, not before, and not much later."""
    (sent,) = [line for line in parent.journal(limit=1000) if line.event == "reminded"]
    age = sent.at.timestamp() * 1000 - reminder.data["waiting_since"]
    assert 60_000 <= age < 60_000 + 5_000 * FACTOR


@proves("P1")
@pytest.mark.everywhere
@pytest.mark.parametrize("when", ["before it waits", "while it waits"])
def test_a_server_whose_clock_steps_back(fast, url, fleet_name, when):
    """Case 22: an hour back: no burst, no silent hour, no failed send.

    A step back looks the same as a last time that lies an hour ahead.
    """
    partition = fast.fleet().partition("h")
    with operator(url) as client:
        client.hset(partition, "last", round(time.time() * 1000) + 3_600_000)
    parent = fast.open_herd("h", settings=SETTINGS)
    scout = fast.join("h", "scout", parent.register("scout").token)
    parent.register("planner")
    task = parent.delegate("scout", "x", deadline=timedelta(days=300))
    scheduler = Scheduler(fast)
    if when == "while it waits":
        scout.message("planner", "?", task=task.id, expects_reply=True)
        with operator(url) as client:
            client.hincrby(partition, "offset", -3_600_000)
    else:
        scout.message("planner", "?", task=task.id, expects_reply=True)

    assert scheduler.tick() == {}, "no burst"
    scout.message("planner", "goes through")
    wait_until(lambda: scheduler.tick().get("reminders"), "the reminder, a second later")

    (reminder,) = reminders(parent.receive())
    _is_of_its_age(parent, reminder)
    assert scheduler.tick().get("reminders", 0) == 0


@pytest.fixture
def tokyo(monkeypatch) -> Iterator[None]:
    """A process whose zone is not UTC."""
    with monkeypatch.context() as patch:
        patch.setenv("TZ", "Asia/Tokyo")
        time.tzset()
        yield
    time.tzset()


async def test_a_deadline_given_naive(tokyo, herd):
    """Case 23: refused, whatever it might have meant here."""
    for naive in (
        datetime.now() + timedelta(hours=1),  # noqa: DTZ005
        datetime(2030, 1, 1),  # noqa: DTZ001
    ):
        with pytest.raises(errors.InvalidInput) as refusal:
            await herd.parent.delegate("scout", "x", deadline=naive)
        assert "time zone" in refusal.value.detail
    assert await herd.parent.tasks() == []


@pytest.mark.parametrize("given", [1767229200000, 1767229200.0, "2026-01-01T10:00:00+09:00"])
async def test_a_deadline_given_as_a_number_or_text(tokyo, herd, given):
    """Case 23: epoch milliseconds, seconds or text are refused, never taken for something else."""
    with pytest.raises(errors.InvalidInput):
        await herd.parent.delegate("scout", "x", deadline=given)


@pytest.mark.parametrize(
    "zone", [timezone(timedelta(hours=9)), UTC, timezone(-timedelta(hours=3, minutes=30)), None]
)
async def test_a_deadline_given_in_a_zone(tokyo, herd, zone):
    """Case 23: exact in any zone, this process's own too; it never fires at once."""
    deadline = (herd.clock.now() + timedelta(hours=1)).astimezone(zone)

    task = await herd.parent.delegate("scout", "x", deadline=deadline)

    assert task.deadline == deadline
    assert await herd.later(minutes=59, seconds=59, milliseconds=999) == {}
    assert await herd.later(milliseconds=1) == {"task_deadlines": 1}


async def test_a_duration_does_not_know_zones(tokyo, herd):
    """Case 23: a deadline from now is from now, in Tokyo too."""
    task = await herd.parent.delegate("scout", "x", deadline=timedelta(minutes=1))

    assert task.deadline == herd.clock.now() + timedelta(minutes=1)
    assert await herd.later(seconds=59) == {}
