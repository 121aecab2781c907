"""Every call that writes, its answer lost and repeated by the client library (case 1).

Each row is played in two herds of one fleet, in one of them with an answer lost on the way. After
that the two herds must be the same to the byte, but for what is random.
"""

from __future__ import annotations

import asyncio
import inspect
import re
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import pytest
import redis

from tests.acceptance.test_lost_answers import LOST, behind, cut, proxy
from tests.asking import REQUEST, opening
from tests.leftovers import fleet_keys
from tests.requirements import proves
from tocsin.broker import (
    AsyncBroker,
    AsyncChild,
    AsyncClaimedTurn,
    AsyncParent,
    CommandRunner,
    Ending,
    Envelope,
    HerdSettings,
    How,
    keys,
)
from tocsin.broker._async.agent import AsyncAgent
from tocsin.broker._async.turn import AsyncTurn
from tocsin.scheduler import AsyncScheduler

__all__ = ["behind", "proxy"]


@dataclass
class Stage:
    """A herd whose agents reach the server through the proxy, and what a row has prepared in it."""

    broker: AsyncBroker
    name: str
    parent: AsyncParent
    scout: AsyncChild
    planner: AsyncChild
    beside: AsyncChild
    """Another planner, for what happens at the same time."""
    given: Any = None


Step = Callable[[Stage], Awaitable[Any]]


@dataclass
class Row:
    """A call that writes: its method, the script whose answer is lost, what is to be done."""

    method: str
    script: str
    call: Step
    given: Step | None = None
    like: str = ""
    """What tells it from other rows of the method."""


async def _task(stage: Stage) -> str:
    task = await stage.parent.delegate("scout", "Find it")
    await (await stage.scout.receive()).ack()
    return task.id


async def _led(stage: Stage) -> None:
    await stage.scout.open_herd(f"{stage.name}-under")
    await AsyncScheduler(stage.broker).tick()


async def _task_with_a_herd(stage: Stage) -> str:
    await _led(stage)
    return await _task(stage)


async def _settled(stage: Stage) -> str:
    task = await _task(stage)
    await stage.scout.done(task, summary="found")
    return task


async def _question(stage: Stage) -> str:
    task = await _task(stage)
    sent = await stage.scout.message("planner", "Which?", task=task, expects_reply=True)
    return sent.message_id


async def _answered(stage: Stage) -> str:
    question = await _question(stage)
    await stage.planner.reply(question, "That one.")
    return question


async def _mail(stage: Stage) -> str:
    return (await stage.scout.message("planner", "hello")).message_id


async def _shown(stage: Stage) -> str:
    message = await _mail(stage)
    await stage.planner.inbox()
    return message


async def _tried(stage: Stage) -> None:
    await stage.planner.report_wake("send-user-message", True, [await _mail(stage)])


async def _turn(stage: Stage) -> AsyncTurn:
    await _mail(stage)
    return await stage.planner.receive()


async def _taken(stage: Stage) -> str:
    return (await _turn(stage))[0].message_id


async def _dead(stage: Stage) -> str:
    await stage.parent.set_settings(HerdSettings(max_attempts=1))
    turn = await _turn(stage)
    await turn.nack(error="broken")
    return turn[0].message_id


async def _planned(stage: Stage) -> str:
    return (await stage.parent.plan("scout", "Look", every=timedelta(hours=1))).id


async def _paused(stage: Stage) -> str:
    return (await stage.parent.pause_plan(await _planned(stage))).id


async def _read(taking: Awaitable[AsyncTurn | None]) -> list[Envelope]:
    return list(await taking or ())


async def _due(stage: Stage) -> None:
    await stage.parent.set_runner("scout", CommandRunner(["code"]))
    await stage.parent.delegate("scout", "Find it")


async def _running(stage: Stage) -> AsyncClaimedTurn | None:
    await _due(stage)
    turn = await stage.broker.claim_turn(stage.name, "scout", 1)
    assert turn is not None and await turn.child.receive()
    return turn


async def _ask(stage: Stage) -> Any:
    asking = asyncio.create_task(stage.scout.ask("planner", "Which?"))
    turn = await stage.beside.next_turn(timeout=20)
    assert turn is not None
    await stage.beside.reply(turn[0], "That one.")
    return await asking


async def _asked(stage: Stage) -> str:
    """An ask whose answer nobody has heard yet: its caller is still on the line."""
    await stage.broker.run(opening(stage.scout))
    await stage.planner.reply(REQUEST, "That one.")
    return REQUEST


