"""`make test-mcp`: the official conformance suite, inspector and TypeScript SDK against our server.

Needs npm; Node itself comes as a package. What it installs is in `.node` of the project.
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from starlette.types import ASGIApp, Receive, Scope, Send

from tests.node import install
from tests.workers.mcp.desk import bearer, environment, served
from tocsin.broker import AsyncAgent, AsyncBroker, AsyncParent, ScaledClock
from tocsin.broker.embedded import EmbeddedServer
from tocsin.scheduler import AsyncScheduler
from tocsin.workers.mcp.server import CHILD_TOOLS, PARENT_TOOLS
from tocsin.workers.mcp.web import WebOptions, application

HERE = Path(__file__).resolve().parent
FOLDER = HERE.parents[3] / ".node"
NODE = FOLDER / "node_modules/node/bin/node"

SCENARIOS = (
    "server-initialize ping tools-list resources-list prompts-list server-sse-multiple-streams "
    "dns-rebinding-protection"
)
"""Those that need no tools, resources or prompts of the suite's own test server, and no features
(sampling, elicitation, logging, completion, subscriptions) that this one does not have."""

TIMEOUT = 120.0

FACTOR = 300.0
"""The minute of the story's fleet is a fifth of a second."""


async def node(*words: str, env: dict[str, str] | None = None) -> str:
    """What a program prints that must end well."""
    process = await asyncio.create_subprocess_exec(
        str(NODE),
        *words,
        cwd=FOLDER,
        env=os.environ | {"PATH": f"{NODE.parent}:{os.environ['PATH']}"} | (env or {}),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )
    try:
        out, _ = await asyncio.wait_for(process.communicate(), TIMEOUT)
    finally:
        if process.returncode is None:
            process.kill()
    text = out.decode()
    assert process.returncode == 0, text
    return text


def package(name: str, entry: str) -> str:
    """The file of a package that is its program."""
    about = json.loads((FOLDER / f"node_modules/{name}/package.json").read_text())
    return str(FOLDER / f"node_modules/{name}" / about["bin"][entry])


def speaking_for(agent: AsyncAgent, app: ASGIApp) -> ASGIApp:
    """The application for clients that send no token of their own."""
    proof = bearer(agent)["Authorization"].encode()

    async def told(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            scope["headers"] = [*scope["headers"], (b"authorization", proof)]
        await app(scope, receive, send)

    return told


async def conformance(broker: AsyncBroker, parent: AsyncParent) -> None:
    """The conformance suite, scenario by scenario."""
    program = package("@modelcontextprotocol/conformance", "conformance")
    async with served(speaking_for(parent, application(broker, WebOptions()))) as base:
        for scenario in SCENARIOS.split():
            text = await node(program, "server", "--url", f"{base}/mcp", "--scenario", scenario)
            print(f"conformance: {scenario}: {text.strip().splitlines()[-1].strip()}")


async def inspector(broker: AsyncBroker, parent: AsyncParent, url: str) -> None:
    """The inspector's command line lists tools, and calls one, on both transports."""
    program = package("@modelcontextprotocol/inspector", "mcp-inspector")
    scout = await parent.register("inspected")
    child = await broker.join(parent.herd, "inspected", str(scout.token))
    env = {
        name: value
        for name, value in environment(broker, url, child).items()
        if name.startswith("TOCSIN_")
    }
    variables = [word for name, value in env.items() for word in ("-e", f"{name}={value}")]
    stdio = [*variables, str(Path(sys.executable).with_name("tocsin")), "mcp"]
    async with served(application(broker, WebOptions())) as base:
        proof = f"Authorization: {bearer(parent)['Authorization']}"
        http = [f"{base}/mcp", "--transport", "http", "--header", proof]
        for name, target, tools in (("stdio", stdio, CHILD_TOOLS), ("http", http, PARENT_TOOLS)):
            words = [program, "--cli", "--connect-timeout", "60000", *target, "--method"]
            listed = _document(await node(*words, "tools/list", "--strict"))
            assert [each["name"] for each in listed["tools"]] == tools.split(), listed
            called = _document(await node(*words, "tools/call", "--tool-name", "roster"))
            assert called["structuredContent"]["herd"] == parent.herd, called
            print(f"inspector: {name}: {len(listed['tools'])} tools listed, roster called")


def _document(text: str) -> Any:
    return json.loads(text[text.index("{") :])


async def story(url: str) -> None:
    """The SDK for TypeScript tells the story of the demo in a session for each agent."""
    clock = ScaledClock(FACTOR)
    async with AsyncBroker.connect(url, fleet="story", clock=clock) as broker:
        parent = await broker.open_herd("release-42")
        agents: list[AsyncAgent] = [parent]
        for name in ("scout", "planner"):
            seat = await parent.register(name)
            agents.append(await broker.join(parent.herd, name, str(seat.token)))
        shutil.copy(HERE / "story.mjs", FOLDER)
        headers = [bearer(agent)["Authorization"] for agent in agents]
        firing = asyncio.create_task(AsyncScheduler(broker).run())
        async with served(application(broker, WebOptions(limit=1))) as base:
            print((await node("story.mjs", f"{base}/mcp", *headers)).strip())
        firing.cancel()
        await asyncio.gather(firing, return_exceptions=True)


async def main() -> None:
    """All three."""
    install(HERE / "package.json", FOLDER)
    with EmbeddedServer(durable=False) as server:
        async with AsyncBroker.connect(server.url, fleet="official") as broker:
            parent = await broker.open_herd("release-42")
            parts: list[Callable[[], Awaitable[None]]] = [
                lambda: conformance(broker, parent),
                lambda: inspector(broker, parent, server.url),
                lambda: story(server.url),
            ]
            for part in parts:
                await part()


if __name__ == "__main__":
    asyncio.run(main())
