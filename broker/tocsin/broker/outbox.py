"""Mail between herds, as a scheduler forwards it from one partition to another. No I/O.

No script can reach both herds, so one takes what is due out of a herd's outbox (`take`), one offers
it to the other herd (`accept`, and `hear` for news of what became of earlier mail), one notes what
came of that (`note`). Whoever is killed in between, or does it a second time, changes nothing: the
outbox keeps an entry until it is noted, and the other herd judges each entry once.

These calls prove nobody by token, as those of timers and repair do not. They are the operator's:
whoever holds the server's url holds the fleet, and no operation of an agent leads here.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, NamedTuple

from tocsin.broker.caller import Fleet, word
from tocsin.broker.durations import MILLISECOND
from tocsin.broker.scripts import Call, call

TIE = "@tie"
"""What stands for a message in an entry that is of a herd under another."""


class News(NamedTuple):
    """What became of mail that the other herd had sent, or what a herd under another, or the one
    above, has to say (`TIE`); and the entry that says so."""

    entry: str
    number: str
    message_id: str
    what: str
    reason: str


class Mail(NamedTuple):
    """Mail for the other herd, and its entry."""

    entry: str
    envelope: dict[str, Any]

    @property
    def tries(self) -> int:
        """How often it had to wait."""
        return int(self.envelope.get("tries", 0))


@dataclass(frozen=True)
class Outbox:
    """What one herd has for another, oldest first; `opened`: which herd of its name it is."""

    herd: str
    other: str
    opened: str
    news: list[News]
    mail: list[Mail]


@dataclass(frozen=True)
class Taken:
    """Outboxes to see to now, and in how many seconds to look again."""

    outboxes: list[Outbox]
    next_in: float | None


class Outcome(NamedTuple):
    """What came of an entry: `forwarded`, `refused` or `later`, and why.

    Of a tie: `judged` (a claim, and how), `heeded`, `more` (it is carried again) or `gone`.
    """

    how: str
    why: str = ""


def take(fleet: Fleet, partition: str, limit: int, batch: int, patience: timedelta) -> Call[Taken]:
    """The outboxes of a partition that are due; nobody else gets them for as long as `patience`."""

    def read(answer: list[Any]) -> Taken:
        outboxes = [
            Outbox(
                herd,
                other,
                opened,
                [News(*each) for each in news],
                [Mail(entry, json.loads(text)) for entry, text in mail],
            )
            for herd, other, opened, news, mail in answer[2:]
        ]
        return Taken(outboxes, float(answer[1]) / 1000 if answer[1] else None)

    return call(
        "outbox_take",
        read,
        operation="forward",
        key=partition,
        clock=fleet.clock_argument,
        herd="",
        limit=limit,
        batch=batch,
        patience=patience // MILLISECOND,
    )


def accept(fleet: Fleet, outbox: Outbox) -> Call[list[Outcome]]:
    """Offers mail to the other herd; what came of each, up to the first that was not taken."""
    return call(
        "outbox_accept",
        lambda answer: [Outcome(*each) for each in answer[1:]],
        operation="forward",
        key=fleet.partition(outbox.other),
        clock=fleet.clock_argument,
        herd=outbox.other,
        origin=outbox.herd,
        opened=outbox.opened,
        mail=json.dumps([each.envelope for each in outbox.mail], ensure_ascii=False),
    )


def hear(fleet: Fleet, outbox: Outbox) -> Call[list[Outcome]]:
    """Tells the other herd what became of its mail, and what is new of ties; what came of each."""
    news = [(each.number, each.message_id, each.what, each.reason) for each in outbox.news]
    return call(
        "outbox_hear",
        lambda answer: [Outcome(*each) for each in answer[1:]],
        operation="forward",
        key=fleet.partition(outbox.other),
        clock=fleet.clock_argument,
        herd=outbox.other,
        origin=outbox.herd,
        news=json.dumps(news, ensure_ascii=False),
    )


def note(
    fleet: Fleet, outbox: Outbox, outcomes: Sequence[tuple[str, Outcome]], pause: timedelta
) -> Call[str]:
    """Notes what came of entries; the next of this pair of herds is tried after a pause."""
    return call(
        "outbox_note",
        word,
        operation="forward",
        key=fleet.partition(outbox.herd),
        clock=fleet.clock_argument,
        herd=outbox.herd,
        other=outbox.other,
        outcomes=json.dumps([(entry, *came) for entry, came in outcomes], ensure_ascii=False),
        pause=pause // MILLISECOND,
    )
