"""Asks and what surrounds them: tasks that wait, circles, closing, a thousand at once, the end."""

from __future__ import annotations

import asyncio
import random
from contextlib import AsyncExitStack
from datetime import timedelta
from itertools import pairwise

import pytest

from tests.asking import REQUEST, asking, opening
from tests.fleets import about, bodies, of_kind, reminders, token_of
from tests.leftovers import herd_keys
from tests.requirements import proves
from tests.waiting import wait_until_async
from tocsin.broker import AsyncBroker, Envelope, HerdSettings, errors

MINUTE = timedelta(minutes=1)

# ------------------------------------------------------------------ the task that waits


@proves("P1", "P2")
async def test_an_ask_has_its_task_wait(herd):
    """One episode, one reminder past the threshold, and on with the work after the answer."""
    task = await herd.working(herd.scout)
    async with asking(herd, herd.scout, "planner", task=task.id) as line:
        known = await herd.parent.task(task.id)
        assert (known.state, known.open_requests, known.episode) == ("waiting", (line.id,), 1)
        await herd.planner.progress("at it")
        assert await herd.later(minutes=5) == {"reminders": 1}
        (reminder,) = reminders(await herd.parent.receive())
        assert reminder.data["request"] == line.id
        await herd.planner.progress("at it")
        assert await herd.later(minutes=5) == {}
        await herd.planner.reply(line.id, "!")
        await line.reply()
    assert await herd.state(task) == "running"


async def test_the_parent_asks_for_the_task_of_a_child(herd):
    """As with any question, the parent may have a child's task wait."""
    task = await herd.working(herd.scout)
    async with asking(herd, herd.parent, "planner", task=task.id) as line:
        assert await herd.state(task) == "waiting"
        await herd.planner.reply(line.id, "!")
        await line.reply()
    assert await herd.state(task) == "running"


async def test_a_child_asks_its_parent(herd):
    """The parent answers as anybody does."""
    async with asking(herd, herd.scout, "parent") as line:
        (asked,) = await herd.parent.next_turn(timeout=5)
        await herd.parent.reply(asked, "Yes")
        assert (await line.reply()).sender == "parent"


@pytest.mark.parametrize("error", [errors.NoReply, errors.CeilingActive])
@proves("P4", "P10")
async def test_an_ask_never_blocks_a_task(open_herd, error):
    """Whatever it ends in, its task runs again; no reply deadline ends an ask."""
    herd = await open_herd("h", "scout", "planner", reply_timeout=MINUTE)
    task = await herd.working(herd.scout)
    async with asking(herd, herd.scout, "planner", task=task.id, ceiling=12 * MINUTE) as line:
        for _ in range(2 if error is errors.CeilingActive else 0):
            await herd.later(minutes=5)
            await herd.planner.progress("at it")
        assert await herd.state(task) == "waiting"
        await herd.later(minutes=10)
        await line.ends(error)
        assert await herd.state(task) == "running"
    await herd.later(hours=1)
    assert await herd.state(task) == "running"
    assert (await herd.scout.done(task.id, summary="without it")).ok


async def test_a_task_waits_for_its_other_questions(herd):
    """An ask that ran out does not end a wait that others hold."""
    task = await herd.working(herd.scout)
    await herd.scout.message(
        "parent", "And?", task=task.id, expects_reply=True, reply_within=timedelta(0)
    )
    async with asking(herd, herd.scout, "planner", task=task.id) as line:
        await herd.later(minutes=10)
        await line.ends(errors.NoReply)
    assert await herd.state(task) == "waiting"


SETTLE = {
    "completed": lambda herd, task: herd.scout.done(task.id, override_reason="found it"),
    "blocked": lambda herd, task: herd.scout.done(task.id, "blocked", error="e"),
    "failed": lambda herd, task: herd.scout.done(task.id, "failed", error="e"),
    "cancelled": lambda herd, task: herd.parent.cancel(task.id, reason="r"),
    "timed_out": lambda herd, task: herd.later(minutes=8),
}


@pytest.mark.parametrize("state", SETTLE)
async def test_a_task_that_settles_meanwhile(herd, state):
    """The ask ends and names the state; the unread question is taken back."""
    task = await herd.working(herd.scout, deadline=8 * MINUTE)
    async with asking(herd, herd.scout, "planner", task=task.id) as line:
        await SETTLE[state](herd, task)
        ended = await line.ends(errors.RequestCancelled)
    assert f"its task {task.id} is {state}" in ended.detail
    assert not ended.retryable
    assert len(of_kind(await herd.planner.receive(), "request")) == 0
    with pytest.raises(errors.RequestCancelled, match=state):
        await herd.scout.ask_wait(line.id)
    assert about(await herd.scout.receive(), "request_closed") == []


async def test_a_task_that_settled_before(herd):
    """It can wait for nothing; nothing is asked."""
    task = await herd.working(herd.scout)
    await herd.scout.done(task.id, summary="s")
    with pytest.raises(errors.WrongState):
        await herd.scout.ask("planner", "?", task=task.id)
    assert len(await herd.planner.receive()) == 0


