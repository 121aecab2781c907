"""Duty: fire what is due, herd by herd, over all partitions."""

from __future__ import annotations

import logging
import random
import time
from collections import Counter
from itertools import chain, cycle, islice, zip_longest
from math import inf

from tocsin.broker import keys, timers
from tocsin.broker._async.broker import AsyncBroker
from tocsin.broker.bells import SLOW_POLL
from tocsin.broker.caller import Fleet
from tocsin.broker.errors import BrokerError, Unavailable
from tocsin.scheduler._async.duty import Turn
from tocsin.scheduler._async.partitioned import AsyncPartitionedDuty, Pass

log = logging.getLogger("tocsin.scheduler")

VISIT = 100
"""Timers that one visit to a herd fires at most."""

ROUND = 100
"""Herds that one round visits at most, or one of each partition where there are more of those."""

CATCH_UP = 10
"""Visits that a round of few herds makes: what is left after one to each goes to those behind."""

ROUNDS = 10_000
"""Rounds after which a pass ends, whatever has become due meanwhile."""

JITTER = 0.05
"""Seconds by which schedulers that wait for one timer come apart: most then find it fired."""


class AsyncTimers(AsyncPartitionedDuty):
    """Fires what is due, and turns again when the next timer is.

    A lost doorbell costs seconds, never a timer: at the latest it looks every 10 s.
    """

    name = "timers"

    def __init__(self, broker: AsyncBroker) -> None:
        super().__init__(broker)
        self.bell = keys.doorbell(broker.name), "timer"
        self.fired: Counter[str] = Counter()
        """What it fired since it was made."""
        self._left_out: dict[str, dict[str, str]] = {}
        """By partition, the herds that could not be visited in its last pass, and why."""
        self._oldest: dict[str, float] = {}
        """By partition, when its oldest timer was or is due, by this process's clock."""

    @property
    def left_out(self) -> dict[str, str]:
        """Herds that could not be visited when it was last their turn, and why."""
        return {herd: why for some in list(self._left_out.values()) for herd, why in some.items()}

    @property
    def lag(self) -> float:
        """Seconds that the oldest timer it knows of is late, at this moment.

        Timers of herds that cannot be visited are not counted: nobody would catch up with them.
        """
        now = time.monotonic()
        return now - min([now, *self._oldest.values()])

    async def turn(self) -> Turn:
        """One pass over all partitions, until nothing is due."""
        done = await self.serve_all()
        self.fired += done.counts
        if done.counts:
            log.info("fired %s", " ".join(f"{name}={n}" for name, n in sorted(done.counts.items())))
        if done.next_in is None or done.next_in > SLOW_POLL:
            return Turn(SLOW_POLL * random.uniform(0.95, 1.0), done.counts)
        return Turn(done.next_in + random.uniform(0.0, JITTER), done.counts)

    async def serve(self, fleet: Fleet, partitions: list[str]) -> Pass:
        """Visits every herd that is due, round by round, until none is.

        A round visits each herd once, those of all partitions by turns, in an order of its own; a
        visited herd with more to do goes behind all that were due before. So a herd waits for one
        visit to each of those, however much is due in them. Two schedulers at once cost a script.
        """
        done, all_of_them = Pass(), list(partitions)
        behind, broken = set[str](), dict[str, str]()
        for _ in range(ROUNDS):
            random.shuffle(partitions)
            herds = await self._due(fleet, partitions, broken, done)
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
                done.counts.update(answer)
                if sum(answer.values()) >= VISIT:
                    behind.add(herd)
            # None went well, and not because records are broken: that is the server's trouble.
            if broken.keys() >= set(visits) and isinstance(failure, Unavailable):
                raise failure
        new = broken.keys() - self.left_out.keys()
        for herd in sorted(new):
            log.error("herd %s is left out until it can be visited: %s", herd, broken[herd])
        done.counts["set_aside"] += len(new)
        for partition in all_of_them:
            self._left_out[partition] = {
                herd: why for herd, why in broken.items() if fleet.partition(herd) == partition
            }
        return done

    async def _due(
        self, fleet: Fleet, partitions: list[str], broken: dict[str, str], done: Pass
    ) -> list[str]:
        """The herds of one round; notes in how many seconds the next is due that is not yet.

        Partitions that do not answer are taken out.
        """
        most = max(1, ROUND // len(partitions))
        looks = await self._broker.link.run_many(
            [timers.due(fleet, partition, most + len(broken)) for partition in partitions]
        )
        found: list[list[str]] = []
        waits = list[float]()
        skipped = broken.keys() | self.left_out.keys()
        for partition, look in zip(list(partitions), looks, strict=True):
            if isinstance(look, BrokerError):
                unseen, done.left_out = look, look.detail
                partitions.remove(partition)
                continue
            found.append([herd for herd in look.herds if herd not in broken][:most])
            late = [ms for herd, ms in look.late.items() if herd not in skipped]
            slack = -max(late) if late else inf if look.next_in is None else look.next_in
            self._oldest[partition] = time.monotonic() + slack / 1000
            waits += [look.next_in / 1000] if look.next_in is not None else []
        if not partitions:
            raise unseen
        done.next_in = min(waits, default=None)
        return [herd for herd in chain(*zip_longest(*found)) if herd is not None]
