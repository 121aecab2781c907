"""The table of a task's states: every legal move happens, and nothing else does."""

from __future__ import annotations

from datetime import timedelta

import pytest

from tests.fleets import Herd, of_kind
from tests.requirements import proves
from tocsin.broker import Task, TaskState, errors
from tocsin.broker.states import MOVES, OPEN, RETURN_CODES

# ------------------------------------------------------------------ how a task gets into a state


async def created(herd: Herd) -> Task:
    return await herd.parent.delegate("scout", "Find how auth works")


async def running(herd: Herd) -> Task:
    return await herd.working(herd.scout)


async def waiting(herd: Herd) -> Task:
    return (await herd.waiting())[0]


STATES = {"created": created, "running": running, "waiting": waiting}

# ------------------------------------------------------------------ events


async def is_taken(herd: Herd, task: Task) -> None:
    await herd.scout.receive()


async def is_shown(herd: Herd, task: Task) -> None:
    await herd.scout.inbox()


async def its_owner_asks(herd: Herd, task: Task) -> None:
    await herd.scout.message("planner", "Which?", task=task.id, expects_reply=True)


async def its_parent_asks(herd: Herd, task: Task) -> None:
    await herd.parent.message("planner", "Which?", task=task.id, expects_reply=True)


async def is_answered(herd: Herd, task: Task) -> None:
    (question,) = (await herd.parent.task(task.id)).open_requests
    await herd.planner.reply(question, "That one")


async def its_question_is_given_up(herd: Herd, task: Task) -> None:
    (question,) = (await herd.parent.task(task.id)).open_requests
    await herd.scout.cancel_request(question)


async def whom_it_waits_for_is_closed(herd: Herd, task: Task) -> None:
    await herd.parent.close("planner")


async def its_reply_deadline_passes(herd: Herd, task: Task) -> None:
    await herd.later(minutes=20)


async def is_done(herd: Herd, task: Task) -> None:
    await herd.scout.done(task.id, "completed")


async def is_done_with_a_reason(herd: Herd, task: Task) -> None:
    await herd.scout.done(task.id, "completed", override_reason="found it myself")


async def is_blocked(herd: Herd, task: Task) -> None:
    await herd.scout.done(task.id, "blocked", error="no access")


async def is_failed(herd: Herd, task: Task) -> None:
    await herd.scout.done(task.id, "failed", error="crashed")


async def its_envelope_dies(herd: Herd, task: Task) -> None:
    for _ in range(5):
        turn = await herd.scout.next_turn(timeout=1)
        assert turn is not None
        await turn.nack(error="the handler raised")


async def is_cancelled(herd: Herd, task: Task) -> None:
    await herd.parent.cancel(task.id, reason="no need")


async def its_agent_is_closed(herd: Herd, task: Task) -> None:
    await herd.parent.close("scout")


async def its_herd_is_closed(herd: Herd, task: Task) -> None:
    await herd.parent.close_herd()


async def its_deadline_passes(herd: Herd, task: Task) -> None:
    await herd.later(hours=24)


LEGAL = [
    ("taken", "created", is_taken, "running"),
    ("taken", "created", is_shown, "running"),
    ("asked", "created", its_parent_asks, "waiting"),
    ("asked", "created", its_owner_asks, "waiting"),
    ("asked", "running", its_owner_asks, "waiting"),
    ("asked", "running", its_parent_asks, "waiting"),
    ("released", "waiting", is_answered, "running"),
    ("released", "waiting", its_question_is_given_up, "running"),
    ("released", "waiting", whom_it_waits_for_is_closed, "running"),
    ("unanswered", "waiting", its_reply_deadline_passes, "blocked"),
    ("finished", "created", is_done, "completed"),
    ("finished", "running", is_done, "completed"),
    ("finished", "waiting", is_done_with_a_reason, "completed"),
    *(("gave_up", state, is_blocked, "blocked") for state in STATES),
    *(("broke", state, is_failed, "failed") for state in STATES),
    ("broke", "created", its_envelope_dies, "failed"),
    *(("cancelled", state, is_cancelled, "cancelled") for state in STATES),
    *(("cancelled", state, its_agent_is_closed, "cancelled") for state in STATES),
    *(("cancelled", state, its_herd_is_closed, "cancelled") for state in STATES),
    ("expired", "created", its_deadline_passes, "timed_out"),
    ("expired", "running", its_deadline_passes, "timed_out"),
]


