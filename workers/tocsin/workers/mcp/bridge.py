"""The tools of an agent whose fleet is behind a server of Tocsin, to which calls are handed on.

What there is, it says itself, so that a host starts it while that server is away. What is called
goes there as it came, one request each, with the token of the seat and how long the client stays on
the line; progress comes back as it is said. A call that ends here, cancelled or because the host is
gone, ends its request, which leaves the ask open. Nothing is sent twice: no id tells a call from
its repeat.

The SDK has no proxy, and a session of its client would have to be begun for each call, to be cut
off with it. So this is one POST by its HTTP client, in the version of the protocol that the host
speaks.
"""

from __future__ import annotations

import json
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import httpx2
from mcp.shared.exceptions import MCPError
from mcp.shared.inbound import NAME_BEARING_METHODS, encode_header_value
from mcp_types import (
    CallToolRequestParams,
    CallToolResult,
    ReadResourceRequestParams,
    ReadResourceResult,
)

from tocsin.broker.connections import ANSWER_WITHIN
from tocsin.broker.errors import BrokerError, InvalidInput, Unauthorized, Unavailable
from tocsin.broker.validation import check_token
from tocsin.workers.addresses import check_address
from tocsin.workers.mcp import asking, library
from tocsin.workers.mcp.clients import Patience
from tocsin.workers.mcp.gate import LIMIT
from tocsin.workers.mcp.server import Context, Handlers
from tocsin.workers.mcp.toolbox import refusal
from tocsin.workers.mcp.visitors import Place, Seat, Visitor
from tocsin.workers.remote import LONGEST_ANSWER, refusal_of, unproved

_KINDS = ("application/json", "text/event-stream")

_IDLE = 2.0
"""Seconds after which a line is not used again; servers close one after 5."""

_SLACK = 15.0
"""Seconds after a client's limit in which a call must be answered."""


class Bridge(Handlers):
    """What is done with each kind of request, where the fleet is asked afar."""

    def __init__(
        self, find: Callable[[], Place], visitor: Visitor, patience: Callable[[Context], Patience]
    ) -> None:
        super().__init__(lambda _: visitor, patience)
        self._find = find
        self._http = httpx2.AsyncClient(
            verify=ssl.create_default_context(),  # with the authority of SSL_CERT_FILE
            trust_env=False,
            limits=httpx2.Limits(keepalive_expiry=_IDLE),
        )

    async def call_tool(
        self, context: Context, params: CallToolRequestParams
    ) -> CallToolResult | dict[str, Any]:
        """What the tool answers there."""
        try:
            return await self._ask(context)
        except BrokerError as error:
            return refusal(error, self._visit(context))

    async def read_resource(
        self, context: Context, params: ReadResourceRequestParams
    ) -> ReadResourceResult:
        """What stands at an address there."""
        try:
            return ReadResourceResult.model_validate(await self._ask(context))
        except BrokerError as error:
            raise library.refused(error) from None

    async def get_task(self, context: Context, params: asking.TaskParams) -> dict[str, Any]:
        """How it stands with an ask that was answered by a handle."""
        try:
            return await self._ask(context)
        except BrokerError as error:
            raise library.refused(error) from None

    async def aclose(self) -> None:
        """Closes the connections."""
        await self._http.aclose()

    async def _ask(self, context: Context) -> dict[str, Any]:
        """The result of a request; of two tokens, a rotation left one of them in force."""
        place = self._find()
        *first, last = place.seat.tokens
        for token in first:
            try:
                return await self._send(context, place, token)
            except Unauthorized:
                continue
        return await self._send(context, place, last)

    async def _send(self, context: Context, place: Place, token: str) -> dict[str, Any]:
        address, token = check_address(place.url), check_token("mcp", token)
        async with self._posted(context, address, place.seat, token) as answer:
            kind = answer.headers.get("content-type", "").partition(";")[0]
            said = json.loads(await answer.aread()) if kind == "application/json" else None
            if answer.status_code != 200 or kind not in _KINDS:
                raise _refused(context.method, answer.status_code, said, address)
            if said is not None:
                return _result(said)
            async for event in httpx2.EventSource(answer, LONGEST_ANSWER):
                message = json.loads(event.data) if event.data else {}
                if message.get("method") == "notifications/progress":
                    told = message["params"]
                    await context.session.report_progress(
                        told["progress"], told.get("total"), told.get("message")
                    )
                elif "id" in message:
                    return _result(message)
        raise Unavailable(context.method, _lost(address, "it ended"))

    @asynccontextmanager
    async def _posted(
        self, context: Context, address: str, seat: Seat, token: str
    ) -> AsyncIterator[httpx2.Response]:
        limit, params = self._patience(context).limit, dict(context.params or {})
        headers = {
            "Authorization": f"Bearer {seat.herd}/{seat.agent}:{token}",
            "Accept": ", ".join(_KINDS),
            "Content-Type": "application/json",
            "MCP-Protocol-Version": context.protocol_version,
            "Mcp-Method": context.method,
            LIMIT: f"{limit:g}",
        }
        name = params.get(NAME_BEARING_METHODS.get(context.method, "taskId"))
        if isinstance(name, str):
            headers["Mcp-Name"] = encode_header_value(name)
        message = {"jsonrpc": "2.0", "id": 1, "method": context.method, "params": params}
        patience = httpx2.Timeout(ANSWER_WITHIN, read=limit + _SLACK)
        try:
            async with self._http.stream(
                "POST",
                f"{address}/mcp",
                content=json.dumps(message),
                headers=headers,
                timeout=patience,
            ) as answer:
                yield answer
        except (httpx2.ConnectError, httpx2.ConnectTimeout) as failure:
            why = f"{address} cannot be reached: {_told(failure)}"
            raise Unavailable(context.method, unproved(address, failure) or why) from None
        except (httpx2.HTTPError, httpx2.SSEError, ValueError) as failure:
            raise Unavailable(context.method, _lost(address, _told(failure))) from None


def _told(failure: Exception) -> str:
    return str(failure) or type(failure).__name__


def _lost(address: str, why: str) -> str:
    return (
        f"the line to {address} was lost ({why}), and the call may have been done; look with inbox "
        "or roster before you call again"
    )


def _result(message: Any) -> dict[str, Any]:
    """What a call came to, or its error as it was said."""
    message = message if isinstance(message, dict) else {}
    if "error" in message:
        error = message["error"]
        raise MCPError(code=error["code"], message=error["message"], data=error.get("data"))
    result = message.get("result")
    if not isinstance(result, dict):
        raise ValueError("its answer holds no result")
    return result


def _refused(method: str, status: int, said: Any, address: str) -> Exception:
    """What an answer is that is no result: the gate's word, the protocol's, or a proxy's."""
    error = said.get("error") if isinstance(said, dict) else None
    if not isinstance(error, dict):
        error = {}
    if 300 <= status < 400:
        return InvalidInput(method, f"{address} sends elsewhere; set TOCSIN_URL to where it leads")
    data = error.get("data")
    code = str(data.get("code", "")).lower() if isinstance(data, dict) else ""
    if error and not code:
        return MCPError(code=error["code"], message=error["message"], data=data)
    if status == 429:
        return Unavailable(method, str(error.get("message") or f"{address} is asked too often"))
    return refusal_of(method, status, {"code": code, "detail": error.get("message")}, address)
