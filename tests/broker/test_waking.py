"""Waking: sessions of hosts, tries to wake them and what confirms one, and who cannot be woken."""

from __future__ import annotations

from datetime import timedelta

import pytest

from tests.fleets import Herd, command, commands, key_of
from tests.requirements import proves
from tocsin.broker import AgentInfo, AsyncChild, CommandRunner, WakeTry
from tocsin.broker.errors import Forbidden, InvalidInput
from tocsin.broker.signals import AsyncSignal
from tocsin.broker.testing import lapse

PATH = "send-user-message"


async def known(herd: Herd, name: str = "planner") -> AgentInfo:
    return next(each for each in await herd.parent.roster() if each.agent == name)


async def tried(herd: Herd, message: str, path: str = PATH) -> WakeTry:
    return next(each for each in (await herd.parent.receipt(message)).wake if each.path == path)


async def proven(herd: Herd, session: str = "s-1") -> AsyncChild:
    """A session of planner with a path by which it was woken once."""
    await herd.planner.report_session("pi", session, "idle", [PATH])
    sent = await herd.parent.message("planner", "Wake up.")
    await herd.planner.report_wake(PATH, True, [sent.message_id])
    await (await herd.planner.receive()).ack()
    assert (await known(herd)).wake_path == PATH
    return herd.planner


async def test_a_try_is_confirmed_when_the_mail_is_shown_after_it(herd):
    """The receipt has the try, its result and its detail; showing confirms it."""
    await herd.planner.report_session("pi", "s-1", "idle", ["prompt", PATH])
    sent = await herd.parent.message("planner", "Wake up.")
    await herd.planner.report_wake("prompt", False, [sent.message_id], "connection refused")
    await herd.planner.report_wake(PATH, True, [sent.message_id])
    await herd.planner.report_wake(PATH, True, [sent.message_id], "queued")

    before = await tried(herd, sent.message_id)
    assert (before.ok, before.tries, before.confirmed_at, before.detail) == (
        True,
        2,
        None,
        "queued",
    )
    assert not (await known(herd)).wakeable

    herd.clock.advance(timedelta(seconds=2))
    await herd.planner.inbox()
    after, failed = await tried(herd, sent.message_id), await tried(herd, sent.message_id, "prompt")
    assert after.confirmed_at == herd.clock.now()
    assert (failed.ok, failed.confirmed_at, failed.detail) == (False, None, "connection refused")
    assert (await known(herd)).wake_path == PATH


async def test_mail_shown_before_a_try_confirms_it_when_it_is_shown_again(herd):
    """What was handed over before a try says nothing of it."""
    await herd.planner.report_session("pi", "s-1", "idle", [PATH])
    sent = await herd.parent.message("planner", "Wake up.")
    await herd.planner.inbox()
    herd.clock.advance(timedelta(minutes=1))
    await herd.planner.report_wake(PATH, True, [sent.message_id])
    assert (await tried(herd, sent.message_id)).confirmed_at is None

    await herd.planner.inbox()
    assert (await tried(herd, sent.message_id)).confirmed_at == herd.clock.now()


async def test_a_try_told_of_after_the_mail_was_taken_is_confirmed_at_once(herd):
    """Who was woken may be faster than who tells of the try, and says how long ago it was."""
    await herd.planner.report_session("pi", "s-1", "idle", [PATH])
    sent = await herd.parent.message("planner", "Wake up.")
    herd.clock.advance(timedelta(seconds=5))
    await (await herd.planner.receive()).ack()
    herd.clock.advance(timedelta(seconds=5))
    await herd.planner.report_wake(PATH, True, [sent.message_id], ago=timedelta(seconds=1))
    assert (await tried(herd, sent.message_id)).confirmed_at is None

    await herd.planner.report_wake(PATH, True, [sent.message_id], ago=timedelta(seconds=8))
    assert (await tried(herd, sent.message_id)).confirmed_at == herd.clock.now()
    assert (await known(herd)).wake_path == PATH


@pytest.mark.parametrize("ok", [True, False])
async def test_a_proven_path_that_comes_to_nothing_three_times_is_proven_no_more(herd, ok):
    """The parent learns it: the agent is unwakeable until a try is confirmed again."""
    planner = await proven(herd)
    sent = await herd.parent.message("planner", "Wake up.")
    for wakeable in (True, True, False):
        await planner.report_wake(PATH, ok, [sent.message_id])
        assert (await known(herd)).wakeable is wakeable
    assert [each.event for each in await herd.parent.journal()].count("path_lost") == 1

    await planner.report_wake(PATH, True, [sent.message_id])
    await planner.inbox()
    assert (await known(herd)).wakeable


