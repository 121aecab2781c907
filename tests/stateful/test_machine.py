"""The real broker against the model: random operations, random time, two schedulers.

Each step is done by both; what they answer and what they then hold must be the same. With
`TOCSIN_STATEFUL=thorough` in the environment it searches for minutes instead of seconds.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from random import Random
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    rule,
    run_state_machine_as_test,
)

from tests.requirements import proves
from tests.stateful.lines import SOURCES, Line, Lines, Question
from tests.stateful.records import DAY, MINUTE, Mail
from tests.stateful.twins import Player, Stage, Taken, Twins
from tocsin.broker import HerdSettings, requests, tasks
from tocsin.broker.embedded import EmbeddedServer
from tocsin.broker.scripts import Call

CHILDREN = ("a", "b", "c")
THRESHOLDS = (5.0, 5.0, 5.0, 1.0, 1.0, 15.0, 2.5, 2.5, 0.0, -3.0, 0.5)
SPANS = (1, MINUTE, 5 * MINUTE - 1, 5 * MINUTE, 10 * MINUTE, 20 * MINUTE, 60 * MINUTE)

SUITE = settings(
    max_examples=55,
    stateful_step_count=40,
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=list(HealthCheck),
)
THOROUGH = settings(
    SUITE,
    max_examples=int(os.environ.get("TOCSIN_STATEFUL_EXAMPLES", "3000")),
    stateful_step_count=80,
    derandomize=False,
    phases=(Phase.generate, Phase.shrink),
)

Need = Callable[["BrokerMachine"], object]


def tasks_exist(machine: BrokerMachine) -> object:
    return machine.model.tasks


def mail_exists(machine: BrokerMachine) -> object:
    return machine.model.mail


def mail_was_taken(machine: BrokerMachine) -> object:
    return machine.twins.taken


def asks_were_made(machine: BrokerMachine) -> object:
    return machine.lines.asked


def somebody_waits(machine: BrokerMachine) -> object:
    return machine.lines.waiting


def calls_were_made(machine: BrokerMachine) -> object:
    return machine.twins.calls


WEIGHTS: dict[str, tuple[int, Need | None]] = {
    "a_task_is_delegated": (4, None),
    "a_task_ends_or_is_watched": (2, tasks_exist),
    "somebody_writes": (2, None),
    "somebody_asks": (8, None),
    "somebody_stays_on_the_line": (3, None),
    "a_line_moves": (5, somebody_waits),
    "one_more_joins_a_line": (2, asks_were_made),
    "work_shows": (1, None),
    "somebody_answers": (4, mail_exists),
    "a_wait_is_helped_along": (3, mail_exists),
    "mail_is_read": (5, None),
    "mail_is_handled": (4, mail_was_taken),
    "mail_is_acked_by_id": (1, mail_exists),
    "processes_come_and_go": (3, None),
    "agents_come_and_go": (1, None),
    "the_threshold_changes": (1, None),
    "a_call_is_repeated": (2, calls_were_made),
    "an_impostor_calls": (1, tasks_exist),
    "time_passes": (2, None),
    "something_comes_due": (4, None),
    "a_scheduler_works": (2, None),
}
"""What happens how often, and what it needs."""

CHATTY = WEIGHTS | {
    "a_task_is_delegated": (2, None),
    "somebody_asks": (2, None),
    "somebody_stays_on_the_line": (9, None),
    "a_line_moves": (14, somebody_waits),
    "one_more_joins_a_line": (5, asks_were_made),
    "somebody_answers": (8, mail_exists),
    "processes_come_and_go": (5, None),
    "something_comes_due": (7, None),
}
"""The same in a herd that is all asks, of two replicas of each agent at first."""


class BrokerMachine(RuleBasedStateMachine):
    """Things happen, by weights and chance, to the broker and the model alike.

    Hypothesis chooses the chance, and shrinks the number of steps. A rule for each kind of thing,
    with its arguments drawn by Hypothesis, was tried: so many of its runs are repetitions and
    small variations of one another that of 60 runs of 40 steps hardly one came to a reminder.
    """

    stage: Stage

    @initialize(luck=st.randoms(use_true_random=True))
    def begin(self, luck: Random) -> None:
        self.luck = Random(luck.getrandbits(64))
        self.twins = Twins(self.stage, max_attempts=self.luck.choice((1, 2, 2)))
        self.model, self.lines = self.twins.model, Lines(self.twins)
        self.weights = self.luck.choice((WEIGHTS, CHATTY))
        if self.weights is CHATTY:
            for name in ("parent", "a", "b"):
                self.twins.join(name, 1)

    # ---------------------------------------------------------------- choosing

    def player(self, *agents: str) -> Player:
        """One of the instances there ever were, of these agents; seldom one that is gone."""
        found = [p for p in self.twins.players if not agents or p.seat.agent in agents]
        live = [p for p in found if self.is_live(p)]
        return self.luck.choice(live if live and self.luck.random() < 0.93 else found)

    def is_live(self, player: Player) -> bool:
        agent = self.model.agents.get(player.seat.agent)
        if agent is None or agent.generation != player.seat.generation:
            return False
        return player.seat.instance in agent.instances

    def parent(self) -> Player:
        return self.player("parent")

    def target(self, *names: str) -> str:
        """One of these agents, mostly one that is there."""
        there = [n for n in names if n in self.model.agents and self.model.agents[n].open]
        return self.luck.choice(there if there and self.luck.random() < 0.9 else names)

    def task(self) -> str:
        """A task, mostly an open one."""
        known = sorted(self.model.tasks)
        opened = [ref for ref in known if self.model.tasks[ref].open]
        return self.luck.choice(opened if opened and self.luck.random() < 0.85 else known)

    def owner(self, task: str) -> Player:
        """Mostly the one whose task it is."""
        owner = self.model.tasks[task].agent
        return self.player(*([owner] if self.luck.random() < 0.9 else CHILDREN))

    def request(self) -> Mail:
        """A request, mostly an open one; seldom other mail."""
        # An id of a reminder is nothing before the reminder is read.
        mail = [m for _, m in sorted(self.model.mail.items()) if m.kind != "reminder"]
        asked = [m for m in mail if m.request is not None]
        opened = [m for m in asked if m.request is not None and m.request.state == "open"]
        chance = self.luck.random()
        return self.luck.choice(
            (opened if chance < 0.7 else asked if chance < 0.95 else mail) or mail
        )

    def turn(self) -> Taken:
        """Mail that was taken, mostly of late."""
        taken = self.twins.taken
        return self.luck.choice(taken[-2:] if self.luck.random() < 0.85 else taken)

    # ---------------------------------------------------------------- what happens

    @rule()
    def something_happens(self) -> None:
        able = {name: w for name, (w, need) in self.weights.items() if need is None or need(self)}
        name = self.luck.choices(list(able), list(able.values()))[0]
        getattr(self, name)()

    def a_task_is_delegated(self) -> None:
        known = sorted(self.model.tasks)
        self.twins.delegate(
            self.parent(),
            self.target(*CHILDREN),
            self.luck.choice((None, None, None, None, None, MINUTE, 6 * MINUTE, 20 * MINUTE)),
            watch=self.luck.random() < 0.3,
            queue=self.luck.random() < 0.5,
            continues=self.luck.choice(known) if known and self.luck.random() < 0.2 else None,
        )

    def a_task_ends_or_is_watched(self) -> None:
        task = self.task()
        what = self.luck.choices(("done", "cancel", "watch"), (5, 1, 2))[0]
        if what == "done":
            outcome = self.luck.choice(("completed", "completed", "blocked", "failed"))
            override = self.luck.choice((None, None, None, "not needed"))
            self.twins.done(self.owner(task), task, outcome, override)
        elif what == "cancel":
            self.twins.cancel(self.parent(), task)
        else:
            ids = self.luck.choices(sorted(self.model.tasks), k=self.luck.randint(1, 3))
            self.twins.watch(self.parent(), ids, self.luck.choice(("each", "all")))

    def somebody_writes(self) -> None:
        self.twins.message(
            self.player(),
            self.target("parent", *CHILDREN),
            task=self.task() if self.model.tasks and self.luck.random() < 0.3 else None,
            expects=False,
            steer=self.luck.random() < 0.25,
        )

    def somebody_asks(self) -> None:
        task = self.task() if self.model.tasks and self.luck.random() < 0.8 else None
        if task is None:
            sender = self.player()
        else:
            sender = self.parent() if self.luck.random() < 0.15 else self.owner(task)
        others = [name for name in ("parent", *CHILDREN) if name != sender.seat.agent]
        self.twins.message(
            sender,
            self.target(*(others if self.luck.random() < 0.95 else CHILDREN)),
            self.luck.choice((None, None, None, None, 0, MINUTE, 5 * MINUTE, 30 * MINUTE)),
            task=task,
            expects=True,
            steer=self.luck.random() < 0.25,
        )

    def somebody_stays_on_the_line(self) -> None:
        """An ask; few are on a task, because most of what happens would end them soon."""
        task = self.task() if self.model.tasks and self.luck.random() < 0.4 else None
        sender = self.player() if task is None else self.owner(task)
        others = [name for name in ("parent", *CHILDREN) if name != sender.seat.agent]
        to = self.target(*(others if self.luck.random() < 0.95 else CHILDREN))
        self.asks(sender, self.lines.question(sender, to, task))

    def asks(self, player: Player, asked: Question) -> None:
        window = self.luck.choice((None, None, MINUTE, MINUTE, 5 * MINUTE, 30 * MINUTE))
        ceiling = self.luck.choice((None, None, None, MINUTE, 2 * MINUTE, 7 * MINUTE))
        self.lines.ask(player, asked, window, ceiling, self.sources())

    def sources(self) -> tuple[str, ...] | None:
        return self.luck.choice((None, None, None, SOURCES, SOURCES[:1]))

    def line(self) -> Line:
        """A waiting call, mostly one for which there is news."""
        news = [line for line in self.lines.waiting if self.lines.has_news(line)]
        return self.luck.choice(news if news and self.luck.random() < 0.7 else self.lines.waiting)

    def a_line_moves(self) -> None:
        """A waiting call looks, or does what is next; or it is cut off, at whatever point."""
        line, chance = self.line(), self.luck.random()
        if line.got == "confirmed":
            if chance < 0.3:
                self.lines.hang_up(line, told=False)
            else:
                self.lines.forget(line)
        elif line.got == "answered" and chance < 0.7:
            self.lines.confirm(line)
        elif line.got not in ("pending", "answered") and chance < 0.7:
            self.lines.hang_up(line, told=True)
        elif chance < 0.85:
            self.lines.look_at(line)
        else:
            self.lines.hang_up(line, told=False)

    def one_more_joins_a_line(self) -> None:
        """Another call for the same ask, from whatever process of its asker."""
        asked = self.luck.choice(self.lines.asked[-4:])
        whose = asked.asker.seat
        player = self.player(*([whose.agent] if self.luck.random() < 0.95 else []))
        if player.seat[:2] == whose[:2] and self.luck.random() < 0.6:
            self.asks(player, asked)
        else:
            self.lines.ask_wait(player, asked.id, self.sources())

    def work_shows(self) -> None:
        """What probes look at grows, or starts anew; now and then an agent's own is published."""
        source, work = self.luck.choice(SOURCES), self.lines.work
        work[source] = 0 if self.luck.random() < 0.2 else work[source] + 1
        if self.luck.random() < 0.5:
            self.lines.publish(self.player())

    def somebody_answers(self) -> None:
        mail = self.request()
        late = [mail for mail, _ in self.model.asks() if mail.request and mail.request.answerable]
        if late and self.luck.random() < 0.5:
            mail = self.luck.choice(late)
        by = [mail.recipient] * 4 + ["parent", self.luck.choice(CHILDREN[:2])]
        by += mail.request.was * 2 if mail.request is not None else []
        self.twins.reply(
            self.player(self.luck.choice(by)), mail.id, self.luck.choice(("yes", "no"))
        )

    def a_wait_is_helped_along(self) -> None:
        mail, what = (
            self.request(),
            self.luck.choices(("remind", "reroute", "give up"), (1, 3, 1))[0],
        )
        if what == "remind":
            self.twins.remind(self.parent(), mail.id)
        elif what == "reroute":
            self.twins.reroute(self.parent(), mail.id, self.target("parent", *CHILDREN))
        else:
            sender = mail.sender if mail.sender in self.model.agents else "parent"
            self.twins.cancel_request(self.player("parent", sender), mail.id)

    def mail_is_read(self) -> None:
        player = self.player()
        if self.luck.random() < 0.3:
            self.twins.show(player)
        else:
            self.twins.take(player, turn=self.luck.random() < 0.6)

    def mail_is_handled(self) -> None:
        if self.luck.random() < 0.5:
            self.twins.ack(self.turn())
        else:
            error = self.luck.choice((None, "it broke", "it broke"))
            self.twins.nack(self.turn(), error, self.luck.choice((None, None, MINUTE, 6 * MINUTE)))

    def mail_is_acked_by_id(self) -> None:
        player, known = self.player(), self.model.mail
        seen = [
            ref
            for ref in sorted(known)
            if known[ref].recipient == player.seat.agent and known[ref].state in ("shown", "taken")
        ]
        other = [ref for ref in sorted(known) if known[ref].kind != "reminder"]
        pool = seen if seen and self.luck.random() < 0.9 else other
        if pool:
            ids = self.luck.sample(pool, k=min(len(pool), self.luck.randint(1, 2)))
            self.twins.ack_by_id(player, ids)

    def processes_come_and_go(self) -> None:
        if self.luck.random() < 0.5:
            newest = {name: seat for seat in self.twins.tokens for name in seat[:1]}
            self.twins.join(*self.luck.choice(sorted(newest.values())))
        else:
            self.leave()

    def leave(self) -> None:
        """One instance ends, or all that serve an agent, as when a machine is switched off."""
        player = self.player()
        same = [p for p in self.twins.players if p.seat[:2] == player.seat[:2] and self.is_live(p)]
        for gone in same if self.luck.random() < 0.4 else [player]:
            self.twins.leave(gone, died=self.luck.random() < 0.5)

    def agents_come_and_go(self) -> None:
        name = self.luck.choice(CHILDREN)
        known = self.model.agents.get(name)
        if known is not None and known.open and self.luck.random() < 0.3:
            self.twins.close(self.parent(), name)
        elif known is None or not known.open or self.luck.random() < 0.1:
            self.twins.register(self.parent(), name)
        else:
            self.twins.progress(self.player())

    def the_threshold_changes(self) -> None:
        minutes = self.luck.choice(THRESHOLDS)
        if self.luck.random() < 0.3:
            policy = HerdSettings(stale_wait_threshold=minutes)
            self.twins.open(policy, self.twins.tokens["parent", 1])
        else:
            self.twins.set_threshold(self.parent(), minutes)

    def a_call_is_repeated(self) -> None:
        self.luck.choice(self.twins.calls[-12:])()

    def an_impostor_calls(self) -> None:
        """With a token that is not its own, or for what is only the parent's to do."""
        caller, code = self.player(*CHILDREN).real.caller, "unauthorized"
        whose = self.luck.choice(("no token", "another's name", "a child's"))
        if whose == "no token":
            caller = replace(caller, token="0" * 64)
        elif whose == "another's name":
            names = sorted(name for name in self.model.agents if name != caller.agent)
            caller = replace(caller, agent=self.luck.choice(names))
        else:
            code = "forbidden"
        task, mail = self.task(), self.request().id
        make: Sequence[Callable[[], Call[Any]]] = (
            lambda: tasks.cancel(caller, task, "mine"),
            lambda: tasks.watch(caller, [task], "each"),
            lambda: requests.reroute(caller, mail, "a"),
            lambda: requests.remind(caller, mail),
        )
        gone = {"unknown_agent", "agent_closed"}
        self.twins.refused(
            self.luck.choice(make)(), f"{whose} {caller}", {code, "forbidden", *gone}
        )

    # ---------------------------------------------------------------- time

    def time_passes(self) -> None:
        if self.luck.random() < 0.1:
            self.later(self.luck.choice((1, 2, 8)) * DAY)
        else:
            self.later(self.luck.choice(SPANS))

    def later(self, milliseconds: int) -> None:
        """Nobody stays on the line for days; under a manual clock a call would count for ever."""
        if milliseconds >= DAY:
            self.lines.hang_up_all()
        self.twins.advance(milliseconds)

    def something_comes_due(self) -> None:
        """To the very millisecond at which the next timer fires, or one beside it."""
        due = self.model.next_due()
        if due is not None:
            off = self.luck.choice((-1, 0, 0, 1))
            self.later(max(0, due + off - self.model.now))
        self.twins.tick(self.luck.randrange(2))

    def a_scheduler_works(self) -> None:
        work = self.luck.choice((self.twins.tick, self.twins.look, self.twins.visit))
        work(self.luck.randrange(2))

    @invariant()
    def they_agree(self) -> None:
        self.twins.agree()

    def teardown(self) -> None:
        if hasattr(self, "twins"):
            with self.twins.exit:
                self.twins.finish()


@pytest.fixture
def stage(server: EmbeddedServer) -> Iterator[Stage]:
    with Stage(server.url) as stage:
        yield stage


@proves("P1", "P2", "P3", "P4", "P5", "P6", "P7", "P8", "P9", "P10", "P12", "P13", "P15")
def test_the_broker_does_what_the_model_says(stage: Stage):
    """Whatever happens in whatever order, broker and model agree, and at last nothing is left."""

    class Machine(BrokerMachine):
        pass

    Machine.stage = stage
    profile = THOROUGH if os.environ.get("TOCSIN_STATEFUL") == "thorough" else SUITE
    run_state_machine_as_test(Machine, settings=profile)
