"""Records that somebody broke or deleted: what hangs on them goes on, and so does all the rest."""

from __future__ import annotations

from datetime import timedelta

import pytest

from tests.fleets import bodies
from tocsin.broker import errors, herds, keys
from tocsin.broker.scripts import Call


def key_of(herd, kind, **names):
    """The key of one record of the herd."""
    fleet = herd.parent.caller.fleet
    return keys.below(fleet.partition(herd.name), kind, herd=herd.name, **names)


async def command(herd, *words):
    """Does to the store what nobody should."""
    return await herd.broker.link.command("test", *words)


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


@pytest.mark.parametrize("damage", ["another type", "no kind"])
async def test_a_broken_record_does_not_hold_up_the_mail_beside_it(herd, damage):
    """What is no record is set aside and reported; the rest of the batch is handed over."""
    broken = await herd.scout.message("planner", "broken")
    await herd.scout.message("planner", "whole")
    record = key_of(herd, "message", message=broken.message_id)
    if damage == "no kind":
        await command(herd, "HDEL", record, "kind")
    else:
        await command(herd, "DEL", record)
        await command(herd, "SET", record, "nonsense")

    assert bodies(await herd.planner.receive()) == ["whole"]

    events = [line.event for line in await herd.parent.journal()]
    assert "set_aside" in events
    await command(herd, "DEL", record)


@pytest.mark.parametrize(
    ("field", "value"),
    [("data", "{broken"), ("data", "[" * 5000 + "]" * 5000), ("kind", "weird")],
)
async def test_what_no_reader_understands_ends_in_the_dead_letters(herd, field, value):
    """Given back after each try with the reason, then buried; mail behind it flows."""
    spoilt = await herd.scout.message("planner", "spoilt")
    record = key_of(herd, "message", message=spoilt.message_id)
    await command(herd, "HSET", record, field, value)
    await herd.scout.message("planner", "whole")

    read = []
    for _ in range(6):
        read += bodies(await herd.planner.receive())

    assert read == ["whole"]
    state, reason = await command(herd, "HMGET", record, "state", "reason")
    assert state == "dead"
    assert "cannot be read" in reason


async def test_a_broken_herd_does_not_hold_up_another(open_herd):
    """A scheduler leaves it out of the pass, says so, and serves everybody else."""
    broken = await open_herd("broken", "scout", "planner")
    whole = await open_herd("whole", "scout", "planner")
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


async def test_a_scheduler_says_when_nothing_can_be_served(herd):
    """When no visit goes well, it is the server's trouble: the pass fails as a whole."""
    await herd.waiting()
    due = key_of(herd, "due")
    await command(herd, "RENAME", due, due + ":kept")
    await command(herd, "SET", due, "nonsense")

    with pytest.raises(errors.Unavailable, match="WRONGTYPE"):
        await herd.later(minutes=5)

    await command(herd, "RENAME", due + ":kept", due)
