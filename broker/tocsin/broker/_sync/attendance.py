# Generated from _async/attendance.py by `make generate`; edit that file.

"""A call that stays on the line of an ask, from its first look to the end or the answer.

Who attends an ask, and what becomes of an answer that nobody fetches, the scripts decide
(`lua/include/attendance.lua`); this waits, looks again, and says what it has.
"""

from __future__ import annotations

import logging
import math
import time
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from tocsin.broker import asks
from tocsin.broker._sync.persisting import until_answered
from tocsin.broker.asks import Ended, Outcome, Pending
from tocsin.broker.bells import SLOW_POLL
from tocsin.broker.envelopes import Reply
from tocsin.broker.errors import BrokerError, Unavailable, WrongState
from tocsin.broker.ids import make_id
from tocsin.broker.probing import PROBE_WITHIN, Probe, Watch
from tocsin.broker.scripts import Call
from tocsin.broker.signals import Signal

if TYPE_CHECKING:
    from tocsin.broker._sync.agent import Agent

T = TypeVar("T")

log = logging.getLogger("tocsin.broker")

_LATER = 0.002
"""Seconds an asker looks after its timer, so that it is not just before."""

_SAMPLES = 10
"""How often an asker calls its probe in one window."""


class Attendance:
    """One waiting call of an agent's ask. `call` is its id among those that wait for the same."""

    def __init__(self, agent: Agent, request: str, probe: Probe | None) -> None:
        self._agent = agent
        self._request = request
        self._watch = Watch(probe)
        self.call = make_id("call")

    def count(self) -> str:
        """What the asker's probe counts now, for a script; empty without a probe."""
        if self._watch.probe is not None:
            signal = Signal()
            self._watch.start(signal)
            signal.wait(PROBE_WITHIN)
        return self._watch.totals()

    def look(self) -> Call[Outcome]:
        """The call that asks what has come of it, with what the probe counts now."""
        return asks.look(self._agent.caller, self._request, self.call, self.count())

    def wait(self, first: Call[Outcome], left: float | None) -> Reply | None:
        """Waits, at most so many seconds, and confirms what came; `first` opens or joins the ask.

        While the server is away it waits on, with back-off, at most until the ask's ceiling.
        """
        ends, ceiling = math.inf if left is None else time.monotonic() + left, -math.inf
        said, told, waited = False, False, False
        signal = Signal()
        try:
            with self._agent.broker.hear(self._agent.bell, f"ask:{self._request}", signal):
                outcome = self._agent._run(first)
                while isinstance(outcome, Pending):
                    now, waited = time.monotonic(), True
                    ceiling = now + outcome.ceiling
                    if now >= ends:
                        break
                    signal.wait(self._rest(outcome, ends - now))
                    signal.clear()
                    outcome = self._insist(self.look(), min(ends, ceiling), signal)
                if isinstance(outcome, Reply):
                    confirm = asks.confirm(self._agent.caller, self._request, self.call)
                    elsewhere = self._insist(confirm, min(ends, ceiling), signal)
                    said = True
                    if elsewhere is not None and waited:
                        raise self._elsewhere(elsewhere)
                    return outcome
                told = isinstance(outcome, Ended)
        except Unavailable as error:
            back = f"to come back to this ask: ask_wait({self._request!r})"
            raise Unavailable("ask", f"{error.detail}; {back}") from error
        finally:
            if not said:
                self._leave(told)
        if isinstance(outcome, Ended):
            raise outcome.error
        return None

    def _rest(self, pending: Pending, left: float) -> float:
        """Seconds until it looks again, if no bell rings before."""
        rest = min(pending.next + _LATER, SLOW_POLL, left)
        if self._watch.probe is not None:  # so that what grew is noticed about when it did
            rest = min(rest, pending.window / _SAMPLES)
        return rest

    def _elsewhere(self, instance: str) -> WrongState:
        holder = f"instance {instance}" if instance else "another instance"
        return WrongState(
            "ask",
            f"the answer to {self._request} came as mail, which {holder} has, because "
            "nobody seemed to wait for it any more; leave it to that one",
        )

    def _insist(self, call: Call[T], ends: float, signal: Signal) -> T:
        """The result of a call, for which it waits at most so long while the server is away."""
        run = partial(self._agent._run, call)
        return until_answered(self._agent, run, ends=ends, signal=signal)

    def _leave(self, told: bool) -> None:
        leaving = asks.leave(self._agent.caller, self._request, self.call, told=told)
        try:
            self._agent._run(leaving)
        except BrokerError as error:
            log.debug("%s left %s without saying so: %s", self._agent, self._request, error.detail)
