"""Work that goes on while servers are moved, killed and replaced, and a judge of what came of it.

Each herd has a parent who writes numbered messages, a scout who handles them, and a worker whose
task waits again and again for an answer that never comes, until it was reminded of. A call that
ends `unavailable` is sent again with its key, as the documents tell senders to do.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from typing import Any, TypeVar

from tests.fleets import bodies, reminders, token_of
from tests.waiting import wait_until_async
from tocsin.broker import AsyncBroker, HerdSettings, ScaledClock, errors
from tocsin.scheduler import AsyncScheduler

T = TypeVar("T")

FLEET = "load"
SETTINGS = HerdSettings(stale_wait_threshold=1)
CLOCK = ScaledClock(factor=60.0)  # a wait is stale after a second


class Household:
    """One herd at work, and what was seen of it."""

    def __init__(self, parent: Any, scout: Any, worker: Any, task: str) -> None:
        self.parent, self.scout, self.worker, self.task = parent, scout, worker, task
        self.sent: list[str] = []
        self.got: list[str] = []
        self.waits = 0
        self.reminded: Counter[int] = Counter()
        self.resent = 0

    async def until_told(
        self, operation: Callable[..., Awaitable[T]], *args: Any, **options: Any
    ) -> T:
        """What it comes to, sent again while the servers cannot say."""
        while True:
            try:
                return await operation(*args, **options)
            except errors.Unavailable:
                self.resent += 1

    async def write(self) -> None:
        """Numbered messages, one after the other."""
        while True:
            text = str(len(self.sent))
            await self.until_told(self.parent.message, "scout", text, key=text)
            self.sent.append(text)
            await asyncio.sleep(0.05)

    async def handle(self) -> None:
        """Takes what comes, and acks it."""
        while True:
            turn = await self.until_told(self.scout.next_turn, timeout=5)
            if turn is not None:
                self.got += bodies(turn)
                await self.until_told(turn.ack)

    async def wait(self) -> None:
        """Waits for an answer until its parent is reminded of that, gives up, and begins again."""
        while True:
            self.waits += 1
            asked = await self.until_told(
                self.worker.message,
                *("scout", f"? {self.waits}"),
                expects_reply=True,
                task=self.task,
                key=f"wait-{self.waits}",
            )
            while not self.reminded[self.waits]:
                mail = await self.until_told(self.parent.receive)
                for each in reminders(mail):
                    self.reminded[each.data["episode"]] += 1
                await self.until_told(mail.ack)
                await asyncio.sleep(0.1)
            await self.until_told(self.worker.cancel_request, asked.message_id)

    def is_past(self, sent: int, waits: int) -> bool:
        """Whether it handled more than so many messages, and began more waits."""
        return len(self.numbers()) > sent and self.waits > waits

    def numbers(self) -> list[str]:
        """The parent's messages among what the scout got."""
        return [text for text in self.got if not text.startswith("?")]


class Load:
    """All herds at work."""

    def __init__(self, broker: AsyncBroker, herds: list[Household]) -> None:
        self.broker = broker
        self.herds = herds

    async def goes_on(self, timeout: float = 30.0) -> None:
        """Returns when every herd has sent, handled and been reminded of something more."""
        for herd in self.herds:
            more = partial(herd.is_past, len(herd.sent) + 5, herd.waits + 1)
            await wait_until_async(more, f"herd {herd.parent.herd} to go on", timeout)


@asynccontextmanager
async def working(url: str, *, herds: int = 4, **options: Any) -> AsyncIterator[Load]:
    """Herds at work with a scheduler; at the end nothing is lost, doubled or out of order."""
    async with AsyncExitStack() as stack:
        broker, other = [
            await stack.enter_async_context(
                AsyncBroker.connect(url, fleet=FLEET, clock=CLOCK, **options)
            )
            for _ in range(2)
        ]
        load = Load(broker, [await _household(broker, other, f"h{n}") for n in range(herds)])
        scheduler = AsyncScheduler(other, repair_every=None)
        tasks = [asyncio.create_task(scheduler.run())]
        steps = [step for h in load.herds for step in (h.write, h.handle, h.wait)]
        tasks += [asyncio.create_task(step()) for step in steps]
        failing = asyncio.gather(*tasks)
        try:
            await load.goes_on()
            yield load
            await load.goes_on()
        finally:
            scheduler.stop()
            assert not failing.done(), failing.exception()
            for task in tasks[1:]:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            failing.cancel()
            await asyncio.gather(failing, return_exceptions=True)
        for herd in load.herds:
            await _judge(herd)
        try:
            found = await AsyncScheduler(broker).repair(mend=False)
        except errors.Unavailable:  # a server is still on its way back; the look is made again
            found = await AsyncScheduler(broker).repair(mend=False)
        assert not found.counts and not found.broken, found


async def _household(broker: AsyncBroker, other: AsyncBroker, name: str) -> Household:
    parent = await broker.open_herd(name, settings=SETTINGS)
    scout, worker = [
        await other.join(name, child, token_of(await parent.register(child)))
        for child in ("scout", "worker")
    ]
    task = await parent.delegate("worker", "wait")
    await (await worker.receive()).ack()
    return Household(parent, scout, worker, task.id)


async def _judge(herd: Household) -> None:
    """Every message once and in order; each wait that was long enough reminded of once."""
    turn = await herd.until_told(herd.scout.receive)
    got = herd.numbers() + [text for text in bodies(turn) if not text.startswith("?")]
    await turn.ack()
    assert got[: len(herd.sent)] == herd.sent
    assert got[len(herd.sent) :] in ([], [str(len(herd.sent))]), "what was on its way at the end"
    assert len(herd.sent) > 10 and herd.waits > 2
    assert set(herd.reminded.values()) <= {1}, herd.reminded
    assert all(herd.reminded[wait] == 1 for wait in range(1, herd.waits)), herd.reminded
