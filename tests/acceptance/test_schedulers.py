"""One to twenty schedulers, started, frozen and killed at will."""

from __future__ import annotations

import itertools
import random
import time
from collections.abc import Callable
from contextlib import ExitStack
from datetime import timedelta

import pytest

from tests.acceptance.processes import Program
from tests.fleets import token_of
from tests.requirements import proves
from tests.topologies import TOPOLOGIES, operator
from tests.waiting import wait_until
from tocsin.broker import Broker, HerdSettings, Parent, keys
from tocsin.broker.embedded import EmbeddedServer

SERVED_WITHIN = timedelta(seconds=2)
"""How late a timer may be served, whichever schedulers died."""


@pytest.mark.long
@proves("P16")
def test_twenty_schedulers_that_are_killed_and_frozen():
    """Case 21: as long as one of them turns, each deadline is served within 2 s, and once.

    Sixteen share a process, four have one each. Time and again most are frozen or killed, others
    thaw or start; which one is left is another each time.
    """
    chance = random.Random(21)
    with (
        EmbeddedServer(durable=False) as server,
        Broker.connect(server.url, fleet="f") as broker,
        ExitStack() as stack,
    ):
        where = (server.url, "f")

        def start(name: str, *more: str) -> Program:
            program = stack.enter_context(Program(name, *where, *more))
            program.says("runs")
            return program

        parents = [broker.open_herd(f"h{number}") for number in range(8)]
        for parent in parents:
            parent.register("scout")
        herd = [start("many_schedulers", "16"), *(start("scheduler") for _ in range(4))]
        deadlines = []
        for round_ in range(6):
            left = herd[round_ % len(herd)]
            left.thaw()
            killed = chance.choice([each for each in herd[1:] if each is not left])
            for each in herd:
                if each is killed:
                    each.kill()
                elif each is not left:
                    each.freeze()
            for number, parent in enumerate(parents):
                lasts = timedelta(milliseconds=150 + 100 * number)
                deadlines.append((parent, _delegate(parent, lasts)))
            wait_until(
                lambda: all(_settled(parent, task) for parent, task in deadlines),
                "all deadlines to be served",
            )
            herd[herd.index(killed)] = start("scheduler")
        for each in herd:
            each.thaw()

        late = [_late(parent, task) for parent, task in deadlines]
        assert min(late) >= timedelta(0)
        assert max(late) <= SERVED_WITHIN, max(late)
        for parent in parents:
            settled = [line for line in parent.journal(limit=1000) if line.event == "timed_out"]
            assert len(settled) == 6


def _delegate(parent: Parent, lasts: timedelta) -> str:
    return parent.delegate("scout", "x", deadline=lasts, queue=True).id


def _settled(parent: Parent, task: str) -> bool:
    return parent.task(task).settlement is not None


def _late(parent: Parent, task: str) -> timedelta:
    found = parent.task(task)
    assert found.settlement is not None
    return found.settlement.completed_at - found.deadline


WAITS = 30_000


@proves("P1", "P16")
@pytest.mark.parametrize("on", ["server", "cluster"])
@pytest.mark.parametrize(
    "stop", [Program.kill, Program.freeze], ids=["killed", "frozen, and thawed after"]
)
def test_the_scheduler_that_works_a_partition_stops(stop: Callable[[Program], None], on: str):
    """Case 21: another goes on within 2 s, from where it was, and nothing fires twice."""
    settings = HerdSettings(stale_wait_threshold=1, journal_limit=100, reply_timeout=timedelta(0))
    with (
        TOPOLOGIES[on]() as server,
        operator(server.url) as client,
        Broker.connect(server.url, fleet="f") as broker,
    ):
        parent = broker.open_herd("h", settings=settings)
        scout = broker.join("h", "scout", token_of(parent.register("scout")))
        parent.register("planner")
        task = parent.delegate("scout", "x")
        scout.message("planner", "?", task=task.id, expects_reply=True)
        key = {
            kind: keys.below(broker.fleet().partition("h"), kind, herd="h", **names)
            for kind, names in (
                ("waiting", {}),
                ("episodes", {}),
                ("due", {}),
                ("inbox", {"agent": "parent"}),
            )
        }
        now = time.time() * 1000
        tasks = [f"task_{number:06}" for number in range(WAITS)]
        with (
            # No repair: it would clear away waits that have no task.
            Program("scheduler", server.url, "f", "0", "no") as first,
            Program("scheduler", server.url, "f", "0", "no") as second,
        ):
            for each in (first, second):
                each.says("runs")
            # Waits that began a minute ago, as one that was asked for is kept.
            client.hset(key["episodes"], mapping=dict.fromkeys(tasks, "1"))
            client.zadd(key["waiting"], dict.fromkeys(tasks, now - 60_000))
            client.zadd(key["due"], {"5:stale": now})
            parent.delegate("scout", "ring", deadline=timedelta(milliseconds=1), queue=True)
            wait_until(lambda: 100 < client.xlen(key["inbox"]) < WAITS, "them to be in the midst")
            stop(first)
            left = WAITS - client.xlen(key["inbox"])
            wait_until(lambda: client.zcard(key["waiting"]) == 1, "all to be reminded of", 60)
            if stop is Program.freeze:
                first.thaw()
                wait_until(lambda: not client.zrangebyscore(key["due"], 0, now), "it to look")
                assert first.end() == 0
            assert second.end() == 0

        entries = client.xrange(key["inbox"])
        reminded = [fields["r"] for _, fields in entries if "r" in fields]
        assert left > 0 and sorted(reminded) == tasks
        at = [int(entry.partition("-")[0]) for entry, fields in entries if "r" in fields]
        gaps = [after - before for before, after in itertools.pairwise(at)]
        assert timedelta(milliseconds=max(gaps)) <= SERVED_WITHIN
