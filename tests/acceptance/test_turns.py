"""Children as RQ turns, run by real workers with a program that stands for a coding agent's."""

from __future__ import annotations

import json
import os
import random
import signal
import time
import zlib
from collections import Counter
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import redis

from tests.acceptance.turning import SHORT, Fleet, children, kill
from tests.proxy import Proxy
from tests.requirements import proves
from tests.waiting import wait_until
from tocsin.broker import TaskState
from tocsin.scheduler import Scheduler

CHILDREN = int(os.environ.get("TURNS", "6"))
"""How many children there are; `make turns` has 50."""

ALL = CHILDREN >= 50
"""Whether every case is tried, and not only what covers the others."""

PER_CHILD = 10.0
"""Seconds that a child's story may take on a machine that is busy with other things."""

LONG = 120.0


@pytest.fixture
def fleet(url, fleet_name, tmp_path):
    """A fleet, whose RQ has a database of its own."""
    with Fleet(url, fleet_name, tmp_path, **SHORT) as fleet:
        yield fleet
        with connect(fleet.queues) as client:
            client.flushdb()


def connect(url: str) -> redis.Redis:
    return redis.Redis.from_url(url)


@pytest.mark.long
@proves("P12", "P16")
def test_each_child_lives_the_story_of_the_demo(fleet):
    """Delegated, asks, ends its turn; answered, goes on with its session, and is done.

    Two workers run all children. Each task has two turns of its program, one question and one
    settlement; nothing is retried, and no process is left at the end.
    """
    names = fleet.scouts(CHILDREN)
    for number in (1, 2):
        fleet.start("worker", f"worker-{number}")
    fleet.start("scheduler", "scheduler")
    for name in names:
        fleet.parent.delegate(name, f"the code, {name}")
    tasks = fleet.until_settled(CHILDREN, LONG + CHILDREN * PER_CHILD)
    assert Counter(task.state for task in tasks) == {TaskState.COMPLETED: CHILDREN}
    summaries = {task.settlement.summary for task in tasks if task.settlement}
    assert summaries == {"Started: At the README."}
    began = fleet.began()
    assert {name: began[name] for name in names} == dict.fromkeys(names, 2)
    lines = (fleet.folder / "turns").read_text().splitlines()
    assert sum(f"--resume session-of-{name}" in " ".join(lines) for name in names) == CHILDREN
    assert len(fleet.events("request_answered")) == CHILDREN
    decided = Counter(each["decided"] for each in fleet.events("turn_ended"))
    assert not {"retried", "failed", "left_open", "nudged"} & set(decided)
    for name in ("worker-1", "worker-2"):
        assert fleet.running[name].end() == 0


def test_what_stands_in_rq_is_readable_and_holds_no_secret(fleet):
    """Case 31: ids, descriptions and payloads are plain, JSON and no pickle; no token, no url."""
    [name] = fleet.scouts(1)
    fleet.parent.delegate(name, "secret work")
    scheduler = Scheduler(fleet.broker, rq_url=fleet.queues)
    with connect(fleet.queues) as client:

        def queued() -> Any:
            scheduler.tick()
            return client.lindex("rq:queue:tocsin", 0)

        found = wait_until(queued, "the job to be queued", LONG)
        job = client.hgetall(b"rq:job:" + found)
        everything = [client.dump(key) for key in client.scan_iter("*")]
    assert found.decode().startswith(f"{fleet.name}-h-{name}-1")
    assert job[b"description"] == f"turn 1 of h/{name}".encode()
    assert json.loads(job[b"meta"])["agent"] == name
    payload = json.loads(zlib.decompress(job[b"data"]))
    assert payload[0] == "tocsin.workers.child.job.run_turn"
    assert payload[3] == {"fleet": fleet.name, "herd": "h", "agent": name, "turn": 1}
    assert not [each for each in everything if b"tok_" in each or b"secret work" in each]


@pytest.mark.long
@proves("P11", "P12", "P16")
def test_nothing_is_lost_whatever_is_killed(fleet):
    """Case 16: work horses, workers, programs and the scheduler are killed, RQ is flushed.

    Every task is completed in the end, once, by one question and one answer.
    """
    names = fleet.scouts(
        CHILDREN, retries=50, backoff=SHORT["grace"], claim_within=4 * SHORT["lease"]
    )
    for number in (1, 2):
        fleet.start("worker", f"worker-{number}")
    fleet.start("scheduler", "scheduler")
    for name in names:
        fleet.parent.delegate(name, f"the code, {name}")
    chance = random.Random(16)
    breaks = ["horse", "worker", "both", "program", "scheduler", "flush", "twice"]
    breaks *= 7 if ALL else 1
    chance.shuffle(breaks)
    for what in breaks:
        time.sleep(chance.uniform(0.2, 1.0))
        _break(fleet, what, chance.choice(["worker-1", "worker-2"]))
    tasks = fleet.until_settled(CHILDREN, LONG * 2 + CHILDREN * PER_CHILD)
    assert Counter(task.state for task in tasks) == {TaskState.COMPLETED: CHILDREN}
    answered = Counter(each["task"] for each in fleet.events("request_answered"))
    assert answered == {task.id: 1 for task in tasks}, fleet.events("dead", "second_reply")
    assert Counter(each["task"] for each in fleet.events("completed")) == answered
    assert not fleet.events("failed", "dead")


