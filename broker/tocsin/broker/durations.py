"""Durations as people write them: `90s`, `10m`, `1h30m`, `7d`. Pure."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Annotated

from annotated_types import Ge, Le
from pydantic import AfterValidator, BeforeValidator, ValidationInfo
from pydantic_core import PydanticCustomError

MAX_DURATION = timedelta(days=366)
"""No duration of Tocsin is longer."""

MILLISECOND = timedelta(milliseconds=1)
"""No duration of Tocsin is finer."""

_UNITS = {"d": 86_400_000, "h": 3_600_000, "m": 60_000, "s": 1_000, "ms": 1}
_EXACT = re.compile("".join(f"(?:[0-9]{{1,12}}{unit})?" for unit in _UNITS))
_PART = re.compile(r"([0-9]{1,12}(?:\.[0-9]{1,6})?)\s*(ms|mil|[dhms])[a-z]*[\s,]*")
_LOOSE = re.compile(f"(?:{_PART.pattern})+")
_SECONDS = re.compile(r"-?[0-9]+(?:\.[0-9]+)?")


def read_duration(raw: object, *, loosely: bool = False) -> timedelta | None:
    """The duration that a number of seconds or a text like `1h30m` means; None if it means none.

    With `loosely` what a person probably meant: `10 minutes`, `1.5h`, `30m1h`. Whether it is within
    anybody's bounds is not asked here; it may be negative, and is cut far above the longest.
    """
    if isinstance(raw, str):
        text = raw[:64].strip().lower() if loosely else raw
        if text and (_LOOSE if loosely else _EXACT).fullmatch(text):
            parts = _PART.findall(text)
            total = sum(float(amount) * _UNITS.get(unit, 1) for amount, unit in parts)
            return timedelta(milliseconds=min(total, 1e11))
        raw = float(text) if _SECONDS.fullmatch(text) else None
    if isinstance(raw, bool) or not isinstance(raw, int | float) or raw != raw:
        return None
    duration = timedelta(seconds=max(-1e8, min(1e8, raw)))
    return duration if duration or not raw else None  # never a 0 that nobody wrote


def show_duration(value: timedelta) -> str:
    """`value` as text that is read back as the same: `20m`, `1h30m`, `7d`, `500ms`, `0s`.

    What is below a millisecond is left out; a negative duration has a minus sign in front.
    """
    rest = abs(value) // MILLISECOND
    text = "-" if value < timedelta(0) and rest else ""
    for unit, size in _UNITS.items():
        amount, rest = divmod(rest, size)
        text += f"{amount}{unit}" if amount else ""
    return text or "0s"


def _from_text(value: object, info: ValidationInfo) -> timedelta:
    if isinstance(value, timedelta):
        return value
    duration = None if info.context is None else read_duration(value)
    if duration is None:
        nearest = read_duration(value, loosely=True)
        raise PydanticCustomError("duration", "no duration", {"nearest": nearest})
    return duration


def _whole(value: timedelta) -> timedelta:
    if value % MILLISECOND:
        nearest = value - value % MILLISECOND
        raise PydanticCustomError("duration", "finer than 1 ms", {"nearest": nearest})
    return value


Duration = Annotated[
    timedelta,
    Ge(timedelta(0)),
    Le(MAX_DURATION),
    BeforeValidator(_from_text),
    AfterValidator(_whole),
]
"""A field that is a `timedelta` of whole milliseconds, from 0 to 366 days.

With a validation context, which sources of text give, text and numbers of seconds are read too; in
Python they are refused.
"""
