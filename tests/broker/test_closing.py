"""Closing and forgetting: in bounded passes, all of it, and then nothing is left."""

from __future__ import annotations

from datetime import timedelta

import pytest

from tests.fleets import about, command, commands, crowd, key_of
from tests.leftovers import herd_keys
from tests.requirements import proves
from tocsin.broker import agents, errors, herds, keys


async def a_lot(herd) -> dict[str, list[str]]:
    """More of everything than one pass ends, all of it hanging on planner."""
    made: dict[str, list[str]] = {"tasks": [], "asked": [], "asking": [], "mail": []}
    for number in range(130):
        task = await herd.parent.delegate("planner", f"task {number}", queue=number > 0)
        asked = await herd.scout.message("planner", f"asked {number}", expects_reply=True)
        asking = await herd.planner.message("scout", f"asking {number}", expects_reply=True)
        mail = await herd.scout.message("planner", f"mail {number}", delivery="steer")
        made["tasks"].append(task.id)
        made["asked"].append(asked.message_id)
        made["asking"].append(asking.message_id)
        made["mail"].append(mail.message_id)
    return made


@proves("P15")
async def test_an_agent_with_a_lot_hanging_on_it_is_closed_whole(herd):
    """However much: tasks cancelled, questions closed both ways, mail dead, askers told."""
    made = await a_lot(herd)

    await herd.parent.close("planner", reason="not needed")

    assert {task.state for task in await herd.parent.tasks()} == {"cancelled"}
    assert len(await herd.parent.tasks("cancelled")) == 130
    for message in made["asked"]:
        assert (await herd.scout.receipt(message)).request == "agent_closed"
    for message in made["asking"]:
        assert (await herd.scout.receipt(message)).request == "asker_closed"
    for message in made["mail"]:
        assert (await herd.scout.receipt(message)).state == "dead"
    turn = await herd.scout.receive(limit=1000)
    assert {mail.data["request"] for mail in about(turn, "request_closed")} == set(made["asked"])
    info = {agent.agent: agent for agent in await herd.parent.roster()}
    assert (info["planner"].state, info["planner"].unread) == ("closed", 0)
    assert info["scout"].waited_on_by == () and info["scout"].waits_for == ()


async def test_new_work_is_refused_from_the_first_pass_on(herd, broker):
    """Closing begins in one step: whoever comes later is refused, by any pass yet to come."""
    await a_lot(herd)
    assert await broker.run(agents.close(herd.parent.caller, "planner", "enough")) is False

    for call in (
        herd.scout.message("planner", "one more"),
        herd.parent.delegate("planner", "one more", queue=True),
        herd.planner.message("scout", "one more"),
        herd.planner.receive(),
    ):
        with pytest.raises(errors.AgentClosed):
            await call
    with pytest.raises(errors.WrongState):
        await herd.parent.register("planner")


@proves("P16")
async def test_a_scheduler_finishes_a_closing_that_was_broken_off(herd, broker):
    """Whoever began to close an agent may die: a timer goes on until nothing is left."""
    await a_lot(herd)
    assert await broker.run(agents.close(herd.parent.caller, "planner", "enough")) is False

    assert (await herd.scheduler.tick())["closings"] >= 1

    info = {agent.agent: agent for agent in await herd.parent.roster()}
    assert info["planner"].state == "closed"
    assert {task.state for task in await herd.parent.tasks()} == {"cancelled"}


async def test_closing_a_closed_agent_is_nothing(herd):
    """A repeat of closing is the same closing."""
    await herd.parent.close("planner")
    await herd.parent.close("planner")

    assert [line.event for line in await herd.parent.journal()].count("closing") == 1


async def test_who_waits_on_a_closed_agent_runs_on(herd):
    """Its waits end now, not at their deadline, and each asker hears which and why."""
    task, question = await herd.waiting()

    await herd.parent.close("planner", reason="out of budget")

    assert await herd.state(task) == "running"
    (notice,) = about(await herd.scout.next_turn(timeout=1), "request_closed")
    assert notice.data["request"] == question and "out of budget" in notice.body


