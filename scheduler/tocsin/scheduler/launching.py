"""RQ, as far as a scheduler needs it: puts turns into queues, one job each. The one file with `rq`.

RQ starts a turn on some machine, and decides nothing. A job names a turn; the first that claims the
turn in the broker runs it, and any other ends at once. So a job that is there twice does no harm,
and one that is lost is put there again when nobody has claimed its turn in time. RQ's retries are
not used, nor its time-outs: the broker knows when a turn has failed, and what then.
"""

from __future__ import annotations

import hashlib
import logging
from collections import Counter
from collections.abc import Sequence
from typing import Any

from rq import Queue, Worker
from rq.exceptions import DuplicateJobError, NoSuchJobError
from rq.job import Job
from rq.serializers import JSONSerializer

from tocsin.broker.connections import Server
from tocsin.broker.errors import Unavailable
from tocsin.broker.failures import failures_of
from tocsin.broker.turns import DueTurn

log = logging.getLogger("tocsin.scheduler")

FUNCTION = "tocsin.workers.child.job.run_turn"
"""What a worker calls, by its name: nothing of it is imported here."""

RESULT_TTL = 3_600
"""Seconds that RQ shows a job which has ended."""

FAILURE_TTL = 86_400
"""Seconds that RQ shows a job which was broken off."""


def job_id(fleet: str, turn: DueTurn) -> str:
    """The id of a turn's job, which names it for people and is safe wherever RQ writes it.

    Names may hold what stands between them; a fingerprint of them tells those apart.
    """
    names = (fleet, turn.herd, turn.agent)
    readable = "-".join((*names, str(turn.number)))
    if not any("-" in name for name in names):
        return readable
    return f"{readable}-{hashlib.sha256('/'.join(names).encode()).hexdigest()[:8]}"


class Queues:
    """The queues of a fleet, on a server."""

    def __init__(self, server: Server, fleet: str) -> None:
        self._server = server
        self._fleet = fleet
        self._redis: Any = None

    def put(self, turns: Sequence[DueTurn]) -> None:
        """Puts a job for each of these turns into its queue, unless it stands there already."""
        try:
            with failures_of("launch", self._server.url):
                if self._redis is None:
                    self._redis = self._server.connect_plain()
                for turn in turns:
                    self._put(turn)
        except Unavailable:
            self.close()  # another server may be the primary when it is tried again
            raise

    def _put(self, turn: DueTurn) -> None:
        queue = Queue(turn.queue, connection=self._redis, serializer=JSONSerializer)
        name = job_id(self._fleet, turn)
        try:
            self._enqueue(queue, name, turn)
        except DuplicateJobError:
            if queue.get_job_position(name) is not None:
                return  # it waits for a worker
            # It was begun, and nobody claimed its turn: whoever began it is gone, or will see.
            try:
                Job.fetch(name, connection=self._redis, serializer=JSONSerializer).delete()
            except NoSuchJobError:
                log.debug("job %s ended meanwhile", name)
            self._enqueue(queue, name, turn)

    def _enqueue(self, queue: Queue, name: str, turn: DueTurn) -> None:
        queue.enqueue_call(
            FUNCTION,
            kwargs={
                "fleet": self._fleet,
                "herd": turn.herd,
                "agent": turn.agent,
                "turn": turn.number,
            },
            job_id=name,
            description=f"turn {turn.number} of {turn.herd}/{turn.agent}",
            meta={
                "herd": turn.herd,
                "agent": turn.agent,
                "turn": turn.number,
                "task": turn.task or None,
            },
            timeout=-1,
            result_ttl=RESULT_TTL,
            failure_ttl=FAILURE_TTL,
            unique=True,
        )

    def workers(self) -> dict[str, int]:
        """How many workers of each queue run, as RQ knows."""
        with failures_of("workers", self._server.url):
            if self._redis is None:
                self._redis = self._server.connect_plain()
            found = Worker.all(connection=self._redis, serializer=JSONSerializer)
            return dict(Counter(name for each in found for name in each.queue_names()))

    def close(self) -> None:
        """Ends its connections."""
        if self._redis is not None:
            self._redis.close()
            self._redis = None
