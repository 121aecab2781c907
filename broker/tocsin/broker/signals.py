"""What a waiting call sleeps on, and what ends one: for a coroutine, and for a thread."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from types import TracebackType
from typing import Protocol, TypeVar

T = TypeVar("T")


class Settable(Protocol):
    """What wakes a waiting call."""

    def set(self) -> None:
        """Wakes it."""


class Signal:
    """Wakes one waiting thread."""

    def __init__(self) -> None:
        self._event = threading.Event()

    def set(self) -> None:
        """Wakes the waiter, or lets its next wait return at once."""
        self._event.set()

    def clear(self) -> None:
        """Forgets what was set before."""
        self._event.clear()

    def wait(self, timeout: float | None) -> bool:
        """Waits until it is set, at most `timeout` seconds; whether it was."""
        return self._event.wait(timeout)


class AsyncSignal:
    """Wakes one waiting coroutine."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._event = asyncio.Event()

    def set(self) -> None:
        """Wakes the waiter, from whatever thread; nothing if its loop has closed."""
        with suppress(RuntimeError):  # it closed
            self._loop.call_soon_threadsafe(self._event.set)

    def clear(self) -> None:
        """Forgets what was set before."""
        self._event.clear()

    async def wait(self, timeout: float | None) -> bool:
        """Waits until it is set, at most `timeout` seconds; whether it was."""
        try:
            async with asyncio.timeout(timeout):
                await self._event.wait()
        except TimeoutError:
            return False
        return True


async def in_thread(function: Callable[[], T]) -> T:
    """What it returns; it holds up no event loop while it is at it."""
    return await asyncio.to_thread(function)


def at_once(function: Callable[[], T]) -> T:
    """What it returns."""
    return function()


async def together(steps: Sequence[Callable[[], Awaitable[T]]]) -> list[T]:
    """What they come to, all at once."""
    if len(steps) == 1:
        return [await steps[0]()]
    return list(await asyncio.gather(*(step() for step in steps)))


def in_threads(steps: Sequence[Callable[[], T]]) -> list[T]:
    """What they come to, all at once."""
    if len(steps) <= 1:
        return [step() for step in steps]
    with ThreadPoolExecutor(len(steps)) as threads:
        return list(threads.map(lambda step: step(), steps))


class Cancellation:
    """Threads are not cancelled: does nothing."""

    def __enter__(self) -> None:
        pass

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        pass


class AsyncCancellation:
    """Sees that a cancellation which comes while inside is raised, whatever was done with it there.

    The redis client sends through `asyncio.wait_for`. Up to Python 3.11 that returns a result which
    comes in the same moment instead, and a task that should have ended goes on.
    """

    def __init__(self) -> None:
        self._task = asyncio.current_task()
        self._before = self._task.cancelling() if self._task is not None else 0

    def __enter__(self) -> None:
        pass

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        swallowed = self._task is not None and self._task.cancelling() > self._before
        if swallowed and (error is None or isinstance(error, Exception)):
            raise asyncio.CancelledError
