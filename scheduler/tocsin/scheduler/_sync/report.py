# Generated from _async/report.py by `make generate`; edit that file.

"""Duty: tell the fleet that this scheduler is at work, and which of its duties is not."""

from __future__ import annotations

import logging
import os
import platform
from collections.abc import Callable
from typing import Any

from tocsin.broker import processes
from tocsin.broker._sync.broker import Broker
from tocsin.broker.eviction import danger
from tocsin.broker.versions import MINE
from tocsin.scheduler._sync.duty import Duty, Turn

log = logging.getLogger("tocsin.scheduler")

REPORT_EVERY = 4.0
"""Seconds between reports: a duty that stops is seen within 10 s, by its patience and by this."""


class Report(Duty):
    """Reports every 4 s. Its first report also warns of a server that may drop what it holds."""

    name = "report"

    def __init__(self, broker: Broker, scheduler: str, facts: Callable[[], dict[str, Any]]) -> None:
        self._broker = broker
        self._scheduler = scheduler
        self._facts = facts
        self._warned = False

    def turn(self) -> Turn:
        """One report."""
        if not self._warned:
            servers = self._broker.link.command_each("schedule", "INFO", "memory")
            for warning in filter(None, map(danger, servers.values())):
                log.warning("%s", warning)
            self._warned = True
        self._tell(
            {
                "host": platform.node(),
                "pid": os.getpid(),
                "version": MINE.version,
                "schema": MINE.schema,
                **self._facts(),
            }
        )
        return Turn(REPORT_EVERY)

    def end(self) -> None:
        """The last report: that this scheduler has ended."""
        self._tell(None)

    def _tell(self, facts: dict[str, Any] | None) -> None:
        fleet = self._broker.agree()  # which refuses a process of another schema
        self._broker.run(processes.report(fleet.name, self._scheduler, facts))
