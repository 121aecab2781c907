"""Watch and wait: a parent is woken by a settlement, or blocks until it is there."""

from __future__ import annotations

import asyncio

from tests.fleets import of_kind


async def test_watched_settlements_wake_the_parent_one_by_one(herd):
    """Each settlement of a watched task wakes; one that nobody watches is quiet."""
    research = await herd.working(herd.scout)
    plan = await herd.working(herd.planner)
    assert await herd.parent.watch(research.id) == []

    await herd.planner.done(plan.id, summary="nobody watches this")
    assert await herd.parent.next_turn(timeout=0) is None

    await herd.scout.done(research.id, summary="somebody watches this")
    turn = await herd.parent.next_turn(timeout=1)
    assert [mail.task_id for mail in of_kind(turn, "task_settled")] == [plan.id, research.id]
    await turn.ack()


async def test_a_watch_of_all_wakes_once(herd):
    """With `wake="all"` the parent is woken by the last of them."""
    research = await herd.working(herd.scout)
    plan = await herd.working(herd.planner)
    await herd.parent.watch(research.id, plan.id, wake="all")

    await herd.scout.done(research.id)
    assert await herd.parent.next_turn(timeout=0) is None
    await herd.planner.done(plan.id)

    async with await herd.parent.next_turn(timeout=1) as turn:
        assert len(of_kind(turn, "task_settled")) == 2


async def test_what_has_settled_is_returned_at_once(herd):
    """Watching a settled task returns its settlement, and wakes nobody."""
    task = await herd.working(herd.scout)
    settled = await herd.scout.done(task.id, summary="done already")

    assert await herd.parent.watch(task.id) == [settled]
    assert await herd.parent.next_turn(timeout=0) is None


async def test_waiting_blocks_until_the_tasks_have_settled(herd):
    """`wait` returns the settlements in the order asked for, whichever came first."""
    research = await herd.working(herd.scout)
    plan = await herd.working(herd.planner)
    waiting = asyncio.create_task(herd.parent.wait(research.id, plan.id, timeout=10))

    await herd.planner.done(plan.id, "failed", error="no plan")
    await herd.scout.done(research.id, summary="found it")

    assert [(end.task_id, end.status) for end in await waiting] == [
        (research.id, "completed"),
        (plan.id, "failed"),
    ]


async def test_waiting_for_the_first(herd):
    """With `return_when="first"` the first settlement is enough; a time-out touches nothing."""
    research = await herd.working(herd.scout)
    plan = await herd.working(herd.planner)
    assert await herd.parent.wait(research.id, plan.id, timeout=0) == []

    await herd.planner.done(plan.id)

    (first,) = await herd.parent.wait(research.id, plan.id, timeout=10, return_when="first")
    assert first.task_id == plan.id
    assert await herd.state(research) == "running"
