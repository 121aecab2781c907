"""Mail by tools: shown, not consumed; in pages that hosts take; acked by name (case 11)."""

from __future__ import annotations

import pytest

from tests.workers.mcp.desk import MOST, joined, serving, size


async def test_reading_consumes_nothing_and_counts_nothing(herd, broker):
    """Read ten times it is the same mail, nothing nearer to dead letters; acked, it is gone."""
    sent = await herd.parent.message("scout", "hello")
    async with serving(broker) as base, joined(base, herd.scout) as scout:
        pages = [await scout.data("inbox") for _ in range(10)]
        assert all(page == pages[0] for page in pages)
        assert pages[0]["messages"][0]["message_id"] == sent.message_id
        assert (await herd.scout.receipt(sent.message_id)).attempts == 0
        acked = await scout.data("ack", messages=[sent.message_id])
        assert acked == {"acked": [sent.message_id], "not_acked": []}
        assert (await scout.data("ack", messages=[sent.message_id]))["acked"]
        assert (await scout.data("inbox"))["messages"] == []


async def test_only_what_was_shown_can_be_acked(herd, broker):
    """Mail that nobody was shown is not acked unread; the refusal says to read it."""
    sent = await herd.parent.message("scout", "hello")
    async with serving(broker) as base, joined(base, herd.scout) as scout:
        error = await scout.refusal("ack", messages=[sent.message_id])
        assert error["code"] == "wrong_state" and "inbox" in error["next"]
        turn = await herd.scout.receive()
        held = await scout.data("ack", messages=[sent.message_id])
        assert held["acked"] == [] and "another process" in held["not_acked"][0]["why"]
        await turn.ack()


@pytest.mark.parametrize("how", ["skipped", "behind another"])
async def test_what_a_page_leaves_out_is_not_shown(herd, broker, how):
    """A later page, or one message by its id, shows itself alone: the rest is nobody's to ack."""
    first, second = [
        (await herd.parent.message("scout", words)).message_id for words in ("one", "two")
    ]
    async with serving(broker) as base, joined(base, herd.scout) as scout:
        if how == "skipped":
            page = await scout.data("inbox", skip=1)
            assert [each["message_id"] for each in page["messages"]] == [second]
            assert page["remaining"] == 0
            assert (await scout.data("inbox", skip=500))["messages"] == []
        else:
            read = await scout.data("inbox", message=second)
            assert read["message"]["body"] == "two"
        assert (await herd.scout.receipt(first)).state == "accepted"
        assert (await scout.refusal("ack", messages=[first]))["code"] == "wrong_state"
        assert (await scout.data("ack", messages=[second]))["acked"] == [second]


@pytest.mark.parametrize("letter", ["a", '"', "\n", "ü", "\N{PILE OF POO}"])
async def test_a_page_is_never_too_long_for_a_host(herd, broker, letter):
    """30 long messages come in pages, each below 20,000 characters as sent, none left out."""
    sent = [
        (await herd.parent.message("scout", f"{number} " + "x" + letter * 16_000 + "y")).message_id
        for number in range(23)
    ]
    async with serving(broker) as base, joined(base, herd.scout) as scout:
        seen: list[str] = []
        skip: int | None = 0
        while skip is not None:
            page = await scout.call("inbox", skip=skip)
            assert size(page) < MOST
            data = page.structured_content
            seen += [each["message_id"] for each in data["messages"]]
            assert all(each["cut"] for each in data["messages"])
            assert data["remaining"] == len(sent) - len(seen)
            skip = data.get("next_skip")
        assert seen == sent
        await scout.data("ack", messages=seen[1:])
        offset: int | None = 0
        body = ""
        while offset is not None:
            piece = await scout.call("inbox", message=seen[0], offset=offset)
            assert size(piece) < MOST
            message = piece.structured_content["message"]
            body += message["body"]
            offset = message.get("next_offset")
        assert body == "0 " + "x" + letter * 16_000 + "y"
        error = await scout.refusal("inbox", message=seen[0], offset=len(body))
        assert f"it has {len(body)} characters" in error["detail"]


async def test_an_agent_that_is_gone_is_an_error_never_an_empty_list(herd, broker):
    """Whoever was closed, or whose name another bears by now, is told so."""
    async with serving(broker) as base, joined(base, herd.scout) as scout:
        await scout.data("inbox")
        await herd.parent.close("scout")
        assert (await scout.refusal("inbox"))["code"] == "agent_closed"
        await herd.child("scout")
        assert (await scout.refusal("inbox"))["code"] == "agent_closed"


async def test_a_reminder_reads_as_the_brokers_own(herd, broker):
    """What Tocsin itself says comes from the broker, with its data beside it."""
    task, question = await herd.waiting()
    await herd.later(minutes=6)
    async with serving(broker) as base, joined(base, herd.parent) as parent:
        [mail] = (await parent.data("inbox"))["messages"]
        assert mail["kind"] == "reminder" and mail["relation"] == "the broker itself"
        assert mail["data"]["request"] == question and mail["data"]["task"] == task.id
