"""Receipts: how far an envelope got, which wakes were tried, who was handed it, and when."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import pytest

from tests.fleets import about
from tests.waiting import wait_until_async
from tocsin.broker.testing import lapse


@pytest.mark.one_server
async def test_the_bell_of_a_message_that_nobody_heard(herd):
    """A wake that was tried says by which path, when, and that it reached nobody."""
    sent = await herd.scout.message("planner", "Read me.")

    (tried,) = (await herd.scout.receipt(sent.message_id)).wake
    assert (tried.path, tried.at, tried.reached) == ("bell", herd.clock.now(), 0)


@pytest.mark.one_server
async def test_the_bell_of_a_message_that_a_process_waits_for(herd):
    """A process that waits for a turn is counted; the receipt then says which one took it."""
    waiting = asyncio.create_task(herd.planner.next_turn(timeout=10))

    async def listens() -> bool:
        found = await herd.broker.link.command("look", "PUBSUB", "NUMSUB", herd.planner.bell)
        return int(found[1]) == 1

    await wait_until_async(listens, "planner to listen")
    sent = await herd.scout.message("planner", "Read me.")
    assert await waiting is not None

    receipt = await herd.scout.receipt(sent.message_id)
    assert [tried.reached for tried in receipt.wake] == [1]
    assert receipt.not_tried is None
    assert receipt.taken_by == receipt.by == herd.planner.instance


async def test_a_wake_is_tried_again_when_mail_comes_again(herd):
    """Mail that is given back rings anew: its receipt has the last try."""
    sent = await herd.scout.message("planner", "Read me.")
    turn = await herd.planner.receive()
    herd.clock.advance(timedelta(minutes=1))
    await turn.nack()

    receipt = await herd.scout.receipt(sent.message_id)
    assert [tried.at for tried in receipt.wake] == [herd.clock.now()]
    assert (receipt.state, receipt.by) == ("accepted", None)


async def test_quiet_mail_says_that_no_wake_was_tried_and_why(herd):
    """Notices, reminders, unwatched settlements and late answers have a reason each."""
    task, question = await herd.waiting()
    await herd.later(minutes=6)
    (reminder,) = [mail for mail in await herd.parent.inbox() if mail.kind == "reminder"]
    await herd.parent.cancel_request(question)
    late = await herd.planner.reply(question, "Exponential")
    await herd.parent.cancel(task.id)
    settled = f"msg_settled_{task.id.partition('_')[2]}"
    (stop,) = about(await herd.scout.inbox(), "task_ended")

    reasons = {}
    for message in (reminder.message_id, late.message_id, settled, stop.message_id):
        receipt = await herd.parent.receipt(message)
        assert (receipt.wakes, receipt.wake) == (False, ())
        reasons[message] = receipt.not_tried
    assert list(reasons.values()) == [
        "it is quiet: a reminder never wakes",
        "it is quiet: it came late, and nothing that is still open waits for it",
        "it is quiet: its task is not watched, or others of its watch are still open",
        "it is quiet: this notice waits for the next turn",
    ]


async def test_a_task_without_a_slot_is_not_rung_before_it_has_one(herd):
    """Queued: nothing is tried, and why; when the slot frees, the bell rings."""
    first = await herd.working(herd.scout)
    second = await herd.parent.delegate("scout", "later", queue=True)
    envelope = f"msg_task_{second.id.partition('_')[2]}"
    receipt = await herd.parent.receipt(envelope)
    assert (receipt.state, receipt.wake) == ("queued", ())
    assert receipt.not_tried == "its task waits for a slot"

    await herd.scout.done(first.id)

    assert [each.path for each in (await herd.parent.receipt(envelope)).wake] == ["bell"]


async def test_who_was_shown_and_who_took_it(herd):
    """The first that was shown it, the last that took it, each with its time."""
    sent = await herd.scout.message("planner", "Read me.")
    start = herd.clock.now()
    second, third = await herd.another("planner"), await herd.another("planner")
    await herd.planner.inbox()
    herd.clock.advance(timedelta(minutes=1))
    await second.inbox()
    await second.receive()
    lapse(second)
    herd.clock.advance(timedelta(minutes=1))
    await third.receive()

    receipt = await herd.scout.receipt(sent.message_id)
    assert (receipt.shown_at, receipt.shown_by) == (start, herd.planner.instance)
    assert (receipt.taken_at, receipt.taken_by) == (herd.clock.now(), third.instance)
    assert receipt.attempts == 1
    assert second.instance in str(receipt.error)


async def test_delayed_mail_says_when_it_comes_again(herd):
    """Given back with a delay and an error: both are in the receipt until it is there again."""
    sent = await herd.scout.message("planner", "Read me.")
    await (await herd.planner.receive()).nack(delay=timedelta(minutes=3), error="no disk")

    receipt = await herd.scout.receipt(sent.message_id)
    assert (receipt.state, receipt.error) == ("delayed", "no disk")
    assert receipt.comes_at == herd.clock.now() + timedelta(minutes=3)

    await herd.later(minutes=3)
    receipt = await herd.scout.receipt(sent.message_id)
    assert (receipt.state, receipt.comes_at) == ("accepted", None)


async def test_dead_and_taken_back_mail_say_when_and_why(open_herd):
    """The ends of mail that was not handled, each with its time and reason."""
    herd = await open_herd("h", "scout", "planner", max_attempts=1)
    dead = await herd.scout.message("planner", "Read me.")
    herd.clock.advance(timedelta(minutes=1))
    died = herd.clock.now()
    await (await herd.planner.receive()).nack(error="no disk")
    _, question = await herd.waiting()
    herd.clock.advance(timedelta(minutes=1))
    await herd.scout.cancel_request(question)

    receipt = await herd.scout.receipt(dead.message_id)
    assert (receipt.state, receipt.reason) == ("dead", "failed 1 times, last: no disk")
    assert (receipt.ended_at, receipt.taken_at) == (died, died)
    assert (receipt.handled_at, receipt.attempts) == (None, 1)
    receipt = await herd.scout.receipt(question)
    assert (receipt.state, receipt.ended_at) == ("withdrawn", herd.clock.now())
    assert receipt.reason == "cancelled"
