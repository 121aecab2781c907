"""Herds: open, set, close, look at. Operation -> `Call`; no I/O."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, get_args

from tocsin.broker.caller import Caller, Fleet, word
from tocsin.broker.envelopes import AgentInfo, JournalEntry
from tocsin.broker.errors import InvalidInput
from tocsin.broker.ids import make_id
from tocsin.broker.masking import shown
from tocsin.broker.records import pairs, read_agent, read_journal, read_whole
from tocsin.broker.scripts import Call, call
from tocsin.broker.settings import HerdSettings, from_record, to_record
from tocsin.broker.settings_files import Resolved, Source
from tocsin.broker.ties import Listed, read_listed
from tocsin.broker.validation import check_count
from tocsin.broker.versions import MINE, SCHEMA

SWEEP = 100
"""How many tasks, requests and envelopes one pass of closing ends."""

_ENTRY = re.compile(r"[0-9]{1,15}-[0-9]{1,15}")
_LAYERS = get_args(Source)


@dataclass(frozen=True)
class HerdRecord:
    """A herd's record: its state and the settings in force, each with where it came from."""

    herd: str
    state: str
    settings: HerdSettings
    sources: dict[str, str]
    under: str | None = None
    """The agent of another herd that leads this one, as `herd/agent`."""


@dataclass(frozen=True)
class FleetRecord:
    """What the fleet agreed on at its first use."""

    partitions: int
    base: int | None
    factor: float | None
    schema: int


def read_record(herd: str, flat: list[str]) -> HerdRecord:
    """The herd of a herd record."""
    record = pairs(flat)
    return HerdRecord(
        herd,
        record["state"],
        from_record(record),
        json.loads(record["sources"]),
        record.get("under"),
    )


def open_fleet(key: str, partitions: int, factor: float | None) -> Call[FleetRecord]:
    """Agrees on the fleet's shape, or learns it."""

    def read(answer: list[Any]) -> FleetRecord:
        base, speed = answer[2], answer[3]
        return FleetRecord(
            int(answer[1]),
            int(base) if base else None,
            float(speed) if speed else None,
            int(answer[4]),
        )

    factor_text = "" if factor is None else repr(factor)
    return call(
        "fleet_open",
        read,
        operation="connect",
        key=key,
        partitions=partitions,
        factor=factor_text,
        schema=SCHEMA,
    )


def open_herd(
    caller: Caller,
    resolved: Resolved[HerdSettings],
    given: HerdSettings,
    *,
    reopening: bool,
    under: Mapping[str, str] | None = None,
) -> Call[HerdRecord]:
    """Opens the herd with the resolved settings, or reopens it changing only the given ones.

    `under`: the fields of a `Leader`; of a herd that is reopened, `under` alone, or none.
    """
    return caller.call(
        "herd_open",
        "open_herd",
        lambda answer: read_record(caller.herd, answer[1]),
        version=str(MINE),
        reopening=int(reopening),
        settings=json.dumps(to_record(resolved.settings)),
        given=json.dumps(to_record(given, only_given=True)),
        sources=json.dumps(dict(resolved.sources)),
        under=json.dumps(dict(under)) if under else "",
    )


def set_settings(caller: Caller, given: object, source: object) -> Call[HerdRecord]:
    """Changes the given settings of the open herd, which come from the layer `source`."""
    op = "set_settings"
    if not isinstance(given, HerdSettings):
        raise InvalidInput(op, f"settings must be HerdSettings, not {shown(given)}")
    if not (isinstance(source, str) and source in _LAYERS):
        raise InvalidInput(op, f"source must be one of {', '.join(_LAYERS)}, not {shown(source)}")
    return caller.call(
        "herd_set",
        op,
        lambda answer: read_record(caller.herd, answer[1]),
        call=make_id("call"),
        given=json.dumps(to_record(given, only_given=True)),
        source=source,
    )


def read_herd(caller: Caller) -> Call[HerdRecord]:
    """The herd's record."""
    return caller.call("herd_read", "herd", lambda answer: read_record(caller.herd, answer[1]))


def close_herd(caller: Caller) -> Call[bool]:
    """One pass of closing the herd; True once it is closed."""
    return caller.call(
        "herd_close", "close_herd", lambda answer: word(answer) == "closed", limit=SWEEP
    )


def roster(caller: Caller) -> Call[list[AgentInfo]]:
    """Every agent of the herd, without those whose records are damaged."""
    return caller.call(
        "roster", "roster", lambda answer: read_whole(caller.herd, "agent", answer[1:], read_agent)
    )


def journal(caller: Caller, after: object, limit: object) -> Call[list[JournalEntry]]:
    """The newest lines of the herd's history, or those after a given one; oldest first."""
    if after is not None and not (isinstance(after, str) and _ENTRY.fullmatch(after)):
        raise InvalidInput("journal", f"after {shown(after)} is not the id of a journal entry")
    return caller.call(
        "journal_read",
        "journal",
        lambda answer: [read_journal(row) for row in answer[1:]],
        after="" if after is None else after,
        limit=check_count("journal", "limit", limit, 10_000),
    )


def list_herds(fleet: Fleet, partition: str) -> Call[list[Listed]]:
    """The herds of one partition. For the operator."""
    return call(
        "herd_list",
        lambda answer: [read_listed(row) for row in answer[1:]],
        operation="herds",
        key=partition,
        clock=fleet.clock_argument,
        herd="",
    )
