"""An agent writes to the parent of another herd, if that herd takes it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import timedelta

import pytest

from tests.fleets import Herd, HerdMaker, about, bodies
from tests.leftovers import herd_keys
from tests.requirements import proves
from tocsin.broker import AsyncBroker, HerdSettings, errors, keys, outbox


@pytest.fixture(params=[1, 16])
async def broker(url, fleet_name, clock, request) -> AsyncIterator[AsyncBroker]:
    """A fleet of one partition, and one in which the herds of these tests live in several."""
    async with AsyncBroker.connect(
        url, fleet=fleet_name, clock=clock, partitions=request.param
    ) as broker:
        yield broker


@pytest.fixture
async def source(open_herd: HerdMaker) -> Herd:
    """The herd that writes."""
    return await open_herd("source", "scout")


@pytest.fixture
async def target(open_herd: HerdMaker) -> Herd:
    """The herd that is written to, and takes it."""
    return await open_herd("target", "planner", accepts_from=("source",))


async def events(herd: Herd, message: str) -> list[str]:
    """What the journal of a herd tells of a message."""
    lines = await herd.parent.journal(limit=1000)
    return [line.event for line in lines if message in str(line.fields)]


def test_the_herds_of_these_tests_live_in_several_partitions():
    """With 16 of them, that is."""
    assert keys.partition_of("source", 16) != keys.partition_of("target", 16)


async def test_mail_reaches_the_other_parent_and_its_receipt_tells_so(source, target, scheduler):
    """Accepted into the outbox, forwarded, handled: each in the receipt and in both journals."""
    sent = await source.scout.message("target/parent", "hello", data={"a": 1}, thread="t")
    receipt = await source.scout.receipt(sent.message_id)
    assert (receipt.state, receipt.recipient) == ("outgoing", "target/parent")
    assert receipt.not_tried == "its recipient is woken in its own herd"

    assert await scheduler.tick() == {"forwarded": 1}

    receipt = await source.scout.receipt(sent.message_id)
    assert receipt.state == "forwarded" and receipt.forwarded_at is not None
    turn = await target.parent.next_turn(timeout=0)
    (mail,) = turn
    assert (mail.message_id, mail.kind, mail.sender) == (sent.message_id, "message", "source/scout")
    assert (mail.body, mail.data, mail.thread_id, mail.trigger_turn) == (
        "hello",
        {"a": 1},
        "t",
        True,
    )
    await turn.ack()
    assert await scheduler.tick() == {"news": 1}
    receipt = await source.scout.receipt(sent.message_id)
    assert receipt.state == "handled" and receipt.handled_at is not None
    assert await scheduler.tick() == {}
    assert await events(source, sent.message_id) == ["accepted", "forwarded", "handled"]
    assert await events(target, sent.message_id) == ["accepted", "taken", "handled"]
    assert bodies(await source.scout.receive()) == []


@pytest.mark.parametrize(
    ("accepts", "taken"),
    [
        ((), False),
        (("*",), True),
        (("source",), True),
        (("sour*",), True),
        (("*rce",), True),
        (("s*e",), True),
        (("sour", "other-*", "sources"), False),
        (("other", "source"), True),
    ],
)
@proves("P13", "P14")
async def test_a_herd_says_from_which_herds_it_takes_mail(
    open_herd, source, scheduler, accepts, taken
):
    """By name or pattern; from none, if it says nothing. The sender is told of a refusal."""
    target = await open_herd("target", accepts_from=accepts)
    sent = await source.scout.message("target/parent", "hello")
    await scheduler.tick()
    receipt = await source.scout.receipt(sent.message_id)
    assert receipt.state == ("forwarded" if taken else "refused")
    assert bodies(await target.parent.receive()) == ["hello"] * taken
    assert await source.scout.next_turn(timeout=0) is None
    notices = about(await source.scout.receive(), "refused")
    assert len(notices) == (not taken)
    for notice in notices:
        assert "accepts_from" in notice.body and sent.message_id in notice.body
        assert "accepts_from" in (receipt.reason or "")
        assert await events(target, sent.message_id) == []


async def test_accepting_is_a_setting_that_changes_live(source, target, scheduler):
    """What was judged stays so; what comes later is judged anew."""
    await target.parent.set_settings(HerdSettings(accepts_from=()))
    refused = await source.parent.message("target/parent", "one")
    await scheduler.tick()
    await target.parent.set_settings(HerdSettings(accepts_from=("sour*",)))
    await source.parent.message("target/parent", "two")
    await scheduler.tick()
    assert bodies(await target.parent.receive()) == ["two"]
    assert (await source.parent.receipt(refused.message_id)).state == "refused"


@pytest.mark.parametrize("how", ["none such", "closed"])
async def test_a_herd_that_is_not_there(source, open_herd, scheduler, how):
    """Mail to it is refused, and says so."""
    if how == "closed":
        await (await open_herd("target", accepts_from=("*",))).parent.close_herd()
    sent = await source.parent.message("target/parent", "hello")
    await scheduler.tick()
    receipt = await source.parent.receipt(sent.message_id)
    assert receipt.state == "refused"
    assert ("no herd" if how == "none such" else "closed") in (receipt.reason or "")


@proves("P13")
async def test_what_other_herds_do_not_take_is_refused_at_the_door(source, target):
    """Questions, tasks, asks, and anything to a child: each with what to do instead."""
    scout, parent = source.scout, source.parent
    task = await source.working(scout)
    plain = "plain message"
    for refused, says in (
        (lambda: scout.message("target/parent", "?", expects_reply=True), plain),
        (lambda: scout.message("target/parent", "?", task=task.id), plain),
        (lambda: scout.message("target/planner", "?"), "write to its parent, target/parent"),
        (lambda: scout.ask("target/parent", "?"), plain),
        (lambda: parent.delegate("target/parent", "do it"), plain),
        (lambda: parent.register("target/parent"), plain),
        (lambda: scout.message("target/", "?"), "is not a name"),
        (lambda: scout.message("tar get/parent", "?"), "is not a name"),
    ):
        with pytest.raises(errors.InvalidInput, match=says):
            await refused()
    assert not [
        key
        for key in herd_keys(source.broker.server.url, source.broker.name)
        if keys.kind_of(key) == "outbox"
    ]


async def test_an_agent_of_ones_own_herd_by_its_whole_name(source):
    """It is the agent itself: no outbox, and questions are as good as ever."""
    await source.parent.message("source/scout", "which?", expects_reply=True)
    assert bodies(await source.scout.receive()) == ["which?"]


async def test_an_answer_goes_back_if_the_first_herd_takes_it(open_herd, target, scheduler):
    """To whoever wrote, a child, too; only as an answer, and only where its herd takes it."""
    source = await open_herd("source", "scout", "other", accepts_from=("target",))
    sent = await source.scout.message("target/parent", "hello")
    await scheduler.tick()
    (mail,) = await target.parent.receive()
    answer = await target.parent.reply(mail, "hello yourself")
    await scheduler.tick()
    (back,) = await source.scout.next_turn(timeout=0)
    assert (back.kind, back.sender, back.reply_to) == ("reply", "target/parent", sent.message_id)
    await source.scout.reply(back, "thanks")
    await scheduler.tick()
    assert bodies(await target.parent.receive()) == ["thanks"]
    assert (await target.parent.receipt(answer.message_id)).state == "forwarded"
    assert bodies(await source.children["other"].receive()) == []


async def test_an_answer_to_a_herd_that_takes_none(source, target, scheduler):
    """It is refused like any other mail."""
    await source.scout.message("target/parent", "hello")
    await scheduler.tick()
    (mail,) = await target.parent.receive()
    answer = await target.parent.reply(mail, "hello yourself")
    await scheduler.tick()
    assert (await target.parent.receipt(answer.message_id)).state == "refused"
    assert bodies(await source.scout.receive()) == []


async def test_an_answer_to_a_child_that_was_closed_since(open_herd, target, scheduler):
    """Nothing of it reaches who has its name now."""
    source = await open_herd("source", "scout", accepts_from=("*",))
    await source.scout.message("target/parent", "hello")
    await scheduler.tick()
    (mail,) = await target.parent.receive()
    await source.parent.close("scout")
    await source.child("scout")
    answer = await target.parent.reply(mail, "hello yourself")
    await scheduler.tick()
    assert (await target.parent.receipt(answer.message_id)).state == "refused"
    assert bodies(await source.scout.receive()) == []


async def test_mail_arrives_in_order(source, target, scheduler):
    """As accepted, whoever of the herd sent it and however much there is."""
    for number in range(35):
        sender = source.parent if number % 2 else source.scout
        await sender.message("target/parent", str(number))
    await scheduler.tick()
    assert bodies(await target.parent.receive()) == [str(number) for number in range(35)]


async def test_a_parent_with_too_much_unread_is_waited_for(source, open_herd, scheduler, clock):
    """Case 7: what finds no room stays in the outbox, in order, and is tried again and again."""
    target = await open_herd("target", accepts_from=("*",), inbox_limit=2)
    other = await open_herd("another", accepts_from=("*",))
    sent = [await source.scout.message("target/parent", str(number)) for number in range(5)]
    counts = await scheduler.tick()
    assert counts == {"forwarded": 2, "forwards_put_off": 1}
    waiting = await source.scout.receipt(sent[2].message_id)
    assert (waiting.state, waiting.attempts) == ("outgoing", 1)
    assert "2 unread" in (waiting.error or "")
    why = str(await source.scout.why(sent[2].message_id))
    assert "waits in the outbox to be forwarded to target/parent" in why and "has it tried" in why
    await source.scout.message("another/parent", "passes by")
    assert await scheduler.tick() == {"forwarded": 1}
    assert bodies(await other.parent.receive()) == ["passes by"]

    clock.advance(timedelta(seconds=2))
    assert await scheduler.tick() == {"forwards_put_off": 1}
    read = []
    for _ in range(10):
        clock.advance(timedelta(minutes=2))
        await scheduler.tick()
        turn = await target.parent.receive()
        read += bodies(turn)
        await turn.ack()
    assert read == ["0", "1", "2", "3", "4"]
    await scheduler.tick()
    assert {(await source.scout.receipt(each.message_id)).state for each in sent} == {"handled"}


async def test_an_outbox_does_not_grow_without_end(open_herd, broker):
    """Without a scheduler: so much for one herd, ten times as much for all of them."""
    source = await open_herd("source", "scout", outbox_limit=2)
    for number in range(10):
        for _ in range(2):
            await source.scout.message(f"herd-{number}/parent", "hello")
        with pytest.raises(errors.QueueFull, match=r"2 messages wait .* \(outbox_limit\)"):
            await source.scout.message(f"herd-{number}/parent", "hello")
    with pytest.raises(errors.QueueFull, match="20 to all herds"):
        await source.scout.message("herd-10/parent", "hello")
    with pytest.raises(errors.QueueFull, match="it waited 0"):
        await source.scout.message("herd-0/parent", "hello", wait=0.0)


async def test_a_message_that_dies_at_the_other_side(source, target, scheduler):
    """Its sender is told quietly, the parent there has the dead letter and may replay it."""
    await target.parent.set_settings(HerdSettings(max_attempts=1))
    sent = await source.scout.message("target/parent", "deadly")
    await scheduler.tick()
    await (await target.parent.receive()).nack(error="broke on it")
    await scheduler.tick()

    receipt = await source.scout.receipt(sent.message_id)
    assert receipt.state == "dead" and "broke on it" in (receipt.reason or "")
    (notice,) = about(await source.scout.receive(), "undelivered")
    assert notice.data["message"] == sent.message_id and not notice.trigger_turn
    assert not await source.parent.dead_letters()
    with pytest.raises(errors.WrongState):
        await source.parent.replay(sent.message_id)
    await target.parent.replay(sent.message_id)
    turn = await target.parent.receive()
    assert "deadly" in bodies(turn)
    await turn.ack()
    await scheduler.tick()
    receipt = await source.scout.receipt(sent.message_id)
    assert (receipt.state, receipt.reason) == ("handled", None)


@proves("P12")
async def test_a_key_sends_one_message(source, target, scheduler):
    """Before it was forwarded and after; other content with the key is a conflict."""
    first = await source.scout.message("target/parent", "hello", key="k")
    assert (await source.scout.message("target/parent", "hello", key="k")).duplicate
    await scheduler.tick()
    again = await source.scout.message("target/parent", "hello", key="k")
    assert again.duplicate and again.message_id == first.message_id
    with pytest.raises(errors.DuplicateConflict):
        await source.scout.message("target/parent", "bye", key="k")
    await scheduler.tick()
    assert bodies(await target.parent.receive()) == ["hello"]


@pytest.mark.parametrize("how", ["replies", "messages"])
async def test_two_parents_that_answer_each_other_for_ever(open_herd, scheduler, how):
    """Case 12: a chain of replies ends at the hop limit, new messages at the pair's rate."""
    limits = {"accepts_from": ("*",), "hop_limit": 6, "pair_rate": 8}
    one, two = await open_herd("one", **limits), await open_herd("two", **limits)
    await one.parent.message("two/parent", "hello")
    stopped, turns = None, 0
    while stopped is None and turns < 100:
        await scheduler.tick()
        me = (two, one)[turns % 2].parent
        turn = await me.receive()
        (mail,) = turn
        try:
            if how == "replies":
                await me.reply(mail, "and you?")
            else:
                await me.message(mail.sender, "and you?")
        except errors.LoopLimit as limit:
            stopped = limit
        await turn.ack()
        turns += 1
    assert turns == (7 if how == "replies" else 9)
    (notice,) = about(await me.receive(), "loop")
    assert notice.data["limit"] == ("hop_limit" if how == "replies" else "pair_rate")
    one.clock.advance(timedelta(hours=2))
    await me.message(mail.sender, "later")


