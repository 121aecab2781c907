"""Tasks: delegate, settle, watch, look at. Operation -> `Call`; no I/O."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from tocsin.broker.caller import Caller, digest
from tocsin.broker.envelopes import Delegated, Outcome, Settlement, Task, Wake
from tocsin.broker.errors import InvalidInput
from tocsin.broker.ids import make_id
from tocsin.broker.records import read_delegated, read_task, read_whole
from tocsin.broker.scripts import Call
from tocsin.broker.states import TaskState
from tocsin.broker.validation import (
    check_choice,
    check_count,
    check_deadline,
    check_flag,
    check_id,
    check_name,
    check_text,
)

MOST_NAMED = 1_000
"""How many tasks one call may name, and the most one listing returns."""


def delegate(
    caller: Caller,
    agent: object,
    description: object,
    *,
    deadline: object,
    watch: object,
    queue: object,
    continues: object,
    key: str | None,
) -> Call[Delegated]:
    """Gives a child a task."""
    op = "delegate"
    name = check_name(op, "agent", agent)
    text = check_text(op, "description", description)
    lasts, ends = ("", "") if deadline is None else check_deadline(op, "deadline", deadline)
    earlier = "" if continues is None else check_id(op, "continues", continues, "task")
    flags = check_flag(op, "watch", watch), check_flag(op, "queue", queue)
    task_id = caller.new_id("task", op, key)
    return caller.call(
        "task_delegate",
        op,
        lambda answer: read_delegated(task_id, answer[1], answer[2]),
        task=task_id,
        child=name,
        description=text,
        lasts=lasts,
        ends=ends,
        watch=flags[0],
        queue=flags[1],
        continues=earlier,
        digest=digest(child=name, text=text, lasts=lasts, ends=ends, flags=flags, after=earlier),
    )


def _settled(task_id: str, answer: list[Any]) -> Settlement:
    settlement = read_task(task_id, answer[1], answer[2]).settlement
    assert settlement is not None
    return settlement


def done(
    caller: Caller,
    task: object,
    outcome: object,
    *,
    summary: object,
    error: object,
    override_reason: object,
) -> Call[Settlement]:
    """Settles the caller's own task, or returns how it was settled before."""
    op = "done"
    task_id = check_id(op, "task", task, "task")
    how = check_choice(op, "outcome", outcome, Outcome)
    texts = {
        "summary": check_text(op, "summary", "" if summary is None else summary, empty=True),
        "error": check_text(op, "error", "" if error is None else error, empty=True),
    }
    reason = "" if override_reason is None else check_text(op, "override_reason", override_reason)
    return caller.call(
        "task_done",
        op,
        lambda answer: _settled(task_id, answer),
        task=task_id,
        outcome=how,
        override=reason,
        digest=digest(outcome=how, override=reason, **texts),
        **texts,
    )


def cancel(caller: Caller, task: object, reason: object) -> Call[Settlement]:
    """Cancels a task, or returns how it was settled before."""
    task_id = check_id("cancel", "task", task, "task")
    return caller.call(
        "task_cancel",
        "cancel",
        lambda answer: _settled(task_id, answer),
        task=task_id,
        reason=check_text("cancel", "reason", "" if reason is None else reason, empty=True),
    )


def _named(operation: str, tasks: Sequence[object]) -> list[str]:
    if not tasks:
        raise InvalidInput(operation, "name at least one task")
    if len(tasks) > MOST_NAMED:
        raise InvalidInput(operation, f"{len(tasks)} tasks are named and the limit is {MOST_NAMED}")
    return list(dict.fromkeys(check_id(operation, "task", task, "task") for task in tasks))


def watch(caller: Caller, tasks: Sequence[object], wake: object) -> Call[list[Settlement]]:
    """Has settlements wake the parent; those of tasks that have settled already."""
    ids = _named("watch", tasks)

    def read(answer: list[Any]) -> list[Settlement]:
        return [_settled(row[0], [None, row[1], []]) for row in answer[1:]]

    return caller.call(
        "task_watch",
        "watch",
        read,
        tasks=json.dumps(ids),
        wake=check_choice("watch", "wake", wake, Wake),
        watch=make_id("watch"),
    )


def named(caller: Caller, tasks: Sequence[object], operation: str = "task") -> Call[list[Task]]:
    """The tasks with these ids, in the order given."""

    def read(answer: list[Any]) -> list[Task]:
        return [read_task(*row) for row in answer[1:]]

    return caller.call("task_read", operation, read, tasks=json.dumps(_named(operation, tasks)))


def listing(caller: Caller, state: object, limit: object) -> Call[list[Task]]:
    """The newest tasks, of one state or of all; without those whose records are damaged."""
    return caller.call(
        "task_list",
        "tasks",
        lambda answer: read_whole(caller.herd, "task", answer[1:], lambda row: read_task(*row)),
        state="" if state is None else check_choice("tasks", "state", state, TaskState),
        limit=check_count("tasks", "limit", limit, MOST_NAMED),
    )
