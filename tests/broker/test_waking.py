"""Who can be woken and by what: sessions of hosts, reported tries, and what proves a path."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import pytest

from tests.fleets import about, bodies, command, key_of
from tests.turning import employ
from tests.waiting import wait_until_async
from tocsin.broker import errors
from tocsin.broker.signals import AsyncSignal
from tocsin.broker.testing import lapse

PATH = "send-user-message"


@pytest.fixture
async def herd(open_herd):
    """A herd with scout, whose session in pi can be woken by one path."""
    herd = await open_herd("release-42", "scout", "planner")
    await herd.scout.report_session("pi", "s-1", "idle", [PATH])
    return herd


async def known(herd, agent="scout"):
    [found] = [each for each in await herd.parent.roster() if each.agent == agent]
    return found


async def known_wakeable(herd, agent):
    return (await known(herd, agent)).wakeable


async def tries(herd, message):
    return {each.path: each for each in (await herd.parent.receipt(message)).wake}


async def woken(herd, *, shown=True):
    """A message that it was tried to wake scout for, and that it then read."""
    sent = await herd.parent.message("scout", "look here")
    await herd.scout.report_wake(PATH, True, [sent.message_id], "sent it")
    if shown:
        await herd.scout.inbox()
    return sent.message_id


async def test_looking_shows_nothing(herd):
    """What waits is told in order, and neither read, begun, confirmed nor counted by that."""
    task = await herd.parent.delegate("scout", "work")
    steer = await herd.parent.message("scout", "stop that", delivery="steer")
    for _ in range(3):
        found = await herd.scout.look()
    assert [each.message_id for each in found] == [steer.message_id, f"msg_task_{task.id[5:]}"]
    assert [(each.kind, each.wakes, each.shown_at) for each in found] == [
        ("message", True, None),
        ("task", True, None),
    ]
    assert (await herd.parent.task(task.id)).state == "created"
    assert len(await herd.scout.look(limit=1)) == 1
    await herd.scout.inbox()
    assert all(each.shown_at for each in await herd.scout.look())
    await herd.scout.receive()
    assert await herd.scout.look() == []


async def test_only_mail_that_is_read_confirms_a_try(herd):
    """A try stands in the receipt as unconfirmed until its recipient is shown the mail or takes it;
    then its path is proven, and the agent can be woken."""
    sent = await woken(herd, shown=False)
    tried = (await tries(herd, sent))[PATH]
    assert (tried.ok, tried.tries, tried.confirmed_at, tried.detail) == (True, 1, None, "sent it")
    assert not (await known(herd)).wakeable
    await herd.scout.look()
    assert (await tries(herd, sent))[PATH].confirmed_at is None
    await herd.scout.inbox()
    assert (await tries(herd, sent))[PATH].confirmed_at == herd.clock.now()
    assert (await known(herd)).wake_path == PATH
    assert "confirmed" in str(await herd.parent.why(sent))


async def test_a_path_that_fails_again_and_again_is_not_proven_any_more(herd):
    """Three tries in a row that came to nothing: whoever gives it work learns so."""
    await woken(herd)
    assert (await known(herd)).wakeable
    for number in (1, 2, 3):
        assert (await known(herd)).wakeable, number
        sent = await herd.parent.message("scout", f"number {number}")
        await herd.scout.report_wake(PATH, number == 2, [sent.message_id], "no such session")
    assert not (await known(herd)).wakeable
    assert [entry.event for entry in await herd.parent.journal()].count("path_lost") == 1
    await herd.scout.inbox()  # one of them had seemed to go well
    assert (await known(herd)).wake_path == PATH


async def test_a_session_at_work_is_not_woken_in_vain(herd):
    """What it was told meanwhile it reads when it comes to it; that speaks against no path."""
    await woken(herd)
    await herd.scout.report_session("pi", "s-1", "working", [PATH])
    for _ in range(5):
        await woken(herd, shown=False)
    assert (await known(herd)).wakeable
    assert (await known(herd)).status == "working"


async def test_work_for_an_agent_that_nothing_can_wake_says_so(herd):
    """To whoever delegates; a runner, a process in `next_turn`, a proven path are each enough."""
    assert not (await herd.parent.delegate("scout", "work")).wakeable
    waiting = asyncio.create_task(herd.planner.next_turn(timeout=30))
    await wait_until_async(lambda: known_wakeable(herd, "planner"), "planner to wait for a turn")
    given = await herd.parent.delegate("planner", "work")
    assert (given.wakeable, given.wake_path) == (True, "bell")
    assert await waiting is not None
    await employ(herd)
    assert (await herd.parent.delegate("coder", "work")).wake_path == "turn"
    await woken(herd)
    again = await herd.parent.delegate("scout", "more", queue=True)
    assert (again.wakeable, again.wake_path) == (True, PATH)
    await herd.scout.report_session("pi", "s-1", "ended")
    assert not (await known(herd)).wakeable


async def test_a_second_session_on_a_seat_is_announced_once(herd):
    """To itself, which learns of the other; to the herd's parent, quietly; and in the journal."""
    other = await herd.another("scout")
    assert await herd.scout.report_session("pi", "s-1", "working", [PATH]) == []
    for _ in range(2):
        [first] = await other.report_session("pi", "s-2", "started")
    assert (first.host, first.session, first.instance) == ("pi", "s-1", herd.scout.instance)
    [notice] = about(await herd.parent.inbox(), "sessions")
    assert not notice.trigger_turn and "s-1" in notice.body and "s-2" in notice.body
    assert [each.session for each in (await known(herd)).sessions] == ["s-1", "s-2"]
    await other.report_session("pi", "s-2", "ended")
    await other.report_session("codex", "s-3", "started")
    assert len(about(await herd.parent.inbox(), "sessions")) == 2


