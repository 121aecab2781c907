"""The pulse of a loop: when it last got a step further, and what keeps it from turning."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from datetime import timedelta

PATIENCE = 5.0
"""Seconds without a step, or of failing, after which something is wrong; unless told otherwise."""


@dataclass(frozen=True)
class LoopHealth:
    """How a background loop of this process gets on."""

    loop: str
    """What it is called: bells, leases, or a duty of a scheduler."""
    stepped: timedelta
    """How long ago it last got a step further."""
    trouble: str
    """What keeps it from turning, in words; empty while it turns as it should."""


class Pulse:
    """What a loop notes of itself, and anybody in its process may look at.

    Times are of the process's own clock, so that no look costs the server anything.
    """

    def __init__(self, patience: float = PATIENCE) -> None:
        self._patience = patience
        self._moved: float | None = None
        self._failing: float | None = None
        """Since when its steps have failed."""
        self._error: Exception | None = None

    def beat(self) -> None:
        """It got a step further: each step says so, and a long one after each of its parts."""
        self._moved = time.monotonic()

    @property
    def failing(self) -> bool:
        """Whether its last step failed."""
        return self._failing is not None

    def failed(self, error: Exception) -> None:
        """A step failed; it goes on failing until one says that it went well."""
        if self._failing is None:
            self._failing = time.monotonic()
        self._error = error

    def went_well(self) -> None:
        """Something that it does went well."""
        self._failing = self._error = None

    @property
    def still(self) -> float:
        """Seconds since its last step; 0 if it has not begun."""
        return 0.0 if self._moved is None else time.monotonic() - self._moved

    def trouble(self) -> str:
        """What keeps it from turning; empty while it turns as it should."""
        failing, error = self._failing, self._error
        lasted = 0.0 if failing is None else time.monotonic() - failing
        if lasted > self._patience:
            return f"has done nothing for {lasted:.0f} s, because it fails: {error}"
        if self.still > self._patience:
            return f"has done nothing for {self.still:.0f} s, because it hangs in one step"
        return ""


def is_running(pid: int) -> bool:
    """Whether a process of this number runs on this machine."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return pid > 0
