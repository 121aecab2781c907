"""Profiles: how each program is started, and what output like the real one's says."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from tocsin.broker.runners import CommandRunner
from tocsin.workers.child.ending import judge
from tocsin.workers.child.output import Output
from tocsin.workers.child.profiles import PROFILES
from tocsin.workers.child.profiles.resets import reset_time

NOW = datetime(2026, 4, 22, 13, 40, tzinfo=ZoneInfo("Europe/Paris"))

CLAUDE: dict[str, Any] = {
    "type": "system",
    "subtype": "init",
    "session_id": "5b1c-aa",
    "tools": ["Bash"],
}
CLAUDE_RESULT: dict[str, Any] = {"type": "result", "subtype": "success", "session_id": "5b1c-aa"}
PI: dict[str, Any] = {"type": "session", "version": 3, "id": "0199-pi", "cwd": "/w"}


def pi_end(**message: object) -> dict[str, Any]:
    return {"type": "message_end", "message": {"role": "assistant", "content": [], **message}}


SAMPLES: dict[str, tuple[str, list[dict[str, Any]], int, str, str, str | None]] = {
    # profile, its events, exit code -> kind, session, end of the limit
    "claude, well": (
        "claude-code",
        [
            CLAUDE,
            {"type": "rate_limit_event", "rate_limit_info": {"status": "allowed"}},
            CLAUDE_RESULT | {"is_error": False, "result": "I hit your limit of 3 files."},
        ],
        0,
        "exited",
        "5b1c-aa",
        None,
    ),
    "claude, a limit": (
        "claude-code",
        [
            CLAUDE,
            CLAUDE_RESULT
            | {"is_error": True, "result": "You've hit your limit · resets 8pm (Europe/Berlin)"},
        ],
        1,
        "limited",
        "5b1c-aa",
        "2026-04-22T18:00:00+00:00",
    ),
    "claude, a limit that calls itself success": (
        "claude-code",
        [CLAUDE, CLAUDE_RESULT | {"result": "Claude AI usage limit reached|1776880800"}],
        0,
        "limited",
        "5b1c-aa",
        "2026-04-22T18:00:00+00:00",
    ),
    "claude, rejected": (
        "claude-code",
        [
            CLAUDE,
            {
                "type": "rate_limit_event",
                "rate_limit_info": {"status": "rejected", "resetsAt": 1776880800},
            },
        ],
        1,
        "limited",
        "5b1c-aa",
        "2026-04-22T18:00:00+00:00",
    ),
    "claude, an error of the provider": (
        "claude-code",
        [CLAUDE, CLAUDE_RESULT | {"is_error": True, "result": "API Error: 529 overloaded_error"}],
        1,
        "provider_error",
        "5b1c-aa",
        None,
    ),
    "claude, mail that speaks of limits": (
        "claude-code",
        [
            CLAUDE,
            {"type": "user", "message": {"content": "You've hit your limit · resets 8pm"}},
            CLAUDE_RESULT | {"is_error": False, "result": "Answered."},
        ],
        0,
        "exited",
        "5b1c-aa",
        None,
    ),
    "codex, well after a lost connection": (
        "codex",
        [
            {"type": "thread.started", "thread_id": "0199-cx"},
            {"type": "error", "message": "Reconnecting... 1/5 (stream disconnected)"},
            {"type": "turn.completed", "usage": {"input_tokens": 1}},
        ],
        0,
        "exited",
        "0199-cx",
        None,
    ),
    "codex, a limit in days": (
        "codex",
        [
            {"type": "thread.started", "thread_id": "0199-cx"},
            {
                "type": "turn.failed",
                "error": {
                    "message": "You've hit your usage limit. Upgrade to Pro "
                    "(https://openai.com/chatgpt/pricing) or try again in 2 days 17 hours 14 "
                    "minutes."
                },
            },
        ],
        1,
        "limited",
        "0199-cx",
        "2026-04-25T04:54:00+00:00",
    ),
    "codex, a limit with its date": (
        "codex",
        [
            {"type": "thread.started", "thread_id": "0199-cx"},
            {
                "type": "error",
                "message": "You've hit your usage limit. Visit "
                "https://chatgpt.com/codex/settings/usage to purchase more credits or try again "
                "at Apr 23rd, 2026 4:15 AM.",
            },
        ],
        1,
        "limited",
        "0199-cx",
        "2026-04-23T02:15:00+00:00",
    ),
    "opencode, an error with exit code 0": (
        "opencode",
        [
            {"type": "step_start", "sessionID": "ses_4f"},
            {
                "type": "error",
                "sessionID": "ses_4f",
                "error": {"name": "APIError", "data": {"message": "Overloaded", "statusCode": 529}},
            },
        ],
        0,
        "provider_error",
        "ses_4f",
        None,
    ),
    "opencode, well": (
        "opencode",
        [{"type": "step_finish", "sessionID": "ses_4f", "part": {"reason": "stop"}}],
        0,
        "exited",
        "ses_4f",
        None,
    ),
    "pi, a limit of Codex": (
        "pi",
        [
            PI,
            pi_end(
                stopReason="error",
                errorMessage='Codex error: {"type":"error","error":{"type":"usage_limit_reached",'
                '"message":"The usage limit has been reached","resets_at":1776880800,'
                '"resets_in_seconds":13872},"status_code":429}',
            ),
        ],
        1,
        "limited",
        "0199-pi",
        "2026-04-22T18:00:00+00:00",
    ),
    "pi, well after a retry": (
        "pi",
        [PI, pi_end(stopReason="error", errorMessage="overloaded"), pi_end(stopReason="stop")],
        0,
        "exited",
        "0199-pi",
        None,
    ),
}


@pytest.mark.parametrize("name", SAMPLES)
def test_what_a_program_says(name):
    """Session, kind of end and the end of a limit are read from a program's own events."""
    profile, events, code, kind, session, until = SAMPLES[name]
    output = Output(PROFILES[profile])
    for event in events:
        output.feed("stdout", json.dumps(event).encode() + b"\n")
    output.close()
    runner = CommandRunner(["x"], profile=profile)
    ending = judge(runner, PROFILES[profile], output, code, NOW)
    assert (ending.kind, output.session) == (kind, session)
    assert until == (ending.limited_until.isoformat() if ending.limited_until else None)


