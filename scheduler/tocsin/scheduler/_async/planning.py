"""Duty: give children the tasks that are planned for now.

The plans' records say when each is next; rq-scheduler carries that as jobs (`chores`) and says
which are due. Where there is no RQ, or it is away, the records alone say it. Any number of
schedulers do so side by side: a slot is seen to by the script that finds the plan where this one
found it.
"""

from __future__ import annotations

import logging
import random
from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Sequence
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING

from tocsin.broker import keys, plans
from tocsin.broker._async.broker import AsyncBroker
from tocsin.broker.bells import SLOW_POLL
from tocsin.broker.caller import Fleet
from tocsin.broker.errors import BrokerError
from tocsin.broker.plans import DuePlan
from tocsin.broker.scripts import Call
from tocsin.scheduler._async.duty import Turn
from tocsin.scheduler._async.partitioned import AsyncPartitionedDuty, Pass

if TYPE_CHECKING:
    from tocsin.scheduler.chores import AsyncChores

log = logging.getLogger("tocsin.scheduler")

AT_ONCE = 100
"""Plans of a partition that one round sees to at most."""

CLEAN_EVERY = timedelta(minutes=10)
"""How often what has run out in RQ's registries goes."""

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

ROUNDS = 1_000
"""Rounds after which a pass ends, whatever has come due meanwhile."""


class AsyncPlanning(AsyncPartitionedDuty):
    """Sees to plans that are due, and turns again when the next one is, or one was changed."""

    name = "plans"

    def __init__(
        self,
        broker: AsyncBroker,
        rq_url: str | None = None,
        uses_rq: Callable[[], bool] = lambda: False,
    ) -> None:
        """`rq_url`: the plain server of RQ; None: the fleet's, if that is one. `uses_rq`: whether
        something else of this scheduler puts jobs there, whose registries are to be cleaned."""
        super().__init__(broker)
        self._uses_rq = uses_rq
        self._most = AT_ONCE
        self._rq_url = rq_url
        self.bell = keys.doorbell(broker.name), "plan"
        self._chores: AsyncChores | None = None
        self._cleaned = _EPOCH
        """The last slot of RQ's cleaning that is known to be done."""
        self._carried = True
        """Whether RQ took the jobs at the last look; a change is told in the log."""

    async def turn(self) -> Turn:
        """One pass over all partitions, until nothing is due."""
        counts, broken, next_in = Counter[str](), set[tuple[str, str]](), None
        for _ in range(ROUNDS):
            self._most = AT_ONCE + len(broken)
            looked = await self.serve_all()
            looks, next_in = looked.found, looked.next_in
            if not looks:
                break
            planned = {name: at for look in looks for name, at in look.planned.items()}
            now = max(look.now for look in looks)
            due = [plan for look in looks for plan in look.due]
            carried = await self._carry(planned, now, counts)
            found = [
                each
                for each in due
                if (each.herd, each.plan) not in broken
                and (carried is None or (each.herd, each.plan) in carried)
            ]
            if not found:
                break
            broken |= await self._fire(found, now, counts)
            if self.errands_under_way:
                break
        counts = +counts
        if counts:
            log.info("plans: %s", " ".join(f"{name}={n}" for name, n in sorted(counts.items())))
        wait = self.wait(next_in)
        return Turn(wait * random.uniform(0.95, 1.0) if wait == SLOW_POLL else wait, counts)

    async def serve(self, fleet: Fleet, partitions: list[str]) -> Pass:
        """Looks at the plans: when each is next, which are due, what time it is."""
        calls = [plans.look(fleet, key, self._most) for key in partitions]
        answers = await self._broker.link.run_many(calls)
        self.step()
        looks = [answer for answer in answers if not isinstance(answer, BrokerError)]
        failures = [answer for answer in answers if isinstance(answer, BrokerError)]
        if not looks:
            raise failures[0]
        return Pass(
            min((look.next_in for look in looks if look.next_in is not None), default=None),
            left_out=failures[0].detail if failures else "",
            found=[*looks],
        )

    async def _carry(
        self, planned: dict[tuple[str, str], datetime], now: datetime, counts: Counter[str]
    ) -> set[tuple[str, str]] | None:
        """The plans that rq-scheduler says are due, once it knows of all; None: it is not there."""
        used = bool(planned) or self._uses_rq()
        if not used and self._chores is None:
            return None
        try:
            if self._chores is not None and not used:  # nothing of it is left there
                await self._chores.due({}, now)
                self._chores = None
                return None
            from tocsin.scheduler.chores import CLEANING, AsyncChores  # slow, and rarely needed

            fleet = await self._broker.fleet()
            if self._chores is None:
                url = self._rq_url or self._broker.server.url
                self._chores = AsyncChores(url, self._broker.name)
            slot = now - (now - _EPOCH) % CLEAN_EVERY
            due_at = slot if self._cleaned < slot else slot + CLEAN_EVERY
            found = await self._chores.due({**planned, CLEANING: due_at}, now)
            if CLEANING in found and self._cleaned < slot:
                chore = plans.take_chore(fleet, CLEANING[1], slot)
                errand = partial(self._clean, self._chores, chore, slot)
                counts += (await self.run_errands({self.node_of(chore.key): errand})).counts
        except BrokerError as failure:
            self._say(carried=False, why=failure.detail)
            return None
        self._say(carried=True)
        return found

    async def _clean(self, chores: AsyncChores, chore: Call[bool], slot: datetime) -> Pass:
        """Cleans RQ's registries, if nobody else does so for this slot."""
        done = Pass()
        if await self._broker.run(chore):
            done.counts["registries"] += await chores.clean()
        self._cleaned = slot
        return done

    def _say(self, *, carried: bool, why: str = "") -> None:
        if carried != self._carried:
            if carried:
                log.info("plans: rq-scheduler carries them again")
            else:
                log.warning("plans go by their records alone: %s", why)
        self._carried = carried

    async def _fire(
        self, found: list[DuePlan], now: datetime, counts: Counter[str]
    ) -> set[tuple[str, str]]:
        """Sees to plans; those that could not be seen to, which are left for the next pass."""
        fleet = await self._broker.fleet()
        there: defaultdict[Hashable, list[DuePlan]] = defaultdict(list)
        for each in found:
            there[self.node_of(fleet.partition(each.herd))].append(each)
        fired = await self.run_errands(
            {node: partial(self._fire_there, fleet, some, now) for node, some in there.items()}
        )
        counts += fired.counts
        return set(fired.found)

    async def _fire_there(self, fleet: Fleet, due: Sequence[DuePlan], now: datetime) -> Pass:
        """The same of one server; those that could not be seen to are what it found."""
        done = Pass()
        calls, asked = [], []
        for each in due:
            try:
                calls.append(plans.fire(fleet, each, now))
                asked.append(each)
            except Exception as error:  # its record was written over
                log.error("plan %s of herd %s cannot be read: %s", each.plan, each.herd, error)
                done.found.append((each.herd, each.plan))
        answers = await self._broker.link.run_many(calls)
        self.step()
        for each, answer in zip(asked, answers, strict=True):
            if isinstance(answer, BrokerError):
                log.error("plan %s of herd %s is put off: %s", each.plan, each.herd, answer.detail)
                done.found.append((each.herd, each.plan))
                continue
            word, *tasks = answer
            done.counts["planned"] += len(tasks)
            done.counts["plans_paused"] += word == "paused"
            done.counts["plans_put_off"] += word == "later"
        return done
