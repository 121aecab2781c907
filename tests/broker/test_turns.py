"""Turns of children that have a runner: when one is due, whose it is, and what comes of its end."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import pytest

from tests.fleets import about, bodies, command, key_of, of_kind
from tests.requirements import proves
from tests.turning import BADLY, WELL, claim, employ, run, turns_of
from tests.waiting import wait_until_async
from tocsin.broker import (
    CallableRunner,
    CommandRunner,
    Decision,
    Ending,
    How,
    Kind,
    errors,
)
from tocsin.broker.clock import from_ms
from tocsin.broker.testing import lapse


@pytest.fixture
async def herd(open_herd):
    """A herd with a child that has a runner, coder, and one with a process, planner."""
    herd = await open_herd("release-42", "planner")
    await employ(herd)
    return herd


# ------------------------------------------------------------------ runners


async def test_a_runner_is_checked_at_the_door(herd):
    """What is refused says the field, what is wrong with it, and what there is; nothing is made."""
    for refused, word in (
        (lambda: CommandRunner([]), "runner.command"),
        (lambda: CommandRunner("code -p"), "runner.command"),
        (lambda: CommandRunner(["a"], qeue="x"), "queue"),
        (lambda: CommandRunner(["a"], queue="My Queue"), "runner.queue"),
        (lambda: CommandRunner(["a"], wake_batch=5), "timedelta"),
        (lambda: CommandRunner(["a"], turn_timeout=timedelta(0)), "runner.turn_timeout"),
        (lambda: CommandRunner(["a\0"]), "U+0000"),
        (lambda: CommandRunner(["a"], env={"A=B": "x"}), "environment variable"),
        (lambda: CommandRunner(["a"], pass_env=["TOCSIN_TOKEN"]), "TOCSIN_"),
        (lambda: CommandRunner(["a"], cwd="here"), "absolute"),
        (lambda: CommandRunner(["a"], limit_patterns=["("]), "regular expression"),
        (lambda: CallableRunner("module"), "package.module:function"),
    ):
        with pytest.raises(errors.InvalidInput) as refusal:
            refused()
        assert word in refusal.value.detail
    with pytest.raises(errors.InvalidInput) as refusal:
        await herd.parent.register("other", runner=["code"])
    assert "CommandRunner" in refusal.value.detail
    assert {each.agent for each in await herd.parent.roster()} == {"parent", "planner", "coder"}


async def test_no_value_of_a_variable_is_shown(herd):
    """Secrets that somebody stored with a runner are in no refusal and in no view (case 31)."""
    with pytest.raises(errors.InvalidInput) as refusal:
        CommandRunner(["a"], env={"KEY": "hunter2", "OTHER": 1})
    assert "hunter2" not in str(refusal.value)
    await herd.parent.set_runner("coder", CommandRunner(["a"], env={"KEY": "hunter2"}))
    assert "hunter2" not in str(await herd.parent.roster())


async def test_registering_again_keeps_the_runner_unless_one_is_given(herd):
    """`exist_ok` alone changes nothing; with a runner, that one takes its place."""
    await herd.parent.register("coder", exist_ok=True)
    assert (await turns_of(herd)).runner == "command: code"
    await herd.parent.register("coder", exist_ok=True, runner=CallableRunner("agents:work"))
    assert (await turns_of(herd)).runner == "callable: agents:work"
    await herd.parent.set_runner("coder", None)
    assert (await herd.parent.roster())[-1].turns is None


async def test_mail_that_waits_makes_a_turn_due_when_its_agent_gets_a_runner(herd):
    """What came before is not forgotten."""
    await herd.parent.register("later")
    await herd.parent.message("later", "hello")
    await herd.parent.set_runner("later", CommandRunner(["code"]))
    assert (await turns_of(herd, "later")).state == "due"


# ------------------------------------------------------------------ what makes one due


async def test_whatever_wakes_makes_a_turn_due(herd):
    """A task, a question, an answer, a plain message; not what is quiet."""
    task = await herd.parent.delegate("coder", "write it")
    assert await run(herd) == Decision.NUDGED
    turn = await claim(herd)
    await turn.child.message("planner", "Which?", task=task.id, expects_reply=True)
    assert (await turn.end(WELL)).decision == Decision.WAITS
    assert (await turns_of(herd)).state == "none"
    [question] = await herd.planner.receive()
    await herd.planner.reply(question, "That one")
    turn = await claim(herd)
    assert (turn.reason, [each.kind for each in await turn.child.receive()]) == ("mail", ["reply"])
    await turn.child.done(task.id, summary="written")
    assert (await turn.end(WELL)).decision == Decision.IDLE
    for wakes in (
        herd.planner.message("coder", "hello"),
        herd.planner.message("coder", "And you?", expects_reply=True),
    ):
        await wakes
        assert (await turns_of(herd)).state == "due"
        assert await run(herd) == Decision.IDLE
    assert (await turns_of(herd)).turns == 5


async def test_wakes_close_together_are_one_turn(herd):
    """The time of a turn is set by the first; all that came by then is in it."""
    for text in ("one", "two", "three"):
        await herd.planner.message("coder", text)
        herd.clock.advance(timedelta(seconds=1))
    assert (await turns_of(herd)).number == 1
    turn = await claim(herd)
    assert [each.body for each in await turn.child.receive()] == ["one", "two", "three"]
    await turn.end(WELL)
    counted = await turns_of(herd)
    assert (counted.wakes, counted.turns, counted.characters) == (3, 1, 11)


async def test_mail_that_comes_during_a_turn_makes_the_next_one_due(herd):
    """It is not lost, and never two are at work."""
    await herd.planner.message("coder", "one")
    turn = await claim(herd)
    await turn.child.receive()
    await herd.planner.message("coder", "two")
    assert (await turns_of(herd)).state == "running"
    assert (await turn.end(WELL)).decision == Decision.CONTINUES
    assert (await turns_of(herd)).number == 2
    after = await claim(herd)
    assert [each.body for each in await after.child.receive()] == ["two"]


async def test_a_turn_with_nothing_left_to_do_is_none(herd):
    """What woke was taken back, or its task cancelled: whoever comes for the turn is told so."""
    task = await herd.parent.delegate("coder", "write it")
    await herd.parent.cancel(task.id)
    found = await turns_of(herd)
    assert await herd.broker.claim_turn(herd.name, "coder", found.number) is None
    assert (await turns_of(herd)).state == "none"


# ------------------------------------------------------------------ whose it is


@proves("P12")
async def test_a_turn_is_one_callers_alone(herd):
    """Twenty jobs of one turn, stale ones, and one that does not exist yet: one runs (case 16)."""
    await herd.parent.delegate("coder", "write it")
    claims = [herd.broker.claim_turn(herd.name, "coder", 1) for _ in range(20)]
    found = await asyncio.gather(*claims)
    [turn] = [each for each in found if each is not None]
    await turn.child.receive()
    assert await herd.broker.claim_turn(herd.name, "coder", 2) is None
    await turn.end(WELL)
    assert await herd.broker.claim_turn(herd.name, "coder", 1) is None


@proves("P13")
async def test_a_turns_token_proves_the_agent_while_it_runs(herd):
    """The agent's own goes on beside it; a turn's stops with the turn (case 29)."""
    task = await herd.parent.delegate("coder", "write it")
    turn = await claim(herd)
    program = await herd.broker.join(herd.name, "coder", turn.token)
    await program.receive()
    await program.progress("at it")
    await turn.end(WELL)
    with pytest.raises(errors.Unauthorized):
        await program.done(task.id)
    other = await claim(herd)
    with pytest.raises(errors.Unauthorized):
        await program.done(task.id)
    assert (await other.child.task(task.id)).state == "running"


# ------------------------------------------------------------------ how it ends


async def test_what_a_turn_had_in_hand_is_handled_when_it_ends_well(herd):
    """What it took, and what a command in it was shown; what came later makes the next turn due."""
    await herd.planner.message("coder", "one")
    turn = await claim(herd)
    await turn.child.receive()
    shown = await herd.planner.message("coder", "two")
    program = await herd.broker.join(herd.name, "coder", turn.token)
    assert [each.body for each in await program.inbox()] == ["two"]
    assert (await turn.end(WELL)).decision == Decision.IDLE
    assert (await herd.planner.receipt(shown.message_id)).state == "handled"
    assert (await turns_of(herd)).state == "none"


async def test_a_task_that_is_left_open_is_nudged_then_its_parent_told(herd):
    """Two more turns, which say why they are; then one quiet notice. Mail begins anew."""
    task = await herd.parent.delegate("coder", "write it")
    assert await run(herd) == Decision.NUDGED
    for decided in (Decision.NUDGED, Decision.LEFT_OPEN):
        turn = await claim(herd)
        assert turn.reason == "nudge"
        assert (await turn.end(WELL)).decision == decided
    assert (await turns_of(herd)).state == "none"
    assert (await herd.parent.task(task.id)).state == "running"
    [told] = about(await herd.parent.receive(), "unfinished")
    assert task.id in told.body and not told.trigger_turn
    await herd.parent.message("coder", "please end it")
    assert await run(herd) == Decision.NUDGED


@proves("P10")
async def test_a_turn_that_fails_is_tried_again_and_then_its_task_has_failed(herd):
    """With a pause that doubles; once, with reason and tail, and what it held is dead."""
    task = await herd.parent.delegate("coder", "write it", watch=True)
    await herd.planner.message("coder", "take this with you")
    for attempt, pause in ((1, 10), (2, 20)):
        turn = await claim(herd)
        assert (turn.attempt, len(await turn.child.receive())) == (attempt, 2)
        assert (await turn.end(BADLY)).decision == Decision.RETRIED
        assert await _due_in(herd) == timedelta(seconds=pause)
    turn = await claim(herd)
    assert (turn.reason, turn.attempt) == ("retry", 3)
    assert [each.kind for each in await turn.child.receive()] == ["task"]  # what keeps failing
    assert (await turn.end(BADLY)).decision == Decision.FAILED
    settlement = (await herd.parent.task(task.id)).settlement
    assert settlement is not None and settlement.return_code == 1
    assert "code 3" in str(settlement.error) and "no such file" in str(settlement.error)
    mail = await herd.parent.next_turn(0)
    assert len(of_kind(mail, Kind.TASK_SETTLED)) == 1
    after = await claim(herd)  # what it took along goes its own way
    assert [each.body for each in await after.child.receive()] == ["take this with you"]
    assert (await after.end(WELL)).decision == Decision.IDLE


async def _due_in(herd):
    """How long until the next turn of coder is due."""
    at = await command(herd, "ZSCORE", key_of(herd, "due"), "6:turn:coder")
    return from_ms(int(at)) - herd.clock.now()


async def _woken(herd):
    return (await turns_of(herd)).wakes


async def test_mail_of_a_turn_that_keeps_failing_is_dead_in_the_end(herd):
    """Without a task the turn is tried as often, and what it held is a dead letter (case 8)."""
    await herd.planner.message("coder", "poison")
    for decided in (Decision.RETRIED, Decision.RETRIED, Decision.FAILED):
        assert await run(herd, BADLY) == decided
    [letter] = await herd.parent.dead_letters()
    assert "code 3" in str(letter.reason)
    assert (await turns_of(herd)).state == "none"


@pytest.mark.parametrize("kind", [How.CRASHED, How.TIMEOUT, How.PROVIDER_ERROR])
async def test_what_counts_as_a_failure(herd, kind):
    """A signal, the time-out, an error of the provider: each is said so."""
    await employ(herd, "once", retries=0)
    task = await herd.parent.delegate("once", "write it")
    ending = Ending(kind=kind, signal=9 if kind is How.CRASHED else None, error="it says")
    assert await run(herd, ending, "once") == Decision.FAILED
    settlement = (await herd.parent.task(task.id)).settlement
    assert "it says" in str(settlement and settlement.error)


async def test_a_failed_turn_that_took_nothing_fails_its_task_as_well(herd):
    """A program that cannot be started never comes to its mail; it is not woken for ever."""
    task = await herd.parent.delegate("coder", "write it")
    for _ in range(3):
        await (await claim(herd)).end(Ending(kind=How.CRASHED, error="no such program"))
    assert (await herd.parent.task(task.id)).state == "failed"
    assert (await turns_of(herd)).state == "none"


async def test_a_finished_task_is_never_flipped(herd):
    """Its turn ends badly after `done`: the task stays as it was settled, nothing is retried."""
    task = await herd.parent.delegate("coder", "write it")
    turn = await claim(herd)
    await turn.child.receive()
    await turn.child.done(task.id, summary="written")
    assert (await turn.end(BADLY)).decision == Decision.IDLE
    assert (await herd.parent.task(task.id)).state == "completed"
    assert (await turns_of(herd)).failures == 0


async def test_a_worker_that_dies_has_lost_its_turn(herd):
    """The turn is tried again, with its mail, and what the lost one says of itself is over."""
    task = await herd.parent.delegate("coder", "write it")
    lost = await claim(herd)
    await lost.child.receive()
    lapse(lost.child)
    assert (await turns_of(herd)).state == "due"
    assert await lost.wait_stop(0)
    turn = await claim(herd)
    assert (turn.attempt, len(await turn.child.receive())) == (2, 1)
    assert (await lost.end(WELL)).decision == Decision.OVER
    with pytest.raises(errors.Unauthorized):
        await lost.child.done(task.id)
    await turn.child.done(task.id)
    await turn.end(WELL)


async def test_a_worker_that_dies_again_and_again_fails_the_task_once(herd):
    """One failure within the tries, whoever dies (case 16)."""
    task = await herd.parent.delegate("coder", "write it", watch=True)
    for _ in range(3):
        lost = await claim(herd)
        await lost.child.receive()
        lapse(lost.child)
    assert (await herd.parent.task(task.id)).state == "failed"
    assert len(of_kind(await herd.parent.receive(), Kind.TASK_SETTLED)) == 1
    assert (await turns_of(herd)).state == "none"


async def test_a_worker_that_ends_cleanly_hands_its_turn_back(herd):
    """No failure is counted; another worker gets the turn and the mail at once."""
    await herd.parent.delegate("coder", "write it")
    turn = await claim(herd)
    await turn.child.receive()
    assert (await turn.end(Ending(kind=How.STOPPED))).decision == Decision.STOPPED
    again = await claim(herd)
    assert (again.attempt, len(await again.child.receive())) == (1, 1)
    await again.child.leave()
    assert (await turns_of(herd)).failures == 0
    assert (await claim(herd)).attempt == 1


async def test_a_turn_that_runs_on_after_its_time_out_is_lost(herd, scheduler):
    """A worker that hangs while its lease is renewed holds no agent for ever."""
    await herd.parent.delegate("coder", "write it")
    turn = await claim(herd)
    await herd.later(minutes=62)
    assert await turn.wait_stop(0)
    assert (await turns_of(herd)).failures == 1


async def test_a_usage_limit_is_no_failure(herd):
    """The task stays open and nothing is counted; the parent is told once for the account, and the
    turn is due when the limit ends."""
    for name in ("one", "two"):
        await employ(herd, name, account="acme")
        await herd.parent.delegate(name, "write it")
    resets = herd.clock.now() + timedelta(hours=2)
    for name in ("one", "two"):
        turn = await claim(herd, name)
        await turn.child.receive()
        ending = Ending(kind=How.LIMITED, error="5-hour limit reached", limited_until=resets)
        assert await turn.end(ending) == (Decision.PARKED, resets)
        assert (await turns_of(herd, name)).state == "due"
        assert (await turns_of(herd, name)).failures == 0
    [told] = about(await herd.parent.receive(), "limited")
    assert "acme" in told.body and "5-hour limit" in told.body
    [account] = [each for each in await herd.broker.turn_slots() if each.scope == "account/acme"]
    assert account.paused_ms == 2 * 3_600_000
    for name in ("one", "two"):
        turn = await claim(herd, name)
        assert (turn.attempt, [each.attempts for each in await turn.child.receive()]) == (1, [0])


async def test_an_account_and_an_agent_of_one_name_are_told_apart(herd):
    """The limit of an account is told beside that of an agent which happens to have its name."""
    await employ(herd, "acme")
    await employ(herd, "other", account="acme")
    for name in ("acme", "other"):
        await herd.parent.delegate(name, "write it")
        turn = await claim(herd, name)
        await turn.end(Ending(kind=How.LIMITED, error="5-hour limit reached"))
    told = about(await herd.parent.receive(), "limited")
    assert [each.data["agent"] for each in told] == ["acme", "other"]


async def test_a_task_that_takes_turn_after_turn_is_stopped(herd):
    """`max_turns` ends what would go on for ever, whatever makes its turns due."""
    await employ(herd, "busy", max_turns=3, max_nudges=100)
    task = await herd.parent.delegate("busy", "go on and on")
    for _ in range(3):
        assert await run(herd, agent="busy") == Decision.NUDGED
    number = (await turns_of(herd, "busy")).number
    assert await herd.broker.claim_turn(herd.name, "busy", number) is None
    settlement = (await herd.parent.task(task.id)).settlement
    assert settlement is not None and "max_turns" in str(settlement.error)


@pytest.mark.parametrize("kind", [How.LIMITED, How.STOPPED])
async def test_a_turn_that_is_put_off_is_none_of_those_that_a_task_may_take(herd, kind):
    """A usage limit is no failure, and a worker that was told to stop counts as nothing."""
    await employ(herd, "busy", max_turns=1)
    task = await herd.parent.delegate("busy", "write it")
    for _ in range(3):
        await run(herd, Ending(kind=kind, error="5-hour limit reached"), agent="busy")
    assert (await herd.parent.task(task.id)).state == "running"
    assert await run(herd, agent="busy") == Decision.NUDGED
    number = (await turns_of(herd, "busy")).number
    assert await herd.broker.claim_turn(herd.name, "busy", number) is None
    assert (await herd.parent.task(task.id)).state == "failed"


# ------------------------------------------------------------------ stopped


async def test_a_cancelled_task_stops_its_turn(herd):
    """Whoever runs it hears so at once; what the turn then says changes nothing of the task."""
    task = await herd.parent.delegate("coder", "write it")
    turn = await claim(herd)
    await turn.child.receive()
    stopped = asyncio.create_task(turn.wait_stop(30))
    await asyncio.sleep(0)
    await herd.parent.cancel(task.id, reason="enough")
    assert await stopped and "cancelled" in str(turn.stopping)
    assert (await turn.end(Ending(kind=How.STOPPED))).decision == Decision.STOPPED
    assert (await turns_of(herd)).state == "none"


async def test_a_closed_agent_has_no_turn(herd):
    """One that is due vanishes, one that runs is stopped, and its end is heard without harm."""
    await employ(herd, "idle")
    for name in ("coder", "idle"):
        await herd.parent.delegate(name, "write it")
    turn = await claim(herd)
    await turn.child.receive()
    for name in ("coder", "idle"):
        await herd.parent.close(name)
    assert await turn.wait_stop(0)
    assert (await turn.end(WELL)).decision == Decision.OVER
    assert await herd.broker.claim_turn(herd.name, "idle", 1) is None


async def test_a_name_used_again_knows_nothing_of_a_turn_that_still_runs(herd):
    """The old generation's turn must stop, reads and settles nothing of the new one's, and its end
    changes nothing of it; the new one's own turn is run beside it."""
    old = await herd.parent.delegate("coder", "write it")
    turn = await claim(herd)
    await turn.child.receive()
    await herd.parent.close("coder")
    await employ(herd)
    new = await herd.parent.delegate("coder", "write it anew")
    assert await turn.wait_stop(0)
    for call in (turn.child.receive(), turn.child.inbox(), turn.child.done(new.id)):
        with pytest.raises(errors.BrokerError) as refused:
            await call
        assert refused.value.code in ("unauthorized", "agent_closed")
    next_one = await claim(herd)
    assert (await turn.end(WELL)).decision == Decision.OVER
    assert bodies(await next_one.child.receive()) == ["write it anew"]
    await next_one.child.done(new.id, summary="done")
    assert (await next_one.end(WELL)).decision == Decision.IDLE
    assert (await herd.parent.task(old.id)).state == "cancelled"
    assert (await herd.parent.task(new.id)).state == "completed"


