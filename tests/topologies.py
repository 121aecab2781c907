"""Several servers on loopback as one Cluster, or as a primary whose replicas Sentinels watch.

    with ClusterServers(replicas=1) as cluster:
        Broker.connect(cluster.url)
        cluster.kill(cluster.primary_of("tocsin:{fleet:0}"))

They are the embedded server's binary, on free ports, keep nothing, and end with the `with`: each by
its process id.
"""

from __future__ import annotations

import contextlib
import random
import shutil
import signal
import socket
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, Self

import redis
from redis.backoff import NoBackoff
from redis.cluster import ClusterNode, RedisCluster
from redis.crc import key_slot
from redis.retry import Retry

from tests.waiting import wait_until
from tocsin.broker.connections import Server
from tocsin.broker.embedded import EmbeddedServer
from tocsin.broker.embedded.binary import find_binary
from tocsin.broker.urls import Node, Shape

HOST = "127.0.0.1"
SLOTS = 16_384
NODE_TIMEOUT = 1_000
"""Milliseconds of silence after which a server counts as failed."""

DOWN_AFTER = 2 * NODE_TIMEOUT
"""The same for Sentinels, which after a failover take a second to reach the promoted server."""

_PORTS = range(
    12_000, 20_000
)  # that and 10,000 more, the port of a Cluster's bus: both have to fit


def free_port() -> int:
    """A port that is free, and so is the one of its bus."""
    while True:
        port = random.choice(_PORTS)
        with contextlib.ExitStack() as stack, contextlib.suppress(OSError):
            for each in (port, port + 10_000):
                bound = stack.enter_context(socket.socket())
                bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                bound.bind((HOST, each))
            return port


@contextlib.contextmanager
def operator(url: str, *, decode_responses: bool = True) -> Iterator[Any]:
    """A client of redis-py's own for whatever is at `url`, that answers in text."""
    server = Server(url)
    if server.place.shape is Shape.CLUSTER:
        nodes = [ClusterNode(*node) for node in server.place.nodes]
        client: Any = RedisCluster(startup_nodes=nodes, decode_responses=decode_responses)
    else:
        node = server.node_of(None) or server.find(None)
        client = redis.Redis.from_url(server.place.url_of(node), decode_responses=decode_responses)
    with contextlib.closing(client):
        yield client


@contextlib.contextmanager
def primaries(url: str) -> Iterator[list[redis.Redis]]:
    """A client for each server at `url` that takes writes."""
    server = Server(url)
    server.node_of(None) or server.find(None)
    with contextlib.ExitStack() as stack:
        yield [
            stack.enter_context(
                redis.Redis.from_url(server.place.url_of(node), decode_responses=True)
            )
            for node in server.nodes
        ]


def scripts_run(url: str) -> int:
    """How many scripts the servers at `url` were asked to run, so far."""
    calls = 0
    with primaries(url) as clients:
        for client in clients:
            ran: Any = client.info("commandstats")
            calls += sum(ran.get(f"cmdstat_{by}", {}).get("calls", 0) for by in ("eval", "evalsha"))
    return calls


class OneServer:
    """One server process."""

    def __init__(self, folder: Path, *options: str) -> None:
        self.node = Node(HOST, free_port())
        self._folder = folder / str(self.node.port)
        self._folder.mkdir()
        self._options = options
        self._process: subprocess.Popen[bytes] | None = None
        self.start()

    def start(self, *more: str) -> None:
        """Starts it, or starts it again with what it had on disk, and with more options."""
        common = ("--bind", HOST, "--port", str(self.node.port), "--dir", str(self._folder))
        with (self._folder / "log").open("ab") as log:
            self._process = subprocess.Popen(
                [str(find_binary(None)), *self._options, *common, "--daemonize", "no", *more],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )
        wait_until(self._answers, f"the server at {self.node}")

    def _answers(self) -> bool:
        assert self._process is not None and self._process.poll() is None, self.log()
        with contextlib.suppress(redis.ConnectionError):
            self.run("PING")
            return True
        return False

    def is_running(self) -> bool:
        """Whether its process has not ended."""
        return self._process is not None and self._process.poll() is None

    def log(self) -> str:
        """What it wrote."""
        return (self._folder / "log").read_text("utf-8", "replace")

    def run(self, *command: Any) -> Any:
        """The answer to a command, at once or not at all."""
        options: dict[str, Any] = {"socket_timeout": 2.0, "retry": Retry(NoBackoff(), 0)}
        with redis.Redis(*self.node, decode_responses=True, **options) as client:
            return client.execute_command(*command)

    def follows(self) -> bool:
        """Whether it is a replica that has what its primary has."""
        return bool(self.run("ROLE")[3] == "connected")

    def signal(self, number: signal.Signals) -> None:
        """Sends its process a signal."""
        assert self._process is not None
        self._process.send_signal(number)

    def freeze(self) -> None:
        """Stops it where it is."""
        self.signal(signal.SIGSTOP)

    def thaw(self) -> None:
        """Lets it go on."""
        self.signal(signal.SIGCONT)

    def kill(self) -> None:
        """Ends it at once."""
        assert self._process is not None
        self._process.send_signal(signal.SIGCONT)
        self._process.kill()
        self._process.wait()


