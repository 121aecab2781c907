"""Asks, by a given clock: who is silent, who is at work, and which limit ends it when."""

from __future__ import annotations

import random
import threading
from datetime import datetime, timedelta

import pytest

from tests.asking import asking, opening
from tests.fleets import Herd, about, token_of
from tests.requirements import proves
from tests.waiting import wait_until_async
from tocsin.broker import HerdSettings, agents, asks, errors
from tocsin.broker.ids import make_id
from tocsin.broker.testing import lapse

MINUTE = timedelta(minutes=1)
MS = timedelta(milliseconds=1)


async def read(herd: Herd) -> None:
    """Planner takes and acks its mail, as a loop does; no sign of work."""
    turn = await herd.planner.next_turn(timeout=5)
    assert turn is not None
    await turn.ack()


async def at(herd: Herd, moment: datetime) -> dict[str, int]:
    """The clock moves to a moment, and the scheduler looks."""
    return await herd.later(milliseconds=(moment - herd.clock.now()) / MS)


# ------------------------------------------------------------------ silence


@proves("P8")
async def test_a_silent_target(herd):
    """Without an answer or a sign of work the window ends the ask, to the millisecond."""
    async with asking(herd, herd.scout, "planner") as line:
        await read(herd)
        assert await herd.later(minutes=9, seconds=59, milliseconds=999) == {}
        assert line.open
        assert await herd.later(milliseconds=1) == {"windows": 1}
        ended = await line.ends(errors.NoReply)

    assert ended.retryable
    assert (ended.message_id, ended.reason, ended.limit) == (line.id, "read_but_silent", "window")
    assert "the window of 10m without a sign of work ran out" in ended.detail
    assert "ceiling" not in ended.detail


@proves("P8")
async def test_a_target_that_never_answers_and_has_no_probe(herd):
    """No way to tell is silence: the same end."""
    async with asking(herd, herd.scout, "planner", window=2 * MINUTE) as line:
        assert await herd.later(minutes=2) == {"windows": 1}
        assert (await line.ends(errors.NoReply)).reason == "unread"


async def test_work_before_the_ask_counts_for_nothing(herd):
    """The window runs from the ask's start, however busy the target was just before."""
    await herd.planner.progress("busy")
    async with asking(herd, herd.scout, "planner") as line:
        assert await herd.later(minutes=10) == {"windows": 1}
        await line.ends(errors.NoReply)


OWN = "msg_00000000000000000000000bb"
"""A question of the agent's own that it waits on."""


@proves("P8")
async def test_a_loop_that_only_polls_is_silent(herd):
    """Joining, renewing, taking, giving back, acking, a status, looking for answers: no work."""
    other = await herd.another("planner")
    task = await herd.working(herd.planner)
    await herd.broker.run(opening(herd.planner, OWN, to="parent"))
    async with asking(herd, herd.scout, "planner") as line:
        await herd.planner.receive()
        await (await herd.planner.receive()).nack()
        for _ in range(9):
            assert await herd.later(minutes=1) == {}
            for planner in (herd.planner, other):
                await herd.broker.join("release-42", "planner", planner.token)
                await planner.next_turn(timeout=0)
                await (await planner.receive()).ack()
                await planner.inbox()
                await planner.ack(line.id)
                await planner.set_status("working")
                await planner.receipt(line.id)
                await planner.why(line.id)
                await planner.task(task.id)
                await planner.tasks()
                await planner.ask_wait(OWN, timeout=0)
                await herd.broker.run(agents.renew(planner.caller))
            await herd.parent.watch(task.id)
            await herd.parent.wait(task.id, timeout=0)
        assert await herd.later(minutes=1) == {"windows": 2}, "of its own question, too"
        await line.ends(errors.NoReply)


@proves("P8")
async def test_the_work_of_another_agent_counts_for_nothing(herd):
    """Neither a third agent's, nor the asker's own, nor the parent's."""
    architect = await herd.child("architect")
    async with asking(herd, herd.scout, "planner") as line:
        await architect.probe({"transcript": 0})
        await herd.later(minutes=9)
        await architect.progress("at it")
        await architect.probe({"transcript": 100})
        await herd.scout.progress("waiting")
        await herd.parent.message("planner", "hurry")
        assert await herd.later(minutes=1) == {"windows": 1}
        await line.ends(errors.NoReply)


