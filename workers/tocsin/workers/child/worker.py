"""The RQ worker that runs turns, with what a long life takes: `tocsin worker`.

RQ starts a process for each job and does nothing else for us: whether a turn is to run, and what
becomes of one that broke off, the broker says.
"""

from __future__ import annotations

import logging
import os
import re
import secrets
import signal
import socket
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from types import FrameType
from typing import Any

from rq import Queue, Worker
from rq.executions import Execution
from rq.job import Job
from rq.serializers import JSONSerializer

from tocsin.broker.connections import Server, is_passing
from tocsin.broker.errors import BrokerError
from tocsin.broker.failures import failure
from tocsin.broker.pulse import is_running
from tocsin.workers.child import folder, function, program

_PRELOADED = function, program
"""What a turn needs, so that a process that is forked for one has it."""

log = logging.getLogger("tocsin.worker")

GRACE = timedelta(minutes=10)
"""How long a running turn may go on when its worker is told to stop."""

STOP_WITHIN = 5.0
"""Seconds that a turn has when its worker is told so a second time."""

BEAT = 4
"""Seconds after which a worker says again that it is there, busy or not."""

SILENT = timedelta(seconds=9)
"""A worker that has said nothing for so long hangs: so it shows within 10 s."""

_LONGEST_PAUSE = 10.0


class TurnWorker(Worker):
    """Finishes the running turn at the first signal, within its grace; stops it at the second."""

    grace = GRACE

    @property
    def told(self) -> bool:
        """Whether it was told to stop."""
        return self._shutdown_requested_date is not None

    def handle_warm_shutdown_request(self) -> None:
        """At the first signal: lets the running turn end, but not for ever."""
        if not self.horse_pid:
            return
        self.log.info("finishing the running turn; a second signal stops it at once")
        timer = threading.Timer(self.grace.total_seconds(), self._interrupt_turn)
        timer.daemon = True
        timer.start()

    def _interrupt_turn(self) -> None:
        """Tells the turn to stop, which it then tells the broker."""
        if self.horse_pid:
            with suppress(ProcessLookupError):
                os.kill(self.horse_pid, signal.SIGTERM)

    def maintain_heartbeats(self, job: Job, execution: Execution) -> None:
        """Says that it is there; while its Redis is away the running turn goes on."""
        try:
            super().maintain_heartbeats(job, execution)
        except Exception as error:
            if not is_passing(error):
                raise
            log.warning("the Redis of RQ is away (%s); the turn goes on", type(error).__name__)

    def request_force_stop(self, signum: int, frame: FrameType | None) -> None:
        """At the second signal: stops the turn, and gives it some seconds to say so."""
        self._interrupt_turn()
        until = time.monotonic() + STOP_WITHIN
        while self.horse_pid and time.monotonic() < until:
            try:
                if os.waitpid(self.horse_pid, os.WNOHANG)[0]:
                    raise SystemExit
            except ChildProcessError:
                raise SystemExit from None
            time.sleep(0.05)
        super().request_force_stop(signum, frame)
        raise SystemExit


def make_name(prefix: str | None = None) -> str:
    """A name for a worker: where it runs unless told otherwise, and what tells it apart."""
    host = re.sub(r"[^a-z0-9-]+", "-", socket.gethostname().lower())[:40]
    return f"{prefix or host}-{os.getpid()}-{secrets.token_hex(2)}"


def serve(
    url: str,
    queues: Sequence[str],
    *,
    name: str | None = None,
    burst: bool = False,
    grace: timedelta = GRACE,
    ready: Callable[[str], object] = lambda _: None,
) -> None:
    """Runs turns until it is told to stop; with `burst` until none is queued.

    `url` is that of RQ's Redis. A worker that lost it ends, in RQ; then another one takes its place
    here, with back-off, as often as it takes.
    """
    pause = 0.5
    _listen()
    folder.sweep()
    while True:
        began = time.monotonic()
        try:
            worker = _make(Server(url).connect_plain(), queues, make_name(name), grace)
            ready(worker.name)
            worker.work(burst=burst, logging_level=None)
            if worker.told or burst:
                return
        except Exception as error:
            if not is_passing(error):
                raise
            if burst:
                raise _away(url, error) from None
            log.warning("the Redis of RQ is away (%s); trying again", type(error).__name__)
        _listen()
        pause = 0.5 if time.monotonic() - began > _LONGEST_PAUSE else min(pause * 2, _LONGEST_PAUSE)
        time.sleep(pause)


def _listen() -> None:
    """Ends at a signal, while no worker hears it."""
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, _leave)


def _leave(_number: int, _frame: FrameType | None) -> None:
    raise SystemExit


def _make(connection: Any, queues: Sequence[str], name: str, grace: timedelta) -> TurnWorker:
    worker = TurnWorker(
        [Queue(queue, connection=connection, serializer=JSONSerializer) for queue in queues],
        name=name,
        connection=connection,
        serializer=JSONSerializer,
        worker_ttl=15 + BEAT,  # it waits for a job for 15 s less, and then says that it is there
        job_monitoring_interval=BEAT,
    )
    worker.grace = grace
    return worker


def _away(url: str, error: Any) -> BrokerError:
    """What redis raised, which is not spoken here, as an error of ours."""
    return failure("worker", url, error)


def check(url: str) -> tuple[list[dict[str, Any]], list[str]]:
    """The workers of this machine that say that they are there, and what is wrong."""
    here, now = socket.gethostname(), datetime.now(UTC)
    try:
        everywhere = Worker.all(connection=Server(url).connect_plain())
    except Exception as error:
        if not is_passing(error):
            raise
        raise _away(url, error) from None
    # One that was killed has left its record, and in a container another may have its number.
    workers = [each for each in everywhere if each.hostname == here and is_running(each.pid or 0)]
    found: list[dict[str, Any]] = [
        {
            "worker": each.name,
            "pid": each.pid,
            "state": str(each.get_state()),
            "queues": each.queue_names(),
            "seen_ms": round((now - each.last_heartbeat) / timedelta(milliseconds=1)),
        }
        for each in workers
        if each.last_heartbeat is not None and each.death_date is None
    ]
    problems = [
        f"worker {each['worker']} has been silent for {each['seen_ms'] // 1000} s"
        for each in found
        if timedelta(milliseconds=each["seen_ms"]) > SILENT
    ]
    if not found:
        problems.append(f"no worker runs on this machine ({here}); start `tocsin worker`")
    return found, problems
