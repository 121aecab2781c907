"""Running a scheduler in the foreground until somebody says stop, and its log."""

from __future__ import annotations

import asyncio
import json
import logging
import signal
from collections.abc import Callable
from datetime import UTC, datetime
from enum import StrEnum

from tocsin.broker.masking import without_tokens
from tocsin.scheduler import AsyncScheduler

STOPPING = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)

PATIENCE = 5.0
"""Seconds that a step which is under way (a server that does not answer) gets to end in."""


class LogFormat(StrEnum):
    """How lines of the log are written."""

    HUMAN = "human"
    JSON = "json"


class _Lines(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        return without_tokens(super().format(record))


class _JsonLines(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        line = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return without_tokens(json.dumps(line))


def log_to_stderr(form: LogFormat = LogFormat.HUMAN, level: int = logging.INFO) -> None:
    """Sends the log of this process to stderr, a line of text or a JSON object each."""
    handler = logging.StreamHandler()
    if form is LogFormat.JSON:
        handler.setFormatter(_JsonLines())
    else:
        handler.setFormatter(_Lines("%(asctime)s %(levelname)-7s %(message)s"))
    logging.basicConfig(level=level, handlers=[handler], force=True)


async def serve(scheduler: AsyncScheduler, ready: Callable[[], None] = lambda: None) -> None:
    """Runs a scheduler until SIGTERM, SIGHUP or Ctrl-C; what it is at, it ends first.

    `ready` is called as soon as the signals are heard.
    """
    loop = asyncio.get_running_loop()
    running = asyncio.create_task(scheduler.run())
    told = False

    def stop() -> None:
        nonlocal told
        told = True
        scheduler.stop()
        loop.call_later(PATIENCE, running.cancel)

    for number in STOPPING:
        loop.add_signal_handler(number, stop)
    try:
        ready()
        await running
    except asyncio.CancelledError:
        if not told:
            raise
    finally:
        running.cancel()
        for number in STOPPING:
            loop.remove_signal_handler(number)
