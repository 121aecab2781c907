"""A herd: one parent, the children it owns, and who is there."""

from __future__ import annotations

from tests.fleets import token_of
from tests.requirements import proves
from tocsin.broker import AsyncBroker


@proves("P13")
async def test_a_parent_opens_a_herd_and_registers_children(url, fleet_name, clock):
    """Whoever opens a herd is its parent; a child gets a token, and joins with it anywhere."""
    async with AsyncBroker.connect(url, fleet=fleet_name, clock=clock) as broker:
        parent = await broker.open_herd("release-42")
        seat = await parent.register("scout", role="researcher", label="Scout")

        scout = await broker.join("release-42", "scout", token_of(seat))

        assert (parent.agent, scout.agent) == ("parent", "scout")
        assert seat.token != parent.token


async def test_another_process_joins_as_the_same_agent(herd, url, fleet_name, clock):
    """An agent is not a process: with its token several instances may serve it."""
    async with AsyncBroker.connect(url, fleet=fleet_name, clock=clock) as elsewhere:
        replica = await elsewhere.join(herd.name, "scout", herd.scout.token)

        scout = {agent.agent: agent for agent in await herd.parent.roster()}["scout"]
        assert set(scout.instances) == {herd.scout.instance, replica.instance}


async def test_the_roster_shows_who_is_there(herd):
    """The parent sees each agent: what it is called, what it does, whether a process serves it."""
    await herd.parent.register("writer", role="author", label="Writer")
    await herd.scout.set_status("working")
    await herd.scout.progress("read 3 of 12 files", fraction=0.25)
    await herd.planner.leave()

    agents = {agent.agent: agent for agent in await herd.parent.roster()}

    assert list(agents) == ["parent", "planner", "scout", "writer"]
    assert agents["writer"].label == "Writer" and not agents["writer"].present
    assert agents["scout"].status == "working" and agents["scout"].present
    assert (agents["scout"].progress, agents["scout"].fraction) == ("read 3 of 12 files", 0.25)
    assert not agents["planner"].present
