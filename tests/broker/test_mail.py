"""Mail: order, turns, giving back, attempts, dead letters, paging."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import pytest

from tests.broker.test_refusals import snapshot
from tests.fleets import Herd, HerdMaker, about, bodies, of_kind
from tests.requirements import proves
from tests.waiting import wait_until_async
from tocsin.broker import errors
from tocsin.broker.testing import lapse

# ------------------------------------------------------------------ order and turns


async def test_mail_comes_in_the_order_of_acceptance(herd):
    """Whoever sent it, whatever it is: the order is that in which it was accepted."""
    await herd.scout.message("planner", "1")
    await herd.parent.message("planner", "2")
    await herd.parent.delegate("planner", "3")
    await herd.scout.message("planner", "4", expects_reply=True)

    assert bodies(await herd.planner.receive()) == ["1", "2", "3", "4"]


async def test_the_order_holds_within_one_moment_of_the_clock(herd):
    """A sequence number orders mail, not its time."""
    sent = [f"{number}" for number in range(50)]
    for text in sent:
        await herd.scout.message("planner", text)

    assert bodies(await herd.planner.receive()) == sent


async def test_steer_mail_comes_first_and_in_order(herd):
    """Steer overtakes whatever was accepted before it, and keeps its own order."""
    for number, delivery in enumerate(["follow_up", "steer", "follow_up", "steer"]):
        await herd.scout.message("planner", str(number), delivery=delivery)

    assert bodies(await herd.planner.inbox()) == ["1", "3", "0", "2"]
    assert bodies(await herd.planner.next_turn(timeout=1)) == ["1", "3", "0", "2"]


async def test_a_turn_waits_for_mail_that_wakes(herd):
    """Quiet mail alone is no turn; what wakes comes with all quiet mail around it."""
    task = await herd.working(herd.scout)
    await herd.parent.cancel(task.id)
    assert await herd.scout.next_turn(timeout=0) is None

    await herd.parent.message("scout", "wake up")

    turn = await herd.scout.next_turn(timeout=1)
    assert [mail.kind for mail in turn] == ["notice", "message"]


async def test_a_waiting_turn_is_woken(herd):
    """Mail that arrives while an agent waits ends its wait at once."""
    waiting = asyncio.create_task(herd.planner.next_turn(timeout=5))
    await asyncio.sleep(0)

    await herd.scout.message("planner", "hello")

    assert bodies(await asyncio.wait_for(waiting, 5)) == ["hello"]


async def test_receive_never_waits(herd):
    """It takes what is there, quiet or not, and may be empty."""
    turn = await herd.planner.receive()

    assert len(turn) == 0 and not turn.more
    await turn.ack()
    await turn.nack()


async def test_mail_waits_for_an_agent_that_never_ran(herd):
    """No process need have existed for mail to be kept."""
    seat = await herd.parent.register("architect")
    for text in ("one", "two", "three"):
        await herd.scout.message("architect", text)
    await herd.later(days=30)

    architect = await herd.another("architect", seat.token)

    assert bodies(await architect.next_turn(timeout=1)) == ["one", "two", "three"]


async def test_a_turn_says_that_there_is_more(herd):
    """A turn that was cut says so; the rest is the next."""
    for number in range(5):
        await herd.scout.message("planner", str(number))

    first = await herd.planner.next_turn(timeout=1, limit=3)
    second = await herd.planner.next_turn(timeout=1, limit=3)

    assert (bodies(first), first.more) == (["0", "1", "2"], True)
    assert (bodies(second), second.more) == (["3", "4"], False)


async def test_a_turn_is_never_longer_than_its_limit(herd):
    """Steer and follow-up mail together are at most as much as was asked for."""
    for delivery in ("follow_up", "steer"):
        for number in range(3):
            await herd.scout.message("planner", f"{delivery} {number}", delivery=delivery)

    turn = await herd.planner.receive(limit=4)

    assert bodies(turn) == ["steer 0", "steer 1", "steer 2", "follow_up 0"]


async def test_two_instances_never_get_the_same_mail(herd):
    """Replicas share an inbox: each envelope goes to one of them."""
    replica = await herd.another("planner")
    for number in range(20):
        await herd.scout.message("planner", str(number))

    got = []
    for _ in range(10):
        for instance in (herd.planner, replica):
            got += bodies(await instance.receive(limit=1))

    assert sorted(got, key=int) == [str(number) for number in range(20)]


async def test_turns_end_when_the_agent_is_closed(herd):
    """The loop of an agent ends by itself, without an error."""
    seen = []

    async def live() -> None:
        async for turn in herd.planner.turns():
            async with turn:
                seen.extend(bodies(turn))
                await herd.parent.close("planner")

    await herd.scout.message("planner", "your last")
    life = asyncio.create_task(live())
    with pytest.raises(errors.AgentClosed):
        await asyncio.wait_for(life, 10)
    assert seen == ["your last"]


async def test_the_loop_of_a_closed_agent_is_over(herd):
    """Closed between two turns, an agent simply has no next one."""
    await herd.parent.close("planner")

    assert [turn async for turn in herd.planner.turns()] == []


# ------------------------------------------------------------------ ack


async def test_acked_mail_is_gone(herd, url, fleet_name):
    """Handled mail leaves the streams at once."""
    await herd.scout.message("planner", "one")
    async with await herd.planner.next_turn(timeout=1):
        pass

    roster = {agent.agent: agent for agent in await herd.parent.roster()}
    assert roster["planner"].unread == 0


async def test_acking_twice_is_acking_once(herd):
    """A repeated ack changes nothing and answers as the first did, should its answer be lost."""
    sent = await herd.scout.message("planner", "one")
    turn = await herd.planner.next_turn(timeout=1)

    await turn.ack()
    await turn.ack()

    assert turn.fenced == ()
    assert await herd.planner.ack(sent.message_id) == 1
    assert await herd.planner.ack(sent.message_id) == 1


async def test_giving_back_twice_is_giving_back_once(herd):
    """A repeated nack changes nothing and answers as the first did: nobody else has the mail."""
    await herd.scout.message("planner", "one")
    turn = await herd.planner.next_turn(timeout=1)

    await turn.nack(error="it broke")
    await turn.nack(error="it broke")

    assert turn.fenced == ()
    assert [mail.attempts for mail in await herd.planner.receive()] == [1]


async def test_acking_by_id(herd):
    """Mail that was taken or shown is acked by its id, several at once."""
    taken = await herd.scout.message("planner", "taken")
    await herd.planner.receive()
    shown = await herd.scout.message("planner", "shown")
    await herd.planner.inbox()

    assert await herd.planner.ack(taken.message_id, shown.message_id) == 2
    assert len(await herd.planner.inbox()) == 0


async def test_mail_that_nobody_saw_cannot_be_acked(herd):
    """Only what was taken or shown is handled."""
    sent = await herd.scout.message("planner", "one")

    with pytest.raises(errors.WrongState) as refusal:
        await herd.planner.ack(sent.message_id)

    assert "taken or shown" in refusal.value.detail


async def test_of_several_acks_one_that_is_refused_refuses_all(herd):
    """Checks come before writes: a bad id among good ones changes nothing."""
    sent = await herd.scout.message("planner", "one")
    other = await herd.scout.message("parent", "not planner's")
    await herd.planner.inbox()

    with pytest.raises(errors.Forbidden):
        await herd.planner.ack(sent.message_id, other.message_id)

    assert (await herd.scout.receipt(sent.message_id)).state == "shown"


# ------------------------------------------------------------------ giving back


async def test_mail_given_back_without_an_error_counts_no_attempt(herd):
    """A clean hand-back is nobody's failure, however often."""
    await herd.scout.message("planner", "one")
    for _ in range(10):
        turn = await herd.planner.next_turn(timeout=1)
        assert [mail.attempts for mail in turn] == [0]
        await turn.nack()


