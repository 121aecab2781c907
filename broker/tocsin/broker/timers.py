"""Timers, as a scheduler sees them: which herds are due, and firing them. No I/O."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tocsin.broker.caller import Fleet
from tocsin.broker.records import pairs
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
    """What a partition's timers say: which herds are due, and in how many ms the next one is."""

    late: dict[str, float]
    """Herds in the order of their turns, and how late the oldest timer of each is, in real ms."""
    next_in: float | None
    """Real milliseconds until the earliest timer that is not due yet; None if there is none."""

    @property
    def herds(self) -> list[str]:
        """The herds that are due."""
        return list(self.late)


def due(fleet: Fleet, partition: str, limit: int) -> Call[Due]:
    """The herds of a partition that are due, in the order of their turns."""

    def read(answer: list[Any]) -> Due:
        late = {herd: float(ms) for herd, ms in answer[2:]}
        return Due(late, float(answer[1]) if answer[1] else None)

    return call(
        "timers_due",
        read,
        operation="due",
        key=partition,
        clock=fleet.clock_argument,
        herd="",
        limit=limit,
    )
