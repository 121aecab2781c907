"""Time, memory and tables."""

from __future__ import annotations

import multiprocessing
import statistics
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import redis
from rich import box
from rich.console import Console
from rich.table import Table

from tocsin.broker import Broker, ManualClock
from tocsin.broker.embedded import EmbeddedServer

ENOUGH = 60.0
"""Seconds after which a process that was left alone ends by itself."""


@dataclass(frozen=True)
class Options:
    """What the command line said."""

    runs: int
    waits: tuple[int, ...]
    fired: int
    console: Console
    backlog: int = 100_000
    herds: int = 1_000
    agents: int = 1_000
    due: int = 10_000
    sweep: bool = False


@dataclass(frozen=True)
class Place:
    """A private server, a fleet on it, the clock of that fleet, and a plain client."""

    url: str
    broker: Broker
    clock: ManualClock
    plain: redis.Redis

    def used_memory(self) -> int:
        """Bytes that the server holds for data."""
        info: Any = self.plain.info("memory")
        return int(info["used_memory_dataset"])


@contextmanager
def place() -> Iterator[Place]:
    """A server of its own for one benchmark; it keeps nothing and ends with it."""
    with EmbeddedServer(durable=False) as server:
        clock = ManualClock()
        with redis.Redis.from_url(server.url) as plain:
            broker = Broker.connect(server.url, fleet="bench", clock=clock)
            link = broker.link
            yield Place(server.url, broker, clock, plain)
            link.close()


@contextmanager
def process(work: Callable[..., None], *args: str) -> Iterator[None]:
    """The work in a process of its own, which must end by itself."""
    other = multiprocessing.get_context("spawn").Process(target=work, args=args)
    other.start()
    try:
        yield
    finally:
        other.join(ENOUGH)
        other.kill()


def seconds(work: Callable[[], object]) -> float:
    """How long the work took."""
    started = time.perf_counter()
    work()
    return time.perf_counter() - started


def medians(runs: int, works: Mapping[str, Callable[[], object]]) -> dict[str, float]:
    """The median seconds of each; they take turns, so that a slow moment hits all of them."""
    times: dict[str, list[float]] = {name: [] for name in works}
    for _ in range(runs):
        for name, work in works.items():
            times[name].append(seconds(work))
    return {name: statistics.median(taken) for name, taken in times.items()}


def show(console: Console, title: str, columns: list[str], rows: list[list[str]]) -> None:
    """Prints a table; all columns but the first are figures."""
    table = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD)
    for number, column in enumerate(columns):
        table.add_column(column, justify="right" if number else "left", no_wrap=bool(number))
    for row in rows:
        table.add_row(*row)
    console.print(table)


def times(ours: float, bare: float) -> str:
    """A ratio."""
    return f"{ours / bare:.2f} x"
