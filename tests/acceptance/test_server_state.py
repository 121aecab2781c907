"""What a server can lose or lack: all its keys, a stream, room for more."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest

from tests.asking import hears
from tests.fleets import bodies, reminders, token_of
from tests.requirements import proves
from tests.topologies import TOPOLOGIES, ClusterServers, operator, primaries, scripts_run
from tests.waiting import wait_until_async
from tocsin.broker import AsyncBroker, HerdSettings, ManualClock, errors, keys
from tocsin.scheduler import AsyncScheduler


@pytest.fixture
def own(request: pytest.FixtureRequest) -> Iterator[Any]:
    """Servers of the test's own, to be emptied and filled: one, if nothing else is said."""
    with TOPOLOGIES[getattr(request, "param", "server")]() as servers:
        yield servers


@pytest.fixture
def client(own) -> Iterator[Any]:
    """An operator's client of it."""
    with operator(own.url) as client:
        yield client


on_a_cluster_too = pytest.mark.parametrize("own", ["server", "cluster"], indirect=True)


async def test_a_fleet_made_anew_has_the_partitions_its_processes_go_by(own, client):
    """Case 5: after FLUSHALL by whoever is there first, a scheduler's report or a new herd; one
    that comes with the usual number does not make a second fleet beside them."""
    async with AsyncBroker.connect(own.url, partitions=64) as old:
        await old.fleet()
        scheduler = AsyncScheduler(old, repair_every=None)
        running = asyncio.create_task(scheduler.run())
        client.flushall()
        await wait_until_async(
            lambda: client.hget(keys.fleet("default"), "partitions") == "64", "the fleet anew"
        )
        scheduler.stop()
        await running

        client.flushall()
        await old.open_herd("first")
        async with AsyncBroker.connect(own.url) as new:
            assert (await new.fleet()).partitions == 64
            with pytest.raises(errors.HerdExists):
                await new.open_herd("first")


async def test_whoever_makes_a_fleet_anew_with_another_number_is_followed(own, client):
    """So that a herd has one place, whoever opens it."""
    async with AsyncBroker.connect(own.url, partitions=64) as first:
        await first.fleet()
    async with AsyncBroker.connect(own.url) as old, AsyncBroker.connect(own.url) as new:
        assert (await old.fleet()).partitions == 64
        client.flushall()
        assert (await new.fleet()).partitions == 16
        await new.open_herd("first")
        with pytest.raises(errors.HerdExists):
            await old.open_herd("first")


@on_a_cluster_too
async def test_all_keys_deleted_while_agents_wait(own, caplog, monkeypatch):
    """Case 5: FLUSHALL, five sends, and each waiting agent hears at once that its herd is gone.

    Of a node of a Cluster to which the bells do not listen, at its next slow look. No hot loop: a
    handful of log lines, hardly a command, a CPU that idles; the scheduler included.
    """
    clustered = isinstance(own, ClusterServers)
    monkeypatch.setattr("tocsin.broker._async.agent.SLOW_POLL", 2.0 if clustered else 3600.0)
    caplog.set_level(logging.INFO, "tocsin")
    async with AsyncBroker.connect(own.url, fleet="f") as broker:
        renewal = HerdSettings(lease_renewal=timedelta(seconds=0.2))
        parent = await broker.open_herd("h", settings=renewal)
        token = token_of(await parent.register("scout"))

        async def work(agent) -> None:
            async for turn in agent.turns():
                await turn.ack()

        agents = [await broker.join("h", "scout", token) for _ in range(5)]
        working = [asyncio.create_task(work(agent)) for agent in agents]
        scheduler = AsyncScheduler(broker)
        running = asyncio.create_task(scheduler.run())
        assert await agents[0].next_turn(timeout=0.3) is None, "by now all of them wait"

        with primaries(own.url) as servers:
            for server in servers:
                server.flushall()
        for number in range(5):
            with pytest.raises(errors.UnknownHerd) as gone:
                await parent.message("scout", str(number))
            assert "there is no herd 'h'" in gone.value.detail
        ended = await asyncio.wait_for(asyncio.gather(*working, return_exceptions=True), 10)
        assert [type(end) for end in ended] == [errors.UnknownHerd] * 5

        before, cpu = scripts_run(own.url), time.process_time()
        await asyncio.sleep(2.0)
        assert scripts_run(own.url) - before < 50
        assert time.process_time() - cpu < 0.5
        assert not running.done()
        assert len(caplog.records) < 15, [record.message for record in caplog.records]
        scheduler.stop()
        await running


