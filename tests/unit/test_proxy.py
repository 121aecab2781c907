"""The proxy that other tests trust to lose the right thing, once."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from tests.proxy import Proxy
from tests.waiting import wait_until


@pytest.fixture
def proxy(url: str) -> Iterator[Proxy]:
    with Proxy(url) as running:
        yield running


@pytest.fixture
def client(proxy: Proxy) -> Iterator[redis.Redis]:
    with redis.Redis.from_url(
        proxy.url, retry=Retry(NoBackoff(), 0), socket_timeout=0.3, decode_responses=True
    ) as connected:
        yield connected


def test_it_forwards(client: redis.Redis, fleet_name: str) -> None:
    """Without a plan it is not noticed, large values included."""
    client.set(fleet_name, "x" * 1_000_000)
    assert client.get(fleet_name) == "x" * 1_000_000


def test_answer_is_lost_once(proxy: Proxy, client: redis.Redis, fleet_name: str) -> None:
    """The command ran, its answer never came; the repeat gets through."""
    client.incr(fleet_name)
    cut = proxy.cut_next(fleet_name)
    client.ping()  # another command is left alone, although the last one would have fitted
    with pytest.raises(redis.ConnectionError):
        client.incr(fleet_name)
    cut.wait()
    assert client.incr(fleet_name) == 3


def test_command_is_lost_once(proxy: Proxy, client: redis.Redis, fleet_name: str) -> None:
    """The command never reached the server; the repeat gets through."""
    cut = proxy.cut_next(fleet_name, before=True)
    with pytest.raises(redis.ConnectionError):
        client.incr(fleet_name)
    cut.wait()
    assert client.incr(fleet_name) == 1


def test_frozen(proxy: Proxy, client: redis.Redis, fleet_name: str) -> None:
    """While frozen nothing gets through; afterwards what was sent arrives late."""
    client.ping()
    proxy.freeze()
    with pytest.raises(redis.TimeoutError):
        client.set(fleet_name, "late")
    proxy.thaw()
    wait_until(lambda: client.get(fleet_name) == "late", "the late command to arrive")


def test_cut_all(proxy: Proxy, client: redis.Redis, fleet_name: str) -> None:
    """Every connection is cut, with what was frozen on it; new ones are accepted."""
    client.ping()
    assert proxy.connections == 1
    proxy.freeze()
    with pytest.raises(redis.TimeoutError):
        client.set(fleet_name, "lost")
    proxy.cut_all()
    proxy.thaw()
    assert proxy.connections == 0
    assert client.get(fleet_name) is None


async def test_async_clients_use_it_too(proxy: Proxy, fleet_name: str) -> None:
    """Its threads serve a client that lives in a loop."""
    async with redis.asyncio.Redis.from_url(proxy.url, retry=Retry(NoBackoff(), 0)) as client:
        proxy.cut_next(fleet_name)
        with pytest.raises(redis.ConnectionError):
            await client.incr(fleet_name)
        assert await client.incr(fleet_name) == 2
