"""Mailboxes: full, listed, tampered with, and run for a long time."""

from __future__ import annotations

import os
from dataclasses import replace
from datetime import timedelta

import pytest
import redis

from benchmarks.soak import resident
from tests.fleets import about, bodies, token_of
from tests.requirements import proves
from tocsin.broker import AsyncBroker, AsyncChild, Broker, ManualClock, errors, keys, requests
from tocsin.broker.embedded import EmbeddedServer
from tocsin.scheduler import Scheduler


async def test_a_full_inbox_of_an_agent_that_is_away(open_herd):
    """Case 7: refused to the sender, who is told what to do; nothing unread is dropped."""
    herd = await open_herd("h", "scout", "planner", inbox_limit=50)
    await herd.planner.leave()
    for number in range(50):
        await herd.scout.message("planner", str(number))

    for _ in range(3):
        with pytest.raises(errors.QueueFull) as refusal:
            await herd.scout.message("planner", "one too many")
    assert "planner" in refusal.value.detail and refusal.value.retryable

    planner = await herd.another("planner")
    assert bodies(await planner.receive()) == [str(number) for number in range(50)]


class Stream:
    """Planner's inbox stream, for those who tamper with it."""

    def __init__(self, url: str, partition: str, herd: str) -> None:
        self.url = url
        self.key = keys.below(partition, "inbox", herd=herd, agent="planner")

    def delete(self, holding: str = "") -> None:
        """Deletes every entry that holds a text."""
        with redis.Redis.from_url(self.url, decode_responses=True) as client:
            found = [at for at, fields in client.xrange(self.key) if holding in str(fields)]
            assert found and client.xdel(self.key, *found) == len(found)


@pytest.fixture
async def stream(herd, broker, url) -> Stream:
    return Stream(url, (await broker.fleet()).partition(herd.name), herd.name)


@pytest.mark.parametrize("which", ["first", "middle", "last", "only"])
async def test_an_entry_deleted_under_a_reader(herd, stream, which):
    """Case 7: skipped, told to the parent as a dead letter, never handed on empty."""
    texts = ["only"] if which == "only" else ["first", "middle", "last"]
    sent = {text: (await herd.scout.message("planner", text)).message_id for text in texts}
    await herd.planner.inbox()
    stream.delete(sent[which])

    rest = [text for text in texts if text != which]
    assert bodies(await herd.planner.inbox()) == rest
    turn = await herd.planner.next_turn(timeout=0)
    if rest:
        assert bodies(turn) == rest
        await turn.ack()
        assert await herd.planner.next_turn(timeout=0) is None

    receipt = await herd.scout.receipt(sent[which])
    assert receipt.state == "dead" and "deleted" in receipt.reason
    (notice,) = about(await herd.parent.next_turn(timeout=1), "dead_letter")
    assert notice.data["message"] == sent[which]


async def test_an_entry_deleted_while_its_mail_is_in_hand(herd, stream):
    """Case 7: handed back or acked, what is gone from the stream makes no empty envelope."""
    await herd.scout.message("planner", "one")
    turn = await herd.planner.receive()
    stream.delete()

    await turn.nack()

    assert bodies(await herd.planner.receive()) == ["one"]


@proves("P15")
def test_a_hundred_thousand_acked_messages():
    """Case 7: memory stays flat, the server's and the client's, however many have been handled."""
    clock = ManualClock()
    used, held = [], []
    with (
        EmbeddedServer(durable=False) as server,
        Broker.connect(server.url, fleet="f", clock=clock) as broker,
        redis.Redis.from_url(server.url) as client,
    ):
        parent = broker.open_herd("h")
        scout = broker.join("h", "scout", token_of(parent.register("scout")))
        scheduler = Scheduler(broker)
        for _ in range(10):
            for _ in range(10):
                calls = [
                    requests.message(
                        parent.caller,
                        "scout",
                        f"message {number}",
                        task=None,
                        expects_reply=False,
                        reply_within=None,
                        delivery="follow_up",
                        thread=None,
                        key=None,
                        data=None,
                    )
                    for number in range(1000)
                ]
                broker.link.run_many(calls)
                turn = scout.receive(limit=1000)
                assert len(turn) == 1000
                turn.ack()
            clock.advance(timedelta(hours=1))
            scheduler.tick()
            used.append(client.info("memory")["used_memory"])
            held.append(resident(os.getpid()))

    assert max(used[2:]) < used[1] * 1.05, used
    assert max(held[2:]) < held[1] + 4 * 2**20, held


