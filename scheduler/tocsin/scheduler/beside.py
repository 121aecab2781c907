"""What runs beside something else: for a coroutine, and for a thread."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine
from types import TracebackType
from typing import Any

PATIENCE = 3.0
"""Seconds that it gets to end in what it is at."""


class AsyncBeside:
    """While inside, a task of its own runs `run`; at the end it is told to `stop`."""

    def __init__(
        self, run: Callable[[], Coroutine[Any, Any, None]], stop: Callable[[], None]
    ) -> None:
        self._run, self._stop = run, stop

    async def __aenter__(self) -> None:
        self._task = asyncio.create_task(self._run())

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stop()
        try:
            await asyncio.wait({self._task}, timeout=PATIENCE)
        finally:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)


class Beside:
    """While inside, a thread of its own runs `run`; at the end it is told to `stop`."""

    def __init__(self, run: Callable[[], None], stop: Callable[[], None]) -> None:
        self._run, self._stop = run, stop

    def __enter__(self) -> None:
        self._thread = threading.Thread(target=self._run, name="tocsin-notify", daemon=True)
        self._thread.start()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stop()
        self._thread.join(PATIENCE)
