"""One test for each bug that the stateful tests found, named after what went wrong."""

from __future__ import annotations

import pytest

from tests.fleets import Herd, HerdMaker, about, of_kind, reminders
from tests.requirements import proves
from tocsin.broker import errors
from tocsin.broker.testing import lapse


@proves("P13")
async def test_a_name_used_after_its_records_are_gone_is_still_another_generation(herd: Herd):
    """No generation comes twice, not even once the record of the first has been forgotten."""
    first = await herd.scout.message("planner", "Which backoff?", expects_reply=True)
    await herd.planner.receive()
    await herd.parent.close("scout")
    await herd.later(days=8)

    seat = await herd.parent.register("scout")

    assert seat.generation == 2
    with pytest.raises((errors.AgentClosed, errors.UnknownMessage)):
        await herd.planner.reply(first.message_id, "Exponential")


@proves("P11")
async def test_a_settlement_is_read_when_its_task_is_long_forgotten(herd: Herd):
    """A parent that was away for longer than tasks are kept still learns how one ended."""
    task = await herd.working(herd.scout)
    await herd.scout.done(task.id, "completed", summary="OAuth2 with PKCE")
    await herd.later(days=8)

    (news,) = of_kind(await herd.parent.receive(), "task_settled")

    assert news.data["task_id"] == task.id
    assert news.data["status"] == "completed"
    assert "OAuth2 with PKCE" in news.body


async def test_a_reminder_in_another_instances_hands_is_not_shown(herd: Herd):
    """What one process of the parent has taken, its others do not see, reminders included."""
    await herd.waiting()
    other = await herd.broker.join(herd.name, "parent", herd.parent.token)
    await herd.later(minutes=5)
    taken = await herd.parent.receive()
    assert len(reminders(taken)) == 1

    assert reminders(await other.inbox()) == []
    assert (await herd.parent.receipt(taken[0])).state == "taken"


async def test_a_recipient_can_answer_the_message_it_was_reminded_with(herd: Herd):
    """The message of `remind` comes from the parent, and a reply to it goes there."""
    _, question = await herd.waiting()
    nudge = await herd.parent.remind(question)

    await herd.planner.reply(nudge.message_id, "I am on it")

    (reply,) = of_kind(await herd.parent.receive(), "reply")
    assert (reply.body, reply.reply_to) == ("I am on it", nudge.message_id)


@proves("P12")
async def test_a_task_envelope_held_by_a_dead_process_does_not_come_again_once_it_is_settled(
    herd: Herd,
):
    """Nobody begins anew with a task that was cancelled while its first holder was dying."""
    task = await herd.parent.delegate("scout", "Find how auth works")
    await herd.scout.receive()
    await herd.parent.cancel(task.id)
    lapse(herd.scout)

    again = await (await herd.another("scout")).receive()

    assert of_kind(again, "task") == []
    assert len(about(again, "task_ended")) == 1


@proves("P12")
async def test_a_question_given_back_after_its_answer_does_not_come_again(herd: Herd):
    """An answered question that is handed back is not asked a second time."""
    _, question = await herd.waiting()
    turn = await herd.planner.receive()
    await herd.planner.reply(question, "Exponential")
    await turn.nack()

    assert of_kind(await herd.planner.receive(), "request") == []


async def test_one_turn_given_up_closes_a_question_once(open_herd: HerdMaker):
    """A task and a question on it that fail in one turn: the task's end closes the question."""
    herd = await open_herd("h", "scout", max_attempts=1)
    task = await herd.parent.delegate("scout", "Find how auth works")
    question = await herd.parent.message("scout", "Which file?", task=task.id, expects_reply=True)
    turn = await herd.scout.receive()
    await turn.nack(error="it broke")

    assert await herd.state(task) == "failed"
    assert (await herd.parent.receipt(question.message_id)).request == "settled"
    assert about(await herd.parent.inbox(), "request_closed") == []


async def test_dead_letters_about_dead_letters_end(open_herd: HerdMaker):
    """A parent that fails on everything is told once of each dead letter, not of the telling."""
    herd = await open_herd("h", "scout", max_attempts=1)
    await herd.scout.message("parent", "Look at this")
    turns = 0
    while turn := await herd.parent.next_turn(timeout=0):
        await turn.nack(error="it broke")
        turns += 1
        assert turns < 5

    assert turns == 2
