"""Agents that answer one another for ever are stopped, and nobody else is."""

from __future__ import annotations

from datetime import timedelta
from functools import partial

import pytest

from tests.fleets import about, bodies
from tests.leftovers import herd_keys
from tests.requirements import proves
from tocsin.broker import HerdSettings, errors

RATE = 20


async def answers(agent, how) -> None:
    """Answers each of its mail, and acks it."""
    turn = await agent.receive()
    for mail in turn:
        await how(mail)
    await turn.ack()


async def until_stopped(*turns, most: int = 1000) -> tuple[int, errors.LoopLimit]:
    """Lets agents take their turns until one is refused to go on: after how many, and how."""
    for number in range(most):
        try:
            await turns[number % len(turns)]()
        except errors.LoopLimit as stopped:
            return number, stopped
    raise AssertionError(f"still going after {most}")


async def test_two_agents_that_reply_to_everything(herd):
    """Case 12: a chain of replies to replies ends at 16, with one quiet notice to the parent."""
    scout, planner = herd.scout, herd.planner
    await scout.message("planner", "hello")

    number, stopped = await until_stopped(
        lambda: answers(planner, lambda mail: planner.reply(mail, "and you?")),
        lambda: answers(scout, lambda mail: scout.reply(mail, "and you?")),
    )

    assert number == 16
    assert "16 replies" in stopped.detail and "hop_limit" in stopped.detail
    assert "leave it unanswered" in stopped.detail and not stopped.retryable
    (last,) = await planner.inbox()
    for _ in range(3):
        with pytest.raises(errors.LoopLimit):
            await planner.reply(last, "and you?")
    assert await herd.parent.next_turn(timeout=0) is None
    (notice,) = about(await herd.parent.receive(), "loop")
    assert (notice.data["agent"], notice.data["recipient"]) == ("planner", "scout")
    assert notice.data["limit"] == "hop_limit" and "hop_limit" in notice.body
    await planner.message("scout", "something new")


async def test_the_hop_limit_is_a_setting_and_no_limit_for_answers(open_herd):
    """Set to 1, a message is answered once; a question is answered all the same, also late."""
    herd = await open_herd("h", "scout", "planner", hop_limit=1)
    sent = await herd.scout.message("planner", "hello")
    reply = await herd.planner.reply(sent.message_id, "hello")
    with pytest.raises(errors.LoopLimit, match="chain of 1 "):
        await herd.scout.reply(reply.message_id, "and you?")

    asked = await herd.scout.message("planner", "?", expects_reply=True)
    await herd.scout.cancel_request(asked.message_id)
    assert (await herd.planner.reply(asked.message_id, "!")).late


async def test_two_agents_that_answer_with_new_messages(open_herd):
    """Case 12: they are stopped when they have answered each other as often as the rate says."""
    herd = await open_herd("h", "scout", "planner", pair_rate=RATE)
    scout, planner = herd.scout, herd.planner
    asked = await scout.message("planner", "open question", expects_reply=True)
    await planner.ack(*[mail.message_id for mail in await planner.inbox()])
    await scout.message("planner", "hello", thread="t")

    number, stopped = await until_stopped(
        lambda: answers(planner, lambda mail: planner.message("scout", "hello", thread="t")),
        lambda: answers(scout, lambda mail: scout.message("planner", "hello", thread="t")),
    )

    assert number == RATE
    assert f"{RATE} times within 60 min" in stopped.detail and "pair_rate" in stopped.detail
    for _ in range(3):
        for text in ("hello", "please"):
            with pytest.raises(errors.LoopLimit):
                await planner.message("scout", text, expects_reply=text == "please")
    (notice,) = about(await herd.parent.receive(), "loop")
    assert not notice.trigger_turn and str(RATE) in notice.body
    await planner.reply(asked.message_id, "an answer always fits")
    assert "an answer always fits" in bodies(await scout.receive())
    await planner.message("parent", "others hear of it")

    herd.clock.advance(timedelta(hours=1))
    await planner.message("scout", "another hour")


async def test_a_raised_rate_holds_at_once(open_herd):
    """The parent that means it raises the limit, and they go on."""
    herd = await open_herd("h", "scout", pair_rate=1)
    for sender, to in ((herd.parent, "scout"), (herd.scout, "parent")):
        await sender.message(to, "x")
        await herd.parent.receive() if to == "parent" else await herd.scout.receive()
    with pytest.raises(errors.LoopLimit):
        await herd.parent.message("scout", "x")

    await herd.parent.set_settings(HerdSettings(pair_rate=2))

    await herd.parent.message("scout", "x")


