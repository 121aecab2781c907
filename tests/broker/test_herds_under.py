"""A child leads a herd of its own: who may open it, what it shows, what ends it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any

import pytest

from tests.fleets import Herd, HerdMaker, about, command, key_of
from tests.leftovers import herd_keys
from tests.requirements import proves
from tocsin.broker import AsyncBroker, AsyncParent, HerdSettings, HerdTree, errors, keys, ties


@pytest.fixture(params=[1, 16])
async def broker(url, fleet_name, clock, request) -> AsyncIterator[AsyncBroker]:
    """A fleet of one partition, and one in which the herds of these tests live in several."""
    async with AsyncBroker.connect(
        url, fleet=fleet_name, clock=clock, partitions=request.param
    ) as broker:
        yield broker


@pytest.fixture
async def top(open_herd: HerdMaker) -> Herd:
    """The herd whose child leads another."""
    return await open_herd("top", "lead", "scout")


async def below(over: Herd, name: str = "sub", *children: str, **how: Any) -> Herd:
    """A herd that the lead of another opens under itself, and their tie."""
    parent = await over.children["lead"].open_herd(name, **how)
    herd = Herd(over.broker, over.clock, over.scheduler, parent)
    for child in children:
        await herd.child(child)
    await over.scheduler.tick()
    return herd


async def state_of(parent: AsyncParent) -> str:
    return (await parent.herd_record()).state


async def led(herd: Herd, agent: str = "lead") -> tuple[str, ...]:
    """The herds that the roster shows for an agent."""
    return next(each.herds for each in await herd.parent.roster() if each.agent == agent)


async def seen(broker: AsyncBroker) -> dict[str, HerdTree]:
    """Every herd of the tree, by name."""
    return {each.herd: each for top in await broker.tree() for each in top.walk()}


async def events(herd: Herd, *wanted: str) -> list[str]:
    """The lines of the journal with these names."""
    return [line.event for line in await herd.parent.journal(limit=1000) if line.event in wanted]


def test_the_herds_of_these_tests_live_in_several_partitions():
    """With 16 of them, that is."""
    numbers = [keys.partition_of(name, 16) for name in ("top", "sub", "deeper")]
    assert len(set(numbers)) == 3


async def test_a_herd_under_a_child_shows_in_the_roster_and_in_the_tree(top, scheduler):
    """As claimed from the moment it is open, as tied once both herds have it in their records."""
    lead = top.children["lead"]
    sub = await lead.open_herd("sub")
    assert (await sub.herd_record()).under == "top/lead"
    assert (await seen(top.broker))["sub"].tie == "claimed"
    assert await led(top) == ()

    assert await scheduler.tick() == {"ties": 1}

    (tree,) = await top.broker.tree()
    assert tree.herd == "top" and tree.tie is None
    assert [(each.herd, each.under, each.tie) for each in tree.herds] == [
        ("sub", "top/lead", "tied")
    ]
    assert await led(top) == ("sub",)
    assert await events(top, "herd_under") == ["herd_under"]
    assert await scheduler.tick() == {}


async def test_it_is_opened_through_the_broker_by_whoever_serves_the_agent_or_its_parent(
    top, url, fleet_name, clock
):
    """The broker that joined one of them proves it; elsewhere the agent's token does."""
    await top.broker.open_herd("one", under="top/lead")
    async with AsyncBroker.connect(url, fleet=fleet_name, clock=clock) as other:
        with pytest.raises(errors.Unauthorized, match="under_token"):
            await other.open_herd("two", under="top/lead")
        with pytest.raises(errors.Unauthorized):
            await other.open_herd("two", under="top/lead", under_token=top.children["scout"].token)
        await other.open_herd("two", under="top/lead", under_token=top.children["lead"].token)
        await other.join("top", "parent", top.parent.token)
        await other.open_herd("three", under="top/lead")
    await top.scheduler.tick()
    assert await led(top) == ("one", "three", "two")


