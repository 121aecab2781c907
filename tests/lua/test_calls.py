"""The Python callers and the scripts fit: every script has one, and each call can be built."""

from __future__ import annotations

import ast
from datetime import UTC, datetime, timedelta
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest

from tocsin.broker import (
    agents,
    alerts,
    asks,
    dead,
    errors,
    herds,
    inbox,
    keys,
    outbox,
    plans,
    processes,
    repairs,
    requests,
    scripts,
    tasks,
    ties,
    timers,
    turns,
    why,
)
from tocsin.broker.caller import Caller, Fleet
from tocsin.broker.ids import hash_token, keyed_id, make_id, make_token
from tocsin.broker.runners import CommandRunner
from tocsin.broker.settings import HerdSettings
from tocsin.broker.settings_files import resolve

FLEET = Fleet("f", 16, None)
CALLER = Caller(FLEET, "h", "parent", hash_token(make_token()), make_id("inst"))
TASK, MESSAGE = make_id("task"), make_id("msg")
OUTBOX = outbox.Outbox(
    "h",
    "g",
    "inst_1",
    [outbox.News("g/00/msg_1/handled", "0", MESSAGE, "handled", "")],
    [outbox.Mail("g/11/msg_2", {"id": "msg_2", "seq": "1", "sender": "scout", "to": "parent"})],
)
LISTED = ties.Listed("below", "open", 0, "h/scout", "inst_1", "1", "", "tied", "")
PLAN = make_id("plan")
DUE_PLAN = plans.DuePlan(
    "h",
    PLAN,
    {
        "kind": "every",
        "rule": "3600000",
        "zone": "UTC",
        "created_at": "1767225600000",
        "upto": "1767225600000",
        "missed": "once",
    },
)
TURN = turns.DueTurn("h", "scout", 1, "gpu/acme", "mail", 1.0, 1_000, TASK)
ALERT = alerts.Alert("alert_1", "failed", "h", datetime(2026, 1, 1, tzinfo=UTC), 1, {})


