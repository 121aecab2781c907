"""Codex, `codex exec`.

Facts: openai/codex, `codex-rs/exec/src/cli.rs` and `exec_events.rs`, its configuration reference,
and what people report of limits (openai/codex, issues 3124 and 3899; promptdriven/pdd 2175).

- `codex exec --json -` reads the prompt from standard input and prints an event a line:
  `thread.started` with `thread_id` first, `turn.completed` or `turn.failed` at the end; an `error`
  may be one that it gets over. `exec ... resume ID -` goes on with a thread.
- Transcripts: `sessions/<year>/<month>/<day>/rollout-<time>-<thread>.jsonl` below `~/.codex`
  (or `CODEX_HOME`).
- A limit: `You've hit your usage limit. ... try again in 2 days 17 hours 14 minutes.`, or `try
  again at Jul 23rd, 2026 4:15 AM.`
- `exec` never asks; what its sandbox forbids fails. MCP servers run outside of the sandbox and get
  the variables that `env_vars` names. Commands run inside, so that `tocsin` needs network access:
  `--sandbox workspace-write -c sandbox_workspace_write.network_access=true`.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from tocsin.workers.child.profiles.profile import PROVIDER_ERRORS, Event, Profile, patterns

_VARIABLES = '["TOCSIN_URL", "TOCSIN_FLEET", "TOCSIN_HERD", "TOCSIN_AGENT", "TOCSIN_DIR"]'
_SERVER = "mcp_servers.tocsin"


def _verdict(event: Event) -> str | None:
    match event.get("type"):
        case "turn.completed":
            return ""
        case "turn.failed":
            return str((event.get("error") or {}).get("message") or "the turn failed")
        case "error":
            return str(event.get("message") or "an error")
    return None


def _answer(event: Event) -> str | None:
    item = event.get("item") or {}
    said = event.get("type") == "item.completed" and item.get("type") == "agent_message"
    return item.get("text") if said else None


def _transcripts(_folder: Path, environ: Mapping[str, str]) -> Path:
    home = environ.get("CODEX_HOME") or Path(environ.get("HOME", "~")) / ".codex"
    return Path(home) / "sessions"


CODEX = Profile(
    name="codex",
    start=("exec", "--json", "--skip-git-repo-check"),
    resume=("resume", "{session}"),
    last=("-",),
    tools=(
        *("-c", f'{_SERVER}.command="tocsin"'),
        *("-c", f'{_SERVER}.args=["mcp"]'),
        *("-c", f"{_SERVER}.env_vars={_VARIABLES}"),
        *("-c", f'{_SERVER}.default_tools_approval_mode="approve"'),
    ),
    session=lambda event: event.get("thread_id"),
    verdict=_verdict,
    answer=_answer,
    limits=patterns(
        r"hit your usage limit", r"usage_limit_reached", r"out of credits", r"quota exceeded"
    ),
    errors=PROVIDER_ERRORS,
    transcripts=_transcripts,
)