@proves("P15")
async def test_a_closed_herd_drains_its_outbox(source, target, scheduler, url, fleet_name):
    """What it had accepted is forwarded all the same; then nothing is left of it."""
    await source.parent.set_settings(HerdSettings(herd_retention=timedelta(0)))
    await source.scout.message("target/parent", "the last words")
    await source.parent.close_herd()
    await scheduler.tick()
    assert bodies(await target.parent.receive()) == ["the last words"]
    source.clock.advance(timedelta(hours=2))
    await scheduler.tick()
    assert herd_keys(url, fleet_name, "source") == []


@proves("P15")
async def test_a_closed_herd_whose_mail_nobody_takes_leaves_nothing(
    source, open_herd, scheduler, url, fleet_name
):
    """An hour after its retention it goes with all that it could not get rid of."""
    await open_herd("target", accepts_from=("*",), inbox_limit=1)
    for _ in range(3):
        await source.scout.message("target/parent", "hello")
    await scheduler.tick()
    await source.parent.close_herd()
    source.clock.advance(timedelta(days=7, minutes=1))
    await scheduler.tick()
    assert any(keys.kind_of(key) == "outbox" for key in herd_keys(url, fleet_name, "source"))
    source.clock.advance(timedelta(hours=1))
    await scheduler.tick()
    assert herd_keys(url, fleet_name, "source") == []
    assert not [key for key in herd_keys(url, fleet_name) if keys.kind_of(key) == "forwards"]


