"""pi, `pi --mode json`.

Facts: earendil-works/pi, `packages/coding-agent/docs` (cli.md, json.md, mcp.md, sessions.md) and
what people report of limits (issue 4172).

- `pi --mode json` takes standard input as its prompt and prints an event a line. The first has
  `type` `session` and its `id`; a `message_end` of the assistant whose `stopReason` is `error` has
  `errorMessage`. `--session ID` goes on with one.
- Transcripts: `sessions/<folder>/<time>_<session>.jsonl` below `~/.pi/agent` (or
  `PI_CODING_AGENT_DIR`); `PI_CODING_AGENT_SESSION_DIR` names another place for them.
- A limit of a provider is passed on as it came: `{"type": "usage_limit_reached", "resets_at": 1}`.
- It asks for no permission, and has no option for MCP servers (`mcp.json` in `~/.pi/agent` has):
  its model uses the command `tocsin`.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from tocsin.workers.child.profiles.profile import PROVIDER_ERRORS, Event, Profile, patterns


def _verdict(event: Event) -> str | None:
    message = event.get("message") or {}
    if event.get("type") != "message_end" or message.get("role") != "assistant":
        return None
    failed = message.get("stopReason") == "error"
    return str(message.get("errorMessage") or "an error") if failed else ""


def _answer(event: Event) -> str | None:
    message = event.get("message") or {}
    if event.get("type") != "message_end" or message.get("role") != "assistant":
        return None
    parts = [part["text"] for part in message["content"] if part.get("type") == "text"]
    return "\n".join(parts) or None


def _transcripts(_folder: Path, environ: Mapping[str, str]) -> Path:
    if given := environ.get("PI_CODING_AGENT_SESSION_DIR"):
        return Path(given)
    home = environ.get("PI_CODING_AGENT_DIR") or Path(environ.get("HOME", "~")) / ".pi" / "agent"
    return Path(home) / "sessions"


PI = Profile(
    name="pi",
    start=("--mode", "json"),
    resume=("--session", "{session}"),
    session=lambda event: event.get("id") if event.get("type") == "session" else None,
    verdict=_verdict,
    answer=_answer,
    limits=patterns(r"usage[ _]limit", r"hit your (\S+ ){0,3}limit", r"insufficient_quota"),
    errors=PROVIDER_ERRORS,
    transcripts=_transcripts,
)
