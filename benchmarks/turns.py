"""How long after mail wakes it the program of a child's turn runs, beside a bare RQ job."""

from __future__ import annotations

import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path

from rq import Queue
from rq.serializers import JSONSerializer

from benchmarks.measuring import ENOUGH, Options, show, times
from tocsin.broker import Broker, CommandRunner, Parent
from tocsin.broker.connections import Server
from tocsin.broker.embedded import EmbeddedServer
from tocsin.scheduler import Scheduler

ROOT = Path(__file__).parents[1]

PROGRAM = (sys.executable, "-S", "-c", "import sys; open(sys.argv[1], 'a').write('here\\n')")
"""The least that a program does: it starts, and says so."""


def bare(path: str) -> None:
    """A job of RQ alone that runs the same program."""
    subprocess.run([*PROGRAM, path], check=True)


@contextmanager
def _worker(url: str) -> Iterator[None]:
    words = (sys.executable, "-m", "tocsin.workers.cli.app", "worker", "--url", url)
    with subprocess.Popen(words, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as it:
        assert it.stdout is not None
        it.stdout.readline()  # it is there
        try:
            yield
        finally:
            it.terminate()


@contextmanager
def _scheduler(broker: Broker) -> Iterator[None]:
    scheduler = Scheduler(broker, repair_every=None)
    thread = threading.Thread(target=scheduler.run)
    thread.start()
    try:
        yield
    finally:
        scheduler.stop()
        thread.join()


def _until(happened: Callable[[], bool]) -> None:
    ends = time.monotonic() + ENOUGH
    while not happened():
        assert time.monotonic() < ends, "it did not happen"
        time.sleep(0.0005)


def _took(path: Path, start: Callable[[], object]) -> float:
    """Seconds from a start until the program has said that it is there."""
    before = path.stat().st_size if path.exists() else 0
    started = time.perf_counter()
    start()
    _until(lambda: path.exists() and path.stat().st_size > before)
    return time.perf_counter() - started


def _idle(parent: Parent) -> bool:
    return all(each.turns is None or each.turns.state == "none" for each in parent.roster())


def run(options: Options) -> None:
    """By turns: a job of RQ alone, a turn."""
    found: dict[str, list[float]] = {"bare RQ job": [], "turn, from the message that wakes": []}
    with (
        EmbeddedServer(durable=False) as server,
        tempfile.TemporaryDirectory() as folder,
        Broker.connect(server.url, fleet="bench") as broker,
        _scheduler(broker),
        _worker(server.url),
    ):
        path = Path(folder) / "said"
        parent = broker.open_herd("herd")
        parent.register(
            "child", runner=CommandRunner([*PROGRAM, str(path)], wake_batch=timedelta(0))
        )
        queue = Queue(
            "tocsin", connection=Server(server.url).connect_plain(), serializer=JSONSerializer
        )
        works = (
            lambda: queue.enqueue("benchmarks.turns.bare", str(path)),
            lambda: parent.message("child", "go"),
        )
        for number in range(options.runs + 1):  # the first is not counted
            for took, work in zip(found.values(), works, strict=True):
                seconds = _took(path, work)
                if number:
                    took.append(seconds)
                _until(lambda: _idle(parent) and not queue.started_job_registry.count)
    medians = {name: statistics.median(took) for name, took in found.items()}
    plain = medians["bare RQ job"]
    show(
        options.console,
        "turns: until the program's first line",
        ["what", "median", "ratio"],
        [[name, f"{each * 1e3:,.0f} ms", times(each, plain)] for name, each in medians.items()],
    )
