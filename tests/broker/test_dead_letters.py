"""Dead letters: how mail gets there, who is told, and how it comes out again."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import pytest

from tests.asking import asking
from tests.fleets import Herd, about, bodies, command, key_of, of_kind, token_of
from tests.leftovers import herd_keys
from tests.requirements import proves
from tocsin.broker import dead, errors
from tocsin.broker.scripts import load
from tocsin.broker.testing import lapse


async def fails(agent, times: int = 5, error: str = "ValueError: no") -> None:
    """A handler that raises on whatever it is given, so many times."""
    for _ in range(times):
        await (await agent.receive()).nack(error=error)


async def buried(herd: Herd, **message) -> str:
    """A message of scout's that planner failed on until it was a dead letter."""
    sent = await herd.scout.message("planner", "poison", **message)
    await fails(herd.planner)
    return sent.message_id


# ------------------------------------------------------------------ what cannot be read

RAW: dict[str, list[str | bytes]] = {
    "missing field": ["kind", "message"],
    "broken JSON": ["data", "{broken"],
    "deep nesting": ["data", "[" * 5000 + "]" * 5000],
    "unknown kind": ["kind", "weird", "body", "hello"],
    "bad UTF-8": [b"\xff\xfe", b"\x80\x81"],
    "no id": ["m", "nothing of ours", "s", "1"],
    "a lost id": ["m", "msg_1", "s", "1"],
    "no episode": ["r", "task_1"],
    "no task": ["r", "x", "e", "1", "s", "1"],
}


@pytest.mark.parametrize("how", ["receive", "next_turn", "inbox"])
@pytest.mark.parametrize("raw", RAW)
@pytest.mark.parametrize("delivery", ["inbox", "steer"])
@proves("P11")
async def test_a_raw_entry_in_an_inbox(herd, raw, how, delivery):
    """Case 8: a dead letter at once, with the reason and what stood there; mail behind it flows."""
    await command(herd, "XADD", key_of(herd, delivery, agent="planner"), "*", *RAW[raw])
    await herd.scout.message("planner", "whole")

    read = {
        "receive": herd.planner.receive,
        "next_turn": lambda: herd.planner.next_turn(timeout=0),
        "inbox": herd.planner.inbox,
    }
    assert bodies(await read[how]()) == ["whole"]

    (letter,) = await herd.parent.dead_letters()
    assert (letter.recipient, letter.kind, letter.attempts) == ("planner", None, 0)
    assert letter.reason.startswith("it cannot be read: ") and letter.error
    assert letter.died_at == herd.clock.now()
    body = (await herd.parent.dead_letter(letter.message_id)).body
    for word in RAW[raw]:
        text = word if isinstance(word, str) else word.decode("utf-8", "replace")
        assert text in body
    (notice,) = await herd.parent.next_turn(timeout=0)
    assert notice.data["message"] == letter.message_id and "is no message" in notice.body
    with pytest.raises(errors.WrongState, match="drop it"):
        await herd.parent.replay(letter.message_id)
    await herd.parent.drop(letter.message_id)
    assert list(await herd.parent.dead_letters()) == []


async def test_a_huge_raw_entry_is_cut_and_says_so(herd):
    """A dead letter holds no more than an envelope could."""
    stream = key_of(herd, "inbox", agent="planner")
    await command(herd, "XADD", stream, "*", "x", "y" * 1_000_000)
    await herd.planner.receive()

    (letter,) = await herd.parent.dead_letters()
    body = (await herd.parent.dead_letter(letter.message_id)).body
    assert len(body) < 70_000 and body.endswith(" ... cut, of 1000008 bytes")


