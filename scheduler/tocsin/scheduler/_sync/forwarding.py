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
from collections import Counter
from datetime import timedelta

from tocsin.broker import keys, outbox
from tocsin.broker._sync.broker import Broker
from tocsin.broker.bells import SLOW_POLL
from tocsin.broker.caller import Fleet
from tocsin.broker.errors import BrokerError
from tocsin.broker.outbox import Outbox, Outcome
from tocsin.broker.scripts import Call
from tocsin.scheduler._sync.duty import Turn
from tocsin.scheduler._sync.partitioned import PartitionedDuty, Pass

log = logging.getLogger("tocsin.scheduler")

OUTBOXES = 10
"""Pairs of herds of a partition that one round sees to at most."""

BATCH = 10
"""Entries of each that it carries at most."""

PATIENCE = timedelta(seconds=2)
"""So long after an outbox was taken it counts as left behind, and another scheduler takes it."""

FIRST_PAUSE = 1.0
"""Seconds after mail had to wait, doubled with each time, with jitter."""

LONGEST_PAUSE = 60.0

ROUNDS = 10_000
"""Rounds after which a pass ends, whatever has come meanwhile."""


class Forwarding(PartitionedDuty):
    """Forwards what is due, and turns again when the next outbox is."""

    name = "forwarding"

    def __init__(self, broker: Broker) -> None:
        super().__init__(broker)
        self.bell = keys.doorbell(broker.name), "forward"

    def turn(self) -> Turn:
        """One pass over all partitions, until nothing is due."""
        done = self.serve_all()
        if done.counts:
            log.info("%s", " ".join(f"{name}={n}" for name, n in sorted(done.counts.items())))
        wait = SLOW_POLL if done.next_in is None else min(done.next_in, SLOW_POLL)
        return Turn(wait * random.uniform(0.95, 1.0), done.counts)

    def serve(self, fleet: Fleet, partitions: list[str]) -> Pass:
        """Sees to every outbox that is due, a round at a time, until none is."""
        done = Pass()
        for _ in range(ROUNDS):
            random.shuffle(partitions)
            found: list[Outbox] = []
            waits: list[float] = []
            calls = [outbox.take(fleet, key, OUTBOXES, BATCH, PATIENCE) for key in partitions]
            answers = self._broker.link.run_many(calls)
            self.step()
            for partition, taken in zip(list(partitions), answers, strict=True):
                if isinstance(taken, BrokerError):
                    failure, done.left_out = taken, taken.detail
                    partitions.remove(partition)
                    continue
                found += taken.outboxes
                waits += [taken.next_in] if taken.next_in is not None else []
            if not partitions:
                raise failure
            done.next_in = min(waits, default=None)
            if not found:
                break
            self._carry(fleet, found, done.counts)
        return done

    def _carry(self, fleet: Fleet, found: list[Outbox], counts: Counter[str]) -> None:
        """Carries what was taken to the other herds, and notes what came of it."""
        run_many = self._broker.link.run_many
        told = run_many([outbox.hear(fleet, each) for each in found if each.news])
        self.step()
        offered = run_many([outbox.accept(fleet, each) for each in found if each.mail])
        self.step()
        hearings, answers = iter(told), iter(offered)
        notes: list[Call[str]] = []
        for each in found:
            news = _heard(each, next(hearings)) if each.news else []
            mail = _offered(each, next(answers)) if each.mail else []
            counts.update(_TOLD[came.how] for _, came in mail)
            counts.update(_TOLD_NEWS[came.how] for _, came in news)
            pause = timedelta(0)
            if any(came.how == "later" for _, came in [*news, *mail]):
                pause = _pause(each.mail[len(mail) - 1].tries if mail else 0)
            notes.append(outbox.note(fleet, each, [*news, *mail], pause))
        for noted in run_many(notes):
            if isinstance(noted, BrokerError):
                raise noted


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
