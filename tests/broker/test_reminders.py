"""Stale-wait reminders: when, how many, and what they say."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import pytest

from tests.fleets import Herd, about, of_kind, reminders, token_of
from tests.leftovers import herd_keys
from tests.requirements import proves
from tests.waiting import wait_until_async
from tocsin.broker import AsyncBroker, HerdSettings, ScaledClock, keys
from tocsin.scheduler import AsyncScheduler


async def ask(herd: Herd, task: str, question: str, to: str = "planner", **how) -> str:
    """Scout asks something of the task; the id of the question."""
    sent = await herd.scout.message(to, question, task=task, expects_reply=True, **how)
    return sent.message_id


def markers(url: str, fleet: str) -> list[str]:
    """The keys that say that an episode had its reminder."""
    return [key for key in herd_keys(url, fleet) if keys.kind_of(key) == "reminded"]


# ------------------------------------------------------------------ when, and how many


@proves("P1")
async def test_not_a_millisecond_early_and_never_twice(herd):
    """A wait is stale at the threshold exactly, and reminds once while it lasts."""
    await herd.waiting(reply_within=timedelta(hours=3))

    assert await herd.later(minutes=5, milliseconds=-1) == {}
    assert await herd.later(milliseconds=1) == {"reminders": 1}
    for _ in range(10):
        assert await herd.later(minutes=10) == {}

    assert len(reminders(await herd.parent.receive())) == 1


@proves("P1", "P16")
async def test_many_schedulers_send_one_reminder(herd, url, fleet_name, clock):
    """Schedulers that look at the same moment remind once."""
    await herd.waiting()
    clock.advance(timedelta(minutes=5))
    brokers = [AsyncBroker.connect(url, fleet=fleet_name, clock=clock) for _ in range(8)]

    fired = await asyncio.gather(*(AsyncScheduler(broker).tick() for broker in brokers))

    assert sum(counts.get("reminders", 0) for counts in fired) == 1
    assert len(reminders(await herd.parent.receive())) == 1
    for broker in brokers:
        await broker.aclose()


@proves("P2")
async def test_each_episode_has_a_reminder_of_its_own(herd):
    """Wait, answer, wait again: episodes are numbered from 1, each with its one reminder."""
    task = await herd.working(herd.scout)
    found = []
    for number in (1, 2, 3):
        question = await ask(herd, task.id, f"question {number}")
        await herd.later(minutes=6)
        found += reminders(await herd.parent.receive())
        await herd.planner.reply(question, "answer")

    assert [reminder.data["episode"] for reminder in found] == [1, 2, 3]
    assert [reminder.data["question"] for reminder in found] == [
        "question 1",
        "question 2",
        "question 3",
    ]


@proves("P2")
async def test_an_answer_in_time_starts_the_clock_anew(herd):
    """What waited four minutes, ran, and waits again has waited for nothing yet."""
    task, question = await herd.waiting()
    await herd.later(minutes=4)
    await herd.planner.reply(question, "answer")
    await ask(herd, task.id, "one more")

    assert await herd.later(minutes=4, seconds=59) == {}
    assert await herd.later(seconds=1) == {"reminders": 1}


@proves("P3")
@pytest.mark.parametrize("end", ["completed", "failed", "blocked", "cancelled", "timed_out"])
async def test_a_task_that_ended_reminds_of_nothing(herd, end):
    """A finished, failed, blocked, cancelled or timed-out task is not waiting for anybody."""
    task = await herd.working(herd.scout, deadline=timedelta(minutes=4))
    await ask(herd, task.id, "Which backoff?")
    if end == "cancelled":
        await herd.parent.cancel(task.id)
    elif end == "timed_out":
        await herd.later(minutes=4)
    else:
        reason = "no matter" if end == "completed" else None
        await herd.scout.done(task.id, end, override_reason=reason)
    assert await herd.state(task) == end

    assert "reminders" not in await herd.later(minutes=6)
    assert reminders(await herd.parent.receive()) == []


@proves("P3")
async def test_an_idle_agent_reminds_of_nothing(herd):
    """Neither an idle agent, nor a running task, nor a question without a task is a stale wait."""
    await herd.working(herd.scout)
    await herd.scout.set_status("idle")
    await herd.planner.message("scout", "And you?", expects_reply=True)

    assert await herd.later(minutes=19) == {}


@proves("P4")
async def test_a_reminder_settles_and_moves_nothing(herd):
    """After a reminder the task waits as before, and its question can be answered."""
    task, question = await herd.waiting()
    before = await herd.parent.task(task.id)
    await herd.later(minutes=5)
    await (await herd.parent.receive()).ack()

    assert await herd.parent.task(task.id) == before
    await herd.planner.reply(question, "Exponential")
    assert await herd.state(task) == "running"


@proves("P1")
async def test_a_backlog_is_fired_whole(open_herd):
    """More stale waits than one script takes: one reminder each, in the order they began."""
    herd = await open_herd("h", "scout", "planner", max_open_tasks=1000)
    tasks = []
    for number in range(230):
        task = await herd.parent.delegate("scout", f"task {number}")
        await ask(herd, task.id, "?")
        herd.clock.advance(timedelta(milliseconds=1))
        tasks.append(task.id)

    assert await herd.later(minutes=5) == {"reminders": 230}

    turn = await herd.parent.receive(limit=1000)
    assert [reminder.data["task"] for reminder in reminders(turn)] == tasks


# ------------------------------------------------------------------ the threshold


@proves("P5")
@pytest.mark.parametrize("off", [0, -1, 0.5, 0.999])
async def test_off(open_herd, off):
    """A threshold of 0, a negative one and one below a minute switch reminders off."""
    herd = await open_herd("h", "scout", "planner", stale_wait_threshold=off)
    await herd.waiting(reply_within=timedelta(0))

    assert await herd.later(hours=20) == {}
    assert reminders(await herd.parent.receive()) == []


async def test_one_minute_is_on(open_herd):
    """One minute is the least threshold."""
    herd = await open_herd("h", "scout", "planner", stale_wait_threshold=1)
    await herd.waiting()

    assert await herd.later(seconds=59) == {}
    assert await herd.later(seconds=1) == {"reminders": 1}


@proves("P1")
async def test_a_raised_threshold_holds_for_open_waits(herd):
    """A wait of four minutes under a threshold that becomes ten is stale at ten."""
    await herd.waiting()
    await herd.later(minutes=4)
    await herd.parent.set_settings(HerdSettings(stale_wait_threshold=10))

    assert await herd.later(minutes=5, seconds=59) == {}
    assert await herd.later(seconds=1) == {"reminders": 1}


@proves("P1")
async def test_a_lowered_threshold_holds_for_open_waits(herd):
    """A wait of four minutes under a threshold that becomes two is stale now."""
    await herd.waiting()
    await herd.later(minutes=4)
    await herd.parent.set_settings(HerdSettings(stale_wait_threshold=2))

    assert await herd.scheduler.tick() == {"reminders": 1}
    assert len(reminders(await herd.parent.receive())) == 1


@proves("P5")
async def test_switched_off_and_on_again(herd):
    """Off, an open wait reminds of nothing; on again, it reminds once of what it is by then."""
    await herd.waiting()
    await herd.parent.set_settings(HerdSettings(stale_wait_threshold=0))
    assert await herd.later(minutes=12) == {}

    await herd.parent.set_settings(HerdSettings(stale_wait_threshold=5))
    assert await herd.scheduler.tick() == {"reminders": 1}

    (reminder,) = reminders(await herd.parent.receive())
    assert reminder.data["elapsed_ms"] == 12 * 60_000


@proves("P1")
async def test_no_threshold_brings_a_second_reminder(herd):
    """An episode that had its reminder has no other, however the threshold moves."""
    await herd.waiting(reply_within=timedelta(0))
    await herd.later(minutes=5)
    for threshold in (1, 30, 0, 2, 10):
        await herd.parent.set_settings(HerdSettings(stale_wait_threshold=threshold))
        await herd.later(minutes=31)

    assert len(reminders(await herd.parent.receive())) == 1


async def test_reopening_with_another_threshold_holds_for_open_waits(herd, broker):
    """Opening the herd again with its token changes what is given, and open waits follow."""
    await herd.waiting()
    await herd.later(minutes=4)

    again = await broker.open_herd(
        herd.name, settings=HerdSettings(stale_wait_threshold=3), token=herd.parent.token
    )

    assert await herd.scheduler.tick() == {"reminders": 1}
    assert (await again.herd_record()).sources["stale_wait_threshold"] == "argument"


# ------------------------------------------------------------------ several questions of one task


@proves("P1", "P2")
async def test_with_several_questions_the_oldest_still_open_counts(herd):
    """When the oldest question is answered the wait counts from the next, in the same episode."""
    task = await herd.working(herd.scout)
    first = await ask(herd, task.id, "first")
    await herd.later(minutes=2)
    second = await ask(herd, task.id, "second")
    asked_second = herd.clock.now()
    await herd.later(minutes=2)

    await herd.planner.reply(first, "answer")

    known = await herd.parent.task(task.id)
    assert (known.state, known.episode) == ("waiting", 1)
    assert (known.waiting_since, known.open_requests) == (asked_second, (second,))
    assert await herd.later(minutes=2, seconds=59) == {}
    assert await herd.later(seconds=1) == {"reminders": 1}


async def test_answering_a_younger_question_moves_nothing(herd):
    """The wait counts from its oldest question whatever happens to the others."""
    task, _ = await herd.waiting("first")
    await herd.later(minutes=2)
    second = await ask(herd, task.id, "second")
    await herd.planner.reply(second, "answer")

    assert await herd.later(minutes=3) == {"reminders": 1}


@proves("P1")
async def test_one_reminder_for_an_episode_with_many_questions(herd):
    """Questions that come and go without a gap are one wait, with one reminder."""
    task, question = await herd.waiting("0")
    for number in range(1, 6):
        await herd.later(minutes=6)
        later = await ask(herd, task.id, str(number))
        await herd.planner.reply(question, "answer")
        question = later
    await herd.later(minutes=6)

    assert (await herd.parent.task(task.id)).episode == 1
    assert len(reminders(await herd.parent.receive())) == 1


# ------------------------------------------------------------------ the marker


@proves("P1")
async def test_only_the_end_of_the_episode_clears_the_marker(herd, url, fleet_name):
    """The marker stays while any question of the wait is open, and goes with the last."""
    task, first = await herd.waiting("first")
    second = await ask(herd, task.id, "second")
    assert markers(url, fleet_name) == []
    await herd.later(minutes=5)
    assert len(markers(url, fleet_name)) == 1

    await (await herd.parent.receive()).ack()
    await herd.planner.reply(first, "answer")
    await herd.later(minutes=6)
    assert len(markers(url, fleet_name)) == 1
    await herd.planner.reply(second, "answer")

    assert markers(url, fleet_name) == []


@proves("P1")
async def test_the_marker_is_the_authority(herd, url, fleet_name):
    """The sorted set is an index: rebuilt, it brings no second reminder."""
    task, _ = await herd.waiting(reply_within=timedelta(0))
    await herd.later(minutes=5)
    partition = (await herd.broker.fleet()).partition(herd.name)
    waiting = keys.below(partition, "waiting", herd=herd.name)
    since = int(task.waiting_since.timestamp() * 1000)
    await herd.broker.link.command("rebuild", "ZADD", waiting, since, task.id)
    await herd.planner.message("scout", "?", task=None)
    await herd.parent.set_settings(HerdSettings(stale_wait_threshold=2))

    assert await herd.later(minutes=30) == {}
    assert len(reminders(await herd.parent.receive())) == 1


# ------------------------------------------------------------------ what it says


async def test_a_reminder_says_everything(open_herd):
    """It carries all that a parent needs to judge the wait, as data and as text."""
    herd = await open_herd("h")
    await herd.child("scout", label="Scout")
    await herd.child("planner", label="The Planner")
    held = await herd.working(herd.planner, "plan")
    await herd.planner.set_status("working")
    task = await herd.working(herd.scout, "Find how auth works")
    asked = herd.clock.now()
    first = await ask(herd, task.id, "Which backoff?")
    second = await ask(herd, task.id, "And which base?", to="parent")
    await herd.later(minutes=5)
    herd.clock.advance(timedelta(seconds=30))

    (reminder,) = reminders(await herd.parent.receive())

    assert reminder.data == {
        "about": "stale_wait",
        "task": task.id,
        "agent": "scout",
        "label": "Scout",
        "description": "Find how auth works",
        "waiting_since": int(asked.timestamp() * 1000),
        "elapsed_ms": 330_000,
        "request": first,
        "question": "Which backoff?",
        "asker": "scout",
        "recipient": {
            "agent": "planner",
            "label": "The Planner",
            "process": "working",
            "task": "running",
            "present": True,
        },
        "threshold_minutes": 5,
        "episode": 1,
        "other_requests": [second],
        "actions": ["answer", "remind", "reroute", "cancel", "inspect"],
    }
    for said in ("Scout", task.id, "Find how auth works", "Which backoff?", "The Planner", second):
        assert said in reminder.body
    assert "5m30s" in reminder.body
    assert (reminder.sender, reminder.recipient) == ("@tocsin", "parent")
    assert (reminder.delivery, reminder.trigger_turn) == ("follow_up", False)
    assert held.id not in reminder.body


async def test_each_action_that_a_reminder_offers_exists(herd):
    """Answer, remind, reroute, cancel, inspect: each is an operation of the parent."""
    operations = {
        "answer": "reply",
        "remind": "remind",
        "reroute": "reroute",
        "cancel": "cancel",
        "inspect": "task",
    }
    await herd.waiting()
    await herd.later(minutes=5)
    (reminder,) = reminders(await herd.parent.receive())

    assert set(reminder.data["actions"]) == set(operations)
    assert all(callable(getattr(herd.parent, name)) for name in operations.values())


async def test_a_reminder_is_true_when_it_is_taken(herd):
    """What changed after it was sent is in it: the question still open, its recipient, the age."""
    task, first = await herd.waiting("first")
    second = await ask(herd, task.id, "second")
    await herd.later(minutes=5)
    await herd.planner.reply(first, "answer")
    await herd.child("architect")
    await herd.parent.reroute(second, "architect")
    herd.clock.advance(timedelta(minutes=1))

    (reminder,) = reminders(await herd.parent.receive())

    assert (reminder.data["request"], reminder.data["question"]) == (second, "second")
    assert reminder.data["recipient"]["agent"] == "architect"
    assert reminder.data["elapsed_ms"] == 360_000 and reminder.data["other_requests"] == []


async def test_a_reminder_that_is_shown_again_is_true_again(herd):
    """Each showing renders it anew."""
    await herd.waiting()
    await herd.later(minutes=5)
    (once,) = reminders(await herd.parent.inbox())
    await herd.planner.leave()
    herd.clock.advance(timedelta(minutes=2))

    (again,) = reminders(await herd.parent.inbox())

    assert again.message_id == once.message_id
    assert (once.data["elapsed_ms"], again.data["elapsed_ms"]) == (300_000, 420_000)
    assert (once.data["recipient"]["present"], again.data["recipient"]["present"]) == (True, False)


@pytest.mark.parametrize("end", ["answered", "cancelled", "settled", "closed"])
async def test_a_reminder_is_dropped_when_its_episode_has_ended(herd, end):
    """A reminder that was sent but not yet taken is never read once it is no longer true."""
    task, question = await herd.waiting()
    await herd.later(minutes=5)
    if end == "answered":
        await herd.planner.reply(question, "answer")
    elif end == "cancelled":
        await herd.parent.cancel_request(question)
    elif end == "settled":
        await herd.scout.done(task.id, "failed")
    else:
        await herd.parent.close("planner")

    assert reminders(await herd.parent.inbox()) == []
    assert reminders(await herd.parent.receive()) == []


async def test_a_shown_reminder_is_dropped_too(herd):
    """What was shown but not taken is not shown again once its episode has ended."""
    _, question = await herd.waiting()
    await herd.later(minutes=5)
    (shown,) = reminders(await herd.parent.inbox())
    await herd.planner.reply(question, "answer")

    assert reminders(await herd.parent.inbox()) == []
    assert (await herd.parent.receipt(shown.message_id)).state == "withdrawn"


@proves("P2")
async def test_a_dropped_reminder_leaves_the_next_its_place(herd):
    """The reminder of an episode that ended unread does not stand in for the next one's."""
    task, question = await herd.waiting("first")
    await herd.later(minutes=5)
    await herd.planner.reply(question, "answer")
    await ask(herd, task.id, "second")
    await herd.later(minutes=5)

    (reminder,) = reminders(await herd.parent.receive())
    assert (reminder.data["question"], reminder.data["episode"]) == ("second", 2)


