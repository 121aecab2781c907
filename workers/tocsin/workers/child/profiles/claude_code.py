"""Claude Code, `claude`.

Facts: its documentation (code.claude.com/docs: headless mode, CLI reference, settings) and what
people report of limits (anthropics/claude-code, issues 37009, 42042, 51981), as of version 2.1.

- `-p` runs one turn; `--output-format stream-json --verbose` prints an event a line. The first,
  `system`/`init`, has `session_id`, as all others do; the last, `result`, has `is_error`.
- `--resume ID` goes on, in the same folder only. Transcripts: `projects/<folder>/<session>.jsonl`
  below `~/.claude` (or `CLAUDE_CONFIG_DIR`), the folder's name with `-` for what is no letter.
- A limit is a `rate_limit_event` with status `rejected` and `resetsAt`, and a result that says
  `You've hit your limit · resets 8pm (Europe/Berlin)`; older: `... limit reached|1755772800`. The
  result may call itself a success.
- A tool that is not allowed is refused in `-p`; `mcp__tocsin` allows all tools of one server.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

from tocsin.workers.child.profiles.profile import PROVIDER_ERRORS, Event, Profile, patterns

_LIMITS = patterns(
    r"(hit|reached) your (\S+ ){0,3}limit",
    r"usage limit reached",
    r"\d+-hour limit reached",
    r'"status":\s*"rejected"',
)


def _verdict(event: Event) -> str | None:
    if event.get("type") == "rate_limit_event":
        info = event.get("rate_limit_info") or {}
        if info.get("status") != "rejected":
            return None
        return f'"status": "rejected", "resetsAt": {info.get("resetsAt")}'
    if event.get("type") != "result":
        return None
    text = str(event.get("result") or event.get("errors") or event.get("subtype") or "")
    # A model's last words may tell of limits; what the program says of one is all there is.
    says_limit = len(text) < 200 and any(found.match(text) for found in _OWN_WORDS)
    return text if event.get("is_error") or says_limit else ""


_OWN_WORDS = patterns(
    r"You've (hit|reached) your (\S+ ){0,3}limit", r"Claude (AI )?usage limit reached"
)


def _transcripts(folder: Path, environ: Mapping[str, str]) -> Path:
    home = environ.get("CLAUDE_CONFIG_DIR") or Path(environ.get("HOME", "~")) / ".claude"
    return Path(home) / "projects" / re.sub("[^a-zA-Z0-9]", "-", str(folder))


CLAUDE_CODE = Profile(
    name="claude-code",
    start=("-p", "--output-format", "stream-json", "--verbose"),
    resume=("--resume", "{session}"),
    tools=(
        "--mcp-config",
        '{"mcpServers": {"tocsin": {"command": "tocsin", "args": ["mcp"]}}}',
        "--allowedTools",
        "mcp__tocsin",
    ),
    allow=("--allowedTools", "Bash(tocsin:*)"),
    session=lambda event: event.get("session_id"),
    verdict=_verdict,
    answer=lambda event: event.get("result") if event.get("type") == "result" else None,
    limits=_LIMITS,
    errors=PROVIDER_ERRORS,
    transcripts=_transcripts,
)
