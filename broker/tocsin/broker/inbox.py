"""Mail: take, show, ack, give back, bury. Operation -> `Call`; no I/O."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from tocsin.broker.caller import Caller
from tocsin.broker.envelopes import Envelope, Receipt, Waiting
from tocsin.broker.errors import InvalidEnvelope, InvalidInput
from tocsin.broker.ids import make_id
from tocsin.broker.records import pairs, read_envelope, read_receipt, read_waiting
from tocsin.broker.requests import check_message
from tocsin.broker.scripts import Call
from tocsin.broker.validation import (
    check_count,
    check_duration,
    check_flag,
    check_line,
    check_path,
    check_text,
    printable,
)

MOST = 1_000
"""The most envelopes one call takes, shows or acks."""


class Held(NamedTuple):
    """An envelope in hand, with the delivery it came by: the fence of its ack."""

    envelope: Envelope
    entry: str


class Spoilt(NamedTuple):
    """An envelope in hand whose record cannot be read, and why."""

    message_id: str
    entry: str
    error: InvalidEnvelope


@dataclass(frozen=True)
class Taken:
    """What one instance took; `more` says that more mail which wakes is unread."""

    mail: tuple[Held, ...] = ()
    spoilt: tuple[Spoilt, ...] = ()
    more: bool = False


class Inbox(Sequence[Envelope]):
    """Mail that was shown, not taken, as a sequence; `remaining` is how much more there is."""

    def __init__(self, envelopes: Sequence[Envelope], remaining: int) -> None:
        self._envelopes = tuple(envelopes)
        self.remaining = remaining

    def __getitem__(self, index: Any) -> Any:
        return self._envelopes[index]

    def __len__(self) -> int:
        return len(self._envelopes)

    def __repr__(self) -> str:
        return f"Inbox({len(self)} shown, {self.remaining} more)"


class Shown(NamedTuple):
    """What was shown, and what could not be because its record cannot be read."""

    inbox: Inbox
    spoilt: tuple[Spoilt, ...]


class Acked(NamedTuple):
    """How many envelopes were settled, and the ids of those another instance has by now."""

    settled: int
    fenced: tuple[str, ...]


def _held(operation: str, herd: str, flat: list[str]) -> Held | Spoilt:
    record = pairs(flat)
    try:
        return Held(read_envelope(herd, record), record["entry"])
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        why = f"the record of {record['id']} cannot be read: {type(error).__name__}: {error}"
        return Spoilt(record["id"], record["entry"], InvalidEnvelope(operation, why[:500]))


def _sorted(
    operation: str, herd: str, rows: list[list[str]]
) -> tuple[tuple[Held, ...], tuple[Spoilt, ...]]:
    """The mail of an answer that can be read, and what cannot."""
    mail = [_held(operation, herd, row) for row in rows]
    return (
        tuple(item for item in mail if isinstance(item, Held)),
        tuple(item for item in mail if isinstance(item, Spoilt)),
    )


def take(
    caller: Caller, operation: str, mode: str, limit: object, turn: str | None = None
) -> Call[Taken]:
    """Takes unread mail; in mode `turn` nothing unless something wakes.

    `turn` is the id of this taking: the same again, when its answer was lost, gets the same mail.
    """

    def read(answer: list[Any]) -> Taken:
        if answer[0] == "empty":
            return Taken()
        return Taken(*_sorted(operation, caller.herd, answer[2:]), int(answer[1]) > 0)

    size = check_count(operation, "limit", limit, MOST)
    return caller.call(
        "inbox_take", operation, read, mode=mode, limit=size, turn=turn or make_id("turn")
    )


def show(caller: Caller, limit: object, messages: Sequence[object] | None = None) -> Call[Shown]:
    """Shows unread mail, or of it these messages alone."""

    def read(answer: list[Any]) -> Shown:
        mail, spoilt = _sorted("inbox", caller.herd, answer[2:])
        return Shown(Inbox([item.envelope for item in mail], int(answer[1])), spoilt)

    size = check_count("inbox", "limit", limit, MOST)
    only = [check_message("inbox", each) for each in messages or ()]
    return caller.call("inbox_show", "inbox", read, limit=size, only=json.dumps(only))


def look(caller: Caller, limit: object) -> Call[list[Waiting]]:
    """Says what is unread, and touches nothing."""
    return caller.call(
        "inbox_look",
        "look",
        lambda answer: [read_waiting(row) for row in answer[1:]],
        limit=check_count("look", "limit", limit, MOST),
    )


def report_wake(
    caller: Caller,
    path: object,
    ok: object,
    messages: Sequence[object],
    detail: object,
    ago: object,
) -> Call[None]:
    """Notes a try to wake the caller."""
    op = "report_wake"
    if isinstance(messages, str) or not 0 < len(messages) <= MOST:
        raise InvalidInput(op, f"messages must be a list of 1 to {MOST} ids")
    return caller.call(
        "wake_report",
        op,
        lambda _: None,
        call=make_id("call"),
        path=check_path(op, "path", path),
        ok=check_flag(op, "ok", ok),
        messages=json.dumps(list(dict.fromkeys(check_message(op, each) for each in messages))),
        detail=check_line(op, "detail", detail, 500),
        ago=0 if ago is None else check_duration(op, "ago", ago),
    )


def _messages(operation: str, mail: Sequence[Held | object]) -> str:
    if not 0 < len(mail) <= MOST:
        raise InvalidInput(operation, f"name 1 to {MOST} messages, not {len(mail)}")
    wanted: dict[str, str] = {}
    for item in mail:
        if isinstance(item, Held):
            wanted[item.envelope.message_id] = item.entry
        else:
            wanted.setdefault(check_message(operation, item), "")
    return json.dumps(list(wanted.items()))


def _acked(answer: list[Any]) -> Acked:
    return Acked(int(answer[1]), tuple(answer[2:]))


def ack(caller: Caller, mail: Sequence[Held | object]) -> Call[Acked]:
    """Says that mail is handled."""
    return caller.call("inbox_ack", "ack", _acked, messages=_messages("ack", mail))


def nack(
    caller: Caller, mail: Sequence[Held | object], delay: object, error: object
) -> Call[Acked]:
    """Gives mail back, after a delay if one is given; an error counts as an attempt."""
    return caller.call(
        "inbox_nack",
        "nack",
        _acked,
        messages=_messages("nack", mail),
        delay=0 if delay is None else check_duration("nack", "delay", delay),
        error="" if error is None else check_text("nack", "error", error),
    )


def bury(caller: Caller, operation: str, mail: Sequence[Spoilt]) -> Call[None]:
    """Makes dead letters of what cannot be read, taken or shown, each with its error."""
    found = [(item.message_id, item.entry, printable(item.error.detail)) for item in mail]
    return caller.call("inbox_bury", operation, lambda _: None, messages=json.dumps(found))


def receipt(caller: Caller, message: object) -> Call[Receipt]:
    """How far an envelope got."""
    message_id = check_message("receipt", message)
    return caller.call(
        "message_read",
        "receipt",
        lambda answer: read_receipt(message_id, answer[1]),
        message=message_id,
    )