DAMAGE: dict[str, tuple[str | bytes, ...]] = {
    "broken JSON": ("HSET", "data", "{broken"),
    "deep nesting": ("HSET", "data", "[" * 5000 + "]" * 5000),
    "unknown kind": ("HSET", "kind", "weird"),
    "a kind that is no text": ("HSET", "kind", b"\xff\xfe"),
    "no kind": ("HDEL", "kind"),
    "no sender": ("HDEL", "sender"),
    "no recipient": ("HDEL", "to"),
    "another recipient": ("HSET", "to", "scout"),
    "another stream": ("HSET", "delivery", "steer"),
    "no task": ("HDEL", "task"),
    "no attempts": ("HSET", "attempts", "many"),
    "no time": ("HSET", "accepted_at", "yesterday"),
}


@pytest.mark.parametrize("how", ["receive", "inbox"])
@pytest.mark.parametrize("damage", DAMAGE)
@proves("P11")
async def test_a_message_whose_record_was_damaged(herd, damage, how):
    """Case 8: it cannot be decoded, so no try is spent on it; mail behind it flows."""
    spoilt = await herd.scout.message("planner", "spoilt")
    record = key_of(herd, "message", message=spoilt.message_id)
    what, *rest = DAMAGE[damage]
    await command(herd, what, record, *rest)
    await herd.scout.message("planner", "whole")

    read = herd.planner.receive if how == "receive" else herd.planner.inbox
    assert bodies(await read()) == ["whole"]

    (letter,) = await herd.parent.dead_letters()
    assert (letter.message_id, letter.attempts) == (spoilt.message_id, 0)
    assert "cannot be read" in letter.reason and letter.error in letter.reason
    assert len(about(await herd.parent.next_turn(timeout=0), "dead_letter")) == 1
    told = about(await herd.scout.receive(), "undelivered")
    assert len(told) == (damage != "no sender")


@pytest.mark.parametrize("damage", ["deleted", "written over"])
@pytest.mark.parametrize("held", [False, True], ids=["unread", "in hand"])
async def test_a_message_whose_record_was_lost(herd, damage, held):
    """What is left of it, its entry, is a dead letter; nobody who takes mail is held up."""
    lost = await herd.scout.message("planner", "lost")
    if held:
        await herd.planner.receive()
    await herd.scout.message("planner", "whole")
    record = key_of(herd, "message", message=lost.message_id)
    await command(herd, "DEL", record)
    if damage == "written over":
        await command(herd, "SET", record, "nonsense")
    if held:
        await asyncio.to_thread(lapse, herd.planner)
        herd.children["planner"] = await herd.another("planner")

    turn = await herd.planner.next_turn(timeout=0)
    assert (bodies(turn), turn.more) == (["whole"], False)
    assert await herd.planner.next_turn(timeout=0) is None

    (letter,) = await herd.parent.dead_letters()
    assert lost.message_id in letter.reason
    assert lost.message_id in (await herd.parent.dead_letter(letter.message_id)).body


@pytest.mark.parametrize("damage", ["unknown kind", "no kind", "broken JSON"])
async def test_what_hung_on_mail_that_cannot_be_read_moves_on(herd, damage):
    """A task fails, a wait closes, as for any dead letter; both wake the parent."""
    task, question = await herd.waiting()
    other = await herd.parent.delegate("planner", "x")
    what, *rest = DAMAGE[damage]
    for message in (question, "msg_task_" + other.id.removeprefix("task_")):
        await command(herd, what, key_of(herd, "message", message=message), *rest)

    assert len(await herd.planner.receive()) == 0

    assert await herd.state(task) == "running"
    assert await herd.state(other) == "failed"
    (closed,) = about(await herd.scout.next_turn(timeout=0), "request_closed")
    assert closed.data["how"] == "dead"
    woken = [mail for mail in await herd.parent.next_turn(timeout=0) if mail.trigger_turn]
    assert [mail.kind for mail in woken] == ["notice", "task_settled", "notice"]


