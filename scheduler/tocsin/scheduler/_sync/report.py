# Generated from _async/report.py by `make generate`; edit that file.

"""Duty: tell the fleet that this scheduler is at work, and which of its duties is not."""

from __future__ import annotations

import logging
import os
import platform
from collections.abc import Callable
from importlib.metadata import version
from typing import Any

from tocsin.broker import timers
from tocsin.broker._sync.broker import Broker
from tocsin.broker.eviction import danger
from tocsin.scheduler._sync.duty import Turn

log = logging.getLogger("tocsin.scheduler")

REPORT_EVERY = 10.0
"""Seconds between reports."""


class Report:
    """Reports every 10 s. Its first report also warns of a server that may drop what it holds."""

    name = "report"
    bell = None
    patience = 30.0

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
                "version": version("tocsin"),
                **self._facts(),
            }
        )
        return Turn(REPORT_EVERY)

    def end(self) -> None:
        """The last report: that this scheduler has ended."""
        self._tell(None)

    def _tell(self, facts: dict[str, Any] | None) -> None:
        fleet = self._broker.fleet()
        self._broker.run(timers.report(fleet, self._scheduler, facts))
