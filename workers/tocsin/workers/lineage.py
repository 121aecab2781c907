"""Which process a hook works for, and whether that one was started from within another session.

A host that an agent starts by a tool call of its own inherits the agent's seat with the
environment, and would read its mail. No variable tells the two apart everywhere, but the one is an
ancestor of the other. What is kept of a process says when it began, too: its number alone is given
out again, soon on a busy machine, and in the same order after each start of it.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import NamedTuple, Self

_SHELLS = {"sh", "bash", "dash", "zsh", "ksh", "fish", "ash", "busybox", "env"}

_ENDED = "ZX"
"""States of processes that have ended, and that nobody has asked for yet."""

_MOST = 64


class Process(NamedTuple):
    """A process of this machine, which no later one of the same number is taken for."""

    pid: int
    began: str
    """When, as this system counts: ticks since it was started, or a date without its spaces."""

    def __str__(self) -> str:
        """As it is kept in files; `hook.sh` reads and writes the same."""
        return f"{self.pid} {self.began}"

    @classmethod
    def of(cls, pid: int) -> Self:
        """The process that has this number now."""
        return cls(pid, _looking()(pid).began)

    @classmethod
    def read(cls, text: object) -> Self | None:
        """The process that was kept; None if none was."""
        pid, _, began = text.strip().partition(" ") if isinstance(text, str) else ("", "", "")
        return cls(int(pid), began) if pid.isdecimal() and began else None

    def runs(self) -> bool:
        """Whether this very process still runs."""
        return self.began != "" and _looking()(self.pid).began == self.began


class _Seen(NamedTuple):
    parent: int
    name: str
    began: str


_GONE = _Seen(0, "?", "")


def ancestors() -> list[tuple[int, str]]:
    """The processes above this one with their names, nearest first; without the first of all."""
    look = _looking()
    found: list[tuple[int, str]] = []
    pid = os.getppid()
    while pid > 1 and len(found) < _MOST:
        seen = look(pid)
        found.append((pid, seen.name))
        pid = seen.parent
    return found


def _looking() -> Callable[[int], _Seen]:
    return _of_proc if Path("/proc/self/stat").exists() else _of_ps()


def _of_proc(pid: int) -> _Seen:
    try:
        text = Path(f"/proc/{pid}/stat").read_text("utf-8", "replace")
    except OSError:
        return _GONE
    name, _, rest = text.partition("(")[2].rpartition(")")
    words = rest.split()
    return _Seen(int(words[1]), name, "" if words[0] in _ENDED else words[19])


def _of_ps() -> Callable[[int], _Seen]:
    shown = subprocess.run(
        ["ps", "-A", "-o", "pid=,ppid=,stat=,lstart=,comm="],
        capture_output=True,
        text=True,
        timeout=5,
        check=False,
        env=os.environ | {"LC_ALL": "C"},
    )
    table: dict[int, _Seen] = {}
    for row in (line.split(None, 8) for line in shown.stdout.splitlines()):
        if len(row) == 9:
            began = "" if row[2][0] in _ENDED else "".join(row[3:8])
            table[int(row[0])] = _Seen(int(row[1]), Path(row[8]).name, began)
    return lambda pid: table.get(pid, _GONE)


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
