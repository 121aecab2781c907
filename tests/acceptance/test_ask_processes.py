"""Asks in real time, between real processes: hard work, frozen, killed."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from tests.acceptance.processes import Program
from tests.fleets import bodies, token_of
from tests.requirements import proves
from tests.waiting import wait_until
from tocsin.broker import Broker, HerdSettings, Parent, Reply, ScaledClock, errors
from tocsin.broker.embedded import EmbeddedServer
from tocsin.scheduler import Scheduler
from tocsin.workers.child.probe import TranscriptProbe, publish

WINDOW = timedelta(seconds=1)
NEXT_LOOK = 5.0
"""Seconds, well before whoever waits looks by itself: what ends by then had its timer fired."""


class Stage:
    """A herd on a server's own time, with asks in threads and agents in processes."""

    def __init__(self, broker: Broker, url: str, settings: HerdSettings | None = None) -> None:
        self.broker = broker
        self.url = url
        self.parent: Parent = broker.open_herd("h", settings=settings)
        self.tokens: dict[str, str] = {}
        self._threads = ThreadPoolExecutor(4)

    def agent(self, name: str) -> tuple[str, ...]:
        """Registers an agent; what a program needs to serve it."""
        self.tokens[name] = token_of(self.parent.register(name))
        return self.where(name)

    def where(self, name: str) -> tuple[str, ...]:
        return (self.url, self.broker.name, "h", name, self.tokens[name])

    def ask(self, to: str, body: str, **how: Any) -> Future[Reply]:
        """The parent asks, in the background."""
        return self._threads.submit(self.parent.ask, to, body, **how)

    def asks_open(self, count: int) -> None:
        """Waits until so many asks of the parent are open."""
        wait_until(
            lambda: len({i.agent: i for i in self.parent.roster()}["parent"].waits_for) == count,
            f"{count} open asks",
        )

    def close(self) -> None:
        self._threads.shutdown(wait=True)


@pytest.fixture
def stage(url: str, fleet_name: str) -> Iterator[Callable[..., Stage]]:
    """Opens stages; no scheduler runs unless the test starts one."""
    with ExitStack() as stack:

        def make(settings: HerdSettings | None = None) -> Stage:
            broker = stack.enter_context(Broker.connect(url, fleet=fleet_name))
            made = Stage(broker, url, settings)
            stack.callback(made.close)
            return made

        yield make


def ended(asking: Future[Reply], kind: type[errors.BrokerError]) -> Any:
    """The error that an ask ended in."""
    with pytest.raises(kind) as raised:
        asking.result(30)
    return raised.value


def passes(moment: float) -> None:
    """Waits for a moment of the monotonic clock."""
    wait_until(lambda: time.monotonic() >= moment, "the moment", timeout=30)


# ------------------------------------------------------------------ work and silence


class Probes:
    """The two ways a transcript is watched: by the asker, and by whoever runs the child."""

    def __init__(self, stage: Stage, directory: Path, side: str) -> None:
        self.how: dict[str, Any] = {}
        self._stop = False
        self._threads = ThreadPoolExecutor(1)
        probe = TranscriptProbe(directory)
        if side == "asker":
            self.how = {"probe": probe}
        else:
            child = stage.broker.join("h", "child", stage.tokens["child"], instance="inst_runner")
            self._running = self._threads.submit(
                publish,
                child,
                probe,
                timedelta(milliseconds=50),
                pause=self._pause,
            )

    def _pause(self, seconds: float) -> bool:
        passes(time.monotonic() + seconds)
        return self._stop

    def __enter__(self) -> Probes:
        return self

    def __exit__(self, *exc: object) -> None:
        self._stop = True
        self._threads.shutdown(wait=True)


@pytest.mark.parametrize("side", ["asker", "runner"])
@pytest.mark.parametrize("scheduler", [False, True], ids=["alone", "with a scheduler"])
@proves("P8", "P16")
def test_a_child_hard_at_work_in_one_long_turn(stage, tmp_path, side, scheduler):
    """It writes its transcript for three windows without one call to the broker, then answers."""
    on = stage()
    with ExitStack() as stack:
        child = stack.enter_context(Program("worker", *on.agent("child"), str(tmp_path)))
        child.says("joined")
        probes = stack.enter_context(Probes(on, tmp_path, side))
        if scheduler:
            stack.enter_context(Program("scheduler", on.url, on.broker.name)).says("runs")
        started = time.monotonic()
        asking = on.ask("child", "hard", window=WINDOW, **probes.how)
        child.says("works")
        passes(started + 3 * WINDOW.total_seconds() + 0.2)
        assert not asking.done(), "no false no_reply"
        child.tell("answer")
        reply = asking.result(30)

    assert (reply.body, reply.late) == ("done: hard", False)
    assert reply.extensions >= 2 and reply.waited > 3 * WINDOW


