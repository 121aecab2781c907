# Generated from _async/duty.py by `make generate`; edit that file.

"""What a duty is, and the loop that turns one again and again, whatever becomes of the others."""

from __future__ import annotations

import logging
import random
import time
from collections import Counter
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import Protocol

from tocsin.broker._sync.broker import Broker
from tocsin.broker.errors import Unavailable
from tocsin.broker.signals import Signal

log = logging.getLogger("tocsin.scheduler")

_FIRST_PAUSE, _LONGEST_PAUSE = 0.1, 5.0


@dataclass
class Turn:
    """What one pass of a duty did, and in how many seconds the next is wanted at the latest."""

    next_in: float
    counts: Counter[str] = field(default_factory=Counter)


class Duty(Protocol):
    """One kind of background work: a pass that anybody may call, and how to know of the next."""

    @property
    def name(self) -> str:
        """What it is called in logs and reports."""

    @property
    def bell(self) -> tuple[str, str] | None:
        """The channel and topic that ask for a pass at once."""

    @property
    def patience(self) -> float:
        """Seconds that a good pass may be late, before something is wrong."""

    def turn(self) -> Turn:
        """One pass, as far as there is work now."""


class Loop:
    """Turns a duty until `stop`. A pass that fails is told, and tried again with back-off."""

    def __init__(self, duty: Duty) -> None:
        self.duty = duty
        self._stopping = False
        self._signal: Signal | None = None
        self._expected = time.monotonic()  # when a pass should have begun or ended well
        self._error: Exception | None = None

    def run(self, broker: Broker) -> None:
        """Passes, and sleeps until the next is due or the duty's bell rings."""
        self._signal = signal = Signal()
        pause, self._expected = _FIRST_PAUSE, time.monotonic()
        with self._hearing(broker, signal):
            while not self._stopping:
                signal.clear()
                try:
                    wait = (self.duty.turn()).next_in
                except Exception as error:
                    self._failed(error)
                    wait = pause * random.uniform(0.5, 1.5)
                    pause = min(pause * 2, _LONGEST_PAUSE)
                else:
                    self._went_well()
                    pause, self._expected = _FIRST_PAUSE, time.monotonic() + wait
                if not self._stopping:  # looked at after `clear`, which may wipe the word to stop
                    signal.wait(wait)

    def stop(self) -> None:
        """Ends `run` after the pass it is in. May be called from any thread."""
        self._stopping = True
        if self._signal is not None:
            self._signal.set()

    def trouble(self) -> str:
        """What keeps the duty from turning; empty while it turns as it should."""
        late = time.monotonic() - self._expected
        if late <= self.duty.patience:
            return ""
        why = f"fails: {self._error}" if self._error else "hangs in one pass"
        return f"has done nothing for {late:.0f} s, because it {why}"

    def _hearing(self, broker: Broker, signal: Signal) -> AbstractContextManager[None]:
        return broker.hear(*self.duty.bell, signal) if self.duty.bell else nullcontext()

    def _failed(self, error: Exception) -> None:
        if self._error is None and isinstance(error, Unavailable):
            log.warning("%s wait: %s", self.duty.name, error.detail)
        elif self._error is None:
            log.error("%s failed and will be tried again", self.duty.name, exc_info=error)
        self._error = error

    def _went_well(self) -> None:
        if self._error is not None:
            log.info("%s: going on again", self.duty.name)
        self._error = None
