"""The job that RQ runs: one turn of one agent.

It claims the turn in the broker before anything else. Whoever does not get it ends at once, so
that it does no harm how often, how late or where a job is run. How the turn ended it says once;
what becomes of that the broker decides.
"""

from __future__ import annotations

import logging
import math
import os
import signal
import time
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass, field
from queue import Empty, SimpleQueue
from threading import Event, Thread

from tocsin.broker import Broker, ClaimedTurn, Envelope, ScaledClock, Task, asks
from tocsin.broker.errors import BrokerError, Unavailable, UnknownAgent, UnknownHerd
from tocsin.broker.runners import CommandRunner
from tocsin.broker.settings import ConnectionSettings
from tocsin.broker.settings_files import resolve_connection
from tocsin.broker.turns import Ended, Ending, How
from tocsin.broker.validation import printable
from tocsin.workers.child.keeper import Keeper

log = logging.getLogger("tocsin.worker")

MAIL = 50
"""Envelopes that one turn is told of at most; more make the next one due."""

PROBE_EVERY = 10.0
"""Seconds between two looks at the signs of a turn's work."""

TELL_FOR = 600.0
"""Seconds in which it is tried to say how a turn ended, while the server is away."""

_LOOK_EVERY = 1.0


@dataclass
class Running:
    """A turn that was claimed, and what may end it before its time."""

    turn: ClaimedTurn
    place: ConnectionSettings
    mail: tuple[Envelope, ...]
    tasks: tuple[Task, ...]
    keeper: Keeper
    events: SimpleQueue[str]
    """`ended`, `stop` (the broker says so), `signal` (somebody tells this process to end)."""
    _worker: int = field(default_factory=os.getppid)
    _over: Event = field(default_factory=Event)
    _until: float = math.inf

    def begin(self) -> None:
        """Hears from here on what may end it."""
        fleet = self.turn.broker.fleet()
        factor = fleet.clock.factor if isinstance(fleet.clock, ScaledClock) else 1.0
        self._until = time.monotonic() + self.turn.runner.turn_timeout.total_seconds() / factor
        Thread(target=self._watch, name="tocsin-stop", daemon=True).start()

    def finish(self) -> None:
        """Hears nothing any more."""
        self._over.set()

    def _watch(self) -> None:
        while not self._over.is_set():
            try:
                if self.turn.wait_stop(_LOOK_EVERY * 30):
                    self.events.put("stop")
                    return
            except BrokerError as error:
                log.debug("%s is not watched any more: %s", self.turn, error.detail)
                return

    def next_event(self) -> str | None:
        """The next thing that ends it: an event, `timeout` or `orphan`; None for a while."""
        left = self._until - time.monotonic()
        try:
            return self.events.get(timeout=max(0.0, min(left, _LOOK_EVERY)))
        except Empty:
            pass
        if os.getppid() != self._worker:
            return "orphan"
        return "timeout" if left <= _LOOK_EVERY and time.monotonic() >= self._until else None

    def interrupted(self, event: str, tail: str = "", session: str | None = None) -> Ending:
        """The end of a turn that did not come by itself."""
        spent = self.turn.runner.turn_timeout
        kind, error = {
            "timeout": (How.TIMEOUT, f"it took longer than {spent} (turn_timeout)"),
            "orphan": (How.CRASHED, "its worker was killed"),
            "signal": (How.STOPPED, "its worker was told to stop"),
            "stop": (How.STOPPED, self.turn.stopping or "it was stopped"),
        }[event]
        return Ending(kind=kind, error=error, tail=tail, session=session)

    def probe(self, count: Callable[[], dict[str, int]]) -> None:
        """Tells the broker of signs of work, every now and then, in a thread."""

        def publish() -> None:
            while not self._over.wait(PROBE_EVERY):
                try:
                    self.turn.broker.run(asks.probe(self.turn.child.caller, count()))
                except Unavailable:
                    continue
                except BrokerError as error:
                    log.debug("%s is not probed any more: %s", self.turn, error.detail)
                    return

        Thread(target=publish, name="tocsin-probe", daemon=True).start()


def run_turn(fleet: str, herd: str, agent: str, turn: int) -> str:
    """Runs turn `turn` of an agent, if it is to be run, and says what came of it in a word."""
    place = resolve_connection(ConnectionSettings(fleet=fleet)).settings
    # The keeper is forked before anything else is there: threads, connections.
    with closing(Keeper()) as keeper, Broker.connect(place.url, fleet=fleet) as broker:
        events = SimpleQueue[str]()
        signal.signal(signal.SIGTERM, lambda *_: events.put("signal"))
        try:
            claimed = broker.claim_turn(herd, agent, turn)
        except (UnknownHerd, UnknownAgent) as error:
            return f"over: {error.detail}"
        if claimed is None:
            return "over"
        ending = _run(claimed, place, keeper, events)
        keeper.close()
        return str(_tell(claimed, ending).decision)


def _run(
    claimed: ClaimedTurn, place: ConnectionSettings, keeper: Keeper, events: SimpleQueue[str]
) -> Ending:
    """How the turn ended, whatever happened to it."""
    from tocsin.workers.child import function, program  # not before it is known to be ours

    running: Running | None = None
    try:
        mail = claimed.child.receive(limit=MAIL).envelopes
        tasks = tuple(task for task in claimed.child.tasks() if not task.state.terminal)
        running = Running(claimed, place, mail, tasks, keeper, events)
        running.begin()
        work = program.run if isinstance(claimed.runner, CommandRunner) else function.run
        return work(running)
    except Exception as error:
        if running is None and isinstance(error, Unavailable):  # no failure of a turn's
            return Ending(kind=How.STOPPED, error=f"it was not begun: {error.detail}"[:500])
        log.exception("%s broke off", claimed)
        why = printable(f"{type(error).__name__}: {error}"[:500])
        return Ending(kind=How.CRASHED, error=f"its worker could not run it ({why})")
    finally:
        if running is not None:
            running.finish()


def _tell(claimed: ClaimedTurn, ending: Ending) -> Ended:
    """Says how it ended, for as long as that may count for anything."""
    until, pause = time.monotonic() + TELL_FOR, 0.2
    while True:
        try:
            return claimed.end(ending)
        except Unavailable as error:
            if time.monotonic() > until:
                raise
            log.warning("%s cannot be ended: %s", claimed, error.detail)
        time.sleep(pause)
        pause = min(pause * 2, 5.0)
