"""A fleet on a Cluster of three primaries and their replicas, whose slots move and nodes die."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

import pytest
import redis
from rq import Queue

from tests.acceptance.load import FLEET, working
from tests.asking import hears
from tests.fleets import bodies, token_of
from tests.lua.story import tell
from tests.requirements import proves
from tests.topologies import ClusterServers, OneServer
from tests.waiting import wait_until, wait_until_async
from tests.webhook import webhook
from tocsin.broker import AsyncBroker, Broker, CommandRunner, HerdSettings, Parent, errors, keys
from tocsin.broker.bells import SILENCE
from tocsin.broker.embedded import EmbeddedServer
from tocsin.broker.settings import NotifySettings
from tocsin.scheduler import AsyncScheduler, Scheduler

pytestmark = pytest.mark.long

SERVED_WITHIN = timedelta(seconds=2)
"""How late a timer may be served while its server is well."""

MOVED_WITHIN = timedelta(seconds=5)
"""The same while the server hangs at which the scheduler hears of new ones."""


@pytest.fixture(scope="module")
def cluster() -> Iterator[ClusterServers]:
    """Shared by the tests that leave it whole."""
    with ClusterServers(replicas=1) as servers:
        yield servers


def other_than(cluster: ClusterServers, server: OneServer) -> OneServer:
    """Another primary."""
    some = (cluster.primary_of(keys.partition("any", n)) for n in range(100))
    return next(each for each in some if each is not server)


def test_every_script_is_legal_on_a_cluster(cluster):
    """The story that runs every script, with each of its answers, as on one server."""
    tell(cluster.url, "story")


def test_scripts_forgotten_by_one_node_are_sent_again(cluster):
    """SCRIPT FLUSH on a node, then one call and many: nobody notices."""
    with Broker.connect(cluster.url, fleet="flushed") as broker:
        parents = [broker.open_herd(f"h{n}") for n in range(12)]
        for server in cluster.servers:
            server.run("SCRIPT FLUSH")
            assert len(broker.herds()) == len(parents)
            assert all(parent.roster() for parent in parents)


async def test_a_bell_is_heard_whatever_node_it_rings_on(cluster, monkeypatch):
    """Nothing but bells wakes here, and each herd's are rung on the node that holds the herd."""
    monkeypatch.setattr("tocsin.broker._async.agent.SLOW_POLL", 3600.0)
    async with AsyncBroker.connect(cluster.url, fleet="bells") as broker:
        for number in range(8):
            parent = await broker.open_herd(f"h{number}")
            scout = await broker.join(
                parent.herd, "scout", token_of(await parent.register("scout"))
            )
            await hears(scout)
            waiting = asyncio.create_task(scout.next_turn(timeout=20))
            sent = await parent.message("scout", "wake")
            assert bodies(await waiting) == ["wake"]
            [tried] = (await parent.receipt(sent.message_id)).wake
            assert tried.reached is None, "nobody is said not to have heard it"
        homes = {cluster.primary_of(parent.caller.fleet.partition(f"h{n}")) for n in range(8)}
        assert len(homes) == 3


@proves("P11", "P12")
def test_a_slot_that_moves_key_by_key_refuses_calls_whole(cluster, monkeypatch):
    """While its keys are in two places nothing of a herd changes; when all are there it goes on."""
    monkeypatch.setattr("tocsin.broker.connections.GIVE_UP_AFTER", 5.5)
    with Broker.connect(cluster.url, fleet="moving") as broker:
        parent = broker.open_herd("h")
        parent.register("scout")
        parent.message("scout", "before")
        key = parent.caller.fleet.partition("h")
        source = cluster.primary_of(key)
        target = other_than(cluster, source)

        def refused() -> None:
            for call in (
                lambda: parent.message("scout", "meanwhile", key="k"),
                lambda: parent.register("planner"),
                lambda: parent.delegate("scout", "work"),
            ):
                with pytest.raises(errors.Unavailable, match="slots are moving"):
                    call()

        cluster.begin_move(key, target)
        refused()
        all_keys = cluster.move_keys(key, target, 3)
        while all_keys:
            refused()
            all_keys = cluster.move_keys(key, target, max(all_keys, 8))
        refused()
        cluster.end_move(key, target)

        assert not parent.message("scout", "meanwhile", key="k").duplicate
        assert parent.message("scout", "meanwhile", key="k").duplicate
        assert [each.agent for each in parent.roster()] == ["parent", "scout"]
        assert not parent.tasks()
        swept = Scheduler(broker).repair(mend=False)
        assert not swept.counts and not swept.broken