@proves("P10")
@pytest.mark.parametrize(
    ("source", "event", "target"),
    [row[1:] for row in LEGAL],
    ids=[f"{row[1]}-{row[2].__name__}" for row in LEGAL],
)
async def test_each_legal_move_happens(herd, source, event, target):
    """In a given state an event takes the task to the state that the table names."""
    task = await STATES[source](herd)
    assert await herd.state(task) == source

    await event(herd, task)

    assert await herd.state(task) == target


async def test_a_waiting_task_times_out_at_its_own_deadline(herd):
    """A task deadline ends a wait too."""
    task = await herd.working(herd.scout, deadline=timedelta(minutes=10))
    await its_owner_asks(herd, task)

    await herd.later(minutes=10)

    assert await herd.state(task) == "timed_out"


def test_the_moves_above_are_those_of_the_table():
    """Each row of the table is tried from each state it starts in, and nothing beside it."""
    tried = {(event, source, target) for event, source, _, target in LEGAL}
    tried.add(("expired", "waiting", "timed_out"))

    assert tried == {(move.event, source, move.target) for move in MOVES for source in move.sources}


@pytest.mark.parametrize("end", [is_done, is_blocked, is_failed, is_cancelled, its_deadline_passes])
async def test_a_settled_task_never_changes(herd, end):
    """Whatever happens to a settled task, its state and first result stand."""
    task = await running(herd)
    await end(herd, task)
    settled = (await herd.parent.task(task.id)).settlement
    assert settled is not None

    results = [
        await herd.scout.done(task.id, "completed", summary="other"),
        await herd.scout.done(task.id, "failed", error="other"),
        await herd.scout.done(task.id, "blocked", error="other"),
        await herd.parent.cancel(task.id, reason="other"),
    ]
    await herd.later(days=2)

    assert results == [settled] * 4
    assert (await herd.parent.task(task.id)).settlement == settled


@pytest.mark.parametrize("end", [is_done, is_blocked, is_failed, is_cancelled, its_deadline_passes])
async def test_a_settled_task_waits_for_nothing(herd, end):
    """A question on a settled task is refused; a plain message about it is not."""
    task = await running(herd)
    await end(herd, task)

    with pytest.raises(errors.WrongState):
        await its_owner_asks(herd, task)
    await herd.scout.message("planner", "It is over.", task=task.id)

    assert await herd.state(task) in RETURN_CODES


@proves("P10")
async def test_observations_move_no_task(herd, broker):
    """A turn that ends, an idle or silent process, one that leaves: none of it settles anything."""
    task = await herd.parent.delegate("scout", "Find how auth works")
    async with await herd.scout.next_turn(timeout=1):
        pass
    await herd.scout.set_status("idle")
    await herd.scout.progress("thinking")
    await herd.planner.message("scout", "Are you there?")
    async with await herd.scout.next_turn(timeout=1):
        pass
    await herd.scout.leave()
    await herd.later(hours=23)

    assert await herd.state(task) == "running"


async def test_messages_never_settle_or_create_a_task(herd):
    """Mail about a task, quiet or not, with or without a reply, leaves the tasks as they are."""
    task = await running(herd)

    sent = await herd.parent.message("scout", "Done?", task=task.id)
    await herd.scout.reply(sent.message_id, "done completed failed cancelled")

    assert [(known.id, known.state) for known in await herd.parent.tasks()] == [
        (task.id, "running")
    ]


@pytest.mark.parametrize("state", [state for state in TaskState if state not in OPEN])
async def test_every_end_has_its_return_code(herd, state):
    """Return codes: completed 0, failed 1, blocked 2, timed_out 124, cancelled 130."""
    ends = {
        "completed": (is_done, 0),
        "failed": (is_failed, 1),
        "blocked": (is_blocked, 2),
        "timed_out": (its_deadline_passes, 124),
        "cancelled": (is_cancelled, 130),
    }
    end, code = ends[state]
    task = await running(herd)

    await end(herd, task)

    settled = (await herd.parent.task(task.id)).settlement
    assert (settled.status, settled.return_code, settled.ok) == (state, code, code == 0)
    (told,) = of_kind(await herd.parent.receive(), "task_settled")
    assert told.data["return_code"] == code and told.task_id == task.id