@proves("P13")
async def test_a_sibling_cannot_open_a_herd_under_another_child(top, url, fleet_name, clock):
    """Case 29: it proves itself, and that is not who would lead the herd."""
    async with AsyncBroker.connect(url, fleet=fleet_name, clock=clock) as other:
        await other.join("top", "scout", top.children["scout"].token)
        with pytest.raises(errors.Unauthorized):
            await other.open_herd("sub", under="top/lead")
    assert "sub" not in await seen(top.broker)


@pytest.mark.parametrize("under", ["top", "top/", "TOP/lead", "top/lead/x", 7, "sub/lead"])
async def test_what_is_no_place_for_a_herd_is_refused_before_anything_is_sent(top, under):
    """`under` is herd/agent, and not the herd itself."""
    with pytest.raises(errors.InvalidInput, match="under"):
        await top.broker.open_herd("sub", under=under)


async def test_the_herd_and_the_agent_above_must_be_there_and_open(top, open_herd):
    """Nobody opens a herd under what is not, or is closing, or has closed."""
    lead = top.children["lead"]
    with pytest.raises(errors.UnknownAgent):
        await top.broker.open_herd("sub", under="top/nobody")
    with pytest.raises(errors.UnknownHerd):
        await top.broker.open_herd("sub", under="nowhere/lead", under_token=lead.token)
    await top.parent.close("lead")
    with pytest.raises(errors.AgentClosed):
        await lead.open_herd("sub")
    await top.parent.register("lead")
    with pytest.raises(errors.AgentClosed, match="earlier generation"):
        await lead.open_herd("sub")
    scout = top.children["scout"]
    await command(top, "HSET", key_of(top, "herd"), "state", "closing")
    with pytest.raises(errors.HerdClosed):
        await scout.open_herd("sub")
    await command(top, "HSET", key_of(top, "herd"), "state", "open")
    assert set(await seen(top.broker)) == {"top"}


async def test_levels_are_bounded_and_no_herd_below_can_raise_that(open_herd):
    """The lowest `max_levels_under` of all herds above counts."""
    top = await open_herd("top", "lead", max_levels_under=2)
    sub = await below(top, "sub", "lead", settings=HerdSettings(max_levels_under=50))
    deep = await below(sub, "deep", "lead", settings=HerdSettings(max_levels_under=50))
    with pytest.raises(errors.Forbidden, match="max_levels_under"):
        await deep.children["lead"].open_herd("deeper")


async def test_how_many_herds_an_agent_leads_is_bounded(open_herd):
    """`max_herds_under`; one that was closed makes room."""
    top = await open_herd("top", "lead", max_herds_under=1)
    sub = await below(top)
    with pytest.raises(errors.AgentBusy, match="max_herds_under"):
        await top.children["lead"].open_herd("more")
    await sub.parent.close_herd()
    await top.scheduler.tick()
    await top.children["lead"].open_herd("more")


async def test_a_burst_of_openings_is_bounded_before_any_of_them_was_heard_of(open_herd):
    """Case 1: a herd counts from its opening on, once each, however often that is repeated."""
    top = await open_herd("top", "lead", max_herds_under=3)
    lead = top.children["lead"]
    opening = [lead.open_herd(f"sub-{number}") for number in range(10)]
    came = await asyncio.gather(*opening, return_exceptions=True)
    parents = [each for each in came if isinstance(each, AsyncParent)]
    refused = [each for each in came if isinstance(each, errors.AgentBusy)]
    assert (len(parents), len(refused)) == (3, 7)
    with pytest.raises(errors.HerdExists):  # its name counts already
        await lead.open_herd(parents[0].herd)
    assert await led(top) == ()

    await top.scheduler.tick()

    assert await led(top) == tuple(sorted(each.herd for each in parents))
    assert await events(top, "herd_under") == ["herd_under"] * 3
    await parents[0].close_herd()
    await top.scheduler.tick()
    await lead.open_herd("one-more")


