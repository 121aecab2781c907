"""What a parent can do about a wait: answer, remind, reroute, cancel."""

from __future__ import annotations


async def test_the_parent_answers_in_the_recipients_place(herd):
    """The parent may answer any question of its herd."""
    task, question = await herd.waiting()

    await herd.parent.reply(question, "Exponential")

    assert await herd.state(task) == "running"
    async with await herd.scout.next_turn(timeout=1) as turn:
        assert [(mail.sender, mail.body) for mail in turn] == [("parent", "Exponential")]


async def test_the_parent_reminds_the_recipient(herd):
    """`remind` wakes whoever the question waits on, and quotes it."""
    _, question = await herd.waiting("Which backoff?")
    await (await herd.planner.receive()).ack()

    await herd.parent.remind(question)

    async with await herd.planner.next_turn(timeout=1) as turn:
        (nudge,) = turn
    assert nudge.sender == "parent" and nudge.reply_to == question
    assert "Which backoff?" in nudge.body


async def test_the_parent_reroutes_a_question(herd):
    """`reroute` takes the question from one agent and gives it to another; the wait goes on."""
    architect = await herd.child("architect")
    task, question = await herd.waiting()

    await herd.parent.reroute(question, "architect")

    assert await herd.planner.next_turn(timeout=0) is None, "the unread copy was taken back"
    async with await architect.next_turn(timeout=1) as turn:
        await architect.reply(turn[0], "Linear")
    assert await herd.state(task) == "running"


async def test_a_question_is_given_up(herd):
    """A question that was cancelled waits for nobody; its task runs again."""
    task, question = await herd.waiting()

    await herd.parent.cancel_request(question)

    assert await herd.state(task) == "running"
    assert (await herd.scout.receipt(question)).request == "cancelled"


async def test_the_parent_cancels_the_task(herd):
    """A cancelled task is over; its child's running turn sees a steer notice."""
    task = await herd.working(herd.scout)

    settled = await herd.parent.cancel(task.id, reason="the release is off")

    assert (settled.status, settled.return_code) == ("cancelled", 130)
    (notice,) = await herd.scout.receive()
    assert notice.delivery == "steer" and "the release is off" in notice.body