ROWS = [
    Row(
        "AsyncBroker.open_herd",
        "herd_open",
        lambda s: s.broker.open_herd(f"{s.name}-new", settings=HerdSettings(max_attempts=2)),
    ),
    Row(
        "AsyncBroker.open_herd",
        "herd_open",
        lambda s: s.broker.open_herd(
            s.name, token=s.parent.token, settings=HerdSettings(max_attempts=2)
        ),
        like="again",
    ),
    Row(
        "AsyncBroker.join",
        "instance_join",
        lambda s: s.broker.join(s.name, "scout", s.scout.token),
    ),
    Row("AsyncAgent.message", "message_send", lambda s: s.scout.message("planner", "hello")),
    Row(
        "AsyncAgent.message",
        "message_send",
        lambda s: s.scout.message("planner", "Which?", task=s.given, expects_reply=True),
        given=_task,
        like="question",
    ),
    Row(
        "AsyncAgent.message",
        "outbox_send",
        lambda s: s.scout.message("other/parent", "hello"),
        like="another herd",
    ),
    Row("AsyncAgent.reply", "request_reply", lambda s: s.planner.reply(s.given, "!"), _question),
    Row(
        "AsyncAgent.reply", "request_reply", lambda s: s.planner.reply(s.given, "!"), _mail, "mail"
    ),
    Row(
        "AsyncAgent.reply",
        "request_reply",
        lambda s: s.planner.reply(s.given, "Another."),
        given=_answered,
        like="second",
    ),
    Row("AsyncAgent.ask", "ask_open", _ask),
    Row("AsyncAgent.ask", "ask_confirm", _ask, like="confirmed"),
    Row("AsyncAgent.ask_wait", "ask_look", lambda s: s.scout.ask_wait(s.given), _asked),
    Row(
        "AsyncAgent.probe",
        "agent_probe",
        lambda s: s.scout.probe({"transcript": 2}),
        given=lambda s: s.scout.probe({"transcript": 1}),
    ),
    Row(
        "AsyncAgent.cancel_request",
        "request_cancel",
        lambda s: s.scout.cancel_request(s.given),
        given=_question,
    ),
    Row("AsyncAgent.next_turn", "inbox_take", lambda s: _read(s.planner.next_turn(5)), _mail),
    Row("AsyncAgent.receive", "inbox_take", lambda s: _read(s.planner.receive()), _mail),
    Row("AsyncAgent.inbox", "inbox_show", lambda s: s.planner.inbox(), _mail),
    Row(
        "AsyncAgent.report_session",
        "session_report",
        lambda s: s.scout.report_session("pi", "two", "working", ["send-user-message"]),
        given=lambda s: s.scout.report_session("pi", "one", "started", ["send-user-message"]),
    ),
    Row(
        "AsyncAgent.report_session",
        "session_report",
        lambda s: s.scout.report_session("pi", "one", "ended"),
        given=lambda s: s.scout.report_session("pi", "one", "started", ["send-user-message"]),
        like="ended",
    ),
    Row(
        "AsyncAgent.report_wake",
        "wake_report",
        lambda s: s.planner.report_wake("send-user-message", True, [s.given]),
        given=_mail,
    ),
    Row("AsyncAgent.inbox", "inbox_show", lambda s: s.planner.inbox(), _tried, "confirms a try"),
    Row("AsyncAgent.ack", "inbox_ack", lambda s: s.planner.ack(s.given), _shown),
    Row("AsyncAgent.progress", "agent_progress", lambda s: s.scout.progress("half", 0.5)),
    Row("AsyncAgent.set_status", "agent_status", lambda s: s.scout.set_status("working")),
    Row("AsyncAgent.leave", "instance_leave", lambda s: s.planner.leave(), _turn),
    Row("AsyncTurn.ack", "inbox_ack", lambda s: s.given.ack(), _turn),
    Row("AsyncTurn.nack", "inbox_nack", lambda s: s.given.nack(), _turn),
    Row(
        "AsyncTurn.nack",
        "inbox_nack",
        lambda s: s.given.nack(delay=timedelta(minutes=1), error="broken"),
        given=_turn,
        like="failed",
    ),
    Row("AsyncParent.register", "agent_register", lambda s: s.parent.register("tester")),
    Row("AsyncParent.rotate", "agent_rotate", lambda s: s.parent.rotate("scout")),
    Row("AsyncParent.rotate", "agent_rotate", lambda s: s.parent.rotate("parent"), like="itself"),
    Row(
        "AsyncParent.set_runner",
        "agent_employ",
        lambda s: s.parent.set_runner("scout", CommandRunner(["code"])),
        given=_task,
    ),
    Row(
        "AsyncBroker.claim_turn",
        "turn_claim",
        lambda s: s.broker.claim_turn(s.name, "scout", 1),
        given=_due,
    ),
    Row(
        "AsyncClaimedTurn.end",
        "turn_end",
        lambda s: s.given.end(Ending(kind=How.EXITED, exit_code=0)),
        given=_running,
    ),
    Row(
        "AsyncClaimedTurn.end",
        "turn_end",
        lambda s: s.given.end(Ending(kind=How.CRASHED, error="no")),
        given=_running,
        like="failed",
    ),
    Row(
        "AsyncBroker.limit_turns",
        "slots_set",
        lambda s: s.broker.limit_turns("queue/gpu", 4),
    ),
    Row("AsyncParent.close", "agent_close", lambda s: s.parent.close("scout"), _question),
    Row("AsyncParent.close_herd", "herd_close", lambda s: s.parent.close_herd(), _question),
    Row(
        "AsyncParent.set_settings",
        "herd_set",
        lambda s: s.parent.set_settings(HerdSettings(max_attempts=2)),
    ),
    Row("AsyncParent.delegate", "task_delegate", lambda s: s.parent.delegate("scout", "Find it")),
    Row("AsyncParent.plan", "plan_add", lambda s: s.parent.plan("scout", "Look", cron="0 2 * * *")),
    Row("AsyncParent.run_plan", "plan_run", lambda s: s.parent.run_plan(s.given), _planned),
    Row("AsyncParent.pause_plan", "plan_pause", lambda s: s.parent.pause_plan(s.given), _planned),
    Row("AsyncParent.resume_plan", "plan_resume", lambda s: s.parent.resume_plan(s.given), _paused),
    Row(
        "AsyncParent.remove_plan", "plan_remove", lambda s: s.parent.remove_plan(s.given), _planned
    ),
    Row("AsyncParent.watch", "task_watch", lambda s: s.parent.watch(s.given), _task),
    Row(
        "AsyncParent.watch",
        "task_watch",
        lambda s: s.parent.watch(s.given, wake="all"),
        _task,
        "all",
    ),
    Row("AsyncParent.cancel", "task_cancel", lambda s: s.parent.cancel(s.given), _task),
    Row("AsyncParent.cancel", "task_cancel", lambda s: s.parent.cancel(s.given), _settled, "late"),
    Row("AsyncParent.remind", "request_remind", lambda s: s.parent.remind(s.given), _question),
    Row(
        "AsyncParent.reroute",
        "request_reroute",
        lambda s: s.parent.reroute(s.given, "parent"),
        given=_question,
    ),
    Row(
        "AsyncParent.hand_back", "message_hand_back", lambda s: s.parent.hand_back(s.given), _taken
    ),
    Row("AsyncParent.replay", "dead_replay", lambda s: s.parent.replay(s.given), _dead),
    Row("AsyncParent.drop", "dead_drop", lambda s: s.parent.drop(s.given), _dead),
    Row("AsyncChild.done", "task_done", lambda s: s.scout.done(s.given, summary="found"), _task),
    *(
        Row(
            "AsyncChild.open_herd",
            script,
            lambda s: s.scout.open_herd(f"{s.name}-under"),
            like=script,
        )
        for script in ("tie_prove", "herd_open")
    ),
    Row(
        "AsyncParent.cancel",
        "task_cancel",
        lambda s: s.parent.cancel(s.given),
        given=_task_with_a_herd,
        like="herd under",
    ),
    Row("AsyncParent.close", "agent_close", lambda s: s.parent.close("scout"), _led, "herd under"),
    Row(
        "AsyncChild.done",
        "task_done",
        lambda s: s.scout.done(s.given, "failed", error="no"),
        given=_settled,
        like="late",
    ),
]