async def test_a_session_at_work_is_given_its_time(herd):
    """Tries that seemed to go well do not count against a path while its session works."""
    planner = await proven(herd)
    await planner.report_session("pi", "s-1", "working", [PATH])
    sent = await herd.parent.message("planner", "When you come to it.")
    for _ in range(5):
        await planner.report_wake(PATH, True, [sent.message_id])
    assert (await known(herd)).wakeable


@proves("P7")
async def test_quiet_mail_is_nothing_to_wake_for(herd):
    """A try for a reminder is kept nowhere."""
    await herd.waiting()
    await herd.later(minutes=6)
    [reminder] = await herd.parent.look()
    assert (reminder.kind, reminder.wakes, reminder.shown_at) == ("reminder", False, None)
    await herd.parent.report_wake(PATH, True, [reminder.message_id])
    await herd.parent.inbox()
    assert (await herd.parent.receipt(reminder.message_id)).wake == ()
    assert not (await known(herd, "parent")).wakeable


async def test_a_look_passes_over_what_is_in_hand_in_few_steps(herd):
    """However little is asked for: what another process has taken is read page by page."""
    for number in range(250):
        await herd.parent.message("scout", str(number))
    turns = [await herd.scout.receive() for _ in range(3)]
    assert sum(len(turn) for turn in turns) == 250
    sent = await herd.parent.message("scout", "new")
    before = await commands(herd)
    [found] = await herd.scout.look(limit=1)
    assert await commands(herd) - before < 350
    assert found.message_id == sent.message_id


async def test_only_mail_of_its_own_can_be_named(herd):
    """A try for somebody else's mail is refused, and changes nothing."""
    sent = await herd.parent.message("scout", "For you.")
    with pytest.raises(Forbidden):
        await herd.planner.report_wake(PATH, True, [sent.message_id])
    assert [each.path for each in (await herd.parent.receipt(sent.message_id)).wake] == ["bell"]
    with pytest.raises(InvalidInput, match="path 'Not a path' must be"):
        await herd.planner.report_wake("Not a path", True, [sent.message_id])


async def test_a_look_touches_nothing(herd):
    """Unread mail is named in order; nothing is shown, started or taken, and nobody is present."""
    task = await herd.parent.delegate("planner", "Look at it")
    steer = await herd.parent.message("planner", "First.", delivery="steer")
    token = herd.planner.token
    await herd.planner.leave()
    other = await herd.broker.join(herd.name, "planner", token)
    await other.leave()

    found = await other.look()
    assert [each.message_id for each in found] == [steer.message_id, f"msg_{task.id}"]
    assert [(each.wakes, each.shown_at) for each in found] == [(True, None), (True, None)]
    assert len(await other.look(limit=1)) == 1
    assert (await herd.state(task), (await known(herd)).present) == ("created", False)
    assert (await herd.parent.receipt(steer.message_id)).state == "accepted"

    await other.inbox()
    assert [each.shown_at for each in await other.look()] == [herd.clock.now()] * 2
    await other.receive()
    assert await other.look() == []


async def test_what_makes_an_agent_wakeable(herd):
    """A runner, a live instance that waits for turns, a session with a proven path."""
    planner = herd.planner
    assert not (await known(herd)).wakeable
    assert not (await herd.parent.delegate("planner", "One")).wakeable

    await planner.next_turn(timeout=0)
    assert (await known(herd)).wake_path == "bell"
    lapse(planner)
    assert not (await known(herd)).wakeable

    await herd.parent.set_runner("scout", CommandRunner(["code"]))
    given = await herd.parent.delegate("scout", "Two", key="two")
    again = await herd.parent.delegate("scout", "Two", key="two")
    assert (given.wakeable, given.wake_path, again.wake_path) == (True, "turn", "turn")


async def test_a_session_that_died_wakes_nobody(herd):
    """It lives as long as an instance that spoke for it; the path stays proven for the next one."""
    planner = await proven(herd)
    lapse(planner)
    found = await known(herd)
    assert (found.wakeable, found.sessions) == (False, ())

    again = await herd.another("planner")
    await again.report_session("pi", "s-2", "started", [PATH])
    assert (await known(herd)).wake_path == PATH
    await again.report_session("pi", "s-2", "ended", [PATH])
    assert not (await known(herd)).wakeable


