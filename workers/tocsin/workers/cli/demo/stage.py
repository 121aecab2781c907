"""Starts and ends the demo's processes. Whatever it started has ended when it is left."""

from __future__ import annotations

import asyncio
import os
import sys
from collections import deque
from collections.abc import Callable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Self

from tocsin.broker.pulse import is_running

GENTLE_END = 5.0
"""Seconds for an end of its own, and again after SIGTERM; then it is killed."""

_KEPT_LINES = 20
_LONGEST_LINE = 1 << 20

Heard = Callable[[str, str], None]
"""Called with the role and the line, for each line that a process prints."""


class StageError(RuntimeError):
    """A process ended that should not have, or the play got stuck; the message says how."""


class Stage:
    """The processes of one performance."""

    def __init__(self, folder: Path, environ: Mapping[str, str], heard: Heard) -> None:
        self._folder = folder
        self._environ = {**_without_tocsin(os.environ), **environ}
        self._heard = heard
        self._processes: dict[str, asyncio.subprocess.Process] = {}
        self._errors: dict[str, deque[str]] = {}
        self._readers: dict[str, list[asyncio.Task[None]]] = {}

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await asyncio.shield(self.clear())

    @property
    def pids(self) -> dict[str, int]:
        """The process id of each role."""
        return {role: process.pid for role, process in self._processes.items()}

    async def enter(self, role: str, **environ: str) -> None:
        """Starts the process of a role, in the folder that is read, with more of an environment."""
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-P", "-m", "tocsin.workers.cli.demo.player", role),
            stdin=asyncio.subprocess.PIPE,  # its life line: see player.py
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            env={**self._environ, **environ},
            cwd=self._folder,
            limit=_LONGEST_LINE,
            start_new_session=True,  # Ctrl-C at a terminal is the stage's to hear, and to pass on
        )
        self._processes[role] = process
        self._errors[role] = deque(maxlen=_KEPT_LINES)
        self._readers[role] = [
            asyncio.create_task(self._read(role, stream, heard))
            for stream, heard in ((process.stdout, self._heard), (process.stderr, self._keep))
            if stream is not None
        ]

    def ended(self, role: str) -> bool:
        """Whether the process of a role has ended well, and its last line was read.

        Raises:
            StageError: It ended otherwise, or another one ended at all.
        """
        for each, process in self._processes.items():
            code = process.returncode
            if code is not None and (code != 0 or each != role):
                errors = "\n".join(self._errors[each])
                raise StageError(f"the process of {each} ended with {code}\n{errors}".rstrip())
        read = all(reader.done() for reader in self._readers[role])
        return read and self._processes[role].returncode is not None

    async def leave(self, *roles: str) -> None:
        """Lets go of the processes of these roles and waits until they have ended."""
        processes = [self._processes[role] for role in roles]
        for process in processes:
            if process.stdin is not None:
                process.stdin.close()
        for end in (None, asyncio.subprocess.Process.terminate, asyncio.subprocess.Process.kill):
            running = [process for process in processes if process.returncode is None]
            if end is not None:
                for process in running:
                    end(process)
            if running:
                waits = [asyncio.create_task(process.wait()) for process in running]
                await asyncio.wait(waits, timeout=GENTLE_END)
                for wait in waits:
                    wait.cancel()

    async def clear(self) -> None:
        """Ends every process."""
        await self.leave(*self._processes)
        readers = [reader for both in self._readers.values() for reader in both]
        await asyncio.gather(*readers, return_exceptions=True)

    def left(self) -> list[str]:
        """The processes that still are there, of those that were started."""
        return [f"process {pid} ({role})" for role, pid in self.pids.items() if is_running(pid)]

    def _keep(self, role: str, line: str) -> None:
        self._errors[role].append(line)

    async def _read(self, role: str, stream: asyncio.StreamReader, heard: Heard) -> None:
        async for line in stream:
            heard(role, line.decode("utf-8", "replace").rstrip("\n"))


def _without_tocsin(environ: Mapping[str, str]) -> dict[str, str]:
    """The environment without what a person set up for fleets of their own."""
    return {name: value for name, value in environ.items() if not name.startswith("TOCSIN_")}