async def test_mail_given_back_with_a_delay_comes_after_it(herd):
    """`delay` is how long the mail stays away; then it wakes again."""
    await herd.scout.message("planner", "later")
    turn = await herd.planner.next_turn(timeout=1)

    await turn.nack(delay=timedelta(seconds=30))

    assert await herd.later(seconds=29) == {}
    assert await herd.planner.next_turn(timeout=0) is None
    assert await herd.later(seconds=1) == {"deliveries": 1}
    assert bodies(await herd.planner.next_turn(timeout=0)) == ["later"]


async def test_a_task_that_is_cancelled_while_its_mail_is_delayed_does_not_come(herd):
    """Delayed mail is unread mail: what is over is taken back."""
    task = await herd.parent.delegate("scout", "x")
    await (await herd.scout.receive()).nack(delay=timedelta(seconds=30))

    await herd.parent.cancel(task.id)
    await herd.later(seconds=30)

    assert of_kind(await herd.scout.receive(), "task") == []


async def test_an_interrupted_turn_is_given_back_uncounted(herd):
    """A turn that was cancelled from outside is not a failed attempt."""
    sent = await herd.scout.message("planner", "one")

    async def handle() -> None:
        async with await herd.planner.next_turn(timeout=1):
            await asyncio.Event().wait()

    handler = asyncio.create_task(handle())

    async def is_taken():
        return (await herd.scout.receipt(sent.message_id)).state == "taken"

    await wait_until_async(is_taken, "the turn to begin")
    handler.cancel()
    with pytest.raises(asyncio.CancelledError):
        await handler

    assert [mail.attempts for mail in await herd.planner.next_turn(timeout=1)] == [0]


