"""A task that is cancelled in the midst of a call ends, whatever the call was doing."""

from __future__ import annotations

import asyncio

import pytest

from tocsin.broker import AsyncBroker
from tocsin.broker.signals import AsyncCancellation


@pytest.mark.parametrize("steps", range(0, 40, 2))
async def test_a_loop_of_calls_ends_when_it_is_cancelled(
    url: str, fleet_name: str, steps: int
) -> None:
    """Cancelled at any step of a call: while it connects, sends or reads.

    Sending is where it was lost: redis-py sends through `asyncio.wait_for`, which up to Python 3.11
    returns what was sent instead of raising.
    """
    async with AsyncBroker.connect(url, fleet=fleet_name) as broker:
        await broker.fleet()

        async def work() -> None:
            while True:
                await broker.link.command("test", "PING")

        task = asyncio.create_task(work())
        for _ in range(steps):
            await asyncio.sleep(0)
        task.cancel()
        done, _ = await asyncio.wait({task}, timeout=2)
        while not done:  # so that a failure does not hang
            task.cancel()
            done, _ = await asyncio.wait({task}, timeout=0.01)
        assert task.cancelled() and task.cancelling() == 1, "the first cancellation was lost"


async def _swallow(started: asyncio.Event, then: Exception | None = None) -> str:
    try:
        started.set()
        await asyncio.Event().wait()
    except asyncio.CancelledError:
        if then is not None:
            raise then from None
    return "swallowed"


@pytest.mark.parametrize("then", [None, ConnectionError("lost")], ids=["result", "error"])
async def test_a_swallowed_cancellation_is_raised(then: Exception | None) -> None:
    """Also when what swallowed it ends with an error of its own."""
    started = asyncio.Event()

    async def work() -> str:
        with AsyncCancellation():
            return await _swallow(started, then)

    task = asyncio.create_task(work())
    await started.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_a_cancellation_that_came_before_is_not_raised_again() -> None:
    """A task that cleans up after its cancellation may still make calls."""
    started = asyncio.Event()

    async def work() -> str:
        await _swallow(started)
        with AsyncCancellation():
            return "cleaned up"

    task = asyncio.create_task(work())
    await started.wait()
    task.cancel()
    assert await task == "cleaned up"