class _Servers:
    def __init__(self) -> None:
        self._folder = Path(tempfile.mkdtemp(prefix="tocsin-"))
        self.servers: list[OneServer] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for server in self.servers:
            server.kill()
        shutil.rmtree(self._folder, ignore_errors=True)

    def is_running(self) -> bool:
        """Whether each server is."""
        return all(server.is_running() for server in self.servers)

    def add(self, *options: str) -> OneServer:
        """One more server."""
        self.servers.append(OneServer(self._folder, *options))
        return self.servers[-1]

    def at(self, node: Node) -> OneServer:
        """The server with this address."""
        return next(server for server in self.servers if server.node == node)


class ClusterServers(_Servers):
    """A Cluster of three primaries, each with so many replicas."""

    def __init__(self, replicas: int = 0, primaries: int = 3) -> None:
        super().__init__()
        try:
            self._make(primaries, replicas)
        except BaseException:
            self.__exit__()
            raise

    def _make(self, primaries: int, replicas: int) -> None:
        for _ in range(primaries * (1 + replicas)):
            self.add(
                *("--cluster-enabled", "yes", "--cluster-node-timeout", str(NODE_TIMEOUT)),
                *("--cluster-replica-validity-factor", "0", "--repl-diskless-sync-delay", "0"),
                *("--save", "", "--appendonly", "no"),
            )
        first = self.servers[0]
        for number, server in enumerate(self.servers):
            server.run("CLUSTER", "SET-CONFIG-EPOCH", number + 1)
            if number < primaries:
                bounds = [SLOTS * part // primaries for part in (number, number + 1)]
                server.run("CLUSTER", "ADDSLOTSRANGE", bounds[0], bounds[1] - 1)
            if server is not first:
                first.run("CLUSTER", "MEET", *server.node)
        everyone = len(self.servers)
        wait_until(
            lambda: all(self._info(server, "known_nodes") == everyone for server in self.servers),
            "the nodes to know one another",
            timeout=30,
        )
        for number, server in enumerate(self.servers[primaries:]):
            self._follow(server, self.servers[number % primaries])
        wait_until(
            lambda: all(self._info(server, "state") == "ok" for server in self.servers),
            "the Cluster to be whole",
            timeout=30,
        )
        wait_until(
            lambda: all(len(shard) == 3 + replicas for shard in first.run("CLUSTER", "SLOTS")),
            "the replicas",
            timeout=30,
        )
        for server in self.servers[primaries:]:
            wait_until(server.follows, "the copy", timeout=30)

    def _follow(self, replica: OneServer, primary: OneServer) -> None:
        name = primary.run("CLUSTER", "MYID")

        def told() -> bool:
            with contextlib.suppress(redis.ResponseError):
                return bool(replica.run("CLUSTER", "REPLICATE", name))
            return False

        wait_until(told, "the replica to know its primary", timeout=30)

    @staticmethod
    def _info(server: OneServer, name: str) -> Any:
        lines = server.run("CLUSTER", "INFO").split()
        found = dict(line.split(":", 1) for line in lines)[f"cluster_{name}"]
        return int(found) if found.isdigit() else found

    @property
    def url(self) -> str:
        """Two of the nodes are enough to find the others."""
        return f"redis+cluster://{self.servers[-1].node},{self.servers[0].node}"

    def primary_of(self, key: str) -> OneServer:
        """The server that holds a key, as most of those that answer say."""
        slot, said = key_slot(key.encode()), []
        for server in self.servers:
            with contextlib.suppress(redis.ConnectionError, redis.TimeoutError):
                for first, last, (host, port, *_), *_replicas in server.run("CLUSTER", "SLOTS"):
                    if first <= slot <= last:
                        said.append(Node(host, port))
        return self.at(max(set(said), key=said.count))

    def move(self, key: str, target: OneServer) -> None:
        """Moves the slot of a key: in one step where servers know how (Valkey 9)."""
        slot, source = key_slot(key.encode()), self.primary_of(key)
        name = target.run("CLUSTER", "MYID")
        try:
            source.run("CLUSTER", "MIGRATESLOTS", "SLOTSRANGE", slot, slot, "NODE", name)
        except redis.ResponseError as error:
            if "unknown subcommand" not in str(error):
                raise
            self.begin_move(key, target)
            while self.move_keys(key, target):
                pass
            self.end_move(key, target)
        wait_until(lambda: self.primary_of(key) is target, "the slot to move", timeout=30)

    def begin_move(self, key: str, target: OneServer) -> None:
        """Begins to move the slot of a key one key after another, the way of older servers."""
        slot, source = key_slot(key.encode()), self.primary_of(key)
        target.run("CLUSTER", "SETSLOT", slot, "IMPORTING", source.run("CLUSTER", "MYID"))
        source.run("CLUSTER", "SETSLOT", slot, "MIGRATING", target.run("CLUSTER", "MYID"))

    def move_keys(self, key: str, target: OneServer, most: int = 1_000_000) -> int:
        """Moves so many keys of a slot that is on its way; how many there were to move."""
        slot, source = key_slot(key.encode()), self.primary_of(key)
        found = source.run("CLUSTER", "GETKEYSINSLOT", slot, most)
        if found:
            source.run("MIGRATE", *target.node, "", 0, 5000, "KEYS", *found)
        return len(found)

    def end_move(self, key: str, target: OneServer) -> None:
        """Ends a move of a slot whose keys have all moved."""
        slot, source = key_slot(key.encode()), self.primary_of(key)
        name = target.run("CLUSTER", "MYID")
        others = [each for each in self.servers if each not in (target, source)]
        for server in (target, source, *others):
            if server.run("ROLE")[0] == "master":
                server.run("CLUSTER", "SETSLOT", slot, "NODE", name)


class SentinelServers(_Servers):
    """A primary with replicas, and three Sentinels that watch it."""

    name = "mymaster"

    def __init__(self, replicas: int = 2) -> None:
        super().__init__()
        try:
            self._make(replicas)
        except BaseException:
            self.__exit__()
            raise

    def _make(self, replicas: int) -> None:
        common = ("--save", "", "--appendonly", "no", "--repl-diskless-sync-delay", "0")
        first = self.add(*common)
        for _ in range(replicas):
            self.add(*common, "--replicaof", f"{HOST} {first.node.port}")
        for server in self.servers[1:]:
            wait_until(server.follows, "the copy", timeout=30)
        self.sentinels: list[OneServer] = []
        for number in range(3):
            config = self._folder / f"sentinel-{number}.conf"
            config.write_text(
                f"sentinel monitor {self.name} {HOST} {first.node.port} 2\n"
                f"sentinel down-after-milliseconds {self.name} {DOWN_AFTER}\n"
                f"sentinel failover-timeout {self.name} 5000\n"
            )
            self.sentinels.append(self._sentinel(config))

        def ready(sentinel: OneServer) -> bool:
            facts = sentinel.run("SENTINEL MASTER", self.name)
            return (facts["num-slaves"], facts["num-other-sentinels"]) == (replicas, 2)

        for sentinel in self.sentinels:
            wait_until(partial(ready, sentinel), "the Sentinels to know all", timeout=30)

    def _sentinel(self, config: Path) -> OneServer:
        return self.add(str(config), "--sentinel")

    @property
    def url(self) -> str:
        """All Sentinels, and what they watch."""
        return f"redis+sentinel://{self.name}@{','.join(str(s.node) for s in self.sentinels)}/0"

    @property
    def primary(self) -> OneServer:
        """What the first Sentinel that answers says."""
        for sentinel in self.sentinels:
            with contextlib.suppress(redis.ConnectionError):
                host, port = sentinel.run("SENTINEL", "GET-MASTER-ADDR-BY-NAME", self.name)
                return self.at(Node(host, int(port)))
        raise AssertionError("no Sentinel answers")


TOPOLOGIES: dict[str, Callable[[], Any]] = {
    "server": partial(EmbeddedServer, durable=False),
    "cluster": ClusterServers,
    "sentinel": partial(SentinelServers, replicas=1),
}
"""Where a fleet can be: what starts servers that end with the `with`, and keep nothing."""
