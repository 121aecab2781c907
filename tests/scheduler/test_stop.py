"""`stop` ends a scheduler, whatever it is waiting for."""

from __future__ import annotations

import asyncio
import logging
import random
import socket

import pytest

from tests.waiting import wait_until_async
from tocsin.broker import AsyncBroker
from tocsin.scheduler import AsyncScheduler


async def test_it_stops_in_the_midst_of_its_back_off(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A scheduler that waits for a server which is away hears `stop` at once, not afterwards."""
    monkeypatch.setattr(random, "uniform", lambda _low, _high: 36_000.0)  # an hour and more
    with socket.socket() as bound, caplog.at_level(logging.WARNING, "tocsin.scheduler"):
        bound.bind(("127.0.0.1", 0))
        url = f"redis://127.0.0.1:{bound.getsockname()[1]}/0"
        async with AsyncBroker.connect(url) as broker:
            scheduler = AsyncScheduler(broker)
            running = asyncio.create_task(scheduler.run())
            await wait_until_async(lambda: "timers wait" in caplog.text, "its warning")
            scheduler.stop()
            await asyncio.wait_for(running, 10)
