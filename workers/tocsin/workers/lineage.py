"""Which process a hook works for, and whether that one was started from within another session.

A host that an agent starts by a tool call of its own inherits the agent's seat with the
environment, and would read its mail. No variable tells the two apart everywhere, but the one is an
ancestor of the other.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

_SHELLS = {"sh", "bash", "dash", "zsh", "ksh", "fish", "ash", "busybox", "env"}

_MOST = 64


def ancestors() -> list[tuple[int, str]]:
    """The processes above this one with their names, nearest first; without the first of all."""
    parents = _of_proc() if Path("/proc/self/stat").exists() else _of_ps()
    found: list[tuple[int, str]] = []
    pid = os.getppid()
    while pid > 1 and len(found) < _MOST:
        parent, name = parents(pid)
        found.append((pid, name))
        pid = parent
    return found


def _of_proc() -> Callable[[int], tuple[int, str]]:
    def read(pid: int) -> tuple[int, str]:
        try:
            text = Path(f"/proc/{pid}/stat").read_text("utf-8", "replace")
        except OSError:
            return 0, "?"
        name, _, rest = text.partition("(")[2].rpartition(")")
        return int(rest.split()[1]), name

    return read


def _of_ps() -> Callable[[int], tuple[int, str]]:
    shown = subprocess.run(
        ["ps", "-A", "-o", "pid=,ppid=,comm="],
        capture_output=True,
        text=True,
        timeout=5,
        check=False,
    )
    rows = [line.split(None, 2) for line in shown.stdout.splitlines()]
    table = {int(row[0]): (int(row[1]), Path(row[2]).name) for row in rows if len(row) == 3}

    def read(pid: int) -> tuple[int, str]:
        return table.get(pid, (0, "?"))

    return read


def host_of(above: Sequence[tuple[int, str]]) -> int:
    """The process that runs the hook: the nearest that is no shell in between."""
    for pid, name in above:
        if name.lstrip("-") not in _SHELLS:
            return pid
    return above[0][0] if above else os.getppid()


def is_nested(above: Sequence[tuple[int, str]], host: int, hosts: Iterable[int]) -> bool:
    """Whether the host was started from within a session of one of these other hosts."""
    beyond = [pid for pid, _ in above]
    beyond = beyond[beyond.index(host) + 1 :] if host in beyond else beyond
    return not set(beyond).isdisjoint(hosts)
