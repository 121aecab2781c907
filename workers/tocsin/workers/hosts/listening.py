"""The process that listens for one session: it hears of mail while the host sleeps, or is at work.

It shows that the session is there (a renewed lease), keeps its doorbell, and wakes its host: by the
paths it has, or, where the host's extension started it, by a line on stdout. Of each session there
is one: it ends when a newer one has written its process id, with its host, or when told. While the
broker is away it puts its flags down and tries again, ever more seldom.
"""

from __future__ import annotations

import json
import logging
import signal
import sys
import threading
import time
from collections import deque
from collections.abc import Callable
from contextlib import AbstractContextManager, suppress
from typing import Any

from tocsin.broker import Child, Delivery, Parent
from tocsin.broker.envelopes import Waiting
from tocsin.broker.errors import BrokerError
from tocsin.broker.signals import Signal
from tocsin.workers.hosts.answering import (
    blind,
    due,
    hand_over,
    open_task,
    pointers,
    ring,
    text_of,
    waking,
)
from tocsin.workers.hosts.doorbell import BEATS_EVERY, IDLE, WORKING, Handed, SessionFiles
from tocsin.workers.hosts.waking import attempt, chain
from tocsin.workers.lineage import Process

log = logging.getLogger("tocsin.hosts")

Agent = Parent | Child

SLOW_POLL = 10.0
"""Seconds after which it looks by itself, should a bell have been lost."""

SAYS_EVERY = 10.0
"""Seconds after which it says again that the session is there. Far away, at a server over HTTP,
nothing else renews its lease."""

LOCAL = 2.0
"""Seconds between two looks at what is on this machine: its host, its files."""

PAUSES = (15.0, 30.0, 60.0, 120.0, 300.0, 600.0)
"""Seconds from one try to wake to the next, while the mail is not shown."""

STALE = 600.0
"""Seconds without a word of its hooks after which a session is taken for idle: of a turn that was
interrupted, no host tells the end."""

_BACK_OFF = (1.0, 2.0, 5.0, 10.0, 30.0, 60.0)


