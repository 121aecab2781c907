"""Calls that wait: bounded, joined, never ended by a client that gives up (case 27)."""

from __future__ import annotations

import asyncio

import anyio
import httpx2
import pytest

from tests.fleets import command, key_of
from tests.waiting import wait_until_async
from tests.workers.mcp.desk import answers, bearer, initialize, joined, request, serving
from tocsin.workers.mcp.clients import Patience, limit_of


async def waiters(herd, ask_id):
    """How many calls wait for an ask, as the broker has it."""
    return await command(herd, "ZCARD", key_of(herd, "attending", message=ask_id))


async def no_waiter(herd, ask_id):
    """Waits until nobody waits for an ask."""

    async def none():
        return await waiters(herd, ask_id) == 0

    await wait_until_async(none, "the last waiting call to leave", 30)


@pytest.mark.parametrize(
    ("client", "limit"),
    [("claude-code", 100), ("codex-mcp-client", 240), ("Visual Studio Code", 45), (None, 45)],
)
def test_how_long_a_client_waits_is_known_by_its_name(client, limit):
    """A call returns before its client gives up, and says every 15 s at least that it waits."""
    assert limit_of(client) == limit
    assert Patience(limit_of(client)).progress_every <= 15


async def test_an_ask_returns_in_time_with_what_to_come_back_with(herd, broker):
    """Unanswered, it is pending, with the ask's id, its target, and when to come back."""
    async with serving(broker) as base, joined(base, herd.scout, limit=0.3) as scout:
        pending = await scout.data("ask", to="planner", body="Which backoff?")
        assert list(pending) == ["status", "ask_id", "target", "retry_after_s"]
        assert pending["status"] == "pending" and pending["target"]["agent"] == "planner"
        assert pending["target"]["present"] is True
        again = await scout.data("ask_wait", ask_id=pending["ask_id"])
        assert again["status"] == "pending" and again["ask_id"] == pending["ask_id"]
        assert await waiters(herd, pending["ask_id"]) == 0
        await herd.planner.reply(pending["ask_id"], "Exponential")
        answer = await scout.data("ask_wait", ask_id=pending["ask_id"])
        assert answer["status"] == "answered" and answer["body"] == "Exponential"
        assert answer["from"] == "planner" and answer["relation"] == "a sibling"
        assert (await scout.data("inbox"))["messages"] == []


async def test_the_same_question_joins_the_one_that_is_open(herd, broker):
    """Asked twice it is one question; answered, the answer is given again; a key asks anew."""
    async with serving(broker) as base, joined(base, herd.scout, limit=0.3) as scout:
        one = await scout.data("ask", to="planner", body="Which backoff?")
        two = await scout.data("ask", to="planner", body="Which backoff?")
        assert one["ask_id"] == two["ask_id"]
        assert len(await herd.planner.inbox()) == 1
        await herd.planner.reply(one["ask_id"], "Exponential")
        answer = await scout.data("ask", to="planner", body="Which backoff?")
        assert answer["body"] == "Exponential"
        anew = await scout.data("ask", to="planner", body="Which backoff?", key="second time")
        assert anew["status"] == "pending" and anew["ask_id"] != one["ask_id"]
        other = await scout.data("ask", to="parent", body="Which backoff?")
        assert other["ask_id"] != one["ask_id"]


async def test_an_answer_ends_the_wait_at_once(herd, broker):
    """A waiting call returns with the answer when it comes."""
    async with serving(broker) as base, joined(base, herd.scout) as scout:
        asking = asyncio.create_task(scout.data("ask", to="planner", body="Which backoff?"))
        turn = await herd.planner.next_turn(30)
        await herd.planner.reply(turn[0], "Exponential")
        await turn.ack()
        assert (await asyncio.wait_for(asking, 30))["body"] == "Exponential"


async def test_progress_is_told_to_a_client_that_gave_a_token(herd, broker):
    """While it waits, a call with a progress token says so again and again."""
    heard = []

    async def progress(done, total, message):
        heard.append((done, message))

    async with (
        serving(broker) as base,
        joined(base, herd.scout, limit=1) as scout,
    ):
        await scout.client.call_tool(
            "ask", {"to": "planner", "body": "Which?"}, progress_callback=progress
        )
    assert len(heard) >= 2
    assert heard == sorted(heard) and "waiting for the answer" in heard[0][1]


async def test_waiting_for_tasks_is_bounded_alike(herd, broker):
    """task_wait returns what has settled so far, and what is still open."""
    task = await herd.working(herd.scout)
    other = await herd.working(herd.planner)
    async with serving(broker) as base, joined(base, herd.parent, limit=0.3) as parent:
        pending = await parent.data("task_wait", tasks=[task.id, other.id])
        assert pending["status"] == "pending" and pending["open"] == [task.id, other.id]
        assert pending["retry_after_s"] > 0
        await herd.scout.done(task.id, summary="found")
        pending = await parent.data("task_wait", tasks=[task.id, other.id])
        assert pending["status"] == "pending" and pending["open"] == [other.id]
        first = await parent.data("task_wait", tasks=[task.id, other.id], first=True)
        assert first["status"] == "settled" and first["settled"][0]["summary"] == "found"


