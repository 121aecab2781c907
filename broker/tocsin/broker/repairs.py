"""Repair, as a scheduler or an operator calls it: what is compared, and what was wrong. No I/O."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tocsin.broker.caller import Fleet
from tocsin.broker.scripts import Call, call

RECORDS = {"message": "m", "task": "t", "agent": "a", "reminded": "r", "herd": "h", "plan": "p"}
"""Kinds of keys that are records, which are the truth, and what the script calls them."""

INDEXES = (
    "waiting",
    "episodes",
    "tasks",
    "agents",
    "dead",
    "outbox",
    "plans",
    "due",
    "questions",
    "asked",
    "asking",
    "answers",
    "workload",
    "queue",
    "delayed",
    "waking",
    "leads",
    "turning",
    "held",
)
"""Kinds of keys each of whose entries names a record."""


@dataclass(frozen=True)
class Finding:
    """Something that did not agree with the record it belongs to."""

    herd: str
    what: str
    """The kind of index, timer or mail that it was; `broken` for what cannot be read."""
    id: str
    why: str = ""
    """What the server said of what cannot be read."""


@dataclass(frozen=True)
class Index:
    """An index of a herd, or the rest of one: its kind, whose it is, from where on."""

    kind: str
    owner: str = ""
    cursor: str = "0"


@dataclass(frozen=True)
class Compared:
    """What a comparison found, and the indexes of which there is more to compare."""

    findings: list[Finding]
    more: list[Index]


def compare(
    fleet: Fleet,
    herd: str,
    records: Sequence[tuple[str, ...]],
    indexes: Sequence[Index],
    *,
    mend: bool,
) -> Call[Compared]:
    """Compares records of one herd (each a kind of `RECORDS` and its names) and its indexes.

    What differs is put right if `mend`, and told either way. Anybody may repeat it at any time:
    what agrees is left alone.
    """

    def read(answer: list[Any]) -> Compared:
        findings = [Finding(herd, *found) for found in answer[2:]]
        return Compared(findings, [Index(*rest) for rest in answer[1]])

    return call(
        "herd_repair",
        read,
        operation="repair",
        key=fleet.partition(herd),
        clock=fleet.clock_argument,
        herd=herd,
        mend=int(mend),
        records=json.dumps([(RECORDS[kind], *names) for kind, *names in records]),
        indexes=json.dumps([(each.kind, each.owner, each.cursor) for each in indexes]),
    )
