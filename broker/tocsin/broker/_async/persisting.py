"""A call that is tried again, with back-off and jitter, while what hinders it may pass."""

from __future__ import annotations

import logging
import math
import random
import time
from collections.abc import Awaitable, Callable
from typing import TypeVar

from tocsin.broker.errors import BrokerError, Unavailable
from tocsin.broker.signals import AsyncSignal

T = TypeVar("T")

log = logging.getLogger("tocsin.broker")

LONGEST_PAUSE = 3.0
"""Seconds between tries at most, but for jitter: even where the last answer of an outage fails to
come for 4 s, what waits goes on within 10 s of its end."""


async def until_answered(
    who: object,
    step: Callable[[], Awaitable[T]],
    *,
    hindered: tuple[type[BrokerError], ...] = (Unavailable,),
    ends: float = math.inf,
    signal: AsyncSignal | None = None,
    first: float = 0.05,
    longest: float = LONGEST_PAUSE,
) -> T:
    """What a step returns, tried again for as long as it is `hindered`: the server is away.

    The last try comes at `ends` (`time.monotonic`), and what it raises is raised. A `signal` has
    the next try come at once; without one each pause, from `first` to `longest` seconds, is slept.
    """
    signal = signal or AsyncSignal()
    pause, told = first, False
    while True:
        try:
            return await step()
        except hindered as error:
            left = ends - time.monotonic()
            if left <= 0:
                raise
            if isinstance(error, Unavailable) and not told:
                log.warning("%s waits: %s", who, error.detail)
                told = True
        await signal.wait(min(left, pause * random.uniform(0.5, 1.5)))
        signal.clear()
        pause = min(pause * 2, longest)
