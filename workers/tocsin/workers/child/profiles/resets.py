"""When a limit ends, as programs tell it: a time, a clock, a span, in a dozen forms. Pure."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

from tocsin.broker.durations import read_duration

_EPOCH = re.compile(r"(?:resets?_?at\W{0,4}|limit reached\|)(\d{10})(?:\d{3})?\b", re.IGNORECASE)
_SECONDS = re.compile(r"(?:resets?_in_seconds|retry[-_ ]?after)\W{0,4}(\d{1,8})\b", re.IGNORECASE)
_SPAN = re.compile(
    r"\b(?:again|resets?|retry) in ((?:\d{1,4} ?[a-z]+[ ,]*(?:and )?)+)", re.IGNORECASE
)
_MOMENT = re.compile(r"(?:at|resets?)\W{1,3}(\d{4}-\d\d-\d\dT[\d:.]+(?:Z|[+-]\d\d:?\d\d))", re.I)
_CLOCK = re.compile(
    r"(?:\bat|resets?(?: at)?)\s+"
    r"(?:(?P<month>[A-Z][a-z]{2})[a-z]* (?P<day>\d{1,2})(?:st|nd|rd|th)?,?(?: (?P<year>\d{4}),?)?"
    r"(?: at)? )?"
    r"(?P<hour>\d{1,2})(?::(?P<minute>\d\d))? ?(?P<half>[ap])\.?m\b"
    r"(?: \((?P<zone>[A-Za-z_]+(?:/[A-Za-z_+-]+)*)\))?",
    re.IGNORECASE,
)
_MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")

_LONGEST = timedelta(days=40)
"""No provider's limit is longer; what says otherwise was misread."""


def reset_time(text: str, now: datetime) -> datetime | None:
    """When the limit that `text` tells of ends, in UTC; None if it does not say, or in the past.

    A clock without a zone is that of `now`'s.
    """
    found = _exact(text, now) or _of_clock(text, now)
    if found is None or not now < found <= now + _LONGEST:
        return None
    return found.astimezone(UTC)


def _exact(text: str, now: datetime) -> datetime | None:
    if epoch := _EPOCH.search(text):
        return datetime.fromtimestamp(int(epoch[1]), UTC)
    if seconds := _SECONDS.search(text):
        return now + timedelta(seconds=int(seconds[1]))
    if span := _SPAN.search(text):
        length = read_duration(span[1].replace("and ", "").strip(" ,."), loosely=True)
        return None if length is None else now + length
    if moment := _MOMENT.search(text):
        try:
            return datetime.fromisoformat(moment[1])
        except ValueError:
            return None
    return None


def _of_clock(text: str, now: datetime) -> datetime | None:
    found = _CLOCK.search(text)
    if found is None:
        return None
    try:
        here = now.astimezone(ZoneInfo(found["zone"])) if found["zone"] else now
        hour = int(found["hour"]) % 12 + (12 if found["half"].lower() == "p" else 0)
        at = here.replace(hour=hour, minute=int(found["minute"] or 0), second=0, microsecond=0)
        if found["month"] is None:
            return at if at > here else at + timedelta(days=1)
        month = _MONTHS.index(found["month"].lower()) + 1
        at = at.replace(year=int(found["year"] or at.year), month=month, day=int(found["day"]))
        if found["year"] is None and at < here - timedelta(days=180):
            at = at.replace(year=at.year + 1)
    except (ValueError, KeyError, OSError):  # no such zone, month or day
        return None
    return at
