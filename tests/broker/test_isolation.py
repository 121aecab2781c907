"""Herds and agents apart: tokens prove who calls, and no herd reaches another."""

from __future__ import annotations

from datetime import timedelta

import pytest

from tests.fleets import bodies
from tests.leftovers import herd_keys
from tests.requirements import proves
from tocsin.broker import (
    AsyncBroker,
    HerdSettings,
    agents,
    errors,
    herds,
    ids,
    keys,
    requests,
    tasks,
    timers,
)

# ------------------------------------------------------------------ tokens


@proves("P13")
@pytest.mark.parametrize("agent", ["parent", "scout", "planner"])
async def test_each_agent_is_proven_by_its_own_token_only(herd, agent):
    """A token opens the seat it was made for and no other of the herd."""
    tokens = {
        "parent": herd.parent.token,
        "scout": herd.scout.token,
        "planner": herd.planner.token,
    }
    for whose, token in tokens.items():
        if whose == agent:
            assert (await herd.broker.join(herd.name, agent, token)).agent == agent
        else:
            with pytest.raises(errors.Unauthorized):
                await herd.broker.join(herd.name, agent, token)


@proves("P13")
async def test_a_rotated_token_stops_at_once(herd):
    """The new token works everywhere, the old one nowhere, for instances that run too."""
    task = await herd.working(herd.scout)
    seat = await herd.parent.rotate("scout")

    for call in (
        herd.scout.receive(),
        herd.scout.message("planner", "x"),
        herd.scout.done(task.id),
    ):
        with pytest.raises(errors.Unauthorized):
            await call
    with pytest.raises(errors.Unauthorized):
        await herd.broker.join(herd.name, "scout", herd.scout.token)
    scout = await herd.another("scout", seat.token)
    assert seat.generation == 1
    assert (await scout.done(task.id)).ok, "it is the same agent, with its task"


@proves("P13")
async def test_the_parents_token_rotates_too(herd, broker):
    """A parent that gives itself a new token reopens the herd with that one only."""
    seat = await herd.parent.rotate("parent")

    with pytest.raises(errors.Unauthorized):
        await broker.open_herd(herd.name, token=herd.parent.token)
    assert (await broker.open_herd(herd.name, token=seat.token)).token == seat.token


async def test_nobody_rotates_the_token_of_another(herd, broker):
    """An agent may change its own token; those of others are the parent's to change."""
    token = ids.make_token()
    with pytest.raises(errors.Forbidden):
        await broker.run(agents.rotate(herd.scout.caller, "planner", token))

    await broker.run(agents.rotate(herd.scout.caller, "scout", token))
    await herd.another("scout", token)


@proves("P13")
async def test_only_hashes_of_tokens_are_stored(herd, broker):
    """No secret is in the store, as it is or in part."""
    tokens = [herd.parent.token, herd.scout.token, herd.planner.token]
    for key in herd_keys(broker.server.url, broker.name):
        if keys.kind_of(key) in {"agent", "herd"}:
            stored = str(await broker.link.command("look", "HGETALL", key))
            assert [token for token in tokens if token[4:] in stored] == []


@proves("P13")
@pytest.mark.parametrize(
    "deed",
    ["register", "delegate", "cancel", "close", "close_herd", "settings", "watch", "remind"],
)
async def test_what_is_the_parents_to_do_is_refused_to_children(herd, broker, deed):
    """A child that calls as itself what only a parent may do is refused, in the journal."""
    task, question = await herd.waiting()
    me = herd.scout.caller
    calls = {
        "register": agents.register(me, "new", ids.make_token(), None, None, False),
        "delegate": tasks.delegate(
            me,
            "planner",
            "x",
            deadline=None,
            watch=False,
            queue=False,
            continues=None,
            key=None,
        ),
        "cancel": tasks.cancel(me, task.id, None),
        "close": agents.close(me, "planner", None),
        "close_herd": herds.close_herd(me),
        "settings": herds.set_settings(me, HerdSettings(stale_wait_threshold=0), "argument"),
        "watch": tasks.watch(me, [task.id], "each"),
        "remind": requests.remind(me, question),
    }

    with pytest.raises(errors.Forbidden):
        await broker.run(calls[deed])

    assert await herd.state(task) == "waiting"
    (line,) = [line for line in await herd.parent.journal() if line.event == "refused"]
    assert line.fields["agent"] == "scout" and line.fields["code"] == "forbidden"


@proves("P13")
async def test_a_child_sees_only_tasks_of_its_own(herd):
    """Its listing has its own tasks; another's is refused by name."""
    mine, other = await herd.working(herd.scout), await herd.working(herd.planner)

    assert [task.id for task in await herd.scout.tasks()] == [mine.id]
    assert (await herd.scout.task(mine.id)).id == mine.id
    with pytest.raises(errors.Forbidden):
        await herd.scout.task(other.id)
    with pytest.raises(errors.Forbidden):
        await herd.scout.message("parent", "about that", task=other.id)


@proves("P13")
async def test_a_receipt_is_for_those_concerned(herd):
    """Sender, recipient and parent may read a receipt; a third agent may not."""
    sent = await herd.scout.message("planner", "between us")
    architect = await herd.child("architect")

    for reader in (herd.scout, herd.planner, herd.parent):
        assert (await reader.receipt(sent.message_id)).state == "accepted"
    with pytest.raises(errors.Forbidden):
        await architect.receipt(sent.message_id)


