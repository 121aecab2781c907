"""A herd on stage: its agents, the clock they share, and a scheduler that ticks when told."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterable
from datetime import timedelta
from typing import Any

from tocsin.broker import (
    AsyncBroker,
    AsyncChild,
    AsyncParent,
    Broker,
    Envelope,
    HerdSettings,
    Kind,
    ManualClock,
    Seat,
    Task,
    agents,
    keys,
)
from tocsin.broker.ids import make_token
from tocsin.scheduler import AsyncScheduler, Scheduler


class Herd:
    """A parent, its children by name, and the time they live in."""

    def __init__(
        self,
        broker: AsyncBroker,
        clock: ManualClock,
        scheduler: AsyncScheduler,
        parent: AsyncParent,
    ) -> None:
        self.broker = broker
        self.clock = clock
        self.scheduler = scheduler
        self.parent = parent
        self.name = parent.herd
        self.children: dict[str, AsyncChild] = {}

    @property
    def scout(self) -> AsyncChild:
        return self.children["scout"]

    @property
    def planner(self) -> AsyncChild:
        return self.children["planner"]

    async def child(self, name: str, **registration: Any) -> AsyncChild:
        """Registers a child and starts an instance of it."""
        seat = await self.parent.register(name, **registration)
        self.children[name] = await self.another(name, token_of(seat))
        return self.children[name]

    async def another(self, name: str, token: str | None = None) -> AsyncChild:
        """One more instance of a child, as another process of it would start."""
        child = await self.broker.join(self.name, name, token or self.children[name].token)
        assert isinstance(child, AsyncChild)
        return child

    async def later(self, **duration: float) -> dict[str, int]:
        """Lets time pass, then the scheduler do what became due; how much of each duty.

        The ends of old receipts are not counted: they come whenever enough time passes.
        """
        self.clock.advance(timedelta(**duration))
        fired = await self.scheduler.tick()
        return {duty: count for duty, count in fired.items() if duty != "retention"}

    async def working(
        self, child: AsyncChild, text: str = "Find how auth works", **how: Any
    ) -> Task:
        """A task that the child has taken and begun."""
        task = await self.parent.delegate(child.agent, text, **how)
        await (await child.receive()).ack()
        return await self.parent.task(task.id)

    async def waiting(self, question: str = "Which backoff?", **how: Any) -> tuple[Task, str]:
        """A task of scout that waits for planner's answer, and the id of the question."""
        task = await self.working(self.scout)
        sent = await self.scout.message(
            "planner", question, task=task.id, expects_reply=True, **how
        )
        return await self.parent.task(task.id), sent.message_id

    async def state(self, task: Task | str) -> str:
        """Where a task stands now."""
        return (await self.parent.task(task if isinstance(task, str) else task.id)).state


class HerdMaker:
    """Opens herds of one fleet."""

    def __init__(self, broker: AsyncBroker, clock: ManualClock, scheduler: AsyncScheduler) -> None:
        self.broker = broker
        self.clock = clock
        self.scheduler = scheduler

    async def __call__(self, name: str = "release-42", *children: str, **settings: Any) -> Herd:
        """A herd with these children and settings."""
        parent = await self.broker.open_herd(name, settings=HerdSettings(**settings))
        herd = Herd(self.broker, self.clock, self.scheduler, parent)
        for child in children:
            await herd.child(child)
        return herd


def key_of(herd: Herd, kind: str, **names: str) -> str:
    """The key of one record of the herd."""
    fleet = herd.parent.caller.fleet
    return keys.below(fleet.partition(herd.name), kind, herd=herd.name, **names)


async def command(herd: Herd, *words: Any) -> Any:
    """Does to the store what nobody should."""
    return await herd.broker.link.command("test", *words)


async def commands(herd: Herd) -> int:
    """How many commands its server has run, those inside scripts too."""
    stats = await command(herd, "INFO", "commandstats")
    return sum(each["calls"] for each in stats.values())


async def crowd(herd: Herd, count: int) -> None:
    """So many more children, `child0` the first, without an instance."""
    names = [f"child{number}" for number in range(count)]
    made = [
        agents.register(herd.parent.caller, name, make_token(), "", "", False) for name in names
    ]
    assert all(isinstance(seat, Seat) for seat in await herd.broker.link.run_many(made))


def token_of(seat: Seat) -> str:
    """The token that a registration returned."""
    assert seat.token is not None
    return seat.token


def of_kind(mail: Iterable[Envelope], kind: Kind | str) -> list[Envelope]:
    """The envelopes of one kind."""
    return [envelope for envelope in mail if envelope.kind == kind]


def reminders(mail: Iterable[Envelope]) -> list[Envelope]:
    """The reminders among some mail."""
    return of_kind(mail, Kind.REMINDER)


def bodies(mail: Iterable[Envelope] | None) -> list[str]:
    """What each envelope says; None is a turn that did not come."""
    return [envelope.body for envelope in mail or ()]


def about(mail: Iterable[Envelope], subject: str) -> list[Envelope]:
    """The envelopes of Tocsin's own that tell of `subject`."""
    return [envelope for envelope in mail if envelope.data.get("about") == subject]


async def side_by_side(url: str, fleet: str, clock: ManualClock, *, passes: int) -> None:
    """Four schedulers at once, each with connections of its own, for so many passes."""

    def forward() -> None:
        with Broker.connect(url, fleet=fleet, clock=clock) as broker:
            for _ in range(passes):
                Scheduler(broker, repair_every=None).tick()

    threads = [threading.Thread(target=forward) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        await asyncio.to_thread(thread.join)
