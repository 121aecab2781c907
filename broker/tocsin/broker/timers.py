"""Timers, as a scheduler sees them: which herds are due, and firing them. No I/O."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from tocsin.broker import keys
from tocsin.broker.caller import Fleet
from tocsin.broker.envelopes import pairs
from tocsin.broker.scripts import Call, call


def visit(fleet: Fleet, herd: str, limit: int) -> Call[dict[str, int]]:
    """Fires what is due in one herd; how many of each duty."""

    def read(answer: list[Any]) -> dict[str, int]:
        return {duty: int(count) for duty, count in pairs(answer[1:]).items()}

    return call(
        "herd_visit",
        read,
        operation="visit",
        key=fleet.partition(herd),
        clock=fleet.clock_argument,
        herd=herd,
        limit=limit,
    )


@dataclass(frozen=True)
class Due:
    """What a partition's timers say: the herds due now, and in how many ms the next one is."""

    herds: list[str]
    next_in: float | None
    """Real milliseconds until the earliest timer that is not due yet; None if there is none."""


def due(fleet: Fleet, partition: str, limit: int) -> Call[Due]:
    """The herds of a partition that are due, longest overdue first."""

    def read(answer: list[Any]) -> Due:
        return Due(answer[2:], float(answer[1]) if answer[1] else None)

    return call(
        "timers_due",
        read,
        operation="due",
        key=partition,
        clock=fleet.clock_argument,
        herd="",
        limit=limit,
    )


def report(fleet: Fleet, scheduler: str, facts: dict[str, Any] | None) -> Call[dict[str, Any]]:
    """Records what a scheduler says of itself (None: that it ended); what all last said.

    Each report has `age_ms`, by the server's clock. Those of over an hour are dropped.
    """

    return call(
        "scheduler_report",
        _read_reports,
        operation="report",
        key=keys.schedulers(fleet.name),
        scheduler=scheduler,
        facts="" if facts is None else json.dumps(facts),
    )


def reports(fleet: Fleet) -> Call[dict[str, Any]]:
    """What all schedulers last said of themselves, to somebody who is none."""
    return report(fleet, "", None)


def _read_reports(answer: list[Any]) -> dict[str, Any]:
    return {name: {**json.loads(text), "age_ms": int(age)} for name, age, text in answer[1:]}
