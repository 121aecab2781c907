"""The judge: from the herd's journal and the logs of all processes, whether the promises held.

Pure. The journal is the server's own account, in the order in which things happened; the logs are
those of the processes, on one clock (`t`, seconds). Each must bear the other out. Every check
yields what it finds broken; `test_proof.py` shows each of them a history that it must refuse.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from tests.acceptance.chaos.plan import EVERYTHING, SCHEDULERS, SERVER, SLOTS, agent_of

Line = dict[str, Any]

ENDS_OF_TASKS = {"completed", "failed", "blocked", "cancelled", "timed_out"}

PATIENCE = 10.0
"""Seconds in which nothing is broken, after which a stale wait must have had its reminder: the
longest back-off of a client that found the server away, and then some."""

TAKEN_BACK = {"task", "request", "notice", "reminder"}
"""Kinds of mail that may be taken back unread, because what they ask for or tell of has ended."""


@dataclass(frozen=True)
class Violation:
    """A promise that did not hold, and of what."""

    promise: str
    what: str
    kind: str = ""
    """`lost` or `twice`, of mail; empty for the rest."""


@dataclass
class Letter:
    """What the journal tells of one envelope: the places in it, in order."""

    kind: str
    recipient: str
    late: bool = False
    accepted: list[int] = field(default_factory=list)
    taken: list[int] = field(default_factory=list)
    handled: list[int] = field(default_factory=list)
    buried: list[int] = field(default_factory=list)
    withdrawn: list[int] = field(default_factory=list)
    asked_again: list[int] = field(default_factory=list)
    reason: str = ""

    @property
    def ends(self) -> list[int]:
        """Where it came to an end."""
        return sorted(self.handled + self.buried + self.withdrawn)


@dataclass
class Episode:
    """One wait of a task, in ms of the fleet."""

    task: str
    number: int
    begins: int
    ends: int | None = None
    reminded: list[int] = field(default_factory=list)


@dataclass
class Story:
    """The journal, by what it is about."""

    letters: dict[str, Letter] = field(default_factory=dict)
    settled: dict[str, list[Line]] = field(default_factory=dict)
    episodes: list[Episode] = field(default_factory=list)
    stray_reminders: list[str] = field(default_factory=list)
    broken: list[Line] = field(default_factory=list)

    def outstanding(self) -> list[str]:
        """Envelopes, and reminders of open waits, that nobody has handled yet."""
        mail = [name for name, letter in self.letters.items() if not letter.ends]
        told = [reminder_of(wait) for wait in self.episodes if wait.reminded and not wait.ends]
        return mail + [name for name in told if name not in self.letters]

    def open_tasks(self) -> list[str]:
        """Tasks that nothing has settled yet."""
        return [task for task, ends in self.settled.items() if not ends]


def bare(name: str) -> str:
    """`task_x` -> `x`: what Tocsin makes the ids of its own mail from."""
    return name.partition("_")[2]


def reminder_of(wait: Episode) -> str:
    """The id of an episode's reminder."""
    return f"msg_reminder_{bare(wait.task)}_{wait.number}"


def read_story(journal: list[Line]) -> Story:
    """The journal of a herd, oldest line first."""
    story, waits = Story(), dict[str, Episode]()
    for place, line in enumerate(journal):
        _read_mail(story, place, line)
        _read_tasks(story, waits, line)
        if line["event"] in ("set_aside", "refused"):
            story.broken.append(line)
    return story


def _read_mail(story: Story, place: int, line: Line) -> None:
    match line["event"]:
        case "accepted":
            letter = _letter(story, line["message"], line["kind"], line["recipient"])
            letter.accepted.append(place)
            letter.late = bool(line.get("late"))
        case "delegated" if line.get("queued"):  # its envelope comes when there is a slot
            name = f"msg_task_{bare(line['task'])}"
            _letter(story, name, "task", line["agent"]).accepted.append(place)
        case "taken":
            for name in line["messages"]:
                _letter(story, name).taken.append(place)
        case "handled":
            for name in line["messages"]:
                _letter(story, name).handled.append(place)
        case "dead" | "withdrawn" as event:
            letter = _letter(story, line["message"])
            (letter.buried if event == "dead" else letter.withdrawn).append(place)
            letter.reason = line["reason"]
        case "request_no_reply":
            _letter(story, line["message"]).asked_again.append(place)


def _read_tasks(story: Story, waits: dict[str, Episode], line: Line) -> None:
    match line["event"]:
        case "delegated":
            story.settled.setdefault(line["task"], [])
        case "waiting":
            waits[line["task"]] = Episode(line["task"], int(line["episode"]), line["at"])
            story.episodes.append(waits[line["task"]])
        case "reminded":
            for task in line["tasks"]:
                if task in waits:
                    waits[task].reminded.append(line["at"])
                else:
                    story.stray_reminders.append(task)
        case event if event == "running" or event in ENDS_OF_TASKS:
            if line["task"] in waits:
                waits.pop(line["task"]).ends = line["at"]
            if event != "running":
                story.settled.setdefault(line["task"], []).append(line)


