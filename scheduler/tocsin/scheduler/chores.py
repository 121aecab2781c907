"""What rq-scheduler carries: the next run of each plan and chore, as a job that RQ's tools show.

It holds the jobs of a fleet in one sorted set by time and answers which are due, for all herds and
partitions at once. It decides nothing. Its times are set from the plans' records (`keep`), so that
what was flushed or left behind is put right by the next look; its lock, which has no owner, and its
loop, which takes over the process's signals, are not used; its cron, which has no zone, is not
asked; and what it finds due is carried out by the scheduler that asked, so that a plan needs no RQ
worker. Whoever is first, each slot is seen to once, because `plan_fire` and `chore_take` say so.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime
from typing import Any

from rq import Queue
from rq.job import Job
from rq.serializers import JSONSerializer
from rq_scheduler import Scheduler

from tocsin.broker.connections import Server
from tocsin.broker.errors import Unavailable
from tocsin.broker.failures import failures_of

log = logging.getLogger("tocsin.scheduler")

PlanName = tuple[str, str]
"""Herd and plan."""

CLEANING = "", "registries"
"""The chore that is no herd's: what has run out in RQ's registries goes. RQ's workers do so too,
but only where and while one runs."""

QUEUE = "tocsin-plans"
"""The queue that the jobs name. None of them is put into it."""

FUNCTION = "tocsin.scheduler.chores.see_to_plans"


class _Job(Job):
    """A job whose arguments are JSON: what can be written into the server must not be code."""

    @classmethod
    def create(cls, *args: Any, **options: Any) -> Job:
        return super().create(*args, **{**options, "serializer": JSONSerializer})

    @classmethod
    def fetch(cls, id: str, connection: Any = None, serializer: Any = None) -> Job:  # noqa: A002
        return super().fetch(id, connection=connection, serializer=JSONSerializer)


class Chores:
    """The jobs of one fleet on the plain server of RQ at `url`."""

    def __init__(self, url: str, fleet: str) -> None:
        self._server = Server(url)
        self._fleet = fleet
        self._scheduler: Any = None

    def due(self, planned: Mapping[PlanName, datetime], now: datetime) -> set[PlanName]:
        """Has a job for each plan at its time, and none else; the plans whose jobs are due."""
        wanted = {self._id(*name): (name, at) for name, at in planned.items()}
        with self._connected() as scheduler:
            self._keep(scheduler, wanted)
            try:
                due = [job.id for job in scheduler.get_jobs(until=now)]
            except (LookupError, TypeError, ValueError) as broken:  # one was written over
                log.warning("the jobs of plans cannot be read (%s) and are made anew", broken)
                self._keep(scheduler, {})
                self._keep(scheduler, wanted)
                due = [job.id for job in scheduler.get_jobs(until=now)]
        # By its id: what else it says of itself may have been changed.
        return {wanted[job][0] for job in due if job in wanted}

    def clean(self) -> int:
        """Drops what has run out from the registries of RQ's queues; how many entries.

        Jobs that were started are left to RQ's workers: to give one of those up can run code of
        whoever made it.
        """
        dropped = 0
        with self._connected() as scheduler:
            for queue in Queue.all(connection=scheduler.connection):
                for registry in (queue.finished_job_registry, queue.failed_job_registry):
                    before = scheduler.connection.zcard(registry.key)
                    registry.cleanup()
                    dropped += max(0, before - scheduler.connection.zcard(registry.key))
        return dropped

    @contextmanager
    def _connected(self) -> Iterator[Any]:
        """rq-scheduler; once it failed it is made anew, for another server may be the primary."""
        try:
            with failures_of("plans", self._server.url):
                if self._scheduler is None:
                    connection = self._server.connect_plain()
                    self._scheduler = Scheduler(QUEUE, connection=connection, job_class=_Job)
                    # One set for each fleet: none sees another's jobs, nor those of other users.
                    self._scheduler.scheduled_jobs_key = f"rq:scheduler:tocsin:{self._fleet}"
                yield self._scheduler
        except Unavailable:
            if self._scheduler is not None:
                self._scheduler.connection.close()
                self._scheduler = None
            raise

    def _id(self, herd: str, plan: str) -> str:
        return "-".join(filter(None, ("tocsin", self._fleet, herd, plan)))

    def _keep(self, scheduler: Any, wanted: Mapping[str, tuple[PlanName, datetime]]) -> None:
        connection, key = scheduler.connection, scheduler.scheduled_jobs_key
        held: dict[str, float] = {}
        for member, at in connection.zrange(key, 0, -1, withscores=True):
            name = member.decode(errors="replace")
            if name in wanted:
                held[name] = at
            else:
                connection.zrem(key, member)
                connection.delete(b"rq:job:" + member)
        for name, ((herd, plan), at) in wanted.items():
            if held.get(name) != int(at.timestamp()):
                scheduler.enqueue_at(
                    at,
                    FUNCTION,
                    fleet=self._fleet,
                    herd=herd,
                    plan=plan,
                    job_id=name,
                    job_description=f"{herd or 'fleet'}: {plan} at {at:%Y-%m-%d %H:%M:%S %Z}",
                    meta={"herd": herd or None, "plan": plan},
                )


class AsyncChores(Chores):
    """The same for an event loop: rq-scheduler waits in a thread."""

    async def due(  # type: ignore[override]
        self, planned: Mapping[PlanName, datetime], now: datetime
    ) -> set[PlanName]:
        """Has a job for each plan at its time, and none else; the plans whose jobs are due."""
        return await asyncio.to_thread(super().due, planned, now)

    async def clean(self) -> int:  # type: ignore[override]
        """Drops what has run out from the registries of RQ's queues; how many entries."""
        return await asyncio.to_thread(super().clean)


def see_to_plans(fleet: str, herd: str, plan: str) -> dict[str, int]:
    """What a job does that somebody puts into a queue by hand: a look at the fleet's plans, as any
    scheduler has. It gives what is due, each slot once; which job it was makes no difference."""
    from tocsin.broker import Broker
    from tocsin.broker.settings import ConnectionSettings
    from tocsin.broker.settings_files import resolve_connection
    from tocsin.scheduler._sync.planning import Planning

    place = resolve_connection(ConnectionSettings(fleet=fleet)).settings
    with Broker.connect(place.url, fleet=fleet) as broker:
        return dict(Planning(broker).turn().counts)
