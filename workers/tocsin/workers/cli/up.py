"""`tocsin up`: a server with its data on this machine, and a scheduler, for as long as it runs."""

from __future__ import annotations

import asyncio
import logging
from contextlib import ExitStack
from pathlib import Path
from typing import Annotated, Any

import typer
from platformdirs import user_data_path

from tocsin.broker import AsyncBroker
from tocsin.broker.embedded import EmbeddedServer, holder_of
from tocsin.broker.embedded.binary import SERVER_NAMES, find_binary
from tocsin.broker.embedded.errors import EmbeddedServerError
from tocsin.broker.errors import Unavailable
from tocsin.broker.keys import MOST_PARTITIONS
from tocsin.broker.masking import redacted
from tocsin.broker.settings_files import resolve_notify
from tocsin.scheduler import AsyncScheduler
from tocsin.workers.cli.blocks import Facts
from tocsin.workers.cli.serving import log_to_stderr, serve
from tocsin.workers.cli.session import Session, command

app = typer.Typer()

LOOK_EVERY = 1.0
"""Seconds between looks at the server."""


@command(app, "up", example="tocsin up --dir ./data")
def up(
    session: Session,
    program: Annotated[
        str | None,
        typer.Argument(
            metavar="PROGRAM", show_default=False, help="The server program that --server runs."
        ),
    ] = None,
    directory: Annotated[
        Path | None,
        typer.Option(
            "--dir",
            file_okay=False,
            show_default=False,
            help="Where the data is kept (else the user's data folder).",
        ),
    ] = None,
    port: Annotated[
        int | None,
        typer.Option(
            "--port", min=1, max=65_535, show_default=False, help="A port (else the last, or any)."
        ),
    ] = None,
    partitions: Annotated[
        int | None,
        typer.Option(
            "--partitions",
            min=1,
            max=MOST_PARTITIONS,
            show_default=False,
            help="The parts of a new fleet that its herds are spread over (else "
            "TOCSIN_PARTITIONS, a settings file, 16). A fleet keeps the number it began with.",
        ),
    ] = None,
    server: Annotated[
        bool,
        typer.Option(
            "--server",
            help="Run PROGRAM, or the valkey-server or redis-server on the PATH, instead of the "
            "Valkey that comes with Tocsin.",
        ),
    ] = False,
) -> None:
    """Start a server on this machine and a scheduler with it; Ctrl-C stops both, the data stays.

    Every write is in an append-only file that the next `up` reads back,
    whatever ended this one. If the directory is served already, this says
    by whom and adds a scheduler to that server. With --url only a scheduler
    is started, for the server there.
    """
    if program is not None and not server:
        raise typer.BadParameter(f"{program!r} is a server program only with --server")
    if session.connection.sources["url"] == "argument":
        if server or port is not None or directory is not None:
            raise typer.BadParameter("--url names a server that runs; leave out its other options")
        log_to_stderr(level=logging.WARNING)
        asyncio.run(_serve(session, session.place("up").url, None, partitions))
        return
    embedded = EmbeddedServer(
        directory or user_data_path("tocsin", appauthor=False) / "server",
        port=port,
        binary=_choose(program) if server else None,
    )
    log_to_stderr(level=logging.WARNING)
    with ExitStack() as stack:
        stack.enter_context(embedded)
        asyncio.run(_serve(session, embedded.url, embedded, partitions))
        if embedded.attached:
            session.out.note("Stopped; the server goes on where it was started.")
            return
        kept = embedded.directory
    session.out.note(f"Stopped; the data is in {kept}.")


def _choose(program: str | None) -> Path:
    if program is not None:
        return find_binary(program)
    for name in SERVER_NAMES:
        try:
            return find_binary(name)
        except EmbeddedServerError:
            continue
    raise EmbeddedServerError(
        f"Neither {' nor '.join(SERVER_NAMES)} is on the PATH; install one, name a program after "
        "--server, or leave --server out to run the Valkey that comes with Tocsin."
    )


async def _serve(
    session: Session, url: str, server: EmbeddedServer | None, partitions: int | None
) -> None:
    """Runs a scheduler until it is told to stop, or the embedded server is gone."""
    place = session.connection.settings
    wanted = partitions or place.partitions
    notify = resolve_notify().settings
    async with AsyncBroker.connect(url, fleet=place.fleet, partitions=wanted) as broker:
        await broker.fleet()
        serving = asyncio.create_task(
            serve(AsyncScheduler(broker, notify), lambda: _announce(session, url, server))
        )
        watching = asyncio.create_task(_until_gone(server))
        try:
            await asyncio.wait({serving, watching}, return_when=asyncio.FIRST_COMPLETED)
            gone = not serving.done()
        finally:
            serving.cancel()
            watching.cancel()
            await asyncio.gather(serving, watching, return_exceptions=True)
        if not gone:
            serving.result()
        elif server is not None:
            raise Unavailable(
                "up",
                f"the server at {url} is gone; its data is in {server.directory}, and "
                "`tocsin up` with the same directory starts it again",
            )


async def _until_gone(server: EmbeddedServer | None) -> None:
    """One that hangs is waited for, as by whoever else uses it: to end here would be to end it."""
    while True:
        await asyncio.sleep(LOOK_EVERY)
        if server is not None and server.is_gone():
            return


def _announce(session: Session, url: str, server: EmbeddedServer | None) -> None:
    fleet = session.connection.settings.fleet
    holder = holder_of(server.directory) if server is not None else None
    facts: dict[str, Any] = {
        "url": redacted(url),
        "fleet": fleet,
        "attached": server is None or server.attached,
        "directory": str(server.directory) if server is not None else None,
        "server_pid": holder.pid if holder is not None else None,
        "owner_pid": holder.owner if holder is not None else None,
    }
    if server is None:
        session.out.event(facts, f"A scheduler runs for fleet {fleet} at {facts['url']}.")
        return
    exports = f"export TOCSIN_URL={url}"
    if session.connection.sources["fleet"] == "argument":
        exports += f" TOCSIN_FLEET={fleet}"
    title = f"Tocsin is up at {url}; Ctrl-C stops it, the data stays."
    if server.attached and holder is not None:
        title = (
            f"{server.directory} is served already, by process {holder.pid} (started by process "
            f"{holder.owner}) at {url}. This adds a scheduler to it; Ctrl-C stops that alone."
        )
    shown = Facts([("data", facts["directory"]), ("process", str(facts["server_pid"]))])
    session.out.event(facts, title, "", f"  {exports}", "", shown)