async def test_closing_tells_the_parent_of_each_settlement(herd):
    """A task that ends by a closing is settled like any other."""
    task = await herd.working(herd.planner)
    await herd.parent.close("planner", reason="enough")

    (settled,) = [mail for mail in await herd.parent.receive() if mail.kind == "task_settled"]
    assert settled.data["status"] == "cancelled" and settled.data["error"] == "enough"
    assert settled.task_id == task.id


async def test_a_herd_is_closed_whole(herd):
    """However much there is, all agents are closed and all tasks cancelled."""
    await a_lot(herd)
    await herd.working(herd.scout)

    await herd.parent.close_herd()

    assert (await herd.parent.herd_record()).state == "closed"
    assert {agent.state for agent in await herd.parent.roster()} == {"closed"}
    assert {task.state for task in await herd.parent.tasks()} == {"cancelled"}


@proves("P14")
async def test_a_pass_over_a_herd_ends_no_more_than_one_over_an_agent(open_herd, broker):
    """However many agents there are: other herds wait for it, too."""
    herd = await open_herd("wide", *(f"child{number}" for number in range(4)))
    for name in herd.children:
        for number in range(60):
            await herd.parent.message(name, f"mail {number}")

    assert await broker.run(herds.close_herd(herd.parent.caller)) is False

    left = sum(agent.unread for agent in await herd.parent.roster())
    assert 240 - herds.SWEEP <= left < 240
    await herd.parent.close_herd()
    assert {agent.state for agent in await herd.parent.roster()} == {"closed"}


@proves("P16")
async def test_a_scheduler_finishes_the_closing_of_a_herd(herd, broker):
    """The parent's process may die after the first pass."""
    await a_lot(herd)
    assert await broker.run(herds.close_herd(herd.parent.caller)) is False

    await herd.scheduler.tick()

    assert (await herd.parent.herd_record()).state == "closed"


async def test_a_closed_herd_can_be_read(herd):
    """For as long as it is kept: its record, roster, tasks, journal; nothing is written."""
    task = await herd.working(herd.scout)
    await herd.parent.close_herd()
    await herd.later(days=6)

    assert await herd.state(task) == "cancelled"
    assert (await herd.parent.journal())[-1].event == "closed"
    for call in (
        herd.parent.message("scout", "hello"),
        herd.parent.register("new"),
        herd.scout.receive(),
        herd.parent.receive(),
    ):
        with pytest.raises(errors.HerdClosed) as refusal:
            await call
        assert "no new work" in refusal.value.detail


@proves("P14")
async def test_a_pass_of_closing_costs_what_it_ends_however_many_agents_there_are(
    broker, open_herd
):
    """The last pass over a herd of 3,000 agents runs no more commands than the first."""
    herd = await open_herd()
    await crowd(herd, 3_000)
    costs, closed = [], False
    before = await commands(herd)
    while not closed:
        closed = await broker.run(herds.close_herd(herd.parent.caller))
        after = await commands(herd)
        costs.append(after - before)
        before = after

    assert len(costs) <= 3_000 / herds.SWEEP + 2
    assert max(costs[1:]) <= costs[0] + 10
    assert {agent.state for agent in await herd.parent.roster()} == {"closed"}


@proves("P15", "P16")
async def test_a_closing_passes_nobody_by_when_agents_are_forgotten_meanwhile(broker, open_herd):
    """Agents that end between two passes, the one it came to among them, shift nobody out of it."""
    herd = await open_herd()
    await crowd(herd, 250)
    for name in ("child0", "child1", "child2"):
        await herd.parent.close(name)
    await broker.run(herds.close_herd(herd.parent.caller))
    walked = await command(herd, "HGET", key_of(herd, "herd"), "walked")
    for name in ("child0", "child1", walked.split()[2]):
        for kind, names in (("agent", {"agent": name}), ("agents", {})):
            key = key_of(herd, kind, **names)
            await command(herd, *(("DEL", key) if kind == "agent" else ("ZREM", key, name)))

    await herd.parent.close_herd()

    assert {agent.state for agent in await herd.parent.roster()} == {"closed"}
    assert await command(herd, "HGET", key_of(herd, "herd"), "walked") is None


