"""Presence: leases, recovery of mail, absences, generations."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from datetime import timedelta

import pytest

from tests.fleets import Herd, about, bodies, token_of
from tests.leftovers import herd_keys
from tests.requirements import proves
from tests.waiting import wait_until_async
from tocsin.broker import AsyncBroker, AsyncChild, HerdSettings, errors
from tocsin.broker.caller import Caller
from tocsin.broker.leases import Leases
from tocsin.broker.testing import lapse

LEASE = timedelta(milliseconds=400)
GRACE = timedelta(milliseconds=800)
RENEWAL = timedelta(milliseconds=100)


def dies(instance) -> None:
    """What a killed or frozen process looks like from outside: nobody renews its lease."""
    instance.broker.forget(instance)


@pytest.fixture
async def real_broker(url: str, fleet_name: str) -> AsyncIterator[AsyncBroker]:
    """A broker on the server's own time, where leases run."""
    async with AsyncBroker.connect(url, fleet=fleet_name) as broker:
        yield broker


@pytest.fixture
async def pair(real_broker) -> tuple:
    """A parent and two instances of one child, with leases that are short."""
    settings = HerdSettings(lease=LEASE, grace=GRACE, lease_renewal=RENEWAL)
    parent = await real_broker.open_herd("h", settings=settings)
    seat = await parent.register("planner")
    first = await real_broker.join("h", "planner", seat.token)
    second = await real_broker.join("h", "planner", seat.token)
    return parent, first, second


# ------------------------------------------------------------------ recovery follows liveness


@proves("P12", "P16")
async def test_mail_of_a_dead_holder_goes_to_another(pair):
    """When its holder's lease is gone mail goes to another instance, a grace later, counted."""
    parent, first, second = pair
    sent = await parent.message("planner", "one")
    turn = await first.next_turn(timeout=1)
    since = time.monotonic()
    dies(first)

    again = await second.next_turn(timeout=10)

    assert time.monotonic() - since >= GRACE.total_seconds()
    assert [(mail.message_id, mail.attempts) for mail in again] == [(sent.message_id, 1)]
    await turn.ack()
    assert turn.fenced == (sent.message_id,)


@proves("P12")
async def test_mail_of_a_slow_holder_stays_with_it(pair):
    """A live instance keeps what it took for as long as it takes, several leases long."""
    parent, first, second = pair
    await parent.message("planner", "slow")
    turn = await first.next_turn(timeout=1)

    assert await second.next_turn(timeout=3 * LEASE) is None
    await turn.ack()
    assert turn.fenced == ()


async def test_a_handler_that_blocks_its_event_loop_keeps_its_lease(pair):
    """Leases are renewed beside the loop, not on it."""
    parent, first, second = pair
    await parent.message("planner", "heavy")
    turn = await first.next_turn(timeout=1)

    until = time.monotonic() + 3 * LEASE.total_seconds()
    while time.monotonic() < until:
        sum(range(10_000))

    assert len(await second.receive()) == 0
    await turn.ack()
    assert turn.fenced == ()


@proves("P16")
async def test_an_instance_that_was_frozen_gets_its_grace(real_broker):
    """Back within the grace after it was first missed, an instance loses nothing."""
    parent = await real_broker.open_herd(
        "h", settings=HerdSettings(lease=timedelta(milliseconds=200), grace=timedelta(seconds=30))
    )
    seat = await parent.register("planner")
    first = await real_broker.join("h", "planner", seat.token)
    second = await real_broker.join("h", "planner", seat.token)
    await parent.message("planner", "one")
    turn = await first.next_turn(timeout=1)
    dies(first)

    async def is_missed():
        await second.receive()
        agents = {agent.agent: agent for agent in await parent.roster()}
        return first.instance not in agents["planner"].instances

    await wait_until_async(is_missed, "the frozen instance to be missed")
    await first.receive()
    await turn.ack()

    assert turn.fenced == ()


