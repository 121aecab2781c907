"""Duty: compare what is derived from records with the records, all over the fleet, and mend it.

Sorted sets, stream entries and timers can be lost or changed by hands, by an evicting server, by a
restore of half a backup. Records are the truth, and the only list of them that cannot be wrong is
the server's own, so a sweep walks the key space: page by page, from here and never in a script.
"""

from __future__ import annotations

import logging
import random
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import timedelta

from tocsin.broker import keys
from tocsin.broker._async.broker import AsyncBroker
from tocsin.broker.caller import Fleet
from tocsin.broker.clock import ManualClock
from tocsin.broker.errors import BrokerError, InvalidInput
from tocsin.broker.repairs import INDEXES, RECORDS, Compared, Finding, Index, compare
from tocsin.broker.scripts import Call
from tocsin.scheduler._async.duty import AsyncDuty, Turn

log = logging.getLogger("tocsin.scheduler")

REPAIR_EVERY = timedelta(minutes=10)
"""How often a scheduler sweeps its fleet, if not told otherwise."""

PAGE = 1_000
"""Keys that are gathered before they are compared."""

RECORDS_A_CALL, INDEXES_A_CALL = 100, 10
"""What one run of the script compares at most: 5 to 10 ms of the server's time, measured on a slow
machine; of indexes of 100 entries and more 20 ms."""

CALLS = 10
"""Runs of the script in one round trip."""

Record = tuple[str, ...]
"""The kind of a record and the names in its key."""

PHASES = (("message",), (*INDEXES, "reminded"), ("task", "plan"), ("agent", "herd"))
"""Kinds of keys in the order in which they are compared: a task is judged by its questions, which
its mail restores; an agent by its tasks; a herd by the timers of all. Each phase walks the key
space anew, so that a sweep needs no more memory in a fleet of a million records."""

FINDINGS = 1_000
"""Findings that a sweep keeps; all are counted."""


@dataclass
class Sweep:
    """What a sweep compared, and what did not agree."""

    compared: int = 0
    findings: list[Finding] = field(default_factory=list)
    counts: Counter[tuple[str, str]] = field(default_factory=Counter)
    """How much of what, by herd: all but what cannot be read. Put right, unless it only looked."""

    @property
    def broken(self) -> list[Finding]:
        """What cannot be read, and was left as it is."""
        return [found for found in self.findings if found.what == "broken"]

    def note(self, findings: list[Finding]) -> None:
        """Takes findings up."""
        self.findings += findings[: FINDINGS - len(self.findings)]
        self.counts.update((each.herd, each.what) for each in findings if each.what != "broken")


class AsyncRepair(AsyncDuty):
    """Sweeps when a scheduler starts, and then at its own slow pace."""

    name = "repair"

    def __init__(self, broker: AsyncBroker, every: timedelta) -> None:
        if every < timedelta(seconds=1):
            raise InvalidInput("schedule", "repair_every must be None or at least one second")
        self._broker = broker
        self._every = every.total_seconds()
        self._next: float | None = None

    async def turn(self) -> Turn:
        """A sweep, if one is due."""
        now = await self._now()
        if self._next is None or now >= self._next:
            found = await sweep(self._broker, step=self.step)
            self._next = now + self._every * random.uniform(0.8, 1.0)
            return Turn(self._next - now, Counter(repairs=found.counts.total()))
        return Turn(self._next - now)

    async def _now(self) -> float:
        clock = (await self._broker.fleet()).clock
        return clock.now().timestamp() if isinstance(clock, ManualClock) else time.monotonic()


