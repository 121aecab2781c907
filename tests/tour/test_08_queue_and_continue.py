"""One task at a time: a busy child, a queue, and a task that continues an ended one."""

from __future__ import annotations

import pytest

from tocsin.broker import errors


async def test_a_busy_child_takes_no_second_task(herd):
    """A child holds one open task unless set otherwise; who wants more is told what it holds."""
    first = await herd.working(herd.scout)

    with pytest.raises(errors.AgentBusy) as refusal:
        await herd.parent.delegate("scout", "one more")

    assert first.id in refusal.value.detail and "queue=True" in refusal.value.detail


async def test_a_queued_task_gets_the_slot_when_it_is_free(herd):
    """With `queue=True` a task stays created until its child has a slot, then wakes it."""
    first = await herd.working(herd.scout, "first")
    second = await herd.parent.delegate("scout", "second", queue=True)
    assert await herd.scout.next_turn(timeout=0) is None

    await herd.scout.done(first.id)

    async with await herd.scout.next_turn(timeout=1) as turn:
        assert [mail.task_id for mail in turn] == [second.id]
    assert await herd.state(second) == "running"


async def test_a_task_continues_one_that_was_blocked(herd):
    """A new task carries the ended one's description, its open question, and the late answer."""
    blocked, question = await herd.waiting("Which backoff?")
    await herd.later(minutes=20)
    late = await herd.planner.reply(question, "Exponential")
    assert late.late

    await herd.parent.delegate("scout", "Go on", continues=blocked.id)

    turn = await herd.scout.next_turn(timeout=1)
    (mail,) = [mail for mail in turn if mail.kind == "task"]
    carried = mail.data["continues"]
    assert carried["task"] == blocked.id and carried["status"] == "blocked"
    assert carried["description"] == "Find how auth works"
    assert (carried["question"], carried["answer"]) == ("Which backoff?", "Exponential")
    assert "Exponential" in mail.body