def every_call() -> dict[str, scripts.Call[Any]]:
    """A call of each operation there is, by its name here."""
    given = HerdSettings(stale_wait_threshold=1)
    calls: dict[str, scripts.Call[Any]] = {
        "register": agents.register(CALLER, "scout", make_token(), "role", "Scout", False),
        "rotate": agents.rotate(CALLER, "scout", make_token()),
        "close": agents.close(CALLER, "scout", None),
        "join": agents.join(CALLER),
        "renew": agents.renew(CALLER),
        "leave": agents.leave(CALLER),
        "set_status": agents.set_status(CALLER, "idle"),
        "progress": agents.progress(CALLER, "half", 0.5),
        "open_fleet": herds.open_fleet(keys.fleet("f"), 16, None),
        "open_herd": herds.open_herd(CALLER, resolve(given), given, reopening=False),
        "open_herd_under": herds.open_herd(
            CALLER, resolve(given), given, reopening=False, under={"under": "g/lead"}
        ),
        "prove": ties.prove(CALLER, "scout", TASK, "below"),
        "verdicts": ties.read_verdicts(FLEET, "h", [LISTED]),
        "set_settings": herds.set_settings(CALLER, given, "argument"),
        "read_herd": herds.read_herd(CALLER),
        "close_herd": herds.close_herd(CALLER),
        "roster": herds.roster(CALLER),
        "journal": herds.journal(CALLER, None, 10),
        "list_herds": herds.list_herds(FLEET, keys.partition("f", 0)),
        "take": inbox.take(CALLER, "receive", "receive", 10),
        "show": inbox.show(CALLER, 10),
        "look": inbox.look(CALLER, 10),
        "report_wake": inbox.report_wake(CALLER, "tmux", True, [MESSAGE], "typed it", None),
        "report_session": agents.report_session(CALLER, "pi", "s-1", "idle", ["tmux"]),
        "ack": inbox.ack(CALLER, [MESSAGE]),
        "nack": inbox.nack(CALLER, [MESSAGE], timedelta(seconds=1), "broke"),
        "bury": inbox.bury(
            CALLER, "receive", [inbox.Spoilt(MESSAGE, "1-0", errors.InvalidEnvelope("x", "y"))]
        ),
        "dead_letters": dead.listing(CALLER, None, 10),
        "dead_letter": dead.show(CALLER, MESSAGE),
        "replay": dead.replay(CALLER, MESSAGE),
        "drop": dead.drop(CALLER, MESSAGE),
        "hand_back": dead.hand_back(CALLER, MESSAGE),
        "receipt": inbox.receipt(CALLER, MESSAGE),
        "why": why.why(CALLER, TASK),
        "reply": requests.reply(CALLER, MESSAGE, "yes", key=None, data=None),
        "remind": requests.remind(CALLER, MESSAGE),
        "reroute": requests.reroute(CALLER, MESSAGE, "planner"),
        "cancel_request": requests.cancel_request(CALLER, MESSAGE),
        "message": requests.message(
            CALLER,
            "scout",
            "Which?",
            task=TASK,
            expects_reply=True,
            reply_within=timedelta(minutes=1),
            delivery="steer",
            thread="t",
            key="k",
            data={"a": 1},
        ),
        "message_abroad": requests.message(
            CALLER,
            "g/parent",
            "hello",
            task=None,
            expects_reply=False,
            reply_within=None,
            delivery="steer",
            thread="t",
            key="k",
            data={"a": 1},
        ),
        "take_outboxes": outbox.take(FLEET, keys.partition("f", 0), 1, 1, timedelta(seconds=1)),
        "accept_mail": outbox.accept(FLEET, OUTBOX),
        "hear_news": outbox.hear(FLEET, OUTBOX),
        "note_outcomes": outbox.note(
            FLEET, OUTBOX, [("g/11/msg_2", outbox.Outcome("later", "full"))], timedelta(seconds=1)
        ),
        "open_ask": asks.open_ask(
            CALLER,
            "scout",
            "Which?",
            request=MESSAGE,
            call="call_1",
            task=TASK,
            window=timedelta(minutes=1),
            ceiling=timedelta(hours=1),
            totals='{"transcript": 1}',
            thread="t",
            data={"a": 1},
        ),
        "look_ask": asks.look(CALLER, MESSAGE, "call_1", ""),
        "confirm": asks.confirm(CALLER, MESSAGE, "call_1"),
        "leave_ask": asks.leave(CALLER, MESSAGE, "call_1", told=True),
        "probe": asks.probe(CALLER, {"transcript": 1}),
        "delegate": tasks.delegate(
            CALLER,
            "scout",
            "Look",
            deadline=timedelta(minutes=1),
            watch=True,
            queue=True,
            continues=TASK,
            key="k",
        ),
        "done": tasks.done(
            CALLER, TASK, "failed", summary=None, error="no", override_reason="because"
        ),
        "cancel": tasks.cancel(CALLER, TASK, None),
        "watch": tasks.watch(CALLER, [TASK], "all"),
        "named": tasks.named(CALLER, [TASK]),
        "listing": tasks.listing(CALLER, "waiting", 10),
        "plan": plans.add(
            CALLER,
            "scout",
            "Look",
            cron="0 2 * * 1-5",
            at=None,
            every=None,
            tz="Europe/Paris",
            missed="once",
            deadline=timedelta(minutes=1),
            watch=True,
            queue=True,
            key="k",
        ),
        "plans": plans.listing(CALLER, PLAN),
        "run_plan": plans.run_now(CALLER, PLAN, None),
        "pause_plan": plans.pause(CALLER, PLAN),
        "resume_plan": plans.resume(CALLER, PLAN),
        "remove_plan": plans.remove(CALLER, PLAN),
        "look_at_plans": plans.look(FLEET, keys.partition("f", 0), 10),
        "fire_plan": plans.fire(FLEET, DUE_PLAN, datetime(2026, 1, 1, 2, tzinfo=UTC)),
        "take_chore": plans.take_chore(FLEET, "sweeping", datetime(2026, 1, 1, tzinfo=UTC)),
        "visit": timers.visit(FLEET, "h", 10),
        "due": timers.due(FLEET, keys.partition("f", 0), 10),
        "take_alerts": alerts.take(FLEET, keys.partition("f", 0), 1, timedelta(minutes=1)),
        "end_alert": alerts.end(FLEET, ALERT, timedelta(seconds=5)),
        "compare": repairs.compare(FLEET, "h", [("task", TASK)], [repairs.Index("due")], mend=True),
        "instances": processes.instances(FLEET, "h"),
        "employ": turns.employ(CALLER, "scout", CommandRunner(["code"])),
        "claim": turns.claim(CALLER, 1),
        "look_at_turn": turns.look(CALLER, 1),
        "end_turn": turns.end(CALLER, 1, turns.Ending(kind="exited", exit_code=1, tail="x")),
        "due_turns": turns.due(FLEET, keys.partition("f", 0), 10),
        "take_slots": turns.take_slots(FLEET, [TURN.slot], [TURN]),
        "free_slots": turns.freed(FLEET, keys.partition("f", 0), [TURN.slot]),
        "launch": turns.launched(FLEET, TURN),
        "count_turns": turns.count(FLEET, keys.partition("f", 0)),
        "read_slots": turns.read_slots(FLEET),
        "limit_slots": turns.limit_slots(FLEET, "queue/gpu", 4),
        "pause": turns.pause_account(FLEET, "acme", datetime(2026, 1, 1, tzinfo=UTC)),
        "report": processes.report(FLEET.name, "sched_1", {"pid": 1}),
    }
    return calls


