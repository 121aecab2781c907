# Generated from _async/agent.py by `make generate`; edit that file.

"""What a parent and a child can both do."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from tocsin.broker import agents, asks, herds, inbox, keys, requests, why
from tocsin.broker._sync.attendance import Attendance
from tocsin.broker._sync.persisting import until_answered
from tocsin.broker._sync.turn import Turn
from tocsin.broker.bells import SLOW_POLL
from tocsin.broker.caller import Caller
from tocsin.broker.causes import Why
from tocsin.broker.envelopes import (
    AgentInfo,
    Delivery,
    Envelope,
    Receipt,
    Reply,
    Sent,
    SessionInfo,
    SessionState,
    Status,
    Task,
    Waiting,
)
from tocsin.broker.errors import (
    AgentClosed,
    HerdClosed,
    InvalidInput,
    QueueFull,
    Unavailable,
)
from tocsin.broker.ids import make_id
from tocsin.broker.inbox import Inbox, Spoilt, Taken
from tocsin.broker.probing import Probe
from tocsin.broker.scripts import Call
from tocsin.broker.signals import Settable, Signal
from tocsin.broker.validation import check_timeout

if TYPE_CHECKING:
    from tocsin.broker._sync.broker import Broker

T = TypeVar("T")

log = logging.getLogger("tocsin.broker")

TURN_LIMIT = 100
"""How many envelopes a turn gathers unless told otherwise."""


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
        """Writes to another agent of the herd, or a plain message to `other-herd/parent`.

        It wakes; `steer` reaches a running turn. With `expects_reply` it is a request: a linked
        `task` of the sender (for the parent, of anyone) waits until it is answered, and is blocked
        if `reply_within` runs out (default: the herd's `reply_timeout`; 0: as long as its task).
        The same `key` sends one message, whoever repeats it. While the recipient has too much
        unread, it waits for room as long as `wait` says, in seconds, then ends in `QueueFull`.
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
        signal = Signal()
        own = to.removeprefix(f"{self.caller.herd}/")
        with self.broker.hear(self._bell(own), "room", signal):
            try:
                return until_answered(
                    self,
                    partial(self._run, call),
                    hindered=(QueueFull, Unavailable),
                    ends=time.monotonic() + patience,
                    signal=signal,
                    first=0.25,
                    longest=SLOW_POLL,
                )
            except (QueueFull, Unavailable) as error:
                detail = f"{error.detail} (it waited {patience:g} s)"
                raise type(error)(error.operation, detail) from error

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
        line = Attendance(self, request, probe)
        opening = asks.open_ask(
            self.caller,
            to,
            body,
            request=request,
            call=line.call,
            task=task,
            window=window,
            ceiling=ceiling,
            totals=line.count(),
            thread=thread,
            data=data,
        )
        reply = line.wait(opening, None)
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
        line = Attendance(self, request, probe)
        return line.wait(line.look(), seconds)

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
                turn = until_answered(self, partial(self.next_turn, limit=limit))
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

    def inbox(self, *, limit: int = TURN_LIMIT, messages: Sequence[str] | None = None) -> Inbox:
        """Shows unread mail without taking it; `.remaining` says how much more there is.

        Showing starts the task of a task envelope, and adds no attempt however often it is done.
        With `messages` it shows of these alone what is there.
        """
        shown = self._run(inbox.show(self.caller, limit, messages))
        self._bury("inbox", shown.spoilt)
        return shown.inbox

    def look(self, *, limit: int = TURN_LIMIT) -> list[Waiting]:
        """What is unread and in nobody's hands, in order, in short.

        For what only prepares a wake, such as a doorbell: it shows, takes, starts and confirms
        nothing, and is no presence.
        """
        return self._run(inbox.look(self.caller, limit))

    @contextmanager
    def hear_arrivals(self, waiter: Settable) -> Iterator[None]:
        """While inside, all mail that arrives sets the waiter, also what wakes nobody.

        It is set too when something may have been missed; look then, and every 10 s by yourself.
        """
        with (
            self.broker.hear(self.bell, "mail", waiter),
            self.broker.hear(self.bell, "arrived", waiter),
        ):
            yield

    def report_session(
        self,
        host: str,
        session: str,
        state: SessionState | str,
        paths: Sequence[str] = (),
    ) -> list[SessionInfo]:
        """Says how a session stands: one run of a host, such as `claude-code`, on this seat.

        `started`, `working`, `idle` or `ended`: presence and status, no sign of a model's work. It
        lives as long as an instance that reported it. `paths`: those by which it can be woken, in
        the order they are tried. Returns the other live sessions on the seat; of a new one beside
        another the herd's parent gets one quiet notice. Repeating it changes nothing.
        """
        return self._run(agents.report_session(self.caller, host, session, state, paths))

    def report_wake(
        self,
        path: str,
        ok: bool,
        messages: Sequence[Envelope | str],
        detail: str | None = None,
        *,
        ago: timedelta | None = None,
    ) -> None:
        """Notes in the receipts of this agent's mail that it was tried to wake it by this path.

        `ok`: as far as whoever tried can tell; `ago`: how long ago that was, if not just now. It is
        confirmed when after it the mail is shown to or taken by this agent. Then the path is
        proven, until three tries in a row have come to nothing (those that seemed to go well do not
        count while a session with that path is `working`). Mail that is quiet or gone is passed
        over.
        """
        self._run(inbox.report_wake(self.caller, path, ok, messages, detail, ago))

    def ack(self, *messages: Envelope | str) -> int:
        """Says that mail is handled: shown to this agent, or taken by this instance. How much."""
        return (self._run(inbox.ack(self.caller, messages))).settled

    def receipt(self, message: Envelope | str) -> Receipt:
        """How far an envelope got, for its sender, its recipient and the parent."""
        return self._run(inbox.receipt(self.caller, message))

    def why(self, about: Envelope | Task | str) -> Why:
        """What a task, message, request, reminder or agent hangs on: one chain of causes.

        An instance stands for its agent, the herd's name for its parent.

        It ends with the timer or agent that moves it on, and with what to do. A child sees its own
        tasks and mail, the parent all of its herd. As text it is a line for each link.
        """
        return self._run(why.why(self.caller, about))

    def roster(self) -> list[AgentInfo]:
        """Every agent of the herd, with presence, open tasks, and who waits on whom."""
        return self._run(herds.roster(self.caller))

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