async def test_the_task_of_another(herd):
    """A child lets its own tasks wait only."""
    task = await herd.working(herd.scout)
    with pytest.raises(errors.Forbidden):
        await herd.planner.ask("parent", "?", task=task.id)


@pytest.mark.parametrize("who", ["scout", "parent"])
async def test_an_ask_that_is_given_up(herd, who):
    """By its asker or the parent: it ends at once."""
    task = await herd.working(herd.scout)
    async with asking(herd, herd.scout, "planner", task=task.id) as line:
        agent = herd.scout if who == "scout" else herd.parent
        await agent.cancel_request(line.id)
        ended = await line.ends(errors.RequestCancelled)
        assert "it was cancelled" in ended.detail
    assert await herd.state(task) == "running"
    assert len(await herd.planner.receive()) == 0


# ------------------------------------------------------------------ circles


@pytest.mark.parametrize("length", [2, 3, 5, 12])
async def test_a_circle_of_asks(open_herd, length):
    """However long, the one that would close it is refused, with its path."""
    names = [f"a{number}" for number in range(length)]
    herd = await open_herd("h", *names)
    async with AsyncExitStack() as lines:
        for asker, target in pairwise(names):
            await lines.enter_async_context(asking(herd, herd.children[asker], target))
        with pytest.raises(errors.LoopLimit) as refused:
            await herd.children[names[-1]].ask("a0", "And you?")
        assert " -> ".join([names[-1], *names]) in refused.value.detail
        # A plain question holds no line, and is not refused.
        sent = await herd.children[names[-1]].message("a0", "And you?", expects_reply=True)
        assert not sent.duplicate
    assert bodies(await herd.children["a0"].receive()) == ["And you?"]


@pytest.mark.parametrize("way", ["joining", "coming back", "rerouting"])
async def test_a_circle_that_is_not_closed_by_a_new_ask(herd, way):
    """Nor does one close by coming to an ask that nobody waits on, or by whom it is sent to."""
    await herd.child("architect")
    scout, planner, parent = herd.scout, herd.planner, herd.parent
    async with asking(herd, scout, "planner", key="k") as line:
        pass
    async with AsyncExitStack() as lines:
        rerouting = way == "rerouting"
        target = "architect" if rerouting else "scout"
        other = await lines.enter_async_context(asking(herd, planner, target))
        if rerouting:
            await lines.enter_async_context(asking(herd, scout, "planner", "another"))
        ways = {
            "joining": lambda: scout.ask("planner", "Which backoff?", key="k"),
            "coming back": lambda: scout.ask_wait(line.id, timeout=0),
            "rerouting": lambda: parent.reroute(other.id, "scout"),
        }
        with pytest.raises(errors.LoopLimit, match="planner -> scout"):
            await ways[way]()
        assert other.open


async def test_a_circle_through_the_parent(herd):
    """Parent and children are agents alike."""
    async with asking(herd, herd.parent, "scout"), asking(herd, herd.scout, "planner"):
        with pytest.raises(errors.LoopLimit, match="planner -> parent -> scout -> planner"):
            await herd.planner.ask("parent", "?")


async def test_no_circle_without_somebody_who_waits(herd):
    """Plain questions, asks whose asker hung up, and asks that ended close none."""
    await herd.scout.message("planner", "plain", expects_reply=True)
    async with asking(herd, herd.scout, "planner", "hung up"):
        pass
    async with asking(herd, herd.scout, "planner", "ended", window=MINUTE) as line:
        await herd.later(minutes=1)
        await line.ends(errors.NoReply)
    async with asking(herd, herd.planner, "scout") as line:
        await herd.scout.reply(line.id, "!")
        await line.reply()


async def test_a_circle_of_one_agent_with_many_asks(open_herd):
    """Also when the ask that closes it is one of hundreds."""
    herd = await open_herd("h", "scout", "planner", "tester")
    asked = [asyncio.create_task(herd.scout.ask("tester", str(n))) for n in range(150)]

    async def all_open() -> bool:
        return len(await herd.children["tester"].inbox(limit=200)) == 150

    await wait_until_async(all_open, "the asks to be open")
    async with asking(herd, herd.scout, "planner"):
        with pytest.raises(errors.LoopLimit, match="planner -> scout -> planner"):
            await herd.planner.ask("scout", "?")
    for each in asked:
        each.cancel()
    await asyncio.wait(asked)


# ------------------------------------------------------------------ closing


async def test_a_target_that_is_closed(herd):
    """Who waits for it is told at once, with another error."""
    task = await herd.working(herd.scout)
    async with asking(herd, herd.scout, "planner", task=task.id) as line:
        await herd.parent.close("planner", reason="not needed")
        ended = await line.ends(errors.AgentClosed)
    assert "planner was closed before it answered" in ended.detail
    assert await herd.state(task) == "running"
    assert len(await herd.scout.receive()) == 0, "it was told already"
    with pytest.raises(errors.AgentClosed):
        await herd.scout.ask_wait(line.id)
    with pytest.raises(errors.AgentClosed):
        await herd.scout.ask("planner", "?")


