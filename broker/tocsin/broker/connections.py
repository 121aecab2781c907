"""Connections to the servers of a fleet, and how long one is tried when it fails.

The one module that knows topology: which server holds a key, how that is found out, and which
errors say that it has changed. Calls share a small pool for each server; what listens (the bells)
and what must not wait behind others (leases) have connections of their own. No read or write of any
of them takes longer than `ANSWER_WITHIN`, and the client library repeats nothing: `Patience` does.
"""

from __future__ import annotations

import asyncio
import math
import random
import time
from bisect import bisect_right
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from queue import Empty, SimpleQueue
from threading import Lock, Thread
from typing import Any, TypeVar

import redis
import redis.asyncio
from redis import exceptions
from redis.asyncio.retry import Retry as AsyncRetry
from redis.backoff import NoBackoff
from redis.crc import key_slot
from redis.retry import Retry

from tocsin.broker.errors import InvalidInput
from tocsin.broker.masking import redacted
from tocsin.broker.records import decode
from tocsin.broker.scripts import Call
from tocsin.broker.urls import FORMS, Node, Place, Shape, parse

T = TypeVar("T")

CONNECTIONS = 8
"""Connections for calls that one broker holds at most to one server."""

ANSWER_WITHIN = 4.0
"""Seconds a server has to answer one call, or to accept a connection."""

GIVE_UP_AFTER = 10.0
"""Seconds from its first try after which a call is `unavailable`, however the line fails."""

FREE_WITHIN = 1.0
"""Seconds that a try waits for one of the connections to be free, where many call at once, while
none of those that are in use is answered. A server that answers is not away, however long the queue
of this process's own calls is."""

REPEATS = 3
"""How often a call is tried again while that leaves time for another try. Where another server can
take over, only time counts."""

FIND_WITHIN = 2.0
"""Seconds that looking for the server of a key takes at most, whatever hangs."""

HEAD_START = 0.25
"""Seconds after which the next server is asked, too, who has what. The first answer counts."""

FOUND_FOR = 2.0
"""Seconds for which new connections trust what Sentinels said. A server that was killed and started
again is a primary for a moment, maybe an empty one, to whoever still holds it for that."""

REPLICATED_WITHIN = 2.0
"""Seconds a replica has to say that it has what a call wrote, where that is asked for."""

_LONGEST_PAUSE = 0.5

ONLY = Node("", 0)
"""The server of a fleet that has one."""

_SLOTS = 16_384

MARK = "#!lua flags=allow-oom\nreturn redis.call('HSET', KEYS[1], 'replicated', 1)"
"""Writes, so that WAIT on the same connection waits for all that was written before, by whomever.
Else a call that is repeated on another connection, and writes nothing, would wait for nothing."""


@dataclass(frozen=True)
class _Map:
    """Which server holds which slots, as it was last heard."""

    starts: list[int]
    ends: list[int]
    holders: list[Node]

    @classmethod
    def of(cls, ranges: Iterable[tuple[int, int, Node]]) -> _Map:
        parts = sorted(ranges)
        return cls([p[0] for p in parts], [p[1] for p in parts], [p[2] for p in parts])

    def node_of(self, key: str) -> Node | None:
        slot = key_slot(key.encode())
        at = bisect_right(self.starts, slot) - 1
        return self.holders[at] if at >= 0 and slot <= self.ends[at] else None


