# Generated from _async/duty.py by `make generate`; edit that file.

"""What a duty is, and the loop that turns one again and again, whatever becomes of the others."""

from __future__ import annotations

import logging
import random
import time
from abc import ABC, abstractmethod
from collections import Counter
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from functools import cached_property
from typing import ClassVar

from tocsin.broker._sync.broker import Broker
from tocsin.broker.background import BREATH
from tocsin.broker.errors import Unavailable
from tocsin.broker.pulse import PATIENCE, Pulse
from tocsin.broker.signals import Signal

log = logging.getLogger("tocsin.scheduler")

_FIRST_PAUSE, _LONGEST_PAUSE = 0.1, 2.0

WITHIN = 0.5
"""Seconds that a pass of a loop waits for servers that do not answer; the next goes on without."""


@dataclass
class Turn:
    """What one pass of a duty did, and in how many seconds the next is wanted at the latest."""

    next_in: float
    counts: Counter[str] = field(default_factory=Counter)


class Duty(ABC):
    """One kind of background work: a pass that anybody may call, and how to know of the next."""

    name: ClassVar[str]
    """What it is called in logs and reports."""

    bell: tuple[str, str] | None = None
    """The channel and topic that ask for a pass at once."""

    patience = PATIENCE
    """Seconds without a step after which something is wrong."""

    within: float | None = None
    """Seconds after which a pass leaves behind the servers that have not answered yet. None: it
    waits for all, as a single pass should."""

    @cached_property
    def pulse(self) -> Pulse:
        """How it gets on."""
        return Pulse(self.patience)

    def step(self) -> None:
        """Notes that it gets on: a long pass does after each of its parts."""
        self.pulse.beat()

    @property
    def under_way(self) -> bool:
        """Whether a part of an earlier pass still is."""
        return False

    @abstractmethod
    def turn(self) -> Turn:
        """One pass, as far as there is work now."""

    def leave(self) -> None:
        """Ends what is under way. A pass waits for all servers again."""
        self.within = None


class Loop:
    """Turns a duty until `stop`. A pass that fails is told, and tried again with back-off."""

    def __init__(self, duty: Duty) -> None:
        self.duty = duty
        self._stopping = False
        self._signal: Signal | None = None
        self._busy = 0.0
        self._began: float | None = None
        """When the pass that it is in began, or an earlier one of which a part is under way."""

    def run(self, broker: Broker) -> None:
        """Passes, and sleeps until the next is due or the duty's bell rings."""
        self._signal = signal = Signal()
        self.duty.within = WITHIN
        try:
            with self._hearing(broker, signal):
                self._turn(signal)
        finally:
            self.duty.leave()

    def _turn(self, signal: Signal) -> None:
        pause = _FIRST_PAUSE
        while not self._stopping:
            signal.clear()
            self.duty.step()
            self._began = self._began or time.monotonic()
            try:
                wait = (self.duty.turn()).next_in
            except Exception as error:
                self._failed(error)
                wait = pause * random.uniform(0.5, 1.5)
                pause = min(pause * 2, _LONGEST_PAUSE)
            else:
                self._went_well()
                pause = _FIRST_PAUSE
            if not self.duty.under_way:
                self._busy, self._began = self.busy, None
            self._sleep(signal, wait)

    def _sleep(self, signal: Signal, wait: float) -> None:
        """Until it is time for the next pass, or the signal is set; shows now and then that it is
        there, which costs the server nothing."""
        until = time.monotonic() + wait
        while not self._stopping:  # looked at after `clear`, which may wipe the word to stop
            self.duty.step()
            left = until - time.monotonic()
            if left <= 0 or signal.wait(min(left, BREATH)):
                return

    def stop(self) -> None:
        """Ends `run` after the pass it is in. May be called from any thread."""
        self._stopping = True
        if self._signal is not None:
            self._signal.set()

    @property
    def busy(self) -> float:
        """Seconds that it has spent in passes."""
        began = self._began
        return self._busy + (0.0 if began is None else time.monotonic() - began)

    def trouble(self) -> str:
        """What keeps the duty from turning; empty while it turns as it should."""
        return self.duty.pulse.trouble()

    def _hearing(self, broker: Broker, signal: Signal) -> AbstractContextManager[None]:
        return broker.hear(*self.duty.bell, signal) if self.duty.bell else nullcontext()

    def _failed(self, error: Exception) -> None:
        pulse = self.duty.pulse
        if not pulse.failing and isinstance(error, Unavailable):
            log.warning("%s wait: %s", self.duty.name, error.detail)
        elif not pulse.failing:
            log.error("%s failed and will be tried again", self.duty.name, exc_info=error)
        pulse.failed(error)

    def _went_well(self) -> None:
        if self.duty.pulse.failing:
            log.info("%s: going on again", self.duty.name)
        self.duty.pulse.went_well()