async def test_a_client_that_gives_up_ends_its_call_and_nothing_else(herd, broker):
    """Cut off by its own clock, a client finds the question open, and later the answer."""
    async with serving(broker) as base, joined(base, herd.scout) as scout:
        async with anyio.create_task_group() as group:
            group.start_soon(lambda: scout.call("ask", to="planner", body="Which?"))
            turn = await herd.planner.next_turn(30)
            group.cancel_scope.cancel()
        await no_waiter(herd, turn[0].message_id)
        assert (await herd.planner.receipt(turn[0])).request == "open"
        await herd.planner.reply(turn[0], "Exponential")
        [mail] = (await scout.data("inbox"))["messages"]
        assert mail["body"] == "Exponential"
        assert (await scout.data("ask", to="planner", body="Which?"))["body"] == "Exponential"


async def test_a_client_that_is_killed_leaves_no_waiter(herd, broker):
    """A connection that breaks off while its call waits ends the call; the question stays."""
    async with serving(broker) as base, httpx2.AsyncClient(headers=bearer(herd.scout)) as http:
        accept = {"accept": "application/json, text/event-stream"}
        call = request("tools/call", name="ask", arguments={"to": "planner", "body": "Which?"})
        async with http.stream("POST", f"{base}/mcp", json=call, headers=accept) as answer:
            assert answer.status_code == 200
            turn = await herd.planner.next_turn(30)
        await no_waiter(herd, turn[0].message_id)
        [scout] = [each for each in await herd.parent.roster() if each.agent == "scout"]
        assert {name[:9] for name in scout.instances} <= {"inst_mcp_", herd.scout.instance[:9]}
        await herd.planner.reply(turn[0], "Exponential")
        assert (await herd.scout.ask_wait(turn[0], 5)).body == "Exponential"


@pytest.mark.long
async def test_cancelled_at_the_moment_of_the_answer_the_answer_is_there(herd, broker):
    """200 cancels against 200 answers (case 27): each answer is had, as mail or by asking again."""
    headers = bearer(herd.scout) | {"accept": "application/json, text/event-stream"}
    async with (
        serving(broker, burst=100_000) as base,
        httpx2.AsyncClient(headers=headers, timeout=30) as http,
    ):
        begun = await http.post(f"{base}/mcp", json=initialize())
        session = {"mcp-session-id": begun.headers["mcp-session-id"]}

        async def post(message):
            return await http.post(f"{base}/mcp", json=message, headers=session)

        for number in range(1, 201):
            arguments = {"to": "planner", "body": f"Which, {number}?"}
            call = request("tools/call", number, name="ask", arguments=arguments)
            asking = asyncio.create_task(post(call))
            turn = await herd.planner.next_turn(30, limit=1)
            cancel = {
                "jsonrpc": "2.0",
                "method": "notifications/cancelled",
                "params": {"requestId": number},
            }
            pause = (number % 20) / 2_000
            replying = asyncio.create_task(herd.planner.reply(turn[0], f"answer {number}"))
            await asyncio.sleep(pause)
            await asyncio.gather(post(cancel), replying, turn.ack())
            answered = [
                each["result"]["structuredContent"]["body"]
                for each in answers((await asking).text)
                if "result" in each
            ]
            assert answered in ([], [f"answer {number}"])
            await no_waiter(herd, turn[0].message_id)
            assert (await herd.scout.ask_wait(turn[0], 5)).body == f"answer {number}"
        # What was given back is mail, at most once.
        mail = [each.body for each in await herd.scout.inbox(limit=1_000)]
        assert len(mail) == len(set(mail))


async def test_a_client_that_takes_handles_gets_one(herd, broker):
    """A client that declares the tasks extension gets a handle that any server answers for."""
    meta = {
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientInfo": {"name": "test", "version": "1"},
        "io.modelcontextprotocol/clientCapabilities": {
            "extensions": {"io.modelcontextprotocol/tasks": {}}
        },
    }

    async def post(base, method, about, **params):
        headers = bearer(herd.scout) | {
            "accept": "application/json, text/event-stream",
            "mcp-protocol-version": "2026-07-28",
            "mcp-method": method,
            "mcp-name": about,
        }
        async with httpx2.AsyncClient(headers=headers, timeout=30) as http:
            answer = await http.post(f"{base}/mcp", json=request(method, _meta=meta, **params))
        return answer.json()

    async with serving(broker) as base, serving(broker) as another:
        arguments = {"to": "planner", "body": "Which?"}
        handle = (await post(base, "tools/call", "ask", name="ask", arguments=arguments))["result"]
        assert handle["resultType"] == "task" and handle["status"] == "working"
        task = handle["taskId"]
        assert await waiters(herd, task) == 0
        state = (await post(another, "tasks/get", task, taskId=task))["result"]
        assert state["status"] == "working" and state["pollIntervalMs"] > 0
        assert "error" not in await post(another, "tasks/cancel", task, taskId=task)
        await herd.planner.reply(task, "Exponential")
        for _ in range(2):
            state = (await post(another, "tasks/get", task, taskId=task))["result"]
            assert state["status"] == "completed"
            assert state["result"]["structuredContent"]["body"] == "Exponential"
        assert list(await herd.scout.inbox()) == []
        nothing = await post(base, "tasks/get", "task_x", taskId="task_x")
        assert nothing["error"]["code"] == -32602