class Server:
    """Where a fleet lives, and how to connect to it: one server, or several and who has what.

    What is known of several is shared by all who connect through it, and true until a server says
    otherwise or does not answer (`doubt`); then the next who needs it looks again (`find`).
    """

    plain = False
    """Whether scripts are sent without their `#!lua` line, which fakeredis does not know."""

    def __init__(self, url: str) -> None:
        self.url = url
        self._map = _Map([], [], [])
        self._doubted: frozenset[Node] = frozenset()
        self._hint: tuple[Node, ...] = ()
        self._searching = Lock()
        self._searches = 0
        self._found_at = 0.0

    # ------------------------------------------------------------------ who has what

    @cached_property
    def place(self) -> Place:
        """What the url says."""
        try:
            return parse(self.url)
        except ValueError:
            pass  # raised outside, because that error would be shown with the password
        raise self._unusable()

    @property
    def has_spare(self) -> bool:
        """Whether another server may take over from one that is gone."""
        return self.place.shape is not Shape.SINGLE

    @property
    def nodes(self) -> tuple[Node, ...]:
        """The servers that take writes, as far as known."""
        single = self.place.shape is Shape.SINGLE
        return (ONLY,) if single else tuple(dict.fromkeys(self._map.holders))

    def keys_of(self, call: Call[Any]) -> tuple[str, ...]:
        """The keys that a script is sent with: the one it declares, and on a Cluster a witness.

        While a slot moves key by key, its keys are in two places, and a script sees those of one:
        it would end in the middle, or work with the half that it finds. The witness is a key of the
        slot that never exists; with it a server that has not the whole slot refuses the script
        before it begins.
        """
        witnessed = self.place.shape is Shape.CLUSTER
        return (call.key, f"{call.key}:-") if witnessed else (call.key,)

    def node_of(self, key: str | None) -> Node | None:
        """The server that holds a key (None: any); None if that has to be found out."""
        if self.place.shape is Shape.SINGLE:
            return ONLY
        if key is None:
            trusted = [node for node in self.nodes if node not in self._doubted]
            return random.choice(trusted) if trusted else None
        node = self._map.node_of(key)
        return None if node in self._doubted else node

    def find(self, key: str | None) -> Node:
        """The server that holds a key (None: any), looked for within `FIND_WITHIN`.

        One looks for all: who comes meanwhile waits for the same answer, and gets the same error.
        """
        seen = self._searches
        with self._searching:
            if self._searches == seen:
                try:
                    self._map = self._search()
                    self._found_at = time.monotonic()
                    self._doubted, self._hint = frozenset(), ()
                finally:
                    self._searches += 1
        node = self.node_of(key)
        if node is None:
            raise exceptions.ConnectionError("no server is known to hold it")
        return node

    def doubt(self, node: Node, error: Exception) -> None:
        """Takes note that a server failed, or said that it does not have what it was asked for."""
        if self.has_spare and is_passing(error) and not _is_unstable(error):
            self._doubted |= {node}
            if isinstance(error, exceptions.MovedError):
                self._hint = (Node(error.host or node.host, int(error.port)),)

    def _search(self) -> _Map:
        """Asks, whoever was not doubted first, until one tells. Who hangs holds up no other."""
        known, named = list(self.nodes), list(self.place.nodes)
        random.shuffle(known)
        random.shuffle(named)
        watched = self.place.shape is Shape.SENTINEL
        told = named if watched else [*self._hint, *known, *named]
        wanted = sorted(dict.fromkeys(told), key=self._doubted.__contains__)
        ask = self._ask_sentinel if watched else self._ask_node
        outcomes: SimpleQueue[_Map | Exception] = SimpleQueue()

        def put(node: Node) -> None:
            try:
                outcomes.put(ask(node))
            except Exception as error:  # is raised by who waits for it, or does not count
                outcomes.put(error)

        last: Exception = exceptions.ConnectionError("none of the url's servers answers in time")
        until, open_questions = time.monotonic() + FIND_WITHIN, 0
        while wanted or open_questions:
            wait = until - time.monotonic()
            if wait <= 0:
                break
            if wanted:
                Thread(target=put, args=(wanted.pop(0),), name="tocsin-find", daemon=True).start()
                open_questions += 1
                wait = min(wait, HEAD_START)
            with suppress(Empty):
                outcome = outcomes.get(timeout=wait)
                open_questions -= 1
                if isinstance(outcome, _Map):
                    return outcome
                if not is_lost(outcome):
                    raise outcome
                last = outcome
        raise last

    def _ask_node(self, node: Node) -> _Map:
        try:
            answer = self._ask(self.place.url_of(node), "CLUSTER", "SLOTS")
        except exceptions.ResponseError as error:
            if "cluster support disabled" not in str(error):
                raise
            answer = None
        if answer is None:
            raise InvalidInput("connect", f"{node} is no node of a Cluster; write redis://{node}")
        if not answer:
            raise exceptions.ConnectionError(f"{node} knows of no slots")
        return _Map.of(
            (int(first), int(last), Node(decode(host) or node.host, int(port)))
            for first, last, (host, port, *_), *_replicas in answer
        )

    def _ask_sentinel(self, sentinel: Node) -> _Map:
        name = self.place.master
        url = self.place.url_of_sentinel(sentinel)
        answer = decode(self._ask(url, "SENTINEL", "GET-MASTER-ADDR-BY-NAME", name))
        if not answer:
            raise exceptions.ConnectionError(f"Sentinel {sentinel} watches no {name}")
        node = Node(answer[0], int(answer[1]))
        role = decode(self._ask(self.place.url_of(node), "ROLE"))[0]
        if role != "master":
            raise exceptions.ConnectionError(f"{node} is a {role} now")
        return _Map.of([(0, _SLOTS - 1, node)])

    def _ask(self, url: str, *command: str) -> Any:
        options = {"socket_timeout": FIND_WITHIN, "socket_connect_timeout": FIND_WITHIN}
        line = self._from_url(
            url, redis.ConnectionPool, **options, **_once(Retry)
        ).make_connection()
        try:
            line.connect()
            line.send_command(*command)
            return line.read_response()
        finally:
            line.disconnect()

    # ------------------------------------------------------------------ connections

    def _from_url(self, url: str, kind: Any, **options: Any) -> Any:
        options.setdefault("socket_connect_timeout", ANSWER_WITHIN)
        if not url.startswith("unix:"):
            options["socket_keepalive"] = True
        try:
            pool = kind.from_url(url, **options)
            pool.connection_class(**pool.connection_kwargs)  # refuses options it does not know
        except (ValueError, TypeError, exceptions.RedisError):
            pool = None
        if pool is None:  # raised here, because those errors may quote the password
            raise self._unusable()
        return pool

    def _unusable(self) -> InvalidInput:
        return InvalidInput(
            "connect",
            f"url {redacted(self.url)} cannot be used; write {FORMS} with special characters of "
            "user and password as %XX, and only options that redis-py knows",
        )

    def _greeting(self, greet: Any) -> dict[str, Any]:
        return {"redis_connect_func": greet} if self.place.shape is Shape.SENTINEL else {}

    def _greet(self, line: Any) -> None:
        self._ask_anew()
        line.on_connect()

    async def _greet_async(self, line: Any) -> None:
        self._ask_anew()
        await line.on_connect()

    def _ask_anew(self) -> None:
        if time.monotonic() - self._found_at > FOUND_FOR:
            raise exceptions.ConnectionError("a new connection, so Sentinels have to be asked")

    def connect(self, node: Node = ONLY) -> redis.Redis:
        """A client for calls from threads."""
        url = self.place.url_of(node)
        options = _calls(Retry) | self._greeting(self._greet)
        return redis.Redis(connection_pool=self._from_url(url, _Pool, **options))

    def connect_async(self, node: Node = ONLY) -> redis.asyncio.Redis:
        """A client for calls from an event loop."""
        url = self.place.url_of(node)
        options = _calls(AsyncRetry) | self._greeting(self._greet_async)
        return redis.asyncio.Redis(connection_pool=self._from_url(url, _AsyncPool, **options))

    def connect_plain(self) -> redis.Redis:
        """A client for what is not ours and speaks plain Redis (RQ), of the primary of now.

        It gives up sooner than a call does, so that its user, which repeats all it does, turns.
        """
        if self.place.shape is Shape.CLUSTER:
            raise InvalidInput(
                "launch",
                f"RQ cannot keep its queues on a Cluster ({redacted(self.url)}): name a plain "
                "Redis for it with TOCSIN_RQ_URL, or rq_url in a settings file, where workers and "
                "schedulers run",
            )
        node = self.node_of(None) or self.find(None)
        options = {"socket_timeout": ANSWER_WITHIN, **_once(Retry)}
        pool = self._from_url(self.place.url_of(node), redis.ConnectionPool, **options)
        return redis.Redis(connection_pool=pool)

    def connect_line(self, node: Node = ONLY) -> Any:
        """A connection, not yet opened, to listen on."""
        pool = self._from_url(
            self.place.url_of(node),
            redis.ConnectionPool,
            socket_timeout=ANSWER_WITHIN,
            **_once(Retry) | {"client_name": "tocsin-bells"} | self._greeting(self._greet),
        )
        # Whatever the url says: in protocol 2 what was subscribed to comes as plain answers.
        pool.connection_kwargs["protocol"] = 2
        return pool.make_connection()


