"""MCP over stdin and stdout, for one agent: what a host starts for each of its sessions.

stdout is the protocol's alone: while this serves, whatever else writes there, a library or a child
process, reaches stderr. It starts whatever is wrong with the seat, the url or the broker, and says
so where a model reads it: in the answers of its tools.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
from collections.abc import AsyncIterable, Callable
from contextlib import AsyncExitStack, suppress
from functools import partial
from typing import Any

import anyio
from anyio.streams.memory import MemoryObjectSendStream
from mcp.server.stdio import stdio_server
from mcp.shared._stream_protocols import WriteStream
from mcp.shared.message import SessionMessage
from mcp_types import INVALID_REQUEST, PARSE_ERROR, ErrorData, JSONRPCError, JSONRPCNotification
from pydantic import ValidationError

from tocsin.workers import channels, lineage
from tocsin.workers.mcp.bridge import Bridge
from tocsin.workers.mcp.clients import Patience, limit_of
from tocsin.workers.mcp.server import Context, Handlers, build
from tocsin.workers.mcp.visitors import Place, Resident

_STOPPING = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


def _patience(limit: float | None, context: Context) -> Patience:
    client = context.session.client_params
    name = client.client_info.name if client is not None else None
    return Patience(limit_of(name) if limit is None else limit)


async def serve_stdio(
    find: Callable[[], Place],
    limit: float | None = None,
    *,
    channel: bool = False,
    far: bool = False,
) -> None:
    """Serves the agent that `find` names until stdin ends or a signal comes.

    `limit`: seconds that a call may wait, whoever the client is. `channel`: whoever listens for the
    session may have words said to its host, unasked (`channels`). `far`: the url of its place is
    that of a server of Tocsin, which is handed all calls.
    """
    resident, patience = Resident(find), partial(_patience, limit)
    bridge = Bridge(find, resident, patience) if far else None
    server = build(bridge or Handlers(lambda _: resident, patience))
    loop = asyncio.get_running_loop()
    told = asyncio.Event()
    for number in _STOPPING:
        loop.add_signal_handler(number, told.set)

    async def serve() -> None:
        async with stdio_server() as (incoming, outgoing), AsyncExitStack() as stack:

            async def tell(text: str) -> None:
                said = JSONRPCNotification(
                    jsonrpc="2.0", method=channels.METHOD, params={"content": text}
                )
                await outgoing.send(SessionMessage(said))

            if channel:
                host = lineage.host_of(lineage.ancestors())
                await stack.enter_async_context(channels.opened(host, tell))
            offers = {channels.CAPABILITY: dict[str, object]()} if channel else None
            options = server.create_initialization_options(experimental_capabilities=offers)
            passing, passed = anyio.create_memory_object_stream[SessionMessage | Exception](0)
            async with anyio.create_task_group() as group:
                group.start_soon(_pass_on, incoming, passing, outgoing)
                await server.run(passed, outgoing, options)
                group.cancel_scope.cancel()

    serving = asyncio.create_task(serve())
    stopping = asyncio.create_task(told.wait())
    try:
        await asyncio.wait({serving, stopping}, return_when=asyncio.FIRST_COMPLETED)
    finally:
        stopping.cancel()
        await (bridge or resident).aclose()
        if not serving.done():  # a thread is in a read of stdin, which nothing can interrupt
            os._exit(0)
    with suppress(BrokenPipeError, ConnectionError):
        serving.result()


async def _pass_on(
    incoming: AsyncIterable[SessionMessage | Exception],
    passing: MemoryObjectSendStream[SessionMessage | Exception],
    outgoing: WriteStream[SessionMessage],
) -> None:
    """Passes on what can be read. To the rest it says so: who sent it may be waiting."""
    async with passing:
        async for each in incoming:
            if isinstance(each, SessionMessage):
                await passing.send(each)
            elif (answer := _unreadable(each)) is not None:
                await outgoing.send(SessionMessage(answer))


def _unreadable(failure: Exception) -> JSONRPCError | None:
    """The answer to a line that is no message, by the id that it may have.

    Half of a pair, as JavaScript writes it of a cut emoji, is JSON and still no text.
    """
    first: Any = failure.errors()[0] if isinstance(failure, ValidationError) else {}
    if first.get("type") != "json_invalid":
        error = ErrorData(code=INVALID_REQUEST, message="this is no message of JSON-RPC 2.0")
        return JSONRPCError(jsonrpc="2.0", id=None, error=error)
    line = first["input"]
    if not line.strip():
        return None
    try:
        found = json.loads(line)
    except (ValueError, RecursionError):
        found = None
    number = found.get("id") if isinstance(found, dict) else None
    known = number if isinstance(number, str) or type(number) is int else None
    error = ErrorData(code=PARSE_ERROR, message=f"this cannot be read: {first['msg']}")
    return JSONRPCError(jsonrpc="2.0", id=known, error=error)