def test_every_script_is_called_by_an_operation_and_every_operation_calls_a_script():
    """Building a call shows that its arguments are those of the header: `call` refuses others."""
    assert {call.script.name for call in every_call().values()} == set(scripts.names())


def test_the_scripts_named_in_the_library_are_those_there_are():
    """Read off the source: the first argument of each `caller.call(..)` and `call(..)`."""
    named = set()
    for path in Path(str(files("tocsin.broker"))).glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if not isinstance(node, ast.Call) or path.name in ("caller.py", "scripts.py"):
                continue
            called = node.func.attr if isinstance(node.func, ast.Attribute) else node.func
            called = called.id if isinstance(called, ast.Name) else called
            if called == "call":
                assert node.args, f"{path.name}:{node.lineno}"
                assert isinstance(node.args[0], ast.Constant), f"{path.name}:{node.lineno}"
                named.add(node.args[0].value)
    assert named == set(scripts.names())


@pytest.mark.parametrize("operation", sorted(every_call()))
def test_a_call_goes_to_one_key_with_text_arguments(operation):
    """One key; as many arguments as the header has, each of them text; the caller's in front."""
    call = every_call()[operation]
    assert call.key.startswith("tocsin:{f")
    assert len(call.args) == len(call.script.args)
    assert all(type(value) is str or isinstance(value, str) for value in call.args)
    if "token" in call.script.args:
        assert call.args[:5] == ("", "h", "parent", CALLER.token, CALLER.instance)
        assert call.key == keys.partition("f", keys.partition_of("h", 16))


def test_no_call_carries_a_token():
    """Only hashes travel: of the caller's token, and of those that registration makes."""
    token = make_token()
    caller = Caller(FLEET, "h", "parent", hash_token(token), make_id("inst"))
    for call in (
        agents.register(caller, "scout", token, None, None, False),
        agents.rotate(caller, "scout", token),
        agents.join(caller),
    ):
        assert token not in "\n".join(call.args)
        assert hash_token(token) in call.args
    assert token not in repr(caller) and hash_token(token) not in repr(caller)


def test_a_missing_or_an_unknown_argument_is_refused_with_the_names():
    """The header is what a caller is held to."""
    with pytest.raises(
        TypeError, match=r"inbox_show\.lua takes clock .*differs in \['limit', 'only', 'size'\]"
    ):
        CALLER.call("inbox_show", "inbox", lambda answer: answer, size=1)
    with pytest.raises(TypeError, match=r"differs in \['limit', 'only'\]"):
        CALLER.call("inbox_show", "inbox", lambda answer: answer)


def test_a_repeat_with_the_same_key_is_the_same_message_and_no_other_is():
    """The id made from a `key` names fleet, herd, agent, generation and operation."""
    first = CALLER.new_id("msg", "message", "k")
    assert first == CALLER.new_id("msg", "message", "k")
    others = {
        CALLER.new_id("msg", "message", "l"),
        CALLER.new_id("msg", "reply", "k"),
        Caller(FLEET, "h", "scout", "", "i").new_id("msg", "message", "k"),
        Caller(FLEET, "h", "parent", "", "i", 2).new_id("msg", "message", "k"),
        Caller(FLEET, "g", "parent", "", "i").new_id("msg", "message", "k"),
        Caller(Fleet("g", 16, None), "h", "parent", "", "i").new_id("msg", "message", "k"),
        CALLER.new_id("msg", "message", None),
    }
    assert len(others) == 7 and first not in others
    assert keyed_id("msg", "a", "b") != keyed_id("msg", "ab")
    with pytest.raises(errors.InvalidInput, match="key"):
        CALLER.new_id("msg", "message", "")


def test_times_are_given_to_scripts_in_whole_milliseconds():
    """An aware deadline is a moment, a duration is a length; one of the two is empty."""
    moment = datetime(2026, 1, 1, 9, tzinfo=UTC)
    options: dict[str, Any] = {"watch": False, "queue": False, "continues": None, "key": None}
    at = tasks.delegate(CALLER, "scout", "x", deadline=moment, **options)
    after = tasks.delegate(CALLER, "scout", "x", deadline=timedelta(seconds=1.5), **options)
    named = [dict(zip(call.script.args, call.args, strict=True)) for call in (at, after)]
    assert (named[0]["lasts"], named[0]["ends"]) == ("", "1767258000000")
    assert (named[1]["lasts"], named[1]["ends"]) == ("1500", "")
