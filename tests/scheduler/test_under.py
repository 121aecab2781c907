"""Ties between herds and those under them, whoever is killed and whatever is lost."""

from __future__ import annotations

from datetime import timedelta

import pytest

from tests.acceptance.processes import Program
from tests.acceptance.test_lost_answers import LOST, behind, cut, proxy
from tests.broker.test_herds_under import below, events, led, seen, state_of
from tests.fleets import (
    Herd,
    HerdMaker,
    about,
    command,
    commands,
    crowd,
    key_of,
    side_by_side,
)
from tests.requirements import proves
from tests.waiting import wait_until
from tocsin.broker import Broker, HerdSettings, outbox
from tocsin.broker.outbox import Outbox, Outcome
from tocsin.scheduler import AsyncScheduler
from tocsin.scheduler._async.forwarding import PATIENCE

__all__ = ["behind", "proxy"]


@pytest.fixture
async def top(open_herd: HerdMaker) -> Herd:
    """The herd whose child leads others."""
    return await open_herd("top", "lead", "scout")


async def opened(over: Herd) -> Herd:
    """A herd under its lead that nobody has forwarded anything of."""
    parent = await over.children["lead"].open_herd("sub")
    return Herd(over.broker, over.clock, over.scheduler, parent)


async def pending(herd: Herd) -> list[Outbox]:
    """What a scheduler takes of a herd that does nothing more."""
    fleet = await herd.broker.fleet()
    call = outbox.take(fleet, fleet.partition(herd.name), 10, 10, PATIENCE)
    return (await herd.broker.run(call)).outboxes


async def heard(herd: Herd, boxes: list[Outbox]) -> list[list[Outcome]]:
    """What comes of it when it is told to the other herd."""
    fleet = await herd.broker.fleet()
    return [await herd.broker.run(outbox.hear(fleet, box)) for box in boxes]


async def note(herd: Herd, boxes: list[Outbox], came: list[list[Outcome]]) -> None:
    """What came of it is noted."""
    fleet = await herd.broker.fleet()
    for box, outcomes in zip(boxes, came, strict=True):
        entries = [each.entry for each in box.news]
        each = list(zip(entries, outcomes, strict=True))
        await herd.broker.run(outbox.note(fleet, box, each, timedelta(0)))


@LOST
@pytest.mark.parametrize("step", ["outbox_take", "outbox_hear", "outbox_note"])
@pytest.mark.parametrize("what", ["tie", "cancel", "close"])
@proves("P12", "P16")
async def test_the_answer_to_a_step_is_lost(top, behind, proxy, what, step, when):
    """Case 1: each step is repeated, to no other effect."""
    if what == "tie":
        sub = await opened(top)
    else:
        sub = await below(top, "sub", "scout")
        task = await top.working(top.children["lead"])
        part = await sub.working(sub.scout)
        if what == "cancel":
            await top.parent.cancel(task.id)
        else:
            await top.parent.close("lead")
    lost = cut(proxy, step, when)

    await AsyncScheduler(behind, repair_every=None).tick()
    top.clock.advance(PATIENCE)  # where the answer to a take was lost, it is seen to again
    await AsyncScheduler(behind, repair_every=None).tick()

    assert lost.happened
    if what == "tie":
        assert await led(top) == ("sub",)
        assert await events(sub, "tied") == ["tied"]
        assert await events(top, "herd_under") == ["herd_under"]
        return
    assert await sub.state(part) == "cancelled"
    assert await events(sub, "cancelled") == ["cancelled"]
    assert await state_of(sub.parent) == ("open" if what == "cancel" else "closed")
    if what == "cancel":
        assert len(about(await sub.scout.receive(), "task_ended")) == 1


