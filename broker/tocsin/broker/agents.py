"""Agents and their instances: register, join, renew, leave, close. Operation -> `Call`; no I/O."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tocsin.broker.caller import Caller, word
from tocsin.broker.envelopes import Seat, SessionInfo, SessionState, Status
from tocsin.broker.errors import InvalidInput
from tocsin.broker.herds import SWEEP, HerdRecord, read_record
from tocsin.broker.ids import PARENT, hash_token, make_id
from tocsin.broker.records import read_session
from tocsin.broker.runners import check_runner
from tocsin.broker.scripts import Call
from tocsin.broker.settings import from_record
from tocsin.broker.validation import (
    check_choice,
    check_flag,
    check_fraction,
    check_line,
    check_name,
    check_path,
    check_text,
)
from tocsin.broker.versions import MINE

_PATHS = 10
"""The most paths by which a session offers to be woken."""

TURNING = "turning"
"""What an instance notes of the loops of its process while all of them turn."""


@dataclass(frozen=True)
class Joined:
    """What an instance learns when it starts."""

    generation: int
    herd: HerdRecord


def register(
    caller: Caller,
    agent: object,
    token: str,
    role: object,
    label: object,
    exist_ok: object,
    runner: object = None,
) -> Call[Seat]:
    """Registers a child under this token."""
    name = check_name("register", "agent", agent)
    if name == PARENT:
        raise InvalidInput("register", "agent 'parent' is the herd's own; take another name")

    def read(answer: list[Any]) -> Seat:
        made = token if word(answer) == "registered" else None
        return Seat(herd=caller.herd, agent=name, generation=int(answer[1]), token=made)

    return caller.call(
        "agent_register",
        "register",
        read,
        child=name,
        child_token=hash_token(token),
        role=check_line("register", "role", role),
        label=check_line("register", "label", label, 1024),
        exist_ok=check_flag("register", "exist_ok", exist_ok),
        runner=check_runner(runner),
    )


def rotate(caller: Caller, agent: object, token: str) -> Call[Seat]:
    """Gives an agent this token instead of the one it had."""
    name = check_name("rotate", "agent", agent)
    return caller.call(
        "agent_rotate",
        "rotate",
        lambda answer: Seat(herd=caller.herd, agent=name, generation=int(answer[1]), token=token),
        target=name,
        new_token=hash_token(token),
    )


def close(caller: Caller, agent: object, reason: object) -> Call[bool]:
    """One pass of closing a child; True once it is closed."""
    return caller.call(
        "agent_close",
        "close",
        lambda answer: word(answer) == "closed",
        target=check_name("close", "agent", agent),
        reason=check_text("close", "reason", "" if reason is None else reason, empty=True),
        limit=SWEEP,
    )


def join(caller: Caller, *, renewed: bool = True) -> Call[Joined]:
    """Starts the caller's instance, whose lease its process renews from here on, or does not."""

    def read(answer: list[Any]) -> Joined:
        return Joined(int(answer[1]), read_record(caller.herd, answer[2]))

    loops = TURNING if renewed else ""
    return caller.call("instance_join", "join", read, version=str(MINE), loops=loops)


def renew(caller: Caller, *, loops: str = TURNING) -> Call[float]:
    """Renews the caller's lease; in how many seconds to do it again, by the settings of now.

    `loops` is what keeps one of its process's loops from turning, if something does.
    """

    def read(answer: list[Any]) -> float:
        settings = from_record(dict(zip(("lease", "lease_renewal"), answer[1:], strict=False)))
        return settings.renews_every.total_seconds()

    return caller.call("instance_renew", "renew", read, version=str(MINE), loops=loops)


def leave(caller: Caller, *, died: bool = False) -> Call[bool]:
    """Ends the caller's instance and hands back what it holds; True once nothing is left."""
    return caller.call(
        "instance_leave", "leave", lambda answer: word(answer) == "left", died=int(died)
    )


def set_status(caller: Caller, status: object) -> Call[None]:
    """Says what the agent's process does."""
    value = check_choice("set_status", "status", status, Status)
    return caller.call(
        "agent_status", "set_status", lambda _: None, call=make_id("call"), status=value
    )


def report_session(
    caller: Caller, host: object, session: object, state: object, paths: Sequence[object]
) -> Call[list[SessionInfo]]:
    """Says how a session of a host stands; the other live ones on the seat."""
    op = "report_session"
    if isinstance(paths, str) or len(paths) > _PATHS:
        raise InvalidInput(op, f"paths must be a list of at most {_PATHS} names")
    if not session:
        raise InvalidInput(op, "session is empty; give the id by which its host knows it")
    offered = list(dict.fromkeys(check_path(op, "path", path) for path in paths))
    return caller.call(
        "session_report",
        op,
        lambda answer: [read_session(row) for row in answer[1:]],
        host=check_path(op, "host", host),
        session=check_line(op, "session", session),
        state=check_choice(op, "state", state, SessionState),
        paths=" ".join(offered),
    )


def progress(caller: Caller, text: object, fraction: object) -> Call[None]:
    """Says how far the agent is."""
    return caller.call(
        "agent_progress",
        "progress",
        lambda _: None,
        call=make_id("call"),
        text=check_text("progress", "text", text),
        fraction=check_fraction("progress", "fraction", fraction),
    )
