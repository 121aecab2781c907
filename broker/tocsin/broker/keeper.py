"""What goes on in the background of a broker: hearing bells and renewing leases.

Both run in threads of their own, for the sync and the async client alike, so that a handler that
burns CPU or blocks its event loop neither loses its lease nor a wake-up. Neither is needed for
correctness: whoever waits also looks by itself every `SLOW_POLL` seconds, and a lease that was
not renewed costs a hand-over, never a message.
"""

from __future__ import annotations

import logging
import random
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol

from redis.client import PubSub
from redis.exceptions import RedisError

from tocsin.broker import agents
from tocsin.broker._sync.link import Link
from tocsin.broker.caller import Caller
from tocsin.broker.connections import Server
from tocsin.broker.envelopes import decode
from tocsin.broker.errors import BrokerError, Unavailable

log = logging.getLogger("tocsin.broker")

SLOW_POLL = 10.0
"""Seconds after which a waiting call looks for itself, should a bell have been lost."""

_TURN = 1.0
_LONGEST_PAUSE = 2.0


class Settable(Protocol):
    """What a bell wakes."""

    def set(self) -> None:
        """Wakes it."""


class Bells:
    """Listens to the channels somebody waits on, over one connection.

    Confirmation of a subscription rings too: what came before it is then looked for, so that no
    wake-up is lost between the first look and the first listen, or while the line was down.
    """

    def __init__(self, server: Server) -> None:
        self._server = server
        self._waiters: dict[str, dict[str, set[Settable]]] = {}
        self._heard: set[str] = set()
        self._lock = threading.Lock()
        self._stopping = threading.Event()
        self._pubsub: PubSub | None = None
        self._thread: threading.Thread | None = None

    @contextmanager
    def hear(self, channel: str, topic: str, waiter: Settable) -> Iterator[None]:
        """While inside, what rings on the channel for this topic sets the waiter."""
        with self._lock:
            topics = self._waiters.setdefault(channel, {})
            topics.setdefault(topic, set()).add(waiter)
            self._listen(channel)
        try:
            yield
        finally:
            with self._lock:
                topics[topic].discard(waiter)
                if not topics[topic]:
                    del topics[topic]

    def _listen(self, channel: str) -> None:
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="tocsin-bells", daemon=True)
            self._thread.start()
        if channel not in self._heard:
            self._heard.add(channel)
            if self._pubsub is not None:
                try:
                    self._pubsub.subscribe(channel)
                except RedisError:
                    log.debug("the bell line is down; it subscribes when it is up again")

    def _ring(self, channel: str, topic: str | None) -> None:
        with self._lock:
            for name, waiters in self._waiters.get(channel, {}).items():
                if topic is None or name == topic:
                    for waiter in waiters:
                        waiter.set()

    def _run(self) -> None:
        pause, told = 0.05, False
        while not self._stopping.is_set():
            try:
                with self._server.connect_blocking() as client:
                    pubsub = client.pubsub()
                    with self._lock:
                        self._pubsub = pubsub
                        pubsub.subscribe(*self._heard)
                    pause, told = 0.05, False
                    self._serve(pubsub)
            except (RedisError, OSError) as error:
                if not told:
                    log.warning("the bell line is down; waiting calls look themselves: %s", error)
                    told = True
                self._stopping.wait(pause * random.uniform(0.5, 1.5))
                pause = min(pause * 2, _LONGEST_PAUSE)
            finally:
                with self._lock:
                    self._pubsub = None

    def _serve(self, pubsub: PubSub) -> None:
        with pubsub:
            while not self._stopping.is_set():
                message = pubsub.get_message(timeout=_TURN)
                if message is not None:
                    rung = message["type"] == "message"
                    self._ring(
                        decode(message["channel"]), decode(message["data"]) if rung else None
                    )

    def close(self) -> None:
        """Stops listening, waits until the thread has ended, and wakes all that still wait."""
        self._stopping.set()
        thread, pubsub = self._thread, self._pubsub
        if thread is not None:
            if pubsub is not None:
                try:
                    pubsub.unsubscribe()  # type: ignore[no-untyped-call]  # an answer to this ends the thread's read at once
                except RedisError:
                    log.debug("the bell line was down already")
            _await_end(thread, _TURN * 3)
        for channel in list(self._waiters):
            self._ring(channel, None)


class Leases:
    """Renews the leases of this process's instances, each at a third of its length."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._due: dict[Caller, tuple[float, float]] = {}
        self._changed = threading.Condition()
        self._stopping = False
        self._thread: threading.Thread | None = None

    def hold(self, caller: Caller, lease: float) -> None:
        """Keeps an instance alive whose lease is `lease` seconds."""
        with self._changed:
            self._due[caller] = (time.monotonic() + lease / 3, lease / 3)
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="tocsin-leases", daemon=True)
                self._thread.start()
            self._changed.notify()

    def drop(self, caller: Caller) -> None:
        """Lets an instance's lease run out."""
        with self._changed:
            self._due.pop(caller, None)

    def _next(self) -> list[Caller] | None:
        with self._changed:
            while not self._stopping:
                now = time.monotonic()
                due = [caller for caller, (at, _) in self._due.items() if at <= now]
                if due:
                    for caller in due:
                        every = self._due[caller][1]
                        self._due[caller] = (now + every, every)
                    return due
                earliest = min((at for at, _ in self._due.values()), default=None)
                self._changed.wait(None if earliest is None else earliest - now)
            return None

    def _follow(self, caller: Caller, lease: float) -> None:
        """Renews at a third of what a lease is by now: the herd's settings may have changed."""
        with self._changed:
            if caller in self._due and self._due[caller][1] != lease / 3:
                self._due[caller] = (time.monotonic() + lease / 3, lease / 3)

    def _run(self) -> None:
        link, told = Link(self._server), False
        while (due := self._next()) is not None:
            try:
                answers = link.run_many([agents.renew(caller) for caller in due])
            except Unavailable as error:
                if not told:
                    log.warning("leases are not renewed: %s", error.detail)
                told = True
                continue
            told = False
            for caller, answer in zip(due, answers, strict=True):
                if not isinstance(answer, BrokerError):
                    self._follow(caller, answer)
                elif not answer.retryable:
                    log.info("%s ends: %s", caller, answer.detail)
                    self.drop(caller)
        link.close()

    def close(self) -> None:
        """Stops renewing, and waits until the thread has ended."""
        with self._changed:
            self._stopping = True
            self._changed.notify()
        if self._thread is not None:
            _await_end(self._thread, 2 * _TURN)


def _await_end(thread: threading.Thread, seconds: float) -> None:
    """Waits for a thread that was told to end.

    Ctrl-C may have come in the middle of `start`: then there is none yet, and `join` would raise.
    """
    if thread.is_alive():
        thread.join(seconds)