# ------------------------------------------------------------------ work


PARENTS_SIGNS = {
    "register": lambda herd: herd.parent.register("tester"),
    "delegate": lambda herd: herd.parent.delegate("planner", "Plan"),
    "cancel": lambda herd: herd.parent.cancel(herd.task.id),
    "cancel a settled one": lambda herd: herd.parent.cancel(herd.settled.id),
    "remind": lambda herd: herd.parent.remind(herd.question),
    "reroute": lambda herd: herd.parent.reroute(herd.question, "architect"),
    "cancel a question": lambda herd: herd.parent.cancel_request(herd.question),
    "close": lambda herd: herd.parent.close("architect"),
}


@proves("P8")
@pytest.mark.parametrize("sign", PARENTS_SIGNS)
async def test_a_parent_that_leads_its_herd_is_at_work(herd, sign):
    """Whatever it does for its children moves the window of an ask that waits on it."""
    architect = await herd.child("architect")
    herd.settled = await herd.working(architect)
    await architect.done(herd.settled.id)
    herd.task = await herd.working(architect)
    sent = await herd.scout.message("planner", "?", expects_reply=True, reply_within=60 * MINUTE)
    herd.question = sent.message_id
    async with asking(herd, herd.scout, "parent") as line:
        await herd.later(minutes=9)
        await PARENTS_SIGNS[sign](herd)
        assert await herd.later(minutes=9) == {}
        assert await herd.later(minutes=1) == {"windows": 1}
        await line.ends(errors.NoReply)


@proves("P8")
async def test_words_that_come_too_late_are_signs_of_work(herd):
    """Another reply than the one that stands, `done` of what has settled."""
    task = await herd.working(herd.planner)
    question = (await herd.parent.message("planner", "hello", expects_reply=True)).message_id
    await herd.planner.reply(question, "hello")
    await herd.parent.cancel(task.id)
    async with asking(herd, herd.scout, "planner") as line:
        await herd.later(minutes=9)
        assert (await herd.planner.reply(question, "no, bye")).superseded
        assert await herd.later(minutes=9) == {}
        await herd.planner.done(task.id)
        assert await herd.later(minutes=9) == {}
        assert await herd.later(minutes=1) == {"windows": 1}
        await line.ends(errors.NoReply)


SIGNS = {
    "message": lambda herd, task: herd.planner.message("parent", "a word"),
    "reply": lambda herd, task: herd.planner.reply(herd.hello, "hello"),
    "request": lambda herd, task: herd.planner.message("parent", "And?", expects_reply=True),
    "progress": lambda herd, task: herd.planner.progress("half"),
    "done": lambda herd, task: herd.planner.done(task.id, summary="done"),
    "probe": lambda herd, task: herd.planner.probe({"transcript": 101}),
    "ask": lambda herd, task: herd.broker.run(opening(herd.planner, to="parent")),
}


@proves("P8")
@pytest.mark.parametrize("sign", SIGNS)
async def test_each_sign_of_work_moves_the_window_on(herd, sign):
    """From when it came, not from when the window ended; then the answer comes."""
    task = await herd.working(herd.planner)
    herd.hello = (await herd.parent.message("planner", "hello")).message_id
    await herd.planner.probe({"transcript": 100})
    async with asking(herd, herd.scout, "planner") as line:
        await herd.later(minutes=4)
        await SIGNS[sign](herd, task)
        assert await herd.later(minutes=9, seconds=59) == {}
        assert line.open
        await herd.planner.reply(line.id, "Exponential")
        reply = await line.reply()

    assert (reply.body, reply.late, reply.extensions) == ("Exponential", False, 1)
    assert reply.waited == timedelta(minutes=13, seconds=59)
    assert (reply.request_id, reply.sender) == (line.id, "planner")


