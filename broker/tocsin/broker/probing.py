"""The probe of an asker: what it counts of its target's work, while a call waits for the answer."""

from __future__ import annotations

import inspect
import json
import logging
import threading
from collections.abc import Callable, Mapping

from tocsin.broker.errors import InvalidInput
from tocsin.broker.signals import Settable
from tocsin.broker.validation import check_line

log = logging.getLogger("tocsin.broker")

MOST_SOURCES = 100
"""A probe tells totals of so many sources at most."""

PROBE_WITHIN = 0.5
"""Seconds a waiting call gives its probe to count before it looks without."""

_NOTHING = "{}"

Probe = Callable[[], Mapping[str, int]]
"""What an asker watches of its target's work: source -> total so far. Only growth counts."""


def encode_totals(operation: str, totals: object) -> str:
    """The totals of a probe, checked, as scripts take them."""
    if not isinstance(totals, Mapping) or len(totals) > MOST_SOURCES:
        raise InvalidInput(
            operation, f"totals of a probe must be a mapping of at most {MOST_SOURCES} sources"
        )
    for source, total in totals.items():
        if not check_line(operation, "source of a probe", source):
            raise InvalidInput(operation, "source of a probe must not be empty")
        if isinstance(total, bool) or not isinstance(total, int) or not 0 <= total <= 2**53:
            raise InvalidInput(
                operation, f"total of source {source!r} must be a whole number from 0 to 2**53"
            )
    return json.dumps(dict(totals))


class Watch:
    """An asker's probe, called now and then while it waits, each time in a thread of its own.

    What it counts is checked when the ask is opened. Later it may fail, hang or be slow as it
    likes: then it has seen nothing yet, and holds up nobody.
    """

    def __init__(self, probe: Probe | None) -> None:
        given: object = probe
        if given is not None and (not callable(given) or inspect.iscoroutinefunction(given)):
            raise InvalidInput("ask", "probe must be a plain function returning totals by source")
        self.probe = probe
        self._counting = self._looked = self._told = False
        self._counted: tuple[object] | None = None
        self._waiter: Settable | None = None

    def start(self, waiter: Settable) -> None:
        """Has it count, unless it is still at it; `waiter` is set when it is done."""
        self._waiter = waiter
        if not self._counting:
            self._counting = True
            threading.Thread(target=self._count, name="tocsin-probe", daemon=True).start()

    def _count(self) -> None:
        assert self.probe is not None
        try:
            self._counted = (self.probe(),)
        except Exception as error:
            self._counted = (error,)
        self._counting = False
        if self._waiter is not None:
            self._waiter.set()

    def totals(self) -> str:
        """What it has counted since the last of these, encoded for a script; empty without one."""
        if self.probe is None:
            return ""
        result, self._counted = self._counted, None
        if result is None:
            return _NOTHING
        (counted,) = result
        first, self._looked = not self._looked, True
        try:
            if isinstance(counted, Exception):
                raise counted
            return encode_totals("ask", counted)
        except InvalidInput as error:
            if first:
                raise
            return self._failed(error.detail)
        except Exception as error:
            return self._failed(f"{type(error).__name__}: {error}")

    def _failed(self, why: str) -> str:
        if not self._told:
            log.warning("a probe failed, and counts nothing until it works again: %s", why)
        self._told = True
        return _NOTHING
