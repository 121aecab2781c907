"""MCP over stdin and stdout, for one agent: what a host starts for each of its sessions.

stdout is the protocol's alone: while this serves, whatever else writes there, a library or a child
process, reaches stderr. It starts whatever is wrong with the seat, the url or the broker, and says
so where a model reads it: in the answers of its tools.
"""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Callable
from contextlib import suppress
from functools import partial

from mcp.server.stdio import stdio_server

from tocsin.workers.mcp.clients import Patience, limit_of
from tocsin.workers.mcp.server import Context, build
from tocsin.workers.mcp.visitors import Place, Resident

_STOPPING = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


def _patience(limit: float | None, context: Context) -> Patience:
    client = context.session.client_params
    name = client.client_info.name if client is not None else None
    return Patience(limit_of(name) if limit is None else limit)


async def serve_stdio(find: Callable[[], Place], limit: float | None = None) -> None:
    """Serves the agent that `find` names until stdin ends or a signal comes.

    `limit`: seconds that a call may wait, whoever the client is.
    """
    resident = Resident(find)
    server = build(lambda _: resident, partial(_patience, limit))
    loop = asyncio.get_running_loop()
    told = asyncio.Event()
    for number in _STOPPING:
        loop.add_signal_handler(number, told.set)

    async def serve() -> None:
        async with stdio_server() as (incoming, outgoing):
            await server.run(incoming, outgoing, server.create_initialization_options())

    serving = asyncio.create_task(serve())
    stopping = asyncio.create_task(told.wait())
    try:
        await asyncio.wait({serving, stopping}, return_when=asyncio.FIRST_COMPLETED)
    finally:
        stopping.cancel()
        await resident.aclose()
        if not serving.done():  # a thread is in a read of stdin, which nothing can interrupt
            os._exit(0)
    with suppress(BrokenPipeError, ConnectionError):
        serving.result()
