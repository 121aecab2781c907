# Generated from _async/timers.py by `make generate`; edit that file.

"""Duty: fire what is due, herd by herd, over all partitions."""

from __future__ import annotations

import logging
import random
from collections import Counter
from dataclasses import dataclass, field

from tocsin.broker import keys, timers
from tocsin.broker._sync.broker import Broker
from tocsin.broker.bells import SLOW_POLL
from tocsin.broker.errors import BrokerError
from tocsin.scheduler._sync.duty import Turn

log = logging.getLogger("tocsin.scheduler")

VISIT = 100
"""Timers that one visit to a herd fires at most."""

HERDS = 100
"""Herds of a partition that one round visits at most."""

CATCH_UP = 10
"""Visits in one round to a herd whose last visit did not reach the end of what was due."""

ROUNDS = 10_000
"""Rounds after which a pass ends, whatever has become due meanwhile."""

AGAIN = 1.0
"""Seconds after which partitions that did not answer are looked at again."""


@dataclass
class Pass:
    """What a pass did, and in how many seconds the next timer is due (None: there is none)."""

    fired: Counter[str] = field(default_factory=Counter)
    next_in: float | None = None


class Timers:
    """Fires what is due, and turns again when the next timer is.

    A lost doorbell costs seconds, never a timer: at the latest it looks every 10 s.
    """

    name = "timers"
    patience = 30.0

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self.bell = keys.doorbell(broker.name), "timer"

    def turn(self) -> Turn:
        """One pass over all partitions, until nothing is due."""
        done = fire(self._broker)
        if done.fired:
            log.info("fired %s", " ".join(f"{name}={n}" for name, n in sorted(done.fired.items())))
        wait = SLOW_POLL if done.next_in is None else min(done.next_in, SLOW_POLL)
        return Turn(wait * random.uniform(0.95, 1.0), done.fired)


def fire(broker: Broker) -> Pass:
    """Visits every herd that is due, round by round, until none is.

    Each round takes all partitions in an order of its own; a herd with a backlog goes behind those
    that were due before, so that none is starved. Two schedulers at once cost a script, no more.
    Partitions whose server is gone are left out until it was replaced; the others' timers fire.
    """
    fleet = broker.fleet()
    partitions = [keys.partition(fleet.name, number) for number in range(fleet.partitions)]
    done, behind, broken = Pass(), set[str](), set[str]()
    for _ in range(ROUNDS):
        random.shuffle(partitions)
        looks = broker.link.run_many(
            [timers.due(fleet, partition, HERDS) for partition in partitions]
        )
        herds: list[str] = []
        waits: list[float] = []
        for partition, look in zip(list(partitions), looks, strict=True):
            if isinstance(look, BrokerError):
                unseen = look
                partitions.remove(partition)
                continue
            herds += [herd for herd in look.herds if herd not in broken]
            waits += [look.next_in / 1000] if look.next_in is not None else []
        if not partitions:
            raise unseen
        done.next_in = min(waits, default=None)
        if not herds:
            break
        herds += [herd for _ in range(CATCH_UP - 1) for herd in herds if herd in behind]
        visits = broker.link.run_many([timers.visit(fleet, herd, VISIT) for herd in herds])
        behind.clear()
        for herd, visit in zip(herds, visits, strict=True):
            if isinstance(visit, BrokerError):
                broken.add(herd)
                failure = visit
                continue
            done.fired.update(visit)
            if sum(visit.values()) >= VISIT:
                behind.add(herd)
        if broken.issuperset(herds):  # no visit went well: the server's trouble, not a herd's
            raise failure
    if len(partitions) < fleet.partitions:
        log.warning("some partitions are left out of this pass: %s", unseen.detail)
        done.next_in = min(done.next_in or AGAIN, AGAIN)
    for herd in broken:
        log.error("herd %s is left out of this pass: %s", herd, failure.detail)
        done.fired["set_aside"] += 1
    return done
