"""A herd with any amount of work delays no other by more than a bounded number of scripts."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from datetime import timedelta
from itertools import islice
from typing import Any

import pytest
import redis

from tests.fleets import token_of
from tests.requirements import proves
from tocsin.broker import Broker, HerdSettings, ManualClock, Parent, keys, timers
from tocsin.broker.scripts import Call
from tocsin.scheduler import Scheduler
from tocsin.scheduler._async.timers import CATCH_UP, ROUND, VISIT

FIVE_MINUTES = timedelta(minutes=5)
"""After which a wait is stale."""

FLOOD = 30_000

SETTINGS = HerdSettings(journal_limit=100, inbox_limit=1_000_000, pair_rate=1_000_000)


@pytest.fixture
def clock() -> ManualClock:
    """Time that this test moves."""
    return ManualClock()


@pytest.fixture
def broker(url: str, fleet_name: str, clock: ManualClock) -> Iterator[Broker]:
    """A sync broker; many plain calls in a row are quickest so."""
    with Broker.connect(url, fleet=fleet_name, clock=clock) as broker:
        yield broker


def names(partition: int) -> Iterator[str]:
    """Names of herds that belong into a partition."""
    every = (f"herd-{number}" for number in range(10_000))
    return (name for name in every if keys.partition_of(name, 16) == partition)


def wait(broker: Broker, herd: str) -> Parent:
    """A herd with one wait that has just begun; its parent."""
    parent = broker.open_herd(herd, settings=SETTINGS)
    asker = broker.join(herd, "asker", token_of(parent.register("asker")))
    parent.register("asked")
    task = parent.delegate("asker", "ask")
    asker.message("asked", "?", task=task.id, expects_reply=True)
    return parent


def multiply(broker: Broker, url: str, herd: str, count: int) -> None:
    """Gives a herd with a wait so many that began with it, as that one is kept.

    Made one by one they would take longer than all that is looked at here.
    """
    partition = broker.fleet().partition(herd)
    waiting, episodes = (keys.below(partition, kind, herd=herd) for kind in ("waiting", "episodes"))
    with redis.Redis.from_url(url, decode_responses=True) as client:
        ((_, since),) = client.zrange(waiting, 0, -1, withscores=True)
        others = [f"task_{herd}{number:06}" for number in range(count - 1)]
        client.zadd(waiting, dict.fromkeys(others, since))
        client.hset(episodes, mapping=dict.fromkeys(others, "1"))


def visits(broker: Broker, before: Callable[[int], None] = lambda _: None) -> list[str]:
    """The herds that the broker's scheduler visits from now on, in order; `before` is told, ahead
    of each round of visits, how many rounds there were."""
    order: list[str] = []
    rounds = 0
    run_many = broker.link.run_many

    def listen(calls: Sequence[Call[Any]]) -> Any:
        nonlocal rounds
        if calls[0].script.name == "herd_visit":
            before(rounds)
            rounds += 1
            order.extend(call.args[call.script.args.index("herd")] for call in calls)
        return run_many(calls)

    broker.link.run_many = listen  # type: ignore[method-assign]
    return order


@proves("P14")
@pytest.mark.parametrize("partition", [3, 4], ids=["same partition", "another partition"])
def test_a_reminder_that_falls_due_while_another_herd_has_a_flood_of_them(
    broker, url, clock, partition
):
    """It waits for the rest of one round and at most one visit more, whatever is due elsewhere."""
    busy = next(names(3))
    wait(broker, busy)
    multiply(broker, url, busy, FLOOD)
    clock.advance(timedelta(seconds=30))
    other = next(name for name in names(partition) if name != busy)
    parent = wait(broker, other)
    clock.advance(FIVE_MINUTES - timedelta(seconds=30))
    behind: list[int] = []

    def fall_due(rounds: int) -> None:
        if rounds == 5:  # in the midst of the flood, when the round has been decided
            clock.advance(timedelta(seconds=30))
            behind.append(len(order))

    order = visits(broker, fall_due)
    fired = Scheduler(broker).tick()

    assert fired["reminders"] == FLOOD + 1
    assert order.count(busy) >= FLOOD / VISIT
    assert order.index(other) - behind[0] <= CATCH_UP + 1
    assert [mail.kind for mail in parent.receive()] == ["reminder"]


@proves("P14")
def test_a_partition_full_of_busy_herds_delays_no_other_partition(broker, url, clock, monkeypatch):
    """Partitions take turns within a round: one visit to each before the second to any."""
    monkeypatch.setattr(random, "shuffle", lambda _: None)  # the crowd's partition comes first
    crowd = list(islice(names(3), 40))
    for name in crowd:
        wait(broker, name)
        multiply(broker, url, name, 3 * VISIT)
    clock.advance(timedelta(seconds=1))
    other = next(names(4))
    wait(broker, other)
    clock.advance(FIVE_MINUTES)

    order = visits(broker)
    fired = Scheduler(broker).tick()

    assert fired["reminders"] == len(crowd) * 3 * VISIT + 1
    assert order.index(other) <= 1
    assert max(order.index(name) for name in crowd) <= len(crowd) + 1, "each once before any twice"


def test_a_round_is_bounded_however_many_herds_are_due(broker, clock):
    """So that what falls due meanwhile is seen soon."""
    for number in range(2 * ROUND):
        broker.open_herd(f"h-{number}")  # whose journal is looked at when its time has come
    sizes: list[int] = []
    run_many = broker.link.run_many

    def listen(calls: Sequence[Call[Any]]) -> Any:
        if calls[0].script.name == "herd_visit":
            sizes.append(len(calls))
        return run_many(calls)

    broker.link.run_many = listen
    clock.advance(timedelta(days=365))
    Scheduler(broker).tick()
    assert sum(sizes) >= 2 * ROUND
    assert max(sizes) <= ROUND


@proves("P14")
def test_a_flood_of_mail_in_one_herd_costs_another_no_command(broker, url, clock):
    """A visit to a herd runs the same commands whether 3,000 unread lie beside it or none."""

    def costs(herd: str) -> int:
        parent = wait(broker, herd)
        clock.advance(FIVE_MINUTES)
        fleet = broker.fleet()
        with redis.Redis.from_url(url) as client:
            ran: list[int] = []
            for _ in range(2):
                stats: Any = client.info("commandstats")
                ran.append(sum(each["calls"] for each in stats.values()))
                if len(ran) == 1:
                    assert broker.run(timers.visit(fleet, herd, VISIT)) == {"reminders": 1}
        assert len(parent.receive()) == 1
        return ran[1] - ran[0]

    alone, beside, third = islice(names(3), 3)
    before = costs(alone)
    flooded = broker.open_herd(beside, settings=SETTINGS)
    flooded.register("scout")
    for number in range(3_000):
        flooded.message("scout", str(number))
    assert costs(third) == before