async def test_a_closing_agent_whose_inbox_was_tampered_with(herd):
    """It closes all the same, and what stood there is among the dead letters."""
    await command(herd, "XADD", key_of(herd, "inbox", agent="planner"), "*", "kind", "weird")
    for text in ("no recipient", "written over", "put off"):
        sent = await herd.scout.message("planner", text)
        record = key_of(herd, "message", message=sent.message_id)
        if text == "no recipient":
            await command(herd, "HDEL", record, "to")
        if text == "written over":
            await command(herd, "DEL", record)
            await command(herd, "SET", record, "nonsense")
    held = [mail for mail in await herd.planner.inbox() if mail.body == "put off"]
    assert held
    await herd.parent.close("planner")

    assert "planner" not in [a.agent for a in await herd.parent.roster() if a.state == "open"]
    assert len(await herd.parent.dead_letters()) == 4


# ------------------------------------------------------------------ who is told


@proves("P11")
async def test_a_handler_that_always_raises(herd):
    """Case 8: after `max_attempts` a dead letter, with reason, error, attempts and times."""
    accepted = herd.clock.now()
    message = await buried(herd)
    await herd.scout.message("planner", "behind it")

    assert bodies(await herd.planner.next_turn(timeout=0)) == ["behind it"]
    (letter,) = await herd.parent.dead_letters()
    assert (letter.message_id, letter.kind) == (message, "message")
    assert (letter.sender, letter.recipient) == ("scout", "planner")
    assert (letter.reason, letter.error) == (
        "failed 5 times, last: ValueError: no",
        "ValueError: no",
    )
    assert (letter.attempts, letter.accepted_at, letter.obstacle) == (5, accepted, None)
    assert letter.taken_at is not None and letter.died_at is not None
    assert (letter.body, (await herd.parent.dead_letter(message)).body) == (None, "poison")


async def test_parent_and_sender_are_told(herd):
    """The parent once, which wakes it; the sender, if that is somebody else, quietly."""
    message = await buried(herd)

    (told,) = await herd.parent.next_turn(timeout=0)
    assert (told.data["about"], told.data["message"]) == ("dead_letter", message)
    assert await herd.scout.next_turn(timeout=0) is None
    (told,) = await herd.scout.receive()
    assert (told.data["about"], told.data["message"]) == ("undelivered", message)
    assert "ValueError: no" in told.body


async def test_a_parent_that_sent_it_is_told_once(herd):
    """Its own message's end is one notice."""
    await herd.parent.message("planner", "poison")
    await fails(herd.planner)

    assert [mail.data["about"] for mail in await herd.parent.receive()] == ["dead_letter"]


async def test_an_asker_is_told_once(herd):
    """The end of its question says why; no second notice says the same."""
    await herd.waiting()
    await fails(herd.planner)

    assert [mail.data["about"] for mail in await herd.scout.receive()] == ["request_closed"]


@pytest.mark.parametrize("again", [False, True], ids=["closed", "registered again"])
async def test_a_sender_that_is_gone_is_not_told(herd, again):
    """Nor is whoever has its name now."""
    await herd.scout.message("planner", "poison")
    await herd.parent.close("scout")
    if again:
        await herd.child("scout")
    await fails(herd.planner)

    assert len(about(await herd.parent.receive(), "dead_letter")) == 1
    if again:
        assert len(await herd.scout.receive()) == 0


async def test_mail_of_a_closed_agent_is_listed_and_told_to_nobody(herd):
    """The parent that closed it knows; askers are told by the end of their questions."""
    sent = await herd.scout.message("planner", "unread")
    await herd.parent.close("planner")

    (letter,) = await herd.parent.dead_letters()
    assert letter.message_id == sent.message_id and "closed" in letter.obstacle
    assert len(await herd.parent.receive()) == len(await herd.scout.receive()) == 0


# ------------------------------------------------------------------ replay


@proves("P11")
async def test_a_replayed_message(herd):
    """The same id, no attempt of before, and it wakes; handled, it is as any other."""
    message = await buried(herd)

    replayed = await herd.parent.replay(message)

    assert (replayed.message_id, replayed.recipient, replayed.request) == (message, "planner", None)
    assert list(await herd.parent.dead_letters()) == []
    turn = await herd.planner.next_turn(timeout=0)
    assert [(mail.message_id, mail.body, mail.attempts) for mail in turn] == [
        (message, "poison", 0)
    ]
    await turn.ack()
    receipt = await herd.scout.receipt(message)
    assert (receipt.state, receipt.reason, receipt.ended_at) == ("handled", None, None)


