"""Mail crosses from herd to herd once in effect, whoever is killed and whatever is lost."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import pytest

from tests.acceptance.processes import Program
from tests.acceptance.test_lost_answers import LOST, behind, cut, proxy
from tests.broker.test_between_herds import source, target
from tests.fleets import Herd, bodies, command, key_of, side_by_side
from tests.requirements import proves
from tests.waiting import wait_until
from tocsin.broker import AsyncBroker, Broker, HerdSettings, errors, keys, outbox
from tocsin.broker.clock import from_ms
from tocsin.broker.outbox import Outbox, Outcome
from tocsin.broker.scripts import Call
from tocsin.scheduler import AsyncScheduler
from tocsin.scheduler._async.forwarding import PATIENCE

__all__ = ["behind", "proxy", "source", "target"]

STEPS = ("outbox_take", "outbox_accept", "outbox_note", "outbox_hear")


@LOST
@pytest.mark.parametrize("step", STEPS)
@proves("P12", "P16")
async def test_the_answer_to_a_step_is_lost(source, target, behind, proxy, step, when):
    """Case 1: each step is repeated by the library, to no other effect."""
    one = await source.scout.message("target/parent", "one")
    two = await source.scout.message("target/parent", "two")
    if step == "outbox_hear":
        await source.scheduler.tick()
        await (await target.parent.receive()).ack()
    lost = cut(proxy, step, when)

    await AsyncScheduler(behind).tick()
    source.clock.advance(PATIENCE)  # where the answer to a take was lost, it is seen to again
    await AsyncScheduler(behind).tick()

    assert lost.happened
    if step != "outbox_hear":
        turn = await target.parent.receive()
        assert bodies(turn) == ["one", "two"]
        await turn.ack()
        await source.scheduler.tick()
    for sent in (one, two):
        assert (await source.scout.receipt(sent.message_id)).state == "handled"
    assert bodies(await target.parent.receive()) == []


async def taken(herd: Herd) -> list[Outbox]:
    """What a scheduler takes that does nothing more."""
    fleet = await herd.broker.fleet()
    partition = fleet.partition(herd.name)
    return (await herd.broker.run(outbox.take(fleet, partition, 10, 10, PATIENCE))).outboxes


async def offered(herd: Herd, boxes: Sequence[Outbox]) -> list[list[Outcome]]:
    """What comes of it when it is offered to the other herd."""
    fleet = await herd.broker.fleet()
    return [await herd.broker.run(outbox.accept(fleet, box)) for box in boxes]


@pytest.mark.parametrize("killed_after", ["take", "accept"])
@proves("P11", "P12", "P16")
async def test_a_scheduler_that_is_killed_between_two_steps(source, target, killed_after):
    """Another goes on after a moment, and nothing is lost or there twice."""
    sent = await source.scout.message("target/parent", "once")
    boxes = await taken(source)
    if killed_after == "accept":
        assert await offered(source, boxes) == [[Outcome("forwarded")]]
    assert await source.scheduler.tick() == {}, "it is being seen to"

    counts = await source.later(seconds=2)

    assert counts == {"forwarded": 1}
    turn = await target.parent.receive()
    assert bodies(turn) == ["once"]
    await turn.ack()
    await source.scheduler.tick()
    assert (await source.scout.receipt(sent.message_id)).state == "handled"


@proves("P12", "P16")
async def test_news_that_overtake_the_note(source, target):
    """Killed before it noted that mail was taken in: the news that it is handled say so too."""
    sent = await source.scout.message("target/parent", "once")
    await offered(source, await taken(source))
    await (await target.parent.receive()).ack()
    assert await source.scheduler.tick() == {"news": 1}
    receipt = await source.scout.receipt(sent.message_id)
    assert receipt.state == "handled" and receipt.forwarded_at is not None
    await source.later(seconds=3)
    assert bodies(await target.parent.receive()) == []
    assert not await command(source, "EXISTS", key_of(source, "outbox"))


@proves("P12", "P16")
async def test_a_scheduler_that_was_frozen_between_two_steps(source, target):
    """What it still has in hand was handled and forgotten long ago, and is not delivered again."""
    for text in ("one", "two"):
        await source.scout.message("target/parent", text)
    frozen = await taken(source)
    await source.later(seconds=2)
    await (await target.parent.receive()).ack()
    await source.later(hours=3)
    message = frozen[0].mail[0].envelope["id"]
    assert not await command(target, "EXISTS", key_of(target, "message", message=message))

    assert await offered(source, frozen) == [[Outcome("forwarded")] * 2]

    assert bodies(await target.parent.receive()) == []
    await source.scout.message("target/parent", "three")
    await source.scheduler.tick()
    assert bodies(await target.parent.receive()) == ["three"]


@proves("P12")
async def test_what_was_refused_stays_refused(source, open_herd):
    """Judged once, also when the note of it was lost and the herd takes mail by now."""
    target = await open_herd("target")
    sent = await source.scout.message("target/parent", "one")
    await source.scout.message("target/parent", "two")
    frozen = await taken(source)
    [[first]] = await offered(source, frozen)
    assert first.how == "refused"
    await target.parent.set_settings(HerdSettings(accepts_from=("source",)))

    assert await source.later(seconds=2) == {"forwarded": 1, "forwards_refused": 1}

    assert bodies(await target.parent.receive()) == ["two"]
    assert (await source.scout.receipt(sent.message_id)).state == "refused"
    [outcomes] = await offered(source, frozen)
    assert bodies(await target.parent.receive()) == []
    fleet = await source.broker.fleet()
    entries = [each.entry for each in frozen[0].mail]
    noted = outbox.note(fleet, frozen[0], list(zip(entries, outcomes, strict=False)), timedelta(0))
    await source.broker.run(noted)
    assert (await source.scout.receipt(sent.message_id)).state == "refused"


async def test_news_that_has_to_wait_is_tried_less_and_less_often(source, target, monkeypatch):
    """The pause doubles up to a minute while the other herd cannot be told of it."""
    sent = await source.scout.message("target/parent", "one")
    await source.scheduler.tick()
    await (await target.parent.receive()).ack()
    run_many = source.broker.link.run_many

    async def deaf(calls: Sequence[Call[Any]]) -> Any:
        if calls and calls[0].script.name == "outbox_hear":
            raise errors.Unavailable("forward", "its server hangs")
        return await run_many(calls)

    monkeypatch.setattr("random.uniform", lambda low, high: (low + high) / 2)
    monkeypatch.setattr(source.broker.link, "run_many", deaf)
    forwards = keys.below(target.parent.caller.fleet.partition("target"), "forwards")
    pauses = []
    for _ in range(8):
        await source.scheduler.tick()
        due = int(await command(target, "ZSCORE", forwards, "target/source"))
        pauses.append(from_ms(due) - source.clock.now())
        source.clock.advance(pauses[-1])
    assert [round(pause.total_seconds()) for pause in pauses] == [1, 2, 4, 8, 16, 32, 60, 60]

    monkeypatch.setattr(source.broker.link, "run_many", run_many)
    await source.scheduler.tick()
    assert (await source.scout.receipt(sent.message_id)).state == "handled"


@proves("P12", "P16")
async def test_many_schedulers_at_once(url, fleet_name, clock, source, target):
    """Four of them, side by side: all mail once, and in order."""
    for number in range(120):
        await source.scout.message("target/parent", str(number))

    await side_by_side(url, fleet_name, clock, passes=10)
    await source.later(seconds=3)
    turn = await target.parent.receive(limit=200)
    assert bodies(turn) == [str(number) for number in range(120)]
    await turn.ack()
    await source.later(seconds=3)


@proves("P14")
async def test_a_herd_with_much_to_forward_does_not_hold_up_another(source, target, open_herd):
    """Each herd's outbox goes behind the others that are due when a batch of it was seen to."""
    other = await open_herd("other")
    for number in range(60):
        await source.scout.message("target/parent", str(number))
    await target.parent.set_settings(HerdSettings(accepts_from=("*",)))
    await other.parent.message("target/parent", "one of another")
    await source.scheduler.tick()
    order = bodies(await target.parent.receive())
    assert len(order) == 61 and order.index("one of another") <= 20