async def test_a_reminder_is_acked_and_handed_back_like_other_mail(herd, broker):
    """A reminder that its holder gave back is taken again, true again, until it is acked."""
    await herd.waiting()
    await herd.later(minutes=5)
    await (await herd.parent.receive()).nack()
    elsewhere = await broker.join(herd.name, "parent", herd.parent.token)

    again = await elsewhere.receive()
    assert len(reminders(again)) == 1
    await again.ack()

    assert len(await herd.parent.receive()) == 0


# ------------------------------------------------------------------ the parent


@proves("P7")
async def test_a_reminder_never_wakes_but_comes_with_what_does(herd):
    """A turn gathers reminders around what woke it."""
    await herd.waiting()
    await herd.later(minutes=5)
    assert await herd.parent.next_turn(timeout=0) is None
    await herd.planner.message("parent", "hello")

    turn = await herd.parent.next_turn(timeout=1)

    assert [mail.kind for mail in turn] == ["reminder", "message"]


@proves("P7", "P1")
async def test_while_the_parent_is_away_no_episode_is_used_up(herd, broker, url, fleet_name):
    """Away, nothing is sent or marked; back, it is reminded once, before its mail is gathered."""
    await herd.waiting()
    await herd.parent.leave()
    assert await herd.later(minutes=15) == {}
    assert markers(url, fleet_name) == []

    parent = await broker.join(herd.name, "parent", herd.parent.token)
    turn = await parent.receive()

    (reminder,) = reminders(turn)
    assert reminder.data["elapsed_ms"] == 15 * 60_000
    assert await herd.later(minutes=1) == {}
    assert len(await parent.receive()) == 0


