"""Where a run takes place: one server, a Cluster, or what Sentinels watch; and how each breaks.

A ground gives each process lines of its own to all servers, and mends what it broke: a heal says
False while the servers are not whole again, and is asked anew.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from typing import Protocol, Self

import redis

from tests.proxy import Proxy
from tests.topologies import ClusterServers, OneServer, SentinelServers, primaries
from tocsin.broker import keys
from tocsin.broker.embedded import EmbeddedServer
from tocsin.broker.urls import Node, Place

Heal = Callable[[], bool | None]

ENDS_WITHIN = 15.0
"""Seconds that a server has to end."""

WHOLE_WITHIN = 60.0
"""Seconds after which servers must be whole again."""

STAYS_WHOLE = 3.0
"""Seconds that servers must have been whole: who was missed a moment ago may yet be replaced."""

LOOK_AGAIN = 0.25


class Lines:
    """The way of one process to all servers, which breaks as one."""

    def __init__(self, url: str, nodes: Iterable[Node]) -> None:
        self._to = {node: Proxy(f"redis://{node}") for node in nodes}
        self._only = Proxy(url) if not self._to else None
        self.url = self._only.url if self._only else url
        self.routes = {node: _node_of(proxy) for node, proxy in self._to.items()}
        """By the address of a server, that of the line to it; empty where the url says it all."""

    @property
    def _all(self) -> list[Proxy]:
        return [self._only] if self._only else list(self._to.values())

    def cut_all(self) -> None:
        for proxy in self._all:
            proxy.cut_all()

    def cut_next(self, containing: str, *, before: bool) -> None:
        for proxy in self._all:
            proxy.cut_next(containing, before=before)

    def freeze(self) -> None:
        for proxy in self._all:
            proxy.freeze()

    def thaw(self) -> None:
        for proxy in self._all:
            proxy.thaw()

    def close(self) -> None:
        for proxy in self._all:
            proxy.close()


def _node_of(proxy: Proxy) -> Node:
    host, _, port = proxy.url.rpartition("/")[2].partition(":")
    return Node(host, int(port))


def go_by(routes: dict[Node, Node]) -> None:
    """Makes all connections of this process go by its lines, whatever address they were told."""
    url_of = Place.url_of
    Place.url_of = lambda self, node: url_of(self, routes.get(node, node))  # type: ignore[method-assign]


class Ground(Protocol):
    """What the driver does to the servers of a run."""

    durability: str | None

    def __init__(self, folder: Path, fleet: str, herd: str) -> None: ...
    def __enter__(self) -> Self: ...
    def __exit__(self, *_: object) -> None: ...

    @property
    def url(self) -> str:
        """What a client is given."""

    @property
    def nodes(self) -> tuple[Node, ...]:
        """The servers that clients are told of; none where there is one."""

    def kill(self) -> Heal:
        """SIGKILL of the server that holds the herd."""

    def freeze(self) -> Heal:
        """SIGSTOP of it."""

    def freeze_all(self) -> Heal:
        """SIGSTOP of all."""

    def move(self) -> Heal:
        """The herd's slot moves in one step."""

    def move_by_key(self) -> Heal:
        """And key by key."""

    def run_each(self, *words: str) -> None:
        """A command to each server that takes writes."""


class Single:
    """One server that keeps all on its disk."""

    durability: str | None = None
    nodes: tuple[Node, ...] = ()

    def __init__(self, folder: Path, fleet: str, herd: str) -> None:
        self._server = EmbeddedServer(folder / "server", options={"appendfsync": "always"})

    def __enter__(self) -> Self:
        self._server.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.stop()

    @property
    def url(self) -> str:
        return self._server.url

    def kill(self) -> Heal:
        url = self.url
        os.kill(self._server.pid, signal.SIGKILL)

        def again() -> None:
            until = time.monotonic() + ENDS_WITHIN
            while self._server.is_running() and time.monotonic() < until:
                time.sleep(LOOK_AGAIN)
            self._server.stop()
            self._server.start()
            assert self.url == url, "the server came back at another address"

        return again

    def freeze(self) -> Heal:
        pid = self._server.pid
        os.kill(pid, signal.SIGSTOP)
        return lambda: os.kill(pid, signal.SIGCONT)

    freeze_all = freeze

    def move(self) -> Heal:
        raise NotImplementedError("there is nowhere to move to")

    move_by_key = move

    def run_each(self, *words: str) -> None:
        _run_each(self.url, words)


