"""A webhook of the tests: a real server on loopback that keeps what is posted to it."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, NamedTuple

MOST = 30.0
"""Seconds after which a held request is answered, whatever the test does."""


class Post(NamedTuple):
    """One request: its path, its headers, the JSON it carried."""

    path: str
    headers: dict[str, str]
    alert: dict[str, Any]


class Webhook:
    """Answers with the next of `statuses`, then 200; while `held` is set it does not answer."""

    def __init__(self, server: ThreadingHTTPServer) -> None:
        self.port: int = server.server_port
        self.url = f"http://127.0.0.1:{self.port}/told?key=hunter2"
        self.posts: list[Post] = []
        self.statuses: list[int] = []
        self.goes_on = threading.Event()
        self.goes_on.set()

    @property
    def alerts(self) -> list[dict[str, Any]]:
        """What was posted, in order."""
        return [post.alert for post in self.posts]

    @property
    def ids(self) -> list[str]:
        """The ids of what was posted."""
        return [alert["id"] for alert in self.alerts]


@contextmanager
def webhook(address: str = "127.0.0.1", port: int = 0) -> Iterator[Webhook]:
    """A webhook on an address of the loopback network."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            hook.posts.append(Post(self.path, dict(self.headers), json.loads(body)))
            hook.goes_on.wait(MOST)
            status = hook.statuses.pop(0) if hook.statuses else 200
            try:
                self.send_response(status)
                if 300 <= status < 400:
                    self.send_header("Location", f"http://127.0.0.1:{hook.port}/elsewhere")
                self.end_headers()
            except OSError:  # the other side has gone
                self.close_connection = True

        def log_request(self, *_: Any) -> None:
            pass

    with ThreadingHTTPServer((address, port), Handler) as server:
        server.daemon_threads = True
        hook = Webhook(server)
        thread = threading.Thread(target=server.serve_forever, args=(0.05,))
        thread.start()
        try:
            yield hook
        finally:
            hook.goes_on.set()
            server.shutdown()
            thread.join()