async def test_an_asker_that_is_closed(herd):
    """Its call ends; its question is taken back."""
    async with asking(herd, herd.scout, "planner") as line:
        await herd.parent.close("scout")
        await line.ends(errors.AgentClosed)
    assert len(await herd.planner.receive()) == 0


async def test_an_answer_held_for_an_asker_that_is_closed(herd):
    """It goes to the dead letters, as its unread mail does."""
    await herd.broker.run(opening(herd.scout))
    sent = await herd.planner.reply(REQUEST, "!")
    assert (await herd.planner.receipt(sent.message_id)).state == "held"

    await herd.parent.close("scout")

    receipt = await herd.planner.receipt(sent.message_id)
    assert (receipt.state, receipt.reason) == ("dead", "agent scout was closed")


@pytest.mark.parametrize("asker", ["parent", "scout"])
async def test_a_herd_that_is_closed(open_herd, asker):
    """Every ask in it ends."""
    herd = await open_herd("h", "scout", "planner")
    agent = herd.parent if asker == "parent" else herd.scout
    async with asking(herd, agent, "planner") as line:
        await herd.parent.close_herd()
        ended = await line.ends(errors.BrokerError)
    assert ended.code in ("herd_closed", "agent_closed")


@pytest.mark.parametrize("read", [True, False])
@proves("P15")
async def test_a_question_that_was_dead_lettered(open_herd, read):
    """Its asker is told that nobody could take it in."""
    herd = await open_herd("h", "scout", "planner", max_attempts=1)
    async with asking(herd, herd.scout, "planner") as line:
        turn = await herd.planner.next_turn(timeout=5)
        await turn.nack(error="broke")
        ended = await line.ends(errors.RequestCancelled)
    assert "dead-lettered" in ended.detail
    if read:
        assert about(await herd.parent.receive(), "dead_letter") != []


# ------------------------------------------------------------------ what is left


@proves("P15")
async def test_nothing_is_left_of_asks_after_their_retention(url, fleet_name, open_herd):
    """Answered, silent, answered late, cut off, hung up: the records go, the herd stays."""
    herd = await open_herd("h", "scout", "planner")
    async with asking(herd, herd.scout, "planner", "answered") as line:
        await herd.planner.reply(line.id, "!")
        await line.reply()
    async with asking(herd, herd.scout, "planner", "silent") as line:
        await herd.later(minutes=10)
        await line.ends(errors.NoReply)
    async with asking(herd, herd.scout, "planner", "late") as line:
        await herd.later(minutes=10)
        await line.ends(errors.NoReply)
        await herd.planner.reply(line.id, "!")
    async with asking(herd, herd.scout, "planner", "hung up") as line:
        pass
    await herd.planner.reply(line.id, "!")
    for agent in (herd.scout, herd.planner, herd.parent):
        await (await agent.receive()).ack()

    await herd.later(days=7, hours=1)

    left = herd_keys(url, fleet_name, "h")
    assert [key for key in left if ":m:" in key or key.endswith(":answers")] == []


# ------------------------------------------------------------------ many


async def connections(broker: AsyncBroker) -> int:
    """How many connections the server has."""
    listing: str = await broker.link.command("test", "CLIENT", "LIST")
    return len(listing.splitlines())


@proves("P8", "P16")
async def test_a_thousand_asks_in_one_process(broker, url, fleet_name, clock):
    """On at most 10 connections, and each answer reaches its own asker."""
    settings = HerdSettings(inbox_limit=10_000)
    parent = await broker.open_herd("h", settings=settings)
    tokens = {name: token_of(await parent.register(name)) for name in ("scout", "planner")}
    planner = await broker.join("h", "planner", tokens["planner"])
    before = await connections(broker)
    async with AsyncBroker.connect(url, fleet=fleet_name, clock=clock) as process:
        scout = await process.join("h", "scout", tokens["scout"])
        asks = [asyncio.create_task(scout.ask("planner", f"q{n}")) for n in range(1000)]
        questions: list[Envelope] = []
        while len(questions) < 1000:
            turn = await planner.next_turn(timeout=60, limit=1000)
            assert turn is not None
            questions += list(turn)
            await turn.ack()
        assert await connections(broker) - before <= 10
        random.Random(8).shuffle(questions)
        for asked in questions:
            await planner.reply(asked, f"to {asked.body}")
        replies = await asyncio.wait_for(asyncio.gather(*asks), 60)
        assert [reply.body for reply in replies] == [f"to q{n}" for n in range(1000)]
        assert await connections(broker) - before <= 10
        assert await scout.next_turn(timeout=0) is None