# ------------------------------------------------------------------ seen from outside


async def test_an_agent_with_a_runner_is_never_away(herd):
    """It has no process between its turns, and nobody is told that none runs."""
    await herd.parent.delegate("coder", "write it")
    await run(herd)
    await herd.parent.delegate("planner", "plan it")
    await herd.planner.leave()
    herd.clock.advance(timedelta(minutes=11))
    await herd.scheduler._timers.turn()
    away = about(await herd.parent.receive(), "agent_away")
    assert [each.data["agent"] for each in away] == ["planner"]


async def test_an_ask_that_nobody_has_begun_to_read_says_that_a_turn_is_due(herd):
    """`NoReply` with the reason `queued`, first of all reasons."""
    asking = asyncio.create_task(herd.planner.ask("coder", "Which?", window=timedelta(minutes=1)))
    await wait_until_async(lambda: _woken(herd), "the question to arrive")
    herd.clock.advance(timedelta(minutes=2))
    await herd.scheduler._timers.turn()
    with pytest.raises(errors.NoReply) as ended:
        await asking
    assert ended.value.reason == "queued"
    assert "turn due" in ended.value.detail


async def test_why_names_the_turn_that_is_due(herd):
    """And what would move it on: its time, or a worker."""
    task = await herd.parent.delegate("coder", "write it")
    assert "has turn 1 due" in str(await herd.parent.why(task.id))
    assert "the time of the next turn of coder" in str(await herd.parent.why(task.id))
    turn = await claim(herd)
    await turn.child.receive()
    assert "runs turn 1" in str(await herd.parent.why(task.id))
