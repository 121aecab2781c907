"""Any host that can run a command at its events: the plainest form of all.

The command reads `{"session_id": "...", "hook_event_name": "prompt"}` on stdin (the session first,
so that it is found quickly), at stop with `"stop_hook_active": true` where the turn goes on because
of a hook, and `"agent_id"` inside a sub-agent. It answers with nothing, or with one JSON object:
`{"context": TEXT}` is for the model to read, `{"continue": true, "reason": TEXT}` has the turn go
on.
"""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tocsin.broker.errors import InvalidInput
from tocsin.workers.hosts.events import NAMES, Moment
from tocsin.workers.hosts.servers import Scope

NAME = "generic"

CHAIN = ("command", "tmux")


def context(moment: Moment, text: str) -> dict[str, Any]:
    """The answer that adds text to what the model reads."""
    return {"context": text}


def go_on(text: str) -> dict[str, Any]:
    """The answer at stop that has the turn go on."""
    return {"continue": True, "reason": text}


def hooks(command: Sequence[str]) -> dict[str, Any]:
    """What to run at which moment."""
    return {"hooks": {str(moment): shlex.join([*command, moment]) for moment in NAMES}}


def settings_path(scope: Scope, folder: Path) -> Path:
    """There is none that is known."""
    raise InvalidInput(
        "hook install",
        "only you know where your host keeps its settings; put there what "
        "`tocsin hook generic print` shows",
    )
