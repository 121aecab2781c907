"""Renews the leases of a process's instances, in a thread of its own.

So a handler that burns CPU or blocks its event loop keeps its lease, as long as Python changes
threads at all. A lease that was not renewed costs a hand-over, never a message.
"""

from __future__ import annotations

import logging
import threading
import time

from tocsin.broker import agents
from tocsin.broker._sync.link import Link
from tocsin.broker.background import Background
from tocsin.broker.caller import Caller
from tocsin.broker.connections import Server
from tocsin.broker.errors import BrokerError

log = logging.getLogger("tocsin.broker")


class Leases(Background):
    """Keeps instances alive, each as often as its herd's settings say (`lease_renewal`)."""

    name = "tocsin-leases"
    meanwhile = "leases are not renewed"

    def __init__(self, server: Server) -> None:
        super().__init__()
        self._server = server
        self._link: Link | None = None
        self._due: dict[Caller, float] = {}
        self._changed = threading.Condition()

    def hold(self, caller: Caller, every: float) -> None:
        """Keeps an instance alive, first by a renewal in `every` seconds."""
        with self._changed:
            self._due[caller] = time.monotonic() + every
            self._start()
            self._changed.notify()

    def drop(self, caller: Caller) -> None:
        """Lets an instance's lease run out."""
        with self._changed:
            self._due.pop(caller, None)

    def _step(self) -> None:
        due = self._await_due()
        if not due:
            return
        if self._link is None:
            self._link = Link(self._server)
        answers = self._link.run_many([agents.renew(caller) for caller in due])
        self._went_well()
        for caller, answer in zip(due, answers, strict=True):
            if not isinstance(answer, BrokerError):
                self._put_off(caller, answer)
            elif answer.retryable:
                self._put_off(caller, 1.0)
            else:
                log.info("%s ends: %s", caller, answer.detail)
                self.drop(caller)

    def _await_due(self) -> list[Caller]:
        with self._changed:
            now = time.monotonic()
            due = [caller for caller, at in self._due.items() if at <= now]
            if not due and not self._stopping.is_set():
                earliest = min(self._due.values(), default=None)
                self._changed.wait(None if earliest is None else earliest - now)
            return due

    def _put_off(self, caller: Caller, seconds: float) -> None:
        """To be renewed again so much later, by what its herd's settings say now."""
        with self._changed:
            if caller in self._due:
                self._due[caller] = time.monotonic() + seconds

    def _interrupt(self) -> None:
        with self._changed:
            self._changed.notify()

    def _run(self) -> None:
        super()._run()
        if self._link is not None:
            self._link.close()
