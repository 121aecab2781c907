"""Back-pressure: who is refused for a full inbox hears why, and may wait for room."""

from __future__ import annotations

import asyncio
import random
import threading
from datetime import timedelta

import pytest
import redis

from tests.fleets import bodies, token_of
from tests.waiting import wait_until_async
from tocsin.broker import HerdSettings, errors, keys


@pytest.fixture
async def full(open_herd):
    """A herd whose planner has all the mail it may have."""
    herd = await open_herd("h", "scout", "planner", inbox_limit=2)
    for number in (1, 2):
        await herd.scout.message("planner", str(number))
    return herd


async def refusal(herd, to: str = "planner", **how) -> str:
    """What one more message is refused with."""
    with pytest.raises(errors.QueueFull) as refused:
        await herd.scout.message(to, "one more", **how)
    return refused.value.detail


@pytest.fixture
def never_by_itself(monkeypatch):
    """Whoever waits for room looks again only when rung."""
    monkeypatch.setattr(random, "uniform", lambda low, high: 1_000.0)


# ------------------------------------------------------------------ who is behind


async def test_a_full_inbox_says_how_full_and_which_process_is_behind(open_herd):
    """Each live process with what it has in hand."""
    herd = await open_herd("h", "scout", "planner", inbox_limit=2)
    replica = await herd.another("planner")
    await herd.scout.message("planner", "in hand", delivery="steer")
    await herd.scout.message("planner", "in hand")
    await herd.planner.receive()
    for number in (1, 2):
        await herd.scout.message("planner", str(number))

    said = await refusal(herd)

    assert "agent 'planner' has 2 unread messages and the limit is 2" in said
    assert f"{herd.planner.instance} has 2 in hand" in said
    assert f"{replica.instance} has 0 in hand" in said
    assert "wait until it catches up (wait=, --wait), or close it" in said


async def test_a_full_inbox_of_an_agent_that_nobody_serves(full):
    """Since when no process of it is alive; one that comes back is named again."""
    await full.planner.leave()
    full.clock.advance(timedelta(minutes=12))
    assert "no process of it has been alive for 12 min" in await refusal(full)

    back = await full.another("planner")
    assert f"{back.instance} has 0 in hand" in await refusal(full)


async def test_a_full_inbox_of_an_agent_that_never_ran(full):
    """Since it was registered."""
    await full.parent.register("tester")
    for number in (1, 2):
        await full.scout.message("tester", str(number))
    full.clock.advance(timedelta(hours=5))
    said = await refusal(full, "tester")
    assert "no process has served it since it was registered, 5 h ago" in said


# ------------------------------------------------------------------ waiting for room


async def test_a_message_waits_for_room(full, never_by_itself):
    """It is sent when the recipient reads, rung by that, under the id it had from the start."""
    sending = asyncio.create_task(full.scout.message("planner", "3", wait=timedelta(minutes=1)))
    await until_awaited(full)

    assert bodies(await full.planner.receive()) == ["1", "2"]
    sent = await asyncio.wait_for(sending, 20)

    assert not sent.duplicate
    (mail,) = await full.planner.receive()
    assert (mail.message_id, mail.body) == (sent.message_id, "3")


@pytest.mark.one_server
async def test_a_question_waits_for_room_that_acks_make(full, never_by_itself):
    """An agent that looks without taking makes room when it acks."""
    sending = asyncio.create_task(
        full.scout.message("planner", "?", expects_reply=True, delivery="steer", wait=60)
    )
    await until_awaited(full)
    shown = await full.planner.inbox()
    assert not sending.done()

    await full.planner.ack(shown[0])

    sent = await asyncio.wait_for(sending, 20)
    assert (await full.scout.receipt(sent.message_id)).request == "open"


async def test_many_that_wait_are_sent_as_there_is_room(full, never_by_itself):
    """Each once; those for whom it is not enough are rung the next time."""
    sending = [
        asyncio.create_task(full.scout.message("planner", f"late {number}", wait=60))
        for number in range(5)
    ]
    read: list[str] = []
    while len(read) < 7:
        turn = await full.planner.next_turn(timeout=20)
        read += bodies(turn)
        await turn.ack()
    sent = await asyncio.wait_for(asyncio.gather(*sending), 20)
    assert read[:2] == ["1", "2"]
    assert sorted(read[2:]) == [f"late {number}" for number in range(5)]
    assert not any(one.duplicate for one in sent)


