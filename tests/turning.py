"""Children with a runner, and their turns, as tests claim and end them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import redis
from rq import Queue
from rq.job import Job
from rq.serializers import JSONSerializer

from tests.fleets import Herd
from tocsin.broker import AsyncClaimedTurn, CommandRunner, Ending, How
from tocsin.broker.envelopes import TurnsInfo

WELL = Ending(kind=How.EXITED, exit_code=0)
BADLY = Ending(kind=How.EXITED, exit_code=3, tail="Traceback: no such file")


async def employ(herd: Herd, agent: str = "coder", **fields: Any) -> None:
    """Registers a child that has a runner, whose turns are in a queue of this fleet alone."""
    runner = CommandRunner(["code"], **{"queue": herd.broker.name, **fields})
    await herd.parent.register(agent, runner=runner)


async def turns_of(herd: Herd, agent: str = "coder") -> TurnsInfo:
    """What the roster says of an agent's turns."""
    [found] = [each for each in await herd.parent.roster() if each.agent == agent]
    assert found.turns is not None
    return found.turns


async def claim(herd: Herd, agent: str = "coder") -> AsyncClaimedTurn:
    """Begins the turn that is due, as a worker's job would."""
    found = await turns_of(herd, agent)
    assert found.state in ("due", "launched"), found
    turn = await herd.broker.claim_turn(herd.name, agent, found.number)
    assert turn is not None
    return turn


async def run(herd: Herd, ending: Ending = WELL, agent: str = "coder") -> str:
    """A whole turn that takes its mail and ends so; what was decided."""
    turn = await claim(herd, agent)
    await turn.child.receive()
    return (await turn.end(ending)).decision


@contextmanager
def queue_of(url: str, name: str) -> Iterator[Queue]:
    """The RQ queue of this name, which is gone afterwards with all its jobs."""
    with redis.Redis.from_url(url) as client:
        queue = Queue(name, connection=client, serializer=JSONSerializer)
        try:
            yield queue
        finally:
            queue.delete(delete_jobs=True)


def job(queue: Queue, name: str) -> Job:
    """A job of a queue."""
    return Job.fetch(name, connection=queue.connection, serializer=JSONSerializer)
