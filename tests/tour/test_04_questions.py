"""Questions: an agent asks another, its task waits, the answer lets it go on."""

from __future__ import annotations

from tests.requirements import proves


@proves("P2")
async def test_a_question_makes_its_task_wait_until_it_is_answered(herd):
    """A task waits while a question of it is open, and runs again once it is answered."""
    task = await herd.working(herd.scout)

    await herd.scout.message("planner", "Which backoff?", task=task.id, expects_reply=True)
    assert await herd.state(task) == "waiting"

    async with await herd.planner.next_turn(timeout=1) as turn:
        assert turn[0].kind == "request" and turn[0].expects_reply
        await herd.planner.reply(turn[0], "Exponential, base 2 s")
    assert await herd.state(task) == "running"

    async with await herd.scout.next_turn(timeout=1) as turn:
        (answer,) = turn
    assert (answer.kind, answer.body) == ("reply", "Exponential, base 2 s")
    assert answer.sender == "planner" and answer.task_id == task.id


async def test_a_question_without_a_task_makes_nothing_wait(herd):
    """Any agent may ask any other of its herd; without a task only the answer is awaited."""
    sent = await herd.planner.message("parent", "May I push?", expects_reply=True)

    await herd.parent.reply(sent.message_id, "Yes.")

    async with await herd.planner.next_turn(timeout=1) as turn:
        assert [(mail.sender, mail.body, mail.reply_to) for mail in turn] == [
            ("parent", "Yes.", sent.message_id)
        ]
