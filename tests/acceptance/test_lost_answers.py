"""The answer to a call is lost, and the client library repeats it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from datetime import timedelta

import pytest
import redis

from tests.fleets import bodies, command, key_of, of_kind, reminders
from tests.proxy import Proxy
from tests.requirements import proves
from tests.waiting import wait_until_async
from tests.webhook import webhook
from tocsin.broker import AsyncBroker, connections, scripts
from tocsin.broker.settings import NotifySettings
from tocsin.scheduler import AsyncScheduler
from tocsin.scheduler._async import notify


@pytest.fixture
def proxy(url: str) -> Iterator[Proxy]:
    """The way to a server that knows all scripts, so that a call is one command."""
    with redis.Redis.from_url(url) as client:
        for name in scripts.names():
            client.script_load(scripts.load(name).text)
    with Proxy(url) as proxy:
        yield proxy


@pytest.fixture
async def behind(proxy: Proxy, fleet_name: str, clock) -> AsyncIterator[AsyncBroker]:
    """A broker whose every command goes through the proxy."""
    async with AsyncBroker.connect(proxy.url, fleet=fleet_name, clock=clock) as broker:
        yield broker


def cut(proxy: Proxy, script: str, when: str):
    """Loses the answer to the next run of a script, or the command itself."""
    return proxy.cut_next(scripts.load(script).sha, before=when == "command")


LOST = pytest.mark.parametrize("when", ["answer", "command"])


@LOST
@proves("P12")
async def test_a_message_whose_answer_is_lost(herd, behind, proxy, when):
    """Case 1: one envelope in the inbox, one handler run, and the sender hears of one."""
    scout = await behind.join(herd.name, "scout", herd.scout.token)
    lost = cut(proxy, "message_send", when)

    sent = await scout.message("planner", "once")

    assert lost.happened
    turn = await herd.planner.next_turn(timeout=1)
    assert [mail.message_id for mail in turn] == [sent.message_id]
    await turn.ack()
    assert await herd.planner.next_turn(timeout=0) is None


@LOST
@proves("P12")
async def test_a_delegation_whose_answer_is_lost(herd, behind, proxy, when):
    """Case 1: one task, not a busy child."""
    parent = await behind.join(herd.name, "parent", herd.parent.token)
    lost = cut(proxy, "task_delegate", when)

    task = await parent.delegate("scout", "once")

    assert lost.happened
    assert [known.id for known in await parent.tasks()] == [task.id]
    assert len(await herd.scout.receive()) == 1


@LOST
@proves("P12")
async def test_a_done_whose_answer_is_lost(herd, behind, proxy, when):
    """Case 1: one settlement, nothing late."""
    task = await herd.working(herd.scout)
    scout = await behind.join(herd.name, "scout", herd.scout.token)
    lost = cut(proxy, "task_done", when)

    settled = await scout.done(task.id, summary="once")

    assert lost.happened and settled.summary == "once"
    assert len(of_kind(await herd.parent.receive(), "task_settled")) == 1
    assert "late_done" not in [line.event for line in await herd.parent.journal()]


@LOST
@proves("P12")
async def test_a_question_and_a_reply_whose_answers_are_lost(herd, behind, proxy, when):
    """Case 1: one question in one episode, one reply."""
    task = await herd.working(herd.scout)
    scout = await behind.join(herd.name, "scout", herd.scout.token)
    planner = await behind.join(herd.name, "planner", herd.planner.token)
    first = cut(proxy, "message_send", when)
    sent = await scout.message("planner", "?", task=task.id, expects_reply=True)
    assert first.happened
    second = cut(proxy, "request_reply", when)
    reply = await planner.reply(sent.message_id, "!")

    assert second.happened
    known = await herd.parent.task(task.id)
    assert (known.state, known.episode) == ("running", 1)
    assert [mail.message_id for mail in await herd.scout.receive()] == [reply.message_id]
    assert "second_reply" not in [line.event for line in await herd.parent.journal()]


@LOST
@proves("P12")
async def test_an_ack_whose_answer_is_lost(herd, behind, proxy, when):
    """Case 1: handled once, nobody fenced."""
    await herd.scout.message("planner", "once")
    planner = await behind.join(herd.name, "planner", herd.planner.token)
    turn = await planner.next_turn(timeout=1)
    lost = cut(proxy, "inbox_ack", when)

    await turn.ack()

    assert lost.happened and turn.fenced == ()
    assert len(await herd.planner.receive()) == 0
    assert [line.event for line in await herd.parent.journal()].count("handled") == 1


@LOST
@proves("P12")
async def test_taking_whose_answer_is_lost(herd, behind, proxy, when):
    """Case 2: mail whose taker never got the answer is handled, by that taker, at once."""
    planner = await behind.join(herd.name, "planner", herd.planner.token)
    await herd.scout.message("planner", "once")
    lost = cut(proxy, "inbox_take", when)

    turn = await planner.next_turn(timeout=5)

    assert lost.happened
    assert [(mail.body, mail.attempts) for mail in turn] == [("once", 0)]


@proves("P12")
async def test_a_taker_that_was_interrupted_finds_its_mail_again(herd, behind, proxy):
    """Case 2: a turn that was cancelled while its answer was on the way is the next one's."""
    planner = await behind.join(herd.name, "planner", herd.planner.token)
    await herd.scout.message("planner", "once")
    proxy.freeze()
    taking = asyncio.create_task(planner.next_turn(timeout=5))
    _, still = await asyncio.wait({taking}, timeout=0.2)
    assert still, "its answer is on the way"
    taking.cancel()
    proxy.thaw()
    with pytest.raises(asyncio.CancelledError):
        await taking

    assert bodies(await planner.next_turn(timeout=5)) == ["once"]


