"""A thread of a broker's own, which goes on until it is told to end."""

from __future__ import annotations

import logging
import random
import threading
from abc import ABC, abstractmethod
from datetime import timedelta
from typing import ClassVar

from redis.exceptions import RedisError

from tocsin.broker.errors import Unavailable
from tocsin.broker.pulse import PATIENCE, LoopHealth, Pulse

log = logging.getLogger("tocsin.broker")

_SHORTEST_PAUSE = 0.05
_LONGEST_PAUSE = 2.0
_END_WITHIN = 3.0

BREATH = 1.0
"""Seconds that a step waits at most, so that a loop with nothing to do shows that it turns."""


class Background(ABC):
    """Takes step after step in a thread, for the sync and the async client alike.

    A step that failed is taken again, with back-off and jitter, and told once in a row of failures.
    That holds for errors nobody expected too, which are told with their traceback: a thread that
    ended silently would take wake-ups or leases with it. `health` tells if one hangs or ended all
    the same.
    """

    name: ClassVar[str]
    """What it is called in reports."""
    meanwhile: ClassVar[str]
    """What is so while its steps fail, for the log."""

    patience: ClassVar[float] = PATIENCE
    """Seconds without a step after which something is wrong."""

    def __init__(self) -> None:
        self._stopping = threading.Event()
        self._thread: threading.Thread | None = None
        self._pause, self._told = _SHORTEST_PAUSE, False
        self._pulse = Pulse(self.patience)

    @abstractmethod
    def _step(self) -> None:
        """What is done again and again. It says `_went_well` as soon as something went well.

        It waits no longer than a `BREATH` without a beat of its pulse.
        """

    @abstractmethod
    def _interrupt(self) -> None:
        """Makes a step that waits return at once, because it is time to end."""

    def _start(self) -> None:
        """Starts the thread at first use, under whatever lock its callers share.

        Ctrl-C may come in the middle of a start; then the next use starts it.
        """
        if self._thread is None or not self._thread.is_alive():
            name = f"tocsin-{self.name}"
            self._pulse.beat()
            self._thread = threading.Thread(target=self._run, name=name, daemon=True)
            self._thread.start()

    def health(self) -> LoopHealth | None:
        """How it gets on; None before anybody needed it, and once it was told to end."""
        thread = self._thread
        if thread is None or self._stopping.is_set():
            return None
        trouble = self._pulse.trouble() if thread.is_alive() else "has ended, and nobody told it to"
        return LoopHealth(self.name, timedelta(seconds=self._pulse.still), trouble)

    def _went_well(self) -> None:
        self._pulse.went_well()
        self._pause, self._told = _SHORTEST_PAUSE, False

    def _run(self) -> None:
        while not self._stopping.is_set():
            self._pulse.beat()
            try:
                self._step()
            except (RedisError, OSError, Unavailable) as error:
                self._tell(logging.WARNING, error)
            except Exception as error:
                self._tell(logging.ERROR, error)
            else:
                continue
            self._stopping.wait(self._pause * random.uniform(0.5, 1.5))
            self._pause = min(self._pause * 2, _LONGEST_PAUSE)

    def _tell(self, level: int, error: Exception) -> None:
        self._pulse.failed(error)
        if not self._told and not self._stopping.is_set():
            traceback = error if level == logging.ERROR else None
            said = error.detail if isinstance(error, Unavailable) else error
            log.log(level, "%s: %s", self.meanwhile, said, exc_info=traceback)
            self._told = True

    def close(self) -> None:
        """Ends it, and waits until it has ended."""
        self._stopping.set()
        self._interrupt()
        if self._thread is not None and self._thread.is_alive():
            self._thread.join(_END_WITHIN)
