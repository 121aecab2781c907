"""Duty: tell a human. Takes alerts, sends each to the outlet, tries again what failed.

It runs beside the timers, so that an outlet which is slow or dead holds up none. Any number of
schedulers share the work; an alert that a killed one had taken is told by another, by the same id.
How often an alert was tried is kept with it, not in a process, which may be gone at the next try.
"""

from __future__ import annotations

import logging
import random
from collections import Counter
from datetime import timedelta

from tocsin.broker import alerts, keys
from tocsin.broker._async.broker import AsyncBroker
from tocsin.broker.caller import Fleet
from tocsin.broker.errors import BrokerError
from tocsin.broker.settings import NotifySettings
from tocsin.scheduler._async.duty import AsyncDuty, Turn
from tocsin.scheduler._async.partitioned import AsyncPartitionedDuty, Pass
from tocsin.scheduler.outlets import AsyncOutlet

log = logging.getLogger("tocsin.scheduler")

TRIES = 12
"""Tries to tell an alert, about two hours in all, after which it is given up."""

FIRST_PAUSE = 5.0
"""Seconds after the first failed try, doubled with each, with jitter."""

LONGEST_PAUSE = 1_800.0

MARGIN = timedelta(seconds=30)
"""So long after its time-out an alert that was taken counts as untold, and another takes it."""

AT_ONCE = 16
"""Alerts that are told side by side at most: one of each of so many partitions."""

ROUNDS = 1_000
"""Rounds after which a pass ends, whatever has come meanwhile."""


class AsyncNotifier(AsyncPartitionedDuty):
    """Tells a human of a fleet's alerts, and makes the fleet note them while it runs."""

    name = "alerts"

    def __init__(self, broker: AsyncBroker, settings: NotifySettings) -> None:
        super().__init__(broker)
        self._settings = settings
        self._outlet = AsyncOutlet(settings)
        self._keeps = settings.notify_timeout + MARGIN
        self._stopping = False
        self.bell = keys.doorbell(broker.name), "alert"
        self.patience = AsyncDuty.patience + settings.notify_timeout.total_seconds()

    async def serve(self, fleet: Fleet, partitions: list[str]) -> Pass:
        """Tells the alerts that are due, until none is or none arrives.

        What fails is tried again in a later pass. Where the outlet is down, the others wait
        untried, so that an outage costs them none of their tries.
        """
        random.shuffle(partitions)
        done = Pass()
        waits: list[float] = []
        for start in range(0, len(partitions), AT_ONCE):
            group = partitions[start : start + AT_ONCE]
            for _ in range(ROUNDS):
                self.step()
                found, next_in = await self._take(fleet, group, done)
                if not found or self._stopping or not await self._tell(fleet, found, done.counts):
                    break
            waits += [next_in] if next_in is not None else []
        done.next_in = min(waits, default=None)
        done.counts = +done.counts
        return done

    async def _take(
        self, fleet: Fleet, partitions: list[str], done: Pass
    ) -> tuple[list[alerts.Alert], float | None]:
        found: list[alerts.Alert] = []
        waits: list[float] = []
        calls = [alerts.take(fleet, partition, 1, self._keeps) for partition in partitions]
        answers = await self._broker.link.run_many(calls)
        failures = [answer for answer in answers if isinstance(answer, BrokerError)]
        if len(failures) == len(answers):  # the server's trouble, not a partition's
            raise failures[0]
        for failure in failures:
            done.counts["set_aside"] += 1
            log.error("alerts of a partition are left out of this pass: %s", failure.detail)
        for taken in answers:
            if isinstance(taken, BrokerError):
                continue
            found += taken.alerts
            waits += [taken.next_in] if taken.next_in is not None else []
            if taken.dropped:
                done.counts["alerts_dropped"] += taken.dropped
                log.error(
                    "%d alerts found no room or could not be read, and were dropped untold",
                    taken.dropped,
                )
        return found, min(waits, default=None)

    async def _tell(self, fleet: Fleet, found: list[alerts.Alert], counts: Counter[str]) -> bool:
        """Tells alerts side by side, and ends each or puts it off; False if none got through."""
        wanted = [each for each in found if each.event in self._settings.notify_events]
        failures: dict[str, str | None] = {}
        if wanted:
            documents = [
                alerts.document(each, fleet.name, self._settings.notify_preview) for each in wanted
            ]
            self.step()
            told = await self._outlet.tell(documents)
            self.step()
            failures = dict(zip((each.id for each in wanted), told, strict=True))
        calls = [alerts.end(fleet, each, self._pause(each, failures, counts)) for each in found]
        for answer in await self._broker.link.run_many(calls):
            if isinstance(answer, BrokerError):
                raise answer
        return not failures or None in failures.values()

    def _pause(
        self, alert: alerts.Alert, failures: dict[str, str | None], counts: Counter[str]
    ) -> timedelta | None:
        """After how long to try again; None if it was told, is not wanted, or is given up."""
        if alert.id not in failures:
            counts["alerts_unwanted"] += 1
            return None
        failure = failures[alert.id]
        if failure is None:
            counts["alerts_told"] += 1
            return None
        if alert.tries >= TRIES:
            counts["alerts_given_up"] += 1
            log.error("alert %s is given up after %d tries: %s", alert.id, alert.tries, failure)
            return None
        counts["alerts_failed"] += 1
        log.warning("alert %s is not told yet: %s", alert.id, failure)
        pause = min(FIRST_PAUSE * 2 ** (alert.tries - 1), LONGEST_PAUSE)
        return timedelta(seconds=pause * random.uniform(0.5, 1.5))

    async def turn(self) -> Turn:
        """One pass over the alerts; where the outlet is down, it is left alone for a while."""
        done = await self.serve_all()
        told = done.counts
        wait = self.wait(done.next_in)
        if "alerts_failed" in told and "alerts_told" not in told:  # it is down
            wait = max(wait, FIRST_PAUSE)
        if told:
            log.info("%s", " ".join(f"{name}={n}" for name, n in sorted(told.items())))
        return Turn(wait * random.uniform(0.95, 1.0), told)

    def stop(self) -> None:
        """Ends the pass that it is in after what it is telling. May be called from any thread."""
        self._stopping = True