class _Pool(redis.BlockingConnectionPool):
    """Connections for threads: one waits for as long as the server answers the others."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)  # type: ignore[no-untyped-call]
        self._answered = -math.inf
        """When a connection last came back whole, by this process's clock."""

    def get_connection(self, *args: Any, **options: Any) -> Any:
        while True:
            try:
                return super().get_connection(*args, **options)  # type: ignore[no-untyped-call]
            except exceptions.ConnectionError as error:
                none_is_free = isinstance(error.__context__, Empty)
                if not none_is_free or time.monotonic() - self._answered > self.timeout:
                    raise

    def release(self, connection: Any) -> None:
        if connection._sock is not None:  # redis-py 7.0 has no other way to ask that
            self._answered = time.monotonic()
        super().release(connection)  # type: ignore[no-untyped-call]


class _AsyncPool(redis.asyncio.ConnectionPool):
    """Connections for tasks, each in its turn; none is lost, whatever task is cancelled and when.

    In redis-py's own blocking pool a task that gives a connection back and wants one again is
    served before those that wait, so that a few busy ones leave others without; and one that is
    cancelled while it waits for the pool's lock to give it back keeps it for ever. As in `_Pool`,
    one waits for as long as the server answers the others.
    """

    def __init__(self, timeout: float, **options: Any) -> None:
        super().__init__(**options)
        self._timeout = timeout
        self._free = asyncio.Semaphore(self.max_connections)
        self._answered = -math.inf

    async def get_connection(self, *args: Any, **options: Any) -> Any:
        await self._wait_for_one()
        try:
            connection: Any = self.get_available_connection()  # type: ignore[no-untyped-call]
        except BaseException:
            self._free.release()
            raise
        try:
            await self.ensure_connection(connection)
        except BaseException:
            await self.release(connection)
            raise
        return connection

    async def _wait_for_one(self) -> None:
        if not self._free.locked():
            await self._free.acquire()
            return
        waiting = asyncio.ensure_future(self._free.acquire())
        try:
            while not (await asyncio.wait({waiting}, timeout=self._timeout))[0]:
                if time.monotonic() - self._answered > self._timeout:
                    raise exceptions.ConnectionError("all connections are in use, none is answered")
        except BaseException:
            if not waiting.cancel():  # it had its turn already
                self._free.release()
            raise

    async def release(self, connection: Any) -> None:
        if connection.is_connected:
            self._answered = time.monotonic()
        giving_back = self._give_back(connection)
        if self._lock.locked() or connection.should_reconnect():  # it may have to wait
            await asyncio.shield(giving_back)
        else:
            await giving_back

    async def _give_back(self, connection: Any) -> None:
        try:
            await super().release(connection)
        finally:
            self._free.release()