@proves("P1", "P11", "P12")
async def test_slots_move_under_load(cluster):
    """In one step and key by key: nothing lost, nothing twice, no wake-up or reminder missing."""
    async with working(cluster.url) as load:
        fleet = await load.broker.fleet()
        for herd in load.herds[:2]:
            key = fleet.partition(herd.parent.herd)
            target = other_than(cluster, cluster.primary_of(key))
            await asyncio.to_thread(cluster.move, key, target)
            await load.goes_on()
        key = fleet.partition(load.herds[2].parent.herd)
        target = other_than(cluster, cluster.primary_of(key))
        await asyncio.to_thread(cluster.begin_move, key, target)
        left = 1
        while left:
            left = await asyncio.to_thread(cluster.move_keys, key, target, 20)
        await asyncio.to_thread(cluster.end_move, key, target)


@proves("P1", "P11", "P12", "P16")
@pytest.mark.parametrize("ended_by", ["kill", "freeze"])
async def test_primaries_die_under_load(ended_by):
    """Case 32: replicas are promoted, nobody restarts: nothing lost, nothing twice.

    `durability="replicated"` makes it exact: what was confirmed is on the replica.
    """
    with ClusterServers(replicas=1) as cluster:
        async with working(cluster.url, durability="replicated") as load:
            for key in (keys.fleet(FLEET), (await load.broker.fleet()).partition("h0")):
                primary = cluster.primary_of(key)
                primary.kill() if ended_by == "kill" else primary.freeze()
                await wait_until_async(partial(moved, cluster, key, primary), "the promotion", 30)
                if ended_by == "kill":
                    await asyncio.to_thread(primary.start)
                else:
                    primary.thaw()
                await wait_until_async(partial(follows, primary), "it to be a replica", 30)
                await load.goes_on()


def moved(cluster: ClusterServers, key: str, primary: OneServer) -> bool:
    """Whether another holds the key now."""
    return cluster.primary_of(key) is not primary


def follows(server: OneServer) -> bool:
    """Whether it is a replica that is up to date."""
    with suppress(redis.ConnectionError, redis.TimeoutError, IndexError):
        return server.follows()
    return False


async def test_the_bell_line_moves_when_its_node_dies(monkeypatch):
    """And who waits is woken again, by nothing else."""
    monkeypatch.setattr("tocsin.broker._async.agent.SLOW_POLL", 3600.0)
    with ClusterServers(replicas=1) as cluster:
        async with AsyncBroker.connect(cluster.url, fleet="bells") as broker:
            parent = await broker.open_herd("h")
            scout = await broker.join("h", "scout", token_of(await parent.register("scout")))
            waiting = asyncio.create_task(scout.next_turn(timeout=60))
            await wait_until_async(lambda: listener(cluster), "the line")
            listening = listener(cluster)
            assert listening is not None
            listening.kill()
            await wait_until_async(lambda: listener(cluster), "the next line")

            async def sent() -> bool:
                with suppress(errors.Unavailable):
                    await parent.message("scout", "wake", key="k")
                    return True
                return False

            await wait_until_async(sent, "the message", 30)
            turn = await asyncio.wait_for(waiting, 30)
            assert turn is not None and bodies(turn) == ["wake"]


