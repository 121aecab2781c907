"""What checks find, and how good that is."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Health(StrEnum):
    """What a check found."""

    GOOD = "good"
    WARNING = "warning"
    BROKEN = "broken"


@dataclass(frozen=True)
class Finding:
    """What one check found, in a sentence that says what to do where something is to be done."""

    check: str
    health: Health
    detail: str