async def test_room_that_nobody_tells_of_is_found(full):
    """A question taken back makes room without a sound: the waiting call looks by itself."""
    await full.planner.receive()
    asked = await full.scout.message("planner", "?", expects_reply=True)
    await full.scout.message("planner", "2")
    sending = asyncio.create_task(full.scout.message("planner", "3", wait=60))
    await until_awaited(full)

    await full.scout.cancel_request(asked.message_id)

    await asyncio.wait_for(sending, 20)
    assert bodies(await full.planner.receive()) == ["2", "3"]


@pytest.mark.parametrize("wait", [0, 0.05, timedelta(milliseconds=50)])
async def test_a_wait_that_was_too_short(full, wait):
    """It ends in the same refusal, which says how long it waited; nothing was sent."""
    said = await refusal(full, wait=wait)
    assert "2 unread messages" in said and "it waited 0" in said
    assert bodies(await full.planner.receive()) == ["1", "2"]


async def test_waiting_ends_with_its_recipient(full):
    """Closed meanwhile, the agent takes no more, which is another refusal."""
    sending = asyncio.create_task(full.scout.message("planner", "3", wait=60))
    await until_awaited(full)
    await full.parent.close("planner")
    with pytest.raises(errors.AgentClosed):
        await asyncio.wait_for(sending, 20)


@pytest.mark.one_server
async def test_a_wait_that_is_cancelled_leaves_nothing(full, never_by_itself):
    """No message later, and nobody who listens for room."""
    sending = asyncio.create_task(full.scout.message("planner", "3", wait=60))
    await until_awaited(full)
    sending.cancel()
    with pytest.raises(asyncio.CancelledError):
        await sending

    assert bodies(await full.planner.receive()) == ["1", "2"]
    assert len(await full.planner.receive()) == 0
    assert full.broker._bells._waiters[full.planner.bell] == {}


@pytest.mark.parametrize("wait", ["soon", -1, True, float("nan")])
async def test_a_wait_that_is_none(full, wait):
    """A timedelta or seconds, from 0 on."""
    with pytest.raises(errors.InvalidInput, match="wait"):
        await full.scout.message("planner", "x", wait=wait)


@pytest.mark.one_server
async def test_nothing_rings_for_room_while_nobody_waits(full, url):
    """The bell of room is rung for who waits, once, and not else."""
    with redis.Redis.from_url(url) as client, client.pubsub() as bell:
        bell.subscribe(full.planner.bell)
        assert bell.get_message(timeout=5)["type"] == "subscribe"
        await (await full.planner.receive()).ack()
        for number in (1, 2):
            await full.scout.message("planner", str(number))
        await refusal(full, wait=0)
        await (await full.planner.receive()).ack()
        await full.scout.message("planner", "last")
        rung: list[bytes] = []
        while (heard := bell.get_message(timeout=5)) and rung.count(b"mail") < 3:
            rung.append(heard["data"])
    assert rung == [b"mail", b"mail", b"room", b"mail"]


async def until_awaited(herd) -> None:
    """Until somebody waits for room at planner."""
    partition = (await herd.broker.fleet()).partition(herd.name)
    key = keys.below(partition, "agent", herd=herd.name, agent="planner")
    await wait_until_async(
        lambda: herd.broker.link.command("test", "HGET", key, "awaited"), "a sender to wait"
    )


def test_the_sync_client_waits_too(sync_broker):
    """The same in a thread."""
    parent = sync_broker.open_herd("h", settings=HerdSettings(inbox_limit=1))
    scout = sync_broker.join("h", "scout", token_of(parent.register("scout")))
    parent.message("scout", "1")
    sent = []
    sender = threading.Thread(target=lambda: sent.append(parent.message("scout", "2", wait=60)))
    sender.start()
    read = bodies(scout.next_turn(timeout=20)) + bodies(scout.next_turn(timeout=20))
    sender.join(20)
    assert read == ["1", "2"] and len(sent) == 1