async def test_a_replay_rings_the_bell(herd):
    """Whoever waits for a turn has it at once."""
    message = await buried(herd)
    waiting = asyncio.create_task(herd.planner.next_turn(timeout=9))
    await asyncio.sleep(0)

    await herd.parent.replay(message)

    assert bodies(await asyncio.wait_for(waiting, 5)) == ["poison"]


async def test_a_replayed_message_that_dies_again(herd):
    """It gets all its tries again, and its second death is told as the first was."""
    message = await buried(herd)
    await (await herd.parent.receive()).ack()
    await (await herd.scout.receive()).ack()
    await herd.parent.replay(message)
    await fails(herd.planner)

    assert [letter.message_id for letter in await herd.parent.dead_letters()] == [message]
    assert len(about(await herd.parent.next_turn(timeout=0), "dead_letter")) == 1
    assert len(about(await herd.scout.receive(), "undelivered")) == 1


async def test_an_ask_that_is_asked_again_and_dies_again(open_herd):
    """Each death is told, whichever way it came back to life."""
    herd = await open_herd("h", "scout", "planner", max_attempts=1)
    for _ in range(2):
        async with asking(herd, herd.scout, "planner", key="k") as line:
            await (await herd.planner.next_turn(timeout=5)).nack(error="broke")
            await line.ends(errors.RequestCancelled)
        assert len(about(await herd.parent.receive(), "dead_letter")) == 1


@proves("P12")
async def test_a_repeated_replay_is_one(herd):
    """The call again, its answer lost, is told the same; also when it died once more meanwhile."""
    message = await buried(herd)
    call = dead.replay(herd.parent.caller, message)

    assert await herd.broker.run(call) == await herd.broker.run(call)
    assert bodies(await herd.planner.inbox()) == ["poison"]
    await fails(herd.planner)
    await herd.broker.run(call)

    assert len(await herd.planner.receive()) == 0
    assert len(await herd.parent.dead_letters()) == 1


@proves("P10")
async def test_a_dead_task_envelope_is_not_replayed(herd):
    """Its task has failed, and what is settled stays so: a new one continues it."""
    task = await herd.parent.delegate("scout", "Find how auth works")
    await fails(herd.scout)
    (letter,) = await herd.parent.dead_letters()
    before = await herd.parent.task(task.id)

    with pytest.raises(errors.WrongState) as refusal:
        await herd.parent.replay(letter.message_id)

    assert "continues=" in refusal.value.detail and refusal.value.detail.endswith(letter.obstacle)
    assert (await herd.parent.dead_letter(letter.message_id)).body == "Find how auth works"
    assert await herd.parent.task(task.id) == before
    assert len(await herd.scout.receive()) == 0
    await herd.parent.delegate("scout", "Once more", continues=task.id)
    assert "Find how auth works" in bodies(await herd.scout.receive())[0]


@proves("P9")
async def test_a_replayed_question_reopens_no_wait(herd):
    """Its task runs on; an answer comes as late mail, which wakes while the task is open."""
    task, question = await herd.waiting()
    await fails(herd.planner)
    await (await herd.scout.receive()).ack()

    replayed = await herd.parent.replay(question)

    assert replayed.request == "dead"
    assert await herd.state(task) == "running"
    turn = await herd.planner.next_turn(timeout=0)
    await turn.nack()
    turn = await herd.planner.next_turn(timeout=0)
    assert (await herd.planner.reply(turn[0], "Exponential")).late
    await turn.ack()
    (answer,) = await herd.scout.next_turn(timeout=0)
    assert (answer.body, answer.late, answer.reply_to) == ("Exponential", True, question)
    assert await herd.state(task) == "running"
    assert (await herd.scout.receipt(question)).request == "dead"


