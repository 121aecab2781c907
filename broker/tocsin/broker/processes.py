"""The processes that serve a fleet, for its operator: schedulers and instances. No I/O."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

from tocsin.broker import keys
from tocsin.broker.agents import TURNING
from tocsin.broker.caller import Fleet
from tocsin.broker.scripts import Call, call
from tocsin.broker.settings import HerdSettings, from_record
from tocsin.broker.timers import Due
from tocsin.broker.versions import Build

SILENT = timedelta(seconds=9)
"""A scheduler that has not reported for so long hangs or is gone; it reports every 4 s."""

OVERDUE = timedelta(seconds=2)
"""A lease that should have been renewed so long ago is not renewed any more."""

AGENTS = 500
"""Agents whose instances one look lists."""

LOOK = 100
"""Herds of a partition by which one look judges how late it is."""


@dataclass(frozen=True)
class SchedulerInfo:
    """What a scheduler last said of itself."""

    scheduler: str
    host: str
    pid: int
    build: Build
    age: timedelta
    """How long ago it said so."""
    load: float
    """The share of its time, 0 to 1, in which it was firing timers."""
    lag: timedelta
    """How late the oldest timer was that it knew of."""
    fired: int
    """Timers it fired since it started."""
    duties: dict[str, str] = field(default_factory=dict)
    """Each loop of its process, its duties first, and what keeps it from turning; empty while it
    turns."""
    left_out: dict[str, str] = field(default_factory=dict)
    """Herds that cannot be visited, and why."""

    @property
    def alive(self) -> bool:
        """Whether it has reported lately."""
        return self.age <= SILENT

    @property
    def troubles(self) -> list[str]:
        """What keeps which of its loops from turning, in words."""
        return [f"{duty} of {self.scheduler} {why}" for duty, why in self.duties.items() if why]

    def __str__(self) -> str:
        return f"{self.scheduler} ({self.host}, process {self.pid})"


@dataclass(frozen=True)
class InstanceInfo:
    """An instance of an agent: a live one, or one that has stopped and is not yet gone."""

    herd: str
    agent: str
    instance: str
    build: Build
    trouble: str = ""
    """What keeps which loop of its process from turning, as far as that is known from outside."""

    def __str__(self) -> str:
        return f"{self.herd}/{self.agent} {self.instance}"


@dataclass(frozen=True)
class Page:
    """Some of the live instances of a herd."""

    instances: list[InstanceInfo]
    more: int | None
    """From where on there are more; None if these were the last."""


def report(fleet: str, scheduler: str, facts: dict[str, Any] | None) -> Call[list[SchedulerInfo]]:
    """Records what a scheduler says of itself (None: that it ended); what all last said.

    Ages are by the server's clock. Reports of over an hour are dropped.
    """
    return call(
        "scheduler_report",
        lambda answer: [_read_scheduler(*row) for row in answer[1:]],
        operation="report",
        key=keys.schedulers(fleet),
        scheduler=scheduler,
        facts="" if facts is None else json.dumps(facts),
    )


def reports(fleet: str) -> Call[list[SchedulerInfo]]:
    """What all schedulers last said of themselves, to somebody who is none."""
    return report(fleet, "", None)


def _read_scheduler(name: str, age: str, text: str) -> SchedulerInfo:
    facts = json.loads(text)
    return SchedulerInfo(
        scheduler=name,
        host=facts.get("host", "?"),
        pid=facts.get("pid", 0),
        build=Build(facts.get("version", "unknown"), facts.get("schema", 0)),
        age=timedelta(milliseconds=int(age)),
        load=facts.get("load", 0.0),
        lag=timedelta(milliseconds=facts.get("lag_ms", 0)),
        fired=facts.get("fired", 0),
        duties=facts.get("duties", {}),
        left_out=facts.get("left_out", {}),
    )


def instances(fleet: Fleet, herd: str, start: int = 0) -> Call[Page]:
    """The instances of so many of a herd's agents, from one on."""

    def read(answer: list[Any]) -> Page:
        _, more, lease, renewal, *rows = answer
        settings = from_record({"lease": lease, "lease_renewal": renewal} if rows else {})
        found = [
            InstanceInfo(herd, agent, name, Build.parse(build), _trouble(since, loops, settings))
            for agent, name, build, since, loops in rows
        ]
        return Page(found, int(more) if more != "" else None)

    return call(
        "herd_instances",
        read,
        operation="instances",
        key=fleet.partition(herd),
        clock=fleet.clock_argument,
        herd=herd,
        start=start,
        limit=AGENTS,
    )


def _trouble(since: str, loops: str, settings: HerdSettings) -> str:
    every = settings.renews_every
    renewed = timedelta(milliseconds=int(since)) if since else timedelta(0)
    if renewed > every + OVERDUE:
        return (
            f"has not renewed its lease for {renewed.total_seconds():.0f} s, and should every "
            f"{every.total_seconds():g}: its process was killed or hangs, or the thread ended that "
            "renews it"
        )
    return "" if loops in ("", TURNING) else loops


def lag(looks: Iterable[Due], left_out: Iterable[str]) -> timedelta:
    """How late a fleet's oldest timer is, but for those of herds that nobody can visit."""
    skipped = set(left_out)
    late = [ms for look in looks for herd, ms in look.late.items() if herd not in skipped]
    return timedelta(milliseconds=max(late, default=0.0))
