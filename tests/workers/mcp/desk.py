"""MCP servers and sessions of a test: over HTTP in this process, over stdio in one of its own."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx2
import uvicorn
from mcp import ClientSession, StdioServerParameters
from mcp.client.stdio import stdio_client
from mcp.client.streamable_http import streamable_http_client
from mcp_types import CallToolResult
from starlette.types import ASGIApp

from tests.waiting import TIMEOUT, wait_until_async
from tocsin.broker import AsyncAgent, AsyncBroker
from tocsin.workers.mcp.web import WebOptions, application

PROGRAM = (sys.executable, "-m", "tocsin.workers.cli.app", "mcp")


@asynccontextmanager
async def served(
    app: ASGIApp, certificate: Path | None = None, *, port: int = 0
) -> AsyncIterator[str]:
    """The address of an application that listens on a free port of loopback, or that one; by TLS if
    it has a certificate."""
    config = uvicorn.Config(
        app, port=port, log_config=None, timeout_graceful_shutdown=1, ssl_certfile=certificate
    )
    server = uvicorn.Server(config)
    serving = asyncio.create_task(server._serve())
    try:
        await wait_until_async(lambda: server.started or serving.done(), "the server to listen")
        scheme = "http" if certificate is None else "https"
        yield f"{scheme}://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
    finally:
        server.should_exit = True
        await asyncio.wait_for(serving, TIMEOUT)


def serving(broker: AsyncBroker, **options: Any):
    """The address of an MCP server of this broker's fleet."""
    return served(application(broker, WebOptions(**options)))


def bearer(agent: AsyncAgent) -> dict[str, str]:
    """The header that says and proves who calls."""
    return {"Authorization": f"Bearer {agent.herd}/{agent.agent}:{agent.token}"}


class Session:
    """A client's session with a server, and what its tools answer."""

    def __init__(self, session: ClientSession) -> None:
        self.client = session

    async def call(self, tool: str, /, **arguments: Any) -> CallToolResult:
        """What a tool answers, well or not."""
        result = await self.client.call_tool(tool, arguments)
        assert isinstance(result, CallToolResult)
        return result

    async def data(self, tool: str, /, **arguments: Any) -> dict[str, Any]:
        """The data of a call that goes well."""
        result = await self.call(tool, **arguments)
        assert not result.is_error, result.content
        assert isinstance(result.structured_content, dict)
        return result.structured_content

    async def text(self, tool: str, /, **arguments: Any) -> str:
        """The text of a call that goes well."""
        result = await self.call(tool, **arguments)
        assert not result.is_error, result.content
        return text_of(result)

    async def refusal(self, tool: str, /, **arguments: Any) -> dict[str, Any]:
        """The error of a call that is refused, of which the text says the same."""
        result = await self.call(tool, **arguments)
        assert result.is_error, result.content
        assert result.structured_content is not None
        error: dict[str, Any] = result.structured_content["error"]
        assert error["code"] in text_of(result)
        assert error["detail"] in text_of(result)
        assert error["next"] in text_of(result)
        assert isinstance(error["retryable"], bool)
        return error

    async def tools(self) -> list[str]:
        """The names of the tools."""
        return [tool.name for tool in (await self.client.list_tools()).tools]


MOST = 20_000
"""Characters of a result that hosts show whole."""


def size(result: CallToolResult) -> int:
    """Characters of a result, as it is sent."""
    return len(result.model_dump_json(by_alias=True, exclude_none=True))


def text_of(result: CallToolResult) -> str:
    """The text of a result."""
    [content] = result.content
    assert content.type == "text"
    return content.text


@asynccontextmanager
async def joined(
    base: str, agent: AsyncAgent, *, limit: float | None = None
) -> AsyncIterator[Session]:
    """A session of an agent with the server at `base`, whose calls wait so many seconds."""
    headers = bearer(agent) | ({} if limit is None else {"tocsin-limit": str(limit)})
    async with (
        httpx2.AsyncClient(headers=headers, timeout=60) as http,
        streamable_http_client(f"{base}/mcp", http_client=http) as streams,
        ClientSession(*streams) as session,
    ):
        await session.initialize()
        yield Session(session)


def environment(broker: AsyncBroker, url: str, agent: AsyncAgent) -> dict[str, str]:
    """What a host gives a process that speaks for an agent."""
    return os.environ | {
        "TOCSIN_URL": url,
        "TOCSIN_FLEET": broker.name,
        "TOCSIN_SEAT": f"{agent.herd}/{agent.agent}",
        "TOCSIN_TOKEN": agent.token,
    }


@asynccontextmanager
async def hosted(env: dict[str, str], *args: str) -> AsyncIterator[Session]:
    """A session over stdio with a process of its own."""
    program, *rest = PROGRAM
    parameters = StdioServerParameters(command=program, args=[*rest, *args], env=env)
    async with (
        stdio_client(parameters) as streams,
        ClientSession(*streams) as session,
    ):
        await session.initialize()
        yield Session(session)


def request(method: str, number: int = 1, **params: Any) -> dict[str, Any]:
    """A JSON-RPC request."""
    return {"jsonrpc": "2.0", "id": number, "method": method, "params": params}


def initialize(client: str = "test") -> dict[str, Any]:
    """The first request of a client that shakes hands."""
    return request(
        "initialize",
        0,
        protocolVersion="2025-06-18",
        capabilities={},
        clientInfo={"name": client, "version": "1"},
    )


def answers(body: str) -> list[dict[str, Any]]:
    """The messages of a stream of events."""
    return [
        json.loads(line.removeprefix("data:"))
        for line in body.splitlines()
        if line.startswith("data:") and line.removeprefix("data:").strip()
    ]