def _letter(story: Story, name: str, kind: str = "reminder", recipient: str = "parent") -> Letter:
    """The letter of this name; what was never accepted is a reminder, whose text is made late."""
    return story.letters.setdefault(name, Letter(kind, recipient))


@dataclass
class History:
    """All that is known of a run. `zero` and `factor`: `t` 0 in ms of the fleet, and its speed."""

    journal: list[Line]
    lines: list[Line]
    threshold: int
    zero: float = 0.0
    factor: float = 1.0

    def __post_init__(self) -> None:
        self.story = read_story(self.journal)
        self.lines.sort(key=lambda line: line["t"])
        self.by_event: dict[str, list[Line]] = defaultdict(list)
        for line in self.lines:
            self.by_event[line["event"]].append(line)
        self.asks = _calls(self)

    def seconds(self, at: int) -> float:
        """A moment of the fleet on the clock of the logs."""
        return (at - self.zero) / 1000 / self.factor


def _calls(history: History) -> dict[str, int]:
    """By the id of its answer, how many calls waited for it and never told what came of them."""
    open_calls: dict[str, int] = defaultdict(int)
    for line in history.lines:
        if line.get("operation") == "ask":
            open_calls[line["message"]] += {"meant": 1, "unknown": 1, "answered": -1}.get(
                line["event"], 0
            )
    answers = {
        line["message"]: line["request"]
        for line in history.by_event["meant"]
        if line["operation"] == "reply"
    }
    return {answer: open_calls[asked] for answer, asked in answers.items() if asked in open_calls}


def judge(history: History) -> list[Violation]:
    """All that is broken; nothing if the promises held."""
    checks = (lost, repeated, handlers, senders, settlements, reminded, broken)
    return [violation for check in checks for violation in check(history)]


# ---------------------------------------------------------------------------- P9, P11


def lost(history: History) -> Iterator[Violation]:
    """P11: what was accepted was handled, by a handler that says so, or is in dead letters."""
    took = {name for line in history.by_event["took"] for name in line["messages"]}
    heard = {
        line["said"]["message_id"]
        for line in history.by_event["answered"]
        if line["operation"] == "ask"
    }
    for name, letter in history.story.letters.items():
        promise = "P9" if letter.late else "P11"
        about = f"{letter.kind} {name} to {letter.recipient}"
        if not letter.ends:
            yield Violation(promise, f"{about} was accepted, and nothing came of it", "lost")
        elif letter.withdrawn and not letter.handled and letter.kind not in TAKEN_BACK:
            yield Violation(promise, f"{about} was taken back: {letter.reason}", "lost")
        elif letter.handled and name not in took | heard and not history.asks.get(name):
            yield Violation(promise, f"{about} counts as handled, and no handler had it", "lost")
        if letter.buried and not letter.reason.startswith("failed"):
            yield Violation(promise, f"{about} is a dead letter for no reason: {letter.reason}")


# ---------------------------------------------------------------------------- P12


def repeated(history: History) -> Iterator[Violation]:
    """P12: handled once in effect. What has ended is handed out no more, and ends no second time.

    An ask that got no reply may be asked again, and a waiting call that was cut off in the moment
    of its answer gives that back, to come as mail.
    """
    for name, letter in history.story.letters.items():
        about = f"{letter.kind} {name} to {letter.recipient}"
        if len(letter.accepted) > 1:
            yield Violation("P12", f"{about} was accepted {len(letter.accepted)} times", "twice")
        spare = history.asks.get(name, 0) + len(letter.asked_again)
        if len(letter.handled) > 1 + spare:
            yield Violation("P12", f"{about} was handled {len(letter.handled)} times", "twice")
        if not spare and letter.ends and any(at > letter.ends[0] for at in letter.taken):
            yield Violation("P12", f"{about} was handed out after it had ended", "twice")


def handlers(history: History) -> Iterator[Violation]:
    """P12: of all processes that had a message, one was told that its handling counts."""
    counts: dict[str, set[str]] = defaultdict(set)
    for line in history.by_event["acked"]:
        for name in set(line["messages"]) - set(line["fenced"]):
            counts[name].add(line["instance"])
    for name, instances in counts.items():
        if name not in history.story.letters:
            yield Violation("P11", f"{name} counts as handled, and was never there", "lost")
            continue
        spare = history.asks.get(name, 0) + len(history.story.letters[name].asked_again)
        if len(instances) > 1 + spare:
            yield Violation("P12", f"{name} counts as handled by {sorted(instances)}", "twice")