async def test_an_outbox_that_was_written_over_stops_no_other(source, target, open_herd):
    """It is set aside; what stands in the list of them and is none, goes."""
    other = await open_herd("other", accepts_from=("*",))
    await source.scout.message("target/parent", "lost")
    await other.parent.message("source/parent", "refused, and that it is shows")
    forwards = keys.below((await source.broker.fleet()).partition("source"), "forwards")
    await command(source, "ZADD", forwards, 1, "nonsense", 1, "nobody/nowhere")
    await command(source, "DEL", key_of(source, "outbox"))
    await command(source, "SET", key_of(source, "outbox"), "nonsense")

    assert (await source.scheduler.tick())["forwards_refused"] == 1

    assert await command(source, "ZRANGE", forwards, 0, -1) == ["source/target"]
    await command(source, "DEL", key_of(source, "outbox"))
    assert (await source.scheduler.repair()).counts["source", "outbox"] == 1
    await source.scheduler.tick()
    assert bodies(await target.parent.receive()) == ["lost"]


async def test_a_partition_that_cannot_be_looked_at_stops_no_other(source, target, open_herd):
    """It is left out of the pass, and its mail goes on when it is whole again."""
    fleet = await source.broker.fleet()
    names = (f"other-{number}" for number in range(1000))
    mine = fleet.partition("source")
    other = await open_herd(next(name for name in names if fleet.partition(name) != mine))
    await target.parent.set_settings(HerdSettings(accepts_from=("*",)))
    await other.parent.message("target/parent", "late")
    forwards = keys.below(fleet.partition(other.name), "forwards")
    await command(source, "DEL", forwards)
    await command(source, "SET", forwards, "nonsense")
    await source.scout.message("target/parent", "in time")

    assert (await source.scheduler.tick())["forwarded"] == 1

    await command(source, "DEL", forwards)
    assert (await source.scheduler.repair()).counts[other.name, "forwards"] == 1
    await source.scheduler.tick()
    assert bodies(await target.parent.receive()) == ["in time", "late"]


