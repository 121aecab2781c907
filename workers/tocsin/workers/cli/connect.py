"""`tocsin connect`: lets an agent of a host join, with one command."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.text import Text

from tocsin.broker.errors import BrokerError, InvalidInput
from tocsin.workers.addresses import check_address
from tocsin.workers.cli.blocks import Facts
from tocsin.workers.cli.output import REFUSED
from tocsin.workers.cli.session import Session, command
from tocsin.workers.hosts.servers import NAME, SERVERS, Scope

if TYPE_CHECKING:
    from tocsin.workers.hosts.connecting import Host

app = typer.Typer()

_LONGEST = 60
"""Seconds that a host may take to look at its servers."""

_FAILS = re.compile(
    r"[✗✘]|\b(failed|fails|error|disabled|not connected|unreachable)\b", re.IGNORECASE
)
"""What hosts say of a server that they cannot use."""


class HostName(StrEnum):
    """Which program the agent runs in."""

    CLAUDE_CODE = "claude-code"
    CODEX = "codex"
    OPENCODE = "opencode"
    PI = "pi"
    GENERIC = "generic"


@dataclass(frozen=True)
class Check:
    """One thing that was tried, or not, and what came of it."""

    what: str
    ok: bool | None
    told: str


@command(app, "connect", example="tocsin connect pi --seat release-42/scout", seat=True)
def connect(
    session: Session,
    host: Annotated[HostName, typer.Argument(help="The program the agent runs in.")],
    scope: Annotated[
        Scope, typer.Option(help="For its sessions in this folder, or for all of yours.")
    ] = Scope.PROJECT,
    show: Annotated[
        bool, typer.Option("--print", help="Show what would be written where; write nothing.")
    ] = False,
    undo: Annotated[bool, typer.Option("--undo", help="Take it all out again.")] = False,
    other: Annotated[
        bool, typer.Option("--replace", help="Take the place of another seat there.")
    ] = False,
    unchecked: Annotated[
        bool, typer.Option("--no-check", help="Write it without trying it.")
    ] = False,
) -> None:
    """Let an agent of Claude Code, Codex, OpenCode, pi or another host join.

    Writes the host's own settings for one seat: the MCP server, and what
    wakes the agent when mail comes. Comments and what else is there stay;
    --undo puts everything back. Tokens are in no file of a host, so that
    nothing is to be done after `tocsin seat rotate`. Then it tries what it
    wrote, and says what worked and what was not tried.

    For another host of MCP, `generic` prints what it needs.
    """
    if host is HostName.GENERIC:
        _generic(session, undo=undo)
        return
    from tocsin.workers.hosts.connecting import Host

    chosen = Host(host, scope, Path.cwd())
    if undo:
        _undo(session, chosen, scope)
        return
    program, env = _place(session)
    pieces = chosen.pieces(program, env)
    if show:
        texts = {str(piece.path): piece.shown() for piece in pieces}
        session.out.result(texts, *(f"{path}:\n{text}" for path, text in texts.items()))
        return
    if not other:
        chosen.check_seat(pieces, env)
    changed = chosen.put(pieces)
    checks = [] if unchecked else [_trip([program, "mcp"], env), _look(chosen)]
    facts = [("seat", str(session.seat())), ("for", _WHOSE[scope])]
    files = [
        ("written" if piece.path in changed else "as it was", str(piece.path)) for piece in pieces
    ]
    _end(session, host, facts + files, checks, files=[str(piece.path) for piece in pieces])


_WHOSE = {Scope.PROJECT: "sessions in this folder", Scope.USER: "all sessions of this user"}


def _place(session: Session) -> tuple[str, dict[str, str]]:
    """The command and the environment of an entry; the seat's token is on this machine."""
    from tocsin.workers.hosts.connecting import program, variables

    name = session.seat()
    if session.is_remote:
        check_address(session.connection.settings.url)
    if session.credentials.get(str(name)) is None:
        raise InvalidInput("connect", session.credentials.unknown(str(name)))
    return program(), variables(str(name), session.connection)


def _generic(session: Session, *, undo: bool) -> None:
    if undo:
        raise InvalidInput("connect", "for a host that Tocsin does not know nothing was written")
    program, env = _place(session)
    entry = {"command": program, "args": ["mcp"], "env": env}
    document = {"mcpServers": {"tocsin": entry}}
    check = _trip([program, "mcp"], env)
    session.out.result({"server": document, "checks": [check]}, json.dumps(document, indent=2))
    session.out.note(f"{check.what}: {check.told}")
    if not check.ok:
        raise typer.Exit(REFUSED)


def _undo(session: Session, host: Host, scope: Scope) -> None:
    files, left = host.undo()
    session.out.result(
        {"host": host.name, "files": files, "left": left},
        Facts([("put back", str(path)) for path in files])
        if files
        else f"Tocsin put nothing into files of {host.name} for {_WHOSE[scope]}.",
    )
    for place in left:
        session.out.warn(f"{place} was changed since, and is left")


def _trip(words: list[str], env: dict[str, str]) -> Check:
    """Starts the server as the host would, and asks it something."""
    from tocsin.workers.hosts.round_trip import round_trip

    what = "the MCP server"
    try:
        found = round_trip(words, env)
    except BrokerError as error:
        return Check(what, False, error.detail)
    return Check(what, True, f"{found.server}, {len(found.tools)} tools, herd {found.herd}")


def _look(host: Host) -> Check:
    """Has the host itself look at its servers, where it is installed."""
    name, words = host.servers.program, host.servers.looks
    what = f"in the host, by `{name} {' '.join(words)}`"
    found = shutil.which(name)
    if found is None:
        return Check(what, None, f"not tried: there is no `{name}` on the PATH")
    try:
        told = subprocess.run(
            [found, *words],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_LONGEST,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return Check(what, None, f"gave up after {_LONGEST} s")
    except OSError as failure:
        return Check(what, False, f"it cannot be started: {failure.strerror}")
    lines = [line.strip() for line in Text.from_ansi(told.stdout + told.stderr).plain.splitlines()]
    ours = [line for line in lines if NAME in line]
    if not ours:
        return Check(what, False, "it does not name the server; does it trust this folder?")
    # Of one server all it says is about ours.
    bad = [line for line in (lines if NAME in words else ours) if _FAILS.search(line)]
    return Check(what, told.returncode == 0 and not bad, (bad or ours)[0])


def _end(
    session: Session,
    host: HostName,
    facts: list[tuple[str, str]],
    checks: list[Check],
    files: list[str],
) -> None:
    """Says what was done and tried; what failed makes the command fail."""
    words = {True: "works", False: "fails", None: "unknown"}
    tried = [(words[check.ok], f"{check.what}: {check.told}") for check in checks]
    session.out.result(
        {"host": host, "seat": str(session.seat()), "files": files, "checks": checks},
        Facts([*facts, *tried]),
    )
    if then := SERVERS[host].then:
        session.out.note(f"{then}.")
    session.out.note(f"Start {host} anew; `tocsin connect {host} --undo` takes it out again.")
    if any(check.ok is False for check in checks):
        raise typer.Exit(REFUSED)