async def test_a_leaving_instance_hands_back_at_once(herd):
    """What a clean leave had not handled goes to another instance, uncounted."""
    replica = await herd.another("planner")
    await herd.scout.message("planner", "one")
    await herd.planner.receive()

    await herd.planner.leave()

    assert [(mail.body, mail.attempts) for mail in await replica.next_turn(timeout=1)] == [
        ("one", 0)
    ]


async def test_an_instance_with_a_lot_in_hand_hands_all_of_it_back(herd):
    """More than one pass gives back: still all of it."""
    replica = await herd.another("planner")
    for number in range(250):
        await herd.scout.message("planner", str(number))
    await herd.planner.receive(limit=250)

    await herd.planner.leave()

    got = await replica.receive(limit=1000)
    assert sorted(bodies(got), key=int) == [str(number) for number in range(250)]


# ------------------------------------------------------------------ attempts and dead letters


@proves("P12")
async def test_mail_that_failed_five_times_is_a_dead_letter(herd):
    """After `max_attempts` the envelope is set aside with the reason, and the parent is woken."""
    sent = await herd.scout.message("planner", "poison")
    for attempt in range(5):
        turn = await herd.planner.next_turn(timeout=1)
        assert [mail.attempts for mail in turn] == [attempt]
        await turn.nack(error="ValueError: cannot parse")

    assert await herd.planner.next_turn(timeout=0) is None
    receipt = await herd.scout.receipt(sent.message_id)
    assert (receipt.state, receipt.attempts) == ("dead", 5)
    assert "ValueError: cannot parse" in receipt.reason
    (notice,) = await herd.parent.next_turn(timeout=1)
    assert notice.data["about"] == "dead_letter" and notice.data["message"] == sent.message_id
    assert "ValueError: cannot parse" in notice.body


async def test_mail_behind_a_dead_letter_flows(herd):
    """One bad envelope holds up nothing."""
    await herd.scout.message("planner", "poison")
    await herd.scout.message("planner", "fine")
    for _ in range(5):
        turn = await herd.planner.next_turn(timeout=1, limit=1)
        if bodies(turn) == ["poison"]:
            await turn.nack(error="broken")
        else:
            await turn.ack()

    while (turn := await herd.planner.next_turn(timeout=0)) is not None:
        await turn.nack(error="broken")
    journal = await herd.parent.journal(limit=1000)
    assert [line.event for line in journal].count("dead") == 1


async def test_the_number_of_attempts_is_a_setting(open_herd):
    """`max_attempts` of the herd counts."""
    herd = await open_herd("h", "scout", "planner", max_attempts=1)
    sent = await herd.scout.message("planner", "poison")

    await (await herd.planner.next_turn(timeout=1)).nack(error="broken")

    assert (await herd.scout.receipt(sent.message_id)).state == "dead"


@proves("P10")
async def test_a_dead_task_envelope_fails_its_task(herd):
    """A task that no handler can take fails, and its settlement wakes the parent."""
    task = await herd.parent.delegate("scout", "x")
    for _ in range(5):
        await (await herd.scout.next_turn(timeout=1)).nack(error="broken")

    settled = (await herd.parent.task(task.id)).settlement
    assert settled.status == "failed" and "dead-lettered" in settled.error
    turn = await herd.parent.next_turn(timeout=1)
    assert {mail.kind for mail in turn if mail.trigger_turn} == {"task_settled", "notice"}


async def test_a_dead_question_closes_its_wait(herd):
    """A question that no handler can take is closed; its asker hears why and runs on."""
    task, question = await herd.waiting()
    for _ in range(5):
        await (await herd.planner.next_turn(timeout=1)).nack(error="broken")

    assert await herd.state(task) == "running"
    (notice,) = about(await herd.scout.next_turn(timeout=1), "request_closed")
    assert (notice.data["how"], notice.data["request"]) == ("dead", question)


