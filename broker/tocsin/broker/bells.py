"""What wakes a waiting call: channels of the server, heard for a whole process over one connection.

Nothing depends on a bell for being correct: whoever waits also looks by itself every `SLOW_POLL`
seconds.

On a Cluster one connection to any primary hears all: what a script publishes goes to every node.
(Channels bound to a slot would take a connection to each primary, and the fleet's doorbell, rung
by scripts of all partitions, could not be one.) When that node is gone, the next is listened to.
"""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from threading import Lock
from typing import Any

from redis.exceptions import ConnectionError as LineDown
from redis.exceptions import RedisError, ResponseError

from tocsin.broker.background import BREATH, Background
from tocsin.broker.connections import ANSWER_WITHIN, Server
from tocsin.broker.records import decode
from tocsin.broker.signals import Settable
from tocsin.broker.urls import Node

SLOW_POLL = 10.0
"""Seconds after which a waiting call looks for itself, should a bell have been lost."""

SILENCE = 10.0
"""Seconds without a word after which the server is asked for one: a line can die unnoticed."""

OF_SEVERAL = 1.0
"""The same where there are several servers, and seconds for the answer: one that hangs is soon left
for another, so that it holds up no timer but its own."""

_EMPTIED = "__redis__:invalidate"
"""Where a server tells that all its keys were deleted, to who asked to be told (`_ask`)."""


class Bells(Background):
    """Listens to the channels somebody waits on.

    Confirmation of a subscription rings too: what came before it is then looked for, so that no
    wake-up is lost between the first look and the first listen, or while the line was down. So
    does the deletion of all keys, which no script can tell of.
    """

    name = "bells"
    meanwhile = "the bell line is down; waiting calls look for themselves"

    def __init__(self, server: Server) -> None:
        super().__init__()
        self._server = server
        self._waiters: dict[str, dict[str, set[Settable]]] = {}
        self._heard = {_EMPTIED}
        self._lock = Lock()
        self._line: Any = None
        """The connection while it is up; whoever writes to it holds the lock."""
        self._left: Node | None = None
        """The server whose line went down last, which is not the first to be tried again."""

    @contextmanager
    def hear(self, channel: str, topic: str, waiter: Settable) -> Iterator[None]:
        """While inside, what rings on the channel for this topic sets the waiter."""
        with self._lock:
            topics = self._waiters.setdefault(channel, {})
            topics.setdefault(topic, set()).add(waiter)
            self._start()
            if channel not in self._heard:
                self._heard.add(channel)
                self._say("SUBSCRIBE", channel)
        try:
            yield
        finally:
            with self._lock:
                topics[topic].discard(waiter)
                if not topics[topic]:
                    del topics[topic]

    def _say(self, *command: str) -> None:
        """Sends on the line if it is up. If that fails it is down, as its reader will notice.

        Never connects: its callers must not wait, and only the reader knows what to send first.
        """
        if self._line is not None:
            try:
                self._line.send_command(*command, check_health=False)
            except RedisError:
                self._line = None

    def _ring(self, channel: str, topic: str | None) -> None:
        with self._lock:
            channels = self._waiters if channel == _EMPTIED else [channel]
            for topics in [self._waiters.get(each, {}) for each in channels]:
                for name, waiters in topics.items():
                    if topic is None or name == topic:
                        for waiter in waiters:
                            waiter.set()

    def _step(self) -> None:
        node = self._choose()
        line = self._server.connect_line(node)
        try:
            line.connect()
            self._pulse.beat()
            _ask_to_be_told_when_emptied(line)
            with self._lock:
                self._line = line
                self._say("SUBSCRIBE", *self._heard)
            self._listen(line, node)
        except RedisError as error:
            self._server.doubt(node, error)
            self._left = node
            raise
        finally:
            with self._lock:
                self._line = None
            line.disconnect()

    def _choose(self) -> Node:
        node = self._server.node_of(None) or self._server.find(None)
        others = [each for each in self._server.nodes if each != self._left]
        return random.choice(others) if node == self._left and others else node

    def _listen(self, line: Any, node: Node) -> None:
        several = len(self._server.nodes) > 1
        silence, answer = (OF_SEVERAL, OF_SEVERAL) if several else (SILENCE, ANSWER_WITHIN)
        breath = min(BREATH, silence / 4)
        heard_at, asked = time.monotonic(), False
        while not self._stopping.is_set():
            self._pulse.beat()
            if node not in self._server.nodes:
                raise LineDown(f"{node} takes no writes any more")
            with self._lock:
                if self._line is not line:
                    raise LineDown("it broke while something was sent")
            if line.can_read(timeout=breath):
                self._take(*line.read_response())
                self._went_well()
                heard_at, asked = time.monotonic(), False
            elif time.monotonic() - heard_at > silence + answer:
                raise LineDown(f"silent for {silence + answer:g} s")
            elif not asked and time.monotonic() - heard_at > silence:
                with self._lock:
                    self._say("PING")
                asked = True

    def _take(self, kind: bytes, channel: bytes, topic: Any = None) -> None:
        rung = decode(kind)
        if rung == "message":
            self._ring(decode(channel), decode(topic) if isinstance(topic, bytes) else None)
        elif rung == "subscribe":
            self._ring(decode(channel), None)

    def close(self) -> None:
        """Ends it, waits until it has ended, and wakes all that still wait."""
        super().close()
        self._ring(_EMPTIED, None)

    def _interrupt(self) -> None:
        with self._lock:
            self._say("PING")  # the answer to this ends the thread's read at once


def _ask_to_be_told_when_emptied(line: Any) -> None:
    """By client-side caching, of no key: what is left of it is the word that all were deleted.

    A server or a user without it costs a slow look.
    """
    with suppress(ResponseError):
        line.send_command("CLIENT", "ID")
        number = line.read_response()
        line.send_command("CLIENT", "TRACKING", "ON", "REDIRECT", number, "OPTIN")
        line.read_response()