async def test_what_makes_a_replay_pointless(herd):
    """Refused, with what to do: it is answered, its task settled, asker or recipient gone."""
    questions = {}
    for what in ("answered", "settled", "asker gone"):
        task, questions[what] = await herd.waiting()
        await fails(herd.planner)
        if what == "answered":
            await herd.planner.reply(questions[what], "after all")
        if what == "asker gone":
            await herd.parent.close("scout")
        else:
            await herd.scout.done(task.id)
    scout = await herd.child("scout")
    sent = await scout.message("planner", "unread")
    await herd.parent.close("planner")
    await herd.child("planner")

    for message in (*questions.values(), sent.message_id):
        obstacle = (await herd.parent.dead_letter(message)).obstacle
        assert obstacle is not None and "drop it" in obstacle
        with pytest.raises(errors.WrongState, match="cannot be replayed"):
            await herd.parent.replay(message)
    assert len(await herd.planner.receive()) == len(await scout.receive()) == 0


async def test_a_deleted_entry_is_brought_back_by_a_replay(herd):
    """What somebody took out of a stream is whole in its record."""
    sent = await herd.scout.message("planner", "one")
    await command(herd, "DEL", key_of(herd, "inbox", agent="planner"))
    assert await herd.planner.next_turn(timeout=0) is None

    await herd.parent.replay(sent.message_id)

    assert bodies(await herd.planner.next_turn(timeout=0)) == ["one"]


async def test_a_settlement_that_its_parent_failed_on(herd):
    """What Tocsin itself says can be replayed, too."""
    task = await herd.working(herd.scout)
    await herd.scout.done(task.id, summary="found")
    await fails(herd.parent)
    (letter,) = await herd.parent.dead_letters()

    await herd.parent.replay(letter.message_id)

    (settled,) = of_kind(await herd.parent.receive(), "task_settled")
    assert settled.data["summary"] == "found"


# ------------------------------------------------------------------ list, drop, the end


async def test_a_listing_that_was_cut(herd):
    """Case 11: newest first; it says how many more there are, and `before` goes on from there."""
    sent = []
    for number in range(7):
        sent.append((await herd.scout.message("planner", str(number))).message_id)
        await fails(herd.planner)
        herd.clock.advance(timedelta(seconds=1))

    first = await herd.parent.dead_letters(limit=3)
    second = await herd.parent.dead_letters(before=first[-1].message_id, limit=3)
    third = await herd.parent.dead_letters(before=second[-1].message_id)

    assert [page.remaining for page in (first, second, third)] == [4, 1, 0]
    listed = [letter.message_id for page in (first, second, third) for letter in page]
    assert listed == sent[::-1]
    await herd.parent.drop(sent[0])
    with pytest.raises(errors.UnknownMessage, match="list from the beginning"):
        await herd.parent.dead_letters(before=sent[0])


async def test_looking_changes_nothing(herd):
    """Case 11: however often dead letters are listed and shown, they are as they were."""
    message = await buried(herd)
    record = key_of(herd, "message", message=message)
    before = await command(herd, "HGETALL", record)

    for _ in range(10):
        await herd.parent.dead_letters()
        await herd.parent.dead_letter(message)

    assert await command(herd, "HGETALL", record) == before


async def test_a_dropped_dead_letter(herd):
    """It is gone for good; its receipt says so for an hour. Dropping it again changes nothing."""
    message = await buried(herd)

    await herd.parent.drop(message)
    await herd.parent.drop(message)

    assert list(await herd.parent.dead_letters()) == []
    receipt = await herd.scout.receipt(message)
    assert receipt.state == "withdrawn" and "ValueError: no" in receipt.reason
    for call in (herd.parent.replay(message), herd.parent.dead_letter(message)):
        with pytest.raises(errors.WrongState, match="not a dead letter"):
            await call
    await herd.later(hours=1)
    with pytest.raises(errors.UnknownMessage):
        await herd.parent.drop(message)


