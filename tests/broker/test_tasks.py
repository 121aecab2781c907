"""Tasks: one result, one slot, one settlement."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta

import pytest

from tests.fleets import about, of_kind
from tests.requirements import proves
from tocsin.broker import HerdSettings, errors


@proves("P12")
async def test_the_first_done_stands_and_the_second_is_journalled(herd):
    """A second `done` with other content returns the first result and is kept as late."""
    task = await herd.working(herd.scout)

    first = await herd.scout.done(task.id, "completed", summary="by cookie")
    second = await herd.scout.done(task.id, "failed", error="on second thoughts")

    assert second == first
    (late,) = [line for line in await herd.parent.journal() if line.event == "late_done"]
    assert late.fields["outcome"] == "failed" and late.fields["error"] == "on second thoughts"
    assert len(of_kind(await herd.parent.receive(), "task_settled")) == 1


async def test_the_same_done_again_is_no_late_one(herd):
    """A repeat of the same `done` is the same result, and no news."""
    task = await herd.working(herd.scout)

    first = await herd.scout.done(task.id, "completed", summary="by cookie")
    assert await herd.scout.done(task.id, "completed", summary="by cookie") == first

    assert [line for line in await herd.parent.journal() if line.event == "late_done"] == []


async def test_a_cancel_after_done_is_late(herd):
    """A cancel that comes second gets the first result and leaves a line in the journal."""
    task = await herd.working(herd.scout)
    done = await herd.scout.done(task.id, summary="by cookie")

    assert await herd.parent.cancel(task.id, reason="too slow") == done

    (late,) = [line for line in await herd.parent.journal() if line.event == "late_cancel"]
    assert late.fields["reason"] == "too slow"


async def test_a_deadline_that_fires_after_done_counts_for_nothing(herd):
    """An unfired timer counts for nothing: `done` after the deadline, but before it fires, wins."""
    task = await herd.working(herd.scout, deadline=timedelta(minutes=1))
    herd.clock.advance(timedelta(minutes=2))

    settled = await herd.scout.done(task.id, summary="just in time")
    fired = await herd.scheduler.tick()

    assert settled.status == "completed" and "task_deadlines" not in fired
    assert await herd.state(task) == "completed"


async def test_a_settlement_is_quiet_unless_watched(herd):
    """Every settlement reaches the parent once; only that of a watched task wakes it."""
    quiet = await herd.working(herd.scout)
    await herd.scout.done(quiet.id)
    assert await herd.parent.next_turn(timeout=0) is None
    watched = await herd.working(herd.scout, watch=True)
    await herd.scout.done(watched.id)

    turn = await herd.parent.next_turn(timeout=1)

    settled = of_kind(turn, "task_settled")
    assert [(mail.task_id, mail.trigger_turn) for mail in settled] == [
        (quiet.id, False),
        (watched.id, True),
    ]


@pytest.mark.parametrize("how", ["cancel", "timeout", "block"])
async def test_the_child_is_told_by_a_quiet_steer_notice(herd, how):
    """A cancel, a timeout, a block by the reply deadline: the running turn can see it at once."""
    task, _ = await herd.waiting()
    if how == "cancel":
        await herd.parent.cancel(task.id, reason="no need")
    elif how == "timeout":
        await herd.later(hours=24)
    else:
        await herd.later(minutes=20)

    assert await herd.scout.next_turn(timeout=0) is None, "the notice wakes nobody"
    (notice,) = about(await herd.scout.receive(), "task_ended")
    assert (notice.delivery, notice.trigger_turn, notice.sender) == ("steer", False, "@tocsin")
    assert notice.task_id == task.id and task.id in notice.body


async def test_its_own_done_sends_the_child_no_notice(herd):
    """Who settled it knows it."""
    task = await herd.working(herd.scout)
    await herd.scout.done(task.id, "blocked", error="no access")

    assert len(await herd.scout.receive()) == 0


async def test_a_task_gets_the_herds_deadline(open_herd):
    """A deadline always exists: the herd's `task_deadline` where none is given."""
    herd = await open_herd("h", "scout", task_deadline=timedelta(hours=2))

    default = await herd.parent.delegate("scout", "one")
    own = await herd.parent.delegate("scout", "two", queue=True, deadline=timedelta(hours=3))
    moment = datetime(2026, 3, 1, 12, tzinfo=UTC)
    until = await herd.parent.delegate("scout", "three", queue=True, deadline=moment)

    assert default.deadline == herd.clock.now() + timedelta(hours=2)
    assert own.deadline == herd.clock.now() + timedelta(hours=3)
    assert until.deadline == moment


