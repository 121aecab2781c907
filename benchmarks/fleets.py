"""Many herds, agents, tasks and waits, opened quickly: pure calls, a thousand in a round trip."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import TypeVar

from tocsin.broker import Broker, HerdSettings, inbox, requests, tasks
from tocsin.broker._sync.parent import Parent
from tocsin.broker.caller import Caller
from tocsin.broker.envelopes import Delegated, Sent
from tocsin.broker.errors import BrokerError
from tocsin.broker.scripts import Call

T = TypeVar("T")

BATCH = 1_000

WAITS_PER_SCOUT = 500
"""Tasks that one agent of these herds holds at most."""

SETTINGS = HerdSettings(
    max_open_tasks=1_000,
    inbox_limit=1_000_000,
    max_open_requests=10_000,
    pair_rate=1_000_000,
    journal_limit=100,
)
"""A short journal: it alone grows with what happened and not with what is open."""

DESCRIPTION = "Find out how the service authenticates its callers and write down each place."
QUESTION = "Which back-off do we use when the token server does not answer, and who decided it?"


def run_all(broker: Broker, calls: Iterable[Call[T]]) -> Iterator[T]:
    """The results of many calls, in batches; a refusal is raised."""
    remaining = iter(calls)
    while batch := list(islice(remaining, BATCH)):
        for result in broker.link.run_many(batch):
            if isinstance(result, BrokerError):
                raise result
            yield result


@dataclass
class Herd:
    """A herd whose scouts hold the tasks and ask its planner."""

    parent: Caller
    planner: Caller
    scouts: list[Caller]
    tasks: int = 0
    """How many tasks it was given; its scouts take turns."""


def _child(broker: Broker, parent: Parent, agent: str) -> Caller:
    token = parent.register(agent).token
    assert token is not None
    return broker.join(parent.herd, agent, token).caller


def open_herds(broker: Broker, count: int, waits_each: int = 1, first: int = 0) -> list[Herd]:
    """Herds, numbered from `first` on, with a planner and as many scouts as their waits need."""
    herds = []
    for number in range(first, first + count):
        parent = broker.open_herd(f"herd-{number}", settings=SETTINGS)
        needed = -(-waits_each // WAITS_PER_SCOUT)
        scouts = [_child(broker, parent, f"scout-{scout}") for scout in range(needed)]
        herds.append(Herd(parent.caller, _child(broker, parent, "planner"), scouts))
    return herds


def _delegate(herd: Herd) -> tuple[Caller, Call[Delegated]]:
    scout = herd.scouts[herd.tasks % len(herd.scouts)]
    herd.tasks += 1
    call = tasks.delegate(
        herd.parent,
        scout.agent,
        DESCRIPTION,
        deadline=None,
        watch=False,
        queue=False,
        continues=None,
        key=None,
    )
    return scout, call


def message(sender: Caller, to: str, task: str | None = None, asks: bool = False) -> Call[Sent]:
    """A message, or with `asks` a request; with a task, that task waits for its answer."""
    return requests.message(
        sender,
        to,
        QUESTION,
        task=task,
        expects_reply=asks,
        reply_within=None,
        delivery="follow_up",
        thread=None,
        key=None,
        data=None,
    )


def open_tasks(broker: Broker, wanted: Sequence[Herd]) -> list[tuple[Caller, str]]:
    """A task in each of the herds, as often as it is named, taken and acked by its scout."""
    pairs = [_delegate(herd) for herd in wanted]
    opened = run_all(broker, (call for _, call in pairs))
    held = [(scout, task.id) for (scout, _), task in zip(pairs, opened, strict=True)]
    scouts = list(dict.fromkeys(scout for scout, _ in pairs))
    taken = run_all(broker, [inbox.take(scout, "receive", "receive", BATCH) for scout in scouts])
    acks = [inbox.ack(scout, mail.mail) for scout, mail in zip(scouts, taken, strict=True)]
    list(run_all(broker, acks))
    return held


def open_waits(broker: Broker, wanted: Iterable[Herd]) -> None:
    """An open wait in each of the herds, as often as it is named; quickest if that is in a row."""
    remaining = iter(wanted)
    while batch := list(islice(remaining, BATCH)):
        held = open_tasks(broker, batch)
        list(run_all(broker, (message(scout, "planner", task, True) for scout, task in held)))
