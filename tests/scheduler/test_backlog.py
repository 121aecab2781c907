"""A herd that is far behind: caught up with in few round trips, and nobody waits for it."""

from __future__ import annotations

import asyncio
import resource
from collections import Counter
from collections.abc import Sequence
from contextlib import AsyncExitStack
from datetime import timedelta
from typing import Any

import pytest

from tests.requirements import proves
from tests.topologies import TOPOLOGIES, operator
from tocsin.broker import AsyncBroker, Broker, HerdSettings, ManualClock, keys
from tocsin.broker.scripts import Call
from tocsin.scheduler import AsyncScheduler, Scheduler
from tocsin.scheduler._async.timers import CATCH_UP, VISIT

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


HERDS, ASKED = 10, 20
"""Herds, and how many waits of each were asked for."""


@proves("P1", "P16")
@pytest.mark.parametrize(("on", "waits"), [("server", 5_000), ("cluster", 500)])
async def test_six_hours_without_a_scheduler(on, waits):
    """Case 24: 50,000 waits (5,000 on a Cluster) have expired, three schedulers start together.

    Each wait is reminded once, no script sends more than a batch, no round more than a few batches
    to one parent, and the schedulers' memory stays flat.
    """
    clock = ManualClock()
    async with AsyncExitStack() as stack:
        server = stack.enter_context(TOPOLOGIES[on]())
        brokers = [
            await stack.enter_async_context(
                AsyncBroker.connect(server.url, fleet="f", clock=clock, partitions=4)
            )
            for _ in range(3)
        ]
        inboxes = [await _expire(server.url, brokers[0], f"h{n}", waits) for n in range(HERDS)]
        clock.advance(timedelta(hours=6))
        rounds: list[Counter[str]] = []
        for broker in brokers:
            _listen(broker, rounds)
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss

        fired = await asyncio.gather(*[AsyncScheduler(broker).tick() for broker in brokers])

        grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
        assert sum(each.get("reminders", 0) for each in fired) == HERDS * waits
        with operator(server.url) as client:
            for inbox in inboxes:
                tasks = [fields["r"] for _, fields in client.xrange(inbox) if "r" in fields]
                assert len(tasks) == len(set(tasks)) == waits
        assert max(max(visits.values()) for visits in rounds) <= CATCH_UP
        assert len(rounds) >= waits / (VISIT * CATCH_UP), "it took several rounds"
        assert grown < 30_000, "kB"


async def _expire(url: str, broker: AsyncBroker, herd: str, waits: int) -> str:
    """Opens a herd with so many waits: some that were asked for, the others as those are kept.

    Made one by one they would take longer than all that is looked at here. The parent's inbox.
    """
    settings = HerdSettings(max_open_tasks=ASKED)
    parent = await broker.open_herd(herd, settings=settings)
    asker = await broker.join(herd, "asker", str((await parent.register("asker")).token))
    await parent.register("asked")
    tasks = []
    for _ in range(ASKED):
        tasks.append((await parent.delegate("asker", "ask")).id)
        await asker.message("asked", "?", task=tasks[-1], expects_reply=True)
    partition = (await broker.fleet()).partition(herd)
    waiting, episodes, inbox = (
        keys.below(partition, "waiting", herd=herd),
        keys.below(partition, "episodes", herd=herd),
        keys.below(partition, "inbox", herd=herd, agent="parent"),
    )
    with operator(url) as client:
        (since,) = {client.zscore(waiting, task) for task in tasks}
        assert client.hgetall(episodes) == dict.fromkeys(tasks, "1"), "all that firing looks at"
        others = [f"task_{herd}{number:05}" for number in range(waits - ASKED)]
        client.zadd(waiting, dict.fromkeys(others, since))
        client.hset(episodes, mapping=dict.fromkeys(others, "1"))
    return inbox


def _listen(broker: AsyncBroker, rounds: list[Counter[str]]) -> None:
    """Notes how often each round of a broker's scheduler visits which herd."""
    run_many = broker.link.run_many

    async def listen(calls: Sequence[Call[Any]]) -> Any:
        answers = await run_many(calls)
        if calls[0].script.name == "herd_visit":
            herds = [str(call.args[call.script.args.index("herd")]) for call in calls]
            rounds.append(Counter(herds))
            for answer in answers:
                assert isinstance(answer, dict) and answer.get("reminders", 0) <= VISIT
        return answers

    broker.link.run_many = listen  # type: ignore[method-assign]