async def test_the_default_deadline_is_a_day(herd):
    """Without any setting a task has 24 hours."""
    task = await herd.parent.delegate("scout", "one")

    assert await herd.later(hours=23, minutes=59, seconds=59, milliseconds=999) == {}
    assert await herd.later(milliseconds=1) == {"task_deadlines": 1}
    assert await herd.state(task) == "timed_out"


async def test_a_queued_task_can_time_out_and_never_reaches_its_child(herd):
    """A deadline runs while a task waits for its slot; its envelope is taken back."""
    first = await herd.working(herd.scout, "first")
    second = await herd.parent.delegate(
        "scout", "second", queue=True, deadline=timedelta(minutes=1)
    )

    await herd.later(minutes=1)
    await herd.scout.done(first.id)

    assert await herd.state(second) == "timed_out"
    assert of_kind(await herd.scout.receive(), "task") == []


async def test_a_raised_limit_frees_more_slots_at_once(open_herd):
    """The next settlement hands out every slot that the herd's settings allow by then."""
    herd = await open_herd("h", "scout")
    first = await herd.parent.delegate("scout", "first")
    for text in ("second", "third", "fourth"):
        await herd.parent.delegate("scout", text, queue=True)
    await herd.parent.set_settings(HerdSettings(max_open_tasks=2))

    await herd.parent.cancel(first.id)

    scout = next(info for info in await herd.parent.roster() if info.agent == "scout")
    assert (len(scout.tasks), len(scout.queued)) == (2, 1)


async def test_queued_tasks_come_in_order(herd):
    """The slot goes to the task that was queued first, one at a time."""
    tasks = [await herd.working(herd.scout, "0")]
    for text in "123":
        herd.clock.advance(timedelta(seconds=1))
        tasks.append(await herd.parent.delegate("scout", text, queue=True))

    came = []
    for task in tasks:
        await herd.scout.done(task.id)
        came += [mail.body for mail in of_kind(await herd.scout.receive(), "task")]

    assert came == ["1", "2", "3"]


async def test_messages_take_no_slot(herd):
    """An agent with mail, unread or not, is not busy."""
    await herd.parent.message("scout", "hello")
    await herd.planner.message("scout", "a question", expects_reply=True)

    task = await herd.parent.delegate("scout", "a task")

    assert task.state == "created"


async def test_the_number_of_slots_is_a_setting(open_herd):
    """`max_open_tasks` tasks may be open at a time."""
    herd = await open_herd("h", "scout", max_open_tasks=2)
    await herd.parent.delegate("scout", "one")
    await herd.parent.delegate("scout", "two")

    with pytest.raises(errors.AgentBusy):
        await herd.parent.delegate("scout", "three")


@proves("P3")
async def test_settling_closes_the_tasks_questions_and_takes_them_back(herd):
    """Questions of a settled task are closed; what was unread of them is not read any more."""
    task, question = await herd.waiting()

    await herd.parent.cancel(task.id, reason="no need")

    assert (await herd.scout.receipt(question)).request == "settled"
    assert await herd.planner.next_turn(timeout=0) is None
    planner = {agent.agent: agent for agent in await herd.parent.roster()}["planner"]
    assert planner.waited_on_by == ()


