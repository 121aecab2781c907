"""Looking back: receipts tell how far an envelope got, the journal what happened."""

from __future__ import annotations


async def test_a_receipt_tells_how_far_an_envelope_got(herd):
    """Accepted, shown, taken, handled: each with its time and by which instance."""
    sent = await herd.scout.message("planner", "Read me.")
    assert (await herd.scout.receipt(sent.message_id)).state == "accepted"

    turn = await herd.planner.next_turn(timeout=1)
    taken = await herd.scout.receipt(sent.message_id)
    assert (taken.state, taken.by) == ("taken", herd.planner.instance)
    await turn.ack()

    handled = await herd.scout.receipt(sent.message_id)
    assert handled.state == "handled"
    assert handled.accepted_at <= handled.taken_at <= handled.handled_at


async def test_the_journal_tells_what_happened(herd):
    """Each transition of the herd is a line of its journal, oldest first."""
    task, question = await herd.waiting()
    await herd.planner.reply(question, "Exponential")
    await herd.scout.done(task.id)

    lines = await herd.parent.journal(limit=1000)

    told = [line.event for line in lines if line.fields.get("task") == task.id]
    assert told[0] == "delegated" and told[-2:] == ["completed", "accepted"]
    story = [event for event in told if event in ("running", "waiting", "completed")]
    assert story == ["running", "waiting", "running", "completed"]
