"""What a host tells its hooks, and how it is answered, in one form for all hosts.

The names of fields and events are Claude Code's; other hosts took them over.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any, Protocol

from tocsin.workers.hosts.servers import Scope


class Moment(StrEnum):
    """When a hook is called."""

    START = "start"  # a session begins, or goes on
    PROMPT = "prompt"  # a turn begins
    TOOL = "tool"  # a tool call has ended
    STOP = "stop"  # a turn is about to end
    WAIT = "wait"  # it has ended: what runs in the background may wake the session
    END = "end"  # the session ends


NAMES = {
    Moment.START: "SessionStart",
    Moment.PROMPT: "UserPromptSubmit",
    Moment.TOOL: "PostToolUse",
    Moment.STOP: "Stop",
    Moment.END: "SessionEnd",
}
"""What hosts call these moments. `WAIT` is none of theirs: a second hook at start and at stop."""


@dataclass(frozen=True)
class Event:
    """One call of a hook."""

    moment: Moment
    session: str
    subagent: bool = False
    """It happens inside of an agent that the agent of the session has started."""
    continued: bool | None = None
    """At stop: whether the turn went on because a hook wanted it; None if that is not said."""
    background: bool = False
    """At stop: whether work goes on in the background that will wake the session."""


class HookedHost(Protocol):
    """A module of this package that knows a host which runs hooks."""

    NAME: str
    CHAIN: tuple[str, ...]
    """The paths by which its sessions can be woken, in order."""

    def context(self, moment: Moment, text: str) -> dict[str, Any]:
        """The answer that adds text to what the model reads."""

    def go_on(self, text: str) -> dict[str, Any]:
        """The answer at stop that has the turn go on, with a reason for the model."""

    def hooks(self, command: Sequence[str]) -> dict[str, Any]:
        """What goes into the host's settings so that `command` is run at its events, the moment
        being its last word."""

    def settings_path(self, scope: Scope, folder: Path) -> Path:
        """The file with the host's hooks: the user's, or that of the project in `folder`."""


def read(text: str, moment: Moment | None = None) -> Event | None:
    """The event that a host describes; None if it is none of ours."""
    try:
        fields = json.loads(text)
    except (ValueError, RecursionError):
        return None
    if not isinstance(fields, dict):
        return None
    found = moment or _moment_of(fields.get("hook_event_name"))
    session = fields.get("session_id")
    if found is None or not isinstance(session, str) or not session:
        return None
    continued = fields.get("stop_hook_active")
    return Event(
        moment=found,
        session=session,
        subagent=bool(fields.get("agent_id")),
        continued=continued if isinstance(continued, bool) else None,
        background=bool(fields.get("background_tasks")),
    )


def _moment_of(name: Any) -> Moment | None:
    for moment, known in NAMES.items():
        if name in (known, moment):
            return moment
    return None


def context(moment: Moment, text: str) -> dict[str, Any]:
    """The answer that adds text to what the model reads."""
    return {"hookSpecificOutput": {"hookEventName": NAMES[moment], "additionalContext": text}}


def go_on(text: str) -> dict[str, Any]:
    """The answer to Stop that has the turn go on."""
    return {"decision": "block", "reason": text}


def entry(command: Sequence[str], moment: Moment, patience: int, **more: Any) -> dict[str, Any]:
    """A hook in a host's settings, which is ended after so many seconds."""
    line = shlex.join([*command, moment])
    return {"type": "command", "command": line, "timeout": patience, **more}


def settings(entries: Mapping[Moment, Sequence[dict[str, Any]]]) -> dict[str, Any]:
    """The settings that hold these hooks."""
    return {"hooks": {NAMES[moment]: [{"hooks": list(each)}] for moment, each in entries.items()}}
