"""Endings: an agent is closed, a herd is closed, and in time nothing is left."""

from __future__ import annotations

import pytest

from tests.leftovers import herd_keys
from tests.requirements import proves
from tocsin.broker import errors


async def test_closing_an_agent_ends_what_hangs_on_it(herd):
    """Its task is cancelled, whoever waits on it is told, and its name can be used anew."""
    held = await herd.working(herd.planner)
    waiting, question = await herd.waiting()

    await herd.parent.close("planner", reason="not needed")

    assert await herd.state(held) == "cancelled"
    assert await herd.state(waiting) == "running"
    async with await herd.scout.next_turn(timeout=1) as turn:
        (notice,) = turn
    assert notice.data["how"] == "agent_closed" and notice.data["request"] == question

    seat = await herd.parent.register("planner")
    assert seat.generation == 2
    with pytest.raises(errors.AgentClosed):
        await herd.planner.receive()


@proves("P15")
async def test_a_closed_herd_leaves_nothing_behind(herd, url, fleet_name):
    """A closed herd can be read for its retention (7 days); then none of its keys is left."""
    task = await herd.working(herd.scout)

    await herd.parent.close_herd()

    assert await herd.state(task) == "cancelled"
    await herd.later(days=7)
    assert herd_keys(url, fleet_name) == []
