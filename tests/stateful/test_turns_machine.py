"""Children that live in turns, at random: nobody works twice, nothing is lost, no slot leaks.

There is no model of them: after each step the records agree with all that is derived from them, and
in the end, when every turn that is due has been run well, nothing is left to do.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from datetime import timedelta
from itertools import count
from random import Random
from typing import Any

import pytest
import redis
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    rule,
    run_state_machine_as_test,
)

from tests.requirements import proves
from tests.stateful.test_machine import SUITE, THOROUGH
from tocsin.broker import (
    Broker,
    ClaimedTurn,
    CommandRunner,
    Ending,
    HerdSettings,
    How,
    Kind,
    ManualClock,
    errors,
    keys,
)
from tocsin.broker.embedded import EmbeddedServer
from tocsin.broker.testing import lapse
from tocsin.scheduler import Scheduler

NAMES = ("a", "b", "c")
SPANS = (0, 0, 5, 5, 20, 60, 600, 3_000, 8_000)
"""Seconds that pass; the last is more than a turn may take."""

ENDINGS = (
    *(Ending(kind=How.EXITED, exit_code=0),) * 4,
    Ending(kind=How.EXITED, exit_code=1, tail="Traceback"),
    Ending(kind=How.CRASHED, error="no such program"),
    Ending(kind=How.TIMEOUT, error="too long"),
    Ending(kind=How.LIMITED, error="5-hour limit reached"),
    Ending(kind=How.STOPPED, error="its worker stops"),
)

SETTINGS = HerdSettings(turns_at_once=2, pair_rate=100_000, max_attempts=3)

WEIGHTS = {
    "somebody_writes": 4,
    "a_task_is_delegated": 4,
    "a_turn_is_claimed": 8,
    "a_turn_does_something": 10,
    "a_turn_ends": 5,
    "a_worker_dies": 1,
    "a_task_is_cancelled": 1,
    "an_agent_is_run_otherwise": 1,
    "an_agent_begins_anew": 1,
    "a_limit_changes": 1,
    "time_passes": 6,
}

_fleets = count()


class TurnsMachine(RuleBasedStateMachine):
    """Things happen to three children with runners, by weights and chance."""

    url: str

    @initialize(luck=st.randoms(use_true_random=True))
    def begin(self, luck: Random) -> None:
        self.luck = Random(luck.getrandbits(64))
        self.exit = ExitStack()
        self.clock = ManualClock()
        fleet = f"turns-{os.getpid()}-{next(_fleets)}"
        self.broker = self.exit.enter_context(
            Broker.connect(self.url, fleet=fleet, clock=self.clock, partitions=2)
        )
        self.scheduler = Scheduler(self.broker, repair_every=None)
        self.parent = self.broker.open_herd("h", settings=SETTINGS)
        for name in NAMES:
            self.parent.register(name, runner=self.runner())
        self.running: dict[str, ClaimedTurn] = {}
        self.sent: list[str] = []
        self.tasks: list[str] = []

    def runner(self) -> CommandRunner:
        account = self.luck.choice((None, "one", "two"))
        return CommandRunner(["code"], queue=self.broker.name, account=account, max_turns=30)

    @rule()
    def something_happens(self) -> None:
        [what] = self.luck.choices(list(WEIGHTS), list(WEIGHTS.values()))
        getattr(self, what)()

    def attempt(self, do: Callable[..., Any], *args: Any, **how: Any) -> Any:
        """What comes of it; None where the broker refuses it, which it may at any time."""
        try:
            return do(*args, **how)
        except errors.BrokerError as refusal:
            if refusal.code == "unavailable":
                raise
            return None

    # ---------------------------------------------------------------- what happens

    def somebody_writes(self) -> None:
        sent = self.attempt(self.parent.message, self.luck.choice(NAMES), "hello")
        self.sent += [sent.message_id] if sent else []

    def a_task_is_delegated(self) -> None:
        task = self.attempt(self.parent.delegate, self.luck.choice(NAMES), "work", queue=True)
        self.tasks += [task.id] if task else []

    def a_turn_is_claimed(self) -> None:
        name = self.luck.choice(NAMES)
        known = self.turns(name)
        number = known.number + self.luck.choice((0, 0, 0, 0, -1, 1))
        if number < 1:
            return
        turn = self.broker.claim_turn("h", name, number)
        if turn is None:
            return
        assert (number, known.state in ("due", "launched")) == (known.number, True)
        before = self.running.get(name)
        assert before is None or before.wait_stop(0), f"two turns of {name} run"
        self.running[name] = turn

    def a_turn_does_something(self) -> None:
        if not self.running:
            return
        name, turn = self.luck.choice(sorted(self.running.items()))
        child = turn.child
        mail = self.attempt(child.receive) or ()
        for envelope in mail:
            if envelope.kind is Kind.REQUEST:
                self.attempt(child.reply, envelope, "yes")
        mine = [
            task for task in self.parent.tasks() if task.agent == name and task.id in self.tasks
        ]
        open_ones = [task.id for task in mine if not task.state.terminal]
        if open_ones and self.luck.random() < 0.5:
            self.attempt(child.done, open_ones[-1], self.luck.choice(("completed", "failed")))
        elif open_ones and self.luck.random() < 0.5:
            to = self.luck.choice([each for each in NAMES if each != name])
            asked = self.attempt(
                child.message, to, "may I?", task=open_ones[-1], expects_reply=True
            )
            self.sent += [asked.message_id] if asked else []

    def a_turn_ends(self) -> None:
        if self.running:
            name = self.luck.choice(sorted(self.running))
            self.attempt(self.running.pop(name).end, self.luck.choice(ENDINGS))

    def a_worker_dies(self) -> None:
        if self.running:
            self.attempt(lapse, self.running.pop(self.luck.choice(sorted(self.running))).child)

    def a_task_is_cancelled(self) -> None:
        if self.tasks:
            self.attempt(self.parent.cancel, self.luck.choice(self.tasks))

    def an_agent_is_run_otherwise(self) -> None:
        self.parent.set_runner(self.luck.choice(NAMES), self.runner())

    def an_agent_begins_anew(self) -> None:
        name = self.luck.choice(NAMES)
        self.parent.close(name)
        self.parent.register(name, runner=self.runner())

    def a_limit_changes(self) -> None:
        scope = self.luck.choice(("fleet", "account/one", f"queue/{self.broker.name}"))
        self.broker.limit_turns(scope, self.luck.choice((1, 2, None)))

    def time_passes(self) -> None:
        self.clock.advance(timedelta(seconds=self.luck.choice(SPANS)))
        self.scheduler.tick()

    # ---------------------------------------------------------------- what holds

    def turns(self, name: str) -> Any:
        [found] = [each for each in self.parent.roster() if each.agent == name]
        return found.turns

    @invariant()
    def records_agree(self) -> None:
        swept = self.scheduler.repair(mend=False)
        assert not swept.counts and not swept.broken, swept

    @invariant()
    def nobody_works_twice(self) -> None:
        """What runs here and need not stop is what the broker says runs."""
        for name, turn in self.running.items():
            if not turn.wait_stop(0):
                known = self.turns(name)
                assert (known.state, known.number) == ("running", turn.number)

    def teardown(self) -> None:
        if hasattr(self, "exit"):
            with self.exit:
                self.finish()

    def finish(self) -> None:
        """Every turn that is due is run, well; then nothing is left, of turns nor of mail."""
        for scope in ("fleet", "account/one", f"queue/{self.broker.name}"):
            self.broker.limit_turns(scope, None)
        for turn in self.running.values():
            self.attempt(turn.end, ENDINGS[0])
        for _ in range(200):
            self.clock.advance(timedelta(hours=1))
            self.scheduler.tick()
            states = {name: self.turns(name) for name in NAMES}
            if all(each.state == "none" for each in states.values()):
                break
            for name, known in states.items():
                turn = self.attempt(self.broker.claim_turn, "h", name, known.number)
                if turn is not None:
                    for envelope in turn.child.receive():
                        if envelope.kind is Kind.REQUEST:
                            self.attempt(turn.child.reply, envelope, "yes")
                    turn.end(ENDINGS[0])
        assert {name: self.turns(name).state for name in NAMES} == dict.fromkeys(NAMES, "none")
        ends = {self.attempt(self.parent.receipt, each) for each in self.sent}
        assert {each.state for each in ends if each} <= {"handled", "dead", "withdrawn"}
        self.scheduler.tick()
        assert not [each for each in self.broker.turn_slots() if each.taken]
        with redis.Redis.from_url(self.url, decode_responses=True) as client:
            kinds = {keys.kind_of(key) for key in client.scan_iter(keys.of_fleet(self.broker.name))}
            assert not kinds & {"launches", "lanes", "turning", "held", "freed"}
            client.delete(*client.keys(f"*{self.broker.name}*"))


@pytest.fixture
def server() -> Iterator[EmbeddedServer]:
    """A server of its own, since RQ's queues are on it, too."""
    with EmbeddedServer(durable=False) as server:
        yield server


@proves("P10", "P11", "P12", "P16")
def test_turns_at_random(server: EmbeddedServer):
    """Claimed, ended in any way, lost, stopped, moved and begun anew, in whatever order."""

    class Machine(TurnsMachine):
        url = server.url

    thorough = os.environ.get("TOCSIN_STATEFUL") == "thorough"
    profile = THOROUGH if thorough else settings(SUITE, max_examples=12, stateful_step_count=35)
    run_state_machine_as_test(Machine, settings=profile)
