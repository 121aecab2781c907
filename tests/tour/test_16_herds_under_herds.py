"""A child leads a herd of its own: seen in the tree, cancelled and closed from above."""

from __future__ import annotations

from tests.fleets import Herd, about


async def test_a_child_leads_a_herd_of_its_own(herd, scheduler):
    """It is the child above and the parent below; the roster and the tree show both herds."""
    task = await herd.working(herd.scout)
    parent = await herd.scout.open_herd("release-42-auth")
    team = Herd(herd.broker, herd.clock, scheduler, parent)
    await team.child("reader")
    part = await team.working(team.children["reader"], "Read the middleware")
    await scheduler.tick()

    scout = next(each for each in await herd.parent.roster() if each.agent == "scout")
    assert scout.herds == ("release-42-auth",)
    (top,) = await herd.broker.tree()
    (below,) = top.herds
    assert (below.herd, below.under, below.tie) == ("release-42-auth", "release-42/scout", "tied")

    await team.children["reader"].done(part.id, summary="It checks a cookie")
    await team.parent.receive()
    assert (await herd.scout.done(task.id, summary="By cookie")).ok


async def test_a_cancel_reaches_down(herd, scheduler):
    """What is open below for the task is cancelled too, and who works on it is told to stop."""
    task = await herd.working(herd.scout)
    team = Herd(herd.broker, herd.clock, scheduler, await herd.scout.open_herd("team"))
    reader = await team.child("reader")
    part = await team.working(reader)
    await scheduler.tick()

    await herd.parent.cancel(task.id, reason="no longer wanted")
    await scheduler.tick()

    assert await team.state(part) == "cancelled"
    (notice,) = about(await reader.receive(), "task_ended")
    assert "no longer wanted" in notice.body


async def test_closing_reaches_down(herd, scheduler):
    """Case 15: with the child, or its herd, whatever is below closes."""
    team = Herd(herd.broker, herd.clock, scheduler, await herd.scout.open_herd("team"))
    part = await team.working(await team.child("reader"))
    await scheduler.tick()

    await herd.parent.close_herd()
    await scheduler.tick()

    assert (await team.parent.herd_record()).state == "closed"
    assert await team.state(part) == "cancelled"
