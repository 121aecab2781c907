"""MCP over HTTP, for any number of agents and herds; several of these may stand behind one address.

Each request says whose it is, and is answered from the broker alone: a server that is started anew,
or another one, goes on where the last one was.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from errno import EADDRNOTAVAIL
from socket import AI_PASSIVE, SOCK_STREAM, create_server, getaddrinfo, socket

import anyio
import uvicorn
from mcp.server.streamable_http_manager import (
    StreamableHTTPASGIApp,
    StreamableHTTPSessionManager,
)
from mcp.server.transport_security import RequestBodyLimitMiddleware, TransportSecuritySettings
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route
from starlette.types import ASGIApp

from tocsin.broker import AsyncBroker
from tocsin.broker.errors import BrokerError, InvalidInput
from tocsin.workers.mcp import api
from tocsin.workers.mcp.clients import Patience, limit_of
from tocsin.workers.mcp.gate import LONGEST_BODY, PATIENCE, VISITOR, Gate, Rates, Sessions
from tocsin.workers.mcp.server import Context, Handlers, build
from tocsin.workers.mcp.visitors import Guest, Visitor

log = logging.getLogger("tocsin.mcp")

_LOOPBACK = ("127.0.0.1", "localhost", "[::1]")
_HEALTHY_WITHIN = 3.0


@dataclass(frozen=True)
class WebOptions:
    """Where the server listens, whom it answers, and how often."""

    host: str = "127.0.0.1"
    port: int = 8765
    hosts: Sequence[str] = ()
    """Names beside loopback by which it may be reached (`Host`), with their ports if others."""
    origins: Sequence[str] = ()
    """Origins beside loopback from which a page may call it."""
    limit: float | None = None
    """Seconds that a call may wait, whoever the client is."""
    burst: int = 200
    rate: int = 50
    """Requests a second of one agent, after that many at once."""


def _security(options: WebOptions) -> TransportSecuritySettings:
    own = [pattern for name in _LOOPBACK for pattern in (name, f"{name}:*")]
    given = [pattern for name in options.hosts for pattern in (name, f"{name}:*")]
    pages = [f"{scheme}://{name}" for scheme in ("http", "https") for name in own]
    return TransportSecuritySettings(
        allowed_hosts=own + given, allowed_origins=[*pages, *options.origins]
    )


def _visitor(context: Context) -> Visitor:
    assert context.request is not None
    visitor: Visitor = context.request.scope[VISITOR]
    return visitor


def _patience(context: Context) -> Patience:
    """What a header or the server says, else the session, else the name the client gives."""
    assert context.request is not None
    limit: float | None = context.request.scope[PATIENCE]
    if limit is not None:
        return Patience(limit)
    client = context.session.client_params
    return Patience(limit_of(client.client_info.name if client is not None else None))


def application(broker: AsyncBroker, options: WebOptions) -> ASGIApp:
    """The whole server as an ASGI application; the broker stays its caller's to close."""
    manager = StreamableHTTPSessionManager(
        build(Handlers(_visitor, _patience)), stateless=True, max_request_body_size=LONGEST_BODY
    )

    async def health(request: Request) -> JSONResponse:
        healthy, why = await _healthy(broker)
        body = {"healthy": healthy, **({"why": why} if why else {})}
        return JSONResponse(body, status_code=200 if healthy else 503)

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        async with manager.run():
            yield

    inner = Starlette(
        routes=[
            Route("/health", health),
            Route("/mcp", StreamableHTTPASGIApp(manager)),
            *api.routes(broker),
        ],
        lifespan=lifespan,
    )
    limited = RequestBodyLimitMiddleware(Sessions(inner, options.limit), LONGEST_BODY)
    return Gate(
        limited,
        _security(options),
        lambda seat: Guest(broker, seat),
        Rates(options.burst, options.rate),
        Rates(options.burst / 4, options.rate / 4),
    )


async def _healthy(broker: AsyncBroker) -> tuple[bool, str]:
    with anyio.move_on_after(_HEALTHY_WITHIN):
        try:
            await broker.fleet()
            await broker.link.command("health", "PING")
        except BrokerError as error:
            return False, error.detail
        troubles = [f"{each.loop} {each.trouble}" for each in broker.health() if each.trouble]
        return not troubles, "; ".join(troubles)
    return False, f"the server did not answer within {_HEALTHY_WITHIN:g} s"


async def serve_http(
    broker: AsyncBroker, options: WebOptions, ready: Callable[[str], None] = lambda _: None
) -> None:
    """Serves until SIGTERM or Ctrl-C; `ready` is told the address as soon as it listens."""
    config = uvicorn.Config(
        application(broker, options),
        host=options.host,
        port=options.port,
        log_config=None,
        access_log=False,
        server_header=False,
        timeout_graceful_shutdown=3,
    )
    await _Announcing(config, ready).serve(_listening(options.host, options.port))


def _listening(host: str, port: int) -> list[socket]:
    """What listens at each address of a host, all with one port."""
    sockets: list[socket] = []
    try:
        for family, *_, address in getaddrinfo(host, port, type=SOCK_STREAM, flags=AI_PASSIVE):
            chosen = sockets[0].getsockname()[1] if sockets else port
            sockets.append(create_server((address[0], chosen), family=family, backlog=2_048))
    except (OSError, UnicodeError) as failure:
        if sockets and getattr(failure, "errno", None) == EADDRNOTAVAIL:
            return sockets  # a name of loopback where there is no IPv6
        for each in sockets:
            each.close()
        why = getattr(failure, "strerror", None) or str(failure)
        raise InvalidInput(
            "mcp", f"cannot listen at {host}:{port}: {why}; give another --host or --port"
        ) from None
    return sockets


class _Announcing(uvicorn.Server):
    def __init__(self, config: uvicorn.Config, ready: Callable[[str], None]) -> None:
        super().__init__(config)
        self._ready = ready

    async def startup(self, sockets: list[socket] | None = None) -> None:
        await super().startup(sockets)
        if self.started:
            host, port = self.servers[0].sockets[0].getsockname()[:2]
            shown = f"[{host}]" if ":" in host else host
            self._ready(f"http://{shown}:{port}/mcp")