@proves("P7")
async def test_what_was_answered_while_the_parent_was_away_is_not_reminded_of(herd, broker):
    """Back again, the parent hears of what is still stale only."""
    _, question = await herd.waiting()
    await herd.parent.leave()
    await herd.later(minutes=6)
    await herd.planner.reply(question, "answer")

    parent = await broker.join(herd.name, "parent", herd.parent.token)

    assert reminders(await parent.receive()) == []


@proves("P7")
async def test_a_stateless_call_makes_the_parent_live(herd, broker):
    """A command that joins for one call is reminded of what is stale, once."""
    await herd.waiting()
    await herd.parent.leave()
    await herd.later(minutes=6)

    command = await broker.join(herd.name, "parent", herd.parent.token, instance="inst_command")

    assert len(reminders(await command.inbox())) == 1
    assert len(reminders(await command.inbox())) == 1, "shown again, not sent again"


@proves("P7")
async def test_a_parent_whose_process_died_is_away(url, fleet_name):
    """A lease that ran out is an absence, before anybody has looked at it."""
    settings = HerdSettings(stale_wait_threshold=10, lease=timedelta(milliseconds=200))
    async with AsyncBroker.connect(url, fleet=fleet_name, clock=ScaledClock(600)) as broker:
        parent = await broker.open_herd("h", settings=settings)
        scout = await broker.join("h", "scout", token_of(await parent.register("scout")))
        await parent.register("planner")
        task = await parent.delegate("scout", "x", deadline=timedelta(days=300))
        broker.forget(parent)
        await scout.message(
            "planner", "?", task=task.id, expects_reply=True, reply_within=timedelta(0)
        )
        due = keys.below((await broker.fleet()).partition("h"), "due", herd="h")
        sent = 0

        async def is_looked_at():
            nonlocal sent
            sent += (await AsyncScheduler(broker).tick()).get("reminders", 0)
            return await broker.link.command("look", "ZSCORE", due, "5:stale") is None

        await wait_until_async(is_looked_at, "the stale wait to be looked at")

        assert sent == 0 and markers(url, fleet_name) == []


