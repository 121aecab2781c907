"""Probes of an ask, by a given clock: what they count is work of the target, and as growth only."""

from __future__ import annotations

import json
from datetime import timedelta

import pytest

from tests.asking import REQUEST, asking, opening
from tests.fleets import Herd
from tests.requirements import proves
from tests.waiting import wait_until_async
from tocsin.broker import asks, errors, keys
from tocsin.broker.testing import lapse

MINUTE = timedelta(minutes=1)


@proves("P8")
async def test_only_growth_counts(herd):
    """A first total, the same total and a smaller one are no sign of work."""
    async with asking(herd, herd.scout, "planner") as line:
        await herd.later(minutes=3)
        for total in (500, 500, 20, 20):
            assert not await herd.planner.probe({"transcript": total})
        assert await herd.later(minutes=7) == {"windows": 1}
        await line.ends(errors.NoReply)


@proves("P8")
async def test_a_rotated_transcript(herd):
    """A total that shrank is where counting starts again: growth from there counts."""
    await herd.planner.probe({"transcript": 5_000})
    async with asking(herd, herd.scout, "planner") as line:
        await herd.later(minutes=8)
        assert not await herd.planner.probe({"transcript": 10})
        await herd.later(minutes=1)
        assert await herd.planner.probe({"transcript": 11})
        assert await herd.later(minutes=9, seconds=59) == {}
        assert await herd.later(seconds=1) == {"windows": 1}
        await line.ends(errors.NoReply)


@proves("P8")
async def test_two_sources_of_a_probe(herd):
    """Each counts by itself: the growth of one is not lost in what the other lost."""
    await herd.planner.probe({"transcript": 1_000, "build": 50})
    async with asking(herd, herd.scout, "planner") as line:
        await herd.later(minutes=9)
        assert await herd.planner.probe({"transcript": 10, "build": 51})
        await herd.later(minutes=9)
        assert not await herd.planner.probe({"tests": 7})
        assert await herd.planner.probe({"tests": 8})
        assert await herd.later(minutes=9, seconds=59) == {}
        await herd.planner.reply(line.id, "!")
        assert (await line.reply()).extensions == 2


async def test_totals_are_exact(herd):
    """Beyond 14 digits, where a number written as JSON by the server would lose its last ones."""
    last = 2**53 - 2
    assert not await herd.planner.probe({"transcript": last})
    assert not await herd.planner.probe({"transcript": last})
    assert await herd.planner.probe({"transcript": last + 1})
    assert not await herd.planner.probe({"transcript": last + 1})


async def watched(herd: Herd, line, totals: dict[str, int]) -> None:
    """What another process of the asker sees with its probe."""
    assert await herd.scout.ask_wait(line.id, timeout=0, probe=lambda: totals) is None


@proves("P8")
async def test_a_probe_on_the_askers_side(herd):
    """What the asker sees of its target's work counts as the target's own signs do."""
    how = {"probe": lambda: {"transcript": 100}}
    async with asking(herd, herd.scout, "planner", **how) as line:
        await herd.later(minutes=9)
        await watched(herd, line, {"transcript": 101})
        assert await herd.later(minutes=9) == {}
        await watched(herd, line, {"transcript": 40})
        await watched(herd, line, {"transcript": 40, "build": 9})
        assert await herd.later(seconds=59) == {}
        herd.clock.advance(timedelta(seconds=1))
        with pytest.raises(errors.NoReply):
            await watched(herd, line, {"transcript": 40, "build": 9})
        await line.ends(errors.NoReply)


@proves("P8")
async def test_the_scheduler_calls_an_asker_that_probes(herd):
    """At the end of its window, and the asker, who knows more, ends it in that moment."""
    how = {"probe": lambda: {"transcript": 100}}
    async with asking(herd, herd.scout, "planner", **how) as line:
        assert await herd.later(minutes=10) == {}
        ended = await line.ends(errors.NoReply)
        assert ended.reason == "unread"
    ended_at = [line.at for line in await herd.parent.journal() if line.event == "request_no_reply"]
    assert ended_at == [herd.clock.now()]


@proves("P8")
async def test_what_a_probe_saw_before_the_scheduler_called(herd):
    """Growth that the asker had no time to tell of moves the window on."""
    total = 100
    how = {"probe": lambda: {"transcript": total}}
    async with asking(herd, herd.scout, "planner", **how) as line:
        total = 101
        assert await herd.later(minutes=10) == {}

        async def extended() -> bool:
            partition = herd.parent.caller.fleet.partition(herd.name)
            key = keys.below(partition, "message", herd=herd.name, message=line.id)
            seen: str = await herd.broker.link.command("test", "HGET", key, "extensions")
            return seen == "1"

        await wait_until_async(extended, "the window to move on")
        assert await herd.later(minutes=9, seconds=59) == {}
        assert line.open
        assert await herd.later(seconds=1) == {}
        await line.ends(errors.NoReply)


async def test_the_scheduler_steps_in_for_an_asker_that_hangs(herd):
    """A grace after the window of one that probes, which neither looked nor left."""
    await herd.broker.run(opening(herd.scout, totals='{"transcript": 1}'))
    assert await herd.later(minutes=10) == {}
    assert await herd.later(seconds=29) == {}
    assert await herd.later(seconds=1) == {"windows": 1}