@proves("P8")
async def test_a_target_at_work_and_then_silent(herd):
    """Its last sign of work begins the last window."""
    async with asking(herd, herd.scout, "planner") as line:
        for _ in range(5):
            await herd.later(minutes=9)
            await herd.planner.progress("at it")
        assert await herd.later(minutes=9, seconds=59, milliseconds=999) == {}
        assert await herd.later(milliseconds=1) == {"windows": 1}
        ended = await line.ends(errors.NoReply)
    assert ended.limit == "window"


@proves("P8")
async def test_a_target_at_work_until_the_ceiling(herd):
    """The ceiling holds, whatever progress comes; another error, and not to be retried."""
    async with asking(herd, herd.scout, "planner", ceiling=25 * MINUTE) as line:
        await read(herd)
        for minutes in (8, 8, 8):
            await herd.later(minutes=minutes)
            await herd.planner.progress("at it")
        assert await herd.later(seconds=59, milliseconds=999) == {}
        assert await herd.later(milliseconds=1) == {"ceilings": 1}
        ended = await line.ends(errors.CeilingActive)

    assert not ended.retryable and ended.message_id == line.id
    assert "still working" in ended.detail and "do not retry blindly" in ended.detail
    assert "work in progress" in ended.detail and "the ceiling of 25m" in ended.detail


@proves("P8")
async def test_the_ceiling_after_a_window_of_silence(herd):
    """A target whose last work is older than a window is silent at the ceiling, too."""
    async with asking(herd, herd.scout, "planner", ceiling=20 * MINUTE) as line:
        await herd.later(minutes=9, seconds=59)
        await herd.planner.progress("at it")
        assert await herd.later(minutes=10, milliseconds=999) == {"windows": 1}
        assert (await line.ends(errors.NoReply)).limit == "window"


@proves("P8")
async def test_a_window_above_the_ceiling_is_clipped(herd):
    """The ceiling ends it, and is what the error names."""
    how = {"window": 30 * MINUTE, "ceiling": 5 * MINUTE}
    async with asking(herd, herd.scout, "planner", **how) as line:
        assert await herd.later(minutes=4, seconds=59, milliseconds=999) == {}
        assert await herd.later(milliseconds=1) == {"ceilings": 1}
        ended = await line.ends(errors.NoReply)
    assert ended.limit == "ceiling" and "the ceiling of 5m" in ended.detail
    assert "window of 30m" not in ended.detail


async def test_a_clipped_window_and_a_target_at_work(herd):
    """Active since the ask began is active at the ceiling."""
    how = {"window": 30 * MINUTE, "ceiling": 5 * MINUTE}
    async with asking(herd, herd.scout, "planner", **how) as line:
        await herd.later(minutes=1)
        await herd.planner.progress("at it")
        await herd.later(minutes=4)
        await line.ends(errors.CeilingActive)


async def test_work_in_the_millisecond_of_the_ask_is_no_sign_yet(herd):
    """`CeilingActive` needs work after the ask began."""
    async with asking(herd, herd.scout, "planner", ceiling=5 * MINUTE) as line:
        await herd.planner.progress("at it")
        await herd.later(minutes=5)
        await line.ends(errors.NoReply)


# ------------------------------------------------------------------ late schedulers, same moments


@pytest.mark.parametrize("looks", ["the scheduler", "the asker"])
@pytest.mark.parametrize(
    ("worked", "ends"),
    [
        ((), ("no_reply", "window")),
        ((8,), ("no_reply", "window")),
        ((8, 14), ("no_reply", "window")),
        ((8, 16), ("ceiling_active", "ceiling")),
        ((8, 24), ("ceiling_active", "ceiling")),
    ],
)
@proves("P8", "P16")
async def test_a_scheduler_that_was_off_past_window_and_ceiling(herd, worked, ends, looks):
    """Looked at late, an ask ends as it would have in time, whoever looks."""
    async with asking(herd, herd.scout, "planner", ceiling=25 * MINUTE) as line:
        for before, minute in zip((0, *worked), worked, strict=False):
            herd.clock.advance((minute - before) * MINUTE)
            await herd.planner.progress("at it")
        herd.clock.advance(timedelta(hours=6))
        if looks == "the scheduler":
            fired = await herd.scheduler.tick()
            assert fired.get("windows", 0) + fired.get("ceilings", 0) == 1
        else:
            with pytest.raises(errors.BrokerError):
                await herd.scout.ask_wait(line.id, timeout=0)
        ended = await line.ends(errors.BrokerError)
    assert (ended.code, getattr(ended, "limit", "ceiling")) == ends