def _once(retry: Any) -> dict[str, Any]:
    return {"retry": retry(NoBackoff(), 0), "client_name": "tocsin"}


def _calls(retry: Any) -> dict[str, Any]:
    return {
        "max_connections": CONNECTIONS,
        "timeout": FREE_WITHIN,
        "socket_timeout": ANSWER_WITHIN,
        **_once(retry),
    }


class NotReplicatedError(exceptions.RedisError):
    """No replica said in time that it has what a call wrote."""


def is_lost(error: Exception) -> bool:
    """Whether nothing is known of what became of what was sent."""
    return isinstance(error, exceptions.ConnectionError | exceptions.TimeoutError)


def _is_unstable(error: Exception) -> bool:
    """Whether the right server was asked, and is giving the slot away or waits for replicas.

    An `ASK` is never followed: where it leads, there is a part of the keys.
    """
    waits = isinstance(error, exceptions.AskError | exceptions.TryAgainError)
    moved = isinstance(error, exceptions.MovedError)
    return (waits and not moved) or str(error).startswith("NOREPLICAS")


def is_passing(error: Exception) -> bool:
    """Whether the same call may go well in a moment: on a new line, or with another server."""
    if isinstance(error, exceptions.AuthenticationError):
        return False
    elsewhere = exceptions.AskError | exceptions.ReadOnlyError | exceptions.ClusterDownError
    return is_lost(error) or isinstance(error, elsewhere) or _is_unstable(error)


class Patience:
    """How long one call is tried, when servers fail under it: see `GIVE_UP_AFTER`.

    A repeat is safe because what a call makes has its id before the first try.
    """

    def __init__(self, server: Server) -> None:
        self._last_try = time.monotonic() + GIVE_UP_AFTER - ANSWER_WITHIN - FREE_WITHIN
        self._failures = 0
        self._has_spare = server.has_spare

    def pause(self, error: exceptions.RedisError) -> float | None:
        """The seconds to wait before the next try, with jitter; None if there is to be none."""
        if not is_passing(error):
            return None
        self._failures += 1
        if self._failures == 1 and self._has_spare and isinstance(error, exceptions.MovedError):
            return 0.0
        pause = random.uniform(0.02, 0.05) * 3 ** min(self._failures, 9)
        if self._has_spare:
            pause = min(pause, _LONGEST_PAUSE * random.uniform(0.5, 1.0))
        elif self._failures > REPEATS:
            return None
        return None if time.monotonic() + pause > self._last_try else pause
