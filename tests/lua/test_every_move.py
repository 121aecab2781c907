"""Every row of the state table on a real server, and every pair that is no row of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import timedelta

import pytest

from tocsin.broker import Broker, Child, HerdSettings, ManualClock, Parent, TaskState, errors
from tocsin.broker._sync.link import Link
from tocsin.broker.keys import below
from tocsin.broker.states import MOVES
from tocsin.scheduler import Scheduler

REPLY = timedelta(minutes=20)
DEADLINE = timedelta(hours=24)
EVENTS = {move.event: move for move in MOVES}
LEGAL = [(state, move.event) for move in MOVES for state in sorted(move.sources)]
ILLEGAL = [(state, event) for event in EVENTS for state in TaskState if (state, event) not in LEGAL]


@dataclass
class Scene:
    """A herd of three with one task, on a clock that the test moves."""

    parent: Parent
    scout: Child
    planner: Child
    clock: ManualClock
    scheduler: Scheduler
    link: Link
    task: str = ""
    questions: list[str] = field(default_factory=list)
    reply_within: timedelta | None = None

    @property
    def state(self) -> TaskState:
        """Where the task stands."""
        return self.parent.task(self.task).state

    def record(self) -> dict[str, str]:
        """The whole record of the task, as it is stored."""
        caller = self.parent.caller
        key = below(caller.fleet.partition(caller.herd), "task", herd=caller.herd, task=self.task)
        record: dict[str, str] = self.link.command("test", "HGETALL", key)
        return record

    def ask(self) -> None:
        """The owner asks its planner."""
        sent = self.scout.message(
            "planner",
            "Which?",
            task=self.task,
            expects_reply=True,
            reply_within=self.reply_within,
        )
        self.questions.append(sent.message_id)

    def question(self) -> str:
        """The last question on the task, or else one that is not on it."""
        if not self.questions:
            sent = self.scout.message("planner", "Which, by the way?", expects_reply=True)
            self.questions.append(sent.message_id)
        return self.questions[-1]

    def wait(self, long: timedelta) -> None:
        """Time passes, and a scheduler looks."""
        self.clock.advance(long)
        self.scheduler.tick()

    def block(self) -> None:
        """Nobody answers in time."""
        self.ask()
        self.wait(REPLY)

    def fall(self) -> None:
        """The process that holds the task's envelope fails, as often as the herd allows."""
        mail = self.scout.receive()
        held = [envelope for envelope in mail if envelope.kind == "task"]
        if held:
            mail.nack(error="RuntimeError")
        else:
            self.scout.done(self.task, "failed", error="RuntimeError")


@pytest.fixture
def scene(url: str, fleet_name: str) -> Iterator[Scene]:
    """A task just delegated."""
    clock = ManualClock()
    with Broker.connect(url, fleet=fleet_name, clock=clock) as broker:
        settings = HerdSettings(reply_timeout=REPLY, task_deadline=DEADLINE, max_attempts=1)
        parent = broker.open_herd("h", settings=settings)
        scout, planner = (
            broker.join("h", name, parent.register(name).token or "")
            for name in ("scout", "planner")
        )
        assert isinstance(scout, Child)
        assert isinstance(planner, Child)
        made = Scene(parent, scout, planner, clock, Scheduler(broker), broker.link)
        made.task = parent.delegate("scout", "Find it").id
        yield made


def completed(scene: Scene) -> None:
    """Its owner says that it is done, and why its questions no longer matter."""
    scene.scout.done(scene.task, "completed", summary="s", override_reason="found it elsewhere")


CARRY_OUT: dict[str, list[Callable[[Scene], object]]] = {
    "taken": [
        lambda s: s.scout.receive(),
        lambda s: s.scout.inbox(),
        lambda s: s.scout.next_turn(0),
    ],
    "asked": [
        lambda s: s.ask(),
        lambda s: s.parent.message("planner", "Which?", task=s.task, expects_reply=True),
    ],
    "released": [
        lambda s: s.planner.reply(s.question(), "That one."),
        lambda s: s.parent.cancel_request(s.question()),
        lambda s: s.parent.close("planner"),
    ],
    "unanswered": [lambda s: s.wait(REPLY)],
    "gave_up": [lambda s: s.scout.done(s.task, "blocked", error="e")],
    "broke": [lambda s: s.scout.done(s.task, "failed", error="e"), lambda s: s.fall()],
    "finished": [completed],
    "cancelled": [
        lambda s: s.parent.cancel(s.task, reason="r"),
        lambda s: s.parent.close("scout", reason="r"),
        lambda s: s.parent.close_herd(),
    ],
    "expired": [lambda s: s.wait(DEADLINE)],
}
"""The operations that mean each event."""

