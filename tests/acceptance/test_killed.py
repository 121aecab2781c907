"""Processes that are killed, frozen, or come first of twenty."""

from __future__ import annotations

import json
import os
import random
import signal
import time
from collections import Counter
from contextlib import ExitStack
from datetime import timedelta

import pytest
import redis

from tests.acceptance.processes import Program
from tests.fleets import of_kind, reminders, token_of
from tests.requirements import proves
from tests.waiting import wait_until
from tocsin.broker import Broker, HerdSettings, ScaledClock
from tocsin.broker.embedded import EmbeddedServer
from tocsin.scheduler import Scheduler

BUSY = 5.0
"""Seconds that a busy machine may take for what takes none."""

SHORT = HerdSettings(lease=timedelta(milliseconds=500), grace=timedelta(milliseconds=500))


@pytest.fixture
def real_broker(url: str, fleet_name: str):
    """A broker on the server's own time."""
    with Broker.connect(url, fleet=fleet_name) as broker:
        yield broker


def fast_broker(url: str, fleet: str, factor: float) -> Broker:
    """A broker whose fleet lives `factor` times fast."""
    return Broker.connect(url, fleet=fleet, clock=ScaledClock(factor))


@proves("P12", "P16")
def test_an_agent_killed_inside_its_handler_gets_its_mail_again(real_broker, url, fleet_name):
    """Case 2: restarted alone, it has the mail within lease and grace, its attempts visible."""
    parent = real_broker.open_herd("h", settings=SHORT)
    seat = parent.register("scout")
    where = (url, fleet_name, "h", "scout", token_of(seat))
    sent = parent.message("scout", "heavy")
    with Program("handler", *where) as first:
        assert json.loads(first.says("took")) == ["heavy", 0]
        first.kill()
    killed = time.monotonic()

    with Program("handler", *where) as again:
        again.says("joined")
        joined = time.monotonic()
        assert json.loads(again.says("took", timeout=15)) == ["heavy", 1]
        took, waited = time.monotonic() - killed, time.monotonic() - joined
        again.tell("ack")
        assert again.says("acked") == "0"

    assert took >= SHORT.grace.total_seconds(), "nobody is gone before the second look"
    assert waited < (SHORT.lease + SHORT.grace).total_seconds() + BUSY
    receipt = parent.receipt(sent.message_id)
    assert (receipt.state, receipt.attempts) == ("handled", 1)


@proves("P11", "P16")
def test_mail_that_kills_whoever_handles_it(real_broker, url, fleet_name):
    """Case 8: after the set tries it is a dead letter, with its reason; mail behind it flows."""
    parent = real_broker.open_herd("h", settings=SHORT.model_copy(update={"max_attempts": 2}))
    where = (url, fleet_name, "h", "scout", token_of(parent.register("scout")))
    scheduler = Scheduler(real_broker)
    sent = parent.message("scout", "deadly")
    for attempts in range(2):
        with Program("handler", *where) as scout:
            assert json.loads(scout.says("took", timeout=15)) == ["deadly", attempts]
            scout.kill()

    def is_dead() -> bool:
        scheduler.tick()
        return len(parent.dead_letters()) == 1

    wait_until(is_dead, "its dead letter")
    parent.message("scout", "harmless")

    (letter,) = parent.dead_letters()
    assert (letter.message_id, letter.attempts) == (sent.message_id, 2)
    assert letter.reason.startswith("failed 2 times") and "died holding it" in letter.reason
    with Program("handler", *where) as scout:
        assert json.loads(scout.says("took")) == ["harmless", 0]


@proves("P12")
def test_mail_for_a_child_that_has_never_run(url, fleet_name):
    """Case 6: three messages, the process started five seconds later: all three, in order."""
    with fast_broker(url, fleet_name, factor=100) as broker:
        parent = broker.open_herd("h", settings=SHORT)
        seat = parent.register("scout")
        sent = [parent.message("scout", text).message_id for text in ("one", "two", "three")]
        with Program("handler", url, fleet_name, "h", "scout", token_of(seat)) as scout:
            took = [json.loads(scout.says("took")) for _ in sent]
            scout.tell("ack")
            scout.says("acked")
        receipts = [parent.receipt(message) for message in sent]

    assert took == [["one", 0], ["two", 0], ["three", 0]]
    for receipt in receipts:
        assert receipt.taken_at is not None
        assert receipt.taken_at - receipt.accepted_at >= timedelta(seconds=5)
        assert receipt.state == "handled"


