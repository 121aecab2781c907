"""Asks: open, wait on, confirm, leave. Operation -> `Call`; no I/O."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from tocsin.broker.caller import Caller, digest, word
from tocsin.broker.clock import from_ms
from tocsin.broker.envelopes import Reply
from tocsin.broker.errors import (
    AgentClosed,
    BrokerError,
    CeilingActive,
    InvalidInput,
    NoReply,
    RequestCancelled,
)
from tocsin.broker.ids import make_id
from tocsin.broker.probing import encode_totals
from tocsin.broker.rendering import silence
from tocsin.broker.scripts import Call
from tocsin.broker.validation import (
    check_data,
    check_duration,
    check_id,
    check_line,
    check_name,
    check_text,
)

SHORTEST, LONGEST = timedelta(milliseconds=1), timedelta(days=7)
"""No window or ceiling of an ask is shorter, or longer."""


@dataclass(frozen=True)
class Pending:
    """The ask is open. All in real seconds."""

    next: float
    """Until its next timer is due."""
    window: float
    """How long its window is."""
    ceiling: float
    """Until it ends at the latest."""


@dataclass(frozen=True)
class Ended:
    """The ask ended without an answer."""

    error: BrokerError


Outcome = Reply | Pending | Ended


def check_span(field: str, value: object) -> str:
    """A window or ceiling: above 0, at most 7 days; empty is the herd's own."""
    if value is None:
        return ""
    if isinstance(value, timedelta) and not SHORTEST <= value <= LONGEST:
        raise InvalidInput("ask", f"{field} must be above 0 (1 ms or more) and at most 7 days")
    return str(check_duration("ask", field, value))


def _ended(request: str, answer: list[Any]) -> BrokerError:
    how, reason, limit, target, state, task, window, opened, ceiling = answer[1:]
    if how in ("no_reply", "ceiling_active"):
        span = int(ceiling) - int(opened)
        text = silence(how, request, target, reason, limit, int(window), span)
        if how == "no_reply":
            return NoReply("ask", text, request, reason, limit)
        return CeilingActive("ask", text, request)
    if how == "agent_closed":
        return AgentClosed("ask", f"agent {target} was closed before it answered {request}")
    why = {"settled": f"its task {task} is {state}", "dead": "it was dead-lettered"}
    text = why.get(how, "it was cancelled")
    return RequestCancelled("ask", f"ask {request} to {target} ended without an answer: {text}")


def _outcome(request: str, answer: list[Any]) -> Outcome:
    how = word(answer)
    if how == "pending":
        return Pending(*(int(ms) / 1000 for ms in answer[1:]))
    if how != "answered":
        return Ended(_ended(request, answer))
    message_id, sender, body, data, late, opened, answered, extensions = answer[1:]
    return Reply(
        message_id=message_id,
        request_id=request,
        sender=sender,
        body=body,
        data=json.loads(data) if data else {},
        late=late == "1",
        created_at=from_ms(answered),
        waited=from_ms(answered) - from_ms(opened),
        extensions=int(extensions),
    )


def open_ask(
    caller: Caller,
    to: object,
    body: object,
    *,
    request: str,
    call: str,
    task: object,
    window: object,
    ceiling: object,
    totals: str,
    thread: object,
    data: Mapping[str, Any] | None,
) -> Call[Outcome]:
    """Opens an ask under the id `request`, or joins the one that has it; `totals` of a `Watch`."""
    op = "ask"
    content = {
        "to": check_name(op, "to", to),
        "body": check_text(op, "body", body),
        "data": check_data(op, "data", data),
        "task": "" if task is None else check_id(op, "task", task, "task"),
        "thread": check_line(op, "thread", thread),
    }
    return caller.call(
        "ask_open",
        op,
        lambda answer: _outcome(request, answer),
        message=request,
        call=call,
        window=check_span("window", window),
        ceiling=check_span("ceiling", ceiling),
        totals=totals,
        digest=digest(**content),
        **content,
    )


def look(caller: Caller, request: str, call: str, totals: str) -> Call[Outcome]:
    """Waits on: what has come of the ask; `totals` of a `Watch`."""
    return caller.call(
        "ask_look",
        "ask",
        lambda answer: _outcome(request, answer),
        request=request,
        call=call,
        totals=totals,
    )


def confirm(caller: Caller, request: str, call: str) -> Call[str | None]:
    """Takes the answer off the way it would else go, as mail; else the instance that has it."""
    return caller.call(
        "ask_confirm",
        "ask",
        lambda answer: answer[1] if word(answer) == "elsewhere" else None,
        request=request,
        call=call,
    )


def leave(caller: Caller, request: str, call: str, *, told: bool) -> Call[None]:
    """Stops waiting, `told` how the ask ended or not; the request stays answerable."""
    return caller.call(
        "ask_leave", "ask", lambda _: None, request=request, call=call, told=int(told)
    )


def probe(caller: Caller, totals: Mapping[str, int]) -> Call[bool]:
    """Says what a probe of this agent's work has counted; whether that is activity."""
    return caller.call(
        "agent_probe",
        "probe",
        lambda answer: word(answer) == "active",
        call=make_id("call"),
        totals=encode_totals("probe", totals),
    )
