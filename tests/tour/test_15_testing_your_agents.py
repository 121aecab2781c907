"""Testing your own agents: a fleet in memory, time that you move, agents that follow a script."""

from __future__ import annotations

from datetime import timedelta

import pytest

from tocsin.broker.testing import ScriptedAgent, lapse, plugin, run_until_idle
from tocsin.scheduler import Scheduler


@pytest.fixture(params=["in memory", "on a server"])
def fleet(request, monkeypatch, url):
    """The fixture that Tocsin ships, on fakeredis and on a real server."""
    if request.param == "on a server":
        monkeypatch.setenv("TOCSIN_TEST_URL", url)
    return request.getfixturevalue("shipped")


shipped = plugin.fleet


@pytest.fixture
def story(fleet):
    """A parent, a scout that asks planner when it gets its task, and the scheduler."""
    parent = fleet.broker.open_herd("release-42")
    seats = {name: parent.register(name) for name in ("scout", "planner")}
    scout, planner = (
        ScriptedAgent(fleet.broker.join("release-42", name, seat.token))
        for name, seat in seats.items()
    )
    scout.then(
        lambda me, turn: me.message(
            "planner", "Which backoff?", task=turn[0].task_id, expects_reply=True
        )
    )
    return parent, scout, planner, Scheduler(fleet.broker)


def test_agents_take_turns_until_nothing_moves(story):
    """The scout asks, the planner answers, the scout is done, the parent's wait is over."""
    parent, scout, planner, scheduler = story
    planner.then(lambda me, turn: me.reply(turn[0], "Exponential"))
    scout.then(lambda me, turn: me.done(turn[0].task_id, summary=turn[0].body))
    task = parent.delegate("scout", "Find how auth works")

    assert run_until_idle(scout, planner, scheduler=scheduler) == 3

    assert parent.task(task.id).settlement.summary == "Exponential"
    assert [len(agent.turns) for agent in (scout, planner)] == [2, 1]


def test_time_passes_when_you_say_so(fleet, story):
    """Nobody answers: one reminder at five minutes, blocked at twenty."""
    parent, scout, planner, scheduler = story
    task = parent.delegate("scout", "Find how auth works")
    run_until_idle(scout, planner, scheduler=scheduler)

    fleet.clock.advance(timedelta(minutes=5))
    assert scheduler.tick() == {"reminders": 1}
    assert [mail.kind for mail in parent.inbox()] == ["reminder"]

    fleet.clock.advance(timedelta(minutes=15))
    scheduler.tick()
    assert parent.task(task.id).state == "blocked"


def test_an_agent_that_fails_gets_its_mail_again(story):
    """A step that raises gives the turn's mail back, with one more attempt."""
    parent, _, planner, _ = story

    def break_down(me, turn):
        raise RuntimeError("out of memory")

    planner.then(break_down)
    parent.message("planner", "hello")
    with pytest.raises(RuntimeError):
        run_until_idle(planner)

    run_until_idle(planner)

    assert [[mail.attempts for mail in turn] for turn in planner.turns] == [[0], [1]]


def test_an_agent_that_dies(fleet, story):
    """A lapsed instance is gone: what it held goes to the next one, counted as an attempt."""
    parent, _, planner, _ = story
    parent.message("planner", "hello")
    planner.agent.next_turn(timeout=0)

    lapse(planner.agent)

    again = fleet.broker.join("release-42", "planner", planner.agent.token)
    assert [(mail.body, mail.attempts) for mail in again.receive()] == [("hello", 1)]


def test_a_fleet_that_never_rests_is_said_to(story):
    """Two agents that answer everything are stopped, and the test hears of it."""
    _, scout, planner, _ = story

    def answer(me, turn):
        me.reply(turn[0], "and you?")

    scout = ScriptedAgent(scout.agent, [answer] * 3000)
    planner = ScriptedAgent(planner.agent, [answer] * 3000)
    scout.agent.message("planner", "how are you?")

    with pytest.raises(AssertionError, match="not idle"):
        run_until_idle(scout, planner, most_rounds=5)


async def test_with_an_event_loop(fleet):
    """An async broker of the same fleet shares its store and its clock."""
    parent = fleet.broker.open_herd("release-42")
    seat = parent.register("scout")
    async with fleet.async_broker() as broker:
        scout = await broker.join("release-42", "scout", seat.token)
        parent.message("scout", "hello")
        turn = await scout.next_turn(timeout=1)
        assert [mail.body for mail in turn] == ["hello"]
        await turn.ack()
