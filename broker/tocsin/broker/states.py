"""The life of a task, as one table.

This file does no I/O. The Lua scripts carry out the moves; a test reads the `moves` line of each
script's header and holds it against this table, both ways.
"""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple


class TaskState(StrEnum):
    """Where a task stands. Everything after `waiting` is terminal and never changes."""

    CREATED = "created"
    RUNNING = "running"
    WAITING = "waiting"
    COMPLETED = "completed"
    BLOCKED = "blocked"
    FAILED = "failed"
    CANCELLED = "cancelled"
    TIMED_OUT = "timed_out"

    @property
    def terminal(self) -> bool:
        """Whether the task has settled."""
        return self not in OPEN


OPEN = frozenset({TaskState.CREATED, TaskState.RUNNING, TaskState.WAITING})

RETURN_CODES = {
    TaskState.COMPLETED: 0,
    TaskState.FAILED: 1,
    TaskState.BLOCKED: 2,
    TaskState.TIMED_OUT: 124,
    TaskState.CANCELLED: 130,
}
"""The return code that a settlement carries, for shells and process supervisors."""


class Move(NamedTuple):
    """One row of the table: `event` takes a task from any of `sources` to `target`."""

    event: str
    sources: frozenset[TaskState]
    target: TaskState
    mover: str


def _from(*states: TaskState) -> frozenset[TaskState]:
    return frozenset(states)


MOVES = (
    Move("taken", _from(TaskState.CREATED), TaskState.RUNNING, "take, show"),
    Move(
        "asked",
        _from(TaskState.CREATED, TaskState.RUNNING),
        TaskState.WAITING,
        "its owner or the parent",
    ),
    Move("released", _from(TaskState.WAITING), TaskState.RUNNING, "reply, scheduler, parent"),
    Move("unanswered", _from(TaskState.WAITING), TaskState.BLOCKED, "scheduler"),
    Move("gave_up", OPEN, TaskState.BLOCKED, "its owner"),
    Move("broke", OPEN, TaskState.FAILED, "its owner, runner, scheduler"),
    Move("finished", OPEN, TaskState.COMPLETED, "its owner"),
    Move("cancelled", OPEN, TaskState.CANCELLED, "parent"),
    Move("expired", OPEN, TaskState.TIMED_OUT, "scheduler"),
)
"""Every legal move of a task. `finished` from `waiting` needs a reason (`override_reason`)."""