STEPS = (
    "fleet_open",
    "timers_due",
    "herd_visit",
    "herd_repair",
    "alerts_take",
    "alert_end",
    "scheduler_report",
    "outbox_take",
)
"""Scripts of a scheduler that fires timers, mends, forwards, tells a human and reports."""


@LOST
@pytest.mark.parametrize("step", STEPS)
@proves("P1", "P16")
async def test_each_step_of_the_scheduler_loses_its_answer(
    open_herd, proxy, fleet_name, clock, monkeypatch, step, when
):
    """Case 17: three expired waits, whatever answer the scheduler missed: three reminders.

    One of the waits had lost its place, and has it again; a human is told of each once.
    """
    monkeypatch.setattr(notify, "MARGIN", timedelta(0))
    herds = [await open_herd(name, "scout", "planner") for name in ("one", "two", "three")]
    with webhook() as hook:
        settings = NotifySettings(
            notify_url=hook.url, notify_private=True, notify_timeout=timedelta(seconds=1)
        )
        await AsyncScheduler(herds[0].broker, settings).tick()  # alerts are wanted from here on
        tasks = [(await herd.waiting())[0] for herd in herds]
        clock.advance(timedelta(minutes=5))
        await command(herds[0], "DEL", key_of(herds[0], "waiting"))

        async with AsyncBroker.connect(proxy.url, fleet=fleet_name, clock=clock) as broker:
            scheduler = AsyncScheduler(broker, settings)
            lost = cut(proxy, step, when)
            for duty in (scheduler.repair, scheduler.tick, scheduler._report.turn):
                await duty()

            async def all_told() -> bool:
                await scheduler.tick()
                return len(hook.alerts) >= len(herds)

            await wait_until_async(all_told, "each alert")

    assert lost.happened
    assert [len(reminders(await herd.parent.receive())) for herd in herds] == [1, 1, 1]
    assert sorted(alert["task"] for alert in hook.alerts) == sorted(task.id for task in tasks)


@LOST
@proves("P11")
async def test_a_handler_that_fails_while_the_server_is_away(
    herd, behind, proxy, monkeypatch, when
):
    """Case 32: its mail comes again once the server is back, though its holder lives on."""
    planner = await behind.join(herd.name, "planner", herd.planner.token)
    await herd.scout.message("planner", "once")
    turn = await planner.next_turn(timeout=5)
    monkeypatch.setattr(connections, "REPEATS", 0)
    away = cut(proxy, "inbox_nack", when)

    with pytest.raises(RuntimeError):
        async with turn:
            raise RuntimeError("it broke")

    assert away.happened
    assert [mail.attempts for mail in await planner.next_turn(timeout=5)] == [1]


@proves("P11")
async def test_a_cancelled_handler_ends_so_while_the_server_is_away(
    herd, behind, proxy, monkeypatch
):
    """Nothing takes the place of the cancellation; the mail goes when its holder leaves."""
    planner = await behind.join(herd.name, "planner", herd.planner.token)
    await herd.scout.message("planner", "once")
    turn = await planner.next_turn(timeout=5)
    monkeypatch.setattr(connections, "REPEATS", 0)
    away = cut(proxy, "inbox_nack", "command")

    with pytest.raises(asyncio.CancelledError):
        async with turn:
            raise asyncio.CancelledError

    assert away.happened
    await planner.leave()
    assert bodies(await herd.planner.next_turn(timeout=5)) == ["once"]
