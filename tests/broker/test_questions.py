"""Questions: their deadlines, their answers, and what the parent can do about them."""

from __future__ import annotations

from datetime import timedelta

import pytest

from tests.fleets import about, bodies, of_kind
from tests.requirements import proves
from tocsin.broker import errors

# ------------------------------------------------------------------ deadlines


@proves("P4")
async def test_the_reply_deadline_of_the_call(herd):
    """`reply_within` is how long this question may stay open."""
    task, question = await herd.waiting(reply_within=timedelta(minutes=2))

    assert await herd.later(minutes=1, seconds=59) == {}
    assert await herd.later(seconds=1) == {"reply_deadlines": 1}

    settled = (await herd.parent.task(task.id)).settlement
    assert settled.error == f"no reply from planner to message {question}"
    assert (await herd.scout.receipt(question)).request == "expired"


async def test_the_reply_timeout_of_the_herd(open_herd):
    """Where a call says nothing, the herd's `reply_timeout` counts."""
    herd = await open_herd("h", "scout", "planner", reply_timeout=timedelta(minutes=3))
    task, _ = await herd.waiting()

    await herd.later(minutes=3)

    assert await herd.state(task) == "blocked"


async def test_a_reply_deadline_of_zero_lasts_as_long_as_the_task(herd):
    """0 means no deadline of its own: the task's ends it."""
    task, question = await herd.waiting(reply_within=timedelta(0))

    await herd.later(hours=23, minutes=59)
    assert await herd.state(task) == "waiting"
    await herd.later(minutes=1)

    assert await herd.state(task) == "timed_out"
    assert (await herd.scout.receipt(question)).request == "settled"


async def test_one_overdue_question_blocks_the_whole_task(herd):
    """The task is blocked at the first deadline, and its other questions are taken back."""
    task, first = await herd.waiting("first", reply_within=timedelta(minutes=30))
    second = await herd.scout.message(
        "parent", "second", task=task.id, expects_reply=True, reply_within=timedelta(minutes=4)
    )

    await herd.later(minutes=4)

    assert await herd.state(task) == "blocked"
    assert (await herd.scout.receipt(first)).request == "settled"
    assert (await herd.scout.receipt(second.message_id)).request == "expired"
    assert of_kind(await herd.parent.receive(), "request") == []


async def test_a_question_without_a_task_closes_with_a_notice(herd):
    """Nothing is blocked; its asker is told, quietly if it has no open task."""
    sent = await herd.scout.message("planner", "Which?", expects_reply=True)

    assert await herd.later(minutes=20) == {"reply_deadlines": 1}

    assert await herd.scout.next_turn(timeout=0) is None
    (notice,) = about(await herd.scout.receive(), "request_closed")
    assert notice.data["request"] == sent.message_id and notice.data["how"] == "expired"
    assert "no reply from planner" in notice.body


async def test_the_notice_wakes_an_asker_at_work(herd):
    """An asker whose task is open is woken by the news that its question closed unanswered."""
    await herd.working(herd.scout)
    await herd.scout.message("planner", "Which?", expects_reply=True)
    await herd.later(minutes=20)

    turn = await herd.scout.next_turn(timeout=1)

    assert len(about(turn, "request_closed")) == 1


# ------------------------------------------------------------------ answers


@proves("P12")
async def test_the_same_answer_again_is_a_duplicate(herd):
    """A second reply with the same content sends nothing."""
    _, question = await herd.waiting()
    first = await herd.planner.reply(question, "Exponential")

    again = await herd.planner.reply(question, "Exponential")

    assert (again.duplicate, again.message_id) == (True, first.message_id)
    assert bodies(await herd.scout.receive()) == ["Exponential"]


@proves("P12")
async def test_another_answer_is_kept_in_the_journal_only(herd):
    """The first answer stands; what else is said is journalled."""
    _, question = await herd.waiting()
    first = await herd.planner.reply(question, "Exponential")

    second = await herd.planner.reply(question, "No: linear")

    assert (second.duplicate, second.message_id) == (True, first.message_id)
    assert second.superseded
    (line,) = [line for line in await herd.parent.journal() if line.event == "second_reply"]
    assert line.fields["body"] == "No: linear"
    assert bodies(await herd.scout.receive()) == ["Exponential"]


