# Generated from _async/scheduler.py by `make generate`; edit that file.

"""The scheduler: runs its duties, and sleeps until the next is due."""

from __future__ import annotations

import logging
import os
import platform
import random
import time
from contextlib import ExitStack
from importlib.metadata import version
from typing import Any

from tocsin.broker import keys
from tocsin.broker import timers as broker_timers
from tocsin.broker._sync.broker import Broker
from tocsin.broker.bells import SLOW_POLL
from tocsin.broker.errors import Unavailable
from tocsin.broker.ids import make_id
from tocsin.broker.settings import NotifySettings
from tocsin.broker.signals import Signal
from tocsin.scheduler._sync import timers
from tocsin.scheduler._sync.notify import Notifier
from tocsin.scheduler.beside import Beside

log = logging.getLogger("tocsin.scheduler")

REPORT_EVERY = 10.0
"""Seconds between reports of a scheduler that runs."""

_LONGEST_PAUSE = 5.0


class Scheduler:
    """Fires the timers of a fleet. Any number of schedulers may run; none needs another.

    Correctness lives in the scripts alone: two that look at one timer at once cost a script, and
    one that is killed or frozen leaves nothing behind.

    `notify` says how it tells a human of what needs one; without, or where it names neither a
    command nor a url, it does not.
    """

    def __init__(self, broker: Broker, notify: NotifySettings | None = None) -> None:
        self._broker = broker
        self._stopping = False
        self._signal: Signal | None = None
        self._reported = 0.0
        self._notifier: Notifier | None = None
        if notify is not None and notify.target is not None:
            self._notifier = Notifier(broker, notify)
        self.name = make_id("sched")
        """The id under which this scheduler reports."""

    def tick(self) -> dict[str, int]:
        """Runs every duty once over all partitions, to the end; how much each did."""
        done = dict((timers.fire(self._broker)).fired)
        return done if self._notifier is None else done | self._notifier.tick()

    def run(self) -> None:
        """Runs until `stop()`: sleeps until the next timer, and wakes when an earlier one comes.

        A lost doorbell costs seconds, never a timer: at the latest it looks every 10 s. While the
        server is away it waits with back-off and jitter.
        """
        self._signal = signal = Signal()
        with ExitStack() as stack:
            stack.enter_context(
                self._broker.hear(keys.doorbell(self._broker.name), "timer", signal)
            )
            if self._notifier is not None:
                beside = Beside(self._notifier.run, self._notifier.stop)
                stack.enter_context(beside)
            while not self._stopping:
                signal.clear()
                done = self._patient(self._pass, signal)
                if done is not None and not self._stopping:
                    wait = SLOW_POLL if done.next_in is None else min(done.next_in, SLOW_POLL)
                    signal.wait(wait * random.uniform(0.95, 1.0))
        try:
            self._report(None)
        except Unavailable:
            log.debug("the server is away; the last report runs out by itself")

    def stop(self) -> None:
        """Ends `run` after the pass it is in. May be called from any thread."""
        self._stopping = True
        if self._signal is not None:
            self._signal.set()

    def _pass(self) -> timers.Pass:
        started = time.monotonic()
        done = timers.fire(self._broker)
        if done.fired:
            log.info("fired %s", " ".join(f"{name}={n}" for name, n in sorted(done.fired.items())))
        if started - self._reported >= REPORT_EVERY or not self._reported:
            self._reported = started
            self._report({"pass_ms": round((time.monotonic() - started) * 1000, 1)})
        return done

    def _report(self, facts: dict[str, Any] | None) -> None:
        if facts is not None:
            facts |= {
                "host": platform.node(),
                "pid": os.getpid(),
                "version": version("tocsin"),
                **({} if self._notifier is None else {"alerts": self._notifier.counts}),
            }
        fleet = self._broker.fleet()
        self._broker.run(broker_timers.report(fleet, self.name, facts))

    def _patient(self, step: Any, signal: Signal) -> Any:
        """The result of a step, tried until the server answers; None if it was stopped first."""
        pause, told = 0.1, False
        while not self._stopping:
            try:
                result = step()
            except Unavailable as error:
                if not told:
                    log.warning("timers wait: %s", error.detail)
                told = True
                signal.clear()
                if not self._stopping:  # looked at after `clear`, which may wipe the word to stop
                    signal.wait(pause * random.uniform(0.5, 1.5))
                pause = min(pause * 2, _LONGEST_PAUSE)
            else:
                if told:
                    log.info("the server is back")
                return result
        return None