@proves("P11", "P12", "P16")
def test_schedulers_that_are_killed_again_and_again(url, fleet_name):
    """SIGKILL at any moment, on real time: all mail once and in order."""
    with Broker.connect(url, fleet=fleet_name) as broker:
        one = broker.open_herd("one")
        two = broker.open_herd("two", settings=HerdSettings(accepts_from=("one",)))
        read: list[str] = []
        sent: list[str] = []
        for number in range(12):
            with Program("scheduler", url, fleet_name) as scheduler:
                scheduler.says("runs")
                for part in range(10):
                    text = f"{number}.{part}"
                    sent.append(one.message("two/parent", text).message_id)
                if number % 3:
                    turn = two.next_turn(timeout=10)
                    read += bodies(turn)
                    if turn is not None:
                        turn.ack()
                scheduler.kill()
        with Program("scheduler", url, fleet_name) as scheduler:
            while len(read) < len(sent):
                turn = two.next_turn(timeout=20)
                assert turn is not None, f"{len(read)} of {len(sent)} came"
                read += bodies(turn)
                turn.ack()
            wait_until(
                lambda: {one.receipt(each).state for each in sent} == {"handled"},
                "the news that all is handled",
            )
        assert read == [f"{number}.{part}" for number in range(12) for part in range(10)]


@proves("P6")
async def test_a_running_scheduler_is_rung(url, fleet_name):
    """Mail crosses when it is sent, not when the scheduler next looks."""
    async with AsyncBroker.connect(url, fleet=fleet_name) as broker:
        one = await broker.open_herd("one")
        two = await broker.open_herd("two", settings=HerdSettings(accepts_from=("*",)))
        scheduler = AsyncScheduler(broker)
        running = asyncio.create_task(scheduler.run())
        for _ in range(3):
            await one.message("two/parent", "hello")
            turn = await two.next_turn(timeout=8)
            assert bodies(turn) == ["hello"]
            assert turn is not None
            await turn.ack()
        scheduler.stop()
        await running