@pytest.mark.parametrize("profile", [name for name in PROFILES if name != "command"])
def test_nothing_an_event_holds_can_break_the_reading(profile):
    """Events of any shape, deep nesting, broken JSON: passed over."""
    output = Output(PROFILES[profile])
    for line in (
        b'{"type": "result", "result": {"a": []}, "is_error": 5}',
        b'{"type": "rate_limit_event", "rate_limit_info": "x"}',
        b'{"type": "message_end", "message": "x"}',
        b'{"type": "turn.failed", "error": "x"}',
        b'{"type": ["error"], "session_id": {}, "thread_id": 7, "sessionID": null}',
        b"[1]",
        b'{"a": ' * 50_000,
        b"\xff\xfe",
    ):
        output.feed("stdout", line + b"\n")
    assert output.session is None
    assert len(output.tail) <= 4_000


WORDS = {
    "claude-code": (
        "claude --model opus -p --output-format stream-json --verbose --mcp-config JSON "
        "--allowedTools mcp__tocsin --allowedTools Bash(tocsin:*) --resume S1"
    ),
    "codex": (
        'claude --model opus exec --json --skip-git-repo-check -c mcp_servers.tocsin.command="toc'
        'sin" -c mcp_servers.tocsin.args=["mcp"] -c JSON -c '
        'mcp_servers.tocsin.default_tools_approval_mode="approve" resume S1 -'
    ),
    "opencode": "claude --model opus run --standalone --format json --session S1",
    "pi": "claude --model opus --mode json --session S1",
    "command": "claude --model opus",
}


@pytest.mark.parametrize("name", PROFILES)
def test_the_words_of_a_turn(name):
    """The user's command, then what runs one turn, allows our tools and goes on with a session."""
    words = PROFILES[name].words(["claude", "--model", "opus"], "S1")
    shown = ["JSON" if "TOCSIN_URL" in word or word.startswith("{") else word for word in words]
    assert " ".join(shown) == WORDS[name]
    assert not {"S1", "resume", "--resume", "--session"} & set(
        PROFILES[name].words(["claude"], None)
    )


def test_where_transcripts_are():
    """In the folder each program uses, or where a variable that it gets says."""
    environ, folder = {"HOME": "/home/ada"}, Path("/srv/my_app.git")
    found = {
        name: str(profile.transcripts(folder, environ))
        for name, profile in PROFILES.items()
        if profile.transcripts
    }
    assert found == {
        "claude-code": "/home/ada/.claude/projects/-srv-my-app-git",
        "codex": "/home/ada/.codex/sessions",
        "pi": "/home/ada/.pi/agent/sessions",
    }
    assert PROFILES["codex"].transcripts is not None
    assert PROFILES["codex"].transcripts(folder, {"CODEX_HOME": "/c"}) == Path("/c/sessions")


@pytest.mark.parametrize(
    ("text", "until"),
    [
        ("resets 4pm (Asia/Kuala_Lumpur)", "2026-04-23T08:00:00+00:00"),
        ("resets 1:30am (Asia/Dhaka)", "2026-04-22T19:30:00+00:00"),
        ("resets Apr 23 at 4pm (America/Recife)", "2026-04-23T19:00:00+00:00"),
        ("resets 3pm", "2026-04-22T13:00:00+00:00"),
        ("Your limit resets at 5:00pm.", "2026-04-22T15:00:00+00:00"),
        ("try again at 4:15 AM.", "2026-04-23T02:15:00+00:00"),
        ("Please try again in 5m30s", "2026-04-22T11:45:30+00:00"),
        ("try again in 1 hour and 2 minutes.", "2026-04-22T12:42:00+00:00"),
        ("retry-after: 30", "2026-04-22T11:40:30+00:00"),
        ('"resets_in_seconds":60', "2026-04-22T11:41:00+00:00"),
        ("resets at 2026-04-22T12:00:00Z", "2026-04-22T12:00:00+00:00"),
        ("resets 4pm (Not/AZone)", None),
        ("resets Feb 31 at 4pm", None),
        ("limit reached|1176880800", None),
        ("try again in 999 days", None),
        ("no time at all", None),
    ],
)
def test_when_a_limit_ends(text, until):
    """A clock, a date, a span, an epoch; nothing that is past, far off or no time."""
    found = reset_time(text, NOW)
    assert (found.isoformat() if found else None) == until
    assert found is None or found.tzinfo is UTC
