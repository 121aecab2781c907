"""What a call costs as a tool over MCP, beside the same call of the library."""

from __future__ import annotations

import asyncio
import os
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import httpx2
import uvicorn
from mcp import ClientSession, StdioServerParameters
from mcp.client.stdio import stdio_client
from mcp.client.streamable_http import streamable_http_client

from benchmarks.measuring import Options, show, times
from tocsin.broker import AsyncAgent, AsyncBroker, HerdSettings, herds
from tocsin.broker.embedded import EmbeddedServer
from tocsin.workers.mcp.web import WebOptions, application

CALLS = 100
"""Calls in one run."""


def run(options: Options) -> None:
    """The roster and a message: by the library, over stdio, over HTTP."""
    with EmbeddedServer(durable=False) as server:
        took = asyncio.run(_measure(server.url, options.runs))
    rows = []
    for name, by in took.items():
        bare = by["library"]
        rows.append(
            [name, *(f"{spent / CALLS * 1_000:.2f} ms" for spent in by.values())]
            + [times(by["stdio"], bare), times(by["HTTP"], bare)]
        )
    columns = ["one call", "library", "stdio", "HTTP", "stdio / library", "HTTP / library"]
    show(options.console, "A tool call beside the library's own", columns, rows)


async def _measure(url: str, runs: int) -> dict[str, dict[str, float]]:
    async with AsyncBroker.connect(url, fleet="bench") as broker:
        settings = HerdSettings(pair_rate=1_000_000, inbox_limit=1_000_000)
        parent = await broker.open_herd("herd", settings=settings)
        token = (await parent.register("scout")).token
        assert token is not None
        scout = await broker.join("herd", "scout", token)
        async with _by_stdio(url, scout) as stdio, _by_http(broker, scout) as web:

            async def roster() -> object:
                return await broker.run(herds.roster(scout.caller))

            works: dict[str, dict[str, Callable[[], Awaitable[object]]]] = {
                "roster": {
                    "library": roster,
                    "stdio": lambda: stdio.call_tool("roster", {}),
                    "HTTP": lambda: web.call_tool("roster", {}),
                },
                "message": {
                    "library": lambda: scout.message("parent", "ping"),
                    "stdio": lambda: stdio.call_tool("message", {"to": "parent", "body": "ping"}),
                    "HTTP": lambda: web.call_tool("message", {"to": "parent", "body": "ping"}),
                },
            }
            return {name: await _medians(runs, each) for name, each in works.items()}


async def _medians(
    runs: int, works: dict[str, Callable[[], Awaitable[object]]]
) -> dict[str, float]:
    taken: dict[str, list[float]] = {name: [] for name in works}
    for _ in range(runs):
        for name, work in works.items():
            started = time.perf_counter()
            for _ in range(CALLS):
                await work()
            taken[name].append(time.perf_counter() - started)
    return {name: sorted(each)[len(each) // 2] for name, each in taken.items()}


@asynccontextmanager
async def _by_stdio(url: str, agent: AsyncAgent) -> AsyncIterator[ClientSession]:
    env = os.environ | {
        "TOCSIN_URL": url,
        "TOCSIN_FLEET": "bench",
        "TOCSIN_SEAT": f"{agent.herd}/{agent.agent}",
        "TOCSIN_TOKEN": agent.token,
    }
    program = [sys.executable, "-m", "tocsin.workers.cli.app", "mcp"]
    parameters = StdioServerParameters(command=program[0], args=program[1:], env=env)
    async with stdio_client(parameters) as streams, ClientSession(*streams) as session:
        await session.initialize()
        yield session


@asynccontextmanager
async def _by_http(broker: AsyncBroker, agent: AsyncAgent) -> AsyncIterator[ClientSession]:
    app = application(broker, WebOptions(burst=1_000_000))
    server = uvicorn.Server(uvicorn.Config(app, port=0, log_config=None))
    serving = asyncio.create_task(server._serve())
    while not server.started:  # noqa: ASYNC110 - it has no event to wait for
        await asyncio.sleep(0.01)
    url = f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}/mcp"
    proof = {"Authorization": f"Bearer {agent.herd}/{agent.agent}:{agent.token}"}
    async with (
        httpx2.AsyncClient(headers=proof) as http,
        streamable_http_client(url, http_client=http) as streams,
        ClientSession(*streams) as session,
    ):
        await session.initialize()
        yield session
    server.should_exit = True
    await serving