async def test_closing_the_other_herd_buries_what_it_had_not_read(source, target, scheduler):
    """The sender hears that it is dead."""
    sent = await source.scout.message("target/parent", "hello")
    await scheduler.tick()
    await target.parent.close_herd()
    await scheduler.tick()
    receipt = await source.scout.receipt(sent.message_id)
    assert receipt.state == "dead" and "was closed" in (receipt.reason or "")


@proves("P12")
async def test_a_herd_of_the_same_name_later_is_another_herd(open_herd, target, scheduler):
    """Its messages are numbered anew, and none is taken for one of the earlier herd."""
    for text in ("one", "two"):
        source = await open_herd("source", herd_retention=timedelta(0))
        for number in range(1 if text == "two" else 3):
            await source.parent.message("target/parent", f"{text} {number}")
        await scheduler.tick()
        await source.parent.close_herd()
        await source.later(hours=2)
    turn = await target.parent.receive()
    assert bodies(turn) == ["one 0", "one 1", "one 2", "two 0"]
    await turn.ack()
    await scheduler.tick()


async def test_who_has_not_written_for_a_year_is_forgotten(open_herd, scheduler, clock, broker):
    """What a herd knows of others does not grow without end."""
    target = await open_herd("target", accepts_from=("*",), inbox_limit=1000)
    for number in range(3):
        source = await open_herd(f"herd-{number}")
        await source.parent.message("target/parent", "hello")
    await scheduler.tick()
    clock.advance(timedelta(days=367))
    for number in range(3, 9):
        source = await open_herd(f"herd-{number}")
        await source.parent.message("target/parent", "hello")
        await scheduler.tick()
    name = keys.below((await broker.fleet()).partition("target"), "arrivals", herd="target")
    known = await broker.link.command("test", "HKEYS", name)
    assert sorted(known) == [f"herd-{number}" for number in range(3, 9)]
    await (await target.parent.receive()).ack()