async def test_what_is_no_dead_letter(herd):
    """Unknown, or still mail: an error that says which."""
    sent = await herd.scout.message("planner", "unread")
    for operation in (herd.parent.dead_letter, herd.parent.replay, herd.parent.drop):
        with pytest.raises(errors.WrongState, match="accepted, not a dead letter"):
            await operation(sent.message_id)
        with pytest.raises(errors.UnknownMessage):
            await operation("msg_nope")
    assert bodies(await herd.planner.receive()) == ["unread"]


@pytest.mark.parametrize("days", [1, 30])
@proves("P15")
async def test_a_dead_letter_ends_with_its_retention(open_herd, url, fleet_name, days):
    """`dead_retention` after it died its record goes, also in a herd that stays open."""
    herd = await open_herd("h", "scout", "planner", dead_retention=timedelta(days=days))
    await buried(herd)
    await command(herd, "XADD", key_of(herd, "inbox", agent="planner"), "*", "kind", "weird")
    for agent in (herd.planner, herd.parent, herd.scout):
        await (await agent.receive()).ack()
    await (await herd.parent.receive()).ack()

    await herd.later(days=days, seconds=-1)
    assert len(await herd.parent.dead_letters()) == 2
    await herd.later(seconds=1)

    assert list(await herd.parent.dead_letters()) == []
    assert [key for key in herd_keys(url, fleet_name) if ":m:" in key or ":dead" in key] == []


async def test_a_dead_question_is_kept_as_long_as_its_task(open_herd):
    """A late answer still finds it, however soon dead letters end."""
    herd = await open_herd("h", "scout", "planner", dead_retention=timedelta(0))
    _, question = await herd.waiting()
    await herd.planner.inbox()
    await fails(herd.planner)
    await herd.later(days=6)

    assert (await herd.planner.reply(question, "Exponential")).late


async def test_a_dead_question_is_listed_as_long_as_any_dead_letter(herd):
    """The end of its wait, which is kept for a shorter time, does not cut that short."""
    _, question = await herd.waiting()
    await fails(herd.planner)
    await herd.later(days=29)

    assert [letter.message_id for letter in await herd.parent.dead_letters()] == [question]


async def test_a_replayed_message_does_not_end_with_the_retention(herd):
    """It is mail again, and nothing unread is dropped."""
    message = await buried(herd)
    await herd.parent.replay(message)
    await herd.later(days=60)

    assert bodies(await herd.planner.receive()) == ["poison"]


@proves("P13")
async def test_dead_letters_are_the_parents(herd):
    """A child may not list, show, replay or drop them, nor take mail from another."""
    message = await buried(herd)
    for call in (
        dead.listing(herd.scout.caller, None, 10),
        dead.show(herd.scout.caller, message),
        dead.replay(herd.scout.caller, message),
        dead.drop(herd.scout.caller, message),
        dead.hand_back(herd.scout.caller, message),
    ):
        with pytest.raises(errors.Forbidden, match="only the parent"):
            await herd.broker.run(call)
    assert len(await herd.parent.dead_letters()) == 1


async def test_dead_letters_of_a_closed_herd(herd):
    """They can still be read, for as long as its records are kept, and no longer be replayed."""
    message = await buried(herd)
    await herd.parent.close_herd()

    assert message in [letter.message_id for letter in await herd.parent.dead_letters()]
    assert (await herd.parent.dead_letter(message)).body == "poison"
    with pytest.raises(errors.HerdClosed):
        await herd.parent.replay(message)