def _break(fleet: Fleet, what: str, worker: str) -> None:
    """Breaks one thing, and starts again what was killed."""
    horses = fleet.horses(worker)
    if what in ("horse", "both"):
        kill(*horses)
    if what in ("worker", "both"):
        fleet.kill(worker)
        fleet.start("worker", worker)
    elif what == "program":
        kill(*(each for horse in horses for keeper in children(horse) for each in children(keeper)))
    elif what == "scheduler":
        fleet.kill("scheduler")
        fleet.start("scheduler", "scheduler")
    elif what == "flush":
        with connect(fleet.queues) as client:
            client.flushdb()
    elif what == "twice":
        with connect(fleet.queues) as client:
            for key in client.scan_iter("rq:job:*"):
                client.lpush("rq:queue:tocsin", key.decode().removeprefix("rq:job:"))


def test_a_task_whose_turns_are_killed_fails_once(fleet):
    """Case 16: after its retries, one `failed` with the reason; the parent is told once."""
    names = fleet.scouts(3, retries=1, backoff=SHORT["lease_renewal"])
    fleet.start("worker", "worker")
    fleet.schedule()
    for name in names:
        fleet.parent.delegate(name, "die", watch=True)
    tasks = fleet.until_settled(3, LONG)
    for task in tasks:
        assert task.state == "failed" and task.settlement is not None
        assert "SIGKILL" in str(task.settlement.error)
    assert fleet.began() == dict.fromkeys(names, 2)
    assert len(fleet.events("failed")) == 3
    told = [mail for mail in fleet.parent.inbox() if mail.kind == "task_settled"]
    assert len(told) == 3


def hang(fleet: Fleet, name: str, description: str = "hang") -> tuple[str, int]:
    """A task whose turn hangs, and the process of its program."""
    path = fleet.folder / "pids"
    known = path.read_text().split() if path.exists() else []
    task = fleet.parent.delegate(name, description)
    wait_until(
        lambda: path.exists() and len(path.read_text().split()) > len(known),
        "the program to run",
        LONG,
    )
    return task.id, int(path.read_text().split()[-1])


def gone(pid: int) -> bool:
    """Whether a process has ended."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except OSError:
        return True


def ends_of(fleet: Fleet, name: str) -> list[str]:
    """How the turns of an agent ended, up to the one that settled its task."""

    def ended() -> list[str]:
        found = [each for each in fleet.events("turn_ended") if each["agent"] == name]
        over = found and found[-1]["decided"] == "idle"
        return [each["how"] for each in found] if over else []

    return wait_until(ended, "the last turn to end", LONG)


@pytest.mark.long
def test_a_turn_that_was_killed_is_tried_again(fleet):
    """Case 16: nothing of it goes on, it counts as one failure, and the next try completes it."""
    kinds = ["program", "horse", "worker", "both"] if ALL else ["horse", "worker"]
    names = fleet.scouts(len(kinds), retries=5, backoff=SHORT["lease_renewal"])
    fleet.start("worker", "worker")
    fleet.schedule()
    tasks = []
    for what, name in zip(kinds, names, strict=True):
        task, program = hang(fleet, name)
        _break(fleet, what, "worker")
        wait_until(partial(gone, program), "the program to end", LONG)
        tasks.append(task)
        fleet.until_settled(len(tasks), LONG)
    assert {fleet.parent.task(task).state for task in tasks} == {TaskState.COMPLETED}
    for name in names:
        assert ends_of(fleet, name) == ["failed", "clean"], name


@proves("P10", "P16")
def test_the_redis_of_rq_away_when_a_turn_ends(fleet):
    """Case 16: the turn says to the broker how it ended, whatever RQ hears of that: its task stays
    completed, it is run once, and the worker goes on with the next when RQ's Redis is back."""
    names = fleet.scouts(2)
    with Proxy(fleet.queues) as proxy:
        worker = fleet.start("worker", "worker", TOCSIN_RQ_URL=proxy.url)
        fleet.schedule()
        task, program = hang(fleet, names[0], "wait")
        proxy.freeze()
        (fleet.folder / "go").touch()
        wait_until(partial(gone, program), "the program to end", LONG)
        assert ends_of(fleet, names[0]) == ["clean"]
        proxy.cut_all()
        proxy.thaw()
        fleet.parent.delegate(names[1], "wait")
        fleet.until_settled(2, LONG)
        assert ends_of(fleet, names[1]) == ["clean"]
        assert worker.end() == 0
    assert {each.state for each in fleet.tasks()} == {TaskState.COMPLETED}
    assert fleet.began() == dict.fromkeys(names, 1)
    assert fleet.parent.task(task).settlement is not None


@pytest.mark.long
def test_a_worker_that_is_told_to_stop(fleet):
    """Case 16: SIGTERM lets the turn end, for its grace; twice stops it at once.

    The worker ends with 0, the turn was no failure, and another worker runs it again.
    """
    names = fleet.scouts(2, stop_grace=SHORT["lease"])
    fleet.schedule()
    cases = (names[0], "10m", 2), (names[1], "1s", 1)
    for name, grace, signals in cases if ALL else cases[:1]:
        worker = fleet.start("worker", "worker", "--grace", grace)
        task, program = hang(fleet, name)
        worker.process.send_signal(signal.SIGTERM)
        if signals == 2:
            time.sleep(1.2)  # RQ takes two within a second for one, as a terminal may send them
            worker.process.send_signal(signal.SIGTERM)
        assert worker.wait() == 0
        assert gone(program)
        fleet.start("worker", "next")
        assert ends_of(fleet, name) == ["stopped", "clean"]
        assert fleet.parent.task(task).state == "completed"
        fleet.kill("next")
