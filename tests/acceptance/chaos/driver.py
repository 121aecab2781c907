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

from redis import Redis

from tests.acceptance.chaos.actors import DRAIN, END, Log, Stage, act, read_log, schedule
from tests.acceptance.chaos.plan import EVERYTHING, SCHEDULERS, SERVER, SLOTS, Fault, faults
from tests.acceptance.chaos.proof import History, Story, read_story
from tests.proxy import Proxy
from tocsin.broker import Broker, HerdSettings, Parent, ScaledClock
from tocsin.broker.embedded import EmbeddedServer
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
    proxy: Proxy
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

    def __init__(self, seed: int, seconds: float, folder: Path) -> None:
        if any(folder.iterdir()):
            raise SystemExit(f"{folder} holds something already; name a new folder")
        self.seed = seed
        self.seconds = seconds
        self.folder = folder
        self.log = Log(str(folder), "driver")
        self.server = EmbeddedServer(folder / "server", options={"appendfsync": "always"})
        self.places: dict[str, Place] = {}
        self.broken: set[str] = set()
        self.journal: list[dict[str, Any]] = []
        self.last: str | None = None
        self.parent: Parent
        self.stage: Stage
        self.fork = multiprocessing.get_context("forkserver")
        self.fork.set_forkserver_preload(["tests.acceptance.chaos.actors"])

    def run(self) -> History:
        """Chaos, drain, and all that was told of it."""
        with ExitStack() as stack:
            stack.enter_context(self.server)
            broker = Broker.connect(self.server.url, fleet=FLEET, clock=ScaledClock(FACTOR))
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
        self.stage = Stage(str(self.folder), FLEET, HERD, tokens, self.seed)

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
                place.proxy.close()

    # ------------------------------------------------------------------------ processes

    def begin(self, slot: str, main: Callable[..., None], may_end: bool = False) -> None:
        self.places[slot] = Place(slot, Proxy(self.server.url), main, may_end=may_end)
        self.start(self.places[slot])

    def start(self, place: Place) -> None:
        place.life += 1
        place.process = self.fork.Process(
            target=place.main, args=(self.stage, place.slot, place.proxy.url, place.life)
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
            (began + fault.at, next(number), fault) for fault in faults(self.seed, self.seconds)
        ]
        heapq.heapify(todo)
        while todo or time.monotonic() < began + self.seconds:
            if not todo or todo[0][0] > time.monotonic():
                self.notice()
                time.sleep(TICK)
                continue
            due = heapq.heappop(todo)[2]
            if isinstance(due, Fault):
                heal, after = self.strike(due), due.lasts
            else:
                heal, after = None if due() else due, TICK
            if heal is not None:
                heapq.heappush(todo, (time.monotonic() + after, next(number), heal))

    def strike(self, fault: Fault) -> Callable[[], bool] | None:
        """Breaks something that is whole; what heals it, and says whether it could yet."""
        if fault.target in self.broken or (fault.target == SERVER and EVERYTHING in self.broken):
            return None
        self.broken.add(fault.target)
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
        self.places[fault.target].proxy.cut_all()

    def lose(self, fault: Fault) -> None:
        """The answer of one call or, before it was made, the call."""
        sha = load(fault.script).sha
        self.places[fault.target].proxy.cut_next(sha, before=fault.loses)

    def silence(self, fault: Fault) -> Callable[[], None]:
        proxy = self.places[fault.target].proxy
        proxy.freeze()

        def mend() -> None:
            if fault.loses:
                proxy.cut_all()
            proxy.thaw()

        return mend

    def flood(self, fault: Fault) -> None:
        self.begin(fault.target, act, may_end=True)

    def kill_server(self, fault: Fault) -> Callable[[], None]:
        url = self.server.url
        os.kill(self.server.pid, signal.SIGKILL)

        def again() -> None:
            until = time.monotonic() + ENDS_WITHIN
            while self.server.is_running() and time.monotonic() < until:
                time.sleep(TICK)
            self.server.stop()
            self.server.start()
            assert self.server.url == url, "the server came back at another address"

        return again

    def freeze_server(self, fault: Fault) -> Callable[[], None]:
        pid = self.server.pid
        os.kill(pid, signal.SIGSTOP)
        return lambda: os.kill(pid, signal.SIGCONT)

    def sleep(self, fault: Fault) -> Callable[[], None]:
        """The whole machine, as a laptop does."""
        asleep = [place for place in self.places.values() if place.slot not in self.broken]
        wake_server = None if SERVER in self.broken else self.freeze_server(fault)
        for place in asleep:
            place.signal(signal.SIGSTOP)

        def wake() -> None:
            if wake_server is not None:
                wake_server()
            for place in asleep:
                place.signal(signal.SIGCONT)

        return wake

    def drop_clients(self, fault: Fault) -> None:
        self.command("CLIENT", "KILL", "TYPE", "normal")
        self.command("CLIENT", "KILL", "TYPE", "pubsub")

    def forget_scripts(self, fault: Fault) -> None:
        self.command("SCRIPT", "FLUSH")

    def command(self, *words: str) -> None:
        with Redis.from_url(self.server.url) as plain:
            plain.execute_command(*words)

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
