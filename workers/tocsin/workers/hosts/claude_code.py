"""Claude Code: its hooks and settings.

Where the facts are from: the hooks reference, the channels reference and the page of environment
variables of its documentation (code.claude.com/docs/en/hooks, /channels-reference, /env-vars, as of
August 2026) and its changelog. An event is JSON on stdin with `session_id` first; `agent_id` is
there inside a sub-agent alone; `stop_hook_active` says that a turn goes on because of a Stop hook,
and after 8 such continuations the host ends it. Context of more than 10,000 characters goes to a
file. An `asyncRewake` hook runs in the background, and its exit code 2 wakes the session, also an
idle one, with what it wrote on stderr; no Stop is told of a turn that the user interrupts.
SessionEnd hooks have 1.5 s together unless one has a longer time-out. Hooks of settings run in
sub-agents, too.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tocsin.workers.hosts.events import NAMES, Moment, context, entry, go_on, settings
from tocsin.workers.hosts.servers import Scope, folder_by

__all__ = ["CHAIN", "NAME", "context", "go_on", "hooks", "settings_path"]

NAME = "claude-code"

CHAIN: tuple[str, ...] = ("stop-hook", "channel", "tmux")

PATIENCE = 10
"""Seconds after which the host ends a hook that hangs."""

WAITS = 14 * 24 * 3_600
"""Seconds that a waiter may wait; of milliseconds the host counts no more than 2^31."""


def hooks(command: Sequence[str]) -> dict[str, Any]:
    """What goes into its settings."""
    entries = {moment: [entry(command, moment, PATIENCE)] for moment in NAMES}
    for moment in (Moment.START, Moment.STOP):
        entries[moment].append(entry(command, Moment.WAIT, WAITS, asyncRewake=True))
    return settings(entries)


def settings_path(scope: Scope, folder: Path) -> Path:
    """`settings.json` of the user; of a project `settings.local.json`, which nobody shares."""
    if scope is Scope.PROJECT:
        return folder / ".claude" / "settings.local.json"
    return folder_by("CLAUDE_CONFIG_DIR", ".claude")(os.environ) / "settings.json"