@proves("P15")
async def test_retention_of_settled_tasks(herd, url, fleet_name):
    """A settled task is kept seven days, to the millisecond, then nothing of it is left."""
    task, _ = await herd.waiting()
    await herd.later(minutes=20)
    await (await herd.parent.receive()).ack()
    await (await herd.scout.receive()).ack()

    await herd.later(days=7, milliseconds=-1)
    assert (await herd.parent.task(task.id)).state == "blocked"
    await herd.later(milliseconds=1)

    with pytest.raises(errors.UnknownTask):
        await herd.parent.task(task.id)
    of_the_task = {"task", "tasks", "questions", "message", "waiting", "episodes", "reminded"}
    kinds = {keys.kind_of(key) for key in herd_keys(url, fleet_name)}
    assert kinds & of_the_task == set()


@proves("P15")
async def test_retention_of_receipts(herd):
    """A handled envelope's receipt is kept an hour."""
    sent = await herd.scout.message("planner", "one")
    await (await herd.planner.receive()).ack()

    await herd.later(minutes=59)
    assert (await herd.scout.receipt(sent.message_id)).state == "handled"
    await herd.later(minutes=1)

    with pytest.raises(errors.UnknownMessage):
        await herd.scout.receipt(sent.message_id)


async def test_an_unhandled_envelope_has_no_end(herd):
    """What nobody has read is kept however old it is, with its receipt."""
    sent = await herd.scout.message("planner", "one")

    await herd.later(days=100)

    assert (await herd.scout.receipt(sent.message_id)).state == "accepted"
    assert len(await herd.planner.receive()) == 1


@proves("P15")
@pytest.mark.parametrize("days", [0, 1, 30])
async def test_retention_of_a_herd_is_a_setting(open_herd, url, fleet_name, days):
    """A closed herd goes after its `herd_retention`, with all that is younger than that."""
    herd = await open_herd(
        "h",
        "scout",
        "planner",
        herd_retention=timedelta(days=days),
        task_retention=timedelta(days=10),
    )
    await herd.waiting()
    await herd.later(minutes=5)
    await herd.parent.inbox()
    await herd.planner.message("scout", "put off")
    await (await herd.scout.receive()).nack(delay=timedelta(days=300))
    await herd.parent.close_herd()

    if days:
        await herd.later(days=days, milliseconds=-1)
        assert herd_keys(url, fleet_name) != []
        await herd.later(milliseconds=1)
    else:
        await herd.scheduler.tick()

    assert herd_keys(url, fleet_name) == []


@proves("P15")
async def test_a_forgotten_herd_leaves_its_name(herd, broker):
    """Once nothing is left of it a herd of its name can be opened as if it had never been."""
    await herd.parent.close_herd()
    await herd.later(days=7)

    parent = await broker.open_herd(herd.name)

    assert [agent.agent for agent in await parent.roster()] == ["parent"]


@proves("P15")
@pytest.mark.parametrize("moment", ["shown", "taken", "unread", "handed back"])
async def test_a_reminder_leaves_nothing_behind(herd, url, fleet_name, moment):
    """A herd that is closed around a reminder forgets it too, wherever it was."""
    await herd.waiting()
    await herd.later(minutes=5)
    if moment == "shown":
        await herd.parent.inbox()
    elif moment != "unread":
        turn = await herd.parent.receive()
        if moment == "handed back":
            await turn.nack()

    await herd.parent.close_herd()
    await herd.later(days=7)

    assert herd_keys(url, fleet_name) == []