async def test_an_inbox_listed_ten_times(herd):
    """Case 11: the same mail each time, nothing nearer to dead letters."""
    for number in range(5):
        await herd.scout.message("planner", str(number), expects_reply=number == 3)

    listings = [list(await herd.planner.inbox()) for _ in range(10)]

    assert listings == [listings[0]] * 10 and len(listings[0]) == 5
    assert {mail.attempts for mail in await herd.planner.receive()} == {0}


async def test_the_inbox_of_nobody(herd):
    """Case 11: an unknown or re-registered agent is an error, never an empty list."""
    with pytest.raises(errors.UnknownAgent):
        await herd.broker.join(herd.name, "nobody", herd.scout.token)
    await herd.parent.close("planner")
    with pytest.raises(errors.AgentClosed):
        await herd.planner.inbox()
    await herd.parent.register("planner")
    with pytest.raises(errors.AgentClosed):
        await herd.planner.inbox()


async def test_a_listing_that_was_cut(herd):
    """Case 11: it says so, and how much is left; after acks the rest comes up."""
    for number in range(12):
        await herd.scout.message("planner", str(number))

    seen, left = [], []
    for _ in range(3):
        page = await herd.planner.inbox(limit=5)
        seen += bodies(page)
        left.append(page.remaining)
        await herd.planner.ack(*[mail.message_id for mail in page])

    assert seen == [str(number) for number in range(12)]
    assert left == [7, 2, 0]


@proves("P13")
async def test_with_the_token_of_child_a(herd, url, fleet_name, clock):
    """Case 29: send as the parent, settle B's task, answer B's question, read B's mail: refused."""
    theirs = await herd.working(herd.planner)
    asked = await herd.parent.message("planner", "for planner only", expects_reply=True)
    token = herd.scout.token

    async with AsyncBroker.connect(url, fleet=fleet_name, clock=clock) as attacker:
        for agent in ("parent", "planner"):
            with pytest.raises(errors.Unauthorized):
                await attacker.join(herd.name, agent, token)
            with pytest.raises(errors.Unauthorized):
                await attacker.join(herd.name, agent, token, instance="inst_stolen")
        with pytest.raises(errors.Unauthorized):
            await attacker.open_herd(herd.name, token=token)
        scout = await attacker.join(herd.name, "scout", token)
        assert isinstance(scout, AsyncChild)
        for refused in (
            scout.done(theirs.id),
            scout.task(theirs.id),
            scout.reply(asked.message_id, "I am planner"),
            scout.cancel_request(asked.message_id),
            scout.ack(asked.message_id),
            scout.receipt(asked.message_id),
            scout.message("parent", "x", task=theirs.id),
        ):
            with pytest.raises(errors.Forbidden):
                await refused
        forged = requests.reply(
            _pretending(scout, "planner"), asked.message_id, "forged", key=None, data=None
        )
        with pytest.raises(errors.Unauthorized):
            await attacker.run(forged)

    kept = [line for line in await herd.parent.journal() if line.event == "refused"]
    assert [line.fields["code"] for line in kept] == ["unauthorized"] * 5 + ["forbidden"] * 7 + [
        "unauthorized"
    ]
    assert await herd.state(theirs) == "running"
    assert (await herd.parent.receipt(asked.message_id)).request == "open"
    assert len(await herd.parent.receive()) == 0


def _pretending(agent, name: str):
    """The agent's own token under another agent's name."""
    return replace(agent.caller, agent=name)
