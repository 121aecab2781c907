"""A wait that expires in the same moment as what ends it."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

from tests.fleets import reminders, token_of
from tests.requirements import proves
from tocsin.broker import Broker, Child, HerdSettings, ManualClock
from tocsin.scheduler import Scheduler

ROUNDS = 500


@proves("P1", "P2", "P3", "P16")
def test_a_wait_expires_while_it_ends(url, fleet_name):
    """Case 20: once a reply or `done` is visible no reminder is read; a sign of life changes none.

    In each round the scheduler, an agent and the parent's reading start together, on connections
    of their own.
    """
    clock = ManualClock()
    brokers = [Broker.connect(url, fleet=fleet_name, clock=clock) for _ in range(3)]
    parent = brokers[0].open_herd("h", settings=HerdSettings(inbox_limit=10_000))
    tokens = {name: token_of(parent.register(name)) for name in ("scout", "planner")}
    scout = brokers[1].join("h", "scout", tokens["scout"])
    planner = brokers[1].join("h", "planner", tokens["planner"])
    assert isinstance(scout, Child)
    scheduler = Scheduler(brokers[2])
    fired = 0
    with ThreadPoolExecutor(3) as pool:

        def at_once(*deeds: Callable[[], object]) -> list[object]:
            line = threading.Barrier(len(deeds))

            def run(deed: Callable[[], object]) -> object:
                line.wait(10)
                return deed()

            return [future.result(30) for future in [pool.submit(run, deed) for deed in deeds]]

        for number in range(ROUNDS):
            kind = ("reply", "done", "sign of life")[number % 3]
            task = parent.delegate("scout", str(number))
            question = scout.message("planner", "?", task=task.id, expects_reply=True)
            clock.advance(timedelta(minutes=5))

            def read(task=task) -> bool:
                """Whether a reminder was read when the wait was known to be over."""
                for _ in range(20):
                    over = parent.task(task.id).state != "waiting"
                    found = [r for r in reminders(parent.inbox()) if r.data["task"] == task.id]
                    if over:
                        return bool(found)
                return False

            def end(kind=kind, task=task, question=question) -> None:
                if kind == "reply":
                    planner.reply(question.message_id, "!")
                elif kind == "done":
                    scout.done(task.id, override_reason="found it")
                else:
                    scout.progress("still at it")

            counts, _, read_too_late = at_once(scheduler.tick, end, read)
            assert isinstance(counts, dict)
            fired += counts.get("reminders", 0)
            turn = parent.receive()
            found = [r for r in reminders(turn) if r.data["task"] == task.id]

            assert not read_too_late, f"round {number}: {kind}"
            assert len(found) == (1 if kind == "sign of life" else 0), f"round {number}: {kind}"
            turn.ack()
            scout.done(task.id, override_reason="next round")
            for agent in (scout, planner, parent):
                agent.receive().ack()
    for broker in brokers:
        broker.close()
    assert ROUNDS / 3 <= fired < ROUNDS, "in some rounds either came first"
