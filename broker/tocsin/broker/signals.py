"""What a waiting call sleeps on, and what ends one: for a coroutine, and for a thread."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from queue import SimpleQueue
from types import TracebackType
from typing import Protocol, TypeVar

T = TypeVar("T")


class Settable(Protocol):
    """What wakes a waiting call."""

    def set(self) -> None:
        """Wakes it."""


class Signal:
    """Wakes one waiting thread.

    A lock that is free while it is set: an interrupt of who waits leaves nothing half done, as it
    can in `threading.Event`, which then nobody could set any more.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._lock.acquire()

    def set(self) -> None:
        """Wakes the waiter, or lets its next wait return at once."""
        with suppress(RuntimeError):  # it was set already
            self._lock.release()

    def clear(self) -> None:
        """Forgets what was set before."""
        self._lock.acquire(blocking=False)

    def wait(self, timeout: float | None) -> bool:
        """Waits until it is set, at most `timeout` seconds; whether it was. It is not set then."""
        return self._lock.acquire(timeout=-1 if timeout is None else max(0.0, timeout))


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


async def undisturbed(step: Callable[[], Awaitable[T]]) -> T:
    """What a step comes to, or a cancellation that came meanwhile, whatever became of it there."""
    with AsyncCancellation():
        return await step()


class _Hand:
    """A thread that does steps for the main one, which alone is interrupted (Ctrl-C) anywhere.

    It is spoken to by what an interrupt cannot leave half done: a queue and locks written in C.
    """

    def __init__(self) -> None:
        self.pid = os.getpid()
        self._steps: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        threading.Thread(target=self._run, name="tocsin-calls", daemon=True).start()

    def _run(self) -> None:
        while (step := self._steps.get()) is not None:
            step()

    def do(self, step: Callable[[], T]) -> T:
        """What the step returns or raises. An interrupt ends the wait, then this hand its work."""
        done, came = threading.Lock(), list[T]()
        failed: list[BaseException] = []
        done.acquire()

        def work() -> None:
            try:
                came.append(step())
            except BaseException as error:  # is raised where it is waited for
                failed.append(error)
            done.release()

        try:
            self._steps.put(work)
            done.acquire()
        except BaseException:
            self._steps.put(None)
            raise
        if failed:
            raise failed[0]
        return came[0]


_hands: list[_Hand] = []


def uninterrupted(step: Callable[[], T]) -> T:
    """What a step returns; an interrupt meanwhile ends the wait for it, and not the step.

    In the middle of a command it would leave a connection that owes an answer, and whoever came
    next would get it.
    """
    if threading.current_thread() is not threading.main_thread():
        return step()
    hand = _hands.pop() if _hands else _Hand()
    if hand.pid != os.getpid():  # a fork left its thread behind
        hand = _Hand()
    try:
        result = hand.do(step)
    except Exception:
        _hands.append(hand)
        raise
    _hands.append(hand)
    return result