READS = {
    "AsyncBroker.fleet",
    "AsyncBroker.herds",
    "AsyncBroker.tree",
    "AsyncBroker.turn_slots",
    "AsyncClaimedTurn.wait_stop",
    "AsyncAgent.receipt",
    "AsyncAgent.why",
    "AsyncParent.herd_record",
    "AsyncParent.wait",
    "AsyncParent.dead_letters",
    "AsyncParent.dead_letter",
    "AsyncAgent.look",
    "AsyncAgent.roster",
    "AsyncParent.task",
    "AsyncParent.tasks",
    "AsyncParent.plans",
    "AsyncParent.plan_record",
    "AsyncParent.journal",
    "AsyncChild.task",
    "AsyncChild.tasks",
}
"""What changes nothing."""

OF_OTHERS = {
    "AsyncBroker.run": "whatever it is given",
    "AsyncBroker.agree": "fleet, asked anew",
    "AsyncBroker.aclose": "leave",
    "AsyncAgent.turns": "next_turn",
}
"""What does nothing but another call."""


def test_every_call_that_writes_is_repeated_here():
    """Case 1: a method that is new is in the table, or among those that only read."""
    methods = {
        f"{kind.__name__}.{name}"
        for kind in (
            AsyncBroker,
            AsyncAgent,
            AsyncParent,
            AsyncChild,
            AsyncTurn,
            AsyncClaimedTurn,
        )
        for name, method in vars(kind).items()
        if not name.startswith("_")
        and (inspect.iscoroutinefunction(method) or inspect.isasyncgenfunction(method))
    }
    assert methods == {row.method for row in ROWS} | READS | OF_OTHERS.keys()


