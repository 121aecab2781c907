"""The pytest plugin: the fixture `fleet`."""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterator

import pytest

from tocsin.broker._sync.broker import Broker
from tocsin.broker.clock import ManualClock
from tocsin.broker.connections import Server
from tocsin.broker.testing.fleet import FakeServer, Fleet


@pytest.fixture
def fleet() -> Iterator[Fleet]:
    """A fresh fleet with a clock that moves only when the test advances it."""
    url = os.environ.get("TOCSIN_TEST_URL")
    server = Server(url) if url else FakeServer()
    name, clock = f"test-{uuid.uuid4().hex[:12]}", ManualClock()
    with Broker(server, name, clock) as broker:
        yield Fleet(server, name, clock, broker)
