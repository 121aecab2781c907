"""Dead letters, and mail that an operator takes from who holds it. Operation -> `Call`; no I/O."""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import datetime
from typing import Any

from tocsin.broker.caller import Caller
from tocsin.broker.clock import from_ms
from tocsin.broker.envelopes import Model
from tocsin.broker.ids import make_id
from tocsin.broker.records import pairs
from tocsin.broker.requests import check_message
from tocsin.broker.scripts import Call
from tocsin.broker.validation import check_count

MOST = 1_000
"""The most dead letters that one listing has."""


class DeadLetter(Model):
    """Mail that nobody will be given any more, and why.

    What is stored may be broken, so all of it is text: `kind` and `sender` are None for what was no
    message at all, and `body` and `data` (JSON, if it is whole) are as they were found; a listing
    leaves them out. `obstacle` says why it cannot be replayed and what to do instead; None: it can.
    """

    message_id: str
    kind: str | None
    sender: str | None
    recipient: str | None
    task_id: str | None
    reason: str
    error: str | None
    attempts: int
    accepted_at: datetime | None
    taken_at: datetime | None
    died_at: datetime | None
    request: str | None
    """What became of a question's wait."""
    obstacle: str | None
    body: str | None = None
    data: str | None = None


class Replayed(Model):
    """A dead letter that is mail again. A question's wait stays as `request` says that it ended:
    an answer to it comes as late mail."""

    message_id: str
    recipient: str
    request: str | None


class HandedBack(Model):
    """Mail taken from the instance `held_by`; `withdrawn`, if what it asks for has ended."""

    message_id: str
    held_by: str
    withdrawn: bool


class DeadLetters(Sequence[DeadLetter]):
    """Dead letters, newest first, as a sequence; `remaining` is how many more there are."""

    def __init__(self, letters: Sequence[DeadLetter], remaining: int) -> None:
        self._letters = tuple(letters)
        self.remaining = remaining

    def __getitem__(self, index: Any) -> Any:
        return self._letters[index]

    def __len__(self) -> int:
        return len(self._letters)

    def __repr__(self) -> str:
        return f"DeadLetters({len(self)} listed, {self.remaining} more)"


def _stored_number(value: str | None) -> int | None:
    return int(value) if value and re.fullmatch(r"[0-9]{1,15}", value) else None


def _stored_time(value: str | None) -> datetime | None:
    number = _stored_number(value)
    return None if number is None else from_ms(number)


def _read_letter(message_id: str, flat: list[str], obstacle: str) -> DeadLetter:
    """The dead letter of a record, of which nothing but its being one is certain."""
    record = pairs(flat)
    return DeadLetter(
        message_id=message_id,
        kind=record.get("kind") or None,
        sender=record.get("sender") or None,
        recipient=record.get("to") or None,
        task_id=record.get("task") or None,
        reason=record.get("reason") or "its record is gone",
        error=record.get("error") or None,
        attempts=_stored_number(record.get("attempts")) or 0,
        accepted_at=_stored_time(record.get("accepted_at")),
        taken_at=_stored_time(record.get("taken_at")),
        died_at=_stored_time(record.get("ended_at")),
        request=record.get("request") or None,
        obstacle=obstacle or None,
        body=record.get("body"),
        data=record.get("data"),
    )


def listing(caller: Caller, before: object, limit: object) -> Call[DeadLetters]:
    """The herd's dead letters, or those older than `before`."""

    def read(answer: list[Any]) -> DeadLetters:
        return DeadLetters([_read_letter(*row) for row in answer[2:]], int(answer[1]))

    return caller.call(
        "dead_list",
        "dead_letters",
        read,
        before="" if before is None else check_message("dead_letters", before),
        limit=check_count("dead_letters", "limit", limit, MOST),
    )


def show(caller: Caller, message: object) -> Call[DeadLetter]:
    """One dead letter, whole."""
    message_id = check_message("dead_letter", message)
    return caller.call(
        "dead_read",
        "dead_letter",
        lambda answer: _read_letter(message_id, answer[1], answer[2]),
        message=message_id,
    )


def replay(caller: Caller, message: object) -> Call[Replayed]:
    """Makes a dead letter mail again. The call has an id: a repeat of it, its answer lost, is told
    what it did, and does not replay what died once more meanwhile."""
    message_id = check_message("replay", message)
    return caller.call(
        "dead_replay",
        "replay",
        lambda answer: Replayed(
            message_id=message_id, recipient=answer[1], request=answer[2] or None
        ),
        message=message_id,
        replay=make_id("call"),
    )


def drop(caller: Caller, message: object) -> Call[None]:
    """Takes a dead letter off the list."""
    return caller.call("dead_drop", "drop", lambda _: None, message=check_message("drop", message))


def hand_back(caller: Caller, message: object) -> Call[HandedBack]:
    """Takes mail from the instance that holds it, and a repeat of the call from nobody else."""
    message_id = check_message("hand_back", message)
    return caller.call(
        "message_hand_back",
        "hand_back",
        lambda answer: HandedBack(
            message_id=message_id, held_by=answer[1], withdrawn=answer[2] == "withdrawn"
        ),
        message=message_id,
        call=make_id("call"),
    )
