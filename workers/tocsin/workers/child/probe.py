"""Signs of work in an agent's transcript: a coding agent writes one while its model works.

How an agent maps to a directory is known here, by whoever runs it; the broker learns only totals,
and that they grew.
"""

from __future__ import annotations

import os
import stat
import time
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path

from tocsin.broker import Agent
from tocsin.broker.errors import Unavailable
from tocsin.broker.probing import Probe

_DEEPEST = 8


class TranscriptProbe:
    """Sums the bytes of the `*.jsonl` files below a run directory, at each call.

    The answer has one source, `transcript`. Files may appear, grow, rotate, shrink or vanish while
    they are counted. A directory that is not there, or cannot be looked at, counts what it last did
    (0 if it never was), so that its coming back is no growth. Symbolic links are not followed, so
    nothing outside the directory is ever counted. With `about`, such as a session's id, only files
    count that have it in their path below the directory.
    """

    def __init__(
        self, directory: Path | str, *, source: str = "transcript", about: str = ""
    ) -> None:
        self.directory = Path(directory)
        self.source = source
        self._about = about
        self._last = 0

    @property
    def there(self) -> bool:
        """Whether the directory is one that can be looked at now."""
        try:
            list(os.scandir(self.directory))
        except (OSError, ValueError):  # not ours, no name for one, or its file system is away
            return False
        return True

    def __call__(self) -> dict[str, int]:
        """The total, as `ask(probe=...)` and `Agent.probe` take it."""
        if self.there:
            self._last = sum(_sizes(self.directory, _DEEPEST, self._about))
        return {self.source: self._last}


def _sizes(folder: Path, deeper: int, about: str) -> Iterator[int]:
    try:
        entries = list(os.scandir(folder))
    except OSError:  # not there, not ours, or gone meanwhile
        return
    for entry in entries:
        try:
            status = entry.stat(follow_symlinks=False)
        except OSError:
            continue
        named = about in entry.name
        if stat.S_ISDIR(status.st_mode) and deeper > 0:
            yield from _sizes(Path(entry.path), deeper - 1, "" if named else about)
        elif stat.S_ISREG(status.st_mode) and entry.name.endswith(".jsonl") and named:
            yield status.st_size


def publish(
    agent: Agent,
    probe: Probe,
    every: timedelta,
    *,
    pause: Callable[[float], object] = time.sleep,
    warn: Callable[[str], object] = lambda _: None,
) -> None:
    """Publishes what a probe counts of an agent's work, at once and then on a cadence.

    Runs until `pause`, called with seconds, returns something true (`Event.wait` does when it is
    set) or raises; or until the agent is closed, which is raised. While the server is away it
    waits, having said so once. Watching is no presence: it holds no lease.
    """
    told = False
    while True:
        try:
            agent.probe(probe())
            told = False
        except Unavailable as error:
            if not told:
                warn(f"nothing is published meanwhile: {error.detail}")
            told = True
        if pause(every.total_seconds()):
            return
