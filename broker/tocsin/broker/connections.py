"""Connections to a server, and what can go wrong there as errors of ours.

The one module that knows topology. Calls share a small pool; what listens (the bells) and what
must not wait behind others (leases) have connections of their own. No read or write of any of them
takes longer than `ANSWER_WITHIN`, and the client library repeats nothing: `Patience` does.
"""

from __future__ import annotations

import random
import time
from typing import Any, TypeVar

import redis
import redis.asyncio
from redis import exceptions
from redis.asyncio.retry import Retry as AsyncRetry
from redis.backoff import NoBackoff
from redis.retry import Retry

from tocsin.broker.envelopes import decode
from tocsin.broker.errors import CODES, BrokerError, InvalidInput, Unavailable
from tocsin.broker.scripts import Call
from tocsin.broker.settings import redacted

T = TypeVar("T")

CONNECTIONS = 8
"""Connections for calls that one broker holds at most."""

ANSWER_WITHIN = 4.0
"""Seconds a server has to answer one call, or to accept a connection."""

GIVE_UP_AFTER = 10.0
"""Seconds from its first try after which a call is `unavailable`, however the line fails."""

REPEATS = 3
"""How often a call is tried again while that leaves time for another try."""


class Server:
    """Where a fleet lives, and how to connect to it."""

    plain = False
    """Whether scripts are sent without their `#!lua` line, which fakeredis does not know."""

    def __init__(self, url: str) -> None:
        self.url = url

    def _from_url(self, kind: Any, **options: Any) -> Any:
        options["socket_connect_timeout"] = ANSWER_WITHIN
        if not self.url.startswith("unix:"):
            options["socket_keepalive"] = True
        try:
            pool = kind.from_url(self.url, **options)
            pool.connection_class(**pool.connection_kwargs)  # refuses options it does not know
        except (ValueError, TypeError, exceptions.RedisError):
            pool = None
        if pool is None:  # raised here, because those errors may quote the password
            raise InvalidInput(
                "connect",
                f"url {redacted(self.url)} cannot be used; write redis://user:password@host:port/0 "
                "(or rediss://, unix://) with special characters of user and password as %XX, and "
                "only options that redis-py knows",
            )
        return pool

    def connect(self) -> redis.Redis:
        """A client for calls from threads."""
        pool = self._from_url(redis.BlockingConnectionPool, **_calls(Retry))
        return redis.Redis(connection_pool=pool)

    def connect_async(self) -> redis.asyncio.Redis:
        """A client for calls from an event loop."""
        pool = self._from_url(redis.asyncio.BlockingConnectionPool, **_calls(AsyncRetry))
        return redis.asyncio.Redis(connection_pool=pool)

    def connect_line(self) -> Any:
        """A connection, not yet opened, to listen on."""
        pool = self._from_url(
            redis.ConnectionPool,
            socket_timeout=ANSWER_WITHIN,
            retry=Retry(NoBackoff(), 0),
            client_name="tocsin-bells",
        )
        # Whatever the url says: in protocol 2 what was subscribed to comes as plain answers.
        pool.connection_kwargs["protocol"] = 2
        return pool.make_connection()


def _calls(retry: Any) -> dict[str, Any]:
    return {
        "max_connections": CONNECTIONS,
        "timeout": ANSWER_WITHIN,
        "socket_timeout": ANSWER_WITHIN,
        "retry": retry(NoBackoff(), 0),
        "client_name": "tocsin",
    }


class Patience:
    """How long one call is tried, when the line fails under it: see `GIVE_UP_AFTER`.

    A repeat is safe because what a call makes has its id before the first try.
    """

    def __init__(self) -> None:
        self._last_try = time.monotonic() + GIVE_UP_AFTER - ANSWER_WITHIN
        self._failures = 0

    def pause(self, error: exceptions.RedisError) -> float | None:
        """The seconds to wait before the next try, with jitter; None if there is to be none."""
        lost = isinstance(error, exceptions.ConnectionError | exceptions.TimeoutError)
        if not lost or isinstance(error, exceptions.AuthenticationError):
            return None
        self._failures += 1
        pause = random.uniform(0.02, 0.05) * 3**self._failures
        late = time.monotonic() + pause > self._last_try
        return None if late or self._failures > REPEATS else pause


def failure(operation: str, url: str, error: exceptions.RedisError) -> BrokerError:
    """What a failure of the server or the way to it means to the caller."""
    where = redacted(url)
    if isinstance(error, exceptions.AuthenticationError):
        return Unavailable(operation, f"{where} refused the user or password of the URL")
    if isinstance(error, exceptions.ConnectionError | exceptions.TimeoutError):
        return Unavailable(
            operation,
            f"no answer from {where}; see that the server runs and is reachable, then try again: "
            "whether this call took effect is unknown. With a `key` it may be repeated, because it "
            "takes effect once",
        )
    if isinstance(error, exceptions.OutOfMemoryError):
        return Unavailable(
            operation,
            f"the memory of {where} is full, so new work is refused whole; let agents take and ack "
            "mail, or raise maxmemory, then try again",
        )
    return Unavailable(operation, f"{where} answered: {str(error)[:300]}")


def read(call: Call[T], answer: Any) -> T:
    """The result of an answer; a refusal is raised as the error of its code."""
    decoded = decode(answer)
    if decoded[0] == "refused":
        raise CODES[decoded[1]](call.operation, decoded[2])
    return call.read(decoded)