async def test_an_unread_task_that_was_cancelled_is_taken_back(herd):
    """A child never begins what was cancelled before it looked."""
    task = await herd.parent.delegate("scout", "do it")
    await herd.parent.cancel(task.id)

    assert await herd.scout.next_turn(timeout=0) is None
    assert of_kind(await herd.scout.receive(), "task") == []


async def test_a_waiting_task_is_not_completed_without_a_reason(herd):
    """`pending_requests` names the open questions; with a reason they are closed with it."""
    task, question = await herd.waiting()
    with pytest.raises(errors.PendingRequests) as refusal:
        await herd.scout.done(task.id, "completed", summary="anyway")
    assert question in refusal.value.detail and "override_reason" in refusal.value.detail
    assert await herd.state(task) == "waiting"

    settled = await herd.scout.done(
        task.id, "completed", summary="anyway", override_reason="I found it myself"
    )

    assert settled.status == "completed"
    assert (await herd.scout.receipt(question)).request == "settled"
    assert await herd.planner.next_turn(timeout=0) is None


async def test_the_override_reason_is_kept(herd):
    """Why a waiting task was completed can be read afterwards, in the journal."""
    task, _ = await herd.waiting()
    await herd.scout.done(task.id, "completed", override_reason="I found it myself")

    lines = [line for line in await herd.parent.journal() if line.event == "completed"]

    assert [line.fields.get("override") for line in lines] == ["I found it myself"]


async def test_a_done_without_a_summary_says_so(herd):
    """A settlement without a summary is shown as one."""
    task = await herd.working(herd.scout)
    await herd.scout.done(task.id)

    (told,) = await herd.parent.receive()
    assert "gave no summary" in told.body


async def test_only_an_ended_task_is_continued(herd):
    """`continues` names an ended task of the herd."""
    task = await herd.working(herd.scout)

    with pytest.raises(errors.WrongState) as refusal:
        await herd.parent.delegate("planner", "go on", continues=task.id)

    assert "still running" in refusal.value.detail


async def test_watching_all_of_some_settled_tasks_waits_for_the_others(herd):
    """`wake="all"`: those already settled are returned in order, the last of the rest wakes."""
    architect = await herd.child("architect")
    one, two = await herd.working(herd.scout), await herd.working(herd.planner)
    three = await herd.working(architect)
    await herd.planner.done(two.id)

    already = await herd.parent.watch(three.id, two.id, one.id, wake="all")
    assert [settled.task_id for settled in already] == [two.id]
    await herd.scout.done(one.id)
    assert await herd.parent.next_turn(timeout=0) is None
    await architect.done(three.id)

    assert await herd.parent.next_turn(timeout=0) is not None


async def test_a_later_watch_replaces_an_earlier_one(herd):
    """Watching each of a set once more does not hold up the rest of the set."""
    one, two = await herd.working(herd.scout), await herd.working(herd.planner)
    await herd.parent.watch(one.id, two.id, wake="all")
    await herd.parent.watch(one.id, wake="each")

    await herd.planner.done(two.id)

    assert await herd.parent.next_turn(timeout=0) is not None


async def test_wait_wakes_for_quiet_settlements_too(herd):
    """`wait` needs no watch, and returns as soon as the settlement is there."""
    task = await herd.working(herd.scout)
    waiting = asyncio.create_task(herd.parent.wait(task.id, timeout=5))
    await asyncio.sleep(0)

    await herd.scout.done(task.id, summary="here")

    assert [settled.summary for settled in await asyncio.wait_for(waiting, 5)] == ["here"]


async def test_any_process_of_the_parent_may_wait(herd, broker):
    """A second instance of the parent waits for a task that the first delegated."""
    task = await herd.working(herd.scout)
    elsewhere = await broker.join(herd.name, "parent", herd.parent.token)
    waiting = asyncio.create_task(elsewhere.wait(task.id, timeout=timedelta(seconds=5)))

    await herd.scout.done(task.id)

    assert [settled.task_id for settled in await waiting] == [task.id]
