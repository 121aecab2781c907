"""Plans as a parent has them: made, looked at, paused, run by hand, removed; and their ends."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from tests.fleets import about, command, key_of
from tocsin.broker import HerdSettings, Missed, Plan, errors

HOUR = timedelta(hours=1)


async def hourly(herd, **how) -> Plan:
    plan: Plan = await herd.parent.plan("scout", "Look around", every=HOUR, **how)
    return plan


async def texts(herd) -> list[str]:
    return [task.description for task in await herd.parent.tasks()]


async def test_a_plan_gives_its_child_a_task_each_time(herd):
    """With what was planned for it, from the slot on."""
    plan = await hourly(herd, watch=True, deadline=timedelta(minutes=10))
    assert plan.next_runs[:2] == (herd.clock.now() + HOUR, herd.clock.now() + 2 * HOUR)

    assert (await herd.later(hours=1))["planned"] == 1

    [task] = await herd.parent.tasks()
    assert (task.agent, task.description, task.state) == ("scout", "Look around", "created")
    assert task.watched and task.deadline == herd.clock.now() + timedelta(minutes=10)
    assert [mail.task_id for mail in await herd.scout.receive()] == [task.id]
    seen = await herd.parent.plan_record(plan.id)
    assert (seen.runs, seen.last_task, seen.last_slot) == (1, task.id, herd.clock.now())


@pytest.mark.parametrize(
    ("queue", "states"), [(True, ["running", "created"]), (False, ["running"])]
)
async def test_a_child_that_is_busy_at_a_slot(herd, queue, states):
    """The task waits for a slot of the child, or the time is skipped and told of."""
    await herd.working(herd.scout)
    plan = await hourly(herd, queue=queue)
    await herd.later(hours=1)
    assert [task.state for task in reversed(await herd.parent.tasks())] == states
    seen = await herd.parent.plan_record(plan.id)
    assert seen.skipped == (0 if queue else 1)
    assert ("holds 1 open task" in (seen.problem or "")) is not queue


async def test_a_full_inbox_puts_a_slot_off(herd):
    """It is given when there is room again, once."""
    await herd.parent.set_settings(HerdSettings(inbox_limit=1))
    await herd.parent.message("scout", "hello")
    plan = await hourly(herd)
    assert (await herd.later(hours=1))["plans_put_off"] == 1
    assert "unread" in ((await herd.parent.plan_record(plan.id)).problem or "")
    await (await herd.scout.receive()).ack()
    assert (await herd.later(minutes=1))["planned"] == 1
    assert "planned" not in await herd.later(minutes=1)
    seen = await herd.parent.plan_record(plan.id)
    assert (seen.problem, seen.runs, seen.skipped) == (None, 1, 0)


async def test_a_slot_that_was_put_off_is_not_missed(herd):
    """A full inbox keeps it waiting also where missed ones are skipped."""
    await herd.parent.set_settings(HerdSettings(inbox_limit=1))
    await herd.parent.message("scout", "hello")
    plan = await hourly(herd, missed="skip")
    assert (await herd.later(hours=1, seconds=5))["plans_put_off"] == 1
    assert (await herd.later(minutes=1, seconds=5))["plans_put_off"] == 1
    await (await herd.scout.receive()).ack()
    assert (await herd.later(minutes=1, seconds=5))["planned"] == 1
    seen = await herd.parent.plan_record(plan.id)
    assert (seen.problem, seen.runs, seen.skipped) == (None, 1, 0)


async def test_one_moment_comes_once_and_the_plan_ends(herd):
    """It is off the list, and can still be looked at for as long as settled tasks."""
    plan = await herd.parent.plan("scout", "Once", at=herd.clock.now() + HOUR)
    await herd.later(hours=2)
    assert await texts(herd) == ["Once"]
    assert await herd.parent.plans() == []
    assert (await herd.parent.plan_record(plan.id)).state == "ended"
    for change in (herd.parent.pause_plan, herd.parent.resume_plan, herd.parent.run_plan):
        with pytest.raises(errors.WrongState, match="ended"):
            await change(plan.id)
    await herd.later(days=8)
    with pytest.raises(errors.UnknownPlan, match="tocsin plan list"):
        await herd.parent.plan_record(plan.id)


async def test_a_paused_plan_lets_its_times_pass(herd):
    """What passed meanwhile is not made up for, whatever is said of missed times."""
    plan = await hourly(herd, missed=Missed.ALL)
    paused = await herd.parent.pause_plan(plan.id)
    assert (paused.state, paused.next_runs, paused.reason) == ("paused", (), "by its parent")
    await herd.later(hours=5)
    assert await texts(herd) == []
    resumed = await herd.parent.resume_plan(plan.id)
    assert (resumed.state, resumed.reason) == ("active", None)
    assert resumed.next_runs[0] == plan.created_at + 6 * HOUR
    await herd.later(hours=1)
    assert len(await texts(herd)) == 1


async def test_a_plan_is_run_by_hand(herd):
    """Beside its times, also while it is paused; the same key runs it once."""
    plan = await hourly(herd)
    await herd.parent.pause_plan(plan.id)
    first = await herd.parent.run_plan(plan.id, key="today")
    assert (await herd.parent.run_plan(plan.id, key="today")).id == first.id
    assert len(await texts(herd)) == 1
    assert (await herd.parent.plan_record(plan.id)).last_task == first.id


async def test_a_removed_plan_leaves_its_tasks(herd):
    """It gives no more; those that it gave stay open."""
    plan = await hourly(herd)
    await herd.later(hours=1)
    assert (await herd.parent.remove_plan(plan.id)).state == "removed"
    await herd.later(hours=3)
    assert [task.state for task in await herd.parent.tasks()] == ["created"]
    assert await herd.parent.plans() == []


async def test_the_plan_of_a_closed_child_pauses_and_tells_once(herd):
    """The list says so from the close on; the parent hears it at the first slot, and no more."""
    await hourly(herd)
    await herd.parent.close("scout", reason="not needed")
    [plan] = await herd.parent.plans()
    assert plan.state == "paused" and "register it again and resume" in (plan.reason or "")
    await herd.later(hours=1)
    await herd.later(hours=5)
    told = about(await herd.parent.receive(), "plan_paused")
    assert [mail.trigger_turn for mail in told] == [False]
    assert plan.id in told[0].body and "'scout' was closed" in told[0].body
    with pytest.raises(errors.AgentClosed, match="register it again"):
        await herd.parent.run_plan(plan.id)


async def test_a_name_used_anew_takes_a_plan_over_only_when_told(herd):
    """A new agent of the name gets nothing of the old one until its parent resumes the plan."""
    plan = await hourly(herd)
    await herd.parent.close("scout")
    await herd.child("scout")
    await herd.later(hours=1)
    assert await texts(herd) == []
    assert "used anew" in ((await herd.parent.plans())[0].reason or "")
    await herd.parent.resume_plan(plan.id)
    await herd.later(hours=1)
    assert await texts(herd) == ["Look around"]


async def test_a_closed_herd_takes_its_plans_along(herd):
    """Nothing is given any more, and nothing of them outlives it."""
    await hourly(herd)
    await herd.parent.close_herd()
    assert "planned" not in await herd.later(hours=2)
    planned = key_of(herd, "planned")
    assert await command(herd, "EXISTS", planned) == 0


async def test_a_herd_has_so_many_plans(open_herd):
    """The next is refused; one that is removed makes room."""
    herd = await open_herd("h", "scout", max_plans=2)
    first, _ = await hourly(herd), await hourly(herd)
    with pytest.raises(errors.QueueFull, match="max_plans"):
        await hourly(herd)
    await herd.parent.remove_plan(first.id)
    await hourly(herd)


async def test_the_same_key_plans_once(herd):
    """With other content it is a conflict."""
    plan = await hourly(herd, key="k")
    assert (await hourly(herd, key="k")).id == plan.id
    with pytest.raises(errors.DuplicateConflict):
        await hourly(herd, key="k", watch=True)
    assert len(await herd.parent.plans()) == 1


@pytest.mark.parametrize(
    ("given", "code", "says"),
    [
        ({"at": datetime(2020, 1, 1, tzinfo=UTC)}, "invalid_input", "in the past by the clock of"),
        ({"at": datetime(9999, 12, 31, 23, tzinfo=UTC)}, "invalid_input", "year 9000 or before"),
        ({"every": HOUR, "deadline": timedelta(0)}, "invalid_input", "more than 0"),
        ({"every": HOUR, "missed": "twice"}, "invalid_input", "'once', 'skip', 'all'"),
        ({"every": HOUR, "queue": 1}, "invalid_input", "queue must be True or False"),
        ({"every": HOUR, "agent": "nobody"}, "unknown_agent", "no agent 'nobody'"),
        ({"every": HOUR, "agent": "parent"}, "invalid_input", "plans tasks of its children"),
        ({"every": HOUR, "description": ""}, "invalid_input", "description is empty"),
        ({"every": HOUR, "description": "x" * 60_000}, "too_large", "description"),
        ({"cron": "0 2 * * *", "tz": "Mars/Olympus"}, "invalid_input", "no time zone"),
    ],
)
async def test_what_is_refused_changes_nothing(herd, given, code, says):
    """The refusal says what to do, and nothing is planned."""
    how = {"agent": "scout", "description": "Look"} | given
    with pytest.raises(errors.BrokerError, match=says) as refusal:
        await herd.parent.plan(how.pop("agent"), how.pop("description"), **how)
    assert refusal.value.code == code
    assert await herd.parent.plans() == []


async def test_a_plan_is_its_parents_alone(herd):
    """Case 29: another herd's parent cannot touch it; the id of something else is named as such."""
    plan = await hourly(herd)
    other = await herd.broker.open_herd("other")
    with pytest.raises(errors.UnknownPlan):
        await other.remove_plan(plan.id)
    with pytest.raises(errors.InvalidInput, match="a plan is meant"):
        await herd.parent.run_plan("task_0000")
    assert len(await herd.parent.plans()) == 1


async def test_the_journal_tells_of_plans(herd):
    """Made, given, skipped, paused, resumed, removed."""
    plan = await hourly(herd)
    await herd.later(hours=3)
    await herd.parent.pause_plan(plan.id)
    await herd.parent.resume_plan(plan.id)
    await herd.parent.remove_plan(plan.id)
    told = [
        line.event for line in await herd.parent.journal() if line.fields.get("plan") == plan.id
    ]
    assert told == [
        "planned", "plan_fired", "plan_skipped", "plan_paused", "plan_resumed", "plan_removed",
    ]  # fmt: skip