def test_the_sync_parent_has_the_same(sync_broker):
    """List, show, replay, drop, hand back: one surface."""
    parent = sync_broker.open_herd("h")
    scout = sync_broker.join("h", "scout", token_of(parent.register("scout")))
    sent = parent.message("scout", "poison")
    assert scout.receive()
    assert parent.hand_back(sent.message_id).held_by == scout.instance
    for _ in range(5):
        scout.receive().nack(error="broken")
    (letter,) = parent.dead_letters()
    assert parent.dead_letter(letter.message_id).body == "poison"
    assert parent.replay(letter.message_id).recipient == "scout"
    for _ in range(5):
        scout.receive().nack(error="broken")
    parent.drop(letter.message_id)
    assert len(parent.dead_letters()) == 0


# ------------------------------------------------------------------ taken from a stuck holder


@proves("P12")
async def test_mail_is_taken_from_a_live_holder_that_is_stuck(herd):
    """One step: another has it at once, no attempt counted, and the old holder's ack is fenced."""
    sent = await herd.scout.message("planner", "one")
    stuck = await herd.planner.receive()
    replica = await herd.another("planner")
    waiting = asyncio.create_task(replica.next_turn(timeout=9))
    await asyncio.sleep(0)

    back = await herd.parent.hand_back(sent.message_id)

    assert (back.held_by, back.withdrawn) == (herd.planner.instance, False)
    turn = await asyncio.wait_for(waiting, 5)
    assert [(mail.message_id, mail.attempts) for mail in turn] == [(sent.message_id, 0)]
    for settle in (stuck.ack, lambda: stuck.nack(error="late")):
        await settle()
        assert stuck.fenced == (sent.message_id,)
    assert await herd.planner.ack(sent.message_id) == 0
    receipt = await herd.scout.receipt(sent.message_id)
    assert (receipt.state, receipt.by) == ("taken", replica.instance)
    await turn.ack()
    assert turn.fenced == ()


@proves("P12")
async def test_a_repeated_hand_back_takes_mail_from_nobody_else(herd):
    """The call again, its answer lost, when another has the mail by then: it stays there."""
    sent = await herd.scout.message("planner", "one")
    await herd.planner.receive()
    replica = await herd.another("planner")
    call = dead.hand_back(herd.parent.caller, sent.message_id)
    first = await herd.broker.run(call)
    turn = await replica.receive()

    assert (await herd.broker.run(call)).held_by == first.held_by == herd.planner.instance
    await turn.ack()

    assert turn.fenced == ()


async def test_what_is_not_in_hand_cannot_be_handed_back(herd):
    """Unread, shown, handled, unknown: an error that says which, and nothing changes."""
    sent = await herd.scout.message("planner", "one")
    for state in ("accepted", "shown"):
        with pytest.raises(errors.WrongState, match=f"is {state}; only what an instance has taken"):
            await herd.parent.hand_back(sent.message_id)
        await herd.planner.inbox()
    await (await herd.planner.receive()).ack()
    with pytest.raises(errors.WrongState, match="is handled"):
        await herd.parent.hand_back(sent.message_id)
    with pytest.raises(errors.UnknownMessage):
        await herd.parent.hand_back("msg_nope")


async def test_a_hand_back_of_what_has_ended(herd):
    """Nobody begins anew with a task that is settled: its envelope is taken back."""
    task = await herd.parent.delegate("scout", "x")
    (envelope,) = await herd.scout.receive()
    await herd.parent.cancel(task.id)

    back = await herd.parent.hand_back(envelope)

    assert back.withdrawn
    assert of_kind(await herd.scout.receive(), "task") == []


async def test_a_task_goes_on_when_its_envelope_is_handed_back(herd):
    """It is running, and whoever takes it next goes on with it."""
    task = await herd.parent.delegate("scout", "x")
    (envelope,) = await herd.scout.receive()
    replica = await herd.another("scout")

    await herd.parent.hand_back(envelope)

    assert await herd.state(task) == "running"
    assert [mail.task_id for mail in await replica.next_turn(timeout=0)] == [task.id]
    await replica.done(task.id, summary="found")


# ------------------------------------------------------------------ recovery by liveness