async def test_work_in_the_millisecond_in_which_the_window_ends(herd):
    """What comes first counts: before the scheduler's look it moves the window on."""
    async with asking(herd, herd.scout, "planner") as line:
        herd.clock.advance(10 * MINUTE)
        await herd.planner.progress("at it")
        assert (await herd.scheduler.tick()).get("windows", 0) == 0
        assert line.open
        assert await herd.later(minutes=10) == {"windows": 1}
        await herd.planner.progress("too late")
        await line.ends(errors.NoReply)


@pytest.mark.parametrize("limit", ["window", "ceiling"])
@pytest.mark.parametrize("first", ["the answer", "the scheduler"])
@proves("P8", "P9")
async def test_the_answer_in_the_millisecond_of_a_limit(herd, limit, first):
    """One of the two: the answer, or the limit and a late answer as mail."""
    how = {"ceiling": 4 * MINUTE} if limit == "ceiling" else {"window": 4 * MINUTE}
    async with asking(herd, herd.scout, "planner", **how) as line:
        herd.clock.advance(4 * MINUTE)
        if first == "the answer":
            assert not (await herd.planner.reply(line.id, "!")).late
            assert await herd.scheduler.tick() == {}
            assert (await line.reply()).body == "!"
            assert await herd.scout.next_turn(timeout=0) is None
        else:
            await herd.scheduler.tick()
            assert (await line.ends(errors.NoReply)).limit == limit
            assert (await herd.planner.reply(line.id, "!")).late
            (late,) = await herd.scout.next_turn(timeout=5)
            assert late.late


@pytest.mark.parametrize("seed", range(12))
@proves("P8")
async def test_an_ask_ends_where_arithmetic_puts_it(herd, seed):
    """Any signs of work, any window and ceiling: to the millisecond, with the right error."""
    chance = random.Random(seed)
    window = chance.randrange(1, 20_000)
    ceiling = chance.randrange(1, 120_000)
    signs = sorted({chance.randrange(1, 120_000) for _ in range(chance.randrange(12))})
    last, ends, error = 0, min(window, ceiling), "no_reply"
    for sign in signs:
        if sign < ends:
            last, ends = sign, min(sign + window, ceiling)
    if ends == ceiling and last and last + window >= ceiling:
        error = "ceiling_active"

    how = {"window": window * MS, "ceiling": ceiling * MS}
    async with asking(herd, herd.scout, "planner", **how) as line:
        start = herd.clock.now()
        for sign in signs:
            if sign < ends:
                assert await at(herd, start + sign * MS) == {}
                await herd.planner.progress("at it")
        if start + (ends - 1) * MS > herd.clock.now():
            assert await at(herd, start + (ends - 1) * MS) == {}
        assert line.open
        fired = await at(herd, start + ends * MS)
        assert fired == {"ceilings" if ends == ceiling else "windows": 1}
        ended = await line.ends(errors.BrokerError)
    assert ended.code == error


# ------------------------------------------------------------------ reasons


async def test_the_reasons_of_silence_in_their_order(open_herd):
    """Away, unread, itself waiting, read but silent: the first that is true."""
    herd = await open_herd("h", "scout")
    planner = token_of(await herd.parent.register("planner"))
    await herd.child("architect")

    async def reason() -> str:
        async with asking(herd, herd.scout, "planner", key="k") as line:
            await herd.later(minutes=10)
            ended = await line.ends(errors.NoReply)
            assert ended.detail.endswith("delivered as mail")
            return ended.reason

    assert await reason() == "away"
    herd.children["planner"] = await herd.another("planner", planner)
    counter = await herd.planner.message(
        "architect", "And?", expects_reply=True, reply_within=timedelta(0)
    )
    assert await reason() == "unread"
    await (await herd.planner.receive()).ack()

    async def read_in_time() -> str:
        async with asking(herd, herd.scout, "planner", key="k") as line:
            await read(herd)
            await herd.later(minutes=10)
            return (await line.ends(errors.NoReply)).reason

    assert await read_in_time() == "waiting_on architect"
    await herd.planner.cancel_request(counter.message_id)
    assert await read_in_time() == "read_but_silent"
    lapse(herd.planner)
    assert await reason() == "away"


