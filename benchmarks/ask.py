"""How long an ask takes, there and back, between two processes that are warm."""

from __future__ import annotations

from typing import Any

import redis

from benchmarks.measuring import ENOUGH, Options, medians, place, process, show, times
from tocsin.broker import Broker, ManualClock

TRIPS = 100
"""There and back, in one run."""

QUESTION = "Which back-off do we use when the token server does not answer, and who decided it?"
STOP = "stop"


def _answer(url: str, token: str) -> None:
    """Answers every question with its own words."""
    with Broker.connect(url, fleet="bench", clock=ManualClock()) as broker:
        me = broker.join("herd", "echo", token)
        while turn := me.next_turn(timeout=ENOUGH):
            with turn:
                for asked in turn:
                    me.reply(asked, asked.body)
                if turn[-1].body == STOP:
                    return


def _answer_stream(url: str) -> None:
    """The least there is: what is added to one stream is added to another."""
    with redis.Redis.from_url(url, socket_timeout=None) as client:
        last = "0"
        while last:
            last, body = _next(client, "bare:there", last)
            client.xadd("bare:back", {"body": body})
            if body == STOP.encode():
                return


def _next(client: redis.Redis, stream: str, last: str) -> tuple[str, bytes]:
    got: Any = client.xread({stream: last}, count=1, block=int(ENOUGH * 1000))
    if not got:
        return "", b""
    entries: Any = next(iter(got.values()))[0] if isinstance(got, dict) else got[0][1]
    entry, fields = entries[0]
    return entry.decode(), fields[b"body"]


class _Bare:
    def __init__(self, client: redis.Redis) -> None:
        self._client = client
        self._last = "0"

    def ask(self, body: str) -> None:
        """One question, one answer."""
        self._client.xadd("bare:there", {"body": body})
        self._last, answer = _next(self._client, "bare:back", self._last)
        assert answer == body.encode()


def run(options: Options) -> None:
    """A question and its answer: streams and nothing else, then asks."""
    with (
        place() as here,
        redis.Redis.from_url(here.url, socket_timeout=None) as client,
    ):
        parent = here.broker.open_herd("herd")
        token = parent.register("echo").token
        assert token is not None
        bare = _Bare(client)

        def asks() -> None:
            for _ in range(TRIPS):
                assert parent.ask("echo", QUESTION).body == QUESTION

        def streams() -> None:
            for _ in range(TRIPS):
                bare.ask(QUESTION)

        with process(_answer, here.url, token), process(_answer_stream, here.url):
            asks()  # both are up, and have run once
            streams()
            took = medians(options.runs, {"bare XADD + XREAD BLOCK": streams, "ask + reply": asks})
            parent.ask("echo", STOP)
            bare.ask(STOP)
        here.broker.close()
    least = took["bare XADD + XREAD BLOCK"]
    show(
        options.console,
        "ask: a question and its answer between two processes",
        ["what", "round trip", "ratio"],
        [
            [name, f"{each / TRIPS * 1e6:,.0f} us", times(each, least)]
            for name, each in took.items()
        ],
    )