async def test_mail_of_a_dead_instance_waits_for_the_next_to_start(herd):
    """Its attempts are kept, those of before and this one, however long nobody comes."""
    await herd.scout.message("planner", "heavy")
    await (await herd.planner.receive()).nack(error="broken")
    await herd.planner.receive()
    await asyncio.to_thread(lapse, herd.planner)
    await herd.later(days=1)

    planner = await herd.another("planner")

    assert [(m.body, m.attempts) for m in await planner.next_turn(timeout=0)] == [("heavy", 2)]


async def test_what_a_dead_instance_held_rings_the_bell(herd):
    """A live one that waits for a turn has it at once, without looking for itself."""
    await herd.scout.message("planner", "one")
    await herd.planner.receive()
    replica = await herd.another("planner")
    waiting = asyncio.create_task(replica.next_turn(timeout=9))
    await asyncio.sleep(0)

    await asyncio.to_thread(lapse, herd.planner)

    assert bodies(await asyncio.wait_for(waiting, 5)) == ["one"]


async def test_a_consumer_is_removed_when_it_holds_nothing(herd, url, fleet_name, clock):
    """More than one pass gives back: the dead one stays in its group until all of it is back."""
    stream = key_of(herd, "inbox", agent="planner")
    for number in range(150):
        await herd.scout.message("planner", str(number))
    assert len(await herd.planner.receive(limit=150)) == 150
    replica = await herd.another("planner")

    async def held() -> dict[str, int]:
        groups = await command(herd, "XINFO", "CONSUMERS", stream, "agent")
        rows = [
            dict(zip(row[::2], row[1::2], strict=True)) if isinstance(row, list) else row
            for row in groups
        ]
        return {row["name"]: row["pending"] for row in rows}

    herd.broker.forget(herd.planner)
    leave = herd.planner.caller.call("instance_leave", "leave", lambda answer: answer[0], died=1)
    assert load("instance_leave").answers == ("leaving", "left")
    assert await herd.broker.run(leave) == "leaving"
    assert (await held())[herd.planner.instance] == 50
    assert await herd.broker.run(leave) == "left"
    assert herd.planner.instance not in await held()

    got = await replica.receive(limit=1000)
    assert sorted(bodies(got), key=int) == [str(number) for number in range(150)]
    assert {mail.attempts for mail in got} == {1}


@proves("P11")
@pytest.mark.parametrize("how", ["raises", "dies"])
async def test_what_fails_takes_nothing_beside_it_along(herd, how):
    """Case 8: mail that came in one turn with it is handled, before it and behind it."""
    for number in range(10):
        await herd.parent.message("scout", "poison" if number == 5 else str(number))
    handled: list[str] = []
    turns = 0
    while True:
        scout = await herd.another("scout")
        turn = await scout.next_turn(timeout=0)
        if turn is None:
            break
        turns += 1
        if "poison" not in bodies(turn):
            handled += bodies(turn)
            await turn.ack()
        elif how == "raises":
            await turn.nack(error="broke")
        else:
            lapse(scout)
    assert sorted(handled) == [str(number) for number in range(10) if number != 5]
    letters = await herd.parent.dead_letters()
    assert [(await herd.parent.dead_letter(each.message_id)).body for each in letters] == ["poison"]
    assert turns <= 15


async def test_quiet_mail_is_gathered_as_before_once_nothing_failing_is_left(herd):
    """What failed twice and was handled then leaves no trace in later turns."""
    await herd.parent.message("scout", "first")
    for _ in range(2):
        await (await herd.scout.next_turn(timeout=5)).nack(error="broke")
    await herd.parent.message("scout", "second")
    turn = await herd.scout.next_turn(timeout=5)
    assert bodies(turn) == ["first"]
    await turn.ack()
    for word in ("third", "fourth"):
        await herd.parent.message("scout", word)
    assert bodies(await herd.scout.next_turn(timeout=5)) == ["second", "third", "fourth"]
    assert not await command(herd, "HEXISTS", key_of(herd, "agent", agent="scout"), "failing")
