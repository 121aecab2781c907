"""Refusals: each code, what its detail tells the reader to do, and that nothing was changed."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from tests.leftovers import fleet_keys
from tests.topologies import operator
from tocsin.broker import AsyncBroker, Broker, HerdSettings, errors, keys

LATER = {"no_reply", "ceiling_active", "request_cancelled", "loop_limit", "invalid_envelope"}
"""Codes of parts that are not built yet: asks, the guard of pairs, the reading of foreign mail."""

OWN_TESTS = {"unavailable", "invalid_input", "unknown_plan"}


def snapshot(url: str, fleet: str) -> dict[str, bytes]:
    """All that the fleet stores, but its journals, which record attempts to act as others."""
    with operator(url, decode_responses=False) as client:
        return {
            key: client.dump(key)
            for key in fleet_keys(client, fleet)
            if keys.kind_of(key) != "journal"
        }


async def unknown_herd(herd):
    await herd.broker.join("nowhere", "scout", herd.scout.token)


async def unknown_agent(herd):
    await herd.scout.message("nobody", "hello")


async def unknown_task(herd):
    await herd.scout.done("task_0000000000000000000000000")


async def unknown_message(herd):
    await herd.scout.reply("msg_0000000000000000000000000", "hello")


async def herd_exists(herd):
    await herd.broker.open_herd(herd.name)


async def agent_exists(herd):
    await herd.parent.register("scout")


async def agent_closed(herd):
    await herd.scout.message("closed-one", "hello")


async def herd_closed(herd):
    await herd.gone.message("parent", "hello")


async def unauthorized(herd):
    await herd.broker.join(herd.name, "scout", herd.planner.token)


async def forbidden(herd):
    await herd.planner.done(herd.task.id)


async def agent_busy(herd):
    await herd.parent.delegate("scout", "one more")


async def wrong_state(herd):
    await herd.parent.remind(herd.plain)


async def pending_requests(herd):
    await herd.scout.done(herd.task.id)


async def queue_full(herd):
    await herd.scout.message("full-one", "one more")


async def too_large(herd):
    await herd.scout.message("planner", "x" * 50_001)


async def duplicate_conflict(herd):
    await herd.scout.message("planner", "another", key="k")


CASES = {
    unknown_herd: ("join", ["nowhere", "tocsin herd list"]),
    unknown_agent: ("message", ["nobody", "register it"]),
    unknown_task: ("done", ["task_0000000000000000000000000"]),
    unknown_message: ("reply", ["msg_0000000000000000000000000"]),
    herd_exists: ("open_herd", ["release-42", "with its token", "another name"]),
    agent_exists: ("register", ["scout", "close it first", "exist_ok=True"]),
    agent_closed: ("message", ["closed-one", "register it again"]),
    herd_closed: ("message", ["gone", "closed", "no new work"]),
    unauthorized: ("join", ["scout", "the token that its registration returned"]),
    forbidden: ("done", ["belongs to agent 'scout'", "the parent may cancel it"]),
    agent_busy: ("delegate", ["scout", "wait for or cancel one", "queue=True"]),
    wrong_state: ("remind", ["is a message, not a request"]),
    pending_requests: ("done", ["still waits for an answer", "override_reason"]),
    queue_full: ("message", ["full-one", "wait until it catches up"]),
    too_large: ("message", ["body", "50001", "50000", "put the rest in a file"]),
    duplicate_conflict: ("message", ["other content", "a new id or key"]),
}


@pytest.fixture
async def stage(herd, open_herd):
    """A herd in which each refusal has its occasion."""
    herd.task, _ = await herd.waiting()
    herd.plain = (await herd.scout.message("planner", "plain", key="k")).message_id
    await herd.child("closed-one")
    await herd.parent.close("closed-one")
    await herd.parent.register("full-one")
    await herd.parent.set_settings(HerdSettings(inbox_limit=3))
    for number in range(3):
        await herd.scout.message("full-one", str(number))
    other = await open_herd("gone", "scout")
    await other.parent.close_herd()
    herd.gone = other.scout
    return herd


@pytest.mark.parametrize("refused", CASES, ids=lambda refused: refused.__name__)
async def test_each_refusal_names_its_code_and_what_to_do(stage, url, fleet_name, refused):
    """The error has its code, the operation, a detail that helps; and nothing was changed."""
    operation, said = CASES[refused]
    before = snapshot(url, fleet_name)

    with pytest.raises(errors.BrokerError) as refusal:
        await refused(stage)

    error = refusal.value
    assert (error.code, error.operation) == (refused.__name__, operation)
    assert [text for text in said if text not in error.detail] == []
    assert error.retryable == (refused.__name__ in {"agent_busy", "queue_full"})
    assert snapshot(url, fleet_name) == before


def test_each_code_has_a_case():
    """Every code of the tree is refused above, has tests of its own, or belongs to what comes."""
    assert {case.__name__ for case in CASES} | LATER | OWN_TESTS == set(errors.CODES)


async def test_an_unreachable_server_is_unavailable():
    """Without a server the outcome is unknown, the call may be repeated, and it says so."""
    async with AsyncBroker.connect("redis://:secret@127.0.0.1:1/0", fleet="f") as broker:
        with pytest.raises(errors.Unavailable) as refusal:
            await broker.open_herd("h")

    assert refusal.value.retryable and "127.0.0.1:1" in refusal.value.detail
    assert "secret" not in str(refusal.value)


# ------------------------------------------------------------------ bad input

MOMENT = datetime(2026, 1, 2, tzinfo=UTC)

BAD = {
    "a name": (lambda h: h.parent.register("Scout"), ["agent", "'Scout'", "a-z"]),
    "an empty name": (lambda h: h.parent.register(""), ["agent"]),
    "a long name": (lambda h: h.parent.register("a" * 65), ["agent", "64"]),
    "a name with a dash in front": (lambda h: h.parent.register("-a"), ["agent"]),
    "a name of other letters": (lambda h: h.parent.register("größe"), ["agent"]),
    "no name": (lambda h: h.parent.register(None), ["agent", "None"]),
    "a name with a line end": (lambda h: h.parent.register("scout\n"), ["agent"]),
    "a target with a colon": (lambda h: h.scout.message("a:b", "x"), ["to"]),
    "an empty body": (lambda h: h.scout.message("planner", "  \n"), ["body", "empty"]),
    "no body": (lambda h: h.scout.message("planner", None), ["body", "NoneType"]),
    "bytes": (lambda h: h.scout.message("planner", b"x"), ["body", "bytes"]),
    "NUL": (lambda h: h.scout.message("planner", "a\0b"), ["body", "U+0000", "position 1"]),
    "a lone surrogate": (lambda h: h.scout.message("planner", "\ud800"), ["body", "U+D800"]),
    "an escape": (lambda h: h.parent.delegate("scout", "\x1b[2J"), ["description", "U+001B"]),
    "a label of two lines": (lambda h: h.parent.register("x", label="a\nb"), ["label", "one line"]),
    "a thread of two lines": (
        lambda h: h.scout.message("planner", "x", thread="a\nb"),
        ["thread", "one line"],
    ),
    "a message for a task": (
        lambda h: h.scout.done("msg_0000000000000000000000000"),
        ["task", "the id of a message", "a task is meant"],
    ),
    "a task for a message": (
        lambda h: h.parent.remind("task_0000000000000000000000000"),
        ["the id of a task", "a message is meant"],
    ),
    "no id at all": (lambda h: h.scout.done("42"), ["task", "task_..."]),
    "an id with a key in it": (lambda h: h.scout.done("task_a:b"), ["task"]),
    "an outcome": (
        lambda h: h.scout.done("task_0000000000000000000000000", "finished"),
        ["outcome", "completed", "blocked", "failed"],
    ),
    "a delivery": (
        lambda h: h.scout.message("planner", "x", delivery="fast"),
        ["delivery", "follow_up", "steer"],
    ),
    "a status": (lambda h: h.scout.set_status("busy"), ["status", "working", "idle"]),
    "a state": (lambda h: h.parent.tasks("done"), ["state", "completed"]),
    "a wake": (lambda h: h.parent.watch("task_0000000000000000000000000", wake="any"), ["wake"]),
    "a fraction over 1": (lambda h: h.scout.progress("x", fraction=1.5), ["fraction", "0 to 1"]),
    "a fraction that is none": (
        lambda h: h.scout.progress("x", fraction=float("nan")),
        ["fraction"],
    ),
    "a deadline as a number": (
        lambda h: h.parent.delegate("scout", "x", deadline=1767225600000),
        ["deadline", "timedelta", "1767225600000"],
    ),
    "a naive deadline": (
        lambda h: h.parent.delegate("scout", "x", deadline=datetime(2030, 1, 1)),  # noqa: DTZ001
        ["deadline", "time zone"],
    ),
    "a deadline in the past": (
        lambda h: h.parent.delegate("scout", "x", deadline=datetime(2020, 1, 1, tzinfo=UTC)),
        ["deadline", "in the past"],
    ),
    "a deadline of nothing": (
        lambda h: h.parent.delegate("scout", "x", deadline=timedelta(0)),
        ["deadline", "more than 0"],
    ),
    "a negative time": (
        lambda h: h.scout.message("planner", "x", expects_reply=True, reply_within=-timedelta(1)),
        ["reply_within", "0"],
    ),
    "a time without end": (
        lambda h: h.scout.message("planner", "x", expects_reply=True, reply_within=timedelta.max),
        ["reply_within", "366 days"],
    ),
    "a reply time without a question": (
        lambda h: h.scout.message("planner", "x", reply_within=timedelta(1)),
        ["reply_within", "expects_reply"],
    ),
    "a time-out that is no number": (lambda h: h.scout.next_turn(timeout="soon"), ["timeout"]),
    "an infinite time-out": (lambda h: h.scout.next_turn(timeout=float("inf")), ["timeout"]),
    "a negative time-out": (lambda h: h.parent.wait("task_x", timeout=-1), ["timeout"]),
    "True for a time-out": (lambda h: h.scout.next_turn(timeout=True), ["timeout"]),
    "a limit of 0": (lambda h: h.scout.inbox(limit=0), ["limit", "1"]),
    "a limit that is no number": (lambda h: h.scout.receive(limit="all"), ["limit"]),
    "a flag": (lambda h: h.parent.delegate("scout", "x", watch="no"), ["watch", "True or False"]),
    "no tasks to watch": (lambda h: h.parent.watch(), ["at least one task"]),
    "data that is a list": (lambda h: h.scout.message("planner", "x", data=[1]), ["data"]),
    "data with a date": (
        lambda h: h.scout.message("planner", "x", data={"at": MOMENT}),
        ["data", "datetime"],
    ),
    "data with a NaN": (
        lambda h: h.scout.message("planner", "x", data={"x": float("nan")}),
        ["data", "nan"],
    ),
    "data with a huge number": (
        lambda h: h.scout.message("planner", "x", data={"x": 2**53 + 1}),
        ["data", "2**53"],
    ),
    "data that is too deep": (
        lambda h: h.scout.message("planner", "x", data=_deep(5000)),
        ["data", "deep"],
    ),
    "a token": (lambda h: h.broker.join(h.name, "scout", "short"), ["token"]),
    "a question to oneself": (
        lambda h: h.scout.message("scout", "x", expects_reply=True),
        ["itself"],
    ),
    "a task for the parent": (lambda h: h.parent.delegate("parent", "x"), ["parent"]),
}


def _deep(levels: int) -> dict:
    value: dict = {}
    for _ in range(levels):
        value = {"x": value}
    return value


@pytest.mark.parametrize("bad", BAD)
async def test_bad_input_is_refused_at_the_door(herd, url, fleet_name, bad):
    """One clear error that names the field and the rule, and nothing changes."""
    call, said = BAD[bad]
    before = snapshot(url, fleet_name)

    with pytest.raises(errors.InvalidInput) as refusal:
        await call(herd)

    assert [text for text in said if text not in refusal.value.detail] == []
    assert len(refusal.value.detail) < 400
    assert snapshot(url, fleet_name) == before


@pytest.mark.parametrize("name", ["Fleet", "a b", "a{b}", "", "x" * 65, "é"])
def test_names_of_fleets_and_herds_have_the_same_rule(sync_broker, url, name):
    """What is no name of an agent is none of a fleet or a herd."""
    with pytest.raises(errors.InvalidInput):
        Broker.connect(url, fleet=name)
    with pytest.raises(errors.InvalidInput):
        sync_broker.open_herd(name)


async def test_a_body_may_hold_any_other_character(herd):
    """Line ends, tabs, quotes, braces, every script and emoji arrive as they were sent."""
    body = "tab\t line\nend \r\n {{}} '\"\\ 日本語 العربية 👩‍🚀 \u2028 %s KEYS[1]"
    await herd.scout.message("planner", body, data={"x": body, "list": [], "none": None})

    (mail,) = await herd.planner.receive()

    assert mail.body == body and mail.data == {"x": body, "list": [], "none": None}