@proves("P12")
async def test_an_instance_that_died_counts_as_an_attempt(herd):
    """A handler that dies holding mail has failed at it."""
    sent = await herd.scout.message("planner", "heavy")
    await herd.planner.receive()
    await asyncio.to_thread(lapse, herd.planner)

    replica = await herd.another("planner")
    assert [mail.attempts for mail in await replica.next_turn(timeout=1)] == [1]
    assert (await herd.scout.receipt(sent.message_id)).attempts == 1


@proves("P12")
async def test_the_ack_of_an_old_holder_is_fenced(herd):
    """Who lost its lease cannot settle mail that another has by now, by turn or by id."""
    sent = await herd.scout.message("planner", "one")
    replica = await herd.another("planner")
    old = await herd.planner.receive()
    await asyncio.to_thread(lapse, herd.planner)
    new = await replica.next_turn(timeout=1)

    await old.ack()
    assert old.fenced == (sent.message_id,)
    await old.nack(error="late")
    assert await herd.planner.ack(sent.message_id) == 0
    assert (await herd.scout.receipt(sent.message_id)).state == "taken"

    await new.ack()
    assert new.fenced == ()
    assert (await herd.scout.receipt(sent.message_id)).by == replica.instance


@proves("P12")
async def test_the_ack_of_an_old_holder_is_fenced_after_the_new_ones(herd):
    """Of two that handled a message, only whose ack counted is told that it did, however often."""
    sent = await herd.scout.message("planner", "one")
    replica = await herd.another("planner")
    old = await herd.planner.receive()
    await asyncio.to_thread(lapse, herd.planner)
    new = await replica.next_turn(timeout=1)
    await new.ack()

    await old.ack()
    assert old.fenced == (sent.message_id,)
    await new.ack()
    assert new.fenced == ()
    assert (await herd.scout.receipt(sent.message_id)).by == replica.instance


async def test_the_same_instance_taking_again_is_another_delivery(herd):
    """What an instance gave back and took again is settled by the second taking only."""
    sent = await herd.scout.message("planner", "one")
    first = await herd.planner.receive()
    await first.nack()
    second = await herd.planner.receive()

    await first.ack()

    assert first.fenced == (sent.message_id,)
    assert (await herd.scout.receipt(sent.message_id)).state == "taken"
    await second.ack()
    assert (await herd.scout.receipt(sent.message_id)).state == "handled"


# ------------------------------------------------------------------ showing, paging


async def test_an_inbox_that_was_cut_says_how_much_is_left(herd):
    """`remaining` is what the listing left out."""
    for number in range(7):
        await herd.scout.message("planner", str(number))

    shown = await herd.planner.inbox(limit=3)

    assert (bodies(shown), shown.remaining) == (["0", "1", "2"], 4)
    assert (await herd.planner.inbox()).remaining == 0


async def test_shown_mail_can_still_be_taken(herd):
    """Showing takes nothing away from the agent's turns."""
    await herd.scout.message("planner", "one")
    await herd.planner.inbox()

    turn = await herd.planner.next_turn(timeout=0)

    assert [(mail.body, mail.attempts) for mail in turn] == [("one", 0)]


async def test_showing_a_task_starts_it(herd):
    """Who was shown its task has begun with it."""
    task = await herd.parent.delegate("scout", "x")

    await herd.scout.inbox()

    known = await herd.parent.task(task.id)
    assert (known.state, known.started_at) == ("running", herd.clock.now())


async def test_what_another_instance_holds_is_not_shown(herd):
    """The inbox of a replica shows what is free and what it holds itself."""
    replica = await herd.another("planner")
    await herd.scout.message("planner", "one")
    await herd.planner.receive()

    assert bodies(await replica.inbox()) == []
    assert bodies(await herd.planner.inbox()) == ["one"]


# ------------------------------------------------------------------ limits