class Listener:
    """Listens for one session until that is over."""

    def __init__(
        self,
        name: str,
        paths: tuple[str, ...],
        files: SessionFiles,
        handed: Handed,
        staying: Callable[[], AbstractContextManager[Agent]],
        *,
        say: Callable[[dict[str, Any]], None] | None = None,
    ) -> None:
        """`say` takes what a host's extension is told; without it, paths of `waking` are tried."""
        self._name = name
        self._files = files
        self._handed = handed
        self._staying = staying
        self._say = say
        self._record = files.record
        self._host = Process.read(self._record.get("process"))
        self._paths = list(paths)
        self._signal = Signal()
        self._heard: deque[dict[str, Any]] = deque()
        self._stopped = False
        self._rung: dict[str, tuple[int, float]] = {}
        self._reported: str | None = None

    @property
    def _chain(self) -> list[str]:
        """The paths that its session has now: a channel opens after it began."""
        return self._paths if self._say else chain(self._paths, self._record)

    def run(self) -> None:
        """Listens. The files it leaves are those of a session that has ended: none."""
        self._files.make()
        self._files.hold_pipe()
        self._files.claim()
        threading.Thread(target=self._beat, daemon=True).start()
        failures = 0
        while not self._over():
            try:
                with self._staying() as agent:
                    failures = 0
                    self._serve(agent)
            except BrokerError as error:
                log.warning("%s: %s", self._files.folder.name, error)
            if not self._over():
                blind(self._files)
                self._reported = None
                self._rest(_BACK_OFF[min(failures, len(_BACK_OFF) - 1)])
                failures += 1
        if self._files.holds():
            self._files.remove()
        self._files.let_pipe_go()

    def stop(self) -> None:
        """Ends it soon, from whatever thread or signal."""
        self._stopped = True
        self._signal.set()

    def hear(self, line: str) -> None:
        """A line of the host's extension."""
        with suppress(ValueError, RecursionError):
            said = json.loads(line)
            if isinstance(said, dict):
                self._heard.append(said)
                self._signal.set()

    def _over(self) -> bool:
        gone = self._host is not None and not self._host.runs()
        return self._stopped or gone or not self._files.holds()

    def _beat(self) -> None:
        """Beats by a thread of its own: a broker that does not answer freezes nobody."""
        while self._files.holds():
            self._files.beat()
            time.sleep(BEATS_EVERY)

    def _rest(self, seconds: float) -> None:
        ends = time.monotonic() + seconds
        while not self._over() and (left := ends - time.monotonic()) > 0:
            self._signal.wait(min(left, LOCAL))

    def _serve(self, agent: Agent) -> None:
        with agent.hear_arrivals(self._signal):
            looks_at = says_at = 0.0
            while not self._over():
                self._files.hold_pipe()
                state = self._state(agent)
                if state != self._reported or time.monotonic() >= says_at:
                    agent.report_session(self._name, self._files.session, state, self._chain)
                    says_at = time.monotonic() + SAYS_EVERY
                if state != self._reported:
                    self._reported, looks_at = state, 0.0
                if time.monotonic() >= looks_at:
                    self._look(agent, state)
                    looks_at = time.monotonic() + SLOW_POLL
                if self._signal.wait(LOCAL):
                    looks_at = 0.0
        if self._files.is_left():
            with suppress(BrokerError):
                agent.report_session(self._name, self._files.session, "ended", self._chain)

    def _state(self, agent: Agent) -> str:
        while self._heard:
            said = self._heard.popleft()
            if said.get("state") in (WORKING, IDLE):
                self._files.say(said["state"])
            elif isinstance(said.get("tried"), str):
                agent.report_wake(
                    said["tried"],
                    bool(said.get("ok")),
                    [str(each) for each in said.get("messages") or ()],
                    said.get("detail"),
                )
        state, seen_at = self._files.state
        return IDLE if time.time() - seen_at > STALE else state

    def _look(self, agent: Agent, state: str) -> None:
        waiting = agent.look()
        task = open_task(agent)
        with self._handed.open() as known:
            if self._say and state == WORKING:
                mail = hand_over(agent, due(waiting, known, time.time()), known)
                for delivery in (Delivery.STEER, Delivery.FOLLOW_UP):
                    chosen = [each for each in mail if each.delivery is delivery]
                    if chosen:
                        event = {"event": "mail", "text": text_of(chosen)}
                        self._say(event | {"delivery": str(delivery)})
            ring(self._files, waiting, known, task)
        unseen = waking(waiting)
        if state == IDLE:
            self._wake(agent, unseen)
        elif self._say:  # an extension's host keeps it until the turn is over
            self._wake(agent, [each for each in unseen if each.delivery != Delivery.STEER])

    def _wake(self, agent: Agent, mail: list[Waiting]) -> None:
        ids = [each.message_id for each in mail]
        self._rung = {each: facts for each, facts in self._rung.items() if each in ids}
        now = time.monotonic()
        if not any(self._rung.get(each, (0, 0.0))[1] <= now for each in ids):
            return
        tries = 1 + max((self._rung[each][0] for each in ids if each in self._rung), default=0)
        until = now + PAUSES[min(tries, len(PAUSES)) - 1]
        self._rung = dict.fromkeys(ids, (tries, until))
        text = pointers(agent, mail)
        if self._say:
            self._say({"event": "wake", "messages": ids, "text": text})
        else:
            self._try(agent, ids, text, tries - 1)

    def _try(self, agent: Agent, ids: list[str], text: str, first: int) -> None:
        """The paths in order, until one takes it. What took it before in vain comes last."""
        paths = self._chain
        turned = first % len(paths) if paths else 0
        for path in paths[turned:] + paths[:turned]:
            tried = attempt(path, self._files, self._record, text)
            agent.report_wake(path, tried.ok, ids, tried.detail or None)
            if tried.ok:
                return


def listen(listener: Listener, *, reads_stdin: bool) -> None:
    """Runs a listener as this process: a signal, or the end of stdin, ends it."""
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, lambda *_: listener.stop())
    if reads_stdin:

        def read() -> None:
            for line in sys.stdin:
                listener.hear(line)
            listener.stop()

        threading.Thread(target=read, daemon=True).start()
    listener.run()