def senders(history: History) -> Iterator[Violation]:
    """P11, P12: each thing that was meant has one outcome, and the journal knows the same."""
    ends: dict[str, list[Line]] = defaultdict(list)
    for event in ("answered", "refused", "abandoned"):
        for line in history.by_event[event]:
            ends[line["key"]].append(line)
    meant = {line["key"]: line for line in history.by_event["meant"]}
    for key, line in meant.items():
        what, answers = line["operation"], [end for end in ends[key] if end["event"] == "answered"]
        of_outbox = not key.startswith(("msg_", "task_"))
        if of_outbox and not ends[key]:
            yield Violation("P12", f"{what} {key} never had an answer")
        if what not in ("message", "delegate", "reply"):
            continue
        name = line["message"] if what != "delegate" else f"msg_task_{bare(line['task'])}"
        stood = {end["said"].get("message_id", name) for end in answers}
        if len(stood) > 1:
            yield Violation(
                "P12", f"{what} {key} became several envelopes: {sorted(stood)}", "twice"
            )
        if any(end["said"].get("superseded") for end in answers):
            yield Violation("P12", f"{what} {key} was taken for another answer")
        letter = history.story.letters.get(stood.pop() if stood else name)
        if answers and (letter is None or not letter.accepted):
            yield Violation("P11", f"{what} {key} was answered, and never accepted", "lost")
        if ends[key] and not answers and letter is not None and letter.accepted:
            yield Violation("P12", f"{what} {key} was refused, and accepted all the same")


# ---------------------------------------------------------------------------- P10


def settlements(history: History) -> Iterator[Violation]:
    """P10: each task ends once, by `done`, a failure, a cancel or a deadline, and is told once."""
    meant = history.by_event["meant"]
    said = {(line["task"], line["outcome"]) for line in meant if line["operation"] == "done"}
    cancelled = {line["task"] for line in meant if line["operation"] == "cancel"}
    heard: dict[str, set[str]] = defaultdict(set)
    for line in history.by_event["answered"]:
        if line["operation"] in ("done", "cancel"):
            heard[line["task"]].add(line["said"]["status"])
    timed = {line["task"] for line in history.journal if line["event"] == "request_expired"}
    for task, ends in history.story.settled.items():
        states = [end["event"] for end in ends]
        if len(ends) != 1:
            yield Violation("P10", f"task {task} was settled {len(ends)} times: {states}")
            continue
        envelope = history.story.letters.get(f"msg_task_{bare(task)}")
        reasons = {
            "completed": (task, "completed") in said,
            "failed": (task, "failed") in said or bool(envelope and envelope.buried),
            "blocked": task in timed,
            "cancelled": task in cancelled,
            "timed_out": "deadline" in (ends[0].get("error") or ""),
        }
        if not reasons[states[0]]:
            yield Violation("P10", f"task {task} is {states[0]}, and nobody had it so")
        if heard[task] - set(states):
            yield Violation("P10", f"task {task} is {states[0]}; some heard {sorted(heard[task])}")
        told = history.story.letters.get(f"msg_settled_{bare(task)}")
        if told is None or not told.accepted:
            yield Violation("P10", f"the settlement of task {task} was not told")


# ---------------------------------------------------------------------------- P1


def reminded(history: History) -> Iterator[Violation]:
    """P1: an episode has no reminder below the threshold, at most one, and one if it stayed stale.

    Stale "while the parent was live": for so long that nothing was broken for `PATIENCE` seconds
    in a row, with a parent and a scheduler at work.
    """
    story, calm = history.story, calm_spans(history)
    for task in story.stray_reminders:
        yield Violation("P1", f"task {task} was reminded of, and did not wait")
    for wait in story.episodes:
        about = f"wait {wait.number} of task {wait.task}"
        if len(wait.reminded) > 1:
            yield Violation("P1", f"{about} has {len(wait.reminded)} reminders")
        if any(at - wait.begins < history.threshold for at in wait.reminded):
            yield Violation("P1", f"{about} was reminded of before it was stale")
        if not wait.reminded:
            stale = history.seconds(wait.begins + history.threshold)
            ends = history.seconds(wait.ends) if wait.ends else float("inf")
            for begins, over in calm:
                if min(ends, over) - max(stale, begins) >= PATIENCE:
                    yield Violation("P1", f"{about} stayed stale, and nobody was reminded")
                    break


def calm_spans(history: History) -> list[tuple[float, float]]:
    """When the server, a parent and a scheduler were at work, by the faults that were recorded."""
    down: set[str] = set()
    spans, since = [], None
    parents = {slot for slot in SLOTS if agent_of(slot) == "parent"}
    for line in history.lines:
        if line["event"] == "breaks":
            down.add(line["target"])
        elif line["event"] == "heals":
            down.discard(line["target"])
        elif line["event"] not in ("started", "over"):
            continue
        ill = {SERVER, EVERYTHING} & down or parents <= down or set(SCHEDULERS) <= down
        calm = not ill and line["event"] != "over"
        if calm and line["event"] != "breaks" and since is None:
            since = line["t"]
        elif not calm and since is not None:
            spans.append((since, line["t"]))
            since = None
    return spans


# ---------------------------------------------------------------------------- the rest


def broken(history: History) -> Iterator[Violation]:
    """P16: no process ended of itself, no record was set aside, nobody was taken for another."""
    for line in history.by_event["crashed"]:
        yield Violation("P16", f"{line['slot']} crashed: {line['error']}")
    for line in history.story.broken:
        yield Violation("P16", f"{line['event']}: {line}")
