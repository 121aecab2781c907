"""Each operation checks each of its arguments before there is anything to send."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from tocsin.broker import Broker, HerdSettings, agents, dead, errors, herds, inbox, requests, tasks
from tocsin.broker.caller import Caller, Fleet

ME = Caller(Fleet("f", 16, None), "h", "parent", "", "inst_1")
TASK, MESSAGE = "task_1", "msg_1"


def message(**given: Any) -> object:
    """A message, sound but for what is given."""
    sound: dict[str, Any] = {"to": "scout", "body": "hello", "task": None, "expects_reply": False}
    sound |= {"reply_within": None, "delivery": "steer", "thread": None, "key": None, "data": None}
    sound |= given
    return requests.message(ME, sound.pop("to"), sound.pop("body"), **sound)


def delegate(**given: Any) -> object:
    """A delegation, sound but for what is given."""
    sound: dict[str, Any] = {"agent": "scout", "description": "x", "deadline": None, "watch": False}
    sound |= {"queue": False, "continues": None, "key": None} | given
    return tasks.delegate(ME, sound.pop("agent"), sound.pop("description"), **sound)


def done(**given: Any) -> object:
    """A settlement, sound but for what is given."""
    sound: dict[str, Any] = {"task": TASK, "outcome": "completed", "summary": None, "error": None}
    sound |= {"override_reason": None} | given
    return tasks.done(ME, sound.pop("task"), sound.pop("outcome"), **sound)


BAD: list[tuple[Callable[[], object], str, str]] = [
    (lambda: message(to="parent/x"), "message", "to "),
    (lambda: message(to=None), "message", "to None is not a name"),
    (lambda: message(body=""), "message", "body is empty"),
    (lambda: message(body="a\x00"), "message", "body holds U+0000"),
    (lambda: message(task=MESSAGE), "message", "is the id of a message; a task is meant"),
    (lambda: message(expects_reply="yes"), "message", "expects_reply must be True or False"),
    (lambda: message(reply_within=timedelta(1)), "message", "expects_reply is False"),
    (lambda: message(expects_reply=True, reply_within=60), "message", "reply_within must be"),
    (lambda: message(delivery="later"), "message", "delivery must be one of"),
    (lambda: message(thread="a\nb"), "message", "thread must be one line"),
    (lambda: message(key=5), "message", "key must be text"),
    (lambda: message(data=[1]), "message", "data must be a mapping"),
    (lambda: delegate(agent="Scout"), "delegate", "agent "),
    (lambda: delegate(description=None), "delegate", "description must be text"),
    (lambda: delegate(deadline=60), "delegate", "deadline must be a timedelta"),
    (lambda: delegate(watch=None), "delegate", "watch must be True or False"),
    (lambda: delegate(queue=1), "delegate", "queue must be True or False"),
    (lambda: delegate(continues="scout"), "delegate", "continues 'scout' is not an id"),
    (lambda: delegate(key=" "), "delegate", "key is empty"),
    (lambda: done(task=None), "done", "task must be a text id"),
    (lambda: done(outcome="cancelled"), "done", "outcome must be one of"),
    (lambda: done(summary=b"x"), "done", "summary must be text"),
    (lambda: done(error=1), "done", "error must be text"),
    (lambda: done(override_reason=""), "done", "override_reason is empty"),
    (lambda: tasks.cancel(ME, "x", None), "cancel", "task 'x' is not an id"),
    (lambda: tasks.cancel(ME, TASK, 1), "cancel", "reason must be text"),
    (lambda: tasks.watch(ME, [], "each"), "watch", "name at least one task"),
    (lambda: tasks.watch(ME, [TASK], "some"), "watch", "wake must be one of"),
    (lambda: tasks.named(ME, [TASK] * 1_001), "task", "the limit is 1000"),
    (lambda: tasks.listing(ME, "open", 1), "tasks", "state must be one of"),
    (lambda: tasks.listing(ME, None, 0), "tasks", "limit must be a whole number"),
    (lambda: requests.reply(ME, TASK, "x", key=None, data=None), "reply", "a message is meant"),
    (lambda: requests.reply(ME, MESSAGE, "", key=None, data=None), "reply", "body is empty"),
    (lambda: requests.remind(ME, 1), "remind", "message must be a text id"),
    (lambda: requests.reroute(ME, MESSAGE, ""), "reroute", "agent "),
    (lambda: requests.cancel_request(ME, None), "cancel_request", "message must be a text id"),
    (lambda: inbox.ack(ME, []), "ack", "name 1 to 1000 messages"),
    (lambda: inbox.ack(ME, [TASK]), "ack", "a message is meant"),
    (lambda: inbox.nack(ME, [MESSAGE], 5, None), "nack", "delay must be a timedelta"),
    (lambda: inbox.nack(ME, [MESSAGE], None, "\ud800"), "nack", "error holds U+D800"),
    (lambda: inbox.take(ME, "receive", "receive", True), "receive", "limit must be"),
    (lambda: inbox.show(ME, 1_001), "inbox", "limit must be a whole number from 1 to 1000"),
    (lambda: dead.listing(ME, TASK, 1), "dead_letters", "a message is meant"),
    (lambda: dead.listing(ME, None, 1_001), "dead_letters", "limit must be a whole number"),
    (lambda: dead.show(ME, "x"), "dead_letter", "message 'x' is not an id"),
    (lambda: dead.replay(ME, TASK), "replay", "a message is meant"),
    (lambda: dead.drop(ME, None), "drop", "message must be a text id"),
    (lambda: dead.hand_back(ME, TASK), "hand_back", "a message is meant"),
    (lambda: inbox.receipt(ME, "x"), "receipt", "message 'x' is not an id"),
    (lambda: agents.register(ME, "a b", "t", None, None, False), "register", "agent 'a b'"),
    (lambda: agents.register(ME, "a", "t", "x\ny", None, False), "register", "role must be one"),
    (lambda: agents.register(ME, "a", "t", None, "\x1b", False), "register", "label holds U+001B"),
    (lambda: agents.register(ME, "a", "t", None, None, 1), "register", "exist_ok must be"),
    (lambda: agents.close(ME, "a", 5), "close", "reason must be text"),
    (lambda: agents.set_status(ME, "busy"), "set_status", "status must be one of"),
    (lambda: agents.progress(ME, "", None), "progress", "text is empty"),
    (lambda: agents.progress(ME, "x", 50), "progress", "fraction must be a number from 0 to 1"),
    (lambda: herds.journal(ME, "latest", 1), "journal", "after 'latest' is not the id"),
    (lambda: herds.journal(ME, 10**5000, 1), "journal", "after a huge number is not the id"),
    (lambda: herds.journal(ME, None, 0), "journal", "limit must be a whole number"),
    (lambda: herds.set_settings(ME, {"lease": 1}, "user"), "set_settings", "must be HerdSettings"),
    (lambda: herds.set_settings(ME, HerdSettings(), "me"), "set_settings", "source must be one of"),
    (lambda: Broker.connect(fleet="A"), "connect", "fleet 'A' is not a name"),
    (lambda: Broker.connect(partitions="16"), "connect", "partitions must be a whole number"),  # type: ignore[arg-type]
    (lambda: Broker.connect(partitions=0), "connect", "from 1 to 1024, not 0"),
    (lambda: Broker.connect(clock=60), "connect", "clock must be a ManualClock"),  # type: ignore[arg-type]
]


@pytest.mark.parametrize(("call", "operation", "says"), BAD, ids=[f"{o}: {s}" for _, o, s in BAD])
def test_a_bad_argument_is_refused_by_name(call, operation, says):
    """One error, which names the operation, the field and the rule."""
    with pytest.raises(errors.InvalidInput) as refusal:
        call()
    assert refusal.value.operation == operation
    assert says in refusal.value.detail


def test_what_is_sound_is_not_refused():
    """The calls above fail for what is wrong with them, and nothing else."""
    for call in (message(), delegate(), done()):
        assert call is not None