@pytest.mark.parametrize("found_by", ["the next opening", "repair"])
async def test_a_herd_that_was_never_made_does_not_count_for_long(open_herd, found_by):
    """Its opener died between the two steps, or its name was another's."""
    top = await open_herd("top", "lead", max_herds_under=2)
    lead = top.children["lead"]
    await top.broker.open_herd("taken")
    with pytest.raises(errors.HerdExists):
        await lead.open_herd("taken")
    await top.broker.run(ties.prove(lead.caller, "lead", None, "never"))
    await top.scheduler.tick()
    with pytest.raises(errors.AgentBusy):
        await lead.open_herd("one")

    await top.later(minutes=1)
    if found_by == "repair":
        await top.later(minutes=10)
    else:
        for _ in range(2):
            with pytest.raises(errors.AgentBusy):
                await lead.open_herd("one")
    await top.later(minutes=1)

    one, two = [await lead.open_herd(name) for name in ("one", "two")]
    await top.scheduler.tick()
    assert await led(top) == (one.herd, two.herd)


@pytest.mark.parametrize("seconds", [5, 30, 61])
async def test_trying_again_and_again_keeps_no_place_for_a_herd_that_was_never_made(
    open_herd, seconds
):
    """Its place is free within some minutes, however often somebody asks for it."""
    top = await open_herd("top", "lead", max_herds_under=1)
    lead = top.children["lead"]
    await top.broker.open_herd("taken")
    with pytest.raises(errors.HerdExists):
        await lead.open_herd("taken")
    tries = 0
    while True:
        try:
            await lead.open_herd("one")
            break
        except errors.AgentBusy:
            tries += 1
            assert tries * seconds < 200
        await top.later(seconds=seconds)
    await top.scheduler.tick()
    assert await led(top) == ("one",)


async def test_a_herd_that_is_opened_after_all_keeps_its_place(open_herd):
    """What the look before found out says nothing of it."""
    top = await open_herd("top", "lead", max_herds_under=1)
    lead = top.children["lead"]
    await top.broker.run(ties.prove(lead.caller, "lead", None, "late"))
    top.clock.advance(timedelta(minutes=1))
    with pytest.raises(errors.AgentBusy):  # looks for it
        await lead.open_herd("one")
    await top.broker.run(ties.prove(lead.caller, "lead", None, "late"))
    await top.scheduler.tick()
    with pytest.raises(errors.AgentBusy):
        await lead.open_herd("one")


async def test_a_herd_stays_where_it_was_opened(top):
    """It is reopened with its own token alone, or with the place it has, and with no other."""
    sub = await below(top)
    for under in (None, "top/lead"):
        again = await top.broker.open_herd("sub", under=under, token=sub.parent.token)
        assert (await again.herd_record()).under == "top/lead"
    for name, token in (("sub", sub.parent.token), ("top", top.parent.token)):
        with pytest.raises(errors.HerdExists, match="under"):
            await top.broker.open_herd(name, under="other/scout", token=token)
    with pytest.raises(errors.HerdExists):
        await top.children["scout"].open_herd("sub")


async def test_closing_the_child_closes_the_herd_under_it_and_all_below(top, scheduler):
    """Case 15: level by level, in one pass of forwarding; what they held is cancelled."""
    sub = await below(top, "sub", "lead")
    deep = await below(sub, "deep", "lead")
    deeper = await below(deep, "deeper", "scout")
    task = await deeper.working(deeper.scout)

    await top.parent.close("lead")
    await scheduler.tick()

    for herd in (sub, deep, deeper):
        assert await state_of(herd.parent) == "closed"
    assert await deeper.state(task) == "cancelled"
    assert await state_of(top.parent) == "open"
    assert {name: each.tie for name, each in (await seen(top.broker)).items()} == {
        "top": None,
        "sub": "tied",
        "deep": "tied",
        "deeper": "tied",
    }


