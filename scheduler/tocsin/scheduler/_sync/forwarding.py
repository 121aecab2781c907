# Generated from _async/forwarding.py by `make generate`; edit that file.

"""Duty: forward mail from herd to herd, the news of what became of it back, and what herds under
herds and those above have to say to one another.

Herds may live in different partitions, and no script can reach both, so this carries each entry
of an outbox from one to the other and notes what came of it. Any number of schedulers do so
side by side; one that is killed in between leaves what another does again, to no other effect.
"""

from __future__ import annotations

import logging
import random
from collections import defaultdict
from collections.abc import Hashable, Sequence
from datetime import timedelta
from functools import partial
from typing import TypeVar

from tocsin.broker import keys, outbox
from tocsin.broker._sync.broker import Broker
from tocsin.broker.caller import Fleet
from tocsin.broker.errors import BrokerError, Unavailable
from tocsin.broker.outbox import Outbox, Outcome
from tocsin.broker.scripts import Call
from tocsin.scheduler._sync.duty import Turn
from tocsin.scheduler._sync.partitioned import PartitionedDuty, Pass

log = logging.getLogger("tocsin.scheduler")

T = TypeVar("T")

OUTBOXES = 10
"""Pairs of herds of a partition that one round sees to at most."""

BATCH = 10
"""Entries of each that it carries at most."""

PATIENCE = timedelta(seconds=2)
"""So long after an outbox was taken it counts as left behind, and another scheduler takes it."""

FIRST_PAUSE = 1.0
"""Seconds after mail or news had to wait, doubled with each time, with jitter."""

LONGEST_PAUSE = 60.0

ROUNDS = 10_000
"""Rounds after which a pass ends, whatever has come meanwhile."""

REMEMBERED = 10_000
"""Pairs of herds of which it is known how often news had to wait. Above that all are forgotten,
and begin with short pauses again."""


class Forwarding(PartitionedDuty):
    """Forwards what is due, and turns again when the next outbox is."""

    name = "forwarding"

    def __init__(self, broker: Broker) -> None:
        super().__init__(broker)
        self.bell = keys.doorbell(broker.name), "forward"
        self._waited: dict[tuple[str, str], int] = {}
        """How often in a row news of a pair of herds had to wait."""

    def turn(self) -> Turn:
        """One pass over all partitions, a round at a time, until nothing is due."""
        fleet, done = self._broker.fleet(), Pass()
        for _ in range(ROUNDS):
            look = self.serve_all()
            done.next_in = look.next_in
            if not look.found:
                break
            ways: defaultdict[Hashable, list[Outbox]] = defaultdict(list)
            for box in look.found:
                herds = fleet.partition(box.herd), fleet.partition(box.other)
                ways[tuple(map(self.node_of, herds))].append(box)
            errands = {way: partial(self._carry, fleet, boxes) for way, boxes in ways.items()}
            carried = self.run_errands(errands)
            done.counts += carried.counts
        if done.counts:
            log.info("%s", " ".join(f"{name}={n}" for name, n in sorted(done.counts.items())))
        return Turn(self.wait(done.next_in) * random.uniform(0.95, 1.0), done.counts)

    def serve(self, fleet: Fleet, partitions: list[str]) -> Pass:
        """Takes what is due; it is carried beside what others of the same server have to forward,
        since the server that it goes to may hang."""
        random.shuffle(partitions)
        done = Pass()
        waits: list[float] = []
        calls = [outbox.take(fleet, key, OUTBOXES, BATCH, PATIENCE) for key in partitions]
        answers = self._broker.link.run_many(calls)
        self.step()
        failures = [taken for taken in answers if isinstance(taken, BrokerError)]
        if len(failures) == len(answers):
            raise failures[0]
        done.left_out = failures[0].detail if failures else ""
        for taken in answers:
            if not isinstance(taken, BrokerError):
                done.found += taken.outboxes
                waits += [taken.next_in] if taken.next_in is not None else []
        done.next_in = min(waits, default=None)
        return done

    def _carry(self, fleet: Fleet, found: list[Outbox]) -> Pass:
        """Carries what was taken to the other herds, and notes what came of it."""
        done = Pass()
        told = self._ask([outbox.hear(fleet, each) for each in found if each.news])
        self.step()
        silent = next((each for each in told if isinstance(each, Unavailable)), None)
        offers = [outbox.accept(fleet, each) for each in found if each.mail]
        offered = [silent] * len(offers) if silent else self._ask(offers)
        self.step()
        hearings, answers = iter(told), iter(offered)
        notes: list[Call[str]] = []
        for each in found:
            news = _heard(each, next(hearings)) if each.news else []
            mail = _offered(each, next(answers)) if each.mail else []
            done.counts.update(_TOLD[came.how] for _, came in mail)
            done.counts.update(_TOLD_NEWS[came.how] for _, came in news)
            tries = self._tries(each, news)
            pause = timedelta(0)
            if any(came.how == "later" for _, came in [*news, *mail]):
                pause = _pause(max(tries, each.mail[len(mail) - 1].tries if mail else 0))
            notes.append(outbox.note(fleet, each, [*news, *mail], pause))
        for noted in self._broker.link.run_many(notes):
            if isinstance(noted, BrokerError):
                raise noted
        return done

    def _ask(self, calls: Sequence[Call[T]]) -> list[T | BrokerError]:
        """What the server that is carried to says; or that it says nothing, in each one's place."""
        try:
            return self._broker.link.run_many(calls)
        except Unavailable as failure:
            return [failure] * len(calls)

    def _tries(self, box: Outbox, news: Sequence[tuple[str, Outcome]]) -> int:
        """How often in a row news of these herds had to wait before. Mail has that in its record;
        of news it is worth no write: whoever does not know it pauses for less."""
        pair = box.herd, box.other
        if not any(came.how == "later" for _, came in news):
            self._waited.pop(pair, None)
            return 0
        if len(self._waited) >= REMEMBERED:
            self._waited.clear()
        tries = self._waited.get(pair, 0)
        self._waited[pair] = tries + 1
        return tries


_TOLD = {"forwarded": "forwarded", "refused": "forwards_refused", "later": "forwards_put_off"}
"""What each outcome of mail is counted as."""

_TOLD_NEWS = {
    "forwarded": "news",
    "later": "forwards_put_off",
    **dict.fromkeys(("judged", "heeded", "more", "gone"), "ties"),
}
"""What each outcome of news is counted as: of mail that had come, and of herds under herds."""


def _heard(box: Outbox, answer: list[Outcome] | BrokerError) -> list[tuple[str, Outcome]]:
    if isinstance(answer, BrokerError):
        answer = [Outcome("later")] * len(box.news)
    return [(news.entry, came) for news, came in zip(box.news, answer, strict=True)]


def _offered(box: Outbox, answer: list[Outcome] | BrokerError) -> list[tuple[str, Outcome]]:
    """What came of the mail. What could not be offered, say in a full memory, has to wait."""
    if isinstance(answer, BrokerError):
        answer = [Outcome("later", answer.detail)]
    return [(mail.entry, came) for mail, came in zip(box.mail, answer, strict=False)]


def _pause(tries: int) -> timedelta:
    pause = min(FIRST_PAUSE * 2 ** min(tries, 10), LONGEST_PAUSE)
    return timedelta(seconds=pause * random.uniform(0.5, 1.5))