@proves("P16")
async def test_an_instance_frozen_in_its_grace_gets_another(real_broker):
    """Case 25: missed, then the whole machine sleeps past the grace: it may renew afterwards.

    Only once, so that rare looks find a dead one dead in the end.
    """
    settings = HerdSettings(lease=timedelta(milliseconds=200), grace=timedelta(milliseconds=300))
    parent = await real_broker.open_herd("h", settings=settings)
    token = token_of(await parent.register("planner"))
    first = await real_broker.join("h", "planner", token)
    await parent.message("planner", "one")
    turn = await first.next_turn(timeout=1)

    async def look() -> None:
        """As an agent that starts does."""
        await real_broker.join("h", "planner", token, instance="inst_look")

    async def sleeps(seconds: float) -> None:
        until = time.monotonic() + seconds
        await wait_until_async(lambda: time.monotonic() > until, "the machine to wake")

    dies(first)
    await sleeps(0.3)
    await look()
    await sleeps(0.8)
    await look()
    await first.receive()
    await turn.ack()
    assert turn.fenced == ()

    await parent.message("planner", "two")
    turn = await first.next_turn(timeout=1)
    await sleeps(0.3)
    for _ in range(3):
        await look()
        await sleeps(0.8)
    await turn.ack()
    assert len(turn.fenced) == 1


async def test_how_often_a_lease_is_renewed_is_a_setting(real_broker, monkeypatch):
    """`lease_renewal` counts, also changed live; half the lease where it does not fit into it."""
    renewed: list[float] = []
    put_off = Leases._put_off

    def note(self: Leases, caller: Caller, seconds: float) -> None:
        renewed.append(seconds)
        put_off(self, caller, seconds)

    monkeypatch.setattr(Leases, "_put_off", note)
    parent = await real_broker.open_herd(
        "h", settings=HerdSettings(lease_renewal=timedelta(seconds=0.2))
    )
    await wait_until_async(lambda: renewed, "the first renewal")
    assert renewed[-1] == 0.2
    await parent.set_settings(HerdSettings(lease=timedelta(seconds=1)))
    await parent.set_settings(HerdSettings(lease_renewal=timedelta(seconds=10)))
    await wait_until_async(lambda: renewed[-1] == 0.5, "a renewal by the new settings")


async def test_one_that_renewed_in_time_is_not_missed_later(pair):
    """A grace once begun ends with the next sign of life."""
    parent, first, second = pair
    await parent.message("planner", "one")
    turn = await first.next_turn(timeout=1)
    dies(first)
    for _ in range(4):
        assert await second.next_turn(timeout=LEASE) is None
        await first.receive()

    await turn.ack()
    assert turn.fenced == ()


async def test_a_stateless_call_holds_one_lease_that_runs_out(pair, real_broker):
    """A command's instance is there for a lease, renewed by nobody; what it took comes back."""
    parent, first, _ = pair
    await first.leave()
    command = await real_broker.join("h", "planner", first.token, instance="inst_command")
    await parent.message("planner", "one")
    assert bodies(await command.receive()) == ["one"]

    async def is_gone():
        agents = {agent.agent: agent for agent in await parent.roster()}
        return "inst_command" not in agents["planner"].instances

    await wait_until_async(is_gone, "the command's lease to run out")


async def test_leases_are_renewed(pair):
    """An instance is there for many leases, as long as its process is."""
    parent, first, second = pair
    ends = time.monotonic() + 4 * LEASE.total_seconds()
    while time.monotonic() < ends:
        agents = {agent.agent: agent for agent in await parent.roster()}
        assert set(agents["planner"].instances) == {first.instance, second.instance}
        await asyncio.sleep(0.02)


async def test_a_shorter_lease_takes_nothing_from_who_is_alive(real_broker):
    """Renewal follows a lease that was changed live: nobody lapses, no mail changes hands."""
    long, short = timedelta(seconds=3), timedelta(milliseconds=500)
    parent = await real_broker.open_herd("h", settings=HerdSettings(lease=long))
    seat = await parent.register("planner")
    planner = await real_broker.join("h", "planner", seat.token)
    await parent.message("planner", "one")
    turn = await planner.next_turn(timeout=1)
    await parent.set_settings(HerdSettings(lease=short, grace=short))
    ends = time.monotonic() + (long + 4 * short).total_seconds()
    while time.monotonic() < ends:
        agents = {agent.agent: agent for agent in await parent.roster()}
        assert agents["planner"].present
        await asyncio.sleep(0.02)

    await turn.ack()

    assert turn.fenced == ()


