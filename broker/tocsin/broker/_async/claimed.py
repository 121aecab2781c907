"""A turn of a child that has a runner, in the hands of whoever runs it."""

from __future__ import annotations

import logging
import time
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING

from tocsin.broker import turns
from tocsin.broker._async.child import AsyncChild
from tocsin.broker._async.persisting import until_answered
from tocsin.broker.bells import SLOW_POLL
from tocsin.broker.runners import Runner
from tocsin.broker.signals import AsyncSignal
from tocsin.broker.turns import Claimed, Decision, Ended, Ending, Reason
from tocsin.broker.validation import check_timeout

if TYPE_CHECKING:
    from tocsin.broker._async.broker import AsyncBroker

log = logging.getLogger("tocsin.broker")


class AsyncClaimedTurn:
    """One turn of a child, which is this process's to run and nobody else's.

    `child` speaks for the agent by a token of this turn's, which stops with the turn; its lease is
    renewed while this process lives. `end` says how it went; a process that dies without it has
    lost the turn, which counts as a failure.
    """

    def __init__(self, child: AsyncChild, number: int, claimed: Claimed) -> None:
        self.child = child
        """The agent, as an instance of this process."""
        self.number = number
        """Which turn of the agent it is."""
        self.runner: Runner = claimed.runner
        """How it is to be run."""
        self.session = claimed.session
        """The session that the turn before it ended with."""
        self.reason: Reason = claimed.reason
        """`mail`, `nudge` (its task was left open) or `retry` (the one before it failed)."""
        self.attempt = claimed.attempt
        """1, and one more for each failure in a row before it."""
        self.stopping: str | None = None
        """Why it must stop, once `wait_stop` has found that out."""

    def __repr__(self) -> str:
        return f"turn {self.number} of {self.child}"

    @property
    def broker(self) -> AsyncBroker:
        """The broker that it was claimed with."""
        return self.child.broker

    @property
    def herd(self) -> str:
        """The name of the herd."""
        return self.child.herd

    @property
    def agent(self) -> str:
        """The name of the agent."""
        return self.child.agent

    @property
    def token(self) -> str:
        """What proves the agent while this turn runs, to its program too."""
        return self.child.token

    async def wait_stop(self, timeout: timedelta | float | None = None) -> bool:
        """Waits until the turn must stop, because its task was cancelled, its agent closed, or it
        counts as lost; `stopping` says why. False at `timeout` (a `timedelta` or seconds)."""
        seconds = check_timeout("wait_stop", "timeout", timeout)
        ends = None if seconds is None else time.monotonic() + seconds
        signal = AsyncSignal()
        look = turns.look(self.child.caller, self.number)
        with self.broker.hear(self.child.bell, "stop", signal):
            while True:
                signal.clear()
                self.stopping = await until_answered(self.child, partial(self.broker.run, look))
                if self.stopping is not None:
                    return True
                left = SLOW_POLL if ends is None else ends - time.monotonic()
                if left <= 0:
                    return False
                await signal.wait(min(left, SLOW_POLL))

    async def end(self, ending: Ending) -> Ended:
        """Reports how the turn ended, and returns what was decided. Repeating it changes nothing.

        What it had in hand is handled if it ended well (exit code 0), else it is given back. A turn
        that was lost before is `over`, and what it says of itself changes nothing.
        """
        self.broker.forget(self.child)
        call = turns.end(self.child.caller, self.number, ending)
        ended = await self.broker.run(call)
        if ended.decision is Decision.PARKED and ended.next_at and self._pauses(ending):
            fleet = await self.broker.fleet()
            await self.broker.run(
                turns.pause_account(fleet, self.runner.account or "", ended.next_at)
            )
        log.info("%s ended, %s: %s", self, ending.why, ended.decision)
        return ended

    def _pauses(self, ending: Ending) -> bool:
        return self.runner.account is not None and ending.account_limited
