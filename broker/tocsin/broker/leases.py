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
from tocsin.broker.background import BREATH, Background
from tocsin.broker.caller import Caller
from tocsin.broker.connections import Server
from tocsin.broker.errors import BrokerError

log = logging.getLogger("tocsin.broker")


class Leases(Background):
    """Keeps instances alive, each as often as its herd's settings say (`lease_renewal`).

    With each renewal it tells how the process's other loop is, and at once when that changes.
    """

    name = "leases"
    meanwhile = "leases are not renewed"

    def __init__(self, server: Server, other: Background) -> None:
        super().__init__()
        self._server = server
        self._other = other
        self._trouble = ""
        """What was told of the other loop last."""
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
        trouble = self._trouble_of_other()
        due = self._await_due(at_once=bool(trouble) != bool(self._trouble))
        if not due:
            if not self._due:  # nothing is left that could fail
                self._went_well()
            return
        if self._link is None:
            self._link = Link(self._server)
        renewals = [agents.renew(caller, loops=trouble or agents.TURNING) for caller in due]
        answers = self._link.run_many(renewals)
        self._trouble, failures = trouble, list[BrokerError]()
        for caller, answer in zip(due, answers, strict=True):
            if not isinstance(answer, BrokerError):
                self._put_off(caller, answer)
            elif answer.retryable:
                self._put_off(caller, 1.0)
                failures.append(answer)
            else:
                log.info("%s ends: %s", caller, answer.detail)
                self.drop(caller)
        if len(failures) == len(due):  # the server's trouble, not an agent's
            raise failures[0]
        self._went_well()

    def _trouble_of_other(self) -> str:
        other = self._other.health()
        text = f"{other.loop} {other.trouble}" if other is not None and other.trouble else ""
        return text[:300]

    def _await_due(self, *, at_once: bool) -> list[Caller]:
        with self._changed:
            now = time.monotonic()
            due = [caller for caller, at in self._due.items() if at_once or at <= now]
            if not due and not self._stopping.is_set():
                earliest = min(self._due.values(), default=now + BREATH)
                self._changed.wait(min(earliest - now, BREATH))
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
