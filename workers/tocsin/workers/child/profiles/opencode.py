"""OpenCode, `opencode run`.

Facts: its documentation (opencode.ai/docs: CLI commands, configuration, MCP servers), version 2.

- `opencode run --format json` adds what is on standard input to its message and prints an event a
  line, each with `sessionID`; `type` is `text`, `tool_use`, `step_start`, `step_finish` or `error`.
  `--session ID` goes on with one. `--standalone` runs it with a server of its own: a shared one
  would not have this turn's environment.
- Sessions are in a database, so there is no transcript to count; its events are.
- It may end with 0 after an error, whose event has the provider's own words.
- `OPENCODE_CONFIG_CONTENT` is laid over all other configuration.
"""

from __future__ import annotations

import json

from tocsin.workers.child.profiles.profile import PROVIDER_ERRORS, Event, Profile, patterns


def _verdict(event: Event) -> str | None:
    if event.get("type") == "error":
        return json.dumps(event.get("error") or "an error")
    return "" if event.get("type") == "step_finish" else None


OPENCODE = Profile(
    name="opencode",
    start=("run", "--standalone", "--format", "json"),
    resume=("--session", "{session}"),
    environ={
        "OPENCODE_CONFIG_CONTENT": json.dumps(
            {
                "mcp": {"tocsin": {"type": "local", "command": ["tocsin", "mcp"]}},
                "permission": {"tocsin_*": "allow"},
            }
        )
    },
    session=lambda event: event.get("sessionID"),
    verdict=_verdict,
    answer=lambda event: event["part"].get("text") if event.get("type") == "text" else None,
    limits=patterns(
        r"usage[ _]limit", r"hit your (\S+ ){0,3}limit", r"quota", r"insufficient_(quota|credits)"
    ),
    errors=PROVIDER_ERRORS,
)
