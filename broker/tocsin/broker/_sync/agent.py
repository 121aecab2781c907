# Generated from _async/agent.py by `make generate`; edit that file.

"""What a parent and a child can both do."""

from __future__ import annotations

import logging
import math
import random
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import timedelta
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, TypeVar

from tocsin.broker import agents, asks, inbox, keys, requests, why
from tocsin.broker.asks import PROBE_WITHIN, Ended, Outcome, Pending, Probe, Watch
from tocsin.broker.bells import SLOW_POLL
from tocsin.broker.caller import Caller
from tocsin.broker.envelopes import Delivery, Envelope, Receipt, Reply, Sent, Status, Task
from tocsin.broker.errors import (
    AgentClosed,
    BrokerError,
    HerdClosed,
    InvalidInput,
    QueueFull,
    Unavailable,
    WrongState,
)
from tocsin.broker.ids import make_id
from tocsin.broker.inbox import Inbox, Spoilt, Taken
from tocsin.broker.scripts import Call
from tocsin.broker.signals import Signal
from tocsin.broker.validation import check_timeout, printable
from tocsin.broker.why import Why

if TYPE_CHECKING:
    from tocsin.broker._sync.broker import Broker

T = TypeVar("T")

log = logging.getLogger("tocsin.broker")

_LATER = 0.002
"""Seconds an asker looks after its timer, so that it is not just before."""

_SAMPLES = 10
"""How often an asker calls its probe in one window."""

_ERROR = 1_000
"""Characters of an exception that its mail keeps; a nack takes them in any herd."""

TURN_LIMIT = 100
"""How many envelopes a turn gathers unless told otherwise."""


def _until_answered(agent: Agent, step: Callable[[], T]) -> T:
    """What a step returns, tried with back-off and jitter for as long as the server is away."""
    pause, told = 0.05, False
    while True:
        try:
            return step()
        except Unavailable as error:
            if not told:
                log.warning("%s waits: %s", agent, error.detail)
            told = True
        time.sleep(pause * random.uniform(0.5, 1.5))
        pause = min(pause * 2, 5.0)


class Turn:
    """The mail of one turn, in order. Ack it when it is handled; unacked, it comes again.

    As a context manager it acks on a clean exit and gives the mail back on an exception, which
    counts as a failed attempt; both however long the server is away.
    """

    def __init__(self, agent: Agent, taken: Taken) -> None:
        self._agent = agent
        self._held = taken.mail
        self.more = taken.more
        """Whether more mail that wakes was unread when this was taken."""
        self.fenced: tuple[str, ...] = ()
        """Messages that had gone to another instance before they were acked or given back."""

    @property
    def envelopes(self) -> tuple[Envelope, ...]:
        """The envelopes: steer before follow-up, otherwise as they were accepted."""
        return tuple(held.envelope for held in self._held)

    def __iter__(self) -> Iterator[Envelope]:
        return iter(self.envelopes)

    def __len__(self) -> int:
        return len(self._held)

    def __getitem__(self, index: int) -> Envelope:
        return self._held[index].envelope

    def ack(self) -> None:
        """Says that all of it is handled. Repeating it, or acking an empty turn, does nothing.

        Mail that went to another instance meanwhile (this one's lease had ended) stays there and
        is named in `fenced`: its handler may have run twice.
        """
        if self._held:
            self._fence(self._agent._run(inbox.ack(self._agent.caller, self._held)))

    def nack(self, delay: timedelta | None = None, error: str | None = None) -> None:
        """Gives all of it back, to come again after `delay`. Only an `error` counts an attempt."""
        if self._held:
            call = inbox.nack(self._agent.caller, self._held, delay, error)
            self._fence(self._agent._run(call))

    def _fence(self, done: inbox.Acked) -> None:
        self.fenced = done.fenced
        if done.fenced:
            log.warning("%s lost its lease; others have %s", self._agent, ", ".join(done.fenced))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if error is None:
            _until_answered(self._agent, self.ack)
        elif isinstance(error, Exception):
            why = printable(f"{type(error).__name__}: {error}"[:_ERROR])
            _until_answered(self._agent, partial(self.nack, error=why))
        else:  # cancelled or interrupted: nobody's failure, and what ends it goes first
            try:
                self.nack()
            except Unavailable as away:
                log.warning("%s keeps what it holds until it leaves: %s", self._agent, away.detail)


