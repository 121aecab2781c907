"""Sent once, in effect once: repeats, keys, conflicts."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from tests.fleets import bodies, of_kind
from tests.requirements import proves
from tocsin.broker import HerdSettings, agents, errors, herds, ids, inbox, requests, tasks
from tocsin.broker.settings_files import resolve


def a_message(agent, body: str):
    """A call as the client makes it before its first try."""
    return requests.message(
        agent.caller,
        "planner",
        body,
        task=None,
        expects_reply=False,
        reply_within=None,
        delivery="follow_up",
        thread=None,
        key=None,
        data=None,
    )


@proves("P12")
async def test_the_same_call_twice_sends_one_envelope(herd, broker):
    """A call repeated as it is, its answer lost, is a duplicate."""
    call = a_message(herd.scout, "once")

    first = await broker.run(call)
    again = await broker.run(call)

    assert (first.duplicate, again.duplicate) == (False, True)
    assert first.message_id == again.message_id
    assert bodies(await herd.planner.receive()) == ["once"]


@proves("P12")
async def test_a_repeat_after_handling_is_still_a_duplicate_for_an_hour(herd, broker):
    """An id is known for an hour after its envelope was handled."""
    call = a_message(herd.scout, "once")
    await broker.run(call)
    await (await herd.planner.receive()).ack()
    await herd.later(minutes=59)

    assert (await broker.run(call)).duplicate
    assert len(await herd.planner.receive()) == 0


@proves("P12")
async def test_a_key_sends_one_message_from_any_process(herd, broker):
    """`key=` makes a message the same across processes of one agent."""
    elsewhere = await herd.another("scout")

    first = await herd.scout.message("planner", "once", key="greeting")
    again = await elsewhere.message("planner", "once", key="greeting")

    assert (again.duplicate, again.message_id) == (True, first.message_id)
    assert len(await herd.planner.receive()) == 1


async def test_a_key_with_other_content_is_a_conflict(herd):
    """The same key cannot mean two messages."""
    await herd.scout.message("planner", "once", key="greeting")

    with pytest.raises(errors.DuplicateConflict) as refusal:
        await herd.scout.message("planner", "something else", key="greeting")

    assert "other content" in refusal.value.detail


async def test_a_key_belongs_to_its_agent(herd):
    """Two agents that use one key send two messages."""
    await herd.scout.message("planner", "mine", key="k")
    await herd.parent.message("planner", "mine", key="k")

    assert len(await herd.planner.receive()) == 2


async def test_a_key_of_an_earlier_generation_is_not_met(herd):
    """A name used again is another agent: its keys are its own."""
    await herd.scout.message("planner", "old", key="k")
    await herd.parent.close("scout")
    scout = await herd.child("scout")

    assert not (await scout.message("planner", "new", key="k")).duplicate


@proves("P12")
async def test_a_repeated_delegation_is_one_task(herd):
    """With a key the same task is delegated once, and a busy child is no reason to refuse it."""
    first = await herd.parent.delegate("scout", "x", key="job-1")
    await (await herd.scout.receive()).ack()

    again = await herd.parent.delegate("scout", "x", key="job-1")

    assert (again.id, again.state) == (first.id, "running")
    assert len(await herd.parent.tasks()) == 1
    assert len(await herd.scout.receive()) == 0
    with pytest.raises(errors.DuplicateConflict):
        await herd.parent.delegate("scout", "y", key="job-1")


async def test_a_repeat_is_recognised_before_any_other_refusal(open_herd, broker):
    """A retry hears `duplicate`, not that the inbox has filled up or the agent closed meanwhile."""
    herd = await open_herd("h", "scout", "planner", inbox_limit=1)
    call = a_message(herd.scout, "once")
    await broker.run(call)

    assert (await broker.run(call)).duplicate
    await herd.parent.close("planner")
    assert (await broker.run(call)).duplicate


@proves("P12")
async def test_a_repeated_reply_remind_or_question_is_one(herd, broker):
    """Questions, reminders and replies are the same call when repeated."""
    task = await herd.working(herd.scout)
    sent = [
        await herd.scout.message("planner", "?", task=task.id, expects_reply=True, key="q")
        for _ in range(3)
    ]
    remind = requests.remind(herd.parent.caller, sent[0].message_id)
    reminded = [await broker.run(remind) for _ in range(3)]
    replies = [await herd.planner.reply(sent[0].message_id, "!", key="r") for _ in range(3)]

    for each in (sent, reminded, replies):
        assert [answer.duplicate for answer in each] == [False, True, True]
    assert (await herd.parent.task(task.id)).episode == 1
    assert bodies(await herd.scout.receive()) == ["!"]


@proves("P11", "P12")
@pytest.mark.parametrize("held", [1, 4, 150])
async def test_a_repeated_taking_returns_the_same_mail_beside_what_else_is_in_hand(
    herd, broker, held
):
    """Case 1: it is found among all that the instance holds and took meanwhile."""
    planner = herd.planner
    for number in range(held):
        await herd.scout.message("planner", f"before {number}")
    before = [await planner.next_turn(timeout=0, limit=1) for _ in range(held)]
    await herd.scout.message("planner", "once")
    for number in range(6):
        await herd.scout.message("planner", f"meanwhile {number}")
    call = inbox.take(planner.caller, "next_turn", "turn", 1)

    first = await broker.run(call)
    for _ in range(6):  # by other threads of the process
        await (await planner.next_turn(timeout=0, limit=1)).ack()
    again = await broker.run(call)

    assert first.mail == again.mail
    assert [mail.envelope.body for mail in again.mail] == ["once"]
    assert all(len(turn) == 1 for turn in before)


@proves("P11")
async def test_a_taking_repeated_with_another_limit_returns_all_of_it(herd, broker):
    """What a cancelled taking took is the next one's, even if that wants less."""
    for number in range(3):
        await herd.scout.message("planner", f"{number}")
    turn = ids.make_id("turn")
    await broker.run(inbox.take(herd.planner.caller, "receive", "receive", 100, turn))

    again = await broker.run(inbox.take(herd.planner.caller, "next_turn", "turn", 1, turn))

    assert len(again.mail) == 3


