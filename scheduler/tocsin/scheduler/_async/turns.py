"""Duty: launch the turns that are due, as RQ jobs, while there are slots for them.

What it does is safe to do twice, or not to the end: a turn takes a slot by its name, a job stands
in its queue once, and it runs for whoever claims it first. So any number of schedulers do it side
by side, and one that is killed in between leaves what another does again.
"""

from __future__ import annotations

import logging
import random
from collections import Counter
from functools import partial
from itertools import count
from typing import TYPE_CHECKING

from tocsin.broker import keys, turns
from tocsin.broker._async.broker import AsyncBroker
from tocsin.broker.bells import SLOW_POLL
from tocsin.broker.connections import Server
from tocsin.broker.errors import BrokerError
from tocsin.broker.signals import in_thread
from tocsin.broker.turns import DueTurn
from tocsin.scheduler._async.duty import AsyncDuty, Turn

if TYPE_CHECKING:
    from tocsin.scheduler.launching import Queues

log = logging.getLogger("tocsin.scheduler")

BATCH = 20
"""Turns of one lane of a partition that one round launches at most."""

MOST = 200
"""Turns of all that one round launches at most."""

ROUNDS = 10_000
"""Rounds after which a pass ends, whatever has become due meanwhile."""


class AsyncLaunching(AsyncDuty):
    """Launches what is due, and turns again when its bell rings, or an account goes on."""

    name = "launching"

    def __init__(self, broker: AsyncBroker, rq_url: str | None) -> None:
        self._broker = broker
        self._rq_url = rq_url
        self._queues: Queues | None = None
        self.bell = keys.doorbell(broker.name), "launch"
        self.full: dict[str, int] = {}
        """What kept turns waiting in the last pass, and how many."""
        self._served: dict[str, int] = {}
        """When a turn of each partition was last launched, counted in rounds."""
        self._rounds = count(1)

    async def turn(self) -> Turn:
        """Rounds over all partitions, until nothing is due that there is a slot for."""
        done, next_in = Counter[str](), None
        for _ in range(ROUNDS):
            launched, next_in = await self._round(done)
            self.step()
            if not launched:
                break
        if done:
            log.info("%s", " ".join(f"{name}={n}" for name, n in sorted(done.items())))
        wait = SLOW_POLL if next_in is None else min(next_in, SLOW_POLL)
        return Turn(wait * random.uniform(0.95, 1.0), done)

    async def _round(self, done: Counter[str]) -> tuple[bool, float | None]:
        """Gives slots back, and launches a turn for each that there is; whether there was one, and
        in how many seconds an account goes on that is paused."""
        fleet = await self._broker.fleet()
        partitions = [keys.partition(fleet.name, number) for number in range(fleet.partitions)]
        answers = await self._broker.link.run_many(
            [turns.due(fleet, partition, BATCH) for partition in partitions]
        )
        self.step()
        wanted: list[DueTurn] = []
        freed: dict[str, list[str]] = {}
        for partition, answer in zip(partitions, answers, strict=True):
            if isinstance(answer, BrokerError):
                failure = answer
                continue
            wanted += answer.turns
            if answer.freed:
                freed[partition] = answer.freed
        if all(isinstance(answer, BrokerError) for answer in answers):
            raise failure
        if not wanted and not freed:
            self.full = {}
            return False, None
        random.shuffle(wanted)  # schedulers that begin at the same time differ

        def place(turn: DueTurn) -> tuple[float, int]:  # of equals, who was not served for longest
            return turn.place, self._served.get(fleet.partition(turn.herd), 0)

        wanted = sorted(wanted, key=place)[:MOST]
        given_back = [slot for slots in freed.values() for slot in slots]
        slots = await self._broker.run(turns.take_slots(fleet, given_back, wanted))
        notes = [turns.freed(fleet, partition, each) for partition, each in freed.items()]
        for noted in await self._broker.link.run_many(notes):
            if isinstance(noted, BrokerError):
                raise noted
        self.step()
        self.full = dict(Counter(each for each in slots.full if each))
        ready = [turn for turn, full in zip(wanted, slots.full, strict=True) if not full]
        self._served.update(
            dict.fromkeys((fleet.partition(turn.herd) for turn in ready), next(self._rounds))
        )
        await self._launch(ready, done)
        return bool(ready), slots.next_in

    async def _launch(self, ready: list[DueTurn], done: Counter[str]) -> None:
        if not ready:
            return
        fleet = await self._broker.fleet()
        await in_thread(partial(self._open().put, ready))
        self.step()
        for answer in await self._broker.link.run_many(
            [turns.launched(fleet, turn) for turn in ready]
        ):
            if isinstance(answer, BrokerError):
                raise answer
            done["turns_launched"] += answer == "launched"

    def _open(self) -> Queues:
        if self._queues is None:
            from tocsin.scheduler.launching import Queues  # RQ is slow to import, and rarely needed

            server = Server(self._rq_url) if self._rq_url else self._broker.server
            self._queues = Queues(server, self._broker.name)
        return self._queues
