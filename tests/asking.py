"""Asks on the line: started in the background, watched until they are open, awaited in bounds."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, TypeVar

import pytest

from tests.fleets import Herd
from tests.waiting import TIMEOUT, wait_until_async
from tocsin.broker import Agent, AsyncAgent, AsyncChild, AsyncParent, Reply, asks, errors, keys
from tocsin.broker.scripts import Call
from tocsin.broker.signals import AsyncSignal

E = TypeVar("E", bound=errors.BrokerError)


class Line:
    """An ask that somebody waits on. `id` is the request's."""

    def __init__(self, asking: asyncio.Task[Reply], request: str) -> None:
        self._asking = asking
        self.id = request

    @property
    def open(self) -> bool:
        """Whether its asker still waits."""
        return not self._asking.done()

    async def reply(self) -> Reply:
        """The answer it got."""
        return await asyncio.wait_for(asyncio.shield(self._asking), TIMEOUT)

    async def ends(self, kind: type[E]) -> E:
        """The error it ended in, which is of this kind."""
        with pytest.raises(kind) as ended:
            await self.reply()
        return ended.value

    async def hang_up(self) -> None:
        """Cancels the asker's waiting."""
        self._asking.cancel()
        await asyncio.wait({self._asking}, timeout=TIMEOUT)
        assert self._asking.done(), "a cancelled ask still waits"
        if not self._asking.cancelled():
            self._asking.exception()  # seen


REQUEST = "msg_00000000000000000000000aa"


def opening(
    agent: AsyncAgent | Agent,
    request: str = REQUEST,
    call: str = "call_1",
    *,
    to: str = "planner",
    task: str | None = None,
    totals: str = "",
) -> Call[asks.Outcome]:
    """The first step of an ask, whose asker never gets to the next."""
    return asks.open_ask(
        agent.caller,
        to,
        "Which backoff?",
        request=request,
        call=call,
        task=task,
        window=None,
        ceiling=None,
        totals=totals,
        thread=None,
        data=None,
    )


async def attending(herd: Herd, request: str) -> int:
    """How many calls wait for an ask."""
    partition = herd.parent.caller.fleet.partition(herd.name)
    key = keys.below(partition, "attending", herd=herd.name, message=request)
    count: int = await herd.broker.link.command("test", "ZCARD", key)
    return count


async def join_in(herd: Herd, asker: AsyncChild, request: str, **how: Any) -> asyncio.Task[Reply]:
    """The same ask once more, from another process of its asker; waits until it waits."""
    before = await attending(herd, request)
    task = asyncio.create_task(asker.ask("planner", "Which backoff?", **how))

    async def joined() -> bool:
        return await attending(herd, request) > before

    await wait_until_async(joined, "the second call to wait")
    return task


async def hears(asker: AsyncChild | AsyncParent) -> None:
    """Its bell is heard from here on, so that no confirmation of that makes it look again."""
    signal = AsyncSignal()

    async def rung() -> bool:
        link = asker.broker.link
        await link.command("test", "PUBLISH", asker.bell, "test", key=asker.bell)
        return await signal.wait(0.05)

    with asker.broker.hear(asker.bell, "test", signal):
        await wait_until_async(rung, "the bell to be heard")


@asynccontextmanager
async def asking(
    herd: Herd,
    asker: AsyncChild | AsyncParent,
    to: str,
    body: str = "Which backoff?",
    /,
    **how: Any,
) -> AsyncIterator[Line]:
    """An ask that is open when the block begins, and hung up when it ends."""

    async def made() -> set[str]:
        partition = herd.parent.caller.fleet.partition(herd.name)
        key = keys.below(partition, "asking", herd=herd.name, agent=asker.agent)
        return set(await herd.broker.link.command("test", "ZRANGE", key, 0, -1))

    await hears(asker)
    before = await made()
    task = asyncio.create_task(asker.ask(to, body, **how))

    async def fresh() -> set[str] | bool:
        return await made() - before or task.done()

    found = await wait_until_async(fresh, "the ask to be open")
    if task.done():
        task.result()
    assert isinstance(found, set)
    line = Line(task, found.pop())
    try:
        yield line
    finally:
        await line.hang_up()
