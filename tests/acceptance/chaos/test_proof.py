"""The judge of chaos: an honest history passes, and each way to break a promise is found."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest

from tests.acceptance.chaos.plan import faults, intents
from tests.acceptance.chaos.proof import PATIENCE, History, calm_spans, judge

Line = dict[str, Any]
Lie = Callable[[list[Line], list[Line]], object]

MINUTE = 60_000


def journal(event: str, at: int = 0, **fields: Any) -> Line:
    return {"event": event, "at": at} | fields


def accepted(message: str, kind: str, to: str, **fields: Any) -> Line:
    return journal("accepted", message=message, kind=kind, sender="x", recipient=to, **fields)


def told(t: float, event: str, slot: str = "scout-0", **fields: Any) -> Line:
    return {"t": t, "event": event, "slot": slot, "life": 1} | fields


def sent(key: str, operation: str, said: Line, **what: Any) -> list[Line]:
    what |= {"key": key, "operation": operation}
    return [told(1, "meant", **what), told(2, "answered", said=said, **what)]


HONEST_JOURNAL = [
    journal("delegated", task="task_1", agent="scout"),
    accepted("msg_task_1", "task", "scout"),
    journal("taken", agent="scout", messages=["msg_task_1"]),
    journal("running", task="task_1"),
    accepted("msg_q", "request", "planner"),
    journal("waiting", 1000, task="task_1", episode=1),
    journal("handled", agent="scout", messages=["msg_task_1"]),
    journal("taken", agent="planner", messages=["msg_q"]),
    journal("handled", agent="planner", messages=["msg_q"]),
    journal("reminded", 1000 + MINUTE, tasks=["task_1"]),
    journal("taken", agent="parent", messages=["msg_reminder_1_1"]),
    journal("handled", agent="parent", messages=["msg_reminder_1_1"]),
    accepted("msg_a", "reply", "scout"),
    journal("running", 1000 + 2 * MINUTE, task="task_1"),
    journal("taken", agent="scout", messages=["msg_a"]),
    journal("taken", agent="scout", messages=["msg_a"]),
    journal("completed", task="task_1"),
    accepted("msg_settled_1", "task_settled", "parent"),
    journal("handled", agent="scout", messages=["msg_a"]),
    journal("taken", agent="parent", messages=["msg_settled_1"]),
    journal("handled", agent="parent", messages=["msg_settled_1"]),
    accepted("msg_late", "reply", "parent", late=1),
    journal("taken", agent="parent", messages=["msg_late"]),
    journal("handled", agent="parent", messages=["msg_late"]),
    accepted("msg_bad", "message", "scout"),
    journal("taken", agent="scout", messages=["msg_bad"]),
    journal("dead", message="msg_bad", kind="message", recipient="scout", reason="failed 5 times"),
]

HONEST_LOGS = [
    told(0, "started", "driver"),
    *sent("parent-0:0", "delegate", {}, task="task_1"),
    *sent("msg_task_1:asks", "message", {"message_id": "msg_q"}, message="msg_q"),
    *sent("msg_q:answer", "reply", {"message_id": "msg_a"}, message="msg_a", request="msg_q"),
    *sent("task_1:completed", "done", {"status": "completed"}, task="task_1", outcome="completed"),
    *sent("parent-0:1", "message", {"message_id": "msg_bad"}, message="msg_bad"),
    *[
        told(3, "took", messages=[name])
        for name in ("msg_task_1", "msg_q", "msg_a", "msg_a", "msg_settled_1", "msg_late")
    ],
    told(3, "took", "parent-0", messages=["msg_reminder_1_1"]),
    told(4, "acked", messages=["msg_a"], fenced=["msg_a"], instance="inst_1"),
    told(4, "acked", messages=["msg_a"], fenced=[], instance="inst_2"),
    told(500, "over", "driver"),
]


def tried(lie: Lie | None = None) -> list[tuple[str, str]]:
    """What the judge says of the honest history after something was done to it."""
    said, logs = copy.deepcopy(HONEST_JOURNAL), copy.deepcopy(HONEST_LOGS)
    if lie is not None:
        lie(said, logs)
    return [(v.promise, v.what) for v in judge(History(said, logs, threshold=MINUTE))]


def without(event: str, /, **having: Any) -> Lie:
    """Takes lines out of the journal."""

    def lie(said: list[Line], logs: list[Line]) -> None:
        kept = [
            line
            for line in said
            if line["event"] != event or any(line.get(k) != v for k, v in having.items())
        ]
        assert len(kept) < len(said)
        said[:] = kept

    return lie


def also(*lines: Line) -> Lie:
    """Puts lines at the journal's end."""
    return lambda said, logs: said.extend(lines)


def and_told(*lines: Line) -> Lie:
    """Puts lines into the logs."""
    return lambda said, logs: logs.extend(lines)


def untold(event: str, **having: Any) -> Lie:
    """Takes lines out of the logs."""
    return lambda said, logs: without(event, **having)(logs, said)


def changed(event: str, /, **fields: Any) -> Lie:
    """Says something else in the first line of the journal of this kind."""
    return lambda said, logs: next(line for line in said if line["event"] == event).update(fields)


def test_an_honest_history_passes():
    """Redelivery, a reminder, a late reply and a dead letter are no violations."""
    assert tried() == []