async def test_an_answer_after_its_task_settled_is_quiet_late_mail(herd):
    """It is delivered, marked late, wakes nobody, and changes nothing."""
    task, question = await herd.waiting()
    (asked,) = await herd.planner.receive()
    await herd.later(minutes=20)
    await (await herd.scout.receive()).ack()

    sent = await herd.planner.reply(asked, "Exponential")

    assert sent.late
    assert await herd.scout.next_turn(timeout=0) is None
    (late,) = await herd.scout.receive()
    assert (late.body, late.late, late.reply_to) == ("Exponential", True, question)
    assert await herd.state(task) == "blocked"


async def test_an_answer_to_a_cancelled_question_is_quiet_late_mail(herd):
    """The task runs on; the answer is there when its asker looks."""
    task, question = await herd.waiting()
    (asked,) = await herd.planner.receive()
    await herd.scout.cancel_request(question)

    assert (await herd.planner.reply(asked, "Exponential")).late

    assert await herd.scout.next_turn(timeout=0) is None
    assert [(mail.body, mail.late) for mail in await herd.scout.receive()] == [
        ("Exponential", True)
    ]
    assert await herd.state(task) == "running"


async def test_a_late_answer_to_a_question_without_a_task_wakes(herd):
    """An asker that has no task to settle wants the answer whenever it comes."""
    sent = await herd.scout.message("planner", "Which?", expects_reply=True)
    await herd.later(minutes=20)
    await (await herd.scout.receive()).ack()

    assert (await herd.planner.reply(sent.message_id, "That one")).late

    turn = await herd.scout.next_turn(timeout=1)
    assert [(mail.body, mail.late) for mail in turn] == [("That one", True)]


async def test_a_late_answer_is_delivered_once(herd):
    """Repeated, a late answer is a duplicate like any other."""
    _, question = await herd.waiting()
    (asked,) = await herd.planner.receive()
    await herd.later(minutes=20)
    await herd.planner.reply(asked, "Exponential")

    assert (await herd.planner.reply(asked, "Exponential")).duplicate

    assert len(of_kind(await herd.scout.receive(), "reply")) == 1
    assert question == asked.message_id


async def test_a_plain_message_can_be_answered(herd):
    """A reply to a message goes to its sender, in its thread, and settles nothing."""
    await herd.scout.message("planner", "Hello", thread="greetings")
    (hello,) = await herd.planner.receive()

    await herd.planner.reply(hello, "Hello yourself", data={"mood": "good"})

    (answer,) = await herd.scout.next_turn(timeout=1)
    assert (answer.kind, answer.reply_to) == ("reply", hello.message_id)
    assert (answer.thread_id, answer.data) == ("greetings", {"mood": "good"})


async def test_an_answer_from_outside_the_question_is_refused(herd):
    """Only its recipient and the parent answer a question; nobody answers their own."""
    _, question = await herd.waiting()
    architect = await herd.child("architect")

    with pytest.raises(errors.Forbidden):
        await architect.reply(question, "mine")
    with pytest.raises(errors.Forbidden):
        await herd.scout.reply(question, "mine")


async def test_system_mail_takes_no_reply(herd):
    """A task, a settlement, a reminder and a notice are not to be answered."""
    task = await herd.parent.delegate("scout", "x")
    (envelope,) = await herd.scout.receive()

    with pytest.raises(errors.WrongState) as refusal:
        await herd.scout.reply(envelope, "ok")

    assert "is a task" in refusal.value.detail and "done" in refusal.value.detail
    assert task.id == envelope.task_id


# ------------------------------------------------------------------ remind, reroute, give up


async def test_reminding_changes_neither_the_wait_nor_its_deadline(herd):
    """A reminded recipient has as long as it had before."""
    task, question = await herd.waiting()
    before = await herd.parent.task(task.id)
    await herd.later(minutes=4)

    await herd.parent.remind(question)

    assert await herd.parent.task(task.id) == before
    await herd.later(minutes=16)
    assert await herd.state(task) == "blocked"


async def test_reminding_names_question_asker_and_age(herd):
    """The message that reminds says what is asked, by whom, and since when."""
    _, question = await herd.waiting("Which backoff?")
    await herd.later(minutes=7)
    await (await herd.planner.receive()).ack()

    sent = await herd.parent.remind(question)

    (nudge,) = await herd.planner.next_turn(timeout=1)
    assert nudge.message_id == sent.message_id and nudge.kind == "message"
    assert "scout has waited 7m" in nudge.body and question in nudge.body


