"""Answers to asks: in time, late, twice; and what the same key comes back to."""

from __future__ import annotations

from datetime import timedelta

import pytest

from tests.asking import asking, join_in
from tests.fleets import Herd, about, bodies, of_kind, token_of
from tests.requirements import proves
from tocsin.broker import Delivery, TaskState, errors

MINUTE = timedelta(minutes=1)


async def ended(herd: Herd, how: str = "no_reply", **given: object) -> str:
    """An ask of scout that has ended without an answer; its id."""
    if how == "no_reply":
        async with asking(herd, herd.scout, "planner", **given) as line:
            await herd.later(minutes=10)
            await line.ends(errors.NoReply)
    else:
        async with asking(herd, herd.scout, "planner", ceiling=5 * MINUTE, **given) as line:
            await herd.later(minutes=1)
            await herd.planner.progress("at it")
            await herd.later(minutes=4)
            await line.ends(errors.CeilingActive)
    return line.id


HOW = pytest.mark.parametrize("how", ["no_reply", "ceiling_active"])

# ------------------------------------------------------------------ in time


async def test_what_an_answer_tells(herd):
    """Who, what, with which data, when, after how long and how many extensions."""
    async with asking(herd, herd.scout, "planner", thread="t-1") as line:
        (asked,) = await herd.planner.next_turn(timeout=5)
        assert (asked.kind, asked.expects_reply, asked.body) == ("request", True, "Which backoff?")
        assert (asked.message_id, asked.thread_id, asked.sender) == (line.id, "t-1", "scout")
        await herd.later(minutes=3)
        sent = await herd.planner.reply(asked, "Exponential", data={"base": 2})
        reply = await line.reply()

    assert reply.model_dump() == {
        "message_id": sent.message_id,
        "request_id": line.id,
        "sender": "planner",
        "body": "Exponential",
        "data": {"base": 2},
        "late": False,
        "created_at": herd.clock.now(),
        "waited": 3 * MINUTE,
        "extensions": 0,
    }


async def test_an_answer_is_no_mail(herd):
    """Who has waited for it does not find it in its inbox too, now or later."""
    async with asking(herd, herd.scout, "planner") as line:
        sent = await herd.planner.reply(line.id, "!")
        await line.reply()
    await herd.later(minutes=59)

    assert await herd.scout.next_turn(timeout=0) is None
    assert len(await herd.scout.receive()) == len(await herd.scout.inbox()) == 0
    for agent in (herd.planner, herd.scout, herd.parent):
        receipt = await agent.receipt(sent.message_id)
        assert (receipt.state, receipt.by) == ("handled", herd.scout.instance)


async def test_the_parent_answers_in_the_targets_place(herd):
    """The answer ends the ask; the question is taken back from who did not read it."""
    async with asking(herd, herd.scout, "planner") as line:
        await herd.parent.reply(line.id, "Mine")
        assert (await line.reply()).sender == "parent"
    assert len(await herd.planner.receive()) == 0


async def test_a_rerouted_ask(herd):
    """It goes on with another target, whose work counts from then on."""
    architect = await herd.child("architect")
    async with asking(herd, herd.scout, "planner") as line:
        await herd.later(minutes=5)
        await herd.parent.reroute(line.id, "architect")
        await herd.later(minutes=4)
        await architect.progress("at it")
        await herd.planner.progress("at something else")
        assert await herd.later(minutes=9) == {}
        await architect.reply(line.id, "!")
        assert (await line.reply()).sender == "architect"


async def test_an_ask_steers_nobody(herd):
    """It is mail for the next turn, and wakes."""
    async with asking(herd, herd.scout, "planner"):
        (asked,) = await herd.planner.next_turn(timeout=5)
        assert (asked.delivery, asked.trigger_turn) == (Delivery.FOLLOW_UP, True)


# ------------------------------------------------------------------ late


@HOW
@proves("P9")
async def test_a_late_answer_without_a_task_wakes(herd, how):
    """Kept under the request's id, marked, delivered once, visible in inbox and journal."""
    request = await ended(herd, how)
    await herd.later(hours=5)

    sent = await herd.planner.reply(request, "Exponential", data={"base": 2})

    assert sent.late and not sent.duplicate
    shown = list(await herd.scout.inbox())
    assert [(mail.body, mail.late, mail.reply_to) for mail in shown] == [
        ("Exponential", True, request)
    ]
    turn = await herd.scout.next_turn(timeout=5)
    (mail,) = turn
    assert (mail.message_id, mail.late, mail.data) == (sent.message_id, True, {"base": 2})
    await turn.ack()
    assert len(await herd.scout.receive()) == 0
    lines = [line.fields for line in await herd.parent.journal(limit=1000)]
    kept = [line for line in lines if line.get("message") == sent.message_id]
    assert kept and kept[0]["late"] == 1 and kept[0]["kind"] == "reply"
    receipt = await herd.scout.receipt(request)
    assert (receipt.request, receipt.reply, receipt.answered_by) == (
        how,
        sent.message_id,
        "planner",
    )


