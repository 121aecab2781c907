"""Runs one seed: sets the stage, breaks things, lets all settle, collects what was told."""

from __future__ import annotations

import heapq
import multiprocessing
import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from datetime import timedelta
from itertools import count
from multiprocessing.context import ForkServerProcess
from pathlib import Path
from typing import Any

from tests.acceptance.chaos.actors import DRAIN, END, Log, Stage, act, read_log, schedule
from tests.acceptance.chaos.grounds import GROUNDS, Ground, Heal, Lines
from tests.acceptance.chaos.plan import EVERYTHING, SCHEDULERS, SERVER, SLOTS, Fault, faults
from tests.acceptance.chaos.proof import History, Story, read_story
from tocsin.broker import Broker, HerdSettings, Parent, ScaledClock
from tocsin.broker.scripts import load

FACTOR = 60
"""A minute of the fleet in a second, so that a wait is stale after one."""

SETTINGS = HerdSettings(
    stale_wait_threshold=1,
    lease=timedelta(seconds=1),
    grace=timedelta(seconds=1),
    ask_window=timedelta(minutes=3),
    ask_ceiling=timedelta(minutes=20),
    inbox_limit=400,
    max_open_tasks=100,
    receipt_retention=timedelta(days=7),
    journal_limit=10_000_000,
)

SETTLES_WITHIN = 60.0
"""Seconds after the chaos in which all must have come to an end."""

ENDS_WITHIN = 15.0
"""Seconds that a process has to leave in an orderly way."""

TICK = 0.02
FLEET, HERD = "chaos", "storm"


@dataclass
class Place:
    """Where a process runs, one after another: its line to the server, and who is there now."""

    slot: str
    lines: Lines
    main: Callable[..., None]
    life: int = 0
    process: ForkServerProcess | None = None
    may_end: bool = False

    def signal(self, number: int) -> None:
        if self.process is not None and self.process.pid is not None:
            with suppress(ProcessLookupError):
                os.kill(self.process.pid, number)

    def gone(self) -> None:
        if self.process is not None:
            self.process.join(ENDS_WITHIN)