@proves("P12", "P16")
def test_twenty_processes_finish_one_task(real_broker, url, fleet_name):
    """Case 13: the first wins, one settlement reaches the parent, the others are late."""
    parent = real_broker.open_herd("h")
    seat = parent.register("scout")
    task = parent.delegate("scout", "x")

    where = (url, fleet_name, "h", "scout", token_of(seat), task.id, "20")
    with Program("finishers", *where) as finishers:
        results = json.loads(finishers.says("results", timeout=60))

    (stands,) = {summary for _, summary in results}
    assert len(results) == 20
    assert parent.task(task.id).settlement.summary == stands
    (settled,) = of_kind(parent.receive(), "task_settled")
    assert settled.data["summary"] == stands
    late = [line for line in parent.journal(limit=1000) if line.event == "late_done"]
    said = sorted(line.fields["summary"] for line in late)
    assert said == sorted(f"by process {n}" for n, _ in results if f"by process {n}" != stands)


@proves("P12")
def test_done_after_cancel_and_done_after_done(real_broker):
    """Case 13: two `done`s with different content, and cancel then `done`: the first stands."""
    parent = real_broker.open_herd("h")
    scout = real_broker.join("h", "scout", token_of(parent.register("scout")))
    twice, cancelled = parent.delegate("scout", "1"), parent.delegate("scout", "2", queue=True)

    first = scout.done(twice.id, "completed", summary="first")
    assert scout.done(twice.id, "failed", error="second") == first
    stopped = parent.cancel(cancelled.id, reason="no need")
    assert scout.done(cancelled.id, "completed", summary="but I have it") == stopped

    assert stopped.status == "cancelled"
    assert len(of_kind(parent.receive(), "task_settled")) == 2
    late = [line.fields["task"] for line in parent.journal(limit=1000) if line.event == "late_done"]
    assert late == [twice.id, cancelled.id]


@proves("P1", "P14", "P16")
def test_a_scheduler_killed_thirty_times_over_two_hundred_waits(url, fleet_name):
    """Case 18: 200 expired waits, the scheduler killed at 30 random moments: 200 reminders."""
    chance = random.Random(18)
    settings = HerdSettings(stale_wait_threshold=1, max_open_tasks=10, reply_timeout=timedelta(0))
    with fast_broker(url, fleet_name, factor=600) as broker:
        parents, unasked = [], []
        for number in range(20):
            parent = broker.open_herd(f"h{number}", settings=settings)
            scout = broker.join(f"h{number}", "scout", token_of(parent.register("scout")))
            parent.register("planner")
            parents.append(parent)
            for text in map(str, range(10)):
                task = parent.delegate("scout", text, deadline=timedelta(days=9))
                unasked.append((scout, task.id))
        tasks = {task for _, task in unasked}
        chance.shuffle(unasked)

        def ask(count: int) -> None:
            for _ in range(count):
                scout, task = unasked.pop()
                scout.message("planner", "?", task=task, expects_reply=True)

        def lives_until(moment: float) -> None:
            wait_until(lambda: time.monotonic() > moment, "a random moment")

        def reminded() -> int:
            lines = [line for parent in parents for line in parent.journal(limit=10_000)]
            return sum(len(line.fields["tasks"]) for line in lines if line.event == "reminded")

        def reminds(after: int) -> None:
            wait_until(lambda: reminded() > after, "a reminder in this life")

        with Program("schedulers", url, fleet_name) as schedulers:
            schedulers.says("ready")
            for life in range(30):
                before = reminded()
                ask(6)
                schedulers.tell("start")
                pid = int(schedulers.says("started"))
                if life % 5 == 4:  # on a busy machine, too, some get as far as to remind
                    reminds(before)
                lives_until(time.monotonic() + chance.uniform(0, 0.1))
                os.kill(pid, signal.SIGKILL)
            ask(len(unasked))
            schedulers.tell("start")
            last = int(schedulers.says("started"))
            try:
                wait_until(lambda: reminded() >= 200, "all reminders", timeout=30)
            finally:
                os.kill(last, signal.SIGKILL)
        found = [reminder for parent in parents for reminder in reminders(parent.receive())]

    assert len(found) == 200
    assert {reminder.data["task"] for reminder in found} == tasks


@proves("P16")
def test_everything_frozen_for_longer_than_the_leases():
    """Case 25: server, agents, scheduler frozen past lease and grace: agents get to renew first."""
    settings = HerdSettings(
        stale_wait_threshold=1,
        lease=timedelta(milliseconds=400),
        grace=timedelta(seconds=2),
        reply_timeout=timedelta(0),
    )
    with EmbeddedServer(durable=False) as server:
        broker = fast_broker(server.url, "f", factor=600)
        with broker:
            parent = broker.open_herd("h", settings=settings)
            seats = {name: token_of(parent.register(name)) for name in ("scout", "planner")}
            where = (server.url, "f", "h")
            with (
                Program("asker", *where, "scout", seats["scout"]) as scout,
                Program("handler", *where, "planner", seats["planner"]) as planner,
                Program("scheduler", server.url, "f") as scheduler,
            ):
                for process in (scout, planner):
                    process.says("joined")
                task = parent.delegate("scout", "x")
                scout.says("asked")
                planner.says("took")
                instance = _instances(parent, "planner")

                frozen = time.monotonic()
                for process in (scout, planner, scheduler):
                    process.freeze()
                os.kill(server.pid, signal.SIGSTOP)
                past = settings.lease + settings.grace
                wait_until(
                    lambda: time.monotonic() - frozen > past.total_seconds() * 1.5,
                    "lease and grace to pass",
                )
                os.kill(server.pid, signal.SIGCONT)
                scheduler.thaw()
                assert Scheduler(broker).tick() is not None, "the timers are looked at first"
                for process in (scout, planner):
                    process.thaw()

                wait_until(lambda: reminders(parent.inbox()), "the reminder")
                planner.tell("ack")
                assert planner.says("acked") == "0", "its mail had not gone to anybody else"
                wait_until(lambda: _instances(parent, "planner") == instance, "it to renew")
                lines = [line.event for line in parent.journal(limit=1000)]
                assert lines.count("lost") == 0
                assert parent.task(task.id).state == "waiting"
                mail = parent.receive()
                assert [envelope.kind for envelope in mail] == ["reminder"]