@HOW
@proves("P9")
async def test_a_late_answer_wakes_while_its_task_is_open(herd, how):
    """The work it was asked for goes on, and can use it."""
    task = await herd.working(herd.scout)
    request = await ended(herd, how, task=task.id)

    await herd.planner.reply(request, "!")

    (mail,) = await herd.scout.next_turn(timeout=5)
    assert (mail.late, mail.trigger_turn, mail.task_id) == (True, True, task.id)
    assert await herd.state(task) == "running"


@HOW
@proves("P9")
async def test_a_late_answer_is_quiet_when_its_task_has_settled(herd, how):
    """Kept and delivered with the next turn; nobody is woken for what is over."""
    task = await herd.working(herd.scout)
    request = await ended(herd, how, task=task.id)
    await herd.scout.done(task.id, summary="without it")

    assert (await herd.planner.reply(request, "!")).late

    assert await herd.scout.next_turn(timeout=0) is None
    (mail,) = await herd.scout.receive()
    assert (mail.body, mail.late, mail.trigger_turn) == ("!", True, False)


async def test_an_answer_to_a_cancelled_ask_is_quiet(herd):
    """Its asker gave it up."""
    async with asking(herd, herd.scout, "planner") as line:
        await herd.planner.receive()
        await herd.scout.cancel_request(line.id)
        await line.ends(errors.RequestCancelled)

    assert (await herd.planner.reply(line.id, "!")).late

    assert await herd.scout.next_turn(timeout=0) is None
    assert bodies(await herd.scout.receive()) == ["!"]


@proves("P9")
async def test_a_late_answer_resolves_no_other_ask(herd):
    """Case 26: the first ask's answer, late, while another one is open to the same agent."""
    async with asking(herd, herd.scout, "planner", "first", window=MINUTE) as first:
        await herd.later(minutes=1)
        assert (await first.ends(errors.NoReply)).message_id == first.id
    async with asking(herd, herd.scout, "planner", "second") as second:
        await herd.planner.reply(first.id, "to the first")

        turn = await herd.scout.next_turn(timeout=5)
        (mail,) = turn
        assert (mail.reply_to, mail.late, mail.body) == (first.id, True, "to the first")
        await turn.ack()
        assert second.open
        await herd.planner.reply(second.id, "to the second")
        assert (await second.reply()).body == "to the second"
    assert (await herd.scout.ask_wait(first.id)).body == "to the first"


@HOW
async def test_a_second_late_answer(herd, how):
    """The same content is a duplicate; other content is kept in the journal only."""
    request = await ended(herd, how)
    first = await herd.planner.reply(request, "Exponential")

    same = await herd.planner.reply(request, "Exponential")
    other = await herd.planner.reply(request, "No: linear")

    assert same.duplicate and other.duplicate
    assert same.message_id == other.message_id == first.message_id
    assert bodies(await herd.scout.receive()) == ["Exponential"]
    (line,) = [
        line for line in await herd.parent.journal(limit=1000) if line.event == "second_reply"
    ]
    assert line.fields["body"] == "No: linear"


@pytest.mark.parametrize("confirmed", [True, False])
async def test_a_second_answer_in_time(herd, confirmed):
    """The first stands, whether its asker has it by then or not."""
    async with asking(herd, herd.scout, "planner") as line:
        await herd.planner.reply(line.id, "Exponential")
        if confirmed:
            await line.reply()
        assert (await herd.planner.reply(line.id, "Exponential")).duplicate
        assert (await herd.planner.reply(line.id, "No: linear")).duplicate
        assert (await line.reply()).body == "Exponential"
    assert len(await herd.scout.receive()) == 0
    events = [line.event for line in await herd.parent.journal(limit=1000)]
    assert events.count("second_reply") == 1


async def test_who_may_answer(herd):
    """Nobody else's ask, none that never was, not one's own: refused, before and after the end."""
    architect = await herd.child("architect")
    async with asking(herd, herd.scout, "planner") as line:
        for stranger in (architect, herd.scout):
            with pytest.raises(errors.Forbidden):
                await stranger.reply(line.id, "mine")
        await herd.later(minutes=10)
        await line.ends(errors.NoReply)
    for stranger in (architect, herd.scout):
        with pytest.raises(errors.Forbidden):
            await stranger.reply(line.id, "mine")
    with pytest.raises(errors.UnknownMessage):
        await herd.planner.reply("msg_00000000000000000000000aa", "to nobody")
    assert len(await herd.scout.receive()) == 0