class _Several:
    """Servers of which another takes over. What one has confirmed, a replica has."""

    durability: str | None = "replicated"
    shards = 1
    servers: ClusterServers | SentinelServers

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.servers.__exit__()

    @property
    def url(self) -> str:
        return str(self.servers.url)

    @property
    def nodes(self) -> tuple[Node, ...]:
        return tuple(server.node for server in self.data)

    @property
    def data(self) -> list[OneServer]:
        """All but Sentinels."""
        raise NotImplementedError

    @property
    def primary(self) -> OneServer:
        """What holds the run's herd."""
        raise NotImplementedError

    def is_whole(self) -> bool:
        """Whether the herd's primary answers, and every replica has what its primary has."""
        with suppress(redis.ConnectionError, redis.TimeoutError, AssertionError):
            roles = {server: server.run("ROLE") for server in self.data}
            replicas = [role for role in roles.values() if role[0] == "slave"]
            return (
                roles[self.primary][0] == "master"
                and len(replicas) == len(self.data) - self.shards
                and all(role[3] == "connected" for role in replicas)
            )
        return False

    def restart(self, server: OneServer) -> None:
        """Starts a server that was killed, which has nothing on its disk, or what is long past."""
        server.start()

    def kill(self) -> Heal:
        """The primary is started again only when another has its place."""
        gone = self.primary
        gone.kill()

        def mended() -> bool:
            if not gone.is_running():
                if self.primary is gone:
                    return False
                self.restart(gone)
            return self.is_whole()

        return _patiently(mended, "a killed primary to be replaced, and a replica")

    def freeze(self) -> Heal:
        frozen = self.primary
        frozen.freeze()

        def mended() -> bool:
            frozen.thaw()
            return self.is_whole()

        return _patiently(mended, "a frozen primary to be one again, or a replica")

    def freeze_all(self) -> Heal:
        """But the Sentinels, who are elsewhere: they would do nothing for 30 s after a sleep."""
        for server in self.data:
            server.freeze()

        def mended() -> bool:
            for server in self.data:
                server.thaw()
            return self.is_whole()

        return _patiently(mended, "all servers to be well after a sleep")

    def run_each(self, *words: str) -> None:
        with suppress(redis.ConnectionError, redis.TimeoutError):
            _run_each(self.url, words)


class OfCluster(_Several):
    """Three primaries with a replica each. The slot of the herd moves, too."""

    shards = 3

    def __init__(self, folder: Path, fleet: str, herd: str) -> None:
        self.servers = self._cluster = ClusterServers(replicas=1)
        self._key = keys.partition(fleet, keys.partition_of(herd, 16))

    @property
    def data(self) -> list[OneServer]:
        return self._cluster.servers

    @property
    def primary(self) -> OneServer:
        return self._cluster.primary_of(self._key)

    def _another(self) -> OneServer:
        source = self.primary
        others = [s for s in self.data if s is not source and s.run("ROLE")[0] == "master"]
        return others[0]

    def move(self) -> Heal:
        """In one step."""
        self._cluster.move(self._key, self._another())
        return _patiently(self.is_whole, "the servers to be well after a move")

    def move_by_key(self) -> Heal:
        """Some keys at each look, as the tools of older servers do."""
        target = self._another()
        self._cluster.begin_move(self._key, target)

        def mended() -> bool:
            if self._cluster.move_keys(self._key, target, 100):
                return False
            self._cluster.end_move(self._key, target)
            return True

        return mended


class OfSentinel(_Several):
    """A primary with a replica, which Sentinels promote. With two, one that still follows a primary
    which was frozen confirms for a moment what the promoted other never gets."""

    def restart(self, server: OneServer) -> None:
        """As a replica: as a primary Sentinels might promote it, with nothing in it."""
        server.start("--replicaof", "{} {}".format(*self.primary.node))

    def move(self) -> Heal:
        raise NotImplementedError("all slots are on one server")

    move_by_key = move

    def __init__(self, folder: Path, fleet: str, herd: str) -> None:
        self.servers = self._watched = SentinelServers(replicas=1)

    @property
    def data(self) -> list[OneServer]:
        return self._watched.servers[:2]

    @property
    def primary(self) -> OneServer:
        return self._watched.primary


GROUNDS: dict[str, type[Ground]] = {"server": Single, "cluster": OfCluster, "sentinel": OfSentinel}


def _run_each(url: str, words: tuple[str, ...]) -> None:
    with primaries(url) as clients:
        for client in clients:
            client.execute_command(*words)


def _patiently(mended: Callable[[], bool], what: str) -> Heal:
    """Looks now and then; what does not become whole breaks the run."""
    began = last = time.monotonic()
    since: float | None = None

    def heal() -> bool:
        nonlocal last, since
        now = time.monotonic()
        if now - last < LOOK_AGAIN:
            return False
        last = now
        assert now - began < WHOLE_WITHIN, f"waited for {what}"
        since = (since or now) if mended() else None
        return since is not None and now - since > STAYS_WHOLE

    return heal