async def test_a_name_used_again_has_proven_nothing(herd):
    """Neither sessions nor paths of a closed agent reach who bears its name next."""
    await proven(herd)
    await herd.parent.close("planner")
    found = await known(herd)
    assert (found.wakeable, found.sessions) == (False, ())

    child = await herd.child("planner")
    await child.report_session("pi", "s-1", "started", [PATH])
    assert not (await known(herd)).wakeable


async def test_a_second_session_on_one_seat_is_announced_once(herd):
    """The parent gets one quiet notice of it, and the newcomer hears of the others."""
    second = await herd.another("planner")
    assert await herd.planner.report_session("pi", "s-1", "working", [PATH]) == []
    [other] = await second.report_session("codex", "s-2", "started", ["app-server"])
    assert (other.host, other.session, other.instance) == ("pi", "s-1", herd.planner.instance)
    await second.report_session("codex", "s-2", "working", ["app-server"])
    await herd.planner.report_session("pi", "s-1", "idle", [PATH])

    [notice] = await herd.parent.inbox()
    assert (notice.kind, notice.trigger_turn) == ("notice", False)
    assert "planner has 2 live sessions" in notice.body and "codex s-2" in notice.body
    found = await known(herd)
    assert [each.session for each in found.sessions] == ["s-1", "s-2"]
    assert found.status == "working"
    assert [each.event for each in await herd.parent.journal()].count("sessions") == 1

    await second.report_session("codex", "s-2", "ended")
    assert (await known(herd)).status == "idle"


async def test_replicas_that_wait_for_turns_are_nobody_to_announce(herd):
    """Instances are meant to be many; of sessions alone there is something to say."""
    for _ in range(3):
        await (await herd.another("planner")).next_turn(timeout=0)
    assert await herd.parent.look() == []
    assert (await known(herd)).sessions == ()


async def test_reporting_a_session_is_no_sign_of_work(herd):
    """Presence and status, but no activity: a model did nothing."""
    lapse(herd.planner)
    again = await herd.another("planner")
    await again.report_session("pi", "s-1", "working")
    found = await known(herd)
    assert (found.present, found.status, found.active_at) == (True, "working", None)


async def test_quiet_mail_reaches_who_listens_for_all_that_arrives(herd):
    """A listener hears it; a process that waits for a turn sleeps on."""
    heard = AsyncSignal()
    task = await herd.working(herd.planner)
    with herd.planner.hear_arrivals(heard):
        assert await heard.wait(30)  # that it listens from now on
        heard.clear()
        await herd.parent.cancel(task.id)
        assert await heard.wait(30)
    assert [each.wakes for each in await herd.planner.look()] == [False]


async def test_a_try_for_a_question_that_went_elsewhere_proves_nothing_there(herd):
    """Who is handed it after it was rerouted was not the one that was tried to be woken."""
    await herd.child("tester")
    sent = await herd.scout.message("planner", "Which?", expects_reply=True)
    await herd.planner.report_wake(PATH, True, [sent.message_id])
    await herd.parent.reroute(sent.message_id, "tester")
    tester = herd.children["tester"]
    await tester.report_session("pi", "s-1", "idle", [PATH])
    await tester.inbox()
    assert not (await known(herd, "tester")).wakeable
    assert (await tried(herd, sent.message_id)).confirmed_at is None


@pytest.mark.parametrize(
    "broken", ["nonsense", "[1]", '{"a": 1}', '[["pi"]]', '{"pi": [1]}', "[[1,2,3,4,5,6,7,8]]"]
)
async def test_what_is_known_of_waking_may_be_written_over(herd, broken):
    """It is begun anew: mail, roster and reports go on."""
    planner = await proven(herd)
    sent = await herd.parent.message("planner", "Wake up.")
    await planner.report_wake(PATH, True, [sent.message_id])
    record = key_of(herd, "agent", agent="planner")
    await command(herd, "HSET", record, "sessions", broken, "paths", broken)
    await command(herd, "HSET", key_of(herd, "message", message=sent.message_id), "tried", broken)
    assert not (await known(herd)).wakeable
    assert [each.message_id for each in await planner.inbox()] == [sent.message_id]
    await planner.report_session("pi", "s-1", "idle", [PATH])
    await planner.report_wake(PATH, True, [sent.message_id])
    await planner.inbox()
    assert (await known(herd)).wake_path == PATH
