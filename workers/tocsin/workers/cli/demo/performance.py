"""One performance of the story: its herd, its processes, what happened, and what was judged."""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path

from tocsin.broker import (
    AsyncBroker,
    AsyncParent,
    CommandRunner,
    HerdSettings,
    ScaledClock,
    keys,
)
from tocsin.workers.cli.demo.events import Event, Record, from_journal, from_line
from tocsin.workers.cli.demo.pace import THRESHOLD, Pace, pace_of
from tocsin.workers.cli.demo.player import SCHEDULER, WORKERS
from tocsin.workers.cli.demo.promises import Judge, Promise, Verdict
from tocsin.workers.cli.demo.stage import Stage, StageError
from tocsin.workers.cli.demo.story import HERD
from tocsin.workers.cli.demo.turn import told_in

FLEET = "demo"
LABELS = {"scout": "Scout", "planner": "Planner"}

LOOK_EVERY = 0.05
SETTLE = 0.1
"""Seconds an event is held back, so that one which comes by another way takes its place."""

STARTING = 30.0
"""Seconds that processes may take to start and to end, beside the story's own time."""

_OF_THE_FLEET = {"fleet", "partition", "schedulers"}


@dataclass(frozen=True)
class Audience:
    """Who watches: told of each event with the record so far, and of each verdict."""

    event: Callable[[Event, Record], None]
    verdict: Callable[[Promise, Verdict], None]


class Performance:
    """The story, performed once on a server that nobody else uses."""

    def __init__(
        self, url: str, speed: float, tree: Path, audience: Audience, turns: Path | None = None
    ) -> None:
        """`turns`: a folder of the children that are to run as turns of RQ; None: each of them has
        a process of its own."""
        self._url, self._speed, self._tree, self._audience = url, speed, tree, audience
        self._turns = turns
        self._heard: dict[str, int] = dict.fromkeys(LABELS, 0)
        pace = Pace(speed)
        self.record = Record(THRESHOLD, pace.reply_within)
        self.judge = Judge()
        self.processes: dict[str, int] = {}
        """The process id of each role that was on stage."""
        self._held: list[Event] = []
        self._read_to: str | None = None

    async def run(self) -> None:
        """Performs it, and judges it as it goes; a broken promise ends it at once.

        Raises:
            StageError: A process ended that should not have, or the story took far too long.
        """
        clock = ScaledClock(self._speed)
        async with AsyncBroker.connect(self._url, fleet=FLEET, clock=clock) as broker:
            pace = await pace_of(broker)
            parent = await broker.open_herd(HERD, settings=_settings(pace))
            seats = {
                agent: (await parent.register(agent, label=label, runner=self._runner(pace))).token
                for agent, label in LABELS.items()
            }
            await parent.leave()  # from here on the parent is the process that has its seat
            place = {"TOCSIN_URL": self._url, "TOCSIN_FLEET": FLEET, "TOCSIN_HERD": HERD}
            if self._turns is not None:
                place["TOCSIN_RQ_URL"] = f"{self._url.rpartition('/')[0]}/1"  # apart from ours
                seats = {}
            async with Stage(self._tree, place, self._hear) as stage:
                for role in (SCHEDULER, *(WORKERS if self._turns is not None else ())):
                    await stage.enter(role)
                for agent, token in {**seats, "parent": parent.token}.items():
                    await stage.enter(agent, TOCSIN_AGENT=agent, TOCSIN_TOKEN=str(token))
                self.processes = stage.pids
                await self._follow(stage, parent, pace)
                if not self.judge.broken:
                    await self._end(stage, broker, parent)
                    self.judge.close()

    def _runner(self, pace: Pace) -> CommandRunner | None:
        """How a child's turns are run, if they are."""
        if self._turns is None:
            return None
        program = (sys.executable, "-P", "-m", "tocsin.workers.cli.demo.turn")
        return CommandRunner(
            [*program, str(self._turns)],
            resume=("--resume", "{session}"),
            cwd=str(self._tree),
            turn_timeout=max(timedelta(hours=1), pace.fleet_time(STARTING)),
            claim_within=max(timedelta(minutes=5), pace.fleet_time(STARTING)),
        )

    def _hear_turns(self) -> None:
        """What the programs of turns have told."""
        for role, read in self._heard.items():
            path = told_in(self._turns, role) if self._turns is not None else None
            if path is None or not path.exists():
                continue
            new = path.read_bytes()[read:].rpartition(b"\n")[0]
            self._heard[role] += len(new) + bool(new)
            for line in new.splitlines():
                self._hear(role, line.decode())

    def _hear(self, role: str, line: str) -> None:
        event = from_line(role, line)
        if event is not None:
            self._held.append(event)

    async def _follow(self, stage: Stage, parent: AsyncParent, pace: Pace) -> None:
        """Takes in what happens until the parent's part is over, or a promise breaks."""
        story = self.record.reply_within + THRESHOLD + timedelta(minutes=30)
        until = time.monotonic() + STARTING + story.total_seconds() / self._speed
        over = False
        while not (over and not self._held) and not self.judge.broken:
            over = stage.ended("parent")
            settled = pace.now() - pace.fleet_time(SETTLE)
            self._hear_turns()
            await self._read_journal(parent)
            self._take_in(settled)
            if time.monotonic() > until:
                raise StageError("the story got stuck")
            await asyncio.sleep(LOOK_EVERY)
        self.record.ended = over
        self._judge()

    async def _read_journal(self, parent: AsyncParent) -> None:
        for entry in await parent.journal(after=self._read_to, limit=1000):
            self._read_to = entry.id
            self._held.append(from_journal(entry))

    def _take_in(self, until: datetime) -> None:
        """Takes in what happened up to a moment, in order."""
        events = [event for event in self._held if event.at <= until]
        self._held = [event for event in self._held if event.at > until]
        # What the broker says comes before what an agent says of the same moment.
        for event in sorted(events, key=lambda event: (event.at, not event.journal)):
            self.record.events.append(event)
            self._audience.event(event, self.record)
        self._judge()

    def _judge(self) -> None:
        for promise, verdict in self.judge.look(self.record):
            self._audience.verdict(promise, verdict)

    async def _end(self, stage: Stage, broker: AsyncBroker, parent: AsyncParent) -> None:
        """Closes the herd, sees its agents off, and looks what is left of all that."""
        await parent.close_herd()
        await stage.leave(*(role for role in stage.pids if role in {*LABELS, *WORKERS}))
        until = time.monotonic() + STARTING
        while True:
            left = await _keys_of_herds(broker)
            if not left or time.monotonic() > until:
                break
            await asyncio.sleep(LOOK_EVERY)
        await stage.clear()
        self.record.left = (*stage.left(), *left)
        self._judge()


def _settings(pace: Pace) -> HerdSettings:
    """The defaults the story relies on, whatever this machine has set up; and short retention."""
    defaults = HerdSettings().model_dump()
    ours = {
        "stale_wait_threshold": THRESHOLD / timedelta(minutes=1),
        "reply_timeout": pace.reply_timeout,
        "away_after": max(defaults["away_after"], pace.fleet_time(30)),
        "herd_retention": pace.retention,
    }
    return HerdSettings(**{**defaults, **ours})


async def _keys_of_herds(broker: AsyncBroker) -> list[str]:
    found = await broker.link.command("demo", "KEYS", "*")
    return [f"key {key}" for key in found if keys.kind_of(key) not in _OF_THE_FLEET]