LIES: dict[str, tuple[str, Lie]] = {
    "a reply vanished": ("P11", without("handled", messages=["msg_a"])),
    "a late reply vanished": ("P9", without("handled", messages=["msg_late"])),
    "a reply was taken back": (
        "P11",
        lambda said, logs: (
            without("handled", messages=["msg_a"])(said, logs),
            also(journal("withdrawn", message="msg_a", reason="x"))(said, logs),
        ),
    ),
    "nobody had what was handled": ("P11", untold("took", messages=["msg_a"])),
    "a dead letter without a failure": ("P11", changed("dead", reason="its entry was deleted")),
    "a sent message was never there": ("P11", without("accepted", message="msg_q")),
    "a delegation was never there": ("P11", without("accepted", message="msg_task_1")),
    "an ack of what the server lost": (
        "P11",
        and_told(told(5, "acked", messages=["msg_gone"], fenced=[], instance="inst_1")),
    ),
    "accepted twice": ("P12", also(accepted("msg_late", "reply", "parent", late=1))),
    "handled twice": ("P12", also(journal("handled", agent="scout", messages=["msg_a"]))),
    "handed out after it was handled": (
        "P12",
        also(journal("taken", agent="scout", messages=["msg_a"])),
    ),
    "handed out after it died": (
        "P12",
        also(journal("taken", agent="scout", messages=["msg_bad"])),
    ),
    "two handlers that count": (
        "P12",
        and_told(told(5, "acked", messages=["msg_a"], fenced=[], instance="inst_1")),
    ),
    "one key, two envelopes": (
        "P12",
        and_told(*sent("parent-0:1", "message", {"message_id": "msg_q"}, message="msg_bad")),
    ),
    "another answer stands": (
        "P12",
        and_told(
            *sent(
                "msg_q:answer",
                "reply",
                {"message_id": "msg_a", "superseded": True},
                message="msg_a",
                request="msg_q",
            )
        ),
    ),
    "refused, but there": (
        "P12",
        lambda said, logs: next(
            line for line in logs if line["event"] == "answered" and line["key"] == "parent-0:1"
        ).update(event="refused"),
    ),
    "a call without an answer": ("P12", untold("answered", key="parent-0:1")),
    "settled twice": ("P10", also(journal("failed", task="task_1"))),
    "never settled": ("P10", without("completed")),
    "settled by nobody": ("P10", untold("meant", key="task_1:completed")),
    "blocked without a deadline": ("P10", changed("completed", event="blocked")),
    "cancelled by nobody": ("P10", changed("completed", event="cancelled")),
    "failed by nobody": ("P10", changed("completed", event="failed")),
    "timed out before its time": ("P10", changed("completed", event="timed_out")),
    "somebody heard otherwise": (
        "P10",
        and_told(
            *sent("task_1:failed", "done", {"status": "failed"}, task="task_1", outcome="failed")
        ),
    ),
    "a settlement was not told": ("P10", without("accepted", message="msg_settled_1")),
    "two reminders of a wait": (
        "P1",
        lambda said, logs: said.insert(10, journal("reminded", 2 * MINUTE, tasks=["task_1"])),
    ),
    "a reminder too early": ("P1", changed("reminded", at=MINUTE)),
    "no reminder": ("P1", without("reminded")),
    "a reminder of no wait": ("P1", also(journal("reminded", 9 * MINUTE, tasks=["task_1"]))),
    "a process broke": ("P16", and_told(told(9, "crashed", error="why"))),
    "a record was set aside": ("P16", also(journal("set_aside", error="why"))),
    "an agent was taken for another": ("P16", also(journal("refused", code="forbidden"))),
}


@pytest.mark.parametrize("name", LIES)
def test_a_faulty_history_is_refused(name: str):
    """The judge cannot pass everything: each kind of fault is named by the promise it breaks."""
    promise, lie = LIES[name]
    assert promise in {promise for promise, _ in tried(lie)}


def test_a_wait_needs_no_reminder_while_all_is_broken():
    """Nobody can be reminded while the server is away, or both parents or schedulers are."""
    for down in (["server"], ["parent-0", "parent-1"], ["scheduler-0", "scheduler-1"]):
        breaks = [told(0.5, "breaks", "driver", target=target) for target in down]

        def lie(said: list[Line], logs: list[Line], breaks: list[Line] = breaks) -> None:
            without("reminded")(said, logs)
            without("taken", messages=["msg_reminder_1_1"])(said, logs)
            without("handled", messages=["msg_reminder_1_1"])(said, logs)
            logs.extend(breaks)

        assert tried(lie) == []


def test_calm_begins_when_the_last_needed_thing_is_whole():
    """A fault of one replica breaks no calm; the end of the chaos ends it."""
    history = History(
        [],
        [
            told(0, "started", "driver"),
            told(1, "breaks", "driver", target="parent-0"),
            told(2, "breaks", "driver", target="parent-1"),
            told(3, "heals", "driver", target="parent-0"),
            told(3 + PATIENCE, "over", "driver"),
        ],
        MINUTE,
    )
    assert calm_spans(history) == [(0, 2), (3, 3 + PATIENCE)]


def test_a_seed_says_the_same_again():
    """Faults and intents come from the seed alone."""
    assert faults(7, 60) == faults(7, 60) != faults(8, 60)
    first, second = intents(7, "parent-0"), intents(7, "parent-0")
    assert [next(first) for _ in range(200)] == [next(second) for _ in range(200)]
    assert next(intents(7, "parent-0")) != next(intents(7, "parent-1"))
