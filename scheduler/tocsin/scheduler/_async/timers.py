"""Duty: fire what is due, herd by herd, over all partitions."""

from __future__ import annotations

import logging
import random
import time
from collections import Counter
from itertools import chain, cycle, islice, zip_longest

from tocsin.broker import keys, timers
from tocsin.broker._async.broker import AsyncBroker
from tocsin.broker.bells import SLOW_POLL
from tocsin.broker.caller import Fleet
from tocsin.broker.errors import BrokerError, Unavailable
from tocsin.scheduler._async.duty import AsyncDuty, Turn

log = logging.getLogger("tocsin.scheduler")

VISIT = 100
"""Timers that one visit to a herd fires at most."""

ROUND = 100
"""Herds that one round visits at most, or one of each partition where there are more of those."""

CATCH_UP = 10
"""Visits that a round of few herds makes: what is left after one to each goes to those behind."""

ROUNDS = 10_000
"""Rounds after which a pass ends, whatever has become due meanwhile."""

AGAIN = 1.0
"""Seconds after which partitions that did not answer are looked at again."""

JITTER = 0.05
"""Seconds by which schedulers that wait for one timer come apart: most then find it fired."""


class AsyncTimers(AsyncDuty):
    """Fires what is due, and turns again when the next timer is.

    A lost doorbell costs seconds, never a timer: at the latest it looks every 10 s.
    """

    name = "timers"

    def __init__(self, broker: AsyncBroker) -> None:
        self._broker = broker
        self.bell = keys.doorbell(broker.name), "timer"
        self.fired: Counter[str] = Counter()
        """What it fired since it was made."""
        self.left_out: dict[str, str] = {}
        """Herds that could not be visited in the last pass, and why."""
        self._oldest: float | None = None
        """When the oldest timer it knows of was or is due, by this process's clock."""

    @property
    def lag(self) -> float:
        """Seconds that the oldest timer it knows of is late, at this moment.

        Timers of herds that cannot be visited are not counted: nobody would catch up with them.
        """
        return 0.0 if self._oldest is None else max(0.0, time.monotonic() - self._oldest)

    async def turn(self) -> Turn:
        """One pass over all partitions, until nothing is due."""
        before = self.fired.copy()
        next_in = await self._fire()
        fired = self.fired - before
        if fired:
            log.info("fired %s", " ".join(f"{name}={n}" for name, n in sorted(fired.items())))
        if next_in is None or next_in > SLOW_POLL:
            return Turn(SLOW_POLL * random.uniform(0.95, 1.0), fired)
        return Turn(next_in + random.uniform(0.0, JITTER), fired)

    async def _fire(self) -> float | None:
        """Visits every herd that is due, round by round, until none is; in how many seconds one is.

        A round visits each herd once, those of all partitions by turns, in an order of its own; a
        visited herd with more to do goes behind all that were due before. So a herd waits for one
        visit to each of those, however much is due in them. Two schedulers at once cost a script.
        Partitions whose server is gone are left out until it was replaced; the others' timers fire.
        """
        fleet = await self._broker.fleet()
        partitions = [keys.partition(fleet.name, number) for number in range(fleet.partitions)]
        behind, broken, next_in = set[str](), dict[str, str](), None
        for _ in range(ROUNDS):
            random.shuffle(partitions)
            herds, next_in = await self._due(fleet, partitions, broken)
            self.step()
            if not herds:
                break
            again = cycle([herd for herd in herds if herd in behind])
            visits = [*herds, *islice(again, max(0, CATCH_UP - len(herds)))]
            answers = await self._broker.link.run_many(
                [timers.visit(fleet, herd, VISIT) for herd in visits]
            )
            self.step()
            behind.clear()
            for herd, answer in zip(visits, answers, strict=True):
                if isinstance(answer, BrokerError):
                    broken[herd], failure = answer.detail, answer
                    continue
                self.fired.update(answer)
                if sum(answer.values()) >= VISIT:
                    behind.add(herd)
            # None went well, and not because records are broken: that is the server's trouble.
            if broken.keys() >= set(visits) and isinstance(failure, Unavailable):
                raise failure
        if len(partitions) < fleet.partitions:
            next_in = AGAIN if next_in is None else min(next_in, AGAIN)
        new = broken.keys() - self.left_out.keys()
        for herd in sorted(new):
            log.error("herd %s is left out until it can be visited: %s", herd, broken[herd])
        self.fired["set_aside"] += len(new)
        self.left_out = broken
        return next_in

    async def _due(
        self, fleet: Fleet, partitions: list[str], broken: dict[str, str]
    ) -> tuple[list[str], float | None]:
        """The herds of one round, and in how many seconds the next is due that is not yet."""
        most = max(1, ROUND // len(partitions))
        looks = await self._broker.link.run_many(
            [timers.due(fleet, partition, most + len(broken)) for partition in partitions]
        )
        found: list[list[str]] = []
        late, waits = list[float](), list[float]()
        for partition, look in zip(list(partitions), looks, strict=True):
            if isinstance(look, BrokerError):
                unseen = look
                partitions.remove(partition)
                continue
            found.append([herd for herd in look.herds if herd not in broken][:most])
            skipped = broken.keys() | self.left_out.keys()
            late += [ms / 1000 for herd, ms in look.late.items() if herd not in skipped]
            waits += [look.next_in / 1000] if look.next_in is not None else []
        if not partitions:
            raise unseen
        if len(partitions) < len(looks):
            log.warning("some partitions are left out of this pass: %s", unseen.detail)
        next_in = min(waits, default=None)
        slack = -max(late) if late else next_in
        self._oldest = None if slack is None else time.monotonic() + slack
        return [herd for herd in chain(*zip_longest(*found)) if herd is not None], next_in