async def sweep(
    broker: AsyncBroker, *, mend: bool = True, step: Callable[[], None] = lambda: None
) -> Sweep:
    """Compares every record of the fleet and every entry of its indexes; mends what differs.

    Harmless at any time, with any number of others: a script leaves records and indexes in
    agreement, so one that compares them meets no half-done work. Without `mend` it only looks;
    what would follow from a repair is then not seen, or told beside its cause. `step` hears that
    it gets on.
    """
    fleet = await broker.fleet()
    walk = _Walk(broker, fleet, mend=mend, step=step)
    for phase in PHASES:
        gathered: list[tuple[str, Record]] = []
        async for key in broker.link.keys("repair", keys.of_fleet(fleet.name)):
            step()
            kind, names = keys.parse(key) or ("", {})
            if kind in phase:
                herd, *inner = names.values()
                gathered.append((herd, (kind, *inner)))
            if len(gathered) >= PAGE:
                await walk.compare(gathered)
                gathered.clear()
        await walk.compare(gathered)
    return walk.end()


class _Walk:
    """Compares what it is given, herd by herd, in runs of the script that are short each."""

    def __init__(
        self, broker: AsyncBroker, fleet: Fleet, *, mend: bool, step: Callable[[], None]
    ) -> None:
        self._broker = broker
        self._fleet = fleet
        self._mend = mend
        self._step = step
        self._calls = 0
        self._failures: list[BrokerError] = []
        self.found = Sweep()

    async def compare(self, gathered: Sequence[tuple[str, Record]]) -> None:
        """Records and indexes, by their kinds and names, each with its herd."""
        records: dict[str, list[Record]] = defaultdict(list)
        indexes: list[tuple[str, Index]] = []
        for herd, (kind, *names) in gathered:
            if kind in RECORDS:
                records[herd].append((kind, *(names or [herd])))
            else:
                indexes.append((herd, Index(kind, *names)))
        await self._run(
            [
                compare(self._fleet, herd, each[at : at + RECORDS_A_CALL], [], mend=self._mend)
                for herd, each in records.items()
                for at in range(0, len(each), RECORDS_A_CALL)
            ]
        )
        self.found.compared += len(gathered) - len(indexes)
        while indexes:
            indexes = await self._continue(indexes)

    async def _continue(self, indexes: Sequence[tuple[str, Index]]) -> list[tuple[str, Index]]:
        """A part of each index; the rests of those that are longer."""
        by_herd: dict[str, list[Index]] = defaultdict(list)
        for herd, index in indexes:
            by_herd[herd].append(index)
        calls = [
            (herd, each[at : at + INDEXES_A_CALL])
            for herd, each in by_herd.items()
            for at in range(0, len(each), INDEXES_A_CALL)
        ]
        answers = await self._run(
            [compare(self._fleet, herd, [], some, mend=self._mend) for herd, some in calls]
        )
        return [
            (herd, index)
            for (herd, _), answer in zip(calls, answers, strict=True)
            for index in answer.more
        ]

    async def _run(self, calls: Sequence[Call[Compared]]) -> list[Compared]:
        done: list[Compared] = []
        for at in range(0, len(calls), CALLS):
            some = calls[at : at + CALLS]
            self._calls += len(some)
            self._step()
            answers: list[Compared | BrokerError] = await self._broker.link.run_many(some)
            for call, answer in zip(some, answers, strict=True):
                done.append(answer if isinstance(answer, Compared) else self._failed(call, answer))
                self.found.note(done[-1].findings)
        return done

    def _failed(self, call: Call[Compared], why: BrokerError) -> Compared:
        herd = call.args[call.script.args.index("herd")]
        self._failures.append(why)
        return Compared([Finding(herd, "broken", herd, why.detail)], [])

    def end(self) -> Sweep:
        """What was found, and told in the log. If nothing went well, it is the server's trouble."""
        if self._failures and len(self._failures) == self._calls:
            raise self._failures[0]
        for (herd, what), count in sorted(self.found.counts.items()) if self._mend else ():
            log.warning("herd %s: mended %d of %s", herd, count, what)
        for found in self.found.broken:
            log.error("herd %s: %s cannot be read: %s", found.herd, found.id, found.why)
        return self.found