async def test_one_instance_is_enough(herd, broker):
    """The parent is away only when its last instance is gone."""
    other = await broker.join(herd.name, "parent", herd.parent.token)
    await herd.waiting()
    await herd.parent.leave()

    assert await herd.later(minutes=5) == {"reminders": 1}
    assert len(reminders(await other.receive())) == 1


async def test_the_other_agents_are_told_nothing(herd):
    """A reminder is for the parent alone."""
    await herd.waiting()
    await (await herd.planner.receive()).ack()
    await herd.later(minutes=5)

    assert len(await herd.scout.receive()) == len(await herd.planner.receive()) == 0


# ------------------------------------------------------------------ ties


@proves("P4")
async def test_the_reply_deadline_comes_before_the_reminder(herd):
    """Due in the same millisecond, the reply deadline wins, and nothing is reminded of."""
    task, _ = await herd.waiting(reply_within=timedelta(minutes=5))

    fired = await herd.later(minutes=5)

    assert fired == {"reply_deadlines": 1}
    assert await herd.state(task) == "blocked"
    assert reminders(await herd.parent.receive()) == []


async def test_the_task_deadline_comes_before_the_reply_deadline(herd):
    """Due in the same millisecond, the task deadline wins."""
    task = await herd.working(herd.scout, deadline=timedelta(minutes=5))
    await ask(herd, task.id, "?", reply_within=timedelta(minutes=5))

    assert await herd.later(minutes=5) == {"task_deadlines": 1}
    assert await herd.state(task) == "timed_out"
    assert about(await herd.scout.receive(), "task_ended")[0].data["state"] == "timed_out"