@on_a_cluster_too
async def test_a_stream_deleted_while_an_agent_waits(own, client, caplog):
    """Case 5: five sends before it notices: its mail, in order, and nothing is logged."""
    async with AsyncBroker.connect(own.url, fleet="f") as broker:
        parent = await broker.open_herd("h")
        scout = await broker.join("h", "scout", token_of(await parent.register("scout")))
        await parent.message("scout", "first")
        await (await scout.receive()).ack()
        await hears(scout)
        waiting = asyncio.create_task(scout.next_turn(timeout=30))
        partition = (await broker.fleet()).partition("h")
        key = keys.below(partition, "inbox", herd="h", agent="scout")
        assert client.execute_command("DEL", key) == 1
        for number in range(5):
            await parent.message("scout", str(number))
        got, turn = list[str](), await waiting
        while turn is not None:
            got += bodies(turn)
            await turn.ack()
            turn = await scout.next_turn(timeout=5) if len(got) < 5 else None
        assert got == list("01234")
        assert [record for record in caplog.records if record.levelno >= logging.WARNING] == []


@proves("P1")
async def test_memory_is_full_while_waits_expire(own, client, caplog):
    """Case 19: a clear error and back-off meanwhile; then exactly one reminder for each wait."""
    clock, waits = ManualClock(), 20
    async with AsyncBroker.connect(own.url, fleet="f", clock=clock) as broker:
        parent = await broker.open_herd("h", settings=HerdSettings(max_open_tasks=100))
        scout = await broker.join("h", "scout", token_of(await parent.register("scout")))
        await parent.register("planner")
        for _ in range(waits):
            task = await parent.delegate("scout", "x")
            await scout.message("planner", "?", task=task.id, expects_reply=True)
        clock.advance(timedelta(minutes=5))
        client.config_set("maxmemory", "1mb")

        with pytest.raises(errors.Unavailable, match="memory of .* is full"):
            await scout.message("planner", "refused whole")
        with pytest.raises(errors.Unavailable, match="memory of .* is full"):
            await AsyncScheduler(broker).tick()
        scheduler = AsyncScheduler(broker)
        before, until = scripts_run(own.url), time.monotonic() + 1.5
        running = asyncio.create_task(scheduler.run())
        await wait_until_async(lambda: time.monotonic() > until, "it to try again a few times")
        looking = ("timers", "forwarding", "launching", "plans")
        assert scripts_run(own.url) - before < 17 * 5 * len(looking), (
            "16 partitions and a herd, less than five times each"
        )
        told = [record.message for record in caplog.records]
        assert all("memory of" in line and "maxmemory" in line for line in told)
        duties = [line.split()[0] for line in told]
        assert "timers" in duties and len(duties) == len(set(duties)), "each duty says it once"
        assert reminders(await parent.inbox()) == []

        client.config_set("maxmemory", "0")

        async def reminded() -> bool:
            return len(reminders(await parent.inbox())) == waits

        await wait_until_async(reminded, "the reminders")
        scheduler.stop()
        await running
        assert await AsyncScheduler(broker).tick() == {}
        mail = reminders(await parent.receive())
        assert len({reminder.data["task"] for reminder in mail}) == len(mail) == waits
        assert (await scout.message("planner", "room again")).message_id
