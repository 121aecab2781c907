"""A fleet for one test: in memory, or on a real server, with a clock that the test moves."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import redis
import redis.asyncio

from tocsin.broker import agents
from tocsin.broker._async.agent import AsyncAgent
from tocsin.broker._async.broker import AsyncBroker
from tocsin.broker._sync.agent import Agent
from tocsin.broker._sync.broker import Broker
from tocsin.broker._sync.link import Link
from tocsin.broker.clock import ManualClock
from tocsin.broker.connections import ONLY, Server
from tocsin.broker.urls import Node


class FakeServer(Server):
    """A server in this process, by fakeredis. All brokers made with one instance share it."""

    plain = True

    def __init__(self) -> None:
        import fakeredis  # an extra: `pip install tocsin[testing]`

        super().__init__("redis://fake")
        self._fakeredis: Any = fakeredis
        # Protocol 2: fakeredis hands the answers of protocol 3 to scripts, as no server does.
        self._store = fakeredis.FakeServer()

    def connect(self, node: Node = ONLY) -> redis.Redis:
        """A client for calls from threads."""
        client: redis.Redis = self._fakeredis.FakeRedis(server=self._store, protocol=2)
        return client

    def connect_async(self, node: Node = ONLY) -> redis.asyncio.Redis:
        """A client for calls from an event loop."""
        client: redis.asyncio.Redis = self._fakeredis.FakeAsyncRedis(server=self._store, protocol=2)
        return client

    def connect_line(self, node: Node = ONLY) -> Any:
        """A connection to listen on."""
        return self.connect().connection_pool.make_connection()


@dataclass(frozen=True)
class Fleet:
    """A fleet for a test: where it is, its clock, and a sync broker of it."""

    server: Server
    name: str
    clock: ManualClock
    broker: Broker

    def async_broker(self) -> AsyncBroker:
        """Another broker of the same fleet and clock, for a test with an event loop."""
        return AsyncBroker(self.server, self.name, self.clock)


def lapse(instance: Agent | AsyncAgent) -> None:
    """Ends an instance as if its process had died and its lease and grace had run out.

    What it held is handed back with one more attempt. Blocks shortly, for async agents too.
    """
    broker = instance.broker
    broker.forget(instance)  # type: ignore[arg-type]
    link = Link(broker.server)
    try:
        while not link.run(agents.leave(instance.caller, died=True)):
            pass
    finally:
        link.close()