async def test_instances_leave_with_their_broker(url, fleet_name, herd, clock):
    """A broker that is closed ends its instances, and hands back what they held."""
    await herd.scout.message("planner", "one")
    await herd.planner.leave()
    async with AsyncBroker.connect(url, fleet=fleet_name, clock=clock) as elsewhere:
        replica = await elsewhere.join(herd.name, "planner", herd.planner.token)
        await replica.receive()

    agents = {agent.agent: agent for agent in await herd.parent.roster()}
    assert not agents["planner"].present
    again = await herd.another("planner")
    assert [(mail.body, mail.attempts) for mail in await again.receive()] == [("one", 0)]


async def test_lapse_is_a_death_to_order(herd):
    """In a test on a given clock an instance lives until it leaves or is lapsed."""
    await herd.scout.message("planner", "one")
    await herd.planner.receive()
    await herd.later(days=1)
    agents = {agent.agent: agent for agent in await herd.parent.roster()}
    assert agents["planner"].present

    await asyncio.to_thread(lapse, herd.planner)

    agents = {agent.agent: agent for agent in await herd.parent.roster()}
    assert not agents["planner"].present
    journal = await herd.parent.journal()
    assert [line.fields["agent"] for line in journal if line.event == "lost"] == ["planner"]


# ------------------------------------------------------------------ absences


async def test_an_absent_agent_with_a_task_is_reported_once(herd):
    """Ten minutes without a live instance and with an open task: one quiet notice."""
    task = await herd.working(herd.scout)
    await herd.scout.leave()

    assert await herd.later(minutes=9, seconds=59) == {}
    assert await herd.later(seconds=1) == {"absences": 1}
    assert await herd.later(hours=10) == {}

    assert await herd.parent.next_turn(timeout=0) is None
    (notice,) = about(await herd.parent.receive(), "agent_away")
    assert notice.task_id == task.id and notice.data["agent"] == "scout"
    assert await herd.state(task) == "running"


async def test_each_absence_has_a_notice_of_its_own(herd):
    """Back and gone again is another absence."""
    await herd.working(herd.scout)
    for _ in range(2):
        await herd.scout.leave()
        await herd.later(minutes=10)
        herd.children["scout"] = await herd.another("scout")

    assert len(about(await herd.parent.receive(), "agent_away")) == 2


async def test_one_that_is_back_in_time_is_not_reported(herd):
    """An instance that comes within `away_after` ends the absence."""
    await herd.working(herd.scout)
    await herd.scout.leave()
    await herd.later(minutes=9)
    await herd.another("scout")

    assert await herd.later(hours=1) == {}


async def test_an_absent_agent_without_a_task_is_nobodys_business(herd):
    """Whoever holds nothing may be away."""
    task = await herd.working(herd.scout)
    await herd.scout.done(task.id)
    await herd.scout.leave()
    await herd.planner.leave()

    assert await herd.later(hours=1) == {}


async def test_a_task_for_an_agent_that_never_came(herd):
    """Delegated to an agent without any instance, a task is reported after `away_after`."""
    await herd.parent.register("architect")
    await herd.parent.delegate("architect", "x")

    assert await herd.later(minutes=10) == {"absences": 1}


async def test_more_work_does_not_put_the_notice_off(open_herd):
    """An absence is counted from its start, whatever is delegated meanwhile."""
    herd = await open_herd("h", "scout", max_open_tasks=10)
    await herd.working(herd.scout)
    await herd.scout.leave()
    for _ in range(3):
        await herd.later(minutes=3)
        await herd.parent.delegate("scout", "more")

    assert await herd.later(minutes=1) == {"absences": 1}
    await herd.parent.delegate("scout", "still more")
    assert await herd.later(hours=1) == {}


