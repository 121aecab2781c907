"""A TCP proxy before the server, which loses answers and connections on command.

    with Proxy(server.url) as proxy:
        client = Broker.connect(proxy.url, ...)
        cut = proxy.cut_next("task_123")   # the command that mentions it runs, its answer is lost
        ...
        cut.wait()

It runs on threads of its own, so sync and async clients use it alike.
"""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Callable
from typing import Self
from urllib.parse import urlsplit, urlunsplit

PIECE = 65_536


class Cut:
    """One planned loss: of the answer to a command, or of the command itself."""

    def __init__(self, containing: bytes, before: bool) -> None:
        self.containing = containing
        self.before = before
        self._happened = threading.Event()

    def wait(self, timeout: float = 10.0) -> None:
        """Return once the connection was cut; fail after `timeout` seconds."""
        assert self._happened.wait(timeout), f"no command with {self.containing!r} was cut"

    @property
    def happened(self) -> bool:
        """Whether the connection was cut."""
        return self._happened.is_set()

    def mark(self) -> None:
        """Note that it happened."""
        self._happened.set()


class Proxy:
    """Listens on a free port of 127.0.0.1 and forwards to the server at `url`."""

    def __init__(self, url: str) -> None:
        self._target = urlsplit(url)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._lock = threading.Lock()
        self._links: set[_Link] = set()
        self._cut: Cut | None = None
        self._flowing = threading.Event()
        self._flowing.set()
        self._swallowing = False
        self._closed = False
        threading.Thread(target=self._accept, name="proxy-accept", daemon=True).start()

    @property
    def url(self) -> str:
        """The address for clients."""
        port = self._listener.getsockname()[1]
        return urlunsplit(self._target._replace(netloc=f"127.0.0.1:{port}"))

    @property
    def connections(self) -> int:
        """How many connections are open now."""
        with self._lock:
            return len(self._links)

    def cut_next(self, containing: str | bytes = b"", *, before: bool = False) -> Cut:
        """Cut the connection of the next command whose bytes contain `containing`, once.

        The server runs the command and answers, the answer is lost. With `before=True` the
        command itself is lost and the server never sees it. Empty: whatever is sent next, which
        on a new connection is the client's greeting.
        """
        needle = containing.encode() if isinstance(containing, str) else containing
        with self._lock:
            self._cut = Cut(needle, before)
            return self._cut

    def cut_all(self) -> None:
        """Cut every open connection now. New ones are accepted."""
        with self._lock:
            links = list(self._links)
        for link in links:
            link.close()

    def freeze(self) -> None:
        """Let nothing through, either way, on old and new connections, until `thaw`.

        What was sent meanwhile arrives at the thaw, as after a healed network. Use `cut_all`
        before thawing to lose it instead.
        """
        self._flowing.clear()

    def thaw(self) -> None:
        """Let everything through again."""
        self._flowing.set()

    def swallow(self) -> None:
        """Drop every byte from now on, on old and new connections, without a word, until `heal`."""
        self._swallowing = True

    def heal(self) -> None:
        """Carry new connections again. Those that lost something stay dead, and nobody is told."""
        self._swallowing = False

    @property
    def swallowing(self) -> bool:
        """Whether bytes are dropped now."""
        return self._swallowing

    def close(self) -> None:
        """Cut everything and listen no more."""
        self._closed = True
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self.cut_all()
        self._flowing.set()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    # ------------------------------------------------------------------------ inner parts

    def _accept(self) -> None:
        while not self._closed:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            try:
                server = socket.create_connection(
                    (self._target.hostname, self._target.port or 6379), timeout=5
                )
            except OSError:
                client.close()  # as a server does that is not there
                continue
            server.settimeout(None)
            for end in (client, server):
                end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            link = _Link(self, client, server)
            with self._lock:
                self._links.add(link)
            link.start()

    def take_cut(self, before: bytes, piece: bytes) -> Cut | None:
        """Return the planned cut if what it waits for ends in `piece`; nobody else gets it then."""
        with self._lock:
            cut = self._cut
            if cut is None:
                return None
            reach = max(len(cut.containing) - 1, 0)
            if cut.containing not in before[max(len(before) - reach, 0) :] + piece:
                return None
            self._cut = None
            return cut

    def wait_for_flow(self) -> None:
        """Return when nothing is frozen."""
        self._flowing.wait()

    def forget(self, link: _Link) -> None:
        """Take a closed connection from the list."""
        with self._lock:
            self._links.discard(link)


class _Link:
    """One client's connection and its twin to the server."""

    def __init__(self, proxy: Proxy, client: socket.socket, server: socket.socket) -> None:
        self._proxy = proxy
        self._client = client
        self._server = server
        self._answer_to_lose: Cut | None = None
        self._dead = False

    def _swallows(self) -> bool:
        self._dead = self._dead or self._proxy.swallowing
        return self._dead

    def start(self) -> None:
        for pump in (self._carry_commands, self._carry_answers):
            threading.Thread(target=self._guard, args=(pump,), daemon=True).start()

    def close(self) -> None:
        self._proxy.forget(self)
        for end in (self._client, self._server):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
            end.close()

    def _guard(self, pump: Callable[[], None]) -> None:
        try:
            pump()
        except OSError:
            pass  # the other side, or `close`, ended it
        finally:
            self.close()

    def _carry_commands(self) -> None:
        seen = b""  # the end of the piece before: a command may come in two
        while piece := self._client.recv(PIECE):
            self._proxy.wait_for_flow()
            if self._swallows():
                continue
            cut = self._proxy.take_cut(seen, piece)
            if cut is not None and cut.before:
                cut.mark()  # before the client can see it: what it does next may ask
                self.close()
                return
            if cut is not None:
                self._answer_to_lose = cut
            self._server.sendall(piece)
            seen = piece[-256:]

    def _carry_answers(self) -> None:
        while piece := self._server.recv(PIECE):
            self._proxy.wait_for_flow()
            if self._swallows():
                continue
            if (cut := self._answer_to_lose) is not None:
                cut.mark()
                self.close()
                return
            self._client.sendall(piece)
