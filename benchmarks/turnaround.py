"""How long after a message is sent an agent in another process has it in hand."""

from __future__ import annotations

from typing import Any

import redis

from benchmarks.measuring import ENOUGH, Options, medians, place, process, show, times
from tocsin.broker import Broker, HerdSettings, ManualClock

TRIPS = 100
"""There and back, in one run."""


def _echo(url: str, token: str) -> None:
    """Writes back to whoever writes."""
    with Broker.connect(url, fleet="bench", clock=ManualClock()) as broker:
        me = broker.join("herd", "echo", token)
        while turn := me.next_turn(timeout=ENOUGH):
            with turn:
                if turn[0].body == "stop":
                    return
                me.message("parent", turn[0].body)


def _echo_list(url: str) -> None:
    with redis.Redis.from_url(url, socket_timeout=None) as client:
        while (got := client.blpop(["bare:there"], timeout=ENOUGH)) and got[1] != b"stop":
            client.rpush("bare:back", got[1])


def _echo_channel(url: str) -> None:
    with redis.Redis.from_url(url, socket_timeout=None) as client, client.pubsub() as heard:
        heard.subscribe("bare:there")
        while message := heard.get_message(timeout=ENOUGH):
            if message["type"] == "message":
                if message["data"] == b"stop":
                    return
                client.publish("bare:back", message["data"])


def _bare_list(client: redis.Redis) -> None:
    for _ in range(TRIPS):
        client.rpush("bare:there", "ping")
        client.blpop(["bare:back"], timeout=ENOUGH)


def _bare_channel(client: redis.Redis, heard: Any) -> None:
    for _ in range(TRIPS):
        client.publish("bare:there", "ping")
        while heard.get_message(timeout=ENOUGH)["type"] != "message":
            pass


def _ours(parent: Any) -> None:
    for _ in range(TRIPS):
        parent.message("echo", "ping")
        parent.next_turn(timeout=ENOUGH).ack()


def run(options: Options) -> None:
    """Ping-pong between two processes: lists, channels, agents."""
    with (
        place() as here,
        redis.Redis.from_url(here.url, socket_timeout=None) as client,
        client.pubsub() as heard,
    ):
        parent = here.broker.open_herd("herd", settings=HerdSettings(pair_rate=1_000_000))
        token = parent.register("echo").token
        assert token is not None
        heard.subscribe("bare:back")
        with (
            process(_echo, here.url, token),
            process(_echo_list, here.url),
            process(_echo_channel, here.url),
        ):
            while client.pubsub_numsub("bare:there")[0][1] == 0:
                pass
            _ours(parent)  # all are up, and have run once
            works = {
                "bare RPUSH + BLPOP": lambda: _bare_list(client),
                "bare PUBLISH + SUBSCRIBE": lambda: _bare_channel(client, heard),
                "message + next_turn + ack": lambda: _ours(parent),
            }
            took = medians(options.runs, works)
            client.rpush("bare:there", "stop")
            client.publish("bare:there", "stop")
            parent.message("echo", "stop")
        here.broker.close()
    bare = took["bare RPUSH + BLPOP"]
    show(
        options.console,
        "turnaround: one way between two processes, half of a ping-pong",
        ["what", "one way", "ratio"],
        [
            [name, f"{each / TRIPS / 2 * 1e6:,.0f} us", times(each, bare)]
            for name, each in took.items()
        ],
    )