async def test_away_after_is_a_setting(open_herd):
    """`away_after` of the herd counts."""
    herd = await open_herd("h", "scout", away_after=timedelta(minutes=1))
    await herd.working(herd.scout)
    await herd.scout.leave()

    assert await herd.later(minutes=1) == {"absences": 1}


# ------------------------------------------------------------------ generations


async def renewed(herd: Herd, name: str = "scout") -> AsyncChild:
    """The agent's name, closed and used again."""
    await herd.parent.close(name)
    return await herd.child(name)


@proves("P13")
async def test_nothing_of_the_old_generation_reaches_the_new(herd):
    """Unread mail, mail in hand, mail put off, questions and tasks: the new one starts empty."""
    await herd.working(herd.scout)
    for text in ("in hand", "put off", "unread"):
        await herd.planner.message("scout", text, expects_reply=text == "unread")
        if text == "in hand":
            await herd.scout.receive()
        if text == "put off":
            await (await herd.scout.receive()).nack(delay=timedelta(minutes=1))
    sent = await herd.planner.message("scout", "steer", delivery="steer")

    scout = await renewed(herd)
    await herd.later(minutes=2)

    assert len(await scout.receive()) == 0
    info = {agent.agent: agent for agent in await herd.parent.roster()}["scout"]
    assert (info.generation, info.tasks, info.waited_on_by, info.unread) == (2, (), (), 0)
    assert (await herd.planner.receipt(sent.message_id)).state == "dead"


@proves("P13")
async def test_the_old_token_is_named_as_such(herd):
    """Who comes with the token of an earlier generation is told so, whatever it asks for."""
    old = herd.scout
    task = await herd.working(old)
    await renewed(herd)

    for call in (old.receive(), old.message("planner", "hi"), old.done(task.id)):
        with pytest.raises(errors.AgentClosed) as refusal:
            await call
        assert "earlier generation" in refusal.value.detail
    with pytest.raises(errors.AgentClosed):
        await herd.broker.join(herd.name, "scout", old.token)


@proves("P13")
async def test_the_new_generation_sees_and_answers_nothing_of_the_old(herd):
    """Not its tasks, nor the receipts of its mail, nor the questions that were put to it."""
    task, question = await herd.waiting()
    await herd.parent.close("planner")
    await herd.parent.close("scout")
    planner, scout = await herd.child("planner"), await herd.child("scout")

    assert await scout.tasks() == []
    with pytest.raises(errors.Forbidden):
        await scout.task(task.id)
    for agent in (planner, scout):
        with pytest.raises(errors.Forbidden):
            await agent.receipt(question)
    with pytest.raises(errors.Forbidden):
        await planner.reply(question, "too late, and by another")


async def test_the_new_generation_has_no_hold_on_tasks_of_the_old(herd):
    """A settled task of an earlier generation is not the new one's to settle."""
    task = await herd.working(herd.scout)
    scout = await renewed(herd)

    with pytest.raises(errors.Forbidden):
        await scout.done(task.id)


async def test_an_answer_to_the_old_generation_does_not_reach_the_new(herd):
    """Whoever asked is gone; the answer is refused, with the reason."""
    _, question = await herd.waiting()
    (asked,) = await herd.planner.receive()
    scout = await renewed(herd)

    with pytest.raises(errors.AgentClosed) as refusal:
        await herd.planner.reply(asked, "Exponential")

    assert "newer one" in refusal.value.detail and question == asked.message_id
    assert len(await scout.receive()) == 0


async def test_exist_ok_keeps_the_generation(herd):
    """Registering what is there changes nothing; its token is not told again."""
    seat = await herd.parent.register("scout", label="another", exist_ok=True)

    assert (seat.generation, seat.token) == (1, None)
    await herd.scout.receive()


async def test_a_forgotten_name_is_free_again(herd, url, fleet_name):
    """A closed agent's record goes with its tasks' retention; its name starts anew."""
    await herd.parent.close("scout")
    await herd.later(days=7)

    assert [key for key in herd_keys(url, fleet_name) if ":a:scout" in key] == []
    assert "scout" not in [agent.agent for agent in await herd.parent.roster()]