@proves("P12")
async def test_a_repeated_taking_returns_the_same_mail(herd, broker):
    """The answer to a take is lost: the same take again returns what it took."""
    await herd.scout.message("planner", "one")
    call = inbox.take(herd.planner.caller, "next_turn", "turn", 100)

    first = await broker.run(call)
    again = await broker.run(call)

    assert [held.envelope.body for held in first.mail] == ["one"]
    assert again == first


@proves("P12")
async def test_a_repeated_taking_leaves_what_was_settled_meanwhile(herd, broker):
    """A take repeated late returns only what is still in hand of it."""
    await herd.scout.message("planner", "one")
    await herd.scout.message("planner", "two")
    call = inbox.take(herd.planner.caller, "next_turn", "turn", 100)
    first = await broker.run(call)
    await broker.run(inbox.ack(herd.planner.caller, first.mail[:1]))

    again = await broker.run(call)

    assert [held.envelope.body for held in again.mail] == ["two"]


@proves("P12")
async def test_a_repeated_nack_counts_one_attempt(herd, broker):
    """The second of two equal hand-backs finds nothing left to give back."""
    await herd.scout.message("planner", "one")
    taken = await broker.run(inbox.take(herd.planner.caller, "receive", "receive", 100))
    call = inbox.nack(herd.planner.caller, taken.mail, timedelta(0), "broken")

    await broker.run(call)
    await broker.run(call)

    assert [mail.attempts for mail in await herd.planner.receive()] == [1]


@proves("P12")
async def test_repeated_registrations_and_rotations_are_one(herd, broker):
    """A repeat with the same token is the same registration, the same rotation."""
    token = ids.make_token()
    register = agents.register(herd.parent.caller, "architect", token, None, None, False)
    seats = [await broker.run(register) for _ in range(2)]
    assert [seat.generation for seat in seats] == [1, 1]

    new = ids.make_token()
    rotate = agents.rotate(herd.planner.caller, "planner", new)
    assert [(await broker.run(rotate)).token for _ in range(2)] == [new, new]


async def test_a_repeated_opening_is_one_herd(broker, open_herd):
    """The answer to opening a herd is lost: the same call again finds it open, and its own."""
    herd = await open_herd("h", "scout")
    call = herds.open_herd(
        herd.parent.caller, resolve(HerdSettings()), HerdSettings(), reopening=False
    )

    assert (await broker.run(call)).state == "open"
    assert [agent.agent for agent in await herd.parent.roster()] == ["parent", "scout"]