async def test_a_late_answer_to_an_agent_of_a_newer_generation(herd):
    """The name was used again: nothing of the old one reaches it."""
    request = await ended(herd)
    await herd.parent.close("scout")
    newer = await herd.another("scout", token_of(await herd.parent.register("scout")))

    with pytest.raises(errors.AgentClosed):
        await herd.planner.reply(request, "!")
    with pytest.raises(errors.Forbidden):
        await newer.ask_wait(request)
    assert len(await newer.receive()) == 0


@HOW
@pytest.mark.parametrize("failed", [False, True])
async def test_what_got_no_reply_stays_with_who_may_still_answer(herd, how, failed):
    """Given back by a process that ended or failed, it comes again, as other mail does."""
    async with asking(herd, herd.scout, "planner", ceiling=9 * MINUTE) as line:
        turn = await herd.planner.next_turn(timeout=5)
        await herd.later(minutes=1)
        if how == "ceiling_active":
            await herd.planner.progress("at it")
        await herd.later(minutes=8)
        await line.ends(errors.BrokerError)
    assert (await herd.scout.receipt(line.id)).request == how

    await turn.nack(error="broke" if failed else None)

    (again,) = await herd.planner.next_turn(timeout=5)
    assert (again.message_id, again.attempts) == (line.id, int(failed))
    await herd.planner.reply(again, "!")
    assert bodies(await herd.scout.next_turn(timeout=5)) == ["!"]


async def test_a_question_answered_late_is_taken_back_where_it_was_not_read(herd):
    """The parent answered in the end; the target is not asked any more."""
    request = await ended(herd)
    await herd.parent.reply(request, "Mine")

    assert len(await herd.planner.receive()) == 0
    assert (await herd.scout.receipt(request)).state == "withdrawn"


# ------------------------------------------------------------------ the same key


async def test_a_key_joins_an_open_ask(herd):
    """Two calls, one question: both have the answer, nobody mail."""
    async with asking(herd, herd.scout, "planner", key="k") as line:
        second = await join_in(herd, await herd.another("scout"), line.id, key="k")
        assert [each.message_id for each in await herd.planner.inbox()] == [line.id]
        await herd.planner.reply(line.id, "!")
        assert (await line.reply()).body == (await second).body == "!"
    assert len(await herd.planner.receive()) == len(await herd.scout.receive()) == 0


async def test_a_key_with_other_content(herd):
    """It stands for one question."""
    async with asking(herd, herd.scout, "planner", key="k"):
        with pytest.raises(errors.DuplicateConflict):
            await herd.scout.ask("planner", "Something else?", key="k")


async def test_a_key_opens_again_what_got_no_reply(herd):
    """The same request with a new window, ceiling and episode."""
    task = await herd.working(herd.scout)
    how = {"key": "k", "task": task.id}
    first = await ended(herd, **how)
    assert (await herd.parent.task(task.id)).episode == 1
    async with asking(herd, herd.scout, "planner", ceiling=15 * MINUTE, **how) as line:
        assert line.id == first
        known = await herd.parent.task(task.id)
        assert (known.state, known.episode, known.open_requests) == ("waiting", 2, (first,))
        assert (await herd.scout.receipt(first)).request == "open"
        assert (await herd.later(minutes=9, seconds=59)).get("windows", 0) == 0
        await herd.planner.progress("at it")
        assert (await herd.later(minutes=5)).get("ceilings", 0) == 0
        assert await herd.later(seconds=1) == {"ceilings": 1}
        await line.ends(errors.CeilingActive)
    assert len(await herd.planner.receive()) == 1, "it was not read, so it is there once"


async def test_a_key_asks_again_who_had_read_it(herd):
    """Its target acked the question: it is woken with it again."""
    async with asking(herd, herd.scout, "planner", key="k") as line:
        await (await herd.planner.next_turn(timeout=5)).ack()
        await herd.later(minutes=10)
        await line.ends(errors.NoReply)
    async with asking(herd, herd.scout, "planner", key="k") as again:
        (asked,) = await herd.planner.next_turn(timeout=5)
        assert asked.message_id == again.id == line.id
        await herd.planner.reply(asked, "!")
        assert (await again.reply()).waited == timedelta(0)
    assert (await herd.scout.receipt(line.id)).request == "answered"


async def test_a_key_asks_again_who_had_it_dead_lettered(open_herd):
    """A question that died after its ask had ended comes back to life with it."""
    herd = await open_herd("h", "scout", "planner", max_attempts=1)
    async with asking(herd, herd.scout, "planner", key="k") as line:
        turn = await herd.planner.next_turn(timeout=5)
        await herd.later(minutes=10)
        await line.ends(errors.NoReply)
    await turn.nack(error="broke")
    assert (await herd.scout.receipt(line.id)).state == "dead"

    async with asking(herd, herd.scout, "planner", key="k") as again:
        turn = await herd.planner.next_turn(timeout=5)
        assert [(mail.message_id, mail.attempts) for mail in turn] == [(line.id, 0)]
        await herd.planner.reply(turn[0], "!")
        await again.reply()
        await turn.ack()