@proves("P11", "P12", "P16")
def test_mail_in_hand_while_everything_is_frozen():
    """Case 25: replicas with mail in hand, server and scheduler stopped past lease and grace.

    Whoever wakes first, nothing is counted as gone: no mail moves, no attempt is added, and every
    ack counts.
    """
    settings = HerdSettings(
        lease=timedelta(milliseconds=400), grace=timedelta(seconds=1.5), away_after=timedelta(0)
    )
    with EmbeddedServer(durable=False) as server, Broker.connect(server.url, fleet="f") as broker:
        parent = broker.open_herd("h", settings=settings)
        token = token_of(parent.register("scout"))
        with ExitStack() as stack:
            where = (server.url, "f", "h", "scout", token)
            replicas = []
            for number in range(3):
                replica = stack.enter_context(Program("handler", *where))
                sent = parent.message("scout", str(number))
                assert json.loads(replica.says("took")) == [str(number), 0]
                replicas.append((replica, sent.message_id))
            scheduler = stack.enter_context(Program("scheduler", server.url, "f"))
            scheduler.says("runs")

            for process in [replica for replica, _ in replicas] + [scheduler]:
                process.freeze()
            os.kill(server.pid, signal.SIGSTOP)
            wakes = time.monotonic() + 1.5 * (settings.lease + settings.grace).total_seconds()
            wait_until(lambda: time.monotonic() > wakes, "lease and grace to pass")
            os.kill(server.pid, signal.SIGCONT)
            scheduler.thaw()
            Scheduler(broker).tick()
            for replica, _ in replicas:
                replica.thaw()
            wait_until(lambda: len(_instances(parent, "scout")) == 3, "all to renew")
            for replica, message in replicas:
                receipt = parent.receipt(message)
                assert (receipt.state, receipt.attempts) == ("taken", 0)
                replica.tell("ack")
                assert replica.says("acked") == "0"
        events = [line.event for line in parent.journal(limit=1000)]
        assert "lost" not in events
        assert parent.receive().envelopes == ()


@proves("P11", "P12", "P16")
def test_ten_minutes_asleep_with_default_leases():
    """Case 25: all are stopped, and when they go on it is ten minutes later by the server's clock.

    Ten times lease and grace: nothing is counted as gone, no mail moves, one wait that has grown
    stale gives one reminder, and nothing else follows.
    """
    settings = HerdSettings(lease_renewal=timedelta(seconds=1), reply_timeout=timedelta(0))
    with EmbeddedServer(durable=False) as server, Broker.connect(server.url, fleet="f") as broker:
        parent = broker.open_herd("h", settings=settings)
        seats = {name: token_of(parent.register(name)) for name in ("scout", "planner")}
        where = (server.url, "f", "h")
        with (
            Program("asker", *where, "scout", seats["scout"]) as scout,
            Program("handler", *where, "planner", seats["planner"]) as planner,
            Program("scheduler", server.url, "f") as scheduler,
        ):
            task = parent.delegate("scout", "x")
            scout.says("asked")
            planner.says("took")
            scheduler.says("runs")
            before = _instances(parent, "planner")
            for process in (scout, planner, scheduler):
                process.freeze()
            with redis.Redis.from_url(server.url) as client:
                client.hincrby(parent.caller.fleet.partition("h"), "offset", 600_000)
            scheduler.thaw()
            Scheduler(broker).tick()
            scout.thaw()
            planner.thaw()

            wait_until(lambda: _instances(parent, "planner") == before, "it to renew")
            planner.tell("ack")
            assert planner.says("acked") == "0", "its mail had not gone to anybody else"
            wait_until(lambda: reminders(parent.inbox()), "the reminder")
            assert parent.task(task.id).state == "waiting"
            assert [mail.kind for mail in parent.receive()] == ["reminder"]
        events = Counter(line.event for line in parent.journal(limit=1000))
        assert (events["lost"], events["returned"], events["reminded"]) == (0, 0, 1)


def _instances(parent, name):
    return {agent.agent: agent for agent in parent.roster()}[name].instances
