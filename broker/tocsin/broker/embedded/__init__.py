"""A private Valkey or Redis server process, for one machine, for demos and for tests.

    with EmbeddedServer(Path("data")) as server:      # durable: an AOF in that directory
        print(server.url)

    with EmbeddedServer(durable=False) as server:     # a throwaway of its own, nothing kept
        ...

Its life hangs on the process that started it: however that ends, the server ends too (see
`watcher.py`). A directory is held by one server at a time. The proof is a lock that the
operating system drops when the last holder is gone; a record beside the lock says who that is.
"""

from __future__ import annotations

from tocsin.broker.embedded.binary import find_binary
from tocsin.broker.embedded.directory import Holder, holder_of
from tocsin.broker.embedded.errors import EmbeddedServerError
from tocsin.broker.embedded.server import EmbeddedServer

__all__ = ["EmbeddedServer", "EmbeddedServerError", "Holder", "find_binary", "holder_of"]