async def test_replicas_are_no_sessions(herd):
    """Any number of processes may serve an agent without a word."""
    for _ in range(3):
        await herd.another("planner")
    assert (await known(herd, "planner")).sessions == ()
    assert about(await herd.parent.inbox(), "sessions") == []


async def test_a_session_ends_with_the_process_that_spoke_for_it(herd):
    """Nobody has to say so."""
    lapse(herd.scout)
    assert (await known(herd)).sessions == ()
    again = await herd.another("scout")
    assert await again.report_session("pi", "s-9", "started") == []


async def test_a_name_used_again_begins_unproven(herd):
    """Sessions and paths are those of its generation; what was tried for the old proves nothing."""
    sent = await woken(herd, shown=False)
    await herd.parent.close("scout")
    scout = await herd.child("scout")
    found = await known(herd)
    assert (found.sessions, found.wakeable) == ((), False)
    await scout.report_wake(PATH, True, [sent])
    await scout.inbox()
    assert not (await known(herd)).wakeable


async def test_only_its_own_mail_and_only_what_wakes(herd):
    """A try for another's mail is refused; for quiet mail or none there is nothing to note."""
    sent = await herd.parent.message("planner", "yours")
    with pytest.raises(errors.Forbidden):
        await herd.scout.report_wake(PATH, True, [sent.message_id])
    await herd.scout.report_wake(PATH, True, ["msg_0000000000000000000000001"])
    for path in ("", "Tmux", "a" * 33, "a b"):
        with pytest.raises(errors.InvalidInput):
            await herd.scout.report_wake(path, True, [sent.message_id])
    with pytest.raises(errors.InvalidInput):
        await herd.scout.report_session("pi", "s-1", "asleep")


async def test_mail_that_was_read_before_its_try_is_reported(herd):
    """The try came first, its report late: it is confirmed all the same; one made after is not."""
    sent = await herd.parent.message("scout", "look here")
    herd.clock.advance(timedelta(seconds=1))
    await herd.scout.inbox()
    herd.clock.advance(timedelta(seconds=1))
    await herd.scout.report_wake("tmux", True, [sent.message_id])
    assert (await tries(herd, sent.message_id))["tmux"].confirmed_at is None
    await herd.scout.report_wake(
        PATH, True, [sent.message_id], ago=timedelta(seconds=1, milliseconds=500)
    )
    assert (await tries(herd, sent.message_id))[PATH].confirmed_at is not None


async def test_every_arrival_is_heard_by_who_asks_for_it(herd):
    """Also what wakes nobody: a notice that steers reaches a session at work."""
    task = await herd.working(herd.scout)
    signal = AsyncSignal()
    with herd.scout.hear_arrivals(signal):
        await signal.wait(5)  # the line is there
        signal.clear()
        await herd.parent.cancel(task.id)
        assert await signal.wait(5)
    [notice] = await herd.scout.look()
    assert (notice.kind, notice.delivery, notice.wakes) == ("notice", "steer", False)


async def test_what_somebody_wrote_over_is_nothing(herd):
    """Damaged notes of sessions and paths stop neither the roster nor the next report."""
    await woken(herd)
    agent = key_of(herd, "agent", agent="scout")
    for damage in ("nonsense", "[3]", '[{"a":1}]', '["a"]', '{"tmux":[1]}', "[[1,2,3,4,5,6,7,8]]"):
        await command(herd, "HSET", agent, "sessions", damage, "paths", damage)
        assert not (await known(herd)).wakeable
        await herd.scout.report_session("pi", "s-1", "idle", [PATH])
        await woken(herd)
        assert (await known(herd)).wakeable
    assert "look here" in bodies(await herd.scout.receive())