BRING_TO: dict[TaskState, Callable[[Scene], object]] = {
    TaskState.CREATED: lambda s: None,
    TaskState.RUNNING: lambda s: s.scout.inbox(),
    TaskState.WAITING: lambda s: s.ask(),
    TaskState.COMPLETED: completed,
    TaskState.BLOCKED: lambda s: s.block(),
    TaskState.FAILED: lambda s: s.fall(),
    TaskState.CANCELLED: lambda s: s.parent.cancel(s.task),
    TaskState.TIMED_OUT: lambda s: s.wait(DEADLINE),
}
"""How a task comes to each state."""


def ways(pairs: list[tuple[TaskState, str]]) -> list[tuple[TaskState, str, int]]:
    """Each pair, with each way to carry its event out."""
    return [(state, event, way) for state, event in pairs for way in range(len(CARRY_OUT[event]))]


def test_the_table_here_is_whole():
    """Every event has an operation, every state a way to it; 8 states by 9 events in all."""
    assert CARRY_OUT.keys() == EVENTS.keys()
    assert BRING_TO.keys() == set(TaskState)
    assert len(LEGAL) + len(ILLEGAL) == 72


@pytest.mark.parametrize(("state", "event", "way"), ways(LEGAL))
def test_a_move_of_the_table_is_made(scene, state, event, way):
    """From each of its sources, by each operation that means it, the event leads to its target."""
    if event == "expired":  # or the reply deadline would come first
        scene.reply_within = timedelta(0)
    BRING_TO[state](scene)
    assert scene.state == state
    CARRY_OUT[event][way](scene)
    assert scene.state == EVENTS[event].target
    settlement = scene.parent.task(scene.task).settlement
    assert (settlement is not None) == EVENTS[event].target.terminal


@pytest.mark.parametrize(("state", "event", "way"), ways(ILLEGAL))
def test_what_is_no_move_changes_nothing(scene, state, event, way):
    """The operation is refused or has no effect: a terminal record stays as it is to the letter."""
    BRING_TO[state](scene)
    before = scene.record()
    assert before["state"] == state
    with suppress(errors.WrongState):
        CARRY_OUT[event][way](scene)
    after = scene.record()
    kept = before if state.terminal else ("state", "episode", "waiting_since")
    assert {name: after.get(name) for name in kept} == {name: before.get(name) for name in kept}


@pytest.mark.parametrize("state", ["completed", "blocked", "failed", "cancelled", "timed_out"])
def test_a_settled_task_can_wait_for_nothing(scene, state):
    """A question on it is refused `wrong_state`, and the question is not sent."""
    BRING_TO[TaskState(state)](scene)
    scene.planner.receive().ack()
    with pytest.raises(errors.WrongState, match=f"{state} and can wait for nothing"):
        scene.ask()
    assert not scene.planner.receive()


def test_a_waiting_task_cannot_be_completed_without_a_reason(scene):
    """`pending_requests` names the open question, and the wait goes on."""
    scene.ask()
    with pytest.raises(errors.PendingRequests, match=scene.questions[0]):
        scene.scout.done(scene.task)
    assert scene.state == "waiting"
    assert scene.parent.task(scene.task).open_requests == (scene.questions[0],)


def test_a_second_question_does_not_begin_a_second_episode(scene):
    """One contiguous wait is one episode; answered one by one it ends with the last."""
    scene.ask()
    scene.ask()
    assert scene.parent.task(scene.task).episode == 1
    scene.planner.reply(scene.questions[0], "One.")
    assert scene.state == "waiting"
    scene.planner.reply(scene.questions[1], "Two.")
    assert scene.state == "running"
    scene.ask()
    assert scene.parent.task(scene.task).episode == 2


@pytest.mark.parametrize("event", ["finished", "gave_up", "broke", "cancelled"])
@pytest.mark.parametrize("state", [state for state in TaskState if state.terminal])
def test_the_first_result_stands(scene, state, event):
    """Whoever settles a settled task is told how it was; the parent hears of it once."""
    BRING_TO[state](scene)
    first = scene.parent.task(scene.task).settlement
    told = [mail for mail in scene.parent.receive() if mail.kind == "task_settled"]
    if event == "broke":
        again = scene.scout.done(scene.task, "failed", error="another")
    else:
        again = CARRY_OUT[event][0](scene)
    assert again is None or again == first
    assert len(told) == 1
    assert not [mail for mail in scene.parent.receive() if mail.kind == "task_settled"]


@pytest.mark.parametrize("state", [state for state in TaskState if state.terminal])
def test_an_envelope_that_dies_after_its_task_settled_changes_nothing(scene, state):
    """Its holder fails too late: the mail goes nowhere any more, the task is what it was."""
    held = scene.scout.receive()
    if state is TaskState.FAILED:
        scene.scout.done(scene.task, "failed", error="e")
    else:
        BRING_TO[state](scene)
    before = scene.record()
    assert before["state"] == state
    held.nack(error="RuntimeError")
    assert scene.parent.receipt(held[0]).state in ("dead", "withdrawn")
    assert "task" not in [mail.kind for mail in scene.scout.receive()]
    assert scene.record() == before