async def test_the_bell_line_leaves_a_node_that_hangs(monkeypatch):
    """Before any call to it has failed: agents of the others are woken in less than the time after
    which one server alone is asked whether it is there."""
    monkeypatch.setattr("tocsin.broker._async.agent.SLOW_POLL", 3600.0)
    with ClusterServers() as cluster:
        for server in cluster.servers:
            server.run("CONFIG SET", "cluster-require-full-coverage", "no")
        async with (
            AsyncBroker.connect(cluster.url, fleet="bells") as broker,
            AsyncExitStack() as end,
        ):
            waiting: dict[Any, asyncio.Task[Any]] = {}
            end.push_async_callback(ended, waiting)
            for number in range(6):
                parent = await broker.open_herd(f"h{number}")
                seat = await parent.register("scout")
                scout = await broker.join(parent.herd, "scout", token_of(seat))
                waiting[parent] = asyncio.create_task(scout.next_turn(timeout=60))
            await wait_until_async(lambda: listener(cluster), "the line")
            hanging = listener(cluster)
            assert hanging is not None
            served = [
                parent
                for parent in waiting
                if cluster.primary_of(parent.caller.fleet.partition(parent.herd)) is not hanging
            ]
            end.callback(hanging.thaw)
            hanging.freeze()
            began = time.monotonic()
            for parent in served:
                await parent.message("scout", "wake")
            for parent in served:
                turn = await asyncio.wait_for(waiting[parent], 30)
                assert turn is not None and bodies(turn) == ["wake"]
            assert time.monotonic() - began < SILENCE


async def ended(tasks: dict[Any, asyncio.Task[Any]]) -> None:
    """Ends what still waits."""
    for task in tasks.values():
        task.cancel()
    await asyncio.gather(*tasks.values(), return_exceptions=True)


def listener(cluster: ClusterServers) -> OneServer | None:
    """The node to which the bells listen."""
    for server in cluster.servers:
        with suppress(redis.ConnectionError):
            if "tocsin-bells" in server.run("CLIENT", "LIST"):
                return server
    return None


def test_one_node_that_is_gone_leaves_the_other_partitions_alone(monkeypatch):
    """A primary without a replica dies: its herds are unavailable, others work, timers fire."""
    monkeypatch.setattr("tocsin.broker.connections.GIVE_UP_AFTER", 5.5)
    with ClusterServers() as cluster:
        for server in cluster.servers:
            server.run("CONFIG SET", "cluster-require-full-coverage", "no")
        with Broker.connect(cluster.url, fleet="part") as broker:
            parents = [broker.open_herd(f"h{n}") for n in range(12)]
            fleet = broker.fleet()
            gone = other_than(cluster, cluster.primary_of(keys.fleet("part")))
            lost = [p for p in parents if cluster.primary_of(fleet.partition(p.herd)) is gone]
            assert 0 < len(lost) < len(parents)
            gone.kill()
            wait_until(
                lambda: all(
                    server.run("CLUSTER", "INFO").count("cluster_state:ok")
                    for server in cluster.servers
                    if server is not gone
                ),
                "the others to go on",
            )
            for parent in parents:
                if parent in lost:
                    with pytest.raises(errors.Unavailable):
                        parent.roster()
                else:
                    assert parent.roster()
            assert Scheduler(broker, repair_every=None).tick() == {}


@proves("P14", "P16")
@pytest.mark.parametrize("kind", [AsyncScheduler, Scheduler])
async def test_a_frozen_node_holds_up_no_other_timers(kind):
    """Case 21: while a primary hangs and nobody replaces it, timers of the others are served within
    2 s, and mail between their herds goes on; its own are when it thaws."""
    with ClusterServers() as cluster:
        for server in cluster.servers:
            server.run("CONFIG SET", "cluster-require-full-coverage", "no")
        with Broker.connect(cluster.url, fleet="part") as broker:
            parents = [broker.open_herd(f"h{n}") for n in range(12)]
            for parent in parents:
                parent.register("scout")
            where = {p: cluster.primary_of(p.caller.fleet.partition(p.herd)) for p in parents}
            frozen = other_than(cluster, cluster.primary_of(keys.fleet("part")))
            served = [parent for parent in parents if where[parent] is not frozen]
            (waiting, *_) = [parent for parent in parents if where[parent] is frozen]
            lasts = timedelta(milliseconds=500)
            late = waiting.delegate("scout", "x", deadline=timedelta(seconds=3))
            async with scheduling(kind, cluster.url) as scheduler:
                await wait_until_async(lambda: scheduler.trouble()["report"] == "", "it to work")
                frozen.freeze()
                found = []
                for _ in range(6):
                    await asyncio.sleep(0.5)  # so that passes begin before, while and after
                    for parent in served:
                        made = parent.delegate("scout", "x", deadline=lasts, queue=True)
                        found.append((parent, made.id))
                for parent, task in found:
                    await wait_until_async(partial(settled, parent, task), "the deadline", 30)
                assert max(lateness(parent, task) for parent, task in found) <= SERVED_WITHIN
                assert set(scheduler.trouble().values()) == {""}
                frozen.thaw()
                await wait_until_async(partial(settled, waiting, late.id), "the late one", 30)


