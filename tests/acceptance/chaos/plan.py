"""All that a seed decides: who sends what, who breaks when. Pure, so that a seed says it again."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import cycle
from typing import Any

SLOTS = ("parent-0", "parent-1", "scout-0", "scout-1", "planner-0", "planner-1")
"""The places where a process of an agent runs, one after another: agent and number of replica."""

SCHEDULERS = ("scheduler-0", "scheduler-1")

EVERYTHING = "everything"
SERVER = "server"


def agent_of(slot: str) -> str:
    """The agent that a process in this place serves; floods are sent by the parent."""
    agent = slot.rpartition("-")[0]
    return "parent" if agent == "flood" else agent


@dataclass(frozen=True)
class Intent:
    """One thing that a process means to do until it has an answer; `key` makes it one thing."""

    key: str
    operation: str
    to: str
    body: dict[str, Any] = field(default_factory=dict)
    options: dict[str, Any] = field(default_factory=dict)
    pause: float = 0.0
    """Seconds before the next."""


@dataclass(frozen=True)
class Fault:
    """Something that breaks, `at` seconds after the start, for `lasts` seconds."""

    at: float
    what: str
    target: str
    lasts: float = 0.0
    loses: bool = False
    """Of a silent network: what was under way is lost with it. Of a call: before it was made."""
    script: str = ""
    """Of a call: which."""
    waits: bool = False
    """Whether it comes later where its target is broken, and not never."""


# ---------------------------------------------------------------------------- what is sent

TASKS = {
    "do": 30,  # done at once
    "fail": 8,
    "ask": 16,  # stays on the line for the answer
    "question": 24,  # lets the task wait and is done when the answer comes
    "deadline": 5,  # a question whose answer comes after its reply deadline
    "wait": 5,  # a question that nobody answers: waits until the end
    "lapse": 6,  # never done: its deadline passes
    "raise": 2,  # its handler raises, whoever takes it
}

ANSWERS = {"now": 70, "slow": 15, "owed": 15}
"""How planner answers: at once, after some work, or later from its outbox."""


def _pick(chance: random.Random, weights: dict[str, int]) -> str:
    return chance.choices(list(weights), list(weights.values()))[0]


def _message(chance: random.Random, to: str) -> tuple[str, dict[str, Any], dict[str, Any]]:
    does = "raise" if chance.random() < 0.01 else "slow" if chance.random() < 0.04 else "read"
    return to, {"do": does}, {"delivery": "steer" if chance.random() < 0.1 else "follow_up"}


def _answer(chance: random.Random) -> dict[str, Any]:
    how = _pick(chance, ANSWERS)
    return {"answer": how, "after": round(chance.uniform(0.05, 4.0), 2) if how == "owed" else 0}


def _task(chance: random.Random, key: str) -> Intent:
    does = _pick(chance, TASKS)
    asks = _answer(chance)
    if does == "deadline":
        asks = {"answer": "owed", "after": round(chance.uniform(2.5, 5.0), 2)}
    if does == "wait":
        asks = {"answer": "never"}
    if does == "ask" and chance.random() < 0.15:  # later than its window
        asks = {"answer": "owed", "after": 4.0}
    options: dict[str, Any] = {"watch": chance.random() < 0.5, "queue": chance.random() < 0.8}
    if does == "lapse":
        options["minutes"] = chance.choice((1, 2, 4))
    return Intent(key, "delegate", "scout", {"do": does, "asks": asks}, options)


def _of_parent(chance: random.Random, slot: str, number: int) -> Intent:
    key, kind = f"{slot}:{number}", chance.random()
    if kind < 0.42:
        return Intent(key, "message", *_message(chance, chance.choice(("scout", "planner"))))
    if kind < 0.55:
        return Intent(key, "request", "planner", {"do": "answer"} | _answer(chance), {"minutes": 3})
    if kind < 0.61:
        owed = {"answer": "owed", "after": round(chance.uniform(0.3, 2.5), 2)}
        answer = owed if chance.random() < 0.6 else _answer(chance)
        return Intent(key, "ask", "planner", {"do": "answer"} | answer)
    if kind < 0.90 or number < 20:
        return _task(chance, key)
    earlier = f"{slot}:{number - chance.randrange(1, 20)}"  # if that was a task
    return Intent(key, chance.choice(("cancel", "watch")), earlier)


def intents(seed: int, slot: str) -> Iterator[Intent]:
    """What the process in this place means to do, one after another, without end."""
    chance = random.Random(f"{seed} {slot}")
    agent = agent_of(slot)
    others = [name for name in ("parent", "scout", "planner") if name != agent]
    number = 0
    while True:
        pause = round(chance.expovariate(1 / 0.05), 3)
        if agent == "parent":
            intent = _of_parent(chance, slot, number)
        else:
            to = chance.choice(others)
            intent = Intent(f"{slot}:{number}", "message", *_message(chance, to))
            pause *= 2
        yield Intent(**(vars(intent) | {"pause": pause}))
        number += 1


def flood(seed: int, slot: str) -> Iterator[Intent]:
    """A flood: as many messages as one sender can send to one agent."""
    chance = random.Random(f"{seed} {slot}")
    to = chance.choice(("scout", "planner"))
    for number in range(chance.randrange(100, 300)):
        yield Intent(f"{slot}:{number}", "message", to, {"do": "read"})


# ---------------------------------------------------------------------------- what breaks

FAULTS = {
    "kill": 24,
    "end": 6,
    "freeze": 14,
    "cut": 10,
    "lose": 16,
    "silence": 8,
    "flood": 4,
    "kill server": 5,
    "freeze server": 3,
    "sleep": 2,
    "drop clients": 4,
    "forget scripts": 4,
}

LASTS = {
    "kill": (0.0, 2.5),
    "end": (0.0, 1.5),
    "freeze": (0.2, 5.0),
    "silence": (0.2, 4.0),
    "kill server": (0.0, 2.0),
    "freeze server": (0.2, 3.0),
    "sleep": (1.0, 4.0),
}

OF_ALL = ["inbox_take", "inbox_take", "inbox_ack", "inbox_nack", "message_send", "instance_renew"]

CALLS = {
    "parent": OF_ALL + ["task_delegate", "task_delegate", "task_cancel", "task_watch"],
    "scout": OF_ALL + ["task_done", "task_done", "ask_open", "ask_look", "ask_confirm"],
    "planner": OF_ALL + ["request_reply", "request_reply", "request_reply"],
    "scheduler": ["herd_visit", "timers_due"],
}
"""The calls of which an answer is lost, or the call itself."""

OF_SERVER = {"kill server", "freeze server", "drop clients", "forget scripts"}

IN_TURN = {
    "server": (),
    "cluster": ("move slot", "kill server", "move slot by key", "freeze server"),
    "sentinel": ("kill server", "freeze server"),
}
"""What happens to several servers, one after another: each takes seconds until all is whole."""

FIRST, EVERY = 4.0, 7.0


def faults(seed: int, seconds: float, topology: str = "server", every: float = 0.5) -> list[Fault]:
    """What breaks in a run of so many seconds, one thing each `every` seconds on average."""
    chance = random.Random(f"{seed} faults")
    found, at, floods = _in_turn(seed, seconds, IN_TURN[topology]), 1.0, 0
    while (at := at + chance.expovariate(1 / every)) < seconds:
        what = _pick(chance, FAULTS)
        target = chance.choice(SLOTS + SCHEDULERS)
        lasts = round(chance.uniform(*LASTS.get(what, (0.0, 0.0))), 2)
        loses = chance.random() < 0.5
        if what in LASTS and what in OF_SERVER and IN_TURN[topology]:
            continue  # that has its turn
        if what in OF_SERVER:
            target = SERVER
        elif what == "sleep":
            target = EVERYTHING
        elif what == "flood":
            target, floods = f"flood-{floods}", floods + 1
        script = chance.choice(CALLS[agent_of(target)]) if what == "lose" else ""
        found.append(Fault(round(at, 2), what, target, lasts, loses, script))
    return found


def _in_turn(seed: int, seconds: float, turns: tuple[str, ...]) -> list[Fault]:
    chance, found, at = random.Random(f"{seed} servers"), [], FIRST
    for what in cycle(turns):
        if at >= seconds:
            break
        lasts = round(chance.uniform(*LASTS.get(what, (0.0, 0.0))), 2)
        found.append(Fault(round(at, 2), what, SERVER, lasts, waits=True))
        at += EVERY * chance.uniform(0.8, 1.2)
    return found
