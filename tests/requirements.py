"""The promises of Tocsin, each with the tests that prove it.

    @proves("P1")
    async def test_...

`tests/architecture/test_requirements.py` checks both ways: every promise has a test, and every id
a test claims to prove is one of these.
"""

from __future__ import annotations

from dataclasses import dataclass

import pytest


@dataclass(frozen=True)
class Promise:
    """What Tocsin promises. `later` names the part it belongs to while that is not built yet."""

    text: str
    later: str | None = None


PROMISES: dict[str, Promise] = {
    "P1": Promise(
        "No reminder below the threshold, exactly one past it, none more while the episode lasts."
    ),
    "P2": Promise("A reply ends the episode; a new one gets its own reminder."),
    "P3": Promise(
        "A finished, failed, cancelled or blocked task, and an idle agent without a waiting task, "
        "give no reminder."
    ),
    "P4": Promise("A reminder settles nothing; the reply deadline settles to blocked."),
    "P5": Promise("Threshold off: no reminders."),
    "P6": Promise("Nothing polls fast while nothing waits."),
    "P7": Promise("A reminder never wakes the parent, and none is sent while the parent is away."),
    "P8": Promise(
        "An ask met by silence ends in NoReply (retryable), one whose target is active is extended "
        "and then answered, one still active at the ceiling ends in CeilingActive."
    ),
    "P9": Promise("A late reply is never lost."),
    "P10": Promise("Only done, failure, cancel or deadline settles a task."),
    "P11": Promise("What was accepted is handled or in dead letters, whatever is killed."),
    "P12": Promise("What was sent once is handled once in effect, whatever is retried."),
    "P13": Promise(
        "Nobody acts as somebody else: each call proves its agent by token; a child reaches only "
        "its own herd (and parents of others that accept it) and its own tasks."
    ),
    "P14": Promise("No herd sees, slows or breaks another."),
    "P15": Promise("No key outlives its owner."),
    "P16": Promise(
        "Any number of schedulers, workers and replicas, started, stopped, frozen or killed at any "
        "moment, changes none of the above."
    ),
}


def proves(*ids: str) -> pytest.MarkDecorator:
    """Marks a test as proof of promises, by their ids."""
    return pytest.mark.proves(*ids)
