"""A task that is cancelled in the midst of a call ends, whatever the call was doing."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Awaitable, Callable
from itertools import count
from typing import Any

import pytest

from tests.fleets import HerdMaker, bodies
from tests.proxy import Proxy
from tests.requirements import proves
from tests.waiting import wait_until_async
from tocsin.broker import AsyncBroker, agents, herds
from tocsin.broker.herds import HerdRecord
from tocsin.broker.scripts import Call
from tocsin.broker.signals import AsyncCancellation
from tocsin.scheduler import AsyncScheduler

Line = tuple[AsyncBroker, Proxy | None]


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


async def test_a_connection_that_a_cancelled_task_gives_back(broker: AsyncBroker) -> None:
    """It is there for others, also if the task had to wait before it could give it back."""
    await broker.fleet()
    (client,) = broker.link._clients.values()
    pool = client.connection_pool
    for _ in range(2 * pool.max_connections):
        taken = await asyncio.wait_for(pool.get_connection(), 30)
        async with pool._lock:
            giving = asyncio.create_task(pool.release(taken))
            await asyncio.sleep(0)
            giving.cancel()
            await asyncio.wait({giving})
    await wait_until_async(lambda: not pool._in_use_connections, "all to be back")


async def test_each_task_has_its_turn(broker: AsyncBroker) -> None:
    """Many that call again and again leave none without an answer."""
    await broker.fleet()
    rounds = [0] * 40

    async def work(number: int) -> None:
        while min(rounds) < 20:
            await broker.link.command("test", "PING")
            rounds[number] += 1

    await asyncio.gather(*[work(number) for number in range(len(rounds))])
    assert max(rounds) < 3 * min(rounds), rounds


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


async def everything_that_is_left(herd) -> list[Check]:
    """The rest of them: questions, tasks, mail that is given back, looks."""
    scout, planner, parent = herd.scout, herd.planner, herd.parent
    number, alone = count(), asyncio.Lock()

    async def question() -> None:
        key = f"question {next(number)}"
        asked = (await planner.message("parent", key, expects_reply=True, key=key)).message_id
        assert (await parent.reply(asked, f"to {key}", key=key)).message_id != asked
        assert (await planner.receipt(asked)).request == "answered"

    async def work() -> None:
        key = f"work {next(number)}"
        task = await parent.delegate("planner", key, queue=True, key=key)
        assert (await parent.task(task.id)).description == key
        await parent.watch(task.id)
        settled = await planner.done(task.id, summary=key)
        assert settled.task_id == task.id
        assert [each.task_id for each in await parent.wait(task.id, timeout=5)] == [task.id]
        assert (await parent.cancel(task.id)).status == settled.status

    async def inbox() -> None:
        async with alone:  # another one could give back what this one was shown
            shown = await parent.inbox(limit=5)
            assert all(mail.recipient == "parent" for mail in shown)
            if shown:
                await parent.ack(*shown)
            turn = await parent.receive(limit=5)
            assert all(mail.recipient == "parent" for mail in turn)
            await turn.nack()
            await (await parent.receive(limit=5)).ack()

    async def looks() -> None:
        text = f"looks {next(number)}"
        await scout.progress(text)
        await scout.set_status("working")
        assert await scout.probe({text: 1}) is False
        assert (await scout.why("planner")).about == "planner"
        assert (await parent.herd_record()).settings.inbox_limit == 100_000
        assert (await parent.journal(limit=3))[0].id
        assert (await parent.dead_letters()).remaining == 0

    return [question, work, inbox, looks]


@pytest.fixture(params=["straight", pytest.param("slow", marks=pytest.mark.one_server)])
async def line(request, url, fleet_name, clock) -> AsyncIterator[Line]:
    """A broker on the way that it takes; on a slow one answers are held up for some moments."""
    with Proxy(url) as proxy:
        slow = request.param == "slow"
        where = proxy.url if slow else url
        async with AsyncBroker.connect(where, fleet=fleet_name, clock=clock) as broker:
            yield broker, proxy if slow else None


async def _cancel(task: asyncio.Task[None], proxy: Proxy | None, chance: random.Random) -> None:
    """At a random moment; on a slow line an answer may be on the way for all of it."""
    if proxy is not None and chance.random() < 0.3:
        proxy.freeze()
    await asyncio.sleep(chance.choice([0, 0, 0.001, 0.003]))
    assert not task.done() or task.result() is None
    task.cancel()
    if proxy is not None:
        await asyncio.sleep(0)
        proxy.thaw()
    await asyncio.wait({task}, timeout=30)
    assert task.cancelled()


@proves("P12")
async def test_three_hundred_cancellations_at_random_moments(line, clock):
    """Whatever call is cancelled at whatever moment, every later answer is its own caller's.

    Every kind of call runs side by side on one broker; nothing that was taken or asked gets lost.
    """
    broker, proxy = line
    settings = {"inbox_limit": 100_000, "pair_rate": 1_000_000}
    herd = await HerdMaker(broker, clock, AsyncScheduler(broker))(
        "h", "scout", "planner", **settings
    )
    chance = random.Random(300)
    kinds = await everything_an_agent_calls(herd) + await everything_that_is_left(herd)
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
    running = {asyncio.create_task(on_and_on(kind)): kind for kind in kinds}
    for _ in range(300):
        task = chance.choice(list(running))
        kind = running.pop(task)
        await _cancel(task, proxy, chance)
        running[asyncio.create_task(on_and_on(kind))] = kind
    for task in running:
        task.cancel()
    await asyncio.wait(running)
    assert all(task.cancelled() for task in running)

    for kind in kinds * 3:
        await asyncio.wait_for(kind(), 30)
    await asyncio.wait_for(asyncio.gather(*[kind() for kind in kinds * 4]), 60)
    sent = await herd.scout.message("planner", "the last")
    left: list[str] = []
    while "the last" not in left:
        turn = await herd.planner.next_turn(timeout=5)
        assert turn is not None
        left += bodies(turn)
        await turn.ack()
    assert (await herd.scout.receipt(sent.message_id)).state == "handled"
    answering.cancel()
    await asyncio.wait({answering})
