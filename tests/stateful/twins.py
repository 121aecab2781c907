"""The broker and the model side by side: each operation is done to both, and they must agree.

Nothing here is random. Ids come from keys, so that a run can be repeated, and a call be repeated
with the id it had.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from datetime import timedelta
from typing import Any, NamedTuple, Self

import redis
from hypothesis import note

from tests.stateful.comparing import (
    compare_agents,
    compare_inboxes,
    compare_mail,
    compare_tasks,
    compare_timers,
    same_settlement,
)
from tests.stateful.model import Model
from tests.stateful.records import DAY, Hold, Mail, Refused, Seat
from tests.stateful.snapshot import Snapshot, must_equal
from tocsin.broker import Broker, HerdSettings, ManualClock, Settlement, keys, timers
from tocsin.broker.clock import to_ms
from tocsin.broker.errors import BrokerError
from tocsin.broker.scripts import Call
from tocsin.broker.testing import lapse
from tocsin.scheduler import Scheduler

FLEET, HERD = "machine", "h"


class Stage:
    """The server of a run, and a connection to look at it with."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.client = redis.Redis.from_url(url)

    def clear(self) -> None:
        """Removes the fleet of an earlier example, finished or failed."""
        for key in self.client.keys(f"{keys.PREFIX}:{{{FLEET}[:}}]*"):
            self.client.delete(key)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.clear()
        self.client.close()


class Player(NamedTuple):
    """An instance of an agent, as the broker knows it and as the model does."""

    real: Any
    seat: Seat

    def __repr__(self) -> str:
        return f"{self.seat.agent}#{self.seat.generation}({self.seat.instance[-4:]})"


class Taken(NamedTuple):
    """Mail that a player took, in the broker's hand and in the model's."""

    player: Player
    real: Any
    held: tuple[Hold, ...]

    def __repr__(self) -> str:
        return f"what {self.player} took: {', '.join(hold.id for hold in self.held)}"


def span(milliseconds: int | None) -> timedelta | None:
    """Milliseconds as the broker's calls take them."""
    return None if milliseconds is None else timedelta(milliseconds=milliseconds)