class Driver:
    """One run."""

    def __init__(self, seed: int, seconds: float, folder: Path, topology: str = "server") -> None:
        if any(folder.iterdir()):
            raise SystemExit(f"{folder} holds something already; name a new folder")
        self.seed = seed
        self.seconds = seconds
        self.folder = folder
        self.log = Log(str(folder), "driver")
        self.topology = topology
        self.ground: Ground
        self.places: dict[str, Place] = {}
        self.broken: set[str] = set()
        self.happened: set[str] = set()
        self.journal: list[dict[str, Any]] = []
        self.last: str | None = None
        self.parent: Parent
        self.stage: Stage
        self.fork = multiprocessing.get_context("forkserver")
        self.fork.set_forkserver_preload(["tests.acceptance.chaos.actors"])

    def run(self) -> History:
        """Chaos, drain, and all that was told of it."""
        with ExitStack() as stack:
            self.ground = GROUNDS[self.topology](self.folder, FLEET, HERD)
            stack.enter_context(self.ground)
            broker = Broker.connect(self.ground.url, fleet=FLEET, clock=ScaledClock(FACTOR))
            stack.enter_context(broker)
            self.open_herd(broker)
            stack.enter_context(self.processes())
            self.log("started", seed=self.seed, seconds=self.seconds)
            self.storm()
            self.log("over")
            self.drain()
            self.finish()
            return self.history(broker)

    def open_herd(self, broker: Broker) -> None:
        self.parent = broker.open_herd(HERD, settings=SETTINGS)
        tokens = {"parent": self.parent.token}
        for name in ("scout", "planner"):
            token = self.parent.register(name).token
            assert token is not None
            tokens[name] = token
        self.parent.leave()  # it only looks on: whether a parent is live is for others to decide
        self.stage = Stage(str(self.folder), FLEET, HERD, tokens, self.seed, self.ground.durability)

    @contextmanager
    def processes(self) -> Iterator[None]:
        try:
            for slot in SLOTS:
                self.begin(slot, act)
            for slot in SCHEDULERS:
                self.begin(slot, schedule)
            yield
        finally:
            for place in self.places.values():
                place.signal(signal.SIGKILL)
            for place in self.places.values():
                place.gone()
                place.lines.close()

    # ------------------------------------------------------------------------ processes

    def begin(self, slot: str, main: Callable[..., None], may_end: bool = False) -> None:
        self.places[slot] = Place(
            slot, Lines(self.ground.url, self.ground.nodes), main, may_end=may_end
        )
        self.start(self.places[slot])

    def start(self, place: Place) -> None:
        place.life += 1
        way = (place.lines.url, place.lines.routes)
        place.process = self.fork.Process(
            target=place.main, args=(self.stage, place.slot, way, place.life)
        )
        place.process.start()

    def notice(self) -> None:
        """Processes that ended though nobody ended them."""
        for place in self.places.values():
            code = place.process and place.process.exitcode
            if (
                code is not None
                and place.slot not in self.broken
                and not (place.may_end and code == 0)
            ):
                self.log("crashed", slot=place.slot, error=f"ended with {code}")
                self.start(place)

    # ------------------------------------------------------------------------ chaos

    def storm(self) -> None:
        """Each fault at its time, and the end of each."""
        began, number = time.monotonic(), count()
        todo: list[tuple[float, int, Fault | Callable[[], bool]]] = [
            (began + fault.at, next(number), fault)
            for fault in faults(self.seed, self.seconds, self.topology)
        ]
        heapq.heapify(todo)
        while todo or time.monotonic() < began + self.seconds:
            if not todo or todo[0][0] > time.monotonic():
                self.notice()
                time.sleep(TICK)
                continue
            due = heapq.heappop(todo)[2]
            if isinstance(due, Fault) and due.waits and self.is_broken(due):
                heapq.heappush(todo, (time.monotonic() + 1.0, next(number), due))
                continue
            over = time.monotonic() > began + self.seconds
            if isinstance(due, Fault) and over and due.what in self.happened:
                continue
            if isinstance(due, Fault):
                heal, after = self.strike(due), due.lasts
            else:
                heal, after = None if due() else due, TICK
            if heal is not None:
                heapq.heappush(todo, (time.monotonic() + after, next(number), heal))

    def is_broken(self, fault: Fault) -> bool:
        """Whether what it is to break is broken."""
        everything = fault.target == SERVER and EVERYTHING in self.broken
        return fault.target in self.broken or everything

    def strike(self, fault: Fault) -> Callable[[], bool] | None:
        """Breaks something that is whole; what heals it, and says whether it could yet."""
        if self.is_broken(fault):
            return None
        self.broken.add(fault.target)
        self.happened.add(fault.what)
        self.log("breaks", what=fault.what, target=fault.target, lasts=fault.lasts)
        mend = getattr(self, fault.what.replace(" ", "_"))(fault)

        def heal() -> bool:
            if mend is not None and mend() is False:
                return False
            self.broken.discard(fault.target)
            self.log("heals", what=fault.what, target=fault.target)
            return True

        if mend is None:
            heal()
            return None
        return heal

    def kill(self, fault: Fault) -> Callable[[], None]:
        place = self.places[fault.target]
        place.signal(signal.SIGKILL)
        place.gone()
        return lambda: self.start(place)

    def end(self, fault: Fault) -> Callable[[], bool]:
        place = self.places[fault.target]
        place.signal(signal.SIGTERM)
        until = time.monotonic() + ENDS_WITHIN

        def again() -> bool:
            if place.process is not None and place.process.exitcode is None:
                if time.monotonic() < until:
                    return False  # it says goodbye to a server that may be frozen, too
                place.signal(signal.SIGKILL)
                place.gone()
            self.start(place)
            return True

        return again

    def freeze(self, fault: Fault) -> Callable[[], None]:
        place = self.places[fault.target]
        place.signal(signal.SIGSTOP)
        return lambda: place.signal(signal.SIGCONT)

    def cut(self, fault: Fault) -> None:
        self.places[fault.target].lines.cut_all()

    def lose(self, fault: Fault) -> None:
        """The answer of one call or, before it was made, the call."""
        sha = load(fault.script).sha
        self.places[fault.target].lines.cut_next(sha, before=fault.loses)

    def silence(self, fault: Fault) -> Callable[[], None]:
        lines = self.places[fault.target].lines
        lines.freeze()

        def mend() -> None:
            if fault.loses:
                lines.cut_all()
            lines.thaw()

        return mend

    def flood(self, fault: Fault) -> None:
        self.begin(fault.target, act, may_end=True)

    def kill_server(self, fault: Fault) -> Heal:
        return self.ground.kill()

    def freeze_server(self, fault: Fault) -> Heal:
        return self.ground.freeze()

    def move_slot(self, fault: Fault) -> Heal:
        return self.ground.move()

    def move_slot_by_key(self, fault: Fault) -> Heal:
        return self.ground.move_by_key()

    def sleep(self, fault: Fault) -> Heal:
        """The whole machine, as a laptop does."""
        asleep = [place for place in self.places.values() if place.slot not in self.broken]
        wake_servers = None if SERVER in self.broken else self.ground.freeze_all()
        for place in asleep:
            place.signal(signal.SIGSTOP)

        def wake() -> bool:
            for place in asleep:
                place.signal(signal.SIGCONT)
            asleep.clear()
            return wake_servers is None or wake_servers() is not False

        return wake

    def drop_clients(self, fault: Fault) -> None:
        self.ground.run_each("CLIENT", "KILL", "TYPE", "normal")
        self.ground.run_each("CLIENT", "KILL", "TYPE", "pubsub")

    def forget_scripts(self, fault: Fault) -> None:
        self.ground.run_each("SCRIPT", "FLUSH")

    # ------------------------------------------------------------------------ drain

    def drain(self) -> None:
        """Nothing new; what is under way ends. What nobody would end is cancelled, then."""
        (self.folder / DRAIN).touch()
        until = time.monotonic() + SETTLES_WITHIN
        self.wait_for(lambda story: self.idle(story) and not due_reminders(story), until)
        for task in self.story().open_tasks():
            self.log("meant", key=f"driver:{task}", operation="cancel", task=task)
            status = self.parent.cancel(task, reason="the run is over").status
            said = {"status": status}
            self.log("answered", key=f"driver:{task}", operation="cancel", task=task, said=said)
        self.wait_for(self.idle, until)
        self.log("drained", settled=time.monotonic() < until)

    def wait_for(self, condition: Callable[[Story], bool], until: float) -> None:
        while not condition(self.story()) and time.monotonic() < until:
            self.notice()
            time.sleep(0.3)

    def story(self) -> Story:
        while page := self.parent.journal(after=self.last or "0-0", limit=10_000):
            self.last = page[-1].id
            self.journal += [
                {"event": line.event, "at": round(line.at.timestamp() * 1000)} | line.fields
                for line in page
            ]
        return read_story(self.journal)

    def idle(self, story: Story) -> bool:
        """Whether every outbox is empty, every flood has passed, and nothing is unhandled."""
        for place in self.places.values():
            if place.may_end:
                if place.process is not None and place.process.exitcode is None:
                    return False
            elif place.slot in SLOTS:
                last = read_log(self.folder / f"{place.slot}.log")[-40:]
                lives = [line["event"] for line in last if line["life"] == place.life]
                if "idle" not in lives:
                    return False
        return not story.outstanding()

    def finish(self) -> None:
        """All leave in an orderly way."""
        (self.folder / END).touch()
        for slot in SCHEDULERS:
            self.places[slot].signal(signal.SIGTERM)
        for place in self.places.values():
            place.gone()
            if place.process is not None and place.process.exitcode != 0:
                how = place.process.exitcode
                self.log("crashed", slot=place.slot, error=f"did not leave in order: {how}")

    def history(self, broker: Broker) -> History:
        self.journal, self.last = [], None  # what a failover undid meanwhile was never there
        self.story()
        clock = broker.fleet().clock
        assert isinstance(clock, ScaledClock) and clock.base is not None
        wall = (time.time() - time.monotonic()) * 1000
        zero = clock.base + (wall - clock.base) * FACTOR
        lines = [line for path in self.folder.glob("*.log") for line in read_log(path)]
        return History(self.journal, lines, 60_000, zero, FACTOR)


def due_reminders(story: Story) -> bool:
    """Whether a wait is there of which nobody was reminded yet: all of them become stale."""
    return any(wait.ends is None and not wait.reminded for wait in story.episodes)