# ------------------------------------------------------------------ herds


@pytest.fixture
async def other(open_herd):
    """A second herd of the same fleet, whose agents have the same names."""
    return await open_herd("other", "scout", "planner")


@proves("P13", "P14")
async def test_a_token_of_one_herd_is_worth_nothing_in_another(herd, other, broker):
    """The same names in another herd are other agents."""
    for agent, token in (("parent", herd.parent.token), ("scout", herd.scout.token)):
        with pytest.raises(errors.Unauthorized):
            await broker.join(other.name, agent, token)


@proves("P14")
async def test_ids_of_one_herd_mean_nothing_in_another(herd, other):
    """Tasks, questions and messages of another herd are unknown, not forbidden."""
    task, question = await herd.waiting()
    calls = {
        errors.UnknownTask: [
            other.parent.task(task.id),
            other.parent.cancel(task.id),
            other.parent.watch(task.id),
            other.scout.done(task.id),
            other.scout.message("planner", "x", task=task.id),
            other.parent.delegate("scout", "x", continues=task.id),
        ],
        errors.UnknownMessage: [
            other.parent.reply(question, "x"),
            other.parent.remind(question),
            other.parent.reroute(question, "scout"),
            other.parent.cancel_request(question),
            other.parent.receipt(question),
            other.planner.ack(question),
        ],
    }
    for error, refused in calls.items():
        for call in refused:
            with pytest.raises(error):
                await call
    assert await herd.state(task) == "waiting"


@proves("P14")
async def test_herds_do_not_meet(herd, other):
    """Mail, tasks, reminders and journals of two herds with the same names stay apart."""
    task, _ = await herd.waiting("of the one")
    theirs, _ = await other.waiting("of the other")
    await herd.later(minutes=5)

    assert bodies(await herd.planner.receive()) == ["of the one"]
    assert bodies(await other.planner.receive()) == ["of the other"]
    assert [mail.data["task"] for mail in await herd.parent.receive()] == [task.id]
    assert [mail.data["task"] for mail in await other.parent.receive()] == [theirs.id]
    assert [known.id for known in await herd.parent.tasks()] == [task.id]
    assert theirs.id not in str(await herd.parent.journal(limit=1000))


@proves("P14")
async def test_closing_one_herd_leaves_the_other(herd, other):
    """A herd that ends takes nothing of another with it."""
    task, _ = await other.waiting()
    await herd.parent.close_herd()
    await herd.later(days=7)

    assert [name for name, _, _ in await herd.broker.herds()] == ["other"]
    assert await other.state(task) == "blocked"
    assert len(await other.parent.receive()) > 0


@proves("P14")
async def test_a_broken_record_of_one_herd_stops_no_other(herd, other, broker):
    """A timer that cannot be served is set aside and reported; everything else fires."""
    still = await herd.working(herd.planner)
    task, question = await herd.waiting()
    await other.waiting()
    fleet = await broker.fleet()
    record = keys.below(fleet.partition(herd.name), "message", herd=herd.name, message=question)
    await broker.link.command("break", "RENAME", record, f"{record}:aside")
    await broker.link.command("break", "SET", record, "not a hash")

    fired = await herd.later(hours=24)

    assert fired["set_aside"] == 2 and fired["reply_deadlines"] == 1
    assert await herd.state(still) == "timed_out"
    aside = [line for line in await herd.parent.journal() if line.event == "set_aside"]
    assert [line.fields["timer"] for line in aside] == [
        f"2:reply:{question}",
        f"1:deadline:{task.id}",
    ]
    assert await herd.state(task) == "waiting", "nothing was half done"
    await broker.link.command("mend", "RENAME", f"{record}:aside", record)


@proves("P14")
async def test_fleets_of_one_server_do_not_meet(herd, url, clock):
    """A fleet is a world of its own: the same names mean nothing in another."""
    async with AsyncBroker.connect(url, fleet=f"{herd.broker.name}x", clock=clock) as elsewhere:
        with pytest.raises(errors.UnknownHerd):
            await elsewhere.join(herd.name, "scout", herd.scout.token)
        assert await elsewhere.herds() == []


@proves("P14")
async def test_a_herd_with_a_backlog_starves_no_other(open_herd, clock):
    """A herd goes to the tail after each visit, so another's one timer need not wait for it."""
    busy = await open_herd("busy", "scout", "planner", max_open_tasks=1000)
    for number in range(250):
        task = await busy.parent.delegate("scout", str(number))
        await busy.scout.message("planner", "?", task=task.id, expects_reply=True)
    names = iter(f"other-{number}" for number in range(1000))
    fleet = await busy.broker.fleet()
    neighbour = await open_herd(
        next(name for name in names if fleet.partition(name) == fleet.partition("busy")),
        "scout",
        "planner",
    )
    clock.advance(timedelta(seconds=1))
    await neighbour.waiting()
    clock.advance(timedelta(minutes=5, milliseconds=1))

    order = []
    for _ in range(3):
        due = await busy.broker.run(timers.due(fleet, fleet.partition("busy"), 1))
        order += due.herds
        await busy.broker.run(timers.visit(fleet, due.herds[0], 100))

    assert neighbour.name in order[:2]
