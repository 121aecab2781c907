"""What a profile says of a command line program. Pure data, and functions of one event each."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

Event = Mapping[str, Any]
"""One line of a program's JSON output."""


def patterns(*texts: str) -> tuple[re.Pattern[str], ...]:
    """Patterns that do not care for case."""
    return tuple(re.compile(text, re.IGNORECASE) for text in texts)


@dataclass(frozen=True)
class Profile:
    """How one program runs turns. Its prompt always comes on standard input.

    A turn's words are the runner's command, then `start`, `tools`, `allow`, `resume` where there is
    a session, and `last`. The command itself may hold options of the user's.
    """

    name: str
    start: tuple[str, ...] = ()
    """What makes it run one turn without a terminal, and print a JSON event a line."""
    resume: tuple[str, ...] = ()
    """What makes it go on with `{session}`."""
    last: tuple[str, ...] = ()
    tools: tuple[str, ...] = ()
    """What tells it of our MCP server and allows its tools."""
    allow: tuple[str, ...] = ()
    """What allows the command `tocsin`, where it would ask somebody otherwise."""
    environ: Mapping[str, str] = field(default_factory=dict)
    """Variables that tell it of our MCP server, where no option does."""
    session: Callable[[Event], object] = lambda _event: None
    """The session's id, of an event that has it."""
    verdict: Callable[[Event], str | None] = lambda _event: None
    """Of an event that says how the model fared: "" for well, else what went wrong."""
    answer: Callable[[Event], str | None] = lambda _event: None
    """The model's last words, of an event that has some."""
    limits: tuple[re.Pattern[str], ...] = ()
    """What it says when the account may not go on for a while."""
    errors: tuple[re.Pattern[str], ...] = ()
    """What it says on standard error when the provider failed, and not the program."""
    transcripts: Callable[[Path, Mapping[str, str]], Path] | None = None
    """Where it keeps transcripts, by the turn's folder and environment; a session's id is in the
    path of its own."""

    @property
    def events(self) -> bool:
        """Whether it prints JSON events, which only its model's work makes it do."""
        return bool(self.start)

    def words(self, command: Sequence[str], session: str | None) -> list[str]:
        """The words of a turn."""
        resume = [word.format(session=session) for word in self.resume] if session else []
        return [
            *command,
            *self.start,
            *self.tools,
            *self.allow,
            *resume,
            *self.last,
        ]


PROVIDER_ERRORS = patterns(
    r"\b(5\d\d|429)\b.{0,40}\b(error|overloaded|unavailable|too many requests)",
    r"overloaded_error|server_error|service unavailable|internal server error|bad gateway",
    r"rate[ _-]?limit",
    r"connection (error|reset|refused|timed out)|ECONNRESET|ETIMEDOUT|ENOTFOUND|fetch failed",
    r"stream (disconnected|error|closed)",
)
"""What programs say when a model's provider fails, in words that they share."""