@proves("P15")
async def test_closing_a_herd_closes_all_below_and_nothing_is_left(top, url, fleet_name):
    """Also where a herd below has more to end than one sweep does."""
    sub = await below(top, "sub", "scout")
    for number in range(350):
        await sub.parent.message("scout", f"note {number}")
    await top.parent.close_herd()
    await top.scheduler.tick()
    assert await state_of(sub.parent) == "closed"
    await top.later(days=8)
    await top.later(days=8)
    await top.later(days=30)
    assert herd_keys(url, fleet_name) == []


async def test_a_herd_that_its_own_parent_closes_goes_from_the_list_of_the_one_above(top):
    """And the name may be used again there."""
    sub = await below(top)
    await sub.parent.close_herd()
    await top.scheduler.tick()
    assert await led(top) == ()
    assert await events(top, "herd_under", "herd_ended") == ["herd_under", "herd_ended"]
    await top.later(days=8)
    again = await below(top)
    assert await state_of(again.parent) == "open" and await led(top) == ("sub",)


async def test_a_cancel_cancels_what_the_herds_under_the_child_do_for_it(top):
    """All their open tasks, also those that wait for a slot, level by level; they stay open."""
    sub = await below(top, "sub", "lead", "scout")
    deep = await below(sub, "deep", "scout")
    task = await top.working(top.children["lead"])
    held, queued = await sub.working(sub.children["lead"]), None
    queued = await sub.parent.delegate("lead", "then this", queue=True)
    other = await sub.parent.delegate("scout", "not begun")
    last = await deep.working(deep.scout)

    await top.parent.cancel(task.id, reason="no longer wanted")
    await top.scheduler.tick()

    for id_ in (held.id, queued.id, other.id):
        assert await sub.state(id_) == "cancelled"
    assert await deep.state(last) == "cancelled"
    settled = (await sub.parent.task(held.id)).settlement
    assert settled is not None
    assert settled.error == f"task {task.id} of top/lead was cancelled: no longer wanted"
    (notice, *_) = about(await sub.children["lead"].receive(), "task_ended")
    assert notice.delivery == "steer" and notice.data["state"] == "cancelled"
    assert await state_of(sub.parent) == "open"


async def test_a_cancel_that_comes_late_leaves_newer_work_alone(top):
    """What was delegated after the cancel serves something else."""
    sub = await below(top, "sub", "scout", "other")
    task = await top.working(top.children["lead"])
    old = await sub.working(sub.scout)
    await top.parent.cancel(task.id)
    top.clock.advance(timedelta(milliseconds=1))
    new = await sub.working(sub.children["other"])
    await top.scheduler.tick()
    assert await sub.state(old) == "cancelled" and await sub.state(new) == "running"


async def test_a_cancel_of_what_the_child_had_not_begun_touches_no_herd_under_it(top):
    """A task in its inbox, or behind another in its queue, is served by nobody yet."""
    sub = await below(top, "sub", "scout")
    work = await sub.working(sub.scout)
    task = await top.parent.delegate("lead", "not begun")
    await top.parent.cancel(task.id)
    await top.scheduler.tick()
    assert await sub.state(work) == "running"


async def test_a_task_that_ends_otherwise_leaves_the_herds_under_its_child_alone(top):
    """Only a cancel says that the work is not wanted."""
    sub = await below(top, "sub", "scout")
    work = await sub.working(sub.scout)
    for outcome in ("completed", "failed"):
        task = await top.working(top.children["lead"])
        await top.children["lead"].done(task.id, outcome)
    await top.scheduler.tick()
    assert await sub.state(work) == "running"