class Agent:
    """One instance of an agent: its mail, its questions and answers."""

    def __init__(self, broker: Broker, caller: Caller, token: str) -> None:
        self.broker = broker
        """The broker it was opened or joined with."""
        self.caller = caller
        self.token = token
        """The secret that proves this agent; another process joins with it."""
        self._unanswered: list[str] = []

    def __repr__(self) -> str:
        return f"{self.caller.herd}/{self.caller.agent}"

    @property
    def herd(self) -> str:
        """The name of the herd."""
        return self.caller.herd

    @property
    def agent(self) -> str:
        """The name of the agent."""
        return self.caller.agent

    @property
    def instance(self) -> str:
        """The id of this instance, as receipts and the roster show it."""
        return self.caller.instance

    @property
    def bell(self) -> str:
        """The channel rung when mail that wakes this agent arrived, or a task settled."""
        return self._bell(self.agent)

    def _bell(self, agent: str) -> str:
        return keys.bell(self.caller.fleet.name, self.herd, agent)

    def _run(self, call: Call[T]) -> T:
        return self.broker.run(call)

    def message(
        self,
        to: str,
        body: str,
        *,
        task: str | None = None,
        expects_reply: bool = False,
        reply_within: timedelta | None = None,
        delivery: Delivery | str = Delivery.FOLLOW_UP,
        thread: str | None = None,
        key: str | None = None,
        data: Mapping[str, Any] | None = None,
        wait: timedelta | float | None = None,
    ) -> Sent:
        """Writes to another agent of the herd. It wakes; `steer` reaches a running turn.

        With `expects_reply` it is a request: a linked `task` of the sender (or, for the parent, of
        anyone) waits until it is answered, and is blocked if `reply_within` runs out (default: the
        herd's `reply_timeout`; 0: as long as its task). The same `key` sends one message,
        whichever process repeats it. While the recipient has too much unread, it waits for room as
        long as `wait` says (a `timedelta` or seconds; None: not at all), then ends in `QueueFull`.
        """
        patience = None if wait is None else check_timeout("message", "wait", wait)
        call = requests.message(
            self.caller,
            to,
            body,
            task=task,
            expects_reply=expects_reply,
            reply_within=reply_within,
            delivery=delivery,
            thread=thread,
            key=key,
            data=data,
            waits=patience is not None,
        )
        if patience is None:
            return self._run(call)
        return self._run_when_room(call, to, patience)

    def _run_when_room(self, call: Call[T], to: str, patience: float) -> T:
        """The result of a call, tried again when its recipient has read, or after a while."""
        ends, pause = time.monotonic() + patience, 0.25
        signal = Signal()
        with self.broker.hear(self._bell(to), "room", signal):
            while True:
                signal.clear()
                try:
                    return self._run(call)
                except (QueueFull, Unavailable) as error:
                    left = ends - time.monotonic()
                    if left <= 0:
                        detail = f"{error.detail} (it waited {patience:g} s)"
                        raise type(error)(error.operation, detail) from error
                signal.wait(min(left, pause * random.uniform(0.5, 1.5)))
                pause = min(pause * 2, SLOW_POLL)

    def reply(
        self,
        to: Envelope | str,
        body: str,
        *,
        key: str | None = None,
        data: Mapping[str, Any] | None = None,
    ) -> Sent:
        """Answers a request (an envelope or its id), or writes back to who sent a message.

        The first answer closes the request. The same answer again is a duplicate; another one is
        kept in the journal only. An answer to a request that has ended is `late`: delivered, and
        nothing else changes. The parent may answer in the recipient's place.
        """
        return self._run(requests.reply(self.caller, to, body, key=key, data=data))

    def ask(
        self,
        to: str,
        body: str,
        *,
        task: str | None = None,
        window: timedelta | None = None,
        ceiling: timedelta | None = None,
        probe: Probe | None = None,
        thread: str | None = None,
        data: Mapping[str, Any] | None = None,
        key: str | None = None,
    ) -> Reply:
        """Asks an agent and stays on the line until it answers.

        `window` (default: the herd's `ask_window`) is a budget of silence, not of time: it runs
        from the target's last sign of work. When it runs out: `NoReply`. `ceiling` (`ask_ceiling`)
        is a budget of time; reached while the target works: `CeilingActive`. After either the
        request stays answerable, and a late answer comes as mail. `probe` counts signs of the
        target's work that this process can see; only growth counts.

        With `task` that task waits meanwhile; if it settles, `RequestCancelled`. The same `key`
        joins an ask that is open, opens one again that got no reply, or returns the answer it got
        late. Works with no scheduler running.
        """
        request = self.caller.new_id("msg", "ask", key)
        call = make_id("call")
        watch = Watch(probe)
        opening = asks.open_ask(
            self.caller,
            to,
            body,
            request=request,
            call=call,
            task=task,
            window=window,
            ceiling=ceiling,
            totals=self._count(watch),
            thread=thread,
            data=data,
        )
        reply = self._attend(opening, request, call, watch, None)
        assert reply is not None  # without a time-out it ends in an answer or an error
        return reply

    def ask_wait(
        self,
        message: Envelope | str,
        timeout: timedelta | float | None = None,
        *,
        probe: Probe | None = None,
    ) -> Reply | None:
        """Comes back to an ask of this agent, from any process: its answer, or what it ended in.

        None if it is still open at `timeout`; the ask goes on.
        """
        request = requests.check_message("ask_wait", message)
        seconds = check_timeout("ask_wait", "timeout", timeout)
        call = make_id("call")
        watch = Watch(probe)
        looking = asks.look(self.caller, request, call, self._count(watch))
        return self._attend(looking, request, call, watch, seconds)

    def _attend(
        self, first: Call[Outcome], request: str, call: str, watch: Watch, left: float | None
    ) -> Reply | None:
        """Waits, at most so many seconds, and confirms what came.

        While the server is away it waits on, with back-off, at most until the ask's ceiling.
        """
        ends, ceiling = math.inf if left is None else time.monotonic() + left, -math.inf
        said, told, waited = False, False, False
        signal = Signal()
        try:
            with self.broker.hear(self.bell, f"ask:{request}", signal):
                outcome = self._run(first)
                while isinstance(outcome, Pending):
                    now, waited = time.monotonic(), True
                    ceiling = now + outcome.ceiling
                    if now >= ends:
                        break
                    rest = min(outcome.next + _LATER, SLOW_POLL, ends - now)
                    if watch.probe is not None:  # so that what grew is noticed about when it did
                        rest = min(rest, outcome.window / _SAMPLES)
                    signal.wait(rest)
                    signal.clear()
                    look = asks.look(self.caller, request, call, self._count(watch))
                    outcome = self._insist(look, min(ends, ceiling), signal)
                if isinstance(outcome, Reply):
                    confirm = asks.confirm(self.caller, request, call)
                    elsewhere = self._insist(confirm, min(ends, ceiling), signal)
                    said = True
                    if elsewhere is not None and waited:
                        holder = f"instance {elsewhere}" if elsewhere else "another instance"
                        raise WrongState(
                            "ask",
                            f"the answer to {request} came as mail, which {holder} has, because "
                            "nobody seemed to wait for it any more; leave it to that one",
                        )
                    return outcome
                told = isinstance(outcome, Ended)
        except Unavailable as error:
            back = f"to come back to this ask: ask_wait({request!r})"
            raise Unavailable("ask", f"{error.detail}; {back}") from error
        finally:
            if not said:
                self._leave(request, call, told)
        if isinstance(outcome, Ended):
            raise outcome.error
        return None

    def _count(self, watch: Watch) -> str:
        if watch.probe is not None:
            signal = Signal()
            watch.start(signal)
            signal.wait(PROBE_WITHIN)
        return watch.totals()

    def _insist(self, call: Call[T], until: float, signal: Signal) -> T:
        """The result of a call, for which it waits at most so long while the server is away."""
        pause = 0.05
        while True:
            try:
                return self._run(call)
            except Unavailable as error:
                if time.monotonic() >= until:
                    raise
                if pause == 0.05:
                    log.warning("%s waits for the server: %s", self, error.detail)
                signal.wait(pause * random.uniform(0.5, 1.5))
                signal.clear()
                pause = min(pause * 2, 5.0)

    def _leave(self, request: str, call: str, told: bool) -> None:
        try:
            self._run(asks.leave(self.caller, request, call, told=told))
        except BrokerError as error:
            log.debug("%s left %s without saying so: %s", self, request, error.detail)

    def probe(self, totals: Mapping[str, int]) -> bool:
        """Publishes what a probe of this agent's work has counted, by source; whether it grew.

        Growth since a source's last total is activity; the first total, and one that shrank, are
        where counting starts.
        """
        return self._run(asks.probe(self.caller, totals))

    def cancel_request(self, message: Envelope | str) -> None:
        """Gives an open request up: its asker may, and the parent. Its task runs again."""
        self._run(requests.cancel_request(self.caller, message))

    def _take(self, operation: str, mode: str, limit: int) -> Taken:
        # A take whose answer did not come, because the line broke or the caller was cancelled, may
        # have taken mail. The next one asks by the same id, and gets what it took.
        turn = self._unanswered.pop() if self._unanswered else make_id("turn")
        try:
            taken = self._run(inbox.take(self.caller, operation, mode, limit, turn))
            self._bury(operation, taken.spoilt)
        except BaseException:
            self._unanswered.append(turn)
            raise
        return taken

    def _bury(self, operation: str, spoilt: Sequence[Spoilt]) -> None:
        """What cannot be read becomes a dead letter at once."""
        for item in spoilt:
            log.warning("%s cannot read %s: %s", self, item.message_id, item.error.detail)
        if spoilt:
            self._run(inbox.bury(self.caller, operation, spoilt))

    def next_turn(
        self, timeout: timedelta | float | None = None, *, limit: int = TURN_LIMIT
    ) -> Turn | None:
        """Waits for something that wakes, and returns it with the quiet mail around it.

        At most `limit` envelopes: what one instance takes no other gets until it is given back, so
        replicas that share out work take one at a time (`limit=1`).

        None when `timeout` (a `timedelta` or seconds; None: without end) has passed.
        """
        seconds = check_timeout("next_turn", "timeout", timeout)
        ends = None if seconds is None else time.monotonic() + seconds
        signal = Signal()
        with self.broker.hear(self.bell, "mail", signal):
            while True:
                signal.clear()
                taken = self._take("next_turn", "turn", limit)
                if taken.mail:
                    return Turn(self, taken)
                left = SLOW_POLL if ends is None else ends - time.monotonic()
                if left <= 0:
                    return None
                signal.wait(min(left, SLOW_POLL))

    def turns(self, *, limit: int = TURN_LIMIT) -> Iterator[Turn]:
        """Turn after turn, until the agent, its herd or this broker is closed.

        While the server is away it waits, with back-off, and goes on when it is back. An instance
        that is to end cleanly at SIGTERM must hear it as an exception or a cancellation: then what
        it took and did not ack goes to another at once (`limit`: see `next_turn`).
        """
        while True:
            try:
                turn = _until_answered(self, partial(self.next_turn, limit=limit))
            except (AgentClosed, HerdClosed) as ended:
                log.info("%s ends: %s", self, ended.detail)
                return
            except InvalidInput:
                if self.broker.closed:
                    return
                raise
            if turn is not None:
                yield turn

    def receive(self, *, limit: int = TURN_LIMIT) -> Turn:
        """Takes whatever is there now, waking or quiet. Never waits; may be empty."""
        return Turn(self, self._take("receive", "receive", limit))

    def inbox(self, *, limit: int = TURN_LIMIT) -> Inbox:
        """Shows unread mail without taking it; `.remaining` says how much more there is.

        Showing starts the task of a task envelope, and adds no attempt however often it is done.
        """
        shown = self._run(inbox.show(self.caller, limit))
        self._bury("inbox", shown.spoilt)
        return shown.inbox

    def ack(self, *messages: Envelope | str) -> int:
        """Says that mail is handled: shown to this agent, or taken by this instance. How much."""
        return (self._run(inbox.ack(self.caller, messages))).settled

    def receipt(self, message: Envelope | str) -> Receipt:
        """How far an envelope got, for its sender, its recipient and the parent."""
        return self._run(inbox.receipt(self.caller, message))

    def why(self, about: Envelope | Task | str) -> Why:
        """What a task, a message or request, a reminder or an agent hangs on: one chain of causes.

        It ends with the timer or agent that moves it on, and with what to do. A child sees its own
        tasks and mail, the parent all of its herd. As text it is a line for each link.
        """
        return self._run(why.why(self.caller, about))

    def progress(self, text: str, fraction: float | None = None) -> None:
        """Says how far the work is: activity, needing no open task. `fraction` is 0 to 1."""
        self._run(agents.progress(self.caller, text, fraction))

    def set_status(self, status: Status | str) -> None:
        """Says whether the process works or idles. Moves no task."""
        self._run(agents.set_status(self.caller, status))

    def leave(self) -> None:
        """Ends this instance: what it took and did not ack is handed back at once."""
        self.broker.forget(self)
        while not self._run(agents.leave(self.caller)):
            pass
