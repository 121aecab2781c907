"""The sync client: the same surface without `await`."""

from __future__ import annotations

from datetime import timedelta

import pytest

from tests.fleets import reminders
from tocsin.broker import (
    Agent,
    AsyncAgent,
    AsyncBroker,
    AsyncChild,
    AsyncParent,
    AsyncTurn,
    Broker,
    Child,
    Parent,
    Turn,
)


def test_the_whole_story_in_sync(sync_broker, sync_scheduler, clock):
    """Delegate, ask, go stale, answer, finish, settle: as in the async client."""
    parent = sync_broker.open_herd("release-42")
    scout = sync_broker.join("release-42", "scout", parent.register("scout").token)
    planner = sync_broker.join("release-42", "planner", parent.register("planner").token)

    task = parent.delegate("scout", "Find how auth works", watch=True)
    with scout.next_turn(timeout=1) as turn:
        assert [mail.task_id for mail in turn] == [task.id]
        scout.message("planner", "Which backoff?", task=task.id, expects_reply=True)
    clock.advance(timedelta(minutes=5))
    assert sync_scheduler.tick() == {"reminders": 1}
    with parent.receive() as turn:
        assert len(reminders(turn)) == 1

    with planner.next_turn(timeout=1) as turn:
        planner.reply(turn[0], "Exponential")
    with scout.next_turn(timeout=1) as turn:
        assert turn[0].body == "Exponential"
        scout.done(task.id, summary="It backs off exponentially.")

    (settled,) = parent.wait(task.id, timeout=1)
    assert settled.ok and settled.summary == "It backs off exponentially."
    with parent.next_turn(timeout=1) as turn:
        assert turn[0].kind == "task_settled"


@pytest.mark.parametrize(
    ("sync", "twin"),
    [
        (Broker, AsyncBroker),
        (Agent, AsyncAgent),
        (Parent, AsyncParent),
        (Child, AsyncChild),
        (Turn, AsyncTurn),
    ],
    ids=lambda kind: kind.__name__,
)
def test_both_clients_have_one_surface(sync, twin):
    """Whatever the async client offers the sync one does too, under the same name."""
    surface = {name.replace("aclose", "close") for name in dir(twin) if not name.startswith("_")}

    assert {name for name in dir(sync) if not name.startswith("_")} == surface
