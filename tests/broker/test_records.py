"""What can be looked up: receipts, the journal, the roster, the list of herds, settings."""

from __future__ import annotations

from datetime import timedelta

import pytest

from tocsin.broker import AsyncBroker, HerdSettings, ScaledClock, errors

# ------------------------------------------------------------------ receipts


async def test_a_receipt_from_acceptance_to_handling(herd):
    """Each step has its time and, from the taking on, the instance."""
    start = herd.clock.now()
    sent = await herd.scout.message("planner", "one")
    herd.clock.advance(timedelta(seconds=1))
    await herd.planner.inbox()
    herd.clock.advance(timedelta(seconds=1))
    turn = await herd.planner.receive()
    herd.clock.advance(timedelta(seconds=1))
    await turn.ack()

    receipt = await herd.scout.receipt(sent.message_id)

    moments = (receipt.accepted_at, receipt.shown_at, receipt.taken_at, receipt.handled_at)
    assert moments == tuple(start + timedelta(seconds=seconds) for seconds in range(4))
    assert (receipt.state, receipt.by) == ("handled", herd.planner.instance)
    assert (receipt.sender, receipt.recipient, receipt.kind) == ("scout", "planner", "message")


async def test_the_receipt_of_a_question_says_what_became_of_it(herd):
    """Open, then answered: by whom, with which reply."""
    _, question = await herd.waiting()
    assert (await herd.scout.receipt(question)).request == "open"

    answer = await herd.parent.reply(question, "Exponential")

    receipt = await herd.scout.receipt(question)
    assert (receipt.request, receipt.answered_by) == ("answered", "parent")
    assert receipt.reply == answer.message_id


async def test_the_receipt_of_what_was_taken_back(herd):
    """Withdrawn mail says when and why."""
    _, question = await herd.waiting()
    await herd.scout.cancel_request(question)

    receipt = await herd.scout.receipt(question)

    assert (receipt.state, receipt.reason) == ("withdrawn", "cancelled")
    assert receipt.ended_at == herd.clock.now()


async def test_answered_in_its_place_the_recipient_has_nothing_to_do(herd):
    """A question that somebody else answered is taken back unread."""
    _, question = await herd.waiting()

    await herd.parent.reply(question, "Exponential")

    assert await herd.planner.next_turn(timeout=0) is None
    assert (await herd.scout.receipt(question)).state == "withdrawn"


# ------------------------------------------------------------------ journal


async def test_the_journal_is_read_on_from_a_line(herd):
    """`after` continues where an earlier reading ended; nothing is read twice or left out."""
    await herd.waiting()
    whole = await herd.parent.journal(limit=1000)

    read = whole[:1]
    while len(read) < len(whole):
        read += await herd.parent.journal(after=read[-1].id, limit=3)

    assert read == whole


async def test_the_journal_has_the_newest_lines(herd):
    """Without `after` it is the newest, oldest of them first."""
    await herd.waiting()
    whole = await herd.parent.journal(limit=1000)

    assert await herd.parent.journal(limit=5) == whole[-5:]
    assert whole[0].event == "opened" and whole[-1].event == "waiting"
    assert all(line.at == herd.clock.now() for line in whole)


async def test_the_journal_is_capped(open_herd):
    """About as many lines as `journal_limit` are kept, the newest."""
    herd = await open_herd("h", "scout", journal_limit=100)
    for number in range(1000):
        await herd.scout.progress(str(number))

    lines = await herd.parent.journal(limit=10_000)

    assert 100 <= len(lines) < 400
    assert lines[-1].fields["text"] == "999"


# ------------------------------------------------------------------ roster, herds


async def test_the_roster_tells_who_waits_on_whom(herd):
    """Open questions, both ways; tasks held and queued."""
    task, question = await herd.waiting()
    queued = await herd.parent.delegate("scout", "later", queue=True)

    info = {agent.agent: agent for agent in await herd.parent.roster()}

    assert info["scout"].waits_for == info["planner"].waited_on_by == (question,)
    assert (info["scout"].tasks, info["scout"].queued) == ((task.id,), (queued.id,))
    assert info["planner"].unread == 1