async def test_a_key_asks_again_what_was_dead_lettered(open_herd):
    """A question that died unanswered, which ended its ask, is put once more."""
    herd = await open_herd("h", "scout", "planner", max_attempts=1)
    async with asking(herd, herd.scout, "planner", key="k") as line:
        turn = await herd.planner.next_turn(timeout=5)
        await turn.nack(error="broke")
        await line.ends(errors.RequestCancelled)

    async with asking(herd, herd.scout, "planner", key="k") as again:
        turn = await herd.planner.next_turn(timeout=5)
        assert [(mail.message_id, mail.attempts) for mail in turn] == [(line.id, 0)]
        await herd.planner.reply(turn[0], "!")
        assert (await again.reply()).late is False
        await turn.ack()


async def test_a_key_gets_the_ceilings_outcome_until_there_is_an_answer(herd):
    """Not to be retried blindly: the same error, at once, nothing asked anew."""
    first = await ended(herd, "ceiling_active", key="k")
    await (await herd.planner.receive()).ack()
    for _ in range(2):
        await herd.later(hours=1)
        with pytest.raises(errors.CeilingActive) as again:
            await herd.scout.ask("planner", "Which backoff?", key="k", ceiling=5 * MINUTE)
        assert again.value.message_id == first
    assert len(await herd.planner.receive()) == 0

    await herd.planner.reply(first, "at last")

    reply = await herd.scout.ask("planner", "Which backoff?", key="k", ceiling=5 * MINUTE)
    assert (reply.body, reply.late) == ("at last", True)


@HOW
@pytest.mark.parametrize("read", [False, True])
async def test_a_key_returns_the_late_answer(herd, how, read):
    """Whether its mail was read or not; mail that was not read goes back."""
    request = await ended(herd, how, key="k")
    await herd.planner.reply(request, "Exponential")
    if read:
        await (await herd.scout.next_turn(timeout=5)).ack()

    for _ in range(2):
        reply = await herd.scout.ask("planner", "Which backoff?", key="k")
        assert (reply.body, reply.late, reply.request_id) == ("Exponential", True, request)

    assert len(await herd.scout.receive()) == 0
    assert len(of_kind(await herd.planner.receive(), "request")) == 0


async def test_a_key_returns_the_answer_in_time(herd):
    """For as long as the record is kept."""
    async with asking(herd, herd.scout, "planner", key="k") as line:
        await herd.planner.reply(line.id, "!")
        await line.reply()
    await herd.later(days=6)
    assert (await herd.scout.ask("planner", "Which backoff?", key="k")).body == "!"
    assert (await herd.scout.ask_wait(line.id)).late is False


async def test_an_ask_that_was_opened_again_tells_of_each_end(herd):
    """Nobody waits: each round has its own notice, and a newer round takes back the older's."""
    for _ in range(2):
        async with asking(herd, herd.scout, "planner", key="k") as line:
            pass  # hung up
        await herd.later(minutes=10)
        (notice,) = about(await herd.scout.inbox(), "request_closed")
        assert notice.data["request"] == line.id
        assert "No reply from planner" in notice.body and "window of 10m" in notice.body
    async with asking(herd, herd.scout, "planner", key="k") as line:
        assert about(await herd.scout.inbox(), "request_closed") == []
        await herd.planner.reply(line.id, "!")
        await line.reply()


async def test_coming_back_to_an_ask(herd):
    """`ask_wait`: None while it is open, then its answer or its end, as often as one likes."""
    async with asking(herd, herd.scout, "planner") as line:
        other = await herd.another("scout")
        assert await other.ask_wait(line.id, timeout=0) is None
        await herd.planner.reply(line.id, "!")
        assert (await line.reply()).body == "!"
        for _ in range(2):
            assert (await other.ask_wait(line.id)).body == "!"
    request = await ended(herd)
    for _ in range(2):
        with pytest.raises(errors.NoReply):
            await herd.scout.ask_wait(request)


async def test_asking_with_a_key_after_the_task_settled(herd):
    """What it waited for is over, and the error says so."""
    task = await herd.working(herd.scout)
    async with asking(herd, herd.scout, "planner", key="k", task=task.id) as line:
        await herd.parent.cancel(task.id, reason="enough")
        await line.ends(errors.RequestCancelled)
    with pytest.raises(errors.RequestCancelled, match=TaskState.CANCELLED):
        await herd.scout.ask("planner", "Which backoff?", key="k", task=task.id)