async def test_a_herd_for_one_task_is_touched_by_the_cancel_of_that_one_alone(open_herd):
    """`task=` says which, for a child that holds several at a time."""
    top = await open_herd("top", "lead", "scout", max_open_tasks=2)
    lead = top.children["lead"]
    one, two = await top.working(lead), await top.working(lead)
    with pytest.raises(errors.UnknownTask):
        await lead.open_herd("sub", task="task_unknown")
    sub = await below(top, "sub", "scout", task=one.id)
    assert (await seen(top.broker))["sub"].task == one.id
    work = await sub.working(sub.scout)
    await top.parent.cancel(two.id)
    await top.scheduler.tick()
    assert await sub.state(work) == "running"
    await top.parent.cancel(one.id)
    await top.scheduler.tick()
    assert await sub.state(work) == "cancelled"
    with pytest.raises(errors.WrongState):
        await lead.open_herd("late", task=one.id)


async def test_a_cancel_between_the_opening_and_the_tie_is_caught_up(top):
    """The herd above tells of it when it hears of the one below."""
    task = await top.working(top.children["lead"])
    parent = await top.children["lead"].open_herd("sub")
    sub = Herd(top.broker, top.clock, top.scheduler, parent)
    await sub.child("scout")
    work = await sub.working(sub.scout)
    await top.parent.cancel(task.id)
    await top.scheduler.tick()
    assert await sub.state(work) == "cancelled"


async def test_a_child_that_was_closed_between_the_opening_and_the_tie(top):
    """The herd that comes too late under it closes, as it would have a moment before."""
    parent = await top.children["lead"].open_herd("sub")
    await top.parent.close("lead")
    assert (await seen(top.broker))["sub"].tie == "closing"
    await top.scheduler.tick()
    assert await state_of(parent) == "closed"


async def test_a_child_whose_name_was_taken_again_before_the_tie(top):
    """The herd that it was opening closes with it, and is no orphan of the next of that name."""
    parent = await top.children["lead"].open_herd("sub")
    await top.parent.close("lead")
    await top.parent.register("lead")
    await top.scheduler.tick()
    assert await state_of(parent) == "closed"
    assert await led(top) == ()


async def orphaned(herd: Herd, why: str) -> None:
    """It is listed as an orphan, its parent knows, and its own work goes on."""
    found = (await seen(herd.broker))[herd.name]
    assert found.tie == "orphaned" and why in (found.reason or "")
    assert [each.herd for each in await herd.broker.tree()].count(herd.name) == 1, "at the top"
    assert await events(herd, "orphaned") == ["orphaned"]
    (notice,) = about(await herd.parent.inbox(), "herd_orphaned")
    assert not notice.trigger_turn and why in notice.body
    task = await herd.working(herd.scout)
    assert await herd.state(task) == "running"


async def test_an_orphan_whose_child_above_is_of_another_generation(top):
    """The tie was never confirmed, and the name belongs to somebody else by now."""
    parent = await top.children["lead"].open_herd("sub")
    sub = Herd(top.broker, top.clock, top.scheduler, parent)
    await sub.child("scout")
    await command(top, "DEL", key_of(top, "leads", agent="lead"))  # an older version noted nothing
    await top.parent.close("lead")
    await top.parent.register("lead")
    await top.scheduler.tick()
    await orphaned(sub, "another generation")
    assert await led(top) == ()


@pytest.mark.parametrize("what", ["herd", "agent"])
async def test_an_orphan_whose_herd_or_child_above_is_gone(top, what):
    """The tree says so at once, repair tells the orphan itself."""
    sub = await below(top, "sub", "scout")
    gone = key_of(top, "herd") if what == "herd" else key_of(top, "agent", agent="lead")
    await forget(top, gone)
    assert (await seen(top.broker))["sub"].tie == "orphaned"
    await top.later(minutes=11)
    await top.scheduler.tick()
    await orphaned(sub, "any more")


async def test_a_closed_herd_is_no_orphan(top):
    """What was above it may have been forgotten since."""
    sub = await below(top, "sub", "scout")
    await sub.parent.close_herd()
    await sub.scheduler.tick()
    await forget(top, key_of(top, "herd"))
    found = (await seen(top.broker))["sub"]
    assert (found.state, found.tie) == ("closed", "tied")


