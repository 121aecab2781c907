"""How long the client of a call stays on the line, by who it says it is.

Every client ends a tool call that takes too long, and few say when. A call that waits returns
before that, with what to come back with.
"""

from __future__ import annotations

from dataclasses import dataclass

from tocsin.broker.errors import InvalidInput

UNKNOWN = 45.0
"""Seconds for a client that is not in the table; most give up after 60."""

KNOWN = {
    "claude-code": 100.0,
    "claude code": 100.0,
    "codex": 240.0,
}
"""Seconds by a word in the name that a client gives."""

SHORTEST, LONGEST = 0.1, 3_600.0

PROGRESS_EVERY = 10.0
"""Seconds between two signs that a call is still waited on; clients want one within 15."""


@dataclass(frozen=True)
class Patience:
    """How long one call may wait, in seconds, and how often it says so meanwhile."""

    limit: float = UNKNOWN

    @property
    def progress_every(self) -> float:
        """Seconds from one sign to the next: several in any call."""
        return min(PROGRESS_EVERY, self.limit / 4)


def limit_of(client: str | None) -> float:
    """Seconds that a client of this name stays on the line."""
    name = (client or "").lower()
    return next((limit for word, limit in KNOWN.items() if word in name), UNKNOWN)


def read_limit(text: str, where: str) -> float:
    """A limit that somebody set, in seconds."""
    try:
        limit = float(text)
    except ValueError:
        limit = -1.0
    if not SHORTEST <= limit <= LONGEST:
        raise InvalidInput("mcp", f"{where} must be {SHORTEST:g} to {LONGEST:g} seconds")
    return limit