_CHANCE = [
    (re.compile(r"[0-9a-f]{64}|[0-9a-f]{32}"), "(hash)"),
    (re.compile(r"\b\d{13,}-\d+"), "(entry)"),
    (re.compile(r"tok_[\w-]+"), "(token)"),
    (re.compile(r"(?<=_)[0-9a-z]{25}"), "(chance)"),
    (re.compile(r"(?<=wake:bell', b'\d{13}) \d+"), " (who listened by then)"),
    (re.compile(r"((?:trail|>[\w/]+)', b')[0-9a-z ]*"), r"\1(marks)"),
]


def without_chance(value: object, herd: str) -> str:
    """As text, with the herd's name and all that is made by chance replaced."""
    text = repr(value).replace(herd, "(herd)")
    for pattern, name in _CHANCE:
        text = pattern.sub(name, text)
    return text


_ITEMS: dict[str, Callable[[redis.Redis, str], Any]] = {
    "hash": lambda client, key: client.hgetall(key).items(),
    "zset": lambda client, key: client.zrange(key, 0, -1, withscores=True),
    "set": lambda client, key: client.smembers(key),
    "string": lambda client, key: [client.get(key)],
    "stream": lambda client, key: client.xrange(key),
}


def picture(url: str, fleet: str, herd: str) -> list[tuple[str, list[str]]]:
    """All that is stored of a herd, comparable to what is stored of another."""
    found = []
    with redis.Redis.from_url(url) as client:
        for key in fleet_keys(client, fleet):
            kind = keys.kind_of(key)
            if kind is None or f":h:{herd}" not in key:
                continue
            type_of = keys.KEYS[kind].type
            items = [without_chance(item, herd) for item in _ITEMS[type_of](client, key)]
            if type_of != "stream":  # the order of others is that of chance
                items.sort()
            found.append((without_chance(key.split("}", 1)[1], herd), items))
    return sorted(found)


NAMES = ("h-once", "h-again")


@LOST
@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row.method[5:]} {row.like}".strip())
@proves("P12")
async def test_a_call_whose_answer_is_lost(open_herd, behind, proxy, url, fleet_name, row, when):
    """Case 1: the repeat has no effect of its own, and the caller gets the answer of the first."""
    answers, pictures = [], []
    for name in NAMES:
        herd = await open_herd(name, "scout", "planner")
        stage = Stage(
            behind,
            name,
            await behind.join(name, "parent", herd.parent.token),
            await behind.join(name, "scout", herd.scout.token),
            await behind.join(name, "planner", herd.planner.token),
            herd.planner,
        )
        stage.given = await row.given(stage) if row.given else None
        lost = cut(proxy, row.script, when) if name == NAMES[1] else None
        answers.append(await row.call(stage))
        assert lost is None or lost.happened
        pictures.append(picture(url, fleet_name, name))

    assert pictures[1] == pictures[0]
    once, again = (
        # What this very call has sent may be said to have been sent before: it was.
        without_chance(answer, name).replace("duplicate=True", "duplicate=False")
        for answer, name in zip(answers, NAMES, strict=True)
    )
    assert again == once
