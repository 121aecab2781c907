"""`tocsin mcp`: the MCP server, for one agent on stdio, or for many over HTTP."""

from __future__ import annotations

import asyncio
import http.client
import logging
from functools import partial
from typing import TYPE_CHECKING, Annotated

import typer

from tocsin.broker import AsyncBroker
from tocsin.broker.errors import BrokerError, InvalidInput, Unavailable
from tocsin.workers.cli.blocks import Facts
from tocsin.workers.cli.output import REFUSED
from tocsin.workers.cli.serving import LogFormat, log_to_stderr
from tocsin.workers.cli.session import Session, command

if TYPE_CHECKING:
    from tocsin.workers.mcp.visitors import Place
    from tocsin.workers.mcp.web import WebOptions

app = typer.Typer()

_PANEL = "Over HTTP"


@command(app, "mcp", example="tocsin mcp --seat release-42/scout", seat=True)
def mcp(
    session: Session,
    over_http: Annotated[
        bool,
        typer.Option("--http", help="Serve many agents over HTTP; else the seat's on stdio."),
    ] = False,
    host: Annotated[
        str, typer.Option(rich_help_panel=_PANEL, help="The address to listen at.")
    ] = "127.0.0.1",
    port: Annotated[
        int, typer.Option(min=0, max=65_535, rich_help_panel=_PANEL, help="0: any free one.")
    ] = 8765,
    allow_host: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME",
            rich_help_panel=_PANEL,
            show_default=False,
            help="A name by which clients may reach it, beside loopback; repeat it for more.",
        ),
    ] = None,
    allow_origin: Annotated[
        list[str] | None,
        typer.Option(
            metavar="ORIGIN",
            rich_help_panel=_PANEL,
            show_default=False,
            help="A page, https://..., that may call it, beside loopback; repeat it for more.",
        ),
    ] = None,
    limit: Annotated[
        str | None,
        typer.Option(
            metavar="SECONDS",
            envvar="TOCSIN_MCP_LIMIT",
            show_default=False,
            help="How long a tool call may wait; else by client: Claude Code 100, Codex 240, "
            "others 45.",
        ),
    ] = None,
    channel: Annotated[
        bool,
        typer.Option(
            "--channel",
            envvar="TOCSIN_CHANNEL",
            help="On stdio: a channel of Claude Code, by which its session can be woken.",
        ),
    ] = False,
    health: Annotated[
        bool,
        typer.Option(
            "--health",
            rich_help_panel=_PANEL,
            help="Ask the server at --host and --port whether all is well; end with 0 if so.",
        ),
    ] = False,
    debug: Annotated[bool, typer.Option("--debug", help="A log of everything, on stderr.")] = False,
    log_format: Annotated[
        LogFormat, typer.Option("--log-format", help="How its log on stderr is written.")
    ] = LogFormat.HUMAN,
) -> None:
    """Let agents that speak MCP join: Claude Code, Codex, pi, and others.

    On stdio a host starts it for the agent of one seat; stdout is the
    protocol's alone. It starts also while the broker is down or the seat is
    unknown, and its tools then say so. Where TOCSIN_URL is https://... they
    are those of the server there.

    With --http it serves any number of agents, each with the header
    `Authorization: Bearer herd/agent:token`. It listens on loopback; behind
    a proxy that speaks TLS give --host and --allow-host. Any number of them
    may serve one fleet.
    """
    if health:
        _health(session, host, port)
        return
    log_to_stderr(log_format, logging.DEBUG if debug else logging.WARNING)
    if over_http:
        from tocsin.workers.mcp.web import WebOptions

        hosts, origins = tuple(allow_host or ()), tuple(allow_origin or ())
        options = WebOptions(host, port, hosts, origins, _seconds(limit))
        asyncio.run(_http(session, options))
    else:
        from tocsin.workers.mcp.stdio import serve_stdio

        find, seconds = lambda: _place(session), None
        try:
            seconds = _seconds(limit)
        except InvalidInput as wrong:
            find = partial(_refuse, wrong)
        asyncio.run(serve_stdio(find, seconds, channel=channel, far=_is_far(session)))


def _seconds(limit: str | None) -> float | None:
    from tocsin.workers.mcp.clients import read_limit

    return None if limit is None else read_limit(limit, "--limit, or TOCSIN_MCP_LIMIT,")


def _refuse(wrong: InvalidInput) -> Place:
    raise wrong


def _is_far(session: Session) -> bool:
    """Whether its calls go to a server of Tocsin; a url that is none is said by the tools."""
    try:
        return session.is_remote
    except BrokerError:
        return False


def _place(session: Session) -> Place:
    from tocsin.workers.mcp.visitors import Place, Seat

    connection = session.connection.settings
    if session.named_seat() is None:
        raise InvalidInput(
            "mcp",
            "no seat is named: set TOCSIN_SEAT=herd/agent where your host starts this server; what "
            "`tocsin seat use` chose is for terminals",
        )
    name, tokens = session.proofs()
    seat = Seat(name.herd, name.agent, tokens)
    return Place(connection.url, connection.fleet, seat, connection.partitions)


async def _http(session: Session, options: WebOptions) -> None:
    from tocsin.workers.mcp.web import serve_http

    place = session.place("mcp")

    def ready(url: str) -> None:
        facts = {"url": url, "health": url.removesuffix("/mcp") + "/health"}
        session.out.event(facts, Facts([("MCP at", url), ("for", f"fleet {place.fleet}")]))

    async with AsyncBroker.connect(
        place.url, fleet=place.fleet, partitions=place.partitions
    ) as broker:
        await serve_http(broker, options, ready)


def _health(session: Session, host: str, port: int) -> None:
    line = http.client.HTTPConnection(host, port, timeout=5)
    try:
        line.request("GET", "/health", headers={"Host": f"127.0.0.1:{port}"})
        answer = line.getresponse()
        healthy, text = answer.status == 200, answer.read(4_096).decode("utf-8", "replace")
    except (OSError, http.client.HTTPException) as failure:
        raise Unavailable("mcp", f"no server answers at {host}:{port}: {failure}") from None
    finally:
        line.close()
    session.out.result({"healthy": healthy}, text)
    if not healthy:
        raise typer.Exit(REFUSED)