async def test_shown_is_read(herd):
    """What a tool or a hook showed the target was read."""
    async with asking(herd, herd.scout, "planner") as line:
        await herd.planner.inbox()
        await herd.later(minutes=10)
        assert (await line.ends(errors.NoReply)).reason == "read_but_silent"


async def test_the_two_ends_in_json_rpc(herd):
    """One table of codes, names and whether to try again."""
    async with asking(herd, herd.scout, "planner", ceiling=5 * MINUTE) as line:
        await herd.later(minutes=1)
        await herd.planner.progress("at it")
        await herd.later(minutes=4)
        active = errors.to_json_rpc(await line.ends(errors.CeilingActive))
        first = line.id
    async with asking(herd, herd.scout, "planner") as line:
        await herd.later(minutes=10)
        silent = errors.to_json_rpc(await line.ends(errors.NoReply))

    assert (silent["code"], active["code"]) == (-32001, -32002)
    assert silent["data"] == {
        "code": "NO_REPLY",
        "operation": "ask",
        "retryable": True,
        "message_id": line.id,
        "reason": "unread",
    }
    assert active["data"] == {
        "code": "RENDEZVOUS_CEILING_ACTIVE",
        "operation": "ask",
        "retryable": False,
        "message_id": first,
    }
    assert "still working" in str(active["message"]) and "no reply" in str(silent["message"])


# ------------------------------------------------------------------ limits: layers and bounds


async def test_the_limits_of_the_herd(open_herd):
    """Where a call says nothing, `ask_window` and `ask_ceiling` of the herd count, live."""
    herd = await open_herd("h", "scout", "planner", ask_window=2 * MINUTE)
    async with asking(herd, herd.scout, "planner") as line:
        assert await herd.later(minutes=2) == {"windows": 1}
        await line.ends(errors.NoReply)
    await herd.parent.set_settings(HerdSettings(ask_ceiling=MINUTE))
    async with asking(herd, herd.scout, "planner") as line:
        assert await herd.later(minutes=1) == {"ceilings": 1}
        await line.ends(errors.NoReply)


@pytest.mark.parametrize(("text", "window"), [("90", 90), ("2m", 120)])
async def test_the_limits_of_the_environment(open_herd, monkeypatch, text, window):
    """`TOCSIN_ASK_WINDOW` and `TOCSIN_ASK_CEILING`, in seconds or as people write durations."""
    monkeypatch.setenv("TOCSIN_ASK_WINDOW", text)
    monkeypatch.setenv("TOCSIN_ASK_CEILING", "4h")
    herd = await open_herd("h", "scout", "planner")
    settings = (await herd.parent.herd_record()).settings
    assert settings.ask_window == timedelta(seconds=window)
    assert settings.ask_ceiling == timedelta(hours=4)
    async with asking(herd, herd.scout, "planner") as line:
        assert await herd.later(seconds=window - 1) == {}
        assert await herd.later(seconds=1) == {"windows": 1}
        await line.ends(errors.NoReply)


@pytest.mark.parametrize("variable", ["TOCSIN_ASK_WINDOW", "TOCSIN_ASK_CEILING"])
@pytest.mark.parametrize("value", ["0", "-1", "7d1ms", "604801", "soon", "nan", "inf"])
async def test_limits_of_the_environment_out_of_bounds(open_herd, monkeypatch, variable, value):
    """Above 0 and at most 7 days, or no herd is opened; the refusal names the variable."""
    monkeypatch.setenv(variable, value)
    with pytest.raises(errors.InvalidInput, match=variable):
        await open_herd("h")


