"""What is told with each host: its agent is woken, comes to what arrives while it works, asks, and
finishes. The agent's model is a script, its parent is this process."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Protocol, TypeVar

from tests.hosts.model import Heard, Model, Use, ids
from tocsin.broker import Parent, TaskState

LONGEST = 60.0

T = TypeVar("T")


class Host(Protocol):
    """A host that runs, as the story sees it."""

    @property
    def idle(self) -> bool:
        """Whether no run is under way."""

    @property
    def runs(self) -> int:
        """How many runs have begun."""

    @property
    def said(self) -> str:
        """The last that it said, for whoever looks why it does not go on."""


def until(found: Callable[[], T], what: str, host: Host | None = None) -> T:
    """The first true value, within a minute."""
    end = time.monotonic() + LONGEST
    while not (value := found()):
        if time.monotonic() > end:
            last = "" if host is None else f"\nthe host said: {host.said}"
            raise TimeoutError(f"waited {LONGEST:g} s for {what}{last}")
        time.sleep(0.01)
    return value


class Agent:
    """What the model of scout does: it reads its mail whenever it is told of some, and obeys."""

    def __init__(self, gate: Path, prefix: str) -> None:
        """`prefix` is what the host puts before the names of our tools."""
        self._gate = gate
        self._prefix = prefix

    def _use(self, tool: str, **arguments: object) -> Use:
        return Use(self._prefix + tool, arguments)

    def __call__(self, heard: list[Heard], tools: set[str]) -> Use | str:
        last = heard[-1]
        if last.role == "user":
            return self._use("inbox") if "Tocsin" in last.text else "Done."
        if last.role != "tool":
            raise ValueError(f"a conversation ends with {last.role}")
        text = last.text
        if "Validation failed" in text or "MCP error" in text:
            raise ValueError(text)
        if re.search(r"^task msg_", text, re.MULTILINE):
            return self._use("ask", to="parent", body="Which backoff?", **_task(text))
        if "Exponential" in text:
            asked = next(each.text for each in reversed(heard) if ids("task", each.text))
            summary = {"outcome": "completed", "summary": "Exponential backoff"}
            return self._use("done", **summary, **_task(asked))
        if "pending" in text:
            return self._use("ask_wait", ask_id=ids("msg", text)[0])
        if "be busy" in text and "message msg_" in text:
            wait = f"until [ -e {self._gate} ]; do sleep 0.05; done; echo the gate is open"
            return Use("bash", {"command": wait, "description": "Waits for the gate"})
        if "the gate is open" in text:
            busy = next(each.text for each in reversed(heard) if "message msg_" in each.text)
            return self._use("ack", messages=ids("msg", busy))
        if "message msg_" in text or "notice msg_" in text:
            return self._use("ack", messages=ids("msg", text))
        return "Done."


def _task(text: str) -> dict[str, str]:
    return {"task": ids("task", text)[0]}


def wakes(parent: Parent, model: Model, host: Host, count: int) -> list[float]:
    """Message after message to an idle agent; each must reach its model, and be dealt with."""
    took = []
    for number in range(count):
        until(lambda: host.idle, "the host to be idle", host)
        before, began = len(model.requests), time.monotonic()
        sent = parent.message("scout", f"number {number}")
        handled(parent, sent.message_id, host)
        took.append(model.requests[before][-1].at - began)
    return took


def handled(parent: Parent, message: str, host: Host) -> None:
    """Waits until a message is acked."""
    until(lambda: parent.receipt(message).state == "handled", f"{message} to be acked", host)


def follow_up(parent: Parent, host: Host, gate: Path) -> None:
    """What comes while it works waits for the end of the run, or is shown in it; none begins one
    of its own."""
    until(lambda: host.idle, "the host to be idle", host)
    first = parent.message("scout", "be busy")
    until(lambda: parent.receipt(first.message_id).shown_at, "the first to be shown", host)
    run, second = host.runs, parent.message("scout", "and then this")
    until(lambda: _is_taken(parent, second.message_id), "the follow-up to be queued", host)
    third = parent.message("scout", "look here first", delivery="steer")
    until(lambda: parent.receipt(third.message_id).shown_at, "the steering message", host)
    gate.touch()
    for sent in (first, second, third):
        handled(parent, sent.message_id, host)
    assert host.runs == run, "it came as a run of its own"


def _is_taken(parent: Parent, message: str) -> bool:
    return any(each.ok for each in parent.receipt(message).wake)


def task(parent: Parent, host: Host) -> str:
    """It takes a task, asks its parent, is answered, and finishes."""
    until(lambda: host.idle, "the host to be idle", host)
    handed = parent.delegate("scout", "Find how to retry")
    mail = parent.next_turn(timeout=LONGEST)
    assert mail is not None, "no question came"
    [question] = [each for each in mail if each.kind == "request"]
    assert question.body == "Which backoff?" and question.task_id == handed.id
    parent.reply(question, "Exponential")
    mail.ack()
    [settled] = parent.wait(handed.id, timeout=LONGEST)
    assert parent.task(handed.id).state is TaskState.COMPLETED
    return str(settled.summary)


def written(path: Path, document: Mapping[str, object]) -> None:
    """A settings file of a host."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(document))