@pytest.mark.parametrize("killed_after", ["take", "hear"])
@proves("P16")
async def test_a_scheduler_that_is_killed_between_two_steps(top, killed_after):
    """Another goes on after a moment: the tie, then the end."""
    sub = await opened(top)
    for herd in (sub, top):
        boxes = await pending(herd)
        assert boxes
        if killed_after == "hear":
            await heard(herd, boxes)
        top.clock.advance(PATIENCE)
        await top.scheduler.tick()
        assert await pending(herd) == []
        if herd is sub:
            assert await led(top) == ("sub",)
            assert (await seen(top.broker))["sub"].tie == "tied"
            await top.parent.close("lead")
    assert await state_of(sub.parent) == "closed"


@proves("P16")
async def test_a_scheduler_that_was_frozen_with_a_verdict_in_hand(top):
    """What it notes late changes nothing: the herd has closed, or its name is another's by now."""
    sub = await opened(top)
    boxes = await pending(sub)
    came = await heard(sub, boxes)
    top.clock.advance(PATIENCE)
    await top.parent.close("lead")
    await top.scheduler.tick()
    assert await state_of(sub.parent) == "closed"
    await note(sub, boxes, came)
    assert await state_of(sub.parent) == "closed"

    await top.later(days=8)
    await top.broker.open_herd("sub")
    closing = [[Outcome(came[0][0].how, came[0][0].why.replace("tied", "closed"))]]
    await note(sub, boxes, closing)
    assert (await seen(top.broker))["sub"].state == "open"


@proves("P16")
async def test_an_order_that_was_held_back_does_not_reach_a_later_herd(top):
    """A frozen scheduler tells a herd to close that has the name of the one that was meant."""
    sub = await below(top, "sub")
    await top.parent.close("lead")
    frozen = await pending(top)
    assert [each.what for each in frozen[0].news] == ["lead.1"]
    await sub.parent.close_herd()
    await top.later(days=8)
    await top.parent.register("lead")
    again = await top.broker.open_herd("sub", under="top/lead")
    await top.scheduler.tick()

    assert await heard(top, frozen) == [[Outcome("gone")]]
    await note(top, frozen, [[Outcome("gone")]])

    assert await state_of(again) == "open" and await led(top) == ("sub",)


@proves("P16")
async def test_many_schedulers_close_a_deep_tree_at_once(url, fleet_name, clock, top):
    """Four levels and more than one sweep each; nothing is left open, nothing ends twice."""
    over, herds = top, []
    for name in ("one", "two", "three", "four"):
        over = await below(over, name, "lead", "scout", settings=HerdSettings(max_open_tasks=1000))
        herds.append(over)
        for number in range(40):
            await over.parent.delegate("scout", str(number))
            await over.parent.message("lead", str(number))
    await top.parent.close("lead")

    await side_by_side(url, fleet_name, clock, passes=5)
    for _ in range(4):
        await top.later(seconds=3)
    for herd in herds:
        assert await state_of(herd.parent) == "closed"
        assert await events(herd, "cancelled") == ["cancelled"] * 40


async def test_a_cancel_is_carried_on_where_one_sweep_does_not_end_it(top):
    """More than 100 tasks: the entry stays until the last is cancelled."""
    sub = await below(top, "sub", "scout", settings=HerdSettings(max_open_tasks=1000))
    task = await top.working(top.children["lead"])
    for number in range(250):
        await sub.parent.delegate("scout", str(number))
    await top.parent.cancel(task.id)
    boxes = await pending(top)
    assert await heard(top, boxes) == [[Outcome("more")]]
    assert len(await sub.parent.tasks("created")) == 150
    top.clock.advance(PATIENCE)
    await top.scheduler.tick()
    assert await sub.parent.tasks("created") == []