class Twins:
    """One herd with its parent and the children a and b, under one clock."""

    def __init__(self, stage: Stage, *, max_attempts: int) -> None:
        stage.clear()
        self.stage = stage
        self.exit = ExitStack()
        self.clock = ManualClock()
        brokers = [
            self.exit.enter_context(
                Broker.connect(stage.url, fleet=FLEET, clock=self.clock, partitions=2)
            )
            for _ in range(2)
        ]
        self.broker = brokers[0]
        self.schedulers = [Scheduler(broker) for broker in brokers]
        self.looks: list[list[str]] = [[], []]
        self.opened = to_ms(self.clock.now())
        self.model = Model(self.opened)
        self.players: list[Player] = []
        self.tokens: dict[tuple[str, int], str] = {}
        self.taken: list[Taken] = []
        self.calls: list[Callable[[], None]] = []
        self.settled: dict[str, Settlement] = {}
        self.counted = 0
        self.model.settings.max_attempts = max_attempts
        self.parent = self.open(HerdSettings(max_attempts=max_attempts))
        for name in ("a", "b"):
            self.register(self.parent, name)

    # ---------------------------------------------------------------- doing it twice

    def note(self, what: str) -> None:
        """A line of the story that a failure tells."""
        note(f"» {timedelta(milliseconds=self.model.now - self.opened)} {what}")

    def both(
        self,
        what: str,
        real: Callable[[], Any],
        model: Callable[[], Any],
        same: Callable[[Any, Any], object] = lambda *_: True,
    ) -> None:
        """Does it on both; they must agree on whether it is refused, and on the answer."""
        answer, code, expected, codes = None, None, None, frozenset[str]()
        try:
            answer = real()
        except BrokerError as error:
            code = error.code
        self.note(f"{what} -> {code or repr(answer)[:200]}")
        try:
            expected = model()
        except Refused as refusal:
            codes = refusal.codes
        if codes:
            assert code in codes, f"expected {set(codes)}, got {code or answer}"
            return
        assert code is None, f"refused with {code}, expected {expected}"
        assert same(answer, expected), f"answered {answer}, expected {expected}"

    def repeatable(self, call: Callable[[], None]) -> None:
        """Makes the call, and keeps it to be made again, as after a lost answer."""
        self.calls.append(call)
        call()

    def key(self) -> str:
        """A key that no call had before."""
        self.counted += 1
        return f"k{self.counted}"

    # ---------------------------------------------------------------- agents

    def open(self, policy: HerdSettings, token: str | None = None) -> Player:
        """Opens the herd, or reopens it, which changes what is given and starts an instance."""
        real = self.broker.open_herd(HERD, settings=policy, token=token)
        self.note(f"the herd is opened with {policy.model_dump(exclude_unset=True)}")
        self.tokens["parent", 1] = real.token
        player = self.enter(real, 1)
        if "stale_wait_threshold" in policy.model_fields_set:
            self.model.settings.threshold = policy.stale_wait_threshold
        self.model.join(player.seat)
        return player

    def enter(self, real: Any, generation: int) -> Player:
        """One more player."""
        player = Player(real, Seat(real.agent, generation, real.instance))
        self.players.append(player)
        return player

    def register(self, parent: Player, name: str) -> None:
        """Registers a child and starts an instance of it."""
        made: list[int] = []

        def real() -> Any:
            seat = parent.real.register(name)
            made.append(seat.generation)
            self.tokens[name, seat.generation] = seat.token
            return seat

        def model() -> None:
            self.model.register(parent.seat, name, made[0] if made else None)

        self.both(f"register {name}", real, model)
        if made:
            self.join(name, made[0])

    def join(self, name: str, generation: int) -> None:
        """Another instance of an agent; of an earlier generation it is refused."""
        joined: list[Any] = []

        def real() -> None:
            joined.append(self.broker.join(HERD, name, self.tokens[name, generation]))

        def model() -> None:
            self.model.join(Seat(name, generation, joined[0].instance if joined else ""))

        self.both(f"join {name}#{generation}", real, model)
        if joined:
            self.enter(joined[0], generation)

    def leave(self, player: Player, *, died: bool) -> None:
        """An instance ends, by itself or because its process died."""
        end = (lambda: lapse(player.real)) if died else player.real.leave
        what = f"{player} {'dies' if died else 'leaves'}"
        self.both(what, end, lambda: self.model.leave(player.seat, died=died))

    def close(self, parent: Player, name: str) -> None:
        """Closes a child."""
        self.both(
            f"close {name}",
            lambda: parent.real.close(name, reason="no longer needed"),
            lambda: self.model.close(parent.seat, name, "no longer needed"),
        )

    def set_threshold(self, parent: Player, minutes: float) -> None:
        """Sets the threshold of the open herd."""
        policy = HerdSettings(stale_wait_threshold=minutes)
        self.both(
            f"threshold {minutes}",
            lambda: parent.real.set_settings(policy).settings.stale_wait_threshold,
            lambda: self.model.set_threshold(parent.seat, minutes),
            lambda found, _: found == minutes,
        )

    def progress(self, player: Player) -> None:
        """Says how far it is."""
        self.both(
            f"{player} makes progress",
            lambda: player.real.progress("at it", fraction=0.5),
            lambda: self.model.progress(player.seat),
        )

    # ---------------------------------------------------------------- tasks

    def delegate(self, parent: Player, child: str, deadline: int | None, **how: Any) -> None:
        """Delegates a task; `how`: watch, queue, continues."""
        key = self.key()
        ref, text = parent.real.caller.new_id("task", "delegate", key), f"work {key}"

        def call() -> None:
            if ref not in self.model.tasks and any(m.task == ref for m in self.model.mail.values()):
                return  # it ended a week ago, and its key would stand for two tasks at once
            self.both(
                f"delegate {ref} to {child}, {deadline=} {how}",
                lambda: parent.real.delegate(child, text, deadline=span(deadline), key=key, **how),
                lambda: self.model.delegate(
                    parent.seat, ref, child, text, deadline=deadline, **how
                ),
                lambda found, task: (found.id, found.state) == (task.id, task.state),
            )

        self.repeatable(call)

    def done(self, child: Player, task: str, outcome: str, override: str | None) -> None:
        """A child says that a task is done."""
        text = self.key()
        error = text if outcome == "failed" else ""

        def real() -> Any:
            how = {"summary": text, "error": error, "override_reason": override}
            return child.real.done(task, outcome, **how)

        def call() -> None:
            self.both(
                f"{child} done {task} {outcome} {override=}",
                real,
                lambda: self.model.done(child.seat, task, outcome, text, error, override),
                same_settlement,
            )

        self.repeatable(call)

    def cancel(self, parent: Player, task: str) -> None:
        """Cancels a task."""
        reason = self.key()

        def call() -> None:
            self.both(
                f"cancel {task}",
                lambda: parent.real.cancel(task, reason=reason),
                lambda: self.model.cancel(parent.seat, task, reason),
                same_settlement,
            )

        self.repeatable(call)

    def watch(self, parent: Player, ids: Sequence[str], wake: str) -> None:
        """Watches tasks."""
        self.both(
            f"watch {ids} {wake}",
            lambda: parent.real.watch(*ids, wake=wake),
            lambda: self.model.watch(parent.seat, ids, wake),
            lambda found, expected: (
                len(found) == len(expected) and all(map(same_settlement, found, expected))
            ),
        )

    # ---------------------------------------------------------------- messages and requests

    def message(self, sender: Player, to: str, within: int | None = None, **how: Any) -> None:
        """A message or request; `how`: task, expects, steer."""
        key = self.key()
        ref, text = sender.real.caller.new_id("msg", "message", key), f"text {key}"

        def real() -> Any:
            return sender.real.message(
                to,
                text,
                task=how["task"],
                expects_reply=how["expects"],
                reply_within=span(within),
                delivery="steer" if how["steer"] else "follow_up",
                key=key,
            )

        def call() -> None:
            self.both(
                f"{sender} -> {to}: {ref}, {within=} {how}",
                real,
                lambda: self.model.message(sender.seat, ref, to, text, within=within, **how),
                lambda sent, again: (sent.message_id, sent.duplicate) == (ref, again),
            )

        self.repeatable(call)

    def reply(self, player: Player, to: str, body: str) -> None:
        """Answers a request or a message."""
        key = self.key()
        ref = player.real.caller.new_id("msg", "reply", key)

        def verdict(sent: Any) -> tuple[str, str]:
            how = "duplicate" if sent.duplicate else "late" if sent.late else "sent"
            return how, sent.message_id

        def call() -> None:
            self.both(
                f"{player} replies to {to} with {ref}: {body}",
                lambda: player.real.reply(to, body, key=key),
                lambda: self.model.reply(player.seat, ref, to, body),
                lambda sent, expected: verdict(sent) == expected,
            )

        self.repeatable(call)

    def remind(self, parent: Player, request: str) -> None:
        """Reminds the recipient of a request."""
        sent: list[str] = []
        self.both(
            f"remind {request}",
            lambda: sent.append(parent.real.remind(request).message_id),
            lambda: self.model.remind(parent.seat, sent[0] if sent else "", request),
        )

    def reroute(self, parent: Player, request: str, to: str) -> None:
        """Sends a request to somebody else."""
        self.both(
            f"reroute {request} to {to}",
            lambda: parent.real.reroute(request, to),
            lambda: self.model.reroute(parent.seat, request, to),
        )

    def cancel_request(self, player: Player, request: str) -> None:
        """Gives a request up."""
        self.both(
            f"{player} cancels request {request}",
            lambda: player.real.cancel_request(request),
            lambda: self.model.cancel_request(player.seat, request),
        )

    # ---------------------------------------------------------------- mail

    def same_mail(self, found: Any, expected: Sequence[Mail]) -> bool:
        """The same mail, in content too."""
        compare_mail(self.model, list(found or ()), expected)
        return True

    def take(self, player: Player, *, turn: bool) -> None:
        """Takes a turn if something wakes, or whatever is there."""
        got: list[Any] = []

        def real() -> Any:
            got.append(player.real.next_turn(timeout=0) if turn else player.real.receive())
            return got[0] and list(got[0])

        def model() -> list[Mail]:
            mail = self.model.take(player.seat, turn=turn)
            if mail:
                held = tuple(Hold(m.id, m.delivery) for m in mail)
                self.taken.append(Taken(player, got[0], held))
            return mail

        self.both(f"{player} takes {turn=}", real, model, self.same_mail)

    def show(self, player: Player) -> None:
        """Looks at its mail."""
        look = player.real.inbox
        self.both(f"{player} looks", look, lambda: self.model.show(player.seat), self.same_mail)

    def ack(self, taken: Taken) -> None:
        """Acks a turn."""
        player = taken.player
        self.both(f"ack {taken}", taken.real.ack, lambda: self.model.ack(player.seat, taken.held))

    def nack(self, taken: Taken, error: str | None, delay: int | None) -> None:
        """Gives a turn back."""
        how: Any = {"delay": delay or 0, "error": error or ""}
        self.both(
            f"nack {taken} {error=} {delay=}",
            lambda: taken.real.nack(delay=span(delay), error=error),
            lambda: self.model.nack(taken.player.seat, taken.held, **how),
        )

    def ack_by_id(self, player: Player, ids: Sequence[str]) -> None:
        """Acks mail by its ids."""
        self.both(
            f"{player} acks {ids}",
            lambda: player.real.ack(*ids),
            lambda: self.model.ack(player.seat, [Hold(ref) for ref in ids]),
        )

    def refused(self, call: Call[Any], who: str, codes: set[str]) -> None:
        """A call that must be refused, and change nothing."""
        try:
            self.broker.run(call)
        except BrokerError as error:
            self.note(f"{call.operation} by {who} -> {error.code}")
            if error.code not in codes:
                raise AssertionError(f"{error}, expected {codes}") from error
        else:
            raise AssertionError(f"{call.operation} was accepted from {who}")

    # ---------------------------------------------------------------- time

    def advance(self, milliseconds: int) -> None:
        """Time passes, and nothing else happens."""
        self.clock.advance(timedelta(milliseconds=milliseconds))
        self.model.now += milliseconds
        self.note("it is later")

    def tick(self, which: int) -> None:
        """A scheduler fires all that is due; then it can sleep."""
        self.note(f"tick of {which}: {self.schedulers[which].tick()}")
        self.model.tick()
        self.agree().check_idle()

    def look(self, which: int) -> None:
        """A scheduler looks what is due, and is slow to do it."""
        fleet = self.broker.fleet()
        self.looks[which] = self.broker.run(timers.due(fleet, fleet.partition(HERD), 10)).herds

    def visit(self, which: int) -> None:
        """It does what it saw, whatever happened since."""
        for herd in self.looks[which]:
            fired = self.broker.run(timers.visit(self.broker.fleet(), herd, 100))
            self.note(f"late visit of {which}: {fired}")
            self.model.tick()

    # ---------------------------------------------------------------- agreeing

    def agree(self) -> Snapshot:
        """They hold the same, and the broker's indexes agree with its records."""
        snapshot = Snapshot(self.stage.client, FLEET, self.model.now)
        compare_agents(self.model, snapshot)
        self.compare_tasks()
        compare_inboxes(self.model, snapshot)
        compare_timers(self.model, snapshot)
        snapshot.check()
        must_equal("for repair", self.schedulers[0].repair(mend=False).findings, [])
        return snapshot

    def compare_tasks(self) -> None:
        """The same tasks; what settled once never changes."""
        tasks = self.parent.real.tasks()
        compare_tasks(self.model, tasks)
        self.settled = {ref: s for ref, s in self.settled.items() if ref in self.model.tasks}
        for task in tasks:
            if task.settlement is not None:
                first = self.settled.setdefault(task.id, task.settlement)
                must_equal("the one settlement", task.settlement, first)

    def finish(self) -> None:
        """The herd closes, its time runs out, and nothing of it is left."""
        self.parent.real.close_herd()
        self.model.close_herd(self.parent.seat)
        self.compare_tasks()
        for _ in range(2):
            self.advance(9 * DAY)
            for scheduler in self.schedulers:
                scheduler.tick()
        left = Snapshot(self.stage.client, FLEET, self.model.now).names
        assert {keys.kind_of(name) for name in left} <= {"fleet", "partition"}, left
