"""What the demo promises, each checked on what really happened, as it happens.

A check looks at the record so far and says `open`, `kept` or `broken`, and why. It is asked again
after every event, and what counts is what it says last; open at the end of the story is broken.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import Literal, NamedTuple

from tocsin.broker import TaskState
from tocsin.workers.cli.demo.events import Event, Record

ENDS = frozenset(state.value for state in TaskState if state.terminal)


class Verdict(NamedTuple):
    """What a check says."""

    word: Literal["open", "kept", "broken"]
    detail: str = ""


OPEN = Verdict("open")


def _kept(detail: str = "") -> Verdict:
    return Verdict("kept", detail)


def _broken(detail: str) -> Verdict:
    return Verdict("broken", detail)


def _minutes(duration: timedelta) -> str:
    seconds = int(duration.total_seconds())
    return f"{seconds // 60}:{seconds % 60:02}"


def _settled(record: Record, task: str) -> Event | None:
    ends = [event for event in record.events if event.state in ENDS and event.task == task]
    return ends[0] if ends else None


def silence_settles_nothing(record: Record) -> Verdict:
    """The first task stays open while its agent idles, until the answer is there."""
    if not record.tasks:
        return OPEN
    task = record.tasks[0]
    wait, end = record.first("waiting", task), _settled(record, task)
    answer = record.first("request_answered", task)
    if end is not None and (answer is None or end.at < answer.at):
        return _broken(f"task {task} became {end.what} while it waited for its answer")
    if wait is None or answer is None:
        return OPEN
    quiet = [
        event
        for what in ("handled", "status")
        for event in record.all(what, who="scout")
        if wait.at <= event.at <= answer.at
    ]
    if not any(event.what == "handled" for event in quiet):
        return _broken("scout's turn did not end while its task waited")
    if not any(event.facts.get("status") == "idle" for event in quiet):
        return _broken("scout did not idle while its task waited")
    return _kept(f"the turn ended and scout idled; the task waited {_minutes(answer.at - wait.at)}")


def one_reminder(record: Record) -> Verdict:
    """Each wait that lasts past the threshold raises one reminder, not before it."""
    after: list[str] = []
    for task in record.tasks:
        wait, end = record.first("waiting", task), _settled(record, task)
        raised = [event for event in record.all("reminded") if task in event.facts["tasks"]]
        if len(raised) > 1:
            return _broken(f"task {task} raised {len(raised)} reminders in one wait")
        if raised and (wait is None or raised[0].at < wait.at + record.threshold):
            return _broken(f"task {task} raised its reminder below the threshold")
        if end is not None and not raised:
            return _broken(f"task {task} waited past the threshold and raised no reminder")
        if wait is None or end is None:
            return OPEN
        after.append(_minutes(raised[0].at - wait.at))
    return _kept(f"after {' and '.join(after)} minutes of waiting") if len(after) == 2 else OPEN


def reminder_wakes_nobody(record: Record) -> Verdict:
    """The parent's turns are those that a settlement began, and no others."""
    for event in record.all("is_woken", who="parent"):
        if event.facts["kind"] != "task_settled":
            return _broken(f"a {event.facts['kind']} was in the parent's turn")
    ends = [event for event in record.events if event.state in ENDS]
    turns = record.all("taken", who="parent")
    for number, turn in enumerate(turns):
        if len([end for end in ends if end.at <= turn.at]) <= number:
            return _broken(f"the parent took a turn at minute {record.minute(turn):.1f}, unsettled")
    return _kept("the parent slept through both") if len(turns) == 2 else OPEN


def reminder_is_found(record: Record) -> Verdict:
    """The parent that looks into its inbox finds each reminder once, and it is true."""
    found = 0
    for task in record.tasks:
        seen = record.all("sees_reminder", task)
        if len(seen) > 1:
            return _broken(f"the parent found {len(seen)} reminders of task {task}")
        if not seen:
            return _broken(f"task {task} ended unseen") if _settled(record, task) else OPEN
        asked = record.first("asks", task)
        if asked is None or seen[0].facts["question"] != asked.facts["question"]:
            return _broken(f"the reminder of task {task} does not quote its open question")
        found += 1
    return _kept("with the open question and whom it waits for") if found == 2 else OPEN


def late_answer_counts(record: Record) -> Verdict:
    """The first task goes on with its late answer, and is completed by `done` alone."""
    if not record.tasks:
        return OPEN
    states, wanted = record.states(record.tasks[0]), _LIFE[0]
    if states != wanted[: len(states)]:
        return _broken(f"the first task went {' -> '.join(states)}")
    return _kept(" -> ".join(states)) if states == wanted else OPEN


