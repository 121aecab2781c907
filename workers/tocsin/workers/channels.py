"""Words for a session of Claude Code by way of its own MCP server: a channel, where it is enabled.

Claude Code takes up what a server that it started sends as `notifications/claude/channel`, if the
server said that it may (the capability `claude/channel`) and the user started the host with
`--channels` or, for servers that are on no list of Anthropic's, with
`--dangerously-load-development-channels server:NAME`; else it drops it without a word (its channels
reference, as of August 2026, a research preview). The server is a child of the host, and whoever
listens for the session is another process: so the server reads a pipe that is named by the host's
process, and what is written there it says to the host.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path

from platformdirs import user_state_path

from tocsin.workers.lineage import Process

CAPABILITY = "claude/channel"
METHOD = "notifications/claude/channel"

_PIECE = 65_536
_LONGEST = 16_384


def _pipe(host_pid: int) -> Path:
    return user_state_path("tocsin", appauthor=False) / "channels" / str(host_pid)


def is_open(host: Process | None) -> bool:
    """Whether the MCP server of a host offers a channel, as far as its pipe is there."""
    return host is not None and host.runs() and _pipe(host.pid).is_fifo()


def say(host: Process, text: str) -> bool:
    """Has the server say a text, in one line, to its host; whether there is one that reads."""
    line = " ".join(text.split()).encode()[:_LONGEST] + b"\n"
    try:
        handle = os.open(_pipe(host.pid), os.O_WRONLY | os.O_NONBLOCK)
    except OSError:  # there is none, or nobody reads
        return False
    try:
        return os.write(handle, line) == len(line)
    except OSError:
        return False
    finally:
        os.close(handle)


@asynccontextmanager
async def opened(host_pid: int, tell: Callable[[str], Awaitable[None]]) -> AsyncIterator[None]:
    """While inside, each line that is said to this host is told, in order."""
    path, lines = _pipe(host_pid), asyncio.Queue[str]()
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    with suppress(FileExistsError):
        os.mkfifo(path, 0o600)
    # For writing, too: so it never ends, however many have written and gone.
    handle, left = os.open(path, os.O_RDWR | os.O_NONBLOCK), b""

    def read() -> None:
        nonlocal left
        with suppress(BlockingIOError):
            *whole, left = (left + os.read(handle, _PIECE)).split(b"\n")
            for line in whole:
                lines.put_nowait(line.decode("utf-8", "replace"))

    async def carry() -> None:
        while True:
            await tell(await lines.get())

    asyncio.get_running_loop().add_reader(handle, read)
    carrying = asyncio.create_task(carry())
    try:
        yield
    finally:
        asyncio.get_running_loop().remove_reader(handle)
        carrying.cancel()
        path.unlink(missing_ok=True)
        os.close(handle)
