"""Deadlines: of a reply, which blocks the task that waits; of a task, which times out."""

from __future__ import annotations

from datetime import timedelta

from tests.fleets import of_kind
from tests.requirements import proves


@proves("P4")
async def test_a_question_that_nobody_answers_blocks_its_task(herd):
    """At the reply deadline (20 minutes unless set) the task that waits is blocked."""
    task, question = await herd.waiting()

    assert await herd.later(minutes=20) == {"reply_deadlines": 1, "reminders": 1}

    settled = (await herd.parent.task(task.id)).settlement
    assert settled.status == "blocked" and settled.return_code == 2
    assert settled.error == f"no reply from planner to message {question}"


@proves("P10")
async def test_a_task_that_takes_too_long_times_out(herd):
    """At its deadline a task is timed out, and its child's running turn is told to stop."""
    task = await herd.working(herd.scout, deadline=timedelta(minutes=30))

    assert await herd.later(minutes=30) == {"task_deadlines": 1}

    assert await herd.state(task) == "timed_out"
    (notice,) = await herd.scout.receive()
    assert notice.kind == "notice" and notice.delivery == "steer"
    (settled,) = of_kind(await herd.parent.receive(), "task_settled")
    assert settled.data["return_code"] == 124
