"""A task: delegated, begun, done; its settlement reaches the parent."""

from __future__ import annotations

from tests.fleets import of_kind
from tests.requirements import proves


@proves("P10")
async def test_a_task_from_delegation_to_settlement(herd):
    """A task runs from when its child takes it until the child says `done`; the parent is told."""
    task = await herd.parent.delegate("scout", "Find how auth works", watch=True)
    assert task.state == "created"

    async with await herd.scout.next_turn(timeout=1) as turn:
        assert [(mail.kind, mail.task_id, mail.body) for mail in turn] == [
            ("task", task.id, "Find how auth works")
        ]
        assert await herd.state(task) == "running"
    assert await herd.state(task) == "running", "a turn that ends says nothing about the task"

    await herd.scout.done(task.id, "completed", summary="By a session cookie; see auth.py.")

    async with await herd.parent.next_turn(timeout=1) as turn:
        (settled,) = of_kind(turn, "task_settled")
    assert settled.sender == "scout"
    assert settled.data["status"] == "completed" and settled.data["return_code"] == 0
    assert settled.data["summary"] == "By a session cookie; see auth.py."


async def test_a_task_that_its_child_cannot_finish(herd):
    """A child that is stuck or broken says so: `blocked` and `failed` settle too."""
    first = await herd.working(herd.scout)
    blocked = await herd.scout.done(first.id, "blocked", error="no access to the repository")
    second = await herd.working(herd.scout)
    failed = await herd.scout.done(second.id, "failed", error="the compiler crashed")

    assert (blocked.status, blocked.return_code, blocked.ok) == ("blocked", 2, False)
    assert (failed.status, failed.return_code, failed.ok) == ("failed", 1, False)


async def test_the_parent_looks_at_its_tasks(herd):
    """The parent lists its tasks, newest first, and those of one state."""
    first = await herd.working(herd.scout, "first")
    await herd.scout.done(first.id)
    second = await herd.parent.delegate("planner", "second")

    assert {task.id for task in await herd.parent.tasks()} == {first.id, second.id}
    assert [task.id for task in await herd.parent.tasks("completed")] == [first.id]
    assert (await herd.parent.task(second.id)).description == "second"
