"""How fast the demo's clock runs, and the moments of the story on it.

Each moment keeps some real seconds from the one before it, so that the story is the same story at
any speed: a busy machine delays a process by real time, not by the fleet's.
"""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass
from datetime import datetime, timedelta

from tocsin.broker import AsyncBroker, ScaledClock
from tocsin.broker.clock import from_ms

THRESHOLD = timedelta(minutes=5)
"""A wait this old raises its reminder: the default, which the demo insists on."""

GLANCE = timedelta(minutes=1)
"""How often the parent looks into its inbox."""


@dataclass(frozen=True)
class Pace:
    """The fleet's clock, seen from a process: `speed` times the real one, since `base` (ms)."""

    speed: float
    base: int = 0

    @property
    def answer_after(self) -> timedelta:
        """How long the planner leaves its first question: past the threshold, by a good while."""
        return self._after_threshold(timedelta(minutes=7), real_seconds=2)

    @property
    def reply_within(self) -> timedelta:
        """The reply deadline of the second question, which nobody answers."""
        return self._after_threshold(timedelta(minutes=8), real_seconds=3)

    @property
    def reply_timeout(self) -> timedelta:
        """The reply deadline of a question without one of its own."""
        return self._after_threshold(timedelta(minutes=20), real_seconds=15)

    @property
    def retention(self) -> timedelta:
        """How long the records of the closed herd are kept: a real second."""
        return self.fleet_time(1)

    def fleet_time(self, real_seconds: float) -> timedelta:
        """What the fleet's clock does in some real seconds."""
        return timedelta(milliseconds=round(real_seconds * self.speed * 1000))

    def real_seconds(self, duration: timedelta) -> float:
        """How long a duration of the fleet really takes."""
        return duration.total_seconds() / self.speed

    def now(self) -> datetime:
        """What the fleet's clock shows."""
        return from_ms(self.base + (time.time() * 1000 - self.base) * self.speed)

    async def sleep(self, duration: timedelta) -> None:
        """Lets some of the fleet's time pass."""
        await asyncio.sleep(max(0.0, self.real_seconds(duration)))

    async def sleep_until(self, moment: datetime) -> None:
        """Waits until the fleet's clock shows `moment`."""
        await self.sleep(moment - self.now())

    def _after_threshold(self, usual: timedelta, real_seconds: float) -> timedelta:
        return max(usual, THRESHOLD + self.fleet_time(real_seconds))


async def pace_of(broker: AsyncBroker) -> Pace:
    """The pace of a fleet, as its first broker fixed it for all its clients."""
    clock = (await broker.fleet()).clock
    if not isinstance(clock, ScaledClock) or clock.base is None:
        raise RuntimeError(f"fleet {broker.name} runs on no scaled clock")
    return Pace(clock.factor, clock.base)