@proves("P14")
async def test_a_pass_of_a_cancel_costs_what_it_looks_at_however_many_agents_there_are(top):
    """In a herd of 2,000 idle agents it goes on from pass to pass, to the task of the last."""
    sub = await below(top, "sub")
    await crowd(sub, 2_000)
    last = await sub.child("last")
    part = await sub.working(last)
    task = await top.working(top.children["lead"])
    await top.parent.cancel(task.id)

    passes: list[Outcome] = []
    costs: list[int] = []
    while not passes or passes[-1].how == "more":
        boxes = await pending(top)
        before = await commands(sub)
        ((came,),) = await heard(top, boxes)
        costs.append(await commands(sub) - before)
        passes.append(came)
        await note(top, boxes, [[came]])

    assert await sub.state(part) == "cancelled"
    assert len(passes) >= 2_000 / 100 and max(costs) < 500
    assert await command(sub, "HGET", key_of(sub, "herd"), "walked") is None


async def test_a_cancel_that_found_no_list_of_agents_is_made_up_for(top):
    """Case 14: the list was lost while it went on; repair has it cancel what it passed by."""
    sub = await below(top, "sub", "scout")
    task = await top.working(top.children["lead"])
    part = await sub.working(sub.scout)
    await command(sub, "DEL", key_of(sub, "agents"))
    await top.parent.cancel(task.id)
    await top.scheduler.tick()
    assert await sub.state(part) == "running"
    for _ in range(3):
        await top.later(minutes=6)
    assert await sub.state(part) == "cancelled"


async def test_a_cancel_that_comes_while_another_goes_on_begins_anew(top):
    """The walk of the later one starts at the first agent, and ends what came since the earlier."""
    sub = await below(top, "sub")
    await crowd(sub, 150)
    one = await top.working(top.children["lead"])
    await top.parent.cancel(one.id)
    boxes = await pending(top)
    assert await heard(top, boxes) == [[Outcome("more")]]
    part = await sub.parent.delegate("child0", "begun between the two")
    top.clock.advance(PATIENCE)
    two = await top.working(top.children["lead"])
    await top.parent.cancel(two.id)
    await top.scheduler.tick()
    await top.later(seconds=3)
    assert await sub.state(part) == "cancelled"


async def test_a_task_that_was_written_over_stops_neither_cancel_nor_close(top):
    """It is set aside and told; the others end."""
    sub = await below(top, "sub", "scout", settings=HerdSettings(max_open_tasks=10))
    task = await top.working(top.children["lead"])
    broken, whole = [await sub.parent.delegate("scout", text) for text in ("one", "two")]
    await command(top, "DEL", key_of(sub, "task", task=broken.id))
    await command(top, "SET", key_of(sub, "task", task=broken.id), "nonsense")
    await top.parent.cancel(task.id)
    await top.scheduler.tick()
    assert await sub.state(whole) == "cancelled"
    assert await events(sub, "set_aside") == ["set_aside"]
    await command(top, "DEL", key_of(sub, "task", task=broken.id))
    await command(top, "ZREM", key_of(sub, "tasks"), broken.id)


@proves("P16")
def test_schedulers_that_are_killed_again_and_again(url, fleet_name):
    """SIGKILL at any moment, on real time: all of a tree closes, and no scheduler needs to live."""
    with Broker.connect(url, fleet=fleet_name) as broker:
        top = broker.open_herd("top")
        parents = []
        for number in range(3):
            token = top.register(f"lead-{number}").token
            over = broker.join("top", f"lead-{number}", token or "")
            for level in range(2):
                parent = over.open_herd(f"h-{number}-{level}")  # type: ignore[union-attr]
                parents.append(parent)
                over = broker.join(parent.herd, "lead", parent.register("lead").token or "")
            with Program("scheduler", url, fleet_name) as scheduler:
                scheduler.says("runs")
                if number % 2:
                    top.close(f"lead-{number - 1}")
                scheduler.kill()
        top.close_herd()
        with Program("scheduler", url, fleet_name) as scheduler:
            scheduler.says("runs")
            wait_until(
                lambda: {each.herd_record().state for each in parents} == {"closed"},
                "all herds below to be closed",
            )
