"""Duties: each turns on its own, whatever becomes of the others, and shows when it does not."""

from __future__ import annotations

import asyncio
import inspect
import logging
import re
import threading
import time
from datetime import timedelta
from pathlib import Path

import pytest
import redis

from tests.fleets import command, key_of
from tests.waiting import wait_until, wait_until_async
from tocsin.broker import AsyncBroker, Broker, HerdSettings, keys, processes
from tocsin.broker.bells import Bells
from tocsin.broker.embedded import EmbeddedServer
from tocsin.broker.errors import Unavailable
from tocsin.broker.settings import NotifySettings
from tocsin.scheduler import AsyncScheduler, Scheduler, health
from tocsin.scheduler._async.duty import AsyncDuty, AsyncLoop, Turn
from tocsin.scheduler._async.forwarding import AsyncForwarding
from tocsin.scheduler._async.notify import AsyncNotifier
from tocsin.scheduler._async.partitioned import AsyncPartitionedDuty, Pass
from tocsin.scheduler._async.planning import AsyncPlanning
from tocsin.scheduler._async.repair import AsyncRepair
from tocsin.scheduler._async.report import REPORT_EVERY, AsyncReport
from tocsin.scheduler._async.timers import JITTER, AsyncTimers
from tocsin.scheduler._async.turns import AsyncLaunching

DUTIES = (
    AsyncTimers,
    AsyncForwarding,
    AsyncLaunching,
    AsyncPlanning,
    AsyncRepair,
    AsyncNotifier,
    AsyncReport,
)


def test_every_duty_is_put_to_the_test():
    """One that is new is among those that are made to fail here."""
    folder = Path(inspect.getfile(AsyncDuty)).parent
    written = [
        name
        for path in folder.glob("*.py")
        for name in re.findall(
            r"^class (\w+)\(Async(?:Partitioned)?Duty\)", path.read_text("utf-8"), re.MULTILINE
        )
        if name != AsyncPartitionedDuty.__name__
    ]
    assert sorted(written) == sorted(each.__name__ for each in DUTIES)


@pytest.mark.parametrize("duty", DUTIES)
async def test_one_exception_in_a_duty_stops_neither_it_nor_another(
    monkeypatch, broker, duty, caplog
):
    """Case 32: it is told once, and the next pass comes after a short pause."""
    turns: dict[type, int] = dict.fromkeys(DUTIES, 0)

    async def turn(self: object) -> Turn:
        turns[type(self)] += 1
        if type(self) is duty and turns[duty] == 1:
            raise RuntimeError("boom")
        return Turn(0.01)

    for each in turns:
        monkeypatch.setattr(each, "turn", turn)
    scheduler = AsyncScheduler(broker, NotifySettings(notify_command=("true",)))
    with caplog.at_level(logging.INFO, "tocsin.scheduler"):
        running = asyncio.create_task(scheduler.run())
        await wait_until_async(lambda: min(turns.values()) >= 3, "three passes of each duty")
        scheduler.stop()
        await asyncio.wait_for(running, 10)
    assert caplog.text.count("RuntimeError: boom") == 1
    assert f"{duty.name}: going on again" in caplog.text


async def test_a_duty_that_fails_or_hangs_is_in_trouble_and_one_that_sleeps_is_not(broker):
    """Case 32: health fails while a duty has stopped turning."""

    class Scripted(AsyncDuty):
        name, patience = "scripted", 1.5

        def __init__(self) -> None:
            self.goes_on = asyncio.Event()
            self.fails = True

        async def turn(self) -> Turn:
            if self.fails:
                raise Unavailable("test", "no server")
            await self.goes_on.wait()
            return Turn(3600)

    duty = Scripted()
    loop = AsyncLoop(duty)
    running = asyncio.create_task(loop.run(broker))
    await wait_until_async(lambda: "fails: " in loop.trouble(), "a failure that shows")
    assert "no server" in loop.trouble()
    duty.fails = False
    await wait_until_async(lambda: "fails" in loop.trouble(), "it hangs now")
    duty.goes_on.set()
    await wait_until_async(lambda: loop.trouble() == "", "all is well")
    loop.stop()
    await asyncio.wait_for(running, 10)


