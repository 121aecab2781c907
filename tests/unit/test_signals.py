"""What a waiting call sleeps on."""

from __future__ import annotations

import asyncio
import threading
import time

from tocsin.broker.signals import AsyncSignal, Signal


def test_a_signal_that_nobody_sets_ends_with_its_timeout():
    """And says that it was not set."""
    started = time.monotonic()
    assert Signal().wait(0.01) is False
    assert time.monotonic() - started < 5


def test_a_signal_set_before_the_wait_is_not_lost():
    """A bell may ring between the look and the wait; once cleared it is forgotten."""
    signal = Signal()
    signal.set()
    assert signal.wait(5) is True
    signal.clear()
    assert signal.wait(0) is False


def test_a_signal_is_set_from_another_thread():
    """As the bells do."""
    signal = Signal()
    thread = threading.Thread(target=signal.set)
    thread.start()
    assert signal.wait(5) is True
    thread.join()


async def test_an_async_signal_is_set_from_another_thread():
    """Its loop wakes at once, not at the next thing it does."""
    signal = AsyncSignal()
    thread = threading.Thread(target=signal.set)
    thread.start()
    assert await signal.wait(5) is True
    thread.join()


async def test_an_async_signal_behaves_like_the_other():
    """Timeout, set before, cleared."""
    signal = AsyncSignal()
    assert await signal.wait(0.01) is False
    signal.set()
    assert await signal.wait(5) is True
    signal.clear()
    assert await signal.wait(0.01) is False


async def test_a_cancelled_wait_is_cancelled():
    """A time-out of the caller's own is not taken for the signal's."""
    signal = AsyncSignal()
    waiting = asyncio.create_task(signal.wait(None))
    await asyncio.sleep(0)
    waiting.cancel()
    assert isinstance(
        (await asyncio.gather(waiting, return_exceptions=True))[0], asyncio.CancelledError
    )


def test_setting_a_signal_of_a_closed_loop_does_nothing():
    """A bell that rings late must not end the thread that listens for everybody."""
    made: list[AsyncSignal] = []

    async def make() -> None:
        made.append(AsyncSignal())

    asyncio.run(make())
    made[0].set()