@proves("P14", "P16")
@pytest.mark.parametrize("kind", [AsyncScheduler, Scheduler])
async def test_a_frozen_node_of_the_fleets_own_holds_up_launching_alone(kind):
    """Case 21: slots of turns are there, and the scheduler's bells are heard there. It hears them
    elsewhere soon, timers of the others are served, health says that turns are not, and they are
    when it thaws."""
    with ClusterServers() as cluster, EmbeddedServer(durable=False) as plain:
        for server in cluster.servers:
            server.run("CONFIG SET", "cluster-require-full-coverage", "no")
        with Broker.connect(cluster.url, fleet="part") as broker:
            parents = [broker.open_herd(f"h{n}") for n in range(12)]
            where = {p: cluster.primary_of(p.caller.fleet.partition(p.herd)) for p in parents}
            frozen = cluster.primary_of(keys.slots("part"))
            served = [parent for parent in parents if where[parent] is not frozen]
            runner = CommandRunner(["code"], queue="q", wake_batch=timedelta(0))
            for parent in served:
                parent.register("scout")
                parent.register("coder", runner=runner)
            queue = Queue("q", connection=redis.Redis.from_url(plain.url))
            options = {"rq_url": plain.url, "repair_every": None}
            async with (
                scheduling(kind, cluster.url, **options) as scheduler,
                thawed_at_the_end(frozen),
            ):
                lasts = timedelta(milliseconds=500)
                first = served[0].delegate("scout", "x", deadline=lasts).id
                await wait_until_async(partial(settled, served[0], first), "it to work", 30)
                frozen.freeze()
                found = []
                for parent in served:
                    parent.delegate("coder", "x")
                    found.append((parent, parent.delegate("scout", "x", deadline=lasts).id))
                for parent, task in found:
                    await wait_until_async(partial(settled, parent, task), "the deadline", 30)
                assert max(lateness(parent, task) for parent, task in found) <= MOVED_WITHIN
                await wait_until_async(lambda: scheduler.trouble()["launching"], "the word", 30)
                assert scheduler.trouble()["timers"] == ""
                frozen.thaw()
                await wait_until_async(lambda: len(queue) == len(served), "the turns", 60)
                await wait_until_async(
                    lambda: set(scheduler.trouble().values()) == {""}, "all to be well", 60
                )