async def test_the_longest_limits(open_herd, monkeypatch):
    """7 days exactly, from a variable and from a call."""
    monkeypatch.setenv("TOCSIN_ASK_WINDOW", "7d")
    herd = await open_herd("h", "scout", "planner")
    week = timedelta(days=7)
    async with asking(herd, herd.scout, "planner", ceiling=week) as line:
        assert await herd.later(days=6, hours=23) == {}
        await herd.planner.reply(line.id, "at last")
        assert (await line.reply()).waited == timedelta(days=6, hours=23)


BAD = {
    "zero": timedelta(0),
    "negative": -MINUTE,
    "below a millisecond": timedelta(microseconds=999),
    "over a week": timedelta(days=7, milliseconds=1),
    "a moment over a week": timedelta(days=7, microseconds=1),
    "a number": 600,
    "text": "10m",
    "a bool": True,
}


@pytest.mark.parametrize("field", ["window", "ceiling"])
@pytest.mark.parametrize("value", BAD.values(), ids=BAD.keys())
async def test_limits_of_a_call_out_of_bounds(herd, field, value):
    """Refused before anything is sent, with the field's name."""
    with pytest.raises(errors.InvalidInput, match=field):
        await herd.scout.ask("planner", "?", **{field: value})
    assert len(await herd.planner.receive()) == 0


BAD_PROBES = {
    "no function": {"transcript": 1},
    "no mapping": lambda: 5,
    "no number": lambda: {"transcript": "5"},
    "a fraction": lambda: {"transcript": 0.5},
    "negative": lambda: {"transcript": -1},
    "a bool": lambda: {"transcript": True},
    "over 2**53": lambda: {"transcript": 2**53 + 1},
    "a source of two lines": lambda: {"a\nb": 1},
    "a source without a name": lambda: {"": 1},
    "too many sources": lambda: {str(number): 1 for number in range(101)},
}


@pytest.mark.parametrize("probe", BAD_PROBES.values(), ids=BAD_PROBES.keys())
async def test_a_bad_probe(herd, probe):
    """Refused, in `ask` before anything is sent."""
    with pytest.raises(errors.InvalidInput, match=r"probe|source"):
        await herd.scout.ask("planner", "?", probe=probe)
    if callable(probe):
        with pytest.raises(errors.InvalidInput, match=r"probe|source"):
            await herd.planner.probe(probe())
    assert len(await herd.planner.receive()) == 0


@pytest.mark.parametrize("fails", [OSError("disk"), {"transcript": -1}])
async def test_a_probe_that_fails_later(herd, fails, caplog):
    """It has seen nothing, which is logged once; the ask goes on."""
    counted = 0

    def probe() -> dict[str, int]:
        nonlocal counted
        counted += 1
        if counted > 1 and isinstance(fails, OSError):
            raise fails
        return {"transcript": 1} if counted == 1 else fails

    async with asking(herd, herd.scout, "planner", probe=probe, window=MINUTE / 100) as line:
        await wait_until_async(lambda: counted > 3, "the probe to have failed")
        await herd.planner.reply(line.id, "!")
        assert (await line.reply()).body == "!"
    assert caplog.text.count("a probe failed") == 1


@proves("P8")
async def test_a_probe_that_hangs_holds_up_nobody(herd):
    """Neither the question nor its answer, nor others in the event loop, nor the end of a look."""
    entered, go_on = threading.Event(), threading.Event()

    def probe() -> dict[str, int]:
        entered.set()
        assert go_on.wait(60)
        return {"transcript": 1}

    try:
        async with asking(herd, herd.scout, "planner", probe=probe) as line:
            assert entered.is_set()
            assert await herd.scout.ask_wait(line.id, timeout=0, probe=probe) is None
            await herd.planner.reply(line.id, "!")
            assert (await line.reply()).body == "!"
    finally:
        go_on.set()


