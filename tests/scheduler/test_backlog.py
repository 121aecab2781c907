"""A herd that is far behind: caught up with in few round trips, and nobody waits for it."""

from __future__ import annotations

from datetime import timedelta

import pytest

from tocsin.broker import Broker, HerdSettings, ManualClock
from tocsin.broker.scripts import Call
from tocsin.scheduler import Scheduler

BEHIND = 350


@pytest.fixture
def clock():
    """Time that this test moves."""
    return ManualClock()


@pytest.fixture
def broker(url, fleet_name, clock):
    """A sync broker; many plain calls in a row are quickest so."""
    with Broker.connect(url, fleet=fleet_name, clock=clock) as broker:
        yield broker


def wait(broker: Broker, herd: str, count: int) -> None:
    """Opens so many waits in a new herd."""
    settings = HerdSettings(max_open_tasks=1_000, inbox_limit=10_000)
    parent = broker.open_herd(herd, settings=settings)
    asker = broker.join(herd, "asker", str(parent.register("asker").token))
    parent.register("asked")
    for _ in range(count):
        task = parent.delegate("asker", "ask")
        asker.message("asked", "?", task=task.id, expects_reply=True)


def test_a_backlog_takes_few_rounds_and_nobody_waits_for_it(broker, clock, monkeypatch):
    """The first round visits each herd once, the next only that with more due, several times."""
    wait(broker, "behind", BEHIND)
    wait(broker, "other", 1)
    rounds: list[list[str]] = []
    run_many = broker.link.run_many

    def listen(calls: list[Call[object]]) -> object:
        if calls[0].script.name == "herd_visit":
            rounds.append([call.args[call.script.args.index("herd")] for call in calls])
        return run_many(calls)

    monkeypatch.setattr(broker.link, "run_many", listen)
    clock.advance(timedelta(minutes=5))

    fired = Scheduler(broker).tick()

    assert fired["reminders"] == BEHIND + 1
    assert sorted(rounds[0]) == ["behind", "other"]
    assert len(rounds) == 2
    assert set(rounds[1]) == {"behind"} and len(rounds[1]) > 1