async def test_a_duty_that_stops_shows_within_ten_seconds(broker):
    """Case 32: what it may be without a step, and what may lie between reports, are less."""
    scheduler = AsyncScheduler(broker)
    longest = max(loop.duty.patience for loop in scheduler._loops)
    assert longest + REPORT_EVERY < 10
    assert processes.SILENT.total_seconds() < 10


async def test_a_long_pass_that_gets_on_is_in_no_trouble(broker):
    """However long it takes: what counts is when it last got a step further."""

    class Long(AsyncDuty):
        name, patience = "long", 0.3

        async def turn(self) -> Turn:
            began = time.monotonic()
            while time.monotonic() - began < 2 * self.patience:
                self.step()
                troubles.append(loop.trouble())
                await asyncio.sleep(0)
            return Turn(3600)

    troubles: list[str] = []
    loop = AsyncLoop(Long())
    running = asyncio.create_task(loop.run(broker))
    await wait_until_async(lambda: loop.busy > 0.6, "a long pass")
    loop.stop()
    await asyncio.wait_for(running, 10)
    assert set(troubles) == {""}


async def test_lag_is_how_late_the_oldest_timer_is(open_herd, clock, broker):
    """Of all partitions; none while the next is to come, and none of what cannot be visited."""
    duty = AsyncTimers(broker)
    await duty.turn()
    assert duty.lag == 0
    herd = await open_herd("h", "scout")
    await herd.parent.delegate("scout", "x", deadline=timedelta(minutes=1))
    await duty.turn()
    assert duty.lag == 0, "it is not due yet"
    clock.advance(timedelta(minutes=1, seconds=30))
    fleet = await broker.fleet()
    partitions = [keys.partition(fleet.name, number) for number in range(fleet.partitions)]
    herds = await duty._due(fleet, partitions, {}, Pass())
    assert herds == ["h"] and 30 <= duty.lag < 60
    await duty._due(fleet, partitions, {"h": "it cannot be read"}, Pass())
    assert duty.lag == 0
    assert (await duty.turn()).counts == {"task_deadlines": 1}
    assert duty.lag == 0


async def test_a_report_tells_of_every_duty(broker):
    """What `tocsin doctor` looks at; the loop that hears doorbells for them is among them."""
    scheduler = AsyncScheduler(broker)
    running = asyncio.create_task(scheduler.run())

    async def reported() -> bool:
        found = await broker.run(processes.reports(broker.name))
        duties = {each.scheduler: each.duties for each in found}
        loops = [*(loop.duty.name for loop in scheduler._loops), "bells"]
        return duties.get(scheduler.name) == dict.fromkeys(loops, "")

    for _ in range(100):
        if await reported():
            break
        await asyncio.sleep(0.05)
    assert await reported()
    scheduler.stop()
    await asyncio.wait_for(running, 10)
    assert not await reported()


async def test_health_fails_when_the_loop_behind_the_duties_stops(
    broker, url, fleet_name, monkeypatch
):
    """Case 32: duties go on without bells, only later; health names what has stopped."""
    mended = threading.Event()
    monkeypatch.setattr(Bells, "patience", 1.5)
    monkeypatch.setattr(Bells, "_listen", lambda *_: mended.wait())
    monkeypatch.setattr("tocsin.scheduler._async.report.REPORT_EVERY", 0.2)
    scheduler = AsyncScheduler(broker)
    running = asyncio.create_task(scheduler.run())
    with Broker.connect(url, fleet=fleet_name) as other:

        async def problems() -> list[str]:
            return (await asyncio.to_thread(health.check, other)).problems

        found = await wait_until_async(problems, "health to fail")
        while not any("bells" in each for each in found):  # its first report is still to come
            found = await wait_until_async(problems, "health to fail")
        assert found[0].startswith(f"bells of {scheduler.name} has done nothing for")
    mended.set()
    scheduler.stop()
    await asyncio.wait_for(running, 10)