async def test_an_agent_that_writes_to_itself(open_herd):
    """Case 12: writing to itself on each of its own messages ends; a stack of notes does not."""
    herd = await open_herd("h", "scout", pair_rate=RATE)
    for number in range(3 * RATE):
        await herd.scout.message("scout", str(number))
    await (await herd.scout.receive()).ack()

    number, _ = await until_stopped(
        lambda: herd.scout.message("scout", "on"),
        lambda: answers(herd.scout, lambda mail: herd.scout.progress("on")),
    )

    assert number == 2 * RATE
    assert len(about(await herd.parent.receive(), "loop")) == 1


async def passes_on(agent, *to: str) -> None:
    """Writes to others for each of its mail, and acks it."""
    turn = await agent.receive()
    for mail in turn:
        for other in to:
            await agent.message(other, mail.body)
    await turn.ack()


@pytest.mark.parametrize("size", [3, 4, 9, 32])
async def test_a_ring_of_agents_that_pass_a_message_on(open_herd, size):
    """Case 12: however many there are, none of them is the pair of another, and it ends."""
    names = [f"a{number}" for number in range(size)]
    herd = await open_herd("h", *names, pair_rate=3)
    ring = [herd.children[name] for name in names]
    await ring[0].message(names[1], "pass it on")

    number, stopped = await until_stopped(
        *[partial(passes_on, ring[at % size], names[(at + 1) % size]) for at in range(1, size + 1)]
    )

    assert number == 4 * size - 1
    assert "come round to it by way of others 3 times within 60 min" in stopped.detail
    assert "'a0'" in stopped.detail and "'a1'" in stopped.detail
    (notice,) = about(await herd.parent.receive(), "loop")
    assert not notice.trigger_turn
    assert "pass messages round" in notice.body and "(pair_rate)" in notice.body
    await ring[0].message("parent", "others hear of it")


@pytest.mark.parametrize("tokens", [2, 3, 10])
async def test_a_ring_with_many_messages_on_the_way(open_herd, tokens):
    """Case 12: they are stopped when several are passed round at once, one a turn."""
    herd = await open_herd("h", "a", "b", "c", pair_rate=5)
    a, b, c = herd.children.values()
    for number in range(tokens):
        await a.message("b", str(number))

    async def one(agent, to: str) -> None:
        turn = await agent.receive(limit=1)
        for mail in turn:
            await agent.message(to, mail.body)
        await turn.ack()

    number, _ = await until_stopped(
        partial(one, b, "c"), partial(one, c, "a"), partial(one, a, "b")
    )

    assert number <= 3 * tokens * 6


async def test_a_ring_by_way_of_an_answer_and_by_inboxes_that_are_shown(open_herd):
    """Case 12: an agent that asks in between, and one that never takes its mail, are of a ring."""
    herd = await open_herd("h", "a", "b", "c", "d", pair_rate=3)
    a, b, c, d = herd.children.values()
    await c.message("a", "go")

    async def asks() -> None:
        await (await a.receive()).ack()
        asked = await a.message("d", "may I?", expects_reply=True)
        await (await d.receive()).ack()
        await d.reply(asked.message_id, "yes")
        await passes_on(a, "b")

    async def looks() -> None:
        shown = await b.inbox()
        for mail in shown:
            await b.message("c", mail.body)
        await b.ack(*shown)

    number, _ = await until_stopped(asks, looks, partial(passes_on, c, "a"))

    assert number == 3 * 4 - 1


async def test_a_ring_of_herds(open_herd):
    """Case 12: parents that pass a message from herd to herd are stopped."""
    names = ("a", "b", "c")
    herds = [await open_herd(name, pair_rate=3, accepts_from=names) for name in names]

    async def step(herd, to: str) -> None:
        await passes_on(herd.parent, f"{to}/parent")
        await herd.scheduler.tick()

    await herds[0].parent.message("b/parent", "pass it on")
    await herds[0].scheduler.tick()

    number, stopped = await until_stopped(
        partial(step, herds[1], "c"), partial(step, herds[2], "a"), partial(step, herds[0], "b")
    )

    assert number == 3 * 4 - 1
    assert "come round" in stopped.detail


async def test_one_who_tells_another_of_all_that_it_hears_is_in_no_ring(open_herd):
    """An honest parent that deals with a child after another, and tells a third of each."""
    herd = await open_herd("h", *[f"c{number}" for number in range(20)], "log", pair_rate=1)
    for child in list(herd.children.values())[:-1]:
        await herd.parent.message(child.agent, "report")
        await passes_on(child, "parent")
        await (await herd.parent.receive()).ack()
        await herd.parent.message("log", f"{child.agent} reported")
        await (await herd.children["log"].receive()).ack()


