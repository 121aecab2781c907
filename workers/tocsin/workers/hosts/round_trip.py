"""A round trip through an MCP server that a host would start: does what was written work?

Started as the barest host does, with few variables, it is asked who it is, which tools it has, and
who is in the herd. It is not asked for mail: to show mail is to begin the work in it.
"""

from __future__ import annotations

import json
import os
import selectors
import subprocess
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import IO, Any

from tocsin.broker.errors import InvalidInput
from tocsin.workers.hosts.documents import OPERATION
from tocsin.workers.hosts.servers import KEPT

_LONGEST = 30.0
"""Seconds for all of it: a machine under load starts a program slowly."""

_VERSION = "2025-06-18"
"""Of the protocol; every server since knows it."""


@dataclass(frozen=True)
class RoundTrip:
    """What came back."""

    server: str
    tools: tuple[str, ...]
    herd: str


def round_trip(command: Sequence[str], environ: Mapping[str, str]) -> RoundTrip:
    """Starts the server and asks. What does not come back well is an error that says what did."""
    kept = {name: value for name, value in os.environ.items() if name in KEPT}
    with tempfile.TemporaryFile() as heard:
        try:
            process = subprocess.Popen(
                list(command),
                env=kept | dict(environ),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=heard,
            )
        except OSError as failure:
            raise InvalidInput(
                OPERATION, f"{command[0]} cannot be started: {failure.strerror}"
            ) from None
        try:
            return _ask(_Line(process, time.monotonic() + _LONGEST))
        except (TimeoutError, EOFError) as failure:
            heard.seek(0)
            said = heard.read(4_096).decode("utf-8", "replace").strip() or "nothing"
            raise InvalidInput(
                OPERATION, f"the MCP server {failure}; on stderr it said: {said}"
            ) from None
        finally:
            _end(process)


class _Line:
    """Requests to the server, one after another."""

    def __init__(self, process: subprocess.Popen[bytes], deadline: float) -> None:
        assert process.stdin is not None
        assert process.stdout is not None
        self._to: IO[bytes] = process.stdin
        self._from = process.stdout.fileno()
        self._deadline = deadline
        self._read = b""
        self._last = 0

    def tell(self, method: str, **more: Any) -> None:
        message = {"jsonrpc": "2.0", "method": method, **more}
        try:
            self._to.write(json.dumps(message).encode() + b"\n")
            self._to.flush()
        except BrokenPipeError:
            raise EOFError("ended") from None

    def ask(self, method: str, **params: Any) -> dict[str, Any]:
        self._last += 1
        self.tell(method, id=self._last, params=params)
        while True:
            answer = json.loads(self._next())
            if answer.get("id") == self._last and "method" not in answer:
                break
        if "error" in answer:
            raise InvalidInput(OPERATION, f"{method} failed: {answer['error'].get('message')}")
        result: dict[str, Any] = answer["result"]
        return result

    def _next(self) -> bytes:
        with selectors.DefaultSelector() as ready:
            ready.register(self._from, selectors.EVENT_READ)
            while b"\n" not in self._read:
                left = self._deadline - time.monotonic()
                if left <= 0 or not ready.select(left):
                    raise TimeoutError(f"did not answer within {_LONGEST:g} s")
                found = os.read(self._from, 65_536)
                if not found:
                    raise EOFError("ended")
                self._read += found
        line, self._read = self._read.split(b"\n", 1)
        return line


def _ask(line: _Line) -> RoundTrip:
    client = {"name": "tocsin connect", "version": "1"}
    hello = line.ask("initialize", protocolVersion=_VERSION, capabilities={}, clientInfo=client)
    line.tell("notifications/initialized")
    tools = tuple(tool["name"] for tool in line.ask("tools/list")["tools"])
    roster = line.ask("tools/call", name="roster", arguments={})
    data = roster.get("structuredContent") or {}
    if roster.get("isError"):
        said = data.get("detail") or " ".join(part.get("text", "") for part in roster["content"])
        raise InvalidInput(OPERATION, f"the MCP server starts, but its tools do not work: {said}")
    server = hello["serverInfo"]
    return RoundTrip(f"{server['name']} {server['version']}", tools, str(data.get("herd")))


def _end(process: subprocess.Popen[bytes]) -> None:
    for stream in (process.stdin, process.stdout):
        if stream is not None:
            with suppress(BrokenPipeError):
                stream.close()
    for stop in (process.terminate, process.kill):
        try:
            process.wait(5)
        except subprocess.TimeoutExpired:
            stop()
    process.wait()