async def test_schedulers_that_wait_for_one_timer_wake_at_different_moments(open_herd, broker):
    """Each a little later than it is due, never earlier: most then find it fired."""
    herd = await open_herd("h", "scout")
    await herd.parent.delegate("scout", "x", deadline=timedelta(seconds=5))
    waits = [(await AsyncTimers(broker).turn()).next_in for _ in range(20)]
    assert len(set(waits)) > 10
    assert all(5 <= wait <= 5 + JITTER for wait in waits)


async def test_a_herd_that_cannot_be_visited_is_told_once_and_is_no_load(
    open_herd, broker, clock, caplog
):
    """However often it is tried; and what could not be fired does not count as fired."""
    herd = await open_herd("h", "scout")
    scheduler = AsyncScheduler(broker, repair_every=None)  # which would mend it
    await herd.parent.delegate("scout", "x", deadline=timedelta(minutes=1))
    clock.advance(timedelta(minutes=2))
    due, kept = key_of(herd, "due"), key_of(herd, "due") + ":kept"
    await command(herd, "RENAME", due, kept)
    await command(herd, "SET", due, "spoilt")
    counts = [(await scheduler.tick()).get("set_aside", 0) for _ in range(3)]
    assert counts == [1, 0, 0] and list(scheduler._timers.left_out) == ["h"]
    assert caplog.text.count("herd h is left out") == 1
    assert scheduler._facts()["fired"] == 0
    await command(herd, "RENAME", kept, due)
    assert (await scheduler.tick())["task_deadlines"] == 1
    assert scheduler._timers.left_out == {}
    assert scheduler._facts()["fired"] == scheduler._timers.fired.total() - 1


def test_a_sync_scheduler_turns_its_duties_in_threads(sync_broker):
    """It starts, repairs, reports, and `stop` from another thread ends it."""
    scheduler = Scheduler(sync_broker)
    running = threading.Thread(target=scheduler.run)
    running.start()
    fleet = sync_broker.fleet()
    wait_until(lambda: sync_broker.run(processes.reports(fleet.name)), "its report")
    scheduler.stop()
    running.join(10)
    assert not running.is_alive()
    assert sync_broker.run(processes.reports(fleet.name)) == []


@pytest.mark.parametrize("policy", ["allkeys-lru", "noeviction"])
async def test_it_warns_at_its_start_of_a_server_that_drops_what_it_holds(caplog, policy):
    """Case 14: an evicting memory policy is a loud warning in the log."""
    options = {"maxmemory": "100mb", "maxmemory-policy": policy}
    with EmbeddedServer(durable=False, options=options) as server:
        async with AsyncBroker.connect(server.url) as broker:
            scheduler = AsyncScheduler(broker)
            running = asyncio.create_task(scheduler.run())
            await wait_until_async(lambda: scheduler._report._warned, "its first report")
            scheduler.stop()
            await asyncio.wait_for(running, 10)
    assert ("THE SERVER MAY LOSE YOUR DATA" in caplog.text) is (policy != "noeviction")


def test_what_an_evicting_server_dropped_is_mended():
    """Case 14: under load a server with such a policy drops keys; what is derived is made again."""
    options = {"maxmemory-policy": "allkeys-random"}
    with (
        EmbeddedServer(durable=False, options=options) as server,
        redis.Redis.from_url(server.url) as client,
        Broker.connect(server.url) as broker,
    ):
        parent = broker.open_herd("h", settings=HerdSettings(max_open_tasks=300))
        scout = broker.join("h", "scout", parent.register("scout").token or "")
        for number in range(300):
            task = parent.delegate("scout", f"Find {number}")
            scout.message("parent", "Which?", task=task.id, expects_reply=True)
        herd = client.dump(keys.below(parent.caller.fleet.partition("h"), "herd", herd="h"))
        assert herd is not None
        client.config_set("maxmemory", client.info("memory")["used_memory"] - 200_000)
        wait_until(lambda: client.info("stats")["evicted_keys"] > 50, "keys to be dropped")
        client.config_set("maxmemory", 0)
        client.restore(parent.caller.fleet.partition("h") + ":h:h", 0, herd, replace=True)

        assert Scheduler(broker).tick()["repairs"] > 0

        broker_repair = Scheduler(broker).repair
        broker_repair()
        assert broker_repair().findings == []
