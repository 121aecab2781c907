"""Whether the schedulers of this machine do their work: what a container's health check asks."""

from __future__ import annotations

import platform
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import timedelta

from tocsin.broker import Broker, keys, processes, timers
from tocsin.broker.errors import BrokerError
from tocsin.broker.processes import SchedulerInfo
from tocsin.broker.pulse import is_running

MAX_LAG = timedelta(seconds=30)
"""How late the oldest timer of a fleet may be, if not told otherwise."""


@dataclass(frozen=True)
class Health:
    """What a look found."""

    schedulers: list[SchedulerInfo]
    """Those that run on this machine."""
    lag: timedelta | None
    """How late the fleet's oldest timer is; None if nobody is there to fire it."""
    problems: list[str]
    """What is wrong, in words; empty where all is well."""


def check(broker: Broker, max_lag: timedelta = MAX_LAG) -> Health:
    """Looks at the reports of this machine's schedulers, and at how late the fleet's timers are."""
    reports = broker.run(processes.reports(broker.name))
    here = list(_here(reports))
    if not here:
        return Health([], None, ["no scheduler of this fleet has reported from this machine"])
    problems = [
        f"{each} has not reported for {each.age.total_seconds():.0f} s: it hangs"
        for each in here
        if not each.alive
    ]
    problems += [trouble for each in here for trouble in each.troubles]
    found = lag(broker, reports)
    if found > max_lag:
        problems.append(late(found, max_lag))
    return Health(here, found, problems)


def lag(broker: Broker, reports: Iterable[SchedulerInfo]) -> timedelta:
    """How late the fleet's oldest timer is now, but for herds that its schedulers cannot visit."""
    fleet = broker.fleet()
    partitions = [keys.partition(fleet.name, number) for number in range(fleet.partitions)]
    looks: list[timers.Due] = []
    for look in broker.link.run_many([timers.due(fleet, p, processes.LOOK) for p in partitions]):
        if isinstance(look, BrokerError):
            raise look
        looks.append(look)
    left_out = {herd for each in reports if each.alive for herd in each.left_out}
    return processes.lag(looks, left_out)


def late(found: timedelta, max_lag: timedelta) -> str:
    """That the lag is above its bound, and what to do."""
    return (
        f"the oldest timer is {found.total_seconds():.0f} s late, and {max_lag.total_seconds():g} "
        "are allowed; see that schedulers run and what their logs say, or run more of them"
    )


def _here(reports: Iterable[SchedulerInfo]) -> Iterator[SchedulerInfo]:
    """The reports of processes that run here. One that is gone may have left a report, and another
    may have its number, in a container even as a rule: of each process the last report counts."""
    newest: dict[int, SchedulerInfo] = {}
    for each in sorted(reports, key=lambda each: each.age, reverse=True):
        if each.host == platform.node() and is_running(each.pid):
            newest[each.pid] = each
    yield from newest.values()
