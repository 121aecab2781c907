"""Where each host keeps its MCP servers, and how an entry looks there.

Facts, from each host's own documentation and source:

- Claude Code (code.claude.com/docs, "MCP"): `mcpServers` in `.mcp.json` of a project, whose
  entries it asks about once, and in `~/.claude.json` of a user, or in `CLAUDE_CONFIG_DIR`. A server
  gets the environment of Claude Code and `env`; in that a variable that is not set stays `${NAME}`.
- Codex (openai/codex: `docs/config.md`, `codex-rs/rmcp-client/src/utils.rs`): `mcp_servers` in
  `.codex/config.toml` of a trusted project, and of `~` or `CODEX_HOME`. A server gets eleven
  variables, `env`, and nothing else. A call ends after 60 s unless `tool_timeout_sec` says more.
- OpenCode (opencode.ai/docs, "MCP servers", "Config"): `mcp` in `opencode.json` of a project, and
  in `~/.config/opencode` or that of `XDG_CONFIG_HOME`. `command` has the arguments too, variables
  are `environment`.
- pi (earendil-works/pi, `packages/coding-agent/docs/mcp.md`, from 1.0 on): `mcpServers` in
  `.pi/mcp.json` of a trusted project, and of `~/.pi/agent` or `PI_CODING_AGENT_DIR`. Unless told
  `direct`, its model has to search for a tool. A call ends after 60 s without progress.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

from tocsin.workers.hosts.documents import Place, Put

NAME = "tocsin"
"""What the server is called in every host."""


class Scope(StrEnum):
    """For whom a host is connected."""

    PROJECT = "project"
    """For sessions in the working directory."""
    USER = "user"
    """For all sessions of this user."""


KEPT = (
    *("HOME", "LOGNAME", "PATH", "SHELL", "USER", "__CF_USER_TEXT_ENCODING"),
    *("LANG", "LC_ALL", "TERM", "TMPDIR", "TZ"),
)
"""The variables that every host hands on to a server."""

Command = Sequence[str]
Environ = Mapping[str, str]


@dataclass(frozen=True)
class Servers:
    """The MCP servers of one host."""

    program: str
    """The host's own command."""
    key: str
    """The table of its servers."""
    variables: str
    """Where in an entry the environment stands."""
    entry: Callable[[Command, dict[str, str]], dict[str, Any]]
    project: str
    """The file of a project, relative to it."""
    user: Callable[[Environ], Path]
    """The file of a user."""
    looks: tuple[str, ...]
    """The words by which the host itself tells of its servers."""
    then: str = ""
    """What its user has to say to it before it does what its files say."""

    @property
    def place(self) -> Place:
        """Where our entry stands in the file."""
        return (self.key, NAME)

    def path(self, scope: Scope, folder: Path, environ: Environ | None = None) -> Path:
        """The file of a scope."""
        given = os.environ if environ is None else environ
        return folder / self.project if scope is Scope.PROJECT else self.user(given)

    def change(self, command: Command, environ: Environ) -> Put:
        """Our entry."""
        return Put(self.place, self.entry(command, dict(environ)))


def folder_by(variable: str, default: str) -> Callable[[Environ], Path]:
    """The folder that a variable names, or else one below the home directory."""

    def found(environ: Environ) -> Path:
        given = environ.get(variable)
        home = Path(environ.get("HOME") or "~").expanduser()
        return Path(given).expanduser() if given else home / default

    return found


def _stdio(command: Command, env: dict[str, str]) -> dict[str, Any]:
    return {"command": command[0], "args": list(command[1:]), "env": env}


_CLAUDE = folder_by("CLAUDE_CONFIG_DIR", ".")
_CODEX = folder_by("CODEX_HOME", ".codex")
OPENCODE_FOLDER = folder_by("XDG_CONFIG_HOME", ".config")
PI_FOLDER = folder_by("PI_CODING_AGENT_DIR", ".pi/agent")

SERVERS = {
    "claude-code": Servers(
        program="claude",
        key="mcpServers",
        variables="env",
        entry=lambda command, env: {"type": "stdio", **_stdio(command, env)},
        project=".mcp.json",
        user=lambda environ: _CLAUDE(environ) / ".claude.json",
        looks=("mcp", "get", NAME),
        then="Claude Code asks once whether to use the servers of a project",
    ),
    "codex": Servers(
        program="codex",
        key="mcp_servers",
        variables="env",
        entry=lambda command, env: _stdio(command, env) | {"tool_timeout_sec": 300},
        project=".codex/config.toml",
        user=lambda environ: _CODEX(environ) / "config.toml",
        looks=("mcp", "get", NAME),
        then="Codex reads files of a project that it trusts, and runs no hook that you have not "
        "trusted: see /hooks in it",
    ),
    "opencode": Servers(
        program="opencode",
        key="mcp",
        variables="environment",
        entry=lambda command, env: {
            "type": "local",
            "command": list(command),
            "environment": env,
            "enabled": True,
        },
        project="opencode.json",
        user=lambda environ: OPENCODE_FOLDER(environ) / "opencode" / "opencode.json",
        looks=("mcp", "list"),
    ),
    "pi": Servers(
        program="pi",
        key="mcpServers",
        variables="env",
        entry=lambda command, env: _stdio(command, env) | {"exposure": "direct"},
        project=".pi/mcp.json",
        user=lambda environ: PI_FOLDER(environ) / "mcp.json",
        looks=("mcp", "list"),
        then="pi reads files of a project that you trust: it asks once, or see /trust in it",
    ),
}