async def test_activity_is_a_sign_of_work_not_of_a_process(herd):
    """Messages, replies, progress, `done` are activity; joining, taking, acking, status are not."""

    async def active_at():
        return {agent.agent: agent for agent in await herd.parent.roster()}["scout"].active_at

    task = await herd.parent.delegate("scout", "x")
    sent = await herd.planner.message("scout", "?")
    async with await herd.scout.next_turn(timeout=1):
        pass
    await herd.scout.set_status("working")
    await herd.scout.inbox()
    assert await active_at() is None

    for deed in (
        lambda: herd.scout.message("planner", "x"),
        lambda: herd.scout.reply(sent.message_id, "x"),
        lambda: herd.scout.progress("x"),
        lambda: herd.scout.done(task.id),
    ):
        herd.clock.advance(timedelta(minutes=1))
        await deed()
        assert await active_at() == herd.clock.now()


async def test_the_operator_lists_the_herds(herd, open_herd, broker):
    """Every herd of the fleet with its state and how many tasks it keeps."""
    await herd.working(herd.scout)
    gone = await open_herd("gone")
    await gone.parent.close_herd()

    assert await broker.herds() == [("gone", "closed", 0), ("release-42", "open", 1)]


async def test_tasks_are_listed_newest_first_and_bounded(open_herd):
    """`limit` is the most that is listed."""
    herd = await open_herd("h", "scout", max_open_tasks=10)
    made = []
    for number in range(5):
        made.append((await herd.parent.delegate("scout", str(number))).id)
        herd.clock.advance(timedelta(seconds=1))

    assert [task.id for task in await herd.parent.tasks()] == made[::-1]
    assert [task.id for task in await herd.parent.tasks(limit=2)] == made[:2:-1]


# ------------------------------------------------------------------ settings of a herd


async def test_reopening_changes_only_what_is_given(open_herd, broker, monkeypatch):
    """What a reopening process has in its own layers is no opinion about an open herd."""
    herd = await open_herd("h", stale_wait_threshold=3, max_attempts=7)
    monkeypatch.setenv("TOCSIN_STALE_WAIT_THRESHOLD", "15")

    again = await broker.open_herd(
        "h", settings=HerdSettings(max_attempts=9), token=herd.parent.token
    )

    settings = (await again.herd_record()).settings
    assert (settings.stale_wait_threshold, settings.max_attempts) == (3, 9)


async def test_zero_is_a_value_not_unset(open_herd, monkeypatch):
    """A threshold of 0 that was given stands against every layer below."""
    monkeypatch.setenv("TOCSIN_STALE_WAIT_THRESHOLD", "15")

    herd = await open_herd("h", stale_wait_threshold=0)

    assert (await herd.parent.herd_record()).settings.stale_wait_threshold == 0


async def test_a_setting_says_who_set_it(open_herd):
    """Set live, a setting has the source that was named."""
    herd = await open_herd("h")

    record = await herd.parent.set_settings(HerdSettings(max_attempts=2), source="project")

    assert record.settings.max_attempts == 2
    assert record.sources["max_attempts"] == "project"
    assert await herd.parent.herd_record() == record


# ------------------------------------------------------------------ the fleet


async def test_a_fleet_has_the_partitions_of_its_first_use(url, fleet_name, clock):
    """Whoever comes with another number is told which it is."""
    async with AsyncBroker.connect(url, fleet=fleet_name, clock=clock, partitions=4) as first:
        await first.open_herd("h")
    async with AsyncBroker.connect(url, fleet=fleet_name, clock=clock) as follows:
        assert (await follows.fleet()).partitions == 4
    async with AsyncBroker.connect(url, fleet=fleet_name, clock=clock, partitions=8) as other:
        with pytest.raises(errors.InvalidInput) as refusal:
            await other.fleet()
    assert "4 partitions" in refusal.value.detail


async def test_a_scaled_clock_belongs_to_the_fleet(url, fleet_name):
    """Its first user fixes the factor; every later client follows without being told."""
    async with AsyncBroker.connect(url, fleet=fleet_name, clock=ScaledClock(600)) as first:
        await first.open_herd("h")
        async with AsyncBroker.connect(url, fleet=fleet_name) as follows:
            assert (await follows.fleet()).clock == (await first.fleet()).clock
        async with AsyncBroker.connect(url, fleet=fleet_name, clock=ScaledClock(60)) as other:
            with pytest.raises(errors.InvalidInput):
                await other.fleet()
