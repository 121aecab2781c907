"""A stand-in for a model: the streaming chat API of OpenAI on loopback, answering by a script.

Facts: the API's reference ("Chat completions", streaming), as `openai-completions` of pi speaks it.
The script sees the conversation and says either words or the call of a tool.
"""

from __future__ import annotations

import json
import re
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


@dataclass(frozen=True)
class Use:
    """The call of a tool."""

    tool: str
    arguments: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Heard:
    """One message of a conversation, and when the request with it came."""

    role: str
    text: str
    at: float


Script = Callable[[list[Heard], set[str]], "Use | str"]


def text_of(message: dict[str, Any]) -> str:
    """The words of a message, however they are written."""
    content = message.get("content") or ""
    if isinstance(content, str):
        return content
    return "\n".join(part.get("text", "") for part in content)


class Model:
    """The server: what it heard, in requests, and what goes wrong in it."""

    def __init__(self, script: Script) -> None:
        self.script = script
        self.requests: list[list[Heard]] = []
        self.tools: set[str] = set()
        self.failures: list[str] = []
        self.strangers: list[str] = []
        """Requests for anything else: what a host with its network off must not make."""

    def answer(self, body: dict[str, Any]) -> list[dict[str, Any]]:
        """The chunks of one answer."""
        now = time.monotonic()
        heard = [Heard(each["role"], text_of(each), now) for each in body["messages"]]
        self.tools = {each["function"]["name"] for each in body.get("tools", [])}
        self.requests.append(heard)
        try:
            said = self.script(heard, self.tools)
        except Exception as failure:
            self.failures.append(f"{type(failure).__name__}: {failure}")
            said = "The script does not know what to do."
        if isinstance(said, str):
            return [_chunk({"role": "assistant", "content": said}), _chunk({}, "stop")]
        call = {
            "index": 0,
            "id": f"call_{len(self.requests)}",
            "type": "function",
            "function": {"name": said.tool, "arguments": json.dumps(said.arguments)},
        }
        return [_chunk({"role": "assistant", "tool_calls": [call]}), _chunk({}, "tool_calls")]


def _chunk(delta: dict[str, Any], finish: str | None = None) -> dict[str, Any]:
    return {
        "id": "chatcmpl-1",
        "object": "chat.completion.chunk",
        "created": 0,
        "model": "scripted",
        "choices": [{"index": 0, "delta": delta, "finish_reason": finish}],
    }


@contextmanager
def serving(model: Model) -> Iterator[str]:
    """Its address, for as long as it is served. It is a proxy, too, that lets nothing through."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            if self.path != "/v1/chat/completions":
                self._refuse()
                return
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            chunks = model.answer(body)
            self.send_response(200)
            self.send_header("Content-Type", "text/event-stream")
            self.end_headers()
            lines = [*(json.dumps(chunk) for chunk in chunks), "[DONE]"]
            with suppress(ConnectionError):  # the host has ended meanwhile
                self.wfile.write("".join(f"data: {line}\n\n" for line in lines).encode())

        def _refuse(self) -> None:
            model.strangers.append(f"{self.command} {self.path}")
            self.send_error(403)

        def __getattr__(self, name: str) -> Any:
            if name.startswith("do_"):  # every other method
                return self._refuse
            raise AttributeError(name)

        def log_message(self, *_: Any) -> None:
            """Says nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def ids(prefix: str, text: str) -> list[str]:
    """The ids of one kind in a text, each once."""
    return list(dict.fromkeys(re.findall(rf"\b{prefix}_[A-Za-z0-9-]+", text)))