@proves("P8")
async def test_a_probe_that_hangs_ends_with_the_window(herd):
    """What has not counted yet has seen nothing."""
    go_on = threading.Event()
    try:
        async with asking(herd, herd.scout, "planner", probe=lambda: go_on.wait(60)) as line:
            assert await herd.later(minutes=10) == {}
            await line.ends(errors.NoReply)
    finally:
        go_on.set()


@pytest.mark.parametrize("to", ["planner2", "Planner", "other/parent", ""])
async def test_a_target_that_is_none(herd, to):
    """An ask stays in its herd, with an agent that is there."""
    with pytest.raises((errors.UnknownAgent, errors.InvalidInput)):
        await herd.scout.ask(to, "?")


async def test_an_ask_of_oneself(herd):
    """Nobody waits for itself."""
    with pytest.raises(errors.InvalidInput):
        await herd.scout.ask("scout", "?")


async def test_looking_at_an_ask_that_is_none(herd):
    """A message that is no ask, one of another agent, and none at all are told apart."""
    sent = await herd.scout.message("planner", "?", expects_reply=True)
    with pytest.raises(errors.WrongState, match="is not an ask"):
        await herd.scout.ask_wait(sent.message_id)
    with pytest.raises(errors.UnknownMessage):
        await herd.scout.ask_wait(make_id("msg"))
    with pytest.raises(errors.InvalidInput):
        await herd.scout.ask_wait(make_id("task"))
    async with asking(herd, herd.scout, "planner") as line:
        for other in (herd.planner, herd.parent):
            with pytest.raises(errors.Forbidden):
                await other.ask_wait(line.id)


@proves("P13")
@pytest.mark.parametrize("deed", ["look", "confirm", "leave", "open"])
async def test_nobody_meddles_with_the_ask_of_another(herd, deed):
    """No agent looks at, confirms, leaves or joins what another asked, though it knows its id."""
    async with asking(herd, herd.scout, "planner") as line:
        await herd.scout.ask_wait(line.id, timeout=0)
        await herd.planner.reply(line.id, "secret")
        caller = herd.planner.caller
        calls = {
            "look": lambda: asks.look(caller, line.id, "call_1", ""),
            "confirm": lambda: asks.confirm(caller, line.id, "call_1"),
            "leave": lambda: asks.leave(caller, line.id, "call_1", told=True),
            "open": lambda: opening(herd.planner, line.id),
        }
        with pytest.raises(errors.Forbidden):
            await herd.broker.run(calls[deed]())
        assert (await line.reply()).body == "secret"


# ------------------------------------------------------------------ no scheduler


@proves("P8")
async def test_an_asker_without_a_scheduler(herd):
    """A look fires what is overdue, through the same script."""
    async with asking(herd, herd.scout, "planner") as line:
        herd.clock.advance(10 * MINUTE - MS)
        assert await herd.scout.ask_wait(line.id, timeout=0) is None
        herd.clock.advance(MS)
        with pytest.raises(errors.NoReply):
            await herd.scout.ask_wait(line.id, timeout=0)
        await line.ends(errors.NoReply)
    assert (await herd.scheduler.tick()).get("windows", 0) == 0


async def test_a_window_whose_timer_was_lost(herd):
    """Somebody deleted its entry by hand: the asker's look ends it all the same."""
    async with asking(herd, herd.scout, "planner", window=MINUTE) as line:
        partition = herd.scout.caller.fleet.partition(herd.name)
        removed = await herd.broker.link.command(
            "test", "ZREM", f"{partition}:h:{herd.name}:due", f"4:window:{line.id}"
        )
        assert removed == 1
        await herd.later(minutes=1)
        with pytest.raises(errors.NoReply):
            await herd.scout.ask_wait(line.id, timeout=0)
        await line.ends(errors.NoReply)


async def test_nobody_is_told_twice(herd):
    """Who waits has the error, and no mail about it."""
    async with asking(herd, herd.scout, "planner") as line:
        await herd.later(minutes=10)
        await line.ends(errors.NoReply)
    await herd.later(hours=1)
    assert about(await herd.scout.receive(), "request_closed") == []
    assert await herd.scout.next_turn(timeout=0) is None
    await wait_until_async(lambda: not line.open, "the asker to end")
