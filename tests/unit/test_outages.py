"""However long a server is away: everything that waits for it goes on soon after it is back.

The loops are the real ones, with their real pauses; only the time in which they pass is made up.
"""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest

from tocsin.broker import background, connections
from tocsin.broker._async import persisting
from tocsin.broker._async.persisting import until_answered
from tocsin.broker.background import Background
from tocsin.broker.errors import Unavailable
from tocsin.scheduler._async import duty
from tocsin.scheduler._async.duty import AsyncDuty, AsyncLoop, Turn

SOON = 10.0
"""Seconds within which mail and timers flow again."""

OUTAGES = [("away", 60.0), ("silent", 120.0)]
"""A server that refuses at once, and a way that drops packets without a word."""


class Outage:
    """A server that is back at a moment of made-up time, and a call that tries to reach it."""

    def __init__(self, how: str, lasts: float) -> None:
        self.now = 0.0
        self.tries = 0
        self._silent = how == "silent"
        self.over = lasts

    def call(self) -> None:
        """One call as `link` makes it, with its tries, each as long as an answer may take."""
        self.tries += 1
        gives_up = self.now + connections.GIVE_UP_AFTER
        while self.now < self.over:
            if not self._silent:
                raise Unavailable("test", "refused")
            self.now += connections.ANSWER_WITHIN
            if self.now + connections.ANSWER_WITHIN > gives_up:
                raise Unavailable("test", "no answer")

    def wait(self, seconds: float | None = None) -> bool:
        """Waiting is all that takes time."""
        assert seconds is not None
        self.now += seconds
        return False


async def _an_agent(outage: Outage, monkeypatch: pytest.MonkeyPatch) -> None:
    class Signal:
        async def wait(self, timeout: float | None) -> bool:
            return outage.wait(timeout)

        def clear(self) -> None:
            pass

    async def step() -> None:
        outage.call()

    await until_answered("scout", step, signal=Signal())  # type: ignore[arg-type]


async def _a_thread(outage: Outage, monkeypatch: pytest.MonkeyPatch) -> None:
    class Bells(Background):
        name, meanwhile = "test", "test"

        def _step(self) -> None:
            outage.call()
            self._stopping.set()

        def _interrupt(self) -> None:
            pass

    bells = Bells()
    with monkeypatch.context() as patch:
        patch.setattr(bells._stopping, "wait", outage.wait)
        bells._run()


async def _a_duty(outage: Outage, monkeypatch: pytest.MonkeyPatch) -> None:
    class Timers(AsyncDuty):
        name = "test"

        async def turn(self) -> Turn:
            outage.call()
            loop.stop()
            return Turn(0.0)

    async def sleep(_: AsyncLoop, signal: object, wait: float) -> None:
        outage.wait(wait)

    loop = AsyncLoop(Timers())
    with monkeypatch.context() as patch:
        patch.setattr(duty.AsyncLoop, "_sleep", sleep)
        await loop.run(None)  # type: ignore[arg-type]


@pytest.mark.parametrize(("how", "lasts"), OUTAGES)
@pytest.mark.parametrize("waits", [_an_agent, _a_thread, _a_duty])
async def test_what_waits_for_a_server_goes_on_soon_after_it_is_back(
    monkeypatch, caplog, waits: Callable, how, lasts
):
    """Case 32: away for 60 s, silent for 2 minutes; told once, and no storm of tries meanwhile."""
    for seed in range(50):
        random.seed(seed)
        outage = Outage(how, lasts + seed / 10)
        caplog.clear()

        await waits(outage, monkeypatch)

        assert 0 <= outage.now - outage.over <= SOON, seed
        assert 5 < outage.tries < outage.over, "a try a second at most"
        warnings = [record for record in caplog.records if record.levelname == "WARNING"]
        assert len(warnings) == 1, [record.message for record in warnings]


def test_no_pause_is_longer_than_recovery_may_take():
    """Case 32: with its jitter, and an answer that does not come."""
    for longest in (persisting.LONGEST_PAUSE, background._LONGEST_PAUSE, duty._LONGEST_PAUSE):
        assert longest * 1.5 + connections.ANSWER_WITHIN < SOON
