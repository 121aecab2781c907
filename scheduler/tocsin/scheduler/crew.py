"""Loops that run side by side: as tasks of one event loop, or as threads."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Coroutine
from typing import Any

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
