"""Records that somebody broke or deleted: what hangs on them goes on, and so does all the rest."""

from __future__ import annotations

from datetime import timedelta

import pytest

from tests.fleets import command, key_of
from tocsin.broker import AsyncAgent, errors, herds
from tocsin.broker.scripts import Call
from tocsin.broker.testing import lapse
from tocsin.scheduler import AsyncScheduler


async def test_a_lost_question_does_not_hold_up_the_end_of_its_task(herd):
    """The deadline settles the task, tells the parent and frees its child all the same."""
    task, question = await herd.waiting(reply_within=timedelta(0))
    await command(herd, "DEL", key_of(herd, "message", message=question))

    await herd.later(hours=24)

    assert (await herd.parent.task(task.id)).state == "timed_out"
    assert [mail.kind for mail in await herd.parent.receive()] == ["task_settled"]
    await herd.parent.delegate("scout", "the next one")


async def test_a_lost_question_does_not_hold_up_a_close(herd):
    """Its asker and its recipient can both be closed."""
    _, question = await herd.waiting()
    await command(herd, "DEL", key_of(herd, "message", message=question))

    await herd.parent.close("planner")
    await herd.parent.close("scout")

    assert {info.agent: info.state for info in await herd.parent.roster()} == {
        "parent": "open",
        "planner": "closed",
        "scout": "closed",
    }


async def test_a_broken_herd_does_not_hold_up_another(open_herd):
    """A scheduler leaves it out of the pass, says so, and serves everybody else."""
    broken = await open_herd("broken", "scout", "planner")
    whole = await open_herd("whole", "scout", "planner")
    whole.scheduler = AsyncScheduler(whole.broker, repair_every=None)
    await broken.waiting()
    await whole.waiting()
    due = key_of(broken, "due")
    await command(broken, "RENAME", due, due + ":kept")
    await command(broken, "SET", due, "nonsense")

    fired = await whole.later(minutes=5)

    assert fired == {"reminders": 1, "set_aside": 1}
    await command(broken, "RENAME", due + ":kept", due)


async def test_the_roster_shows_no_proof_of_anybody(herd):
    """Token hashes are what scripts accept as proof, so no answer carries one."""
    roster = herds.roster(herd.scout.caller)
    call = Call(roster.operation, roster.script, roster.key, roster.args, repr)

    answer = await herd.broker.run(call)

    assert "planner" in answer
    assert herd.parent.caller.token not in answer
    assert herd.scout.caller.token not in answer


@pytest.mark.parametrize("end", [lapse, AsyncAgent.leave], ids=["died", "left"])
async def test_a_broken_record_in_dead_hands_does_not_hold_up_who_serves_the_agent(herd, end):
    """What an instance held is given back, what is broken of it buried, and mail flows."""
    task = await herd.parent.delegate("scout", "Find how auth works")
    whole = await herd.parent.message("scout", "whole")
    await herd.scout.receive()
    key = key_of(herd, "task", task=task.id)
    await command(herd, "DEL", key)
    await command(herd, "SET", key, "nonsense")

    ending = end(herd.scout)
    if ending is not None:
        await ending

    turn = await (await herd.another("scout")).next_turn(timeout=0)
    assert [mail.message_id for mail in turn] == [whole.message_id]
    (letter,) = await herd.parent.dead_letters()
    assert letter.message_id == f"msg_{task.id}" and "cannot be read" in letter.reason
    await command(herd, "DEL", key)


async def test_a_task_that_was_written_over_does_not_hold_up_a_close(herd):
    """Its agent is closed all the same, and the journal says what was set aside."""
    task = await herd.working(herd.scout)
    await command(herd, "DEL", key_of(herd, "task", task=task.id))
    await command(herd, "SET", key_of(herd, "task", task=task.id), "nonsense")

    await herd.parent.close("scout")

    assert {info.agent: info.state for info in await herd.parent.roster()}["scout"] == "closed"
    aside = [line for line in await herd.parent.journal() if line.event == "set_aside"]
    assert [line.fields["task"] for line in aside] == [task.id]
    await command(herd, "DEL", key_of(herd, "task", task=task.id))