@proves("P14", "P16")
@pytest.mark.parametrize("kind", [AsyncScheduler, Scheduler])
async def test_a_frozen_node_holds_up_no_other_duty(kind, monkeypatch):
    """Case 21: while a primary hangs, and calls to it never give up, herds of the others have their
    mail forwarded, turns launched, plans seen to and alerts told, though there is mail for it, too.
    """
    monkeypatch.setattr("tocsin.broker.connections.GIVE_UP_AFTER", 300.0)
    with ClusterServers() as cluster, EmbeddedServer(durable=False) as plain, webhook() as hook:
        for server in cluster.servers:
            server.run("CONFIG SET", "cluster-require-full-coverage", "no")
        notify = NotifySettings(notify_url=hook.url, notify_private=True)
        with Broker.connect(cluster.url, fleet="part") as broker:
            settings = HerdSettings(accepts_from=("*",))
            parents = [broker.open_herd(f"h{n}", settings=settings) for n in range(12)]
            where = {p: cluster.primary_of(p.caller.fleet.partition(p.herd)) for p in parents}
            frozen = other_than(cluster, cluster.primary_of(keys.fleet("part")))
            served = [parent for parent in parents if where[parent] is not frozen]
            (waiting, *_) = [parent for parent in parents if where[parent] is frozen]
            runner = CommandRunner(["code"], queue="q", wake_batch=timedelta(0))
            for parent in served:
                parent.register("coder", runner=runner)
                parent.register("absent")
            queue = Queue("q", connection=redis.Redis.from_url(plain.url))
            # Without repair: a sweep that is on its way looks at every node, and waits for it.
            options = {"notify": notify, "rq_url": plain.url, "repair_every": None}
            async with (
                scheduling(kind, cluster.url, **options) as scheduler,
                thawed_at_the_end(frozen),
            ):
                homes = [p.caller.fleet.partition(p.herd) for p in served]
                noting = partial(broker.link.command, "test", "HGET")
                await wait_until_async(
                    lambda: all(noting(home, "alerting", key=home) for home in homes),
                    "alerts to be noted",
                    30,
                )
                soon = datetime.now(UTC) + timedelta(seconds=1)
                for parent in served:
                    parent.plan("absent", "look", at=soon)
                frozen.freeze()
                late: dict[Parent, str] = {}
                mail: dict[Parent, str] = {}
                for parent, other in zip(served, [*served[1:], served[0]], strict=True):
                    sent = parent.message(f"{waiting.herd}/parent", "for the one that hangs")
                    late[parent] = sent.message_id
                    sent = parent.message(f"{other.herd}/parent", "for another")
                    mail[parent] = sent.message_id
                    parent.message("coder", "work")
                    parent.message("absent", "Anybody there?", expects_reply=True)

                def all_are(state: str, messages: dict[Parent, str]) -> bool:
                    return all(parent.receipt(m).state == state for parent, m in messages.items())

                await wait_until_async(partial(all_are, "forwarded", mail), "mail to others", 30)
                await wait_until_async(lambda: len(queue.job_ids) == len(served), "turns", 30)
                await wait_until_async(lambda: len(hook.posts) == len(served), "alerts", 30)
                await wait_until_async(lambda: all(map(Parent.tasks, served)), "plans", 30)
                assert all_are("outgoing", late)
                assert set(scheduler.trouble().values()) == {""}
                frozen.thaw()
                await wait_until_async(partial(all_are, "forwarded", late), "the late mail", 30)
            queue.connection.close()


@asynccontextmanager
async def thawed_at_the_end(server: OneServer) -> AsyncIterator[None]:
    """Whatever becomes of the test, so that nothing waits for it any more."""
    try:
        yield
    finally:
        server.thaw()


@asynccontextmanager
async def scheduling(kind: Any, url: str, **options: Any) -> AsyncIterator[Any]:
    """A scheduler of either kind at work."""
    async with AsyncExitStack() as stack:
        if kind is Scheduler:
            sync = stack.enter_context(Broker.connect(url, fleet="part"))
            scheduler: Any = Scheduler(sync, **options)
            running: Any = asyncio.to_thread(scheduler.run)
        else:
            broker = await stack.enter_async_context(AsyncBroker.connect(url, fleet="part"))
            scheduler = AsyncScheduler(broker, **options)
            running = scheduler.run()
        task = asyncio.create_task(running)
        try:
            yield scheduler
        finally:
            scheduler.stop()
            await task


def settled(parent: Parent, task: str) -> bool:
    """Whether it has come to an end."""
    return parent.task(task).settlement is not None


def lateness(parent: Parent, task: str) -> timedelta:
    """How long after its deadline it ended."""
    found = parent.task(task)
    assert found.settlement is not None
    return found.settlement.completed_at - found.deadline


def test_urls_that_do_not_fit_the_servers_say_so(cluster, url):
    """A Cluster url of one server, the url of one node, a number of partitions that differs."""
    single = url.removeprefix("redis://").partition("/")[0]
    advice = f"no node of a Cluster; write redis://{single}"
    with (
        Broker.connect(f"redis+cluster://{single}") as broker,
        pytest.raises(errors.InvalidInput, match=advice),
    ):
        broker.herds()
    advice = r"one node of a Cluster; write redis\+cluster"
    with (
        Broker.connect(f"redis://{cluster.servers[0].node}", fleet="node") as broker,
        pytest.raises(errors.Unavailable, match=advice),
    ):
        broker.herds()
    with Broker.connect(cluster.url, fleet="parted", partitions=4) as broker:
        broker.herds()
    with (
        Broker.connect(cluster.url, fleet="parted", partitions=5) as broker,
        pytest.raises(errors.InvalidInput, match="has 4 partitions, fixed at its first use"),
    ):
        broker.herds()
