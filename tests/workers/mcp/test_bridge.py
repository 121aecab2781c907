"""MCP over stdio for who has a server's address alone: the same tools, at work there (case 33)."""

from __future__ import annotations

import asyncio
import json
import socket

import pytest
from mcp.shared.exceptions import MCPError

from tests.proxy import Proxy
from tests.waiting import wait_until_async
from tests.workers.mcp.desk import environment, hosted, initialize, request, served, serving
from tests.workers.mcp.test_asking import no_waiter
from tests.workers.mcp.test_stdio import Host
from tocsin.workers.mcp.server import CHILD_TOOLS, PARENT_TOOLS
from tocsin.workers.mcp.web import WebOptions, application

CALL = {"name": "ask", "arguments": {"to": "planner", "body": "Which?"}}


async def test_the_main_story_from_afar(herd, broker):
    """A parent and a child over stdio, neither with the fleet's url: delegated, asked, answered,
    done; resources and prompts, too."""
    async with (
        serving(broker) as base,
        hosted(environment(broker, base, herd.scout), "--limit", "0.5") as mine,
        hosted(environment(broker, f"{base}/mcp", herd.parent)) as boss,
    ):
        assert await mine.tools() == CHILD_TOOLS.split()
        assert await boss.tools() == PARENT_TOOLS.split()
        told = await boss.data("delegate", agent="scout", description="Find how auth works")
        task = told["task"]["id"]
        [mail] = (await mine.data("inbox"))["messages"]
        await mine.data("ack", messages=[mail["message_id"]])
        pending = await mine.data("ask", to="parent", body="Which branch?", task=task)
        assert pending["status"] == "pending"  # after the limit of this client, not the server's
        await boss.data("reply", message=pending["ask_id"], body="main")
        assert (await mine.data("ask_wait", ask_id=pending["ask_id"]))["body"] == "main"
        await mine.data("done", task=task, summary="JWT")
        ended = await boss.data("task_wait", tasks=[task])
        assert ended["settled"][0]["summary"] == "JWT"
        found = await boss.client.read_resource(f"tocsin://task/{task}")
        assert '"state": "completed"' in found.contents[0].model_dump_json().replace("\\", "")
        with pytest.raises(MCPError, match="no resource"):
            await boss.client.read_resource("tocsin://nothing")
        assert len((await mine.client.list_prompts()).prompts) == 2


async def test_a_server_that_is_away_is_said_by_the_tools(herd, broker):
    """A session begins while the server is away, and works as soon as it is there. What is wrong
    with a token is said as well, and the token in no word of it."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
    env = environment(broker, f"http://127.0.0.1:{port}", herd.scout)
    async with hosted(env) as mine:
        assert await mine.tools() == CHILD_TOOLS.split()
        error = await mine.refusal("inbox")
        assert error["code"] == "unavailable" and error["retryable"]
        assert f"127.0.0.1:{port} cannot be reached" in error["detail"]
        async with served(application(broker, WebOptions()), port=port):
            assert (await mine.data("inbox"))["messages"] == []
            await herd.parent.rotate("scout")
            error = await mine.refusal("inbox")
    assert error["code"] == "unauthorized" and "does not belong to agent" in error["detail"]
    assert herd.scout.token not in json.dumps(error)


async def test_what_is_no_server_of_tocsin(herd, broker):
    """Another program at that address is named as such, and what to look at."""
    says = iter([(404, "text/html"), (200, "text/html"), (302, "text/html"), (503, "text/html")])

    async def other(scope, receive, send):
        assert scope["type"] == "http"
        status, kind = next(says)
        headers = [(b"location", b"https://elsewhere.example/"), (b"content-type", kind.encode())]
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": b"<html>"})

    async with (
        served(other) as base,
        hosted(environment(broker, base, herd.scout)) as mine,
    ):
        for code, word in (
            ("invalid_input", "tocsin mcp --http"),
            ("invalid_input", "tocsin mcp --http"),
            ("invalid_input", "sends elsewhere"),
            ("unavailable", "answers 503"),
        ):
            error = await mine.refusal("inbox")
            assert error["code"] == code and word in error["detail"], error


async def test_a_line_that_is_cut(herd, broker):
    """What may have been done is not sent again, and said to be in doubt."""
    async with serving(broker) as base:
        with Proxy(base) as proxy:
            async with hosted(environment(broker, proxy.url, herd.scout)) as mine:
                cut = proxy.cut_next("Hello", before=False)
                error = await mine.refusal("message", to="planner", body="Hello")
                await asyncio.to_thread(cut.wait)
                assert error["code"] == "unavailable" and "may have been done" in error["detail"]
    assert [each.body for each in await herd.planner.inbox()] in ([], ["Hello"])


async def test_a_call_that_waits_says_so(herd, broker):
    """Progress comes through to a client that wants it, while its call waits at the server."""
    heard: list[str | None] = []

    async def hear(progress: float, total: float | None, message: str | None) -> None:
        heard.append(message)

    async with (
        serving(broker) as base,
        hosted(environment(broker, base, herd.scout), "--limit", "1") as mine,
    ):
        arguments = {"to": "planner", "body": "Which?"}
        result = await mine.client.call_tool("ask", arguments, progress_callback=hear)
    assert result.structured_content is not None
    assert result.structured_content["status"] == "pending"
    assert heard and "waiting for the answer to msg_" in str(heard[0])


@pytest.mark.parametrize("how", ["cancelled", "killed"])
async def test_a_call_that_ends_here_leaves_the_question_open(herd, broker, tmp_path, how):
    """Cancelled, or its process killed: nobody waits at the server any more, and the answer that
    comes then is mail (case 27)."""
    async with serving(broker) as base:
        host = await Host.start(tmp_path / "log", environment(broker, base, herd.scout))
        await host.write(initialize(), request("tools/call", 7, **CALL))
        turn = await herd.planner.next_turn(60)
        if how == "killed":
            host.process.kill()
            await host.process.communicate()
        else:
            gone = {"requestId": 7}
            await host.write(
                {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": gone}
            )
        await no_waiter(herd, turn[0].message_id)
        await herd.planner.reply(turn[0], "Exponential")

        async def mail():
            return [each.body for each in await herd.scout.inbox()]

        assert await wait_until_async(mail, "the answer to be mail") == ["Exponential"]
        if how == "cancelled":
            await host.end()


async def test_a_client_that_takes_handles_gets_one_from_afar(herd, broker, tmp_path):
    """The handle is the server's, and so is what it comes to."""
    meta = {
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientInfo": {"name": "test", "version": "1"},
        "io.modelcontextprotocol/clientCapabilities": {
            "extensions": {"io.modelcontextprotocol/tasks": {}}
        },
    }
    async with serving(broker) as base:
        env = environment(broker, base, herd.scout)
        host = await Host.start(tmp_path / "log", env, "--debug")
        await host.write(request("tools/call", 1, _meta=meta, **CALL))
        handle = (await host.answer(1))["result"]
        assert handle["resultType"] == "task" and handle["status"] == "working"
        await herd.planner.reply(handle["taskId"], "Exponential")
        await host.write(request("tasks/get", 2, _meta=meta, taskId=handle["taskId"]))
        state = (await host.answer(2))["result"]
        assert state["status"] == "completed"
        assert state["result"]["structuredContent"]["body"] == "Exponential"
        assert herd.scout.token not in await host.end()
