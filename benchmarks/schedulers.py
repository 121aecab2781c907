"""Schedulers in processes of their own, and what they have fired by the server's clock."""

from __future__ import annotations

import multiprocessing
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import redis

from tocsin.broker import Broker, keys
from tocsin.broker.caller import Caller
from tocsin.scheduler import Scheduler

FLEET = "bench"

PATIENCE = 300.0


def _schedule(url: str) -> None:
    with Broker.connect(url, fleet=FLEET) as broker:
        Scheduler(broker, repair_every=None).run()


@contextmanager
def schedulers(url: str, count: int) -> Iterator[list[int]]:
    """So many of them, without repair; the numbers of their processes, once they all listen."""
    spawn = multiprocessing.get_context("spawn")
    running = [spawn.Process(target=_schedule, args=(url,)) for _ in range(count)]
    for each in running:
        each.start()
    try:
        with redis.Redis.from_url(url, decode_responses=True) as plain:
            channel = keys.doorbell(FLEET)
            until(lambda: dict(plain.pubsub_numsub(channel))[channel] >= count, "they run")
        yield [each.pid or 0 for each in running]
    finally:
        for each in running:
            each.terminate()
            each.join()


def until(condition: Callable[[], bool], what: str, patience: float = PATIENCE) -> None:
    """Returns once it holds."""
    end = time.monotonic() + patience
    while not condition():
        assert time.monotonic() < end, what
        time.sleep(0.02)


def now(plain: redis.Redis) -> int:
    """The server's clock, in ms."""
    seconds, micros = plain.time()
    return int(seconds) * 1000 + int(micros) // 1000


def inbox(parent: Caller) -> str:
    """The key of the stream that a parent's reminders come in."""
    key = parent.fleet.partition(parent.herd)
    return keys.below(key, "inbox", herd=parent.herd, agent=parent.agent)


def reminded_at(plain: redis.Redis, parent: Caller) -> list[int]:
    """When each reminder of a herd was added, by the server's clock."""
    entries: Any = plain.xrange(inbox(parent))
    return [int(str(entry).partition("-")[0]) for entry, _ in entries]