@pytest.mark.parametrize("side", ["asker", "runner"])
@proves("P8")
def test_the_same_child_frozen(stage, tmp_path, side):
    """SIGSTOP: `no_reply` one window after its last sign of work; thawed, it answers late."""
    on = stage()
    with ExitStack() as stack:
        child = stack.enter_context(Program("worker", *on.agent("child"), str(tmp_path)))
        child.says("joined")
        probes = stack.enter_context(Probes(on, tmp_path, side))
        started = time.monotonic()
        asking = on.ask("child", "hard", window=WINDOW, **probes.how)
        child.says("works")
        passes(started + 2.2 * WINDOW.total_seconds())
        assert not asking.done()
        child.freeze()
        frozen = time.monotonic()
        error = ended(asking, errors.NoReply)
        silent = time.monotonic() - frozen

        assert error.reason == "read_but_silent" and error.limit == "window"
        # Growth is seen up to a look after it happened; the last may have come just before.
        assert WINDOW.total_seconds() - 0.1 < silent < 2 * WINDOW.total_seconds()
        child.thaw()
        child.tell("answer")
        (late,) = on.parent.next_turn(timeout=30)
    assert (late.body, late.late, late.reply_to) == ("done: hard", True, error.message_id)


@proves("P8", "P16")
def test_no_scheduler_runs(stage):
    """A blocked asker fires its own window and ceiling, near where arithmetic puts them."""
    on = stage()
    on.agent("child")
    for how, limit in (
        ({"window": timedelta(milliseconds=300)}, 0.3),
        ({"ceiling": timedelta(milliseconds=500)}, 0.5),
    ):
        started = time.monotonic()
        error = ended(on.ask("child", "anybody?", **how), errors.NoReply)
        took = time.monotonic() - started
        assert error.limit == next(iter(how)) and error.reason == "away"
        assert limit <= took < NEXT_LOOK


@proves("P8")
def test_a_fleet_that_lives_fast(url, fleet_name):
    """Windows are of the fleet's time: ten minutes pass in one second."""
    with Broker.connect(url, fleet=fleet_name, clock=ScaledClock(600)) as broker:
        parent = broker.open_herd("h")
        parent.register("child")
        started = time.monotonic()
        with pytest.raises(errors.NoReply, match="the window of 10m"):
            parent.ask("child", "anybody?")
        assert 1.0 <= time.monotonic() - started < NEXT_LOOK


# ------------------------------------------------------------------ late, beside another ask


@proves("P9")
def test_a_late_answer_beside_another_ask(stage):
    """Case 26: a window of 1 s, the answer at 3 s, another ask open: kept, marked, wakes, apart."""
    on = stage()
    with Program("answerer", *on.agent("child")) as child:
        child.says("joined")
        started = time.monotonic()
        first = on.ask("child", "first", window=WINDOW)
        child.says("asked")
        second = on.ask("child", "second", window=timedelta(minutes=1))
        error = ended(first, errors.NoReply)
        took = time.monotonic() - started
        assert WINDOW.total_seconds() <= took < 3
        child.says("asked")
        passes(started + 3)
        child.tell("first")
        (late,) = on.parent.next_turn(timeout=10)
        assert (late.body, late.late, late.reply_to) == ("to first", True, error.message_id)
        assert not second.done()
        child.tell("second")
        assert second.result(10).body == "to second"
    assert on.parent.ask_wait(error.message_id).body == "to first"
    assert on.parent.receipt(error.message_id).reply == late.message_id


# ------------------------------------------------------------------ askers that end


SHORT = HerdSettings(lease=timedelta(milliseconds=500), grace=timedelta(milliseconds=500))