@pytest.mark.parametrize("how", ["left", "died"])
async def test_an_asker_that_goes_after_it_was_called(herd, how):
    """A probing asker that is gone is not waited for any longer: the scheduler ends its window."""
    await herd.broker.run(opening(herd.scout, totals='{"transcript": 1}'))
    assert await herd.later(minutes=10) == {}
    if how == "left":
        await herd.broker.run(asks.leave(herd.scout.caller, REQUEST, "call_1", told=False))
    else:
        lapse(herd.scout)
    assert await herd.later() == {"windows": 1}


async def test_a_joiners_first_totals(herd):
    """Are where its counting starts, from the moment it joins."""
    await herd.broker.run(opening(herd.scout))
    other = await herd.another("scout")
    await herd.broker.run(opening(other, call="call_2", totals='{"transcript": 1}'))
    herd.clock.advance(9 * MINUTE)
    look = asks.look(other.caller, REQUEST, "call_2", '{"transcript": 2}')
    pending = await herd.broker.run(look)
    assert isinstance(pending, asks.Pending)
    assert pending.next == 600


@proves("P8")
@pytest.mark.parametrize("worked", [True, False])
async def test_an_ask_that_is_rerouted(herd, worked):
    """Its new target has a whole window from then on; being sent on is no work of it."""
    await herd.child("architect")
    async with asking(herd, herd.scout, "planner", ceiling=25 * MINUTE) as line:
        await herd.later(minutes=9)
        await herd.planner.progress("at it")
        await herd.later(minutes=8)
        await herd.parent.reroute(line.id, "architect")
        assert await herd.later(minutes=7, seconds=59) == {}
        if worked:
            await herd.children["architect"].progress("at it")
        assert await herd.later(seconds=1) == {"ceilings": 1}
        await line.ends(errors.CeilingActive if worked else errors.NoReply)


async def test_a_rerouted_ask_ends_a_window_later(herd):
    """Whoever looks, and whatever the work of its first target had moved."""
    await herd.child("architect")
    async with asking(herd, herd.scout, "planner") as line:
        await herd.later(minutes=9)
        await herd.planner.progress("at it")
        await herd.later(minutes=1)
        await herd.parent.reroute(line.id, "architect")
        assert await herd.later(minutes=9, seconds=59) == {}
        assert await herd.later(seconds=1) == {"windows": 1}
        await line.ends(errors.NoReply)


@proves("P8")
async def test_a_late_scheduler_fires_in_due_order(herd):
    """A task's deadline before the end of a window that work had moved behind it."""
    task = await herd.working(herd.scout, deadline=15 * MINUTE)
    async with asking(herd, herd.scout, "planner", task=task.id) as line:
        herd.clock.advance(9 * MINUTE)
        await herd.planner.progress("at it")
        herd.clock.advance(20 * MINUTE)
        await herd.scheduler.tick()
        await line.ends(errors.RequestCancelled)


async def test_a_joiner_without_a_probe(herd):
    """Knows less than the asker that probes, and does not end its window for it."""
    await herd.broker.run(opening(herd.scout, totals='{"transcript": 1}'))
    herd.clock.advance(10 * MINUTE)
    look = asks.look(herd.scout.caller, REQUEST, "call_2", "")
    pending = await herd.broker.run(look)
    assert isinstance(pending, asks.Pending)
    assert pending.next == 30
    look = asks.look(herd.scout.caller, REQUEST, "call_1", '{"transcript": 2}')
    pending = await herd.broker.run(look)
    assert isinstance(pending, asks.Pending)
    assert pending.next == 600


async def test_each_instance_probes_for_itself(herd):
    """Two that count the same thing from different places do not look like growth."""
    other = await herd.another("scout")
    await herd.broker.run(opening(herd.scout, totals='{"transcript": 5}'))
    herd.clock.advance(9 * MINUTE)
    for child, total in ((other, 900), (herd.scout, 5), (other, 900), (herd.scout, 5)):
        totals = f'{{"transcript": {total}}}'
        pending = await herd.broker.run(asks.look(child.caller, REQUEST, "call_1", totals))
        assert isinstance(pending, asks.Pending)
        assert pending.next == 60
    second = await herd.another("planner")
    for child, total in ((herd.planner, 5), (second, 900), (herd.planner, 5), (second, 900)):
        assert not await child.probe({"transcript": total})
    assert await second.probe({"transcript": 901})


async def test_sources_that_come_and_go(herd):
    """Are not remembered for ever."""
    for number in range(300):
        await herd.planner.probe({f"run-{number}": 1})
    partition = herd.parent.caller.fleet.partition(herd.name)
    key = keys.below(partition, "agent", herd=herd.name, agent="planner")
    known = json.loads(await herd.broker.link.command("test", "HGET", key, "totals"))
    assert len(known) <= 200
    assert await herd.planner.probe({"run-299": 2})


async def test_the_scheduler_waits_for_no_asker_that_is_gone(herd):
    """A probing asker whose process is dead does not fire its window any more."""
    scout = await herd.another("scout")
    async with asking(herd, scout, "planner", probe=lambda: {"transcript": 100}) as line:
        lapse(scout)
        assert await herd.later(minutes=10) == {"windows": 1}
        await line.ends(errors.NoReply)