async def forget(herd: Herd, prefix: str) -> None:
    """Deletes all keys of a herd or an agent, as nobody should."""
    async for each in herd.broker.link.keys("test", prefix.replace("{", "[{]") + "*"):
        await command(herd, "DEL", each)
    fleet = await herd.broker.fleet()
    for index in ("herds", "timers") if prefix == key_of(herd, "herd") else ():
        await command(herd, "ZREM", f"{fleet.partition(herd.name)}:{index}", herd.name)


async def test_a_new_herd_of_the_name_above_is_not_taken_for_the_old_one(top, open_herd):
    """A herd under the old one is an orphan; nothing of the new one reaches it."""
    sub = await below(top, "sub", "scout")
    await command(top, "HSET", key_of(top, "herd"), "opened_by", "inst_another")
    await top.later(minutes=11)
    await top.scheduler.tick()
    await orphaned(sub, "is another")
    work = await sub.parent.task((await sub.parent.tasks())[0].id)
    await top.parent.close_herd()
    await top.scheduler.tick()
    assert await sub.state(work) == "running" and await state_of(sub.parent) == "open"


async def test_what_was_lost_of_a_tie_repair_makes_again(top):
    """The list above, a claim, an order to close: each follows from the records."""
    sub = await below(top, "sub", "scout")
    await command(top, "DEL", key_of(top, "leads", agent="lead"))
    await top.later(minutes=11)
    await top.scheduler.tick()
    assert await led(top) == ("sub",)

    await top.parent.close("lead")
    await command(top, "DEL", key_of(top, "outbox"))
    await top.scheduler.tick()
    assert await state_of(sub.parent) == "open"
    await top.later(minutes=11)
    await top.scheduler.tick()
    assert await state_of(sub.parent) == "closed"


async def test_a_list_that_names_a_herd_that_is_not_there_is_mended(top):
    """Its name goes, whether that herd never was, or is under somebody else."""
    await top.broker.open_herd("alone")
    for name in ("nobody", "alone"):
        await command(top, "HSET", key_of(top, "leads", agent="lead"), name, "0 ")
    await top.later(minutes=11)
    await top.scheduler.tick()
    assert await led(top) == ()


async def test_two_herds_of_one_name_that_are_opened_at_once(top):
    """One is there, under whoever was first; the other opener is refused."""
    lead, scout = top.children["lead"], top.children["scout"]
    first = await lead.open_herd("sub")
    with pytest.raises(errors.HerdExists):
        await scout.open_herd("sub")
    await top.scheduler.tick()
    assert await led(top) == ("sub",) and await led(top, "scout") == ()
    assert (await first.herd_record()).under == "top/lead"


async def test_two_hundred_herds_under_one_agent_close_with_it(top):
    """Each hears of it, none is left out."""
    lead = top.children["lead"]
    parents = [await lead.open_herd(f"sub-{number}") for number in range(200)]
    await top.scheduler.tick()
    assert len(await led(top)) == 200
    await top.parent.close("lead")
    await top.scheduler.tick()
    assert {await state_of(parent) for parent in parents} == {"closed"}


async def test_an_agent_whose_record_was_lost_closes_with_its_herd(top):
    """The herd under it learns from the closed herd that it ends, too."""
    sub = await below(top, "sub")
    await command(top, "DEL", key_of(top, "agent", agent="lead"))
    await top.parent.close_herd()
    await top.later(minutes=11)
    await top.scheduler.tick()
    assert await state_of(sub.parent) == "closed"


async def test_a_tie_that_nobody_can_read_goes(top):
    """It holds up what else is forwarded between the two herds until repair finds it."""
    sub = await below(top, "sub")
    outbox = key_of(top, "outbox")
    await command(top, "ZADD", outbox, 0, "sub/00000000000000001/@tie/nonsense/")
    await top.parent.close("lead")
    assert (await top.scheduler.repair()).counts["top", "outbox"] == 1
    await top.later(minutes=11)
    assert await state_of(sub.parent) == "closed"
