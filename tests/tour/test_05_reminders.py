"""Stale waits: a wait that drags on reminds the parent, once, and quietly."""

from __future__ import annotations

from tests.fleets import reminders
from tests.requirements import proves


@proves("P1", "P4", "P7")
async def test_a_wait_past_the_threshold_reminds_the_parent_exactly_once(herd):
    """Past five minutes the parent finds one reminder; it is not woken, and nothing is settled."""
    task, _ = await herd.waiting("Which backoff?")

    assert await herd.later(minutes=4, seconds=59) == {}
    assert await herd.later(seconds=1) == {"reminders": 1}
    assert await herd.later(minutes=10) == {}

    assert await herd.parent.next_turn(timeout=0) is None, "a reminder never wakes"
    (reminder,) = await herd.parent.receive()
    assert reminder.kind == "reminder" and not reminder.trigger_turn
    assert reminder.data["task"] == task.id and reminder.data["question"] == "Which backoff?"
    assert await herd.state(task) == "waiting"


@proves("P2")
async def test_a_reply_ends_the_episode_and_the_next_has_a_reminder_of_its_own(herd):
    """One reminder for each contiguous wait, however many waits a task has."""
    task, question = await herd.waiting("Which backoff?")
    await herd.later(minutes=5)
    await herd.planner.reply(question, "Exponential")
    assert reminders(await herd.parent.receive()) == [], "what is no longer true is not said"

    await herd.scout.message("planner", "And which base?", task=task.id, expects_reply=True)
    await herd.later(minutes=5)

    (reminder,) = reminders(await herd.parent.receive())
    assert reminder.data["episode"] == 2 and reminder.data["question"] == "And which base?"


@proves("P7")
async def test_no_reminder_while_the_parent_is_away(herd, broker):
    """While no process serves the parent nothing is sent; back again, it finds what is stale."""
    await herd.waiting()
    await herd.parent.leave()
    assert await herd.later(minutes=6) == {}

    parent = await broker.join(herd.name, "parent", herd.parent.token)

    assert len(reminders(await parent.receive())) == 1


@proves("P5")
async def test_reminders_can_be_switched_off(open_herd):
    """With a threshold of 0 no wait raises a reminder."""
    herd = await open_herd("quiet", "scout", "planner", stale_wait_threshold=0)
    await herd.waiting()

    assert await herd.later(minutes=19) == {}
