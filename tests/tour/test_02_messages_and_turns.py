"""Messages: written, taken in a turn, acked."""

from __future__ import annotations

import pytest

from tests.fleets import bodies


async def test_a_message_is_taken_in_a_turn_and_acked(herd):
    """A message wakes its recipient; once acked it is gone."""
    sent = await herd.scout.message("planner", "The tests are in tests/.")

    turn = await herd.planner.next_turn(timeout=1)
    assert [(mail.sender, mail.body) for mail in turn] == [("scout", "The tests are in tests/.")]
    await turn.ack()

    assert await herd.planner.next_turn(timeout=0) is None
    assert (await herd.scout.receipt(sent.message_id)).state == "handled"


async def test_messages_come_in_the_order_they_were_accepted(herd):
    """One turn gathers all mail that is there, in order."""
    for number in ("one", "two", "three"):
        await herd.scout.message("planner", number)

    async with await herd.planner.next_turn(timeout=1) as turn:
        assert bodies(turn) == ["one", "two", "three"]


async def test_steer_mail_overtakes(herd):
    """A steer message is seen before the follow-ups, at the next safe point of a running turn."""
    await herd.scout.message("planner", "when you have time")
    await herd.scout.message("planner", "stop: wrong branch", delivery="steer")

    turn = await herd.planner.receive()

    assert bodies(turn) == ["stop: wrong branch", "when you have time"]


async def test_mail_of_a_handler_that_raised_comes_again(herd):
    """`async with turn` acks on a clean exit; on an exception the mail comes again, counted."""
    await herd.scout.message("planner", "handle me")

    with pytest.raises(ZeroDivisionError):
        async with await herd.planner.next_turn(timeout=1):
            raise ZeroDivisionError

    async with await herd.planner.next_turn(timeout=1) as again:
        assert [(mail.body, mail.attempts) for mail in again] == [("handle me", 1)]


async def test_looking_is_not_taking(herd):
    """The inbox shows mail as often as one likes; acking what was shown ends it."""
    sent = await herd.scout.message("planner", "look at me")

    shown = [bodies(await herd.planner.inbox()) for _ in range(3)]
    await herd.planner.ack(sent.message_id)

    assert shown == [["look at me"]] * 3
    assert len(await herd.planner.inbox()) == 0
