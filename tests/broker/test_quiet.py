"""Nothing polls fast while nothing waits."""

from __future__ import annotations

import asyncio
import threading
from datetime import timedelta
from typing import Any

from tests.fleets import token_of
from tests.requirements import proves
from tests.topologies import primaries, scripts_run
from tests.waiting import wait_until
from tocsin.broker import AsyncBroker, AsyncChild, Broker, keys
from tocsin.scheduler import AsyncScheduler, Scheduler


@proves("P6")
async def test_an_idle_fleet_sends_nothing(url, fleet_name):
    """An agent that waits for mail, a parent that waits for a task, a scheduler: all sleep."""
    async with AsyncBroker.connect(url, fleet=fleet_name) as broker:
        parent = await broker.open_herd("h")
        seat = await parent.register("scout")
        scout = await broker.join("h", "scout", token_of(seat))
        assert isinstance(scout, AsyncChild)
        task = await parent.delegate("scout", "x")
        await (await scout.receive()).ack()
        scheduler = AsyncScheduler(broker)
        running = asyncio.create_task(scheduler.run())
        waiting = asyncio.create_task(parent.wait(task.id))
        assert await scout.next_turn(timeout=1) is None, "by now all of them have settled down"

        before = scripts_run(url)
        assert await scout.next_turn(timeout=2) is None
        looks = scripts_run(url) - before

        # This turn's own first and last look, and those of partitions it made the others take.
        assert looks <= 3, f"{looks} scripts in two seconds of idling"
        await scout.done(task.id)
        await waiting
        scheduler.stop()
        await running


def listeners(clients: list[Any], channel: str) -> int:
    """How many listen to a channel, at any of the servers."""
    return sum(int(heard) for each in clients for _, heard in each.pubsub_numsub(channel))


@proves("P6")
def test_a_doorbell_wakes_the_scheduler(url, fleet_name):
    """A timer that comes earlier than all others is fired at once, not at the next slow look."""
    with (
        Broker.connect(url, fleet=fleet_name) as broker,
        primaries(url) as clients,
    ):
        doorbell = keys.doorbell(fleet_name)
        scheduler = Scheduler(broker)
        thread = threading.Thread(target=scheduler.run)
        thread.start()
        try:
            wait_until(lambda: listeners(clients, doorbell), "it to listen")
            parent = broker.open_herd("h")
            parent.register("scout")
            task = parent.delegate("scout", "x", deadline=timedelta(milliseconds=300))
            (settled,) = parent.wait(task.id, timeout=8)
            assert settled.status == "timed_out"
        finally:
            scheduler.stop()
            thread.join(10)
        assert not thread.is_alive()