def summary_is_real(record: Record) -> Verdict:
    """The summary holds what scout counted and what planner answered."""
    woken = record.first("is_woken", record.tasks[0]) if record.tasks else None
    if woken is None:
        return OPEN
    read, answer = record.first("reads", woken.task), record.first("answers", woken.task)
    summary = str(woken.facts["summary"])
    if read is None or read.facts["reading"] not in summary:
        return _broken(f"the summary has not what scout read: {summary}")
    if answer is None or answer.facts["answer"] not in summary:
        return _broken(f"the summary has not what planner answered: {summary}")
    return _kept(read.facts["reading"])


def one_settlement(record: Record) -> Verdict:
    """Each task sends the parent one settlement, and each wakes it once."""
    done = 0
    for task in record.tasks:
        sent = [
            event for event in record.all("accepted", task) if event.facts["kind"] == "task_settled"
        ]
        woken = record.all("is_woken", task)
        if len(sent) > 1 or len(woken) > 1:
            return _broken(f"task {task} settled {len(sent)} times, woke {len(woken)} times")
        done += len(woken)
    return _kept() if done == 2 else OPEN


def deadline_blocks(record: Record) -> Verdict:
    """The second task is blocked by its reply deadline, and not before it."""
    if len(record.tasks) < 2:
        return OPEN
    task, wanted = record.tasks[1], _LIFE[1]
    states = record.states(task)
    if states != wanted[: len(states)]:
        return _broken(f"the second task went {' -> '.join(states)}")
    wait, end = record.first("waiting", task), record.first("blocked", task)
    if states != wanted or wait is None or end is None:
        return OPEN
    error = str(end.facts.get("error"))
    if end.at < wait.at + record.reply_within:
        return _broken(f"the task was blocked {_minutes(end.at - wait.at)} after the question")
    if not error.startswith("no reply from planner to message"):
        return _broken(f"the task was blocked for another reason: {error}")
    return _kept(f"{_minutes(end.at - wait.at)} after the question, for want of a reply")


def nothing_else_happens(record: Record) -> Verdict:
    """No other task settles; nothing is lost, dead, refused or done twice."""
    for event in record.events:
        if event.journal and event.what in _UNWANTED:
            return _broken(f"the journal says {event.what}: {dict(event.facts)}")
    if len(record.tasks) > 2:
        return _broken(f"{len(record.tasks)} tasks were delegated")
    return _kept() if record.ended else OPEN


def nothing_is_left(record: Record) -> Verdict:
    """When all is over no process runs and no key of the herd is there."""
    if record.left is None:
        return OPEN
    return _broken("left: " + ", ".join(record.left)) if record.left else _kept()


_LIFE = (
    ["created", "running", "waiting", "running", "completed"],
    ["created", "running", "waiting", "blocked"],
)

_UNWANTED = {
    *("failed", "cancelled", "timed_out", "dead", "lost", "refused", "set_aside"),
    *("returned", "late_done", "late_cancel", "second_reply"),
}


@dataclass(frozen=True)
class Promise:
    """A sentence, and how it is checked."""

    name: str
    sentence: str
    check: Callable[[Record], Verdict]


PROMISES = (
    Promise(
        "silence-settles-nothing",
        "A turn that ends and an agent that idles settle nothing.",
        silence_settles_nothing,
    ),
    Promise("one-reminder", "Each wait past 5 minutes raises exactly one reminder.", one_reminder),
    Promise("reminder-wakes-nobody", "A reminder wakes nobody.", reminder_wakes_nobody),
    Promise("reminder-is-found", "Whoever looks finds the reminder, once.", reminder_is_found),
    Promise("late-answer-counts", "A late answer resumes its task.", late_answer_counts),
    Promise("summary-is-real", "The summary is made from what was really read.", summary_is_real),
    Promise("one-settlement", "Each task settles once, and that wakes the parent.", one_settlement),
    Promise("deadline-blocks", "Only its reply deadline blocks a task.", deadline_blocks),
    Promise("nothing-else", "Nothing else settles, dies or is refused.", nothing_else_happens),
    Promise("nothing-left", "No process and no key is left.", nothing_is_left),
)


class Judge:
    """Asks every check after each event, and remembers what it said last."""

    def __init__(self, promises: tuple[Promise, ...] = PROMISES) -> None:
        self.verdicts = dict.fromkeys(promises, OPEN)

    def look(self, record: Record) -> list[tuple[Promise, Verdict]]:
        """The promises whose state is another than at the last look."""
        changed = []
        for promise, before in self.verdicts.items():
            now = promise.check(record)
            if now.word != before.word:
                changed.append((promise, now))
            self.verdicts[promise] = now
        return changed

    def close(self) -> None:
        """After a story told to its end: counts as broken what nobody saw kept."""
        for promise, verdict in self.verdicts.items():
            if verdict.word == "open":
                self.verdicts[promise] = _broken("the story ended and this was not seen")

    @property
    def broken(self) -> list[tuple[Promise, Verdict]]:
        """The promises that broke, with why."""
        return [(promise, now) for promise, now in self.verdicts.items() if now.word == "broken"]