@pytest.mark.parametrize("when", ["before the answer", "with the answer held"])
@proves("P9", "P11", "P16")
def test_an_asker_killed(stage, when):
    """SIGKILL: the answer is waking mail to the restarted agent, once."""
    on = stage(SHORT)
    where = on.agent("scout")
    child = on.broker.join("h", "planner", on.agent("planner")[-1])
    with (
        Program("scheduler", on.url, on.broker.name) as scheduler,
        Program("asks", *where, "planner", "Which?") as asker,
    ):
        scheduler.says("runs")
        asker.says("joined")
        (asked,) = child.next_turn(timeout=30)
        if when == "with the answer held":
            asker.freeze()
            child.reply(asked, "Exponential")
        asker.kill()
    if when == "before the answer":
        child.reply(asked, "Exponential")

    restarted = on.broker.join("h", "scout", on.tokens["scout"])
    scheduler_here = Scheduler(on.broker)

    def comes() -> Any:
        scheduler_here.tick()
        return restarted.next_turn(timeout=0)

    turn = wait_until(comes, "the answer", timeout=15)
    assert bodies(turn) == ["Exponential"] and not turn[0].late
    turn.ack()
    assert restarted.next_turn(timeout=1) is None
    assert restarted.ask_wait(asked.message_id).body == "Exponential"


@proves("P9", "P16")
def test_two_replicas_of_which_one_is_killed(stage):
    """The survivor's own ask is answered to it; the dead one's answer is mail to the agent."""
    on = stage(SHORT)
    where = on.agent("scout")
    child = on.broker.join("h", "planner", on.agent("planner")[-1])
    with (
        Program("asks", *where, "planner", "from the dead") as dead,
        Program("asks", *where, "planner", "from the living") as living,
    ):
        questions: dict[str, Any] = {}
        while len(questions) < 2:
            for each in child.next_turn(timeout=30):
                questions[each.body] = each
        dead.kill()
        for body, question in questions.items():
            child.reply(question, f"answer {body}")
        assert json.loads(living.says("answered")) == "answer from the living"
        third = on.broker.join("h", "scout", on.tokens["scout"])
        turn = third.next_turn(timeout=15)
        assert bodies(turn) == ["answer from the dead"]
        turn.ack()


# ------------------------------------------------------------------ everything frozen


@pytest.mark.parametrize("window", ["longer", "shorter"])
@proves("P8", "P9", "P16")
def test_everything_frozen_while_asks_are_open(window):
    """Case 25: server, askers, targets, scheduler frozen past lease and grace, then thawed.

    Asks whose windows had not run out go on and are answered to their askers; others end once
    each. Nothing counts as gone, and nothing is told a second time by mail.
    """
    settings = HerdSettings(lease=timedelta(milliseconds=400), grace=timedelta(seconds=2))
    span = "60" if window == "longer" else "1.5"
    with EmbeddedServer(durable=False) as server, Broker.connect(server.url, fleet="f") as broker:
        parent = broker.open_herd("h", settings=settings)
        names = [f"asker-{number}" for number in range(3)]
        seats = {name: token_of(parent.register(name)) for name in (*names, "planner")}
        where = (server.url, "f", "h")
        with ExitStack() as stack:
            askers = [
                stack.enter_context(
                    Program("asks", *where, name, seats[name], "planner", f"of {name}", span)
                )
                for name in names
            ]
            planner = stack.enter_context(Program("answerer", *where, "planner", seats["planner"]))
            scheduler = stack.enter_context(Program("scheduler", server.url, "f"))
            scheduler.says("runs")
            for _ in names:
                planner.says("asked")
            everybody = [*askers, planner, scheduler]
            for process in everybody:
                process.freeze()
            os.kill(server.pid, signal.SIGSTOP)
            past = settings.lease + settings.grace
            passes(time.monotonic() + 1.5 * past.total_seconds())
            os.kill(server.pid, signal.SIGCONT)
            scheduler.thaw()
            assert Scheduler(broker).tick() is not None, "the timers are looked at first"
            for process in (*askers, planner):
                process.thaw()

            for name, asker in zip(names, askers, strict=True):
                if window == "longer":
                    planner.tell(f"of {name}")
                    assert json.loads(asker.says("answered")) == f"to of {name}"
                else:
                    assert asker.says("ended").startswith("no_reply")
            for name in names:
                again = broker.join("h", name, seats[name])
                assert again.next_turn(timeout=0) is None
                assert bodies(again.receive()) == []
            events = [line.event for line in parent.journal(limit=1000)]
            assert "lost" not in events
            assert events.count("request_no_reply") == (0 if window == "longer" else len(names))
            assert bodies(parent.receive()) == []
