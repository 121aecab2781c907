"""What an HTTP request passes before it reaches the protocol: who may knock, and how often.

In this order: the Host and Origin headers, whose token and how often, the size of the body, and the
session. A token that was proved here lately is counted by itself; all else, wrong tokens too, by
the address that it comes from. Nothing is kept but these counts, and calls that are waited on at
this moment.
"""

from __future__ import annotations

import json
import re
import secrets
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from typing import Any

import anyio
from mcp.server.transport_security import TransportSecurityMiddleware, TransportSecuritySettings
from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from tocsin.broker.errors import (
    BrokerError,
    InvalidInput,
    Unauthorized,
    UnknownAgent,
    UnknownHerd,
)
from tocsin.broker.validation import check_name, check_token
from tocsin.workers.mcp.clients import limit_of, read_limit
from tocsin.workers.mcp.visitors import Guest, Seat

SESSION, LIMIT = "mcp-session-id", "tocsin-limit"

API = "/api/v1/"
"""Below this are the operations of the JSON API, which know no sessions."""

OPEN = ("/health", f"{API}openapi.json")
"""What is shown to whomever asks."""

VISITOR, PATIENCE = "tocsin.visitor", "tocsin.patience"
"""Where the scope of a request has its agent, and how long its calls may wait."""

_AWAY = "tocsin.away"
"""In the scope of a request of whose token the broker did not say, just now, whom it proves."""

_SESSION_ID = re.compile(r"tocsin-(\d{1,4})-[0-9a-f]{32}")
LONGEST_BODY = 1_048_576
"""Bytes of a request; the largest envelope, escaped as JSON, fits several times."""

BEFORE = {
    403: ("forbidden", "a page of this Origin may not call; whoever runs the server can allow it "
          "with --allow-origin"),
    404: ("not_found", f"there is nothing at this path; an operation is a POST to {API}NAME, and "
          f"{API}openapi.json lists them"),
    405: ("method", f"this path does not take this method; operations are POSTs, and "
          f"{API}openapi.json says what else there is"),
    413: ("too_large", f"the body is longer than {LONGEST_BODY:,} bytes; send less, and say where "
          "the rest is to be read"),
    421: ("forbidden", "the server does not know itself by the name in Host; whoever runs it can "
          "allow it with --allow-host"),
}  # fmt: skip
"""What is refused before it is a call, by status; the library beneath says so in a plain text."""

_PROOF = 3.0
"""Seconds that the proof of a token at the beginning may take; after that each call proves it."""

_WRONG = (Unauthorized, UnknownHerd, UnknownAgent)
"""What the broker says of a token that proves nobody."""

_MOST_KEPT = 10_000


def read_bearer(header: str) -> Seat:
    """The seat that `Authorization: Bearer herd/agent:token` proves to have."""
    kind, _, rest = header.partition(" ")
    name, colon, token = rest.strip().partition(":")
    herd, slash, agent = name.partition("/")
    if kind.lower() != "bearer" or not colon or not slash:
        raise InvalidInput("mcp", "send the header `Authorization: Bearer herd/agent:token`")
    check_name("mcp", "herd", herd)
    check_name("mcp", "agent", agent)
    return Seat(herd, agent, (check_token("mcp", token),))


class Rates:
    """How often each may come: so many at once, and so many a second from then on."""

    def __init__(self, burst: float, per_second: float) -> None:
        self._burst = burst
        self._per_second = per_second
        self._left: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def __contains__(self, who: str) -> bool:
        """Whether this one came, and not so many others since that it was forgotten."""
        return who in self._left

    def admit(self, who: str) -> float:
        """0 if this one may come now, which is counted; else in how many seconds."""
        wait = self.wait(who)
        if wait == 0:
            self.count(who)
        return wait

    def wait(self, who: str) -> float:
        """In how many seconds this one may come."""
        left = self._left_of(who)
        return 0.0 if left >= 1 else (1 - left) / self._per_second

    def count(self, who: str) -> None:
        """This one came. Of many at once, each counts; they may owe a burst at most."""
        left = max(self._left_of(who) - 1, -self._burst)
        self._left[who] = (left, time.monotonic())
        self._left.move_to_end(who)
        if len(self._left) > _MOST_KEPT:
            self._left.popitem(last=False)

    def forget(self, who: str) -> None:
        """This one is nobody any more."""
        self._left.pop(who, None)

    def _left_of(self, who: str) -> float:
        now = time.monotonic()
        left, before = self._left.get(who, (self._burst, now))
        return min(self._burst, left + (now - before) * self._per_second)