async def test_a_record_that_cannot_be_read_is_an_error_of_ours(herd):
    """Whoever asks for it hears that it is damaged, and what to do, not what broke inside."""
    task = await herd.working(herd.scout)
    sent = await herd.parent.message("scout", "hello")
    await command(herd, "HDEL", key_of(herd, "task", task=task.id), "created_at")
    await command(herd, "HSET", key_of(herd, "message", message=sent.message_id), "kind", "weird")
    for look in (herd.parent.task(task.id), herd.parent.receipt(sent.message_id)):
        with pytest.raises(errors.InvalidEnvelope, match="tocsin doctor"):
            await look


@pytest.mark.parametrize("damage", ["field", "type"])
async def test_a_damaged_record_is_left_out_of_lists_and_named(herd, caplog, damage):
    """Tasks and agents that are whole are listed all the same."""
    broken = await herd.working(herd.scout)
    whole = await herd.working(herd.planner)
    task, agent = key_of(herd, "task", task=broken.id), key_of(herd, "agent", agent="scout")
    for record in (task, agent):
        if damage == "field":
            await command(herd, "HSET", record, "created_at", "then", "generation", "first")
        else:
            await command(herd, "RENAME", record, record + ":kept")
            await command(herd, "SET", record, "nonsense")

    assert [each.id for each in await herd.parent.tasks()] == [whole.id]
    assert [each.agent for each in await herd.parent.roster()] == ["parent", "planner"]
    assert [each.id for each in await herd.planner.tasks()] == [whole.id]

    for named in (f"task {broken.id} is left out", "agent scout is left out"):
        assert named in caplog.text
    for record in (task, agent):
        await command(herd, "DEL", record)
        if damage == "type":
            await command(herd, "RENAME", record + ":kept", record)


@pytest.mark.parametrize("kind", ["task", "message", "questions"])
async def test_whatever_of_an_agent_was_written_over_it_can_be_closed(herd, kind):
    """What cannot be ended is set aside, told in the journal, and the closing goes on."""
    task, question = await herd.waiting()
    await herd.parent.delegate("planner", "unread")
    await herd.planner.message("scout", "unread")
    names = {"message": {"message": question}}.get(kind, {"task": task.id})
    await command(herd, "DEL", key_of(herd, kind, **names))
    await command(herd, "SET", key_of(herd, kind, **names), "nonsense")

    await herd.parent.close("planner")
    await herd.parent.close("scout")

    states = {info.agent: info.state for info in await herd.parent.roster()}
    assert states == {"parent": "open", "planner": "closed", "scout": "closed"}
    assert any(line.event == "set_aside" for line in await herd.parent.journal())
    await command(herd, "DEL", key_of(herd, kind, **names))


async def test_the_only_herd_that_is_due_is_broken(herd):
    """The scheduler says which, goes on, and is in no trouble itself."""
    herd.scheduler = AsyncScheduler(herd.broker, repair_every=None)
    await herd.waiting()
    due = key_of(herd, "due")
    await command(herd, "RENAME", due, due + ":kept")
    await command(herd, "SET", due, "nonsense")

    assert await herd.later(minutes=5) == {"set_aside": 1}

    await command(herd, "DEL", due)
    await command(herd, "RENAME", due + ":kept", due)
    assert await herd.later(minutes=1) == {"reminders": 1}


async def test_a_herd_of_an_older_version(open_herd):
    """What its record lacks is as it is by default, for every call."""
    herd = await open_herd("old", "scout", "planner")
    later = ("hop_limit", "pair_rate", "pair_window", "outbox_limit", "dead_retention")
    await command(herd, "HDEL", key_of(herd, "herd"), *later, "journal_retention", "lease_renewal")
    for number in range(3):
        sent = await herd.scout.message("planner", str(number))
        await herd.planner.reply(sent.message_id, "!")
    turn = await herd.planner.receive()
    await turn.nack(error="broke")
    await herd.scout.message("elsewhere/parent", "abroad")
    await herd.later(days=8)