async def test_the_text_may_be_too_long_for_the_other_herd(source, open_herd, scheduler):
    """Its own limits hold for what it takes in."""
    await open_herd("target", accepts_from=("*",), body_limit=10)
    sent = await source.scout.message("target/parent", "x" * 11)
    await scheduler.tick()
    receipt = await source.scout.receipt(sent.message_id)
    assert receipt.state == "refused" and "limit is 10" in (receipt.reason or "")


@proves("P13")
async def test_no_operation_of_an_agent_leads_into_another_herd(source, target, scheduler):
    """A name with a herd before it cannot be registered, and who is refused stays so."""
    with pytest.raises(errors.InvalidInput):
        await source.parent.register("target/parent")
    with pytest.raises(errors.Unauthorized):
        await source.broker.join("target", "parent", source.parent.token)
    await target.parent.message("source/parent", "not welcome there")
    await scheduler.tick()
    assert bodies(await source.parent.receive()) == []


def test_a_scheduler_that_is_not_async_forwards_as_well(sync_broker, sync_scheduler):
    """The same duty, generated."""
    one = sync_broker.open_herd("one")
    two = sync_broker.open_herd("two", settings=HerdSettings(accepts_from=("one",)))
    one.message("two/parent", "hello")
    assert sync_scheduler.tick()["forwarded"] == 1
    assert bodies(two.receive()) == ["hello"]


@proves("P12")
async def test_what_was_judged_is_not_judged_again_when_the_next_breaks(source, target):
    """A script that breaks does not undo what it took in before: its sender hears the truth."""
    fleet = await source.broker.fleet()
    whole = {
        "seq": 1, "id": "msg_1", "sender": "scout", "to": "parent", "kind": "message",
        "delivery": "follow_up", "body": "hello", "digest": "d",
    }  # fmt: skip
    mail = [outbox.Mail("1", whole), outbox.Mail("2", {"seq": 2})]
    batch = outbox.Outbox("source", "target", "opened", [], mail)
    with pytest.raises(errors.BrokerError):
        await source.broker.run(outbox.accept(fleet, batch))
    assert bodies(await target.parent.receive()) == ["hello"]

    again = outbox.Outbox("source", "target", "opened", [], mail[:1])
    assert await source.broker.run(outbox.accept(fleet, again)) == [outbox.Outcome("forwarded")]
