"""The journal: what of mail is in it, and how long."""

from __future__ import annotations

from datetime import timedelta

from tocsin.broker import HerdSettings, keys
from tocsin.broker.testing import lapse


async def told(herd, message: str) -> list[str]:
    """The events that name a message, in order."""
    lines = await herd.parent.journal(limit=1000)
    return [
        line.event
        for line in lines
        if message == line.fields.get("message") or message in line.fields.get("messages", [])
    ]


async def test_the_way_of_a_message(herd):
    """Accepted, shown once however often it is looked at, taken, given back, taken, handled."""
    sent = await herd.scout.message("planner", "Read me.")
    for _ in range(3):
        await herd.planner.inbox()
    await (await herd.planner.receive()).nack(error="no disk")
    await (await herd.planner.receive()).ack()

    way = ["accepted", "shown", "taken", "returned", "taken", "handled"]
    assert await told(herd, sent.message_id) == way
    lines = await herd.parent.journal(limit=1000)
    (back,) = [line.fields for line in lines if line.event == "returned"]
    assert (back["agent"], back["instance"]) == ("planner", herd.planner.instance)
    assert back["error"] == "no disk"


async def test_what_a_lost_instance_held_is_told_to_have_come_back(herd):
    """Each message that goes back has its line, with who held it; one that goes on to die, too."""
    await herd.parent.set_settings(HerdSettings(max_attempts=2))
    sent = await herd.scout.message("planner", "Read me.")
    for _ in range(2):
        other = await herd.another("planner")
        await other.receive()
        lapse(other)

    assert await told(herd, sent.message_id) == ["accepted", "taken", "returned", "taken", "dead"]


async def test_a_clean_exit_is_told_to_have_given_back(herd):
    """What a process leaves is in the journal, without an error."""
    sent = await herd.scout.message("planner", "Read me.")
    other = await herd.another("planner")
    await other.receive()
    await other.leave()

    assert await told(herd, sent.message_id) == ["accepted", "taken", "returned"]
    lines = await herd.parent.journal(limit=1000)
    (back,) = [line.fields for line in lines if line.event == "returned"]
    assert "error" not in back


async def test_a_queued_task_is_told_to_be_accepted(herd):
    """Its envelope is accepted when it is delegated, though it waits for a slot."""
    await herd.working(herd.scout)
    task = await herd.parent.delegate("scout", "later", queue=True)

    assert await told(herd, f"msg_task_{task.id.partition('_')[2]}") == ["accepted"]


async def test_a_reminder_that_is_not_true_any_more_is_told_to_be_taken_back(herd):
    """Fired and then overtaken by the answer, before anybody was handed it."""
    task, question = await herd.waiting()
    await herd.later(minutes=6)
    await herd.planner.reply(question, "Exponential")
    await herd.parent.receive()

    reminder = f"msg_reminder_{task.id.partition('_')[2]}_1"
    assert await told(herd, reminder) == ["withdrawn"]


async def test_old_lines_go_and_young_ones_stay(open_herd):
    """`journal_retention` by the fleet's clock; a twentieth of it later at most."""
    herd = await open_herd("h", "scout", journal_retention=timedelta(hours=20))
    for _ in range(40):
        await herd.scout.progress("at work")
        await herd.later(hours=1)
        lines = await herd.parent.journal(limit=1000)
        assert lines[-1].at == herd.clock.now() - timedelta(hours=1)
        assert herd.clock.now() - lines[0].at <= timedelta(hours=21)
    assert len(lines) in (19, 20)


async def test_a_long_backlog_of_old_lines_goes_in_passes(open_herd):
    """More old lines than one pass removes: the next one follows at once."""
    herd = await open_herd("h", "scout")
    for number in range(500):
        await herd.scout.progress(str(number))
    herd.clock.advance(timedelta(days=8))

    fired = await herd.scheduler.tick()

    assert fired["retention"] >= 3
    assert await herd.parent.journal(limit=1000) == []


async def test_a_shorter_retention_holds_at_once(herd):
    """Set live, it removes what is too old by then; set longer, it keeps more from then on."""
    await herd.scout.progress("at work")
    herd.clock.advance(timedelta(hours=2))

    await herd.parent.set_settings(HerdSettings(journal_retention=timedelta(hours=1)))
    await herd.scheduler.tick()

    events = [line.event for line in await herd.parent.journal()]
    assert events == ["settings"]


async def test_an_idle_journal_is_looked_at_once_in_its_retention(herd):
    """A herd in which nothing is written costs one timer in seven days."""
    for _ in range(3):
        await herd.later(days=7)
        due = keys.below((await herd.broker.fleet()).partition(herd.name), "due", herd=herd.name)
        at = await herd.broker.link.command("look", "ZSCORE", due, "9:forget:journal")
        assert float(at) == (herd.clock.now() + timedelta(days=7)).timestamp() * 1000
