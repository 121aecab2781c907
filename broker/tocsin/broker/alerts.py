"""Alerts: what a human should hear of, as a notifier takes and ends them. No I/O.

Scripts note them (`alert` in `lua/include/base.lua`) while some notifier wants them. Each is due
at a time: taking one puts that off for as long as telling it may take, so that it comes again if
whoever took it is gone; a failed try puts it off by a pause.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from tocsin.broker.caller import Fleet, word
from tocsin.broker.clock import from_ms
from tocsin.broker.durations import MILLISECOND
from tocsin.broker.masking import redacted
from tocsin.broker.rendering import alert_of
from tocsin.broker.scripts import Call, call

WANTED = timedelta(days=1)
"""So long after the last notifier looked, alerts are still noted for the next one."""

WORDS = ("description", "question", "body", "error", "reason")
"""The fields of an alert that agents wrote."""

_URL = re.compile(r"\w[\w+.-]*://\S+")
_TOKEN = re.compile(r"\b(tok_|gh[a-z]_|github_pat_|sk-|xox[a-z]-|AKIA)[\w-]+")
_SECRET = re.compile(
    r"(?i)\b(bearer|basic)(\s+)[\w.~+/=-]{8,}"
    r"|\b(\w*(?:password|passwd|passphrase|pwd|secret|token|credential|(?:api|access|private)[_-]?key)\w*)"
    r"(['\"]?\s*[=:]\s*)(?:\"[^\"]*\"|'[^']*'|\S+)"
)


@dataclass(frozen=True)
class Alert:
    """One thing to tell a human. Every try to tell it has the same `id`."""

    id: str
    event: str
    herd: str
    at: datetime
    tries: int
    """How often it was taken, this time included."""
    facts: Mapping[str, Any]


@dataclass(frozen=True)
class Taken:
    """Alerts to tell now, in how many seconds to look again, and how many were dropped."""

    alerts: list[Alert]
    next_in: float | None
    dropped: int


def take(fleet: Fleet, partition: str, limit: int, patience: timedelta) -> Call[Taken]:
    """The alerts of a partition that are due; nobody else gets them for as long as `patience`."""

    def read(answer: list[Any]) -> Taken:
        alerts = [_read(alert_id, int(tries), text) for alert_id, tries, text in answer[3:]]
        return Taken(alerts, float(answer[1]) / 1000 if answer[1] else None, int(answer[2]))

    return call(
        "alerts_take",
        read,
        operation="notify",
        key=partition,
        clock=fleet.clock_argument,
        herd="",
        limit=limit,
        patience=patience // MILLISECOND,
        keep=WANTED // MILLISECOND,
    )


def _read(alert_id: str, tries: int, text: str) -> Alert:
    facts = json.loads(text)
    event, herd, at = (facts.pop(name) for name in ("event", "herd", "at"))
    return Alert(alert_id, event, herd, from_ms(at), tries, facts)


def end(fleet: Fleet, alert: Alert, pause: timedelta | None = None) -> Call[str]:
    """An alert was told, or is given up; with a pause, it is tried again after it."""
    return call(
        "alert_end",
        word,
        operation="notify",
        key=fleet.partition(alert.herd),
        clock=fleet.clock_argument,
        herd="",
        alert=alert.id,
        pause="" if pause is None else pause // MILLISECOND,
    )


def redact(text: str) -> str:
    """`text` without what looks like a secret: tokens, passwords, what a url holds of them."""
    text = _URL.sub(lambda url: redacted(url[0]), _TOKEN.sub(r"\1***", text))
    return _SECRET.sub(lambda found: "".join(part or "" for part in found.groups()) + "***", text)


def document(alert: Alert, fleet: str, preview: int) -> dict[str, Any]:
    """What is told, as JSON has it: redacted, and agents' texts cut to `preview` characters."""
    facts: dict[str, Any] = {}
    for name, value in alert.facts.items():
        if value in ("", None) or (name in WORDS and not preview):
            continue
        facts[name] = redact(value) if isinstance(value, str) else value
        if name in WORDS and len(facts[name]) > preview:
            facts[name] = facts[name][:preview] + "…"
    return {
        "id": alert.id,
        "event": alert.event,
        "fleet": fleet,
        "herd": alert.herd,
        "at": alert.at.isoformat(timespec="milliseconds"),
        "text": alert_of(alert.event, alert.herd, facts),
        **facts,
    }
