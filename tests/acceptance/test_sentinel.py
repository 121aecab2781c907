"""A fleet on a primary that Sentinels watch, through failovers; and what `replicated` promises."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from functools import partial

import pytest

from tests.acceptance.load import working
from tests.acceptance.test_cluster import follows
from tests.fleets import bodies
from tests.requirements import proves
from tests.topologies import OneServer, SentinelServers
from tests.waiting import wait_until_async
from tocsin.broker import AsyncBroker, Broker, errors

pytestmark = pytest.mark.long


@pytest.fixture(scope="module")
def watched() -> Iterator[SentinelServers]:
    """Shared by the tests that leave it whole."""
    with SentinelServers() as servers:
        yield servers


def test_some_sentinels_may_be_away(watched):
    """One of a port where nobody listens, one that knows no such name, one that answers."""
    good = watched.sentinels[2].node
    with Broker.connect(f"redis+sentinel://{watched.name}@127.0.0.1:1,{good}/0") as broker:
        assert broker.fleet().partitions == 16
    with (
        Broker.connect(f"redis+sentinel://another@{good}/0") as broker,
        pytest.raises(errors.Unavailable, match="no answer from redis"),
    ):
        broker.fleet()


@proves("P1", "P11", "P12", "P16")
async def test_failovers_under_load():
    """Case 32: twice the primary dies; the fleet goes on, nothing is lost, nothing is twice."""
    with SentinelServers() as servers:
        async with working(servers.url, herds=4, durability="replicated") as load:
            for _ in range(2):
                primary = servers.primary
                primary.kill()
                await wait_until_async(partial(replaced, servers, primary), "the promotion", 30)
                await load.goes_on()
                await asyncio.to_thread(primary.start)
                await wait_until_async(partial(follows, primary), "it to be a replica", 30)


@proves("P11")
async def test_who_slept_through_a_failover_asks_again(monkeypatch):
    """A primary that was killed comes back empty, as one: nobody who knew it of old believes it."""
    monkeypatch.setattr("tocsin.broker.connections.FOUND_FOR", 1.0)
    with SentinelServers(replicas=1) as servers:
        async with (
            AsyncBroker.connect(servers.url, durability="replicated") as sure,
            AsyncBroker.connect(servers.url) as broker,
        ):
            opened = await sure.open_herd("h")
            parent = await broker.join("h", "parent", opened.token)
            server, before = broker.server, servers.primary
            before.kill()
            await wait_until_async(partial(replaced, servers, before), "the promotion", 60)
            await asyncio.to_thread(before.start)  # they make it a replica 10 s later
            await wait_until_async(
                lambda: time.monotonic() - server._found_at > 1.0, "what they said to be old"
            )
            assert bodies(await parent.receive()) == []


def replaced(servers: SentinelServers, primary: OneServer) -> bool:
    """Whether the Sentinels name another primary."""
    return servers.primary is not primary


@proves("P12")
async def test_replicated_means_that_a_replica_has_it(monkeypatch):
    """Replicas that hang: `unavailable`, also for the repeat, which wrote nothing of its own."""
    monkeypatch.setattr("tocsin.broker._async.link.REPLICATED_WITHIN", 0.3)
    monkeypatch.setattr("tocsin.broker.connections.REPLICATED_WITHIN", 0.3)
    with SentinelServers() as servers:
        replicas = [each for each in servers.servers[:3] if each is not servers.primary]
        async with (
            AsyncBroker.connect(servers.url, durability="replicated") as broker,
            AsyncBroker.connect(servers.url, durability="replicated") as other,
        ):
            parent = await broker.open_herd("h")
            elsewhere = await other.join("h", "parent", parent.token)
            await parent.register("scout")
            for sentinel in servers.sentinels:
                sentinel.freeze()  # else they would call it a failure of the primary
            for replica in replicas:
                replica.freeze()
            try:
                for again in (parent, parent, elsewhere, elsewhere):
                    with pytest.raises(errors.Unavailable, match="no replica confirmed it") as told:
                        await again.message("scout", "x", key="k")
                    assert told.value.retryable
            finally:
                for server in servers.servers:
                    server.thaw()
            sent = await elsewhere.message("scout", "x", key="k")
            assert sent.duplicate, "the first had its effect, once"


def test_a_durability_that_is_none_is_refused():
    """Naming what may be said."""
    with pytest.raises(errors.InvalidInput, match='durability must be "replicated" or None'):
        Broker.connect(durability="fsync")