async def test_a_full_inbox_refuses_new_work_only(open_herd):
    """Messages, questions and tasks are refused; replies, settlements and reminders always fit."""
    herd = await open_herd("h", "scout", "planner", inbox_limit=2, max_open_tasks=5)
    busy, question = await herd.waiting("q")
    held = await herd.working(herd.planner)
    for number in (1, 2):
        await herd.parent.message("scout", str(number))
        await herd.scout.message("parent", str(number))

    for refused in (
        herd.parent.message("scout", "3"),
        herd.parent.message("scout", "3", expects_reply=True),
        herd.parent.message("scout", "3", delivery="steer"),
        herd.parent.delegate("scout", "3"),
        herd.scout.message("parent", "3"),
    ):
        with pytest.raises(errors.QueueFull) as refusal:
            await refused
        assert "2 unread messages" in refusal.value.detail and refusal.value.retryable

    await herd.later(minutes=5)
    await herd.planner.reply(question, "answer")
    await herd.planner.done(held.id)
    assert bodies(await herd.scout.receive()) == ["1", "2", "answer"]
    assert [mail.kind for mail in await herd.parent.receive()] == [
        "message",
        "message",
        "task_settled",
    ]
    assert await herd.state(busy) == "running"


async def test_nothing_unread_is_ever_dropped(herd):
    """A thousand unread messages are a thousand, and the next is refused until some are handled."""
    for number in range(1000):
        await herd.scout.message("planner", str(number))
    with pytest.raises(errors.QueueFull):
        await herd.scout.message("planner", "one too many")

    turn = await herd.planner.receive(limit=1000)
    assert bodies(turn) == [str(number) for number in range(1000)]
    await turn.ack()

    await herd.scout.message("planner", "room again")


LIMITS = {
    "body": lambda herd, text: herd.scout.message("planner", text),
    "body of a question": lambda herd, text: herd.scout.message(
        "planner", text, expects_reply=True
    ),
    "body of an ask": lambda herd, text: herd.scout.ask("planner", text),
    "body of an answer": lambda herd, text: herd.planner.reply(herd.asked, text),
    "description": lambda herd, text: herd.parent.delegate("planner", text),
    "summary": lambda herd, text: herd.scout.done(herd.held, summary=text),
    "error": lambda herd, text: herd.scout.done(herd.held, "failed", error=text),
    "override_reason": lambda herd, text: herd.scout.done(herd.held, override_reason=text),
    "reason": lambda herd, text: herd.parent.cancel(herd.held, reason=text),
    "text": lambda herd, text: herd.scout.progress(text),
    "label": lambda herd, text: herd.parent.register("a" + str(len(text)), label=text),
    "data": lambda herd, text: herd.scout.message("planner", "x", data={"x": text * 5}),
}


@pytest.mark.parametrize("what", LIMITS)
async def test_limits_of_size(open_herd, url, fleet_name, what):
    """Sizes are refused at the door, whole, with the field, its size and the limit."""
    limits = {"body_limit": 100, "envelope_limit": 1000, "label_limit": 100}
    herd = await open_herd("h", "scout", "planner", **limits)
    herd.held = (await herd.working(herd.scout)).id
    herd.asked = (await herd.scout.message("planner", "?", expects_reply=True)).message_id
    before = snapshot(url, fleet_name)

    with pytest.raises(errors.TooLarge) as refusal:
        await LIMITS[what](herd, "ä" * 101)

    assert what.split()[0] in refusal.value.detail
    figures = ("1019", "1000") if what == "data" else ("101", "100")
    assert all(figure in refusal.value.detail for figure in figures)
    assert snapshot(url, fleet_name) == before
    if what != "body of an ask":
        await LIMITS[what](herd, "ä" * (90 if what == "data" else 100))


@proves("P11")
async def test_an_ack_long_after_another_handled_it_is_fenced(herd: Herd):
    """A laptop slept for longer than receipts are kept: what it still holds is acked, no error."""
    lost = await herd.scout.message("planner", "lost")
    kept = await herd.scout.message("planner", "kept")
    turn = await herd.planner.receive()
    await herd.parent.hand_back(lost.message_id)
    await (await (await herd.another("planner")).receive()).ack()
    await herd.later(hours=2)

    await turn.ack()

    assert turn.fenced == (lost.message_id,)
    assert (await herd.parent.receipt(kept.message_id)).state == "handled"
    await turn.nack(error="it broke")
    assert turn.fenced == (lost.message_id,)


@proves("P11")
async def test_a_handler_that_fails_with_many_words_gives_its_mail_back(open_herd: HerdMaker):
    """The words of an exception are no reason to keep mail, however short a herd's texts are."""
    herd = await open_herd("h", "scout", body_limit=10)
    await herd.parent.message("scout", "x")
    with pytest.raises(RuntimeError):
        async with await herd.scout.receive():
            raise RuntimeError("boom " * 500)

    assert [mail.attempts for mail in await herd.scout.receive()] == [1]