def refuse(
    status: int, code: str, detail: str, *, rpc: bool = True, **headers: str
) -> JSONResponse:
    """A refusal of the gate, as clients of JSON-RPC, or of the JSON API, read it."""
    error = {"code": -32000, "message": detail, "data": {"code": code.upper()}}
    body: dict[str, Any] = {"jsonrpc": "2.0", "id": None, "error": error}
    if not rpc:
        retryable = "retry_after" in headers
        body = {"error": {"code": code, "detail": detail, "retryable": retryable}}
    names = {name.replace("_", "-"): value for name, value in headers.items()}
    return JSONResponse(body, status_code=status, headers=names)


class Gate:
    """The first of two: judges a request by its headers, and says who makes it.

    A token has a count of its own only once it was proved, and for as long as it is. So guesses at
    tokens are all counted as those of one address, and hold up no agent behind it that is known.
    """

    def __init__(
        self,
        app: ASGIApp,
        security: TransportSecuritySettings,
        visit: Callable[[Seat], Guest],
        rates: Rates,
        strangers: Rates,
    ) -> None:
        self._app = app
        self._security = TransportSecurityMiddleware(security)
        self._visit = visit
        self._rates = rates
        self._strangers = strangers

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        if scope["path"].startswith(API):
            send = _in_json(scope, receive, send)
        refusal = await self._security.validate_request(Request(scope)) or await self._judge(scope)
        if refusal is not None:
            await refusal(scope, receive, send)
        else:
            await self._app(scope, receive, self._heeding(scope, send))

    async def _judge(self, scope: Scope) -> Response | None:
        host, rpc = _address(scope), not scope["path"].startswith(API)
        if scope["path"] in OPEN and scope["method"] in ("GET", "HEAD"):
            return _too_often(self._strangers.admit(host), rpc=rpc)
        try:
            seat = read_bearer(Headers(scope=scope).get("authorization", ""))
        except BrokerError as error:
            refusal = _too_often(self._strangers.admit(host), rpc=rpc)
            return refusal or unauthorized(error.detail, rpc=rpc)
        guest = scope[VISITOR] = self._visit(seat)
        if guest.name in self._rates:
            return _too_often(self._rates.admit(guest.name), rpc=rpc)
        refusal = _too_often(self._strangers.wait(host), rpc=rpc)
        return refusal or await self._prove(scope, guest, rpc=rpc)

    async def _prove(self, scope: Scope, guest: Guest, *, rpc: bool) -> Response | None:
        """The refusal of a token that proves nobody; if the broker does not say, there is none."""
        said = await _proof(guest.prove())
        if said is True:
            return _too_often(self._rates.admit(guest.name), rpc=rpc)
        self._strangers.count(_address(scope))
        if isinstance(said, BrokerError):
            return unauthorized(said.detail, code=said.code, rpc=rpc)
        scope[_AWAY] = True
        return None

    def _heeding(self, scope: Scope, send: Send) -> Send:
        """Takes note when a token that was proved proves nobody any more."""

        async def sent(message: Message) -> None:
            if message.get("status") == 401:
                self._rates.forget(scope[VISITOR].name)
                self._strangers.count(_address(scope))
            await send(message)

        return sent


def _address(scope: Scope) -> str:
    """Where a request comes from; behind a proxy that uvicorn trusts, what that says."""
    return str((scope.get("client") or ("?",))[0])


def _too_often(wait: float, *, rpc: bool) -> Response | None:
    if wait == 0:
        return None
    seconds = f"{wait:.0f}" if wait > 1 else "1"
    detail = f"too many requests; try again in {seconds} s"
    return refuse(429, "too_often", detail, rpc=rpc, retry_after=seconds)


def _in_json(scope: Scope, receive: Receive, send: Send) -> Send:
    """What is refused `BEFORE` it is a call of the API, as its errors are."""
    refused = False

    async def sent(message: Message) -> None:
        nonlocal refused
        if message["type"] == "http.response.start" and message["status"] in BEFORE:
            headers = Headers(raw=message["headers"])
            refused = headers.get("content-type") != "application/json"
            if refused:
                more = {"allow": headers["allow"]} if "allow" in headers else {}
                code, detail = BEFORE[message["status"]]
                error = refuse(message["status"], code, detail, rpc=False, **more)
                await error(scope, receive, send)
        if not refused:
            await send(message)

    return sent


def unauthorized(detail: str, *, code: str = Unauthorized.code, rpc: bool = True) -> Response:
    """The refusal of a token; what it was refused for, a herd or agent that is not, is the code."""
    asks = 'Bearer realm="tocsin"'
    return refuse(401, code, detail, rpc=rpc, www_authenticate=asks)


