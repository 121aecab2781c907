# Generated from _async/partitioned.py by `make generate`; edit that file.

"""Duties that serve partitions: those of each server beside the others', so that none waits."""

from __future__ import annotations

import logging
from abc import abstractmethod
from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import chain
from typing import Any

from tocsin.broker import keys
from tocsin.broker._sync.broker import Broker
from tocsin.broker.bells import SLOW_POLL
from tocsin.broker.caller import Fleet
from tocsin.broker.urls import Node
from tocsin.scheduler._sync.duty import Duty
from tocsin.scheduler.crew import Lanes

log = logging.getLogger("tocsin.scheduler")

AGAIN = 1.0
"""Seconds after which partitions that did not answer are looked at again."""


@dataclass
class Pass:
    """What a pass over partitions did, and in how many seconds more is due (None: nothing is)."""

    next_in: float | None = None
    counts: Counter[str] = field(default_factory=Counter)
    left_out: str = ""
    """Why some of them were left out, if any were."""
    found: list[Any] = field(default_factory=list)
    """What is to be seen to with another server, or by what all of them have."""


class PartitionedDuty(Duty):
    """A duty that has a pass of its own for the partitions of each server.

    A server that hangs, or has much to do, holds up its own pass: those of the others go on.
    """

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._lanes: Lanes[tuple[str, ...], Pass] = Lanes()
        self._errands: Lanes[Hashable, Pass] = Lanes()
        self._several = False
        """Whether the partitions were on several servers, at the last look."""

    @abstractmethod
    def serve(self, fleet: Fleet, partitions: list[str]) -> Pass:
        """One pass over partitions, as far as there is work now; raises if none of them answers."""

    def serve_all(self) -> Pass:
        """One pass over all partitions, but those of which an earlier one is under way.

        Those that do not answer are left out until their server does, or was replaced. A pass that
        waits for all goes on with what came of one server's work on another.
        """
        done = latest = self._serve()
        while self._several and self.within is None and latest.counts:
            latest = self._serve()
            done.counts += latest.counts
            done.next_in = latest.next_in
        return done

    def run_errands(self, errands: Mapping[Hashable, Callable[[], Pass]]) -> Pass:
        """What is to be done after a look at all, by the server that each is about.

        One whose earlier errand is under way is left out: what it was about is found again.
        """
        if not self._several:
            return self._told([errand() for errand in errands.values()])
        busy = self._errands.busy
        begun = {lane: errand for lane, errand in errands.items() if lane not in busy}
        return self._told([Pass(), *self._errands.run(begun, self.within)])

    def _serve(self) -> Pass:
        fleet = self._broker.fleet()
        busy = set(chain(*self._lanes.busy))
        groups: dict[Node | None, list[str]] = defaultdict(list)
        for number in range(fleet.partitions):
            partition = keys.partition(fleet.name, number)
            if partition not in busy:
                groups[self.node_of(partition)].append(partition)
        self._several = bool(busy) or len(groups) > 1
        if self._several:
            steps = {tuple(some): partial(self.serve, fleet, some) for some in groups.values()}
            came = self._lanes.run(steps, self.within)
        else:
            came = [self.serve(fleet, *groups.values())]
        return self._told(came)

    def _told(self, came: Sequence[Pass | Exception]) -> Pass:
        failures = [each for each in came if isinstance(each, Exception)]
        passes = [each for each in came if isinstance(each, Pass)]
        if failures and not passes:
            raise failures[0]
        whys = [*map(str, failures), *(each.left_out for each in passes if each.left_out)]
        if whys:
            log.warning("%s: some partitions are left out of this pass: %s", self.name, whys[0])
        waits = [each.next_in for each in passes if each.next_in is not None]
        if whys or self.under_way:
            waits.append(AGAIN)
        counts = sum((each.counts for each in passes), Counter[str]())
        found = [*chain.from_iterable(each.found for each in passes)]
        return Pass(min(waits, default=None), counts, found=found)

    def node_of(self, partition: str | None) -> Node | None:
        """The server of a partition, as far as is known."""
        return self._broker.link.server.node_of(partition)

    @property
    def errands_under_way(self) -> bool:
        """Whether an errand is, so that what it is about may be found again without need."""
        return bool(self._errands.busy)

    def wait(self, next_in: float | None) -> float:
        """Seconds until the next pass, if the next of what is known of is due in so many."""
        longest = AGAIN if self.under_way else SLOW_POLL
        return longest if next_in is None else min(next_in, longest)

    @property
    def under_way(self) -> bool:
        """Whether a server has yet to answer, or has more to do."""
        return bool(self._lanes.busy or self._errands.busy)

    def leave(self) -> None:
        """Ends what is under way. A pass waits for all servers again."""
        super().leave()
        self._lanes.leave()
        self._errands.leave()
