"""Duty: launch the turns that are due, as RQ jobs, while there are slots for them.

What it does is safe to do twice, or not to the end: a turn takes a slot by its name, a job stands
in its queue once, and it runs for whoever claims it first. So any number of schedulers do it side
by side, and one that is killed in between leaves what another does again.
"""

from __future__ import annotations

import logging
import random
from collections import Counter, defaultdict
from collections.abc import Hashable, Sequence
from functools import partial
from itertools import count
from typing import TYPE_CHECKING

from tocsin.broker import keys, turns
from tocsin.broker._async.broker import AsyncBroker
from tocsin.broker.caller import Fleet
from tocsin.broker.connections import Server
from tocsin.broker.errors import BrokerError
from tocsin.broker.scripts import Call
from tocsin.broker.signals import in_thread
from tocsin.broker.turns import DueTurn, DueTurns
from tocsin.scheduler._async.duty import Turn
from tocsin.scheduler._async.partitioned import AsyncPartitionedDuty, Pass

if TYPE_CHECKING:
    from tocsin.scheduler.launching import Queues

log = logging.getLogger("tocsin.scheduler")

BATCH = 20
"""Turns of one lane of a partition that one round launches at most."""

MOST = 200
"""Turns of all that one round launches at most."""

ROUNDS = 10_000
"""Rounds after which a pass ends, whatever has become due meanwhile."""


class AsyncLaunching(AsyncPartitionedDuty):
    """Launches what is due, and turns again when its bell rings, or an account goes on."""

    name = "launching"

    def __init__(self, broker: AsyncBroker, rq_url: str | None) -> None:
        super().__init__(broker)
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
            look = await self.serve_all()
            launched, paused = await self._round(look.found, done)
            waits = [each for each in (look.next_in, paused) if each is not None]
            next_in = min(waits, default=None)
            self.step()
            if not launched or self.errands_under_way:
                break
        if done:
            log.info("%s", " ".join(f"{name}={n}" for name, n in sorted(done.items())))
        return Turn(self.wait(next_in) * random.uniform(0.95, 1.0), done)

    async def serve(self, fleet: Fleet, partitions: list[str]) -> Pass:
        """Looks at what is due: (partition, turns and slots to be given back)."""
        calls = [turns.due(fleet, partition, BATCH) for partition in partitions]
        answers = await self._broker.link.run_many(calls)
        self.step()
        failures = [answer for answer in answers if isinstance(answer, BrokerError)]
        if len(failures) == len(answers):
            raise failures[0]
        return Pass(
            left_out=failures[0].detail if failures else "",
            found=[
                (partition, answer)
                for partition, answer in zip(partitions, answers, strict=True)
                if not isinstance(answer, BrokerError)
            ],
        )

    async def _round(
        self, found: Sequence[tuple[str, DueTurns]], done: Counter[str]
    ) -> tuple[bool, float | None]:
        """Gives slots back, and launches a turn for each that there is; whether there was one, and
        in how many seconds an account goes on that is paused."""
        fleet = await self._broker.fleet()
        wanted = [turn for _, due in found for turn in due.turns]
        freed = {partition: due.freed for partition, due in found if due.freed}
        if not wanted and not freed:
            self.full = {}
            return False, None
        random.shuffle(wanted)  # schedulers that begin at the same time differ

        def place(turn: DueTurn) -> tuple[float, int]:  # of equals, who was not served for longest
            return turn.place, self._served.get(fleet.partition(turn.herd), 0)

        wanted = sorted(wanted, key=place)[:MOST]
        given_back = [slot for slots in freed.values() for slot in slots]
        slots = await self._broker.run(turns.take_slots(fleet, given_back, wanted))
        await self._note([turns.freed(fleet, partition, each) for partition, each in freed.items()])
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
        noted = await self._note([turns.launched(fleet, turn) for turn in ready])
        done += noted

    async def _note(self, calls: Sequence[Call[str]]) -> Counter[str]:
        """Notes what was done, on the servers of what it was done with."""
        notes: defaultdict[Hashable, list[Call[str]]] = defaultdict(list)
        for call in calls:
            notes[self.node_of(str(call.key))].append(call)
        errands = {node: partial(self._note_there, some) for node, some in notes.items()}
        return (await self.run_errands(errands)).counts

    async def _note_there(self, calls: Sequence[Call[str]]) -> Pass:
        done = Pass()
        for answer in await self._broker.link.run_many(calls):
            if isinstance(answer, BrokerError):
                raise answer
            done.counts["turns_launched"] += answer == "launched"
        self.step()
        return done

    @property
    def has_launched(self) -> bool:
        """Whether it has put a job into a queue of RQ."""
        return self._queues is not None

    def _open(self) -> Queues:
        if self._queues is None:
            from tocsin.scheduler.launching import Queues  # RQ is slow to import, and rarely needed

            server = Server(self._rq_url) if self._rq_url else self._broker.server
            self._queues = Queues(server, self._broker.name)
        return self._queues
