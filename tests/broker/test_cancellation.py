"""A task that is cancelled in the midst of a call ends, whatever the call was doing."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from itertools import count
from typing import Any

import pytest

from tests.fleets import bodies
from tests.requirements import proves
from tocsin.broker import AsyncBroker, agents, herds
from tocsin.broker.herds import HerdRecord
from tocsin.broker.scripts import Call
from tocsin.broker.signals import AsyncCancellation


@pytest.mark.parametrize("steps", range(0, 40, 2))
async def test_a_loop_of_calls_ends_when_it_is_cancelled(
    url: str, fleet_name: str, steps: int
) -> None:
    """Cancelled at any step of a call: while it connects, sends or reads.

    Sending is where it was lost: redis-py sends through `asyncio.wait_for`, which up to Python 3.11
    returns what was sent instead of raising.
    """
    async with AsyncBroker.connect(url, fleet=fleet_name) as broker:
        await broker.fleet()

        async def work() -> None:
            while True:
                await broker.link.command("test", "PING")

        task = asyncio.create_task(work())
        for _ in range(steps):
            await asyncio.sleep(0)
        task.cancel()
        done, _ = await asyncio.wait({task}, timeout=2)
        while not done:  # so that a failure does not hang
            task.cancel()
            done, _ = await asyncio.wait({task}, timeout=0.01)
        assert task.cancelled() and task.cancelling() == 1, "the first cancellation was lost"


async def _swallow(started: asyncio.Event, then: Exception | None = None) -> str:
    try:
        started.set()
        await asyncio.Event().wait()
    except asyncio.CancelledError:
        if then is not None:
            raise then from None
    return "swallowed"


@pytest.mark.parametrize("then", [None, ConnectionError("lost")], ids=["result", "error"])
async def test_a_swallowed_cancellation_is_raised(then: Exception | None) -> None:
    """Also when what swallowed it ends with an error of its own."""
    started = asyncio.Event()

    async def work() -> str:
        with AsyncCancellation():
            return await _swallow(started, then)

    task = asyncio.create_task(work())
    await started.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_a_cancellation_that_came_before_is_not_raised_again() -> None:
    """A task that cleans up after its cancellation may still make calls."""
    started = asyncio.Event()

    async def work() -> str:
        await _swallow(started)
        with AsyncCancellation():
            return "cleaned up"

    task = asyncio.create_task(work())
    await started.wait()
    task.cancel()
    assert await task == "cleaned up"


Check = Callable[[], Awaitable[None]]


async def everything_an_agent_calls(herd) -> list[Check]:
    """One of each kind of call, which looks that the answer it gets is its own."""
    scout, planner, parent, broker = herd.scout, herd.planner, herd.parent, herd.broker
    number = count()

    async def echo() -> None:
        text = f"echo {next(number)}"
        assert await broker.link.command("test", "ECHO", text) == text

    async def message() -> None:
        key = f"message {next(number)}"
        sent = await scout.message("planner", key, key=key)
        assert (await scout.message("planner", key, key=key)).message_id == sent.message_id
        receipt = await scout.receipt(sent.message_id)
        assert (receipt.message_id, receipt.recipient) == (sent.message_id, "planner")

    async def run_many() -> None:
        me = parent.caller
        calls: list[Call[Any]] = [herds.roster(me), agents.renew(me), herds.read_herd(me)] * 3
        answers = await broker.link.run_many(calls)
        assert [type(answer) for answer in answers] == [list, float, HerdRecord] * 3

    async def next_turn() -> None:
        turn = await planner.next_turn(timeout=0.002)
        if turn is not None:
            await turn.ack()
            assert turn.fenced == ()

    async def ask() -> None:
        text = f"ask {next(number)}"
        reply = await parent.ask("scout", text)
        assert reply.body == f"to {text}"

    async def roster() -> None:
        assert {agent.agent for agent in await parent.roster()} == {"parent", "scout", "planner"}

    return [echo, message, run_many, next_turn, ask, roster]


@proves("P12")
async def test_three_hundred_cancellations_at_random_moments(herd):
    """Whatever call is cancelled at whatever moment, every later answer is its own caller's.

    Six kinds of call run side by side on one broker; nothing that was taken or asked gets lost.
    """
    chance = random.Random(300)
    kinds = await everything_an_agent_calls(herd)
    got: list[str] = []

    async def answer() -> None:
        async for turn in herd.scout.turns():
            async with turn:
                for envelope in turn:
                    got.append(envelope.body)
                    if envelope.expects_reply:
                        await herd.scout.reply(envelope, f"to {envelope.body}")

    async def on_and_on(kind: Check) -> None:
        while True:
            await kind()

    answering = asyncio.create_task(answer())
    cancelled = 0
    running = {asyncio.create_task(on_and_on(kind)): kind for kind in kinds}
    while cancelled < 300:
        await asyncio.sleep(chance.choice([0, 0, 0.001, 0.003]))
        task = chance.choice(list(running))
        kind = running.pop(task)
        assert not task.done() or task.result() is None
        task.cancel()
        running[asyncio.create_task(on_and_on(kind))] = kind
        await asyncio.wait({task}, timeout=5)
        assert task.cancelled()
        cancelled += 1
    for task in running:
        task.cancel()
    await asyncio.wait(running)
    assert all(task.cancelled() for task in running)

    for kind in kinds * 3:
        await asyncio.wait_for(kind(), 10)
    await asyncio.wait_for(asyncio.gather(*[kind() for kind in kinds * 4]), 20)
    sent = await herd.scout.message("planner", "the last")
    left: list[str] = []
    while "the last" not in left:
        turn = await herd.planner.next_turn(timeout=5)
        left += bodies(turn)
        await turn.ack()
    assert (await herd.scout.receipt(sent.message_id)).state == "handled"
    answering.cancel()
    await asyncio.wait({answering})