async def test_work_given_in_a_ring_is_none(open_herd):
    """A line of work that begins anew with each task: what went before does not count."""
    herd = await open_herd("h", "maker", "checker", pair_rate=1)
    maker, checker = herd.children.values()
    for _ in range(10):
        task = await herd.working(maker)
        await maker.message("checker", "look at this")
        await passes_on(checker, "parent")
        await maker.done(task.id)
        await (await herd.parent.receive()).ack()


async def test_a_reminder_answered_by_a_reminder(open_herd):
    """Case 12: a parent that reminds on each answer to a reminder is stopped too."""
    herd = await open_herd("h", "scout", "planner", pair_rate=RATE)
    _, request = await herd.waiting()
    await (await herd.planner.receive()).ack()
    await herd.parent.remind(request)

    number, stopped = await until_stopped(
        lambda: answers(herd.planner, lambda mail: herd.planner.reply(mail, "soon")),
        lambda: answers(herd.parent, lambda mail: herd.parent.remind(request)),
    )

    assert number == RATE and stopped.operation in ("remind", "reply")
    assert len(about(await herd.parent.receive(), "loop")) == 1
    await herd.planner.reply(request, "the answer")


async def test_a_thousand_questions_in_a_burst(open_herd):
    """An honest parent: a thousand questions to one child, its answers read in between."""
    herd = await open_herd("h", "scout")
    for number in range(1000):
        asked = await herd.parent.message("scout", str(number), expects_reply=True)
        if number % 10 == 0:
            await (await herd.scout.receive()).ack()
            await herd.scout.reply(asked.message_id, "!")
            await (await herd.parent.receive()).ack()
    assert about(await herd.parent.receive(), "loop") == []


async def test_bursts_that_cross_are_no_loop(open_herd):
    """Two agents that both write a lot, neither because of what the other wrote."""
    herd = await open_herd("h", "scout", "planner", pair_rate=1)
    for number in range(100):
        await herd.scout.message("planner", str(number))
        await herd.planner.message("scout", str(number))


async def test_settlements_and_tasks_are_never_stopped(open_herd):
    """Work that follows on work is no loop, however often."""
    herd = await open_herd("h", "scout", pair_rate=1, hop_limit=1)
    for _ in range(10):
        task = await herd.working(herd.scout)
        await herd.scout.done(task.id)
        await (await herd.parent.receive()).ack()


@proves("P12")
async def test_a_repeat_of_what_was_sent_is_a_duplicate_and_no_turn(open_herd, broker):
    """Also when the limit is reached meanwhile; and a repeat of what was refused is refused."""
    herd = await open_herd("h", "scout", "planner", pair_rate=1)
    await herd.scout.message("planner", "x")
    await herd.planner.receive()
    sent = await herd.planner.message("scout", "x", key="k")
    assert not sent.duplicate
    await herd.scout.receive()
    for _ in range(2):
        assert (await herd.planner.message("scout", "x", key="k")).duplicate
        with pytest.raises(errors.LoopLimit):
            await herd.scout.message("planner", "x", key="k")
    assert len(about(await herd.parent.receive(), "loop")) == 1
    assert len(await herd.planner.receive()) == 0


@pytest.mark.parametrize("closed", ["scout", "planner"])
@proves("P15")
async def test_what_is_counted_goes_with_its_agent(herd, url, fleet_name, closed):
    """The count of a pair is kept with one of the two, and never with the parent."""
    await herd.scout.message("planner", "x")
    await herd.scout.message("parent", "x")
    await herd.parent.message("planner", "x")
    kept = {key.rsplit(":a:")[1] for key in herd_keys(url, fleet_name) if "exchanges" in key}
    assert kept == {"scout:exchanges", "planner:exchanges"}

    await herd.parent.close(closed)

    assert not any(f":a:{closed}:exchanges" in key for key in herd_keys(url, fleet_name))


async def test_the_count_of_a_pair_starts_anew_each_window(open_herd, url, fleet_name):
    """One small record an agent, whoever it has written with before."""
    herd = await open_herd("h", "scout", pair_window=timedelta(minutes=1), pair_rate=1)
    for _ in range(3):
        await herd.parent.message("scout", "x")
        await herd.scout.receive()
        await herd.scout.message("parent", "x")
        await herd.parent.receive()
        with pytest.raises(errors.LoopLimit, match="again in 60 s"):
            await herd.parent.message("scout", "x")
        herd.clock.advance(timedelta(minutes=1))
