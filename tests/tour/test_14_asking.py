"""Asking: a question that holds the line, knows silence from work, and never loses an answer."""

from __future__ import annotations

from datetime import timedelta

from tests.asking import asking
from tests.requirements import proves
from tocsin.broker import errors


@proves("P8")
async def test_an_answer_ends_the_wait(herd):
    """The asker waits, its task too; the answer comes to it and not into its mail."""
    task = await herd.working(herd.scout)

    async with asking(herd, herd.scout, "planner", "Which backoff?", task=task.id) as line:
        assert await herd.state(task) == "waiting"
        async with await herd.planner.next_turn(timeout=5) as turn:
            await herd.planner.reply(turn[0], "Exponential, base 2 s")
        reply = await line.reply()

    assert (reply.sender, reply.body) == ("planner", "Exponential, base 2 s")
    assert await herd.state(task) == "running"
    assert await herd.scout.next_turn(timeout=0) is None


@proves("P8")
async def test_silence_ends_it_and_work_does_not(herd):
    """Ten minutes of silence are enough; each sign of work begins them anew."""
    async with asking(herd, herd.scout, "planner") as line:
        for _ in range(4):
            await herd.later(minutes=9)
            await herd.planner.progress("weighing it")
        assert line.open
        await herd.later(minutes=10)
        silence = await line.ends(errors.NoReply)

    assert silence.retryable and silence.reason == "unread"


@proves("P8")
async def test_a_ceiling_holds_whatever_progress_comes(herd):
    """The target is still at work: another error, which says to look and not to retry."""
    async with asking(herd, herd.scout, "planner", ceiling=timedelta(minutes=15)) as line:
        await herd.later(minutes=9)
        await herd.planner.progress("weighing it")
        await herd.later(minutes=6)
        active = await line.ends(errors.CeilingActive)

    assert not active.retryable


@proves("P9")
async def test_a_late_answer_is_mail(herd):
    """After the wait the question stays answerable; the asker can also come back to it."""
    async with asking(herd, herd.scout, "planner") as line:
        await herd.later(minutes=10)
        await line.ends(errors.NoReply)

    await herd.planner.reply(line.id, "Exponential, base 2 s")

    async with await herd.scout.next_turn(timeout=5) as turn:
        assert [(mail.body, mail.late) for mail in turn] == [("Exponential, base 2 s", True)]
    again = await herd.scout.ask_wait(line.id)
    assert again is not None and again.late


async def test_a_transcript_shows_that_an_agent_works(herd):
    """Whoever runs an agent publishes what its transcript has grown to; only growth counts."""
    await herd.planner.probe({"transcript": 10_000})
    async with asking(herd, herd.scout, "planner") as line:
        await herd.later(minutes=9)
        assert await herd.planner.probe({"transcript": 10_500})
        await herd.later(minutes=9)
        assert line.open
