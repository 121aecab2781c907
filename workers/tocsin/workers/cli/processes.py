"""What doctor looks at and lists of the processes that serve a fleet."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import islice

from tocsin.broker import Broker, processes, versions
from tocsin.broker.errors import BrokerError
from tocsin.broker.processes import InstanceInfo, Page, SchedulerInfo
from tocsin.scheduler import health
from tocsin.workers.cli.blocks import Rows, span
from tocsin.workers.cli.findings import Finding, Health

MANY = 500
"""Herds whose instances are asked for in one round trip."""

NAMED = 20
"""Processes that a finding names at most; the lists have all."""


@dataclass
class Processes:
    """The processes of a fleet, as doctor finds them."""

    broker: Broker
    used: bool = False
    """Whether the fleet is known to be used: to ask more of one that is not would be its first
    use."""
    schedulers: list[SchedulerInfo] = field(default_factory=list)
    instances: list[InstanceInfo] = field(default_factory=list)

    @property
    def alive(self) -> list[SchedulerInfo]:
        """The schedulers that have reported lately."""
        return [each for each in self.schedulers if each.alive]

    def tables(self) -> Iterator[Rows]:
        """The schedulers and the instances, for people."""
        if self.schedulers:
            yield Rows(
                ("scheduler", "where", "version", "seen", "load", "lag", "fired"),
                [
                    (
                        each.scheduler,
                        f"{each.host}, process {each.pid}",
                        each.build.version,
                        f"{span(each.age)} ago",
                        f"{each.load:.0%}",
                        span(each.lag),
                        f"{each.fired:,}",
                    )
                    for each in self.schedulers
                ],
            )
        if self.instances:
            yield Rows(
                ("agent", "instance", "version"),
                [
                    (f"{each.herd}/{each.agent}", each.instance, each.build.version)
                    for each in self.instances
                ],
            )

    def check_schedulers(self) -> Iterator[Finding]:
        """Whether some are at work, and all of those do all they should."""
        found = self.broker.run(processes.reports(self.broker.name))
        self.schedulers = sorted(found, key=lambda each: each.scheduler)
        troubles = [trouble for each in self.alive for trouble in each.troubles]
        if troubles:
            detail = f"{'; '.join(troubles)}; see its log, and restart it"
            yield Finding("schedulers", Health.BROKEN, detail)
        elif self.alive:
            names = "; ".join(f"{each}, seen {span(each.age)} ago" for each in self.alive)
            yield Finding("schedulers", Health.GOOD, f"{len(self.alive)} alive: {names}")
        else:
            yield Finding(
                "schedulers",
                Health.BROKEN,
                "none is alive, so no reminder and no deadline fires; run `tocsin scheduler`, or "
                "`tocsin up` which starts one",
            )
        silent = [f"{each}, {span(each.age)}" for each in self.schedulers if not each.alive]
        if silent and self.alive:
            yield Finding(
                "schedulers",
                Health.WARNING,
                f"silent: {'; '.join(silent)}; the others do its work, but it did not end well: "
                "look whether it was killed or hangs",
            )
        left_out = {herd: why for each in self.alive for herd, why in each.left_out.items()}
        for herd, why in sorted(left_out.items()):
            yield Finding("schedulers", Health.BROKEN, f"herd {herd} cannot be visited: {why}")

    def check_lag(self) -> Iterator[Finding]:
        """Whether timers fire in time."""
        if not self.used:
            return
        lag = health.lag(self.broker, self.schedulers)
        if lag > health.MAX_LAG:
            yield Finding("lag", Health.BROKEN, health.late(lag, health.MAX_LAG))
        elif lag:
            yield Finding("lag", Health.GOOD, f"the oldest timer is {span(lag)} late")
        else:
            yield Finding("lag", Health.GOOD, "no timer is late")

    def check_instances(self) -> Iterator[Finding]:
        """Whether the loops of all processes of agents turn, as far as that shows from outside."""
        if not self.used:
            return
        self.instances = list(_instances(self.broker))
        troubled = [f"{each}: {each.trouble}" for each in self.instances if each.trouble]
        if troubled:
            more = f"; and {len(troubled) - NAMED} more" if len(troubled) > NAMED else ""
            detail = f"{'; '.join(troubled[:NAMED])}{more}; see its log, and restart it"
            yield Finding("instances", Health.BROKEN, detail)
        else:
            detail = f"{len(self.instances)} run, and nothing is known to be wrong with them"
            yield Finding("instances", Health.GOOD, detail)

    def check_versions(self) -> Iterator[Finding]:
        """Whether all run the same version, and which should restart."""
        if not self.used:
            return
        everybody: list[SchedulerInfo | InstanceInfo] = [*self.alive, *self.instances]
        running = [(str(each), each.build) for each in everybody]
        newest = versions.newest(build for _, build in running)
        old = [name for name, build in running if build.outdated(newest, versions.SCHEMA)]
        counts = Counter(build.version for _, build in running)
        if not old:
            detail = f"all {len(running)} processes run Tocsin {newest.version}"
            yield Finding("versions", Health.GOOD, detail if running else "no process runs")
            return
        mixture = ", ".join(f"{count} run {name}" for name, count in sorted(counts.items()))
        more = f" and {len(old) - NAMED} more" if len(old) > NAMED else ""
        yield Finding(
            "versions",
            Health.WARNING,
            f"a mixed fleet: {mixture}, and the newest seen is {newest.version}; that works, and "
            f"what is older should restart: {'; '.join(old[:NAMED])}{more}",
        )


def _instances(broker: Broker) -> Iterator[InstanceInfo]:
    """All instances, herd by herd."""
    fleet = broker.fleet()
    ahead = iter([(herd, 0) for herd, state, _ in broker.herds() if state != "closed"])
    while asked := list(islice(ahead, MANY)):
        more: list[tuple[str, int]] = []
        calls = [processes.instances(fleet, herd, start) for herd, start in asked]
        pages: list[Page | BrokerError] = broker.link.run_many(calls)
        for (herd, _), page in zip(asked, pages, strict=True):
            if isinstance(page, BrokerError):
                raise page
            yield from page.instances
            more += [(herd, page.more)] if page.more is not None else []
        ahead = iter([*more, *ahead])