class Sessions:
    """The second: a session's id says all that there is to know of it.

    What `initialize` told of the client is how long it waits; that stands in the id which this
    server makes, and each server reads it there, after a restart too. An id of another kind is
    unknown: 404, and the client begins anew. Where a client cancels a call that is waited on here,
    the call ends as if its connection had been cut.
    """

    def __init__(self, app: ASGIApp, limit: float | None) -> None:
        self._app = app
        self._limit = limit
        self._waited: dict[tuple[str, str], anyio.Event] = {}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One request."""
        if scope["type"] != "http" or scope["path"] == "/health" or scope["path"].startswith(API):
            await self._app(scope, receive, send)
            return
        if scope["method"] != "POST":
            offered = refuse(405, "method", "this server takes POST alone", allow="POST")
            await offered(scope, receive, send)
            return
        headers, body = Headers(scope=scope), await Request(scope, receive).body()
        message = _read(body)
        session = headers.get(SESSION)
        first = message.get("method") in ("initialize", "server/discover")
        refusal = await self._refusal(scope, headers, None if first else session, first=first)
        if refusal is not None:
            await refusal(scope, receive, send)
            return
        if message.get("method") == "initialize":
            send = _with_session(send, _client(message))
        if session and message.get("method") == "notifications/cancelled":
            self._cancel(session, message)
        await self._pass_on(scope, _replayed(body, receive), send, _call_of(session, message))

    async def _refusal(
        self, scope: Scope, headers: Headers, session: str | None, *, first: bool
    ) -> Response | None:
        known = _SESSION_ID.fullmatch(session) if session else None
        if session and known is None:
            return refuse(404, "unknown_session", "there is no such session; initialize anew")
        scope[PATIENCE] = float(known[1]) if known else None
        try:
            if LIMIT in headers:
                scope[PATIENCE] = read_limit(headers[LIMIT], f"the header {LIMIT}")
            elif self._limit is not None:
                scope[PATIENCE] = self._limit
        except InvalidInput as error:
            return refuse(400, error.code, error.detail)
        if first and not scope.get(_AWAY):
            said = await _proof(scope[VISITOR].agent())
            if isinstance(said, BrokerError):
                return unauthorized(said.detail, code=said.code)
        return None

    def _cancel(self, session: str, message: dict[str, Any]) -> None:
        params = message.get("params")
        number = params.get("requestId") if isinstance(params, dict) else None
        waited = self._waited.get((session, json.dumps(number)))
        if waited is not None:
            waited.set()

    async def _pass_on(
        self, scope: Scope, receive: Receive, send: Send, call: tuple[str, str] | None
    ) -> None:
        if call is None:
            await self._app(scope, receive, send)
            return
        cancelled, begun, ended = anyio.Event(), False, False
        self._waited[call] = cancelled

        async def sent(message: Message) -> None:
            nonlocal begun, ended
            begun = True
            ended = message["type"] == "http.response.body" and not message.get("more_body")
            await send(message)

        try:
            await self._app(scope, _until(cancelled, receive), sent)
        finally:
            self._waited.pop(call, None)
        if cancelled.is_set() and begun and not ended:
            await send({"type": "http.response.body", "body": b"", "more_body": False})


def _read(body: bytes) -> dict[str, Any]:
    """The message of a body; what cannot be read is for the protocol to refuse."""
    try:
        message = json.loads(body)
    except (ValueError, RecursionError):
        return {}
    return message if isinstance(message, dict) else {}


def _client(message: dict[str, Any]) -> str | None:
    params = message.get("params")
    info = params.get("clientInfo") if isinstance(params, dict) else None
    name = info.get("name") if isinstance(info, dict) else None
    return name if isinstance(name, str) else None


def _call_of(session: str | None, message: dict[str, Any]) -> tuple[str, str] | None:
    if session is None or message.get("method") != "tools/call":
        return None
    return session, json.dumps(message.get("id"))


async def _proof(asked: Awaitable[Any]) -> BrokerError | bool:
    """Whether the broker says that a token proves somebody; if it says the contrary, its words."""
    with anyio.move_on_after(_PROOF):
        try:
            await asked
        except _WRONG as error:
            return error
        except BrokerError:
            return False
        return True
    return False


def _with_session(send: Send, client: str | None) -> Send:
    name = f"tocsin-{limit_of(client):.0f}-{secrets.token_hex(16)}"

    async def sent(message: Message) -> None:
        if message["type"] == "http.response.start" and message["status"] == 200:
            MutableHeaders(scope=message)[SESSION] = name
        await send(message)

    return sent


def _replayed(body: bytes, receive: Receive) -> Receive:
    left: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

    async def received() -> Message:
        return left.pop() if left else await receive()

    return received


def _until(cancelled: anyio.Event, receive: Receive) -> Receive:
    """What comes in, and at last that the client is gone, when it has cancelled."""

    async def received() -> Message:
        message: Message = {"type": "http.disconnect"}

        async def wait() -> None:
            await cancelled.wait()
            group.cancel_scope.cancel()

        async with anyio.create_task_group() as group:
            group.start_soon(wait)
            message = await receive()
            group.cancel_scope.cancel()
        return message

    return received