async def test_rerouting_keeps_request_episode_and_deadline(herd):
    """The same question in the same wait, with the deadline it had."""
    await herd.child("architect")
    task, question = await herd.waiting()
    await herd.later(minutes=15)

    await herd.parent.reroute(question, "architect")

    known = await herd.parent.task(task.id)
    assert (known.episode, known.open_requests) == (1, (question,))
    assert known.waiting_since == task.waiting_since
    await herd.later(minutes=5)
    settled = (await herd.parent.task(task.id)).settlement
    assert settled.error == f"no reply from architect to message {question}"


@pytest.mark.parametrize("first", ["planner", "architect"])
async def test_after_a_reroute_the_first_answer_from_either_counts(herd, first):
    """Who had the question before may still be the one who answers it."""
    architect = await herd.child("architect")
    task, question = await herd.waiting()
    await (await herd.planner.receive()).ack()
    await herd.parent.reroute(question, "architect")
    one, other = herd.planner, architect
    if first == "architect":
        one, other = architect, herd.planner

    await one.reply(question, "first")
    second = await other.reply(question, "second")

    assert await herd.state(task) == "running"
    assert second.duplicate
    assert [(mail.sender, mail.body) for mail in await herd.scout.receive()] == [(first, "first")]


async def test_a_rerouted_question_that_was_taken_is_taken_back_too(herd):
    """The first recipient's turn ends without a fuss; the new one has the question."""
    architect = await herd.child("architect")
    _, question = await herd.waiting()
    turn = await herd.planner.receive()

    await herd.parent.reroute(question, "architect")
    await turn.ack()

    assert turn.fenced == ()
    assert [mail.message_id for mail in await architect.receive()] == [question]


async def test_rerouting_to_the_asker_is_refused(herd):
    """Nobody answers their own question."""
    _, question = await herd.waiting()

    with pytest.raises(errors.InvalidInput):
        await herd.parent.reroute(question, "scout")


async def test_rerouting_to_who_has_it_changes_nothing(herd):
    """A repeat of the same reroute is the same reroute."""
    architect = await herd.child("architect")
    _, question = await herd.waiting()
    await herd.parent.reroute(question, "architect")
    await herd.parent.reroute(question, "architect")

    assert len(await architect.receive()) == 1


async def test_the_asker_gives_its_question_up(herd):
    """Its asker may cancel it: unread it is taken back, the task runs, nobody is told."""
    task, question = await herd.waiting()

    await herd.scout.cancel_request(question)
    await herd.scout.cancel_request(question)

    assert await herd.state(task) == "running"
    assert len(await herd.planner.receive()) == len(await herd.scout.receive()) == 0


async def test_the_asker_is_told_when_the_parent_gives_its_question_up(herd):
    """Its running task wakes for it."""
    _, question = await herd.waiting()

    await herd.parent.cancel_request(question)

    (notice,) = await herd.scout.next_turn(timeout=1)
    assert notice.data["how"] == "cancelled" and notice.data["request"] == question


async def test_only_asker_and_parent_give_a_question_up(herd):
    """Its recipient cannot make a question go away."""
    _, question = await herd.waiting()

    with pytest.raises(errors.Forbidden):
        await herd.planner.cancel_request(question)


@pytest.mark.parametrize("deed", ["remind", "reroute", "cancel_request"])
async def test_nothing_is_done_about_a_question_that_ended(herd, deed):
    """What ended is named with how it ended."""
    await herd.child("architect")
    _, question = await herd.waiting()
    await herd.planner.reply(question, "answer")
    more = ("architect",) if deed == "reroute" else ()

    with pytest.raises(errors.WrongState) as refusal:
        await getattr(herd.parent, deed)(question, *more)

    assert "no longer open: answered" in refusal.value.detail


async def test_the_number_of_open_questions_is_bounded(open_herd):
    """A task has at most `max_open_requests` questions open."""
    herd = await open_herd("h", "scout", "planner", max_open_requests=2)
    task, first = await herd.waiting("1")
    await herd.scout.message("planner", "2", task=task.id, expects_reply=True)
    with pytest.raises(errors.QueueFull):
        await herd.scout.message("planner", "3", task=task.id, expects_reply=True)

    await herd.planner.reply(first, "answer")

    await herd.scout.message("planner", "3", task=task.id, expects_reply=True)
