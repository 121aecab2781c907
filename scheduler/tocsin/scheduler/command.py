"""A command that is run for each alert, and that nothing is left of afterwards."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import tempfile
from contextlib import suppress
from typing import Any

from tocsin.broker.errors import Unavailable
from tocsin.broker.settings import NotifySettings

TERM_GRACE = 2.0
"""Seconds between SIGTERM and SIGKILL for a command that is over its time."""


class Command:
    """Runs a command with an alert as JSON on its stdin; exit code 0 says that it was told.

    It runs without a shell, without the `TOCSIN_` variables of this process, and in a group of its
    own, which is ended with it.
    """

    def __init__(self, settings: NotifySettings) -> None:
        self._words = settings.notify_command
        self._within = settings.notify_timeout.total_seconds()

    async def tell(self, alert: dict[str, Any]) -> None:
        """Runs it for one alert; `Unavailable` if it fails, or is over its time and so ended."""
        name = self._words[0]
        with tempfile.TemporaryFile() as said:  # a file fills no pipe, and no child holds it open
            try:
                process = await asyncio.create_subprocess_exec(
                    *self._words,
                    stdin=asyncio.subprocess.PIPE,
                    stdout=asyncio.subprocess.DEVNULL,
                    stderr=said,
                    env=_environment(),
                    start_new_session=True,
                )
            except (OSError, ValueError) as error:
                raise Unavailable("notify", f"{name} could not be started: {error}") from None
            try:
                async with asyncio.timeout(self._within):
                    await process.communicate(json.dumps(alert).encode() + b"\n")
            except TimeoutError:
                raise Unavailable("notify", f"{name} was not done in time and was ended") from None
            finally:
                await _end(process)
            if process.returncode:
                said.seek(0)
                words = said.read(300).decode(errors="replace").strip()
                detail = f"{name} ended with {process.returncode}{': ' if words else ''}{words}"
                raise Unavailable("notify", detail)


def _environment() -> dict[str, str]:
    return {
        name: text for name, text in os.environ.items() if not name.upper().startswith("TOCSIN_")
    }


async def _end(process: asyncio.subprocess.Process) -> None:
    """Ends a command's group: at once if the command has ended, else with time to tidy up."""
    try:
        if process.returncode is None and _signal(process, signal.SIGTERM):
            with suppress(TimeoutError):
                async with asyncio.timeout(TERM_GRACE):
                    await process.wait()
    finally:
        _signal(process, signal.SIGKILL)
    await process.wait()


def _signal(process: asyncio.subprocess.Process, number: signal.Signals) -> bool:
    """Signals a command's group; whether anything of it was left."""
    try:
        os.killpg(process.pid, number)
    except (ProcessLookupError, PermissionError):  # the latter on macOS, of what is dead already
        return False
    return True
