"""Codex: its hooks and settings.

Where the facts are from: the source of its hooks (openai/codex, codex-rs/hooks: the generated
schemas of their input and output, `command_runner.rs`, `async_command.rs`, `discovery.rs`), its
documentation (developers.openai.com/codex/hooks), and the program itself, 0.171.0 (`codex queue
--help`, `hooks/list` of `codex app-server`). Events are Claude Code's, with a `turn_id`,
`session_id` first; an answer with a field that is not in the schema is an error; a hook that does
not read its stdin, too. A command is run by the user's shell as a login shell. Async hooks cannot
wake anybody. SessionEnd has 3 s at most. It runs no hook that the user has not trusted (`/hooks`).
`codex queue` (0.149 and later) hands a message to a thread that is loaded in a terminal or daemon;
it does nothing for `codex exec`.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tocsin.workers.hosts.events import NAMES, Moment, context, entry, go_on, settings
from tocsin.workers.hosts.servers import Scope, folder_by

__all__ = ["CHAIN", "NAME", "context", "go_on", "hooks", "settings_path"]

NAME = "codex"

CHAIN: tuple[str, ...] = ("queue", "tmux")

PATIENCE, LAST = 10, 3
"""Seconds after which it ends a hook that hangs; the most that it allows at a session's end."""


def hooks(command: Sequence[str]) -> dict[str, Any]:
    """What goes into its `hooks.json`."""
    patience = {Moment.END: LAST}
    return settings(
        {moment: [entry(command, moment, patience.get(moment, PATIENCE))] for moment in NAMES}
    )


def settings_path(scope: Scope, folder: Path) -> Path:
    """`hooks.json` in its folder, or in a project's."""
    if scope is Scope.PROJECT:
        return folder / ".codex" / "hooks.json"
    return folder_by("CODEX_HOME", ".codex")(os.environ) / "hooks.json"
