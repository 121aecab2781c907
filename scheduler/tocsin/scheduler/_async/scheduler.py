"""The scheduler: its duties, all of them once or each in a loop of its own."""

from __future__ import annotations

import logging
import time
from collections import Counter
from datetime import timedelta
from functools import partial
from typing import Any

from tocsin.broker._async.broker import AsyncBroker
from tocsin.broker.errors import BrokerError, Unavailable
from tocsin.broker.ids import make_id
from tocsin.broker.settings import NotifySettings
from tocsin.scheduler._async.duty import AsyncDuty, AsyncLoop
from tocsin.scheduler._async.forwarding import AsyncForwarding
from tocsin.scheduler._async.notify import AsyncNotifier
from tocsin.scheduler._async.planning import AsyncPlanning
from tocsin.scheduler._async.repair import REPAIR_EVERY, AsyncRepair, Sweep, sweep
from tocsin.scheduler._async.report import AsyncReport
from tocsin.scheduler._async.timers import AsyncTimers
from tocsin.scheduler._async.turns import AsyncLaunching
from tocsin.scheduler.crew import AsyncCrew

log = logging.getLogger("tocsin.scheduler")


class AsyncScheduler:
    """Does the background work of a fleet. Any number of schedulers may run; none needs another.

    Correctness lives in the scripts alone: two that look at one timer at once cost a script, and
    one that is killed or frozen leaves nothing behind. Each duty has its loop, so that one which
    fails or hangs stops no other; what it suffers from is in the scheduler's reports.
    """

    def __init__(
        self,
        broker: AsyncBroker,
        notify: NotifySettings | None = None,
        *,
        repair_every: timedelta | None = REPAIR_EVERY,
        rq_url: str | None = None,
    ) -> None:
        """`notify` says how it tells a human of what needs one; without, or where it names neither
        a command nor a url, it does not. `repair_every`: after a first sweep at its start, repair
        keeps this pace; None: none. `rq_url`: the plain Redis of RQ's queues, where turns
        of children that have a runner are launched; None: the fleet's server.
        """
        self._broker = broker
        self.name = make_id("sched")
        """The id under which this scheduler reports."""
        self._timers = AsyncTimers(broker)
        launching = AsyncLaunching(broker, rq_url)
        self._duties: list[AsyncDuty] = [
            self._timers,
            AsyncForwarding(broker),
            AsyncPlanning(broker, rq_url, lambda: launching.has_launched),
            launching,
        ]
        if repair_every is not None:
            self._duties.append(AsyncRepair(broker, repair_every))
        self._notifier: AsyncNotifier | None = None
        if notify is not None and notify.target is not None:
            self._notifier = AsyncNotifier(broker, notify)
            self._duties.append(self._notifier)
        self._report = AsyncReport(broker, self.name, self._facts)
        self._loops = [AsyncLoop(duty) for duty in [*self._duties, self._report]]
        self._measured = time.monotonic(), 0.0

    async def tick(self) -> dict[str, int]:
        """Runs every duty once over all partitions, to the end; how much each did.

        Repair is slow, so it takes part in the first tick and then when its time has come, which
        under a `ManualClock` is that clock's.
        """
        counts, failure = Counter[str](), None
        for duty in self._duties:
            try:
                counts += (await duty.turn()).counts
            except BrokerError as error:
                failure = failure or error
        if failure is not None:
            raise failure
        return dict(counts)

    async def repair(self, *, mend: bool = True) -> Sweep:
        """A sweep of the repair duty now, whatever its pace; without `mend` it only looks."""
        return await sweep(self._broker, mend=mend)

    async def run(self) -> None:
        """Runs until `stop()`: each duty sleeps until it is next due, or its bell rings.

        While the server is away they wait with back-off and jitter.
        """
        await AsyncCrew().work([partial(loop.run, self._broker) for loop in self._loops])
        try:
            await self._report.end()
        except Unavailable:
            log.debug("the server is away; the last report runs out by itself")

    def stop(self) -> None:
        """Ends `run` after the passes it is in. May be called from any thread."""
        for loop in self._loops:
            loop.stop()
        if self._notifier is not None:
            self._notifier.stop()

    def trouble(self) -> dict[str, str]:
        """Each loop of this process, its duties and its broker's own, and what keeps it from
        turning; empty while it turns as it should."""
        duties = {loop.duty.name: loop.trouble() for loop in self._loops}
        return duties | {each.loop: each.trouble for each in self._broker.health()}

    @property
    def lag(self) -> timedelta:
        """How late the oldest timer was that it knows of, at this moment."""
        return timedelta(seconds=self._timers.lag)

    def _facts(self) -> dict[str, Any]:
        return {
            "duties": self.trouble(),
            "lag_ms": round(self._timers.lag * 1000),
            "load": self._load(),
            "fired": self._timers.fired.total() - self._timers.fired["set_aside"],
            "left_out": self._timers.left_out,
        }

    def _load(self) -> float:
        """The share of its time in which it was firing timers, since it was last asked."""
        now, busy = time.monotonic(), self._loops[0].busy
        (before, was), self._measured = self._measured, (now, busy)
        return round(min(1.0, (busy - was) / max(now - before, 0.001)), 3)