async def test_a_repeated_cancel_and_watch_are_one(herd, broker):
    """Repeating what ended a task, or a watch, changes nothing."""
    task = await herd.working(herd.scout)
    watch = tasks.watch(herd.parent.caller, [task.id], "all")
    await broker.run(watch)
    await broker.run(watch)
    cancel = tasks.cancel(herd.parent.caller, task.id, "enough")

    first, again = await broker.run(cancel), await broker.run(cancel)

    assert first == again
    assert len(of_kind(await herd.parent.next_turn(timeout=1), "task_settled")) == 1
    assert [line for line in await herd.parent.journal() if line.event == "late_cancel"] == []


@proves("P12")
async def test_a_key_is_one_call_as_long_as_its_record(herd):
    """Across processes: messages and replies an hour past handling, tasks and questions as long
    as they are kept; then the key is free again."""
    elsewhere = await herd.another("scout")
    replica = await herd.another("planner")
    theirs = await herd.broker.join(herd.name, "parent", herd.parent.token)

    async def message(scout):
        return (await scout.message("planner", "x", key="k")).message_id

    async def reply(planner):
        return (await planner.reply(first["message"], "y", key="k")).message_id

    async def question(scout):
        return (await scout.message("planner", "?", expects_reply=True, key="q")).message_id

    async def task(parent):
        return (await parent.delegate("scout", "z", key="k")).id

    first = {"message": await message(herd.scout)}
    first |= {"reply": await reply(herd.planner), "question": await question(herd.scout)}
    first["task"] = await task(herd.parent)
    await herd.planner.reply(first["question"], "!")
    for agent in (herd.planner, herd.scout):
        await (await agent.receive()).ack()
    await herd.scout.done(first["task"])
    await (await herd.parent.receive()).ack()

    await herd.later(minutes=59)
    assert await message(elsewhere) == first["message"]
    assert await reply(replica) == first["reply"]
    assert len(await herd.planner.receive()) == len(await herd.scout.receive()) == 0
    await herd.later(days=6)
    assert await question(elsewhere) == first["question"]
    assert await task(theirs) == first["task"]
    assert len(await herd.planner.receive()) == len(await herd.scout.receive()) == 0
    await message(elsewhere)
    assert bodies(await herd.planner.receive()) == ["x"], "an hour later it is another message"
    await herd.later(days=2)
    await question(elsewhere)
    await task(theirs)
    assert bodies(await herd.scout.receive()) == ["z"]


async def test_an_older_call_that_is_repeated_late_undoes_nothing(herd, broker):
    """Another process has changed the same since: what is repeated was done before that."""
    _, question = await herd.waiting()
    await herd.child("tester")
    calls = [
        herds.set_settings(herd.parent.caller, HerdSettings(max_attempts=2), "argument"),
        requests.reroute(herd.parent.caller, question, "tester"),
        agents.progress(herd.scout.caller, "half", 0.5),
        agents.set_status(herd.scout.caller, "working"),
    ]
    for call in calls:
        await broker.run(call)
    await herd.parent.set_settings(HerdSettings(max_attempts=3))
    await herd.parent.reroute(question, "parent")
    await herd.scout.set_status("idle")

    for call in calls:
        await broker.run(call)

    assert (await herd.parent.herd_record()).settings.max_attempts == 3
    assert (await herd.scout.receipt(question)).recipient == "parent"
    told = [line.event for line in await herd.parent.journal()]
    assert [told.count(event) for event in ("settings", "rerouted", "progress", "status")] == [
        2,
        2,
        1,
        2,
    ]


async def test_a_repeated_registration_of_an_agent_that_was_closed_since_is_no_other(herd, broker):
    """The repeat comes late: it registers no second generation of the name."""
    register = agents.register(herd.parent.caller, "late", ids.make_token(), None, None, False)
    assert (await broker.run(register)).generation == 1
    await herd.parent.close("late")

    assert (await broker.run(register)).generation == 1
    assert {agent.agent: agent.state for agent in await herd.parent.roster()}["late"] == "closed"


async def test_server_fields_do_not_count_as_content(herd, broker, clock):
    """The same content at another time is the same message."""
    call = a_message(herd.scout, "once")
    await broker.run(call)
    clock.advance(timedelta(minutes=10))

    later = replace(call, args=(clock.argument, *call.args[1:]))
    assert (await broker.run(later)).duplicate
