"""What runs side by side, as tasks of one event loop or as threads: loops, and steps of a pass."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Coroutine, Hashable, Mapping
from contextlib import suppress
from queue import Empty, SimpleQueue
from typing import Any, Generic, TypeVar

K = TypeVar("K", bound=Hashable)
T = TypeVar("T")

PATIENCE = 3.0
"""Seconds that the others get to end in when the first has ended."""


class AsyncCrew:
    """Runs coroutines side by side until the first of them ends, and soon all others."""

    async def work(self, loops: list[Callable[[], Coroutine[Any, Any, None]]]) -> None:
        """Returns when all have ended; one that takes too long over it is cancelled."""
        first, *others = [asyncio.create_task(loop()) for loop in loops]
        try:
            await first
            if others:
                await asyncio.wait(others, timeout=PATIENCE)
        finally:
            for task in (first, *others):
                task.cancel()
            await asyncio.gather(first, *others, return_exceptions=True)


class Crew:
    """Runs functions side by side until the first of them ends, and soon all others."""

    def work(self, loops: list[Callable[[], None]]) -> None:
        """Runs the first in the calling thread. One that takes too long over its end is left
        behind, and dies with the process."""
        threads = [threading.Thread(target=loop, daemon=True) for loop in loops[1:]]
        for thread in threads:
            thread.start()
        loops[0]()
        until = time.monotonic() + PATIENCE
        for thread in threads:
            thread.join(max(0.0, until - time.monotonic()))


class AsyncLanes(Generic[K, T]):
    """Steps side by side over many passes: one that hangs holds up neither the others nor a pass.

    A lane is what a step is about. It is busy until its step has ended, however many passes later.
    """

    def __init__(self) -> None:
        self._tasks: dict[K, asyncio.Task[T]] = {}

    @property
    def busy(self) -> list[K]:
        """The lanes whose steps have not ended."""
        return list(self._tasks)

    async def run(
        self, steps: Mapping[K, Callable[[], Coroutine[Any, Any, T]]], within: float | None
    ) -> list[T | Exception]:
        """Begins steps, and waits for these at most `within` seconds (None: to the end); what those
        came to that have ended by then, earlier ones included.
        """
        begun = {lane: asyncio.create_task(step()) for lane, step in steps.items()}
        self._tasks |= begun
        try:
            if begun:
                await asyncio.wait(begun.values(), timeout=within)
        except asyncio.CancelledError:
            await self.leave()
            raise
        ended = [lane for lane, task in self._tasks.items() if task.done()]
        return [_outcome(self._tasks.pop(lane)) for lane in ended]

    async def leave(self) -> None:
        """Ends what is under way."""
        for task in self._tasks.values():
            task.cancel()
        await asyncio.gather(*self._tasks.values(), return_exceptions=True)
        self._tasks.clear()


def _outcome(task: asyncio.Task[T]) -> T | Exception:
    error = task.exception()
    if error is None:
        return task.result()
    if isinstance(error, Exception):
        return error
    raise error


class Lanes(Generic[K, T]):
    """The same with threads. One that hangs at the end is left behind, and ends by its limits."""

    def __init__(self) -> None:
        self._outcomes: SimpleQueue[tuple[K, T | Exception]] = SimpleQueue()
        self._busy: set[K] = set()

    @property
    def busy(self) -> list[K]:
        """The lanes whose steps have not ended."""
        return list(self._busy)

    def run(self, steps: Mapping[K, Callable[[], T]], within: float | None) -> list[T | Exception]:
        """Begins steps, and waits for these at most `within` seconds (None: to the end); what those
        came to that have ended by then, earlier ones included.
        """
        for lane, step in steps.items():
            self._busy.add(lane)
            threading.Thread(target=self._go, args=(lane, step), daemon=True).start()
        until = None if within is None else time.monotonic() + within
        came: list[T | Exception] = []
        with suppress(Empty):
            while True:
                waits = not self._busy.isdisjoint(steps)
                left = None if until is None else max(0.0, until - time.monotonic())
                lane, outcome = self._outcomes.get(waits, left)
                self._busy.discard(lane)
                came.append(outcome)
        return came

    def _go(self, lane: K, step: Callable[[], T]) -> None:
        outcome: T | Exception
        try:
            outcome = step()
        except Exception as error:  # is told where the pass is
            outcome = error
        self._outcomes.put((lane, outcome))

    def leave(self) -> None:
        """Forgets what is under way."""
        self._busy.clear()