async def test_an_overdue_deadline_beats_a_younger_reminder(herd):
    """After a pause of the schedulers timers fire in the order they were due."""
    task = await herd.working(herd.scout)
    await ask(herd, task.id, "?", reply_within=timedelta(minutes=4))

    assert await herd.later(hours=2) == {"reply_deadlines": 1}


async def test_a_reminder_is_held_back_while_its_wait_is_young_again(herd):
    """The old question was answered before anybody read the reminder: it comes when it is due."""
    task, first = await herd.waiting("first")
    await herd.later(minutes=4, seconds=50)
    await herd.scout.message("planner", "second", task=task.id, expects_reply=True)
    assert await herd.later(seconds=10) == {"reminders": 1}
    await herd.planner.reply(first, "the first answer")

    assert of_kind(await herd.parent.receive(), "reminder") == []

    assert await herd.later(minutes=4, seconds=49) == {}
    assert await herd.later(seconds=1) == {"reminders": 1}
    (reminder,) = of_kind(await herd.parent.receive(), "reminder")
    assert (reminder.data["question"], reminder.data["elapsed_ms"]) == ("second", 300_000)


@pytest.mark.parametrize("minutes", [0, -3, 0.5, 10])
async def test_a_threshold_changed_before_the_reminder_is_read(herd, minutes):
    """Switched off or raised, the reminder that nobody has read yet is as if never sent."""
    await herd.waiting()
    assert await herd.later(minutes=6) == {"reminders": 1}
    await herd.parent.set_settings(HerdSettings(stale_wait_threshold=minutes))

    assert of_kind(await herd.parent.receive(), "reminder") == []
    assert of_kind(await herd.parent.inbox(), "reminder") == []

    await herd.parent.set_settings(HerdSettings(stale_wait_threshold=5))
    await herd.later(seconds=0)
    assert len(of_kind(await herd.parent.receive(), "reminder")) == 1
