"""Long words in results: cut below what hosts show whole, and read on to the end."""

from __future__ import annotations

import pytest

from tests.workers.mcp.desk import MOST, joined, serving, size, text_of
from tocsin.broker import HerdSettings
from tocsin.broker.framing import RULE

LONG = 'x"\n' * 5_000
"""A text of which each character may be three where it is sent."""


async def read_on(session, tool, data, **arguments):
    """The rest of a text, piece by piece, behind what `data` has of it."""
    text = data["body"]
    while "next_offset" in data:
        result = await session.call(tool, **arguments, offset=data["next_offset"])
        assert not result.is_error and size(result) < MOST
        assert f"offset={data['next_offset']})" not in text_of(result)
        data = result.structured_content
        text += data["body"]
    return text


async def test_a_long_answer_is_read_in_pieces(herd, broker):
    """Whoever asked gets the beginning, is told how to read on, and comes to the end."""
    async with (
        serving(broker) as base,
        joined(base, herd.scout, limit=0.3) as scout,
    ):
        ask_id = (await scout.data("ask", to="planner", body="Which?"))["ask_id"]
        await herd.planner.reply(ask_id, LONG, data={"all": "z" * 9_000})
        for tool, words in (("ask", {"to": "planner", "body": "Which?"}), ("ask_wait", {})):
            named = words or {"ask_id": ask_id}
            result = await scout.call(tool, **named)
            assert size(result) < MOST and f"ask_wait(ask_id={ask_id}, offset=" in text_of(result)
            data = result.structured_content
            assert data["characters"] == len(LONG)
            assert await read_on(scout, "ask_wait", data, ask_id=ask_id) == LONG
        error = await scout.refusal("ask_wait", ask_id=ask_id, offset=len(LONG))
        assert "past the end" in error["detail"]


async def test_how_tasks_ended_is_never_too_long(herd, broker):
    """Many ends, each with much to say: all are named, and each can be read whole."""
    await herd.parent.set_settings(HerdSettings(max_open_tasks=100))
    named = []
    async with (
        serving(broker) as base,
        joined(base, herd.parent) as parent,
        joined(base, herd.scout) as scout,
    ):
        for number in range(60):
            result = await parent.call("delegate", agent="scout", description=f"{number} {LONG}")
            assert size(result) < 2_000
            named.append(result.structured_content["task"]["id"])
            ended = await scout.call("done", task=named[-1], outcome="failed", error=LONG)
            assert size(ended) < 2_000
        still = await parent.data("delegate", agent="scout", description="go on")
        open_task = still["task"]["id"]
        for tool in ("watch", "task_wait"):
            result = await parent.call(tool, tasks=[*named, open_task], **FIRST.get(tool, {}))
            assert size(result) < MOST and RULE in text_of(result)
            data = result.structured_content
            assert data["open"] == [open_task]
            assert [each["task_id"] for each in data["settled"]] + data["also_settled"] == named
            assert data["settled"][0]["characters"] == {"error": len(LONG)}
            few = await parent.call(tool, tasks=named[:3])
            assert size(few) < MOST and "also_settled" not in few.structured_content
            assert few.structured_content["settled"][2]["error"].startswith(LONG[:100])
        assert size(await parent.call("task_cancel", task=named[0])) < MOST
        listed = await parent.call("task_show")
        assert size(listed) < MOST and len(listed.structured_content["tasks"]) >= 7
        shown = await parent.call("task_show", task=named[5])
        assert size(shown) < MOST
        assert f"task_show(task={named[5]}, part=error, offset=" in text_of(shown)
        for part, text in (("description", f"5 {LONG}"), ("error", LONG)):
            whole = {"task": named[5], "part": part}
            result = await parent.call("task_show", **whole)
            assert size(result) < MOST
            data = result.structured_content
            assert await read_on(parent, "task_show", data, **whole) == text
        error = await parent.refusal("task_show", task=named[5], part="summary")
        assert "has no summary" in error["detail"]


FIRST = {"task_wait": {"first": True}}


@pytest.mark.parametrize("letter", ["r", '"', "\N{PILE OF POO}"])
async def test_a_roster_of_many_comes_in_pages(herd, broker, letter):
    """Each below the limit, with the word that what agents say of themselves is theirs."""
    names = {"parent", "scout", "planner"}
    for number in range(60):
        names.add(f"agent-{number}")
        await herd.parent.register(f"agent-{number}", role=letter * 60, label=letter * 60)
    async with serving(broker) as base, joined(base, herd.parent) as parent:
        seen: list[str] = []
        skip: int | None = 0
        while skip is not None:
            result = await parent.call("roster", skip=skip)
            assert size(result) < MOST and RULE in text_of(result)
            data = result.structured_content
            seen += [each["agent"] for each in data["agents"]]
            assert data["remaining"] == len(names) - len(seen)
            skip = data.get("next_skip")
        assert len(seen) == len(names) and set(seen) == names
        assert (await parent.data("roster", skip=900))["agents"] == []
