"""What a run came to, for people and for machines."""

from __future__ import annotations

import statistics
from collections import Counter
from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table

from tests.acceptance.chaos.plan import EVERYTHING, SERVER
from tests.acceptance.chaos.proof import History, Line, Violation

NAMES = {
    "kills": ("kill", "end"),
    "freezes": ("freeze", "sleep", "freeze server"),
    "cuts": ("cut", "lose", "silence", "drop clients"),
    "floods": ("flood",),
    "servers killed": ("kill server",),
    "slot moves": ("move slot", "move slot by key"),
}


def recovery(history: History) -> list[float]:
    """Seconds from each fault until work went on.

    Of the server, or the whole machine: until mail was acked again. Of the line of a process: until
    it had an answer to anything. Of a process: until all mail that it held was in hands again, or
    acked; nothing held, nothing to recover.
    """
    times: list[float] = []
    for fault in history.by_event["breaks"]:
        if fault["what"] in ("flood", "forget scripts") or fault["target"].startswith("scheduler"):
            continue
        later = [line for line in history.lines if line["t"] > fault["t"]]
        if fault["target"] in (SERVER, EVERYTHING):
            signs = [line["t"] for line in later if line["event"] == "acked"][:1]
        elif fault["what"] in ("cut", "lose", "silence"):
            told = ("took", "acked", "answered")
            of_it = [line for line in later if line["slot"] == fault["target"]]
            signs = [line["t"] for line in of_it if line["event"] in told][:1]
        else:
            signs = list(_in_hands_again(history, fault, later).values())
        times += [max(signs) - fault["t"]] if signs else []
    return times


def _in_hands_again(history: History, fault: Line, later: list[Line]) -> dict[str, float]:
    """Of what a process held when it was hit: when somebody took or acked it."""
    held: set[str] = set()
    for line in history.lines:
        if line["slot"] == fault["target"] and line["t"] < fault["t"]:
            if line["event"] == "took":
                held |= set(line["messages"])
            elif line["event"] in ("acked", "acked some", "nacked"):
                held -= set(line["messages"])
    again: dict[str, float] = {}
    for line in later:
        if line["event"] in ("took", "acked", "acked some"):
            for name in held & set(line["messages"]):
                again.setdefault(name, line["t"])
    return again


def figures(
    seed: int, seconds: float, history: History, violations: list[Violation]
) -> dict[str, Any]:
    """The figures of a run."""
    letters = history.story.letters.values()
    faults = Counter(line["what"] for line in history.by_event["breaks"])
    ends = Counter(end["event"] for task in history.story.settled.values() for end in task)
    kinds = Counter(violation.kind for violation in violations)
    times = recovery(history)
    repeats = sum(1 for line in history.by_event["answered"] if line["said"].get("duplicate"))
    return {
        "seed": seed,
        "seconds": seconds,
        "messages": len(letters),
        "handled": sum(bool(letter.handled) for letter in letters),
        "dead letters": sum(bool(letter.buried) for letter in letters),
        "taken back": sum(bool(letter.withdrawn) and not letter.handled for letter in letters),
        "handed out again": sum(len(letter.taken) > 1 for letter in letters),
        "calls of unknown outcome": len(history.by_event["unknown"]),
        "sends that were repeats": repeats,
        "late replies": sum(letter.late for letter in letters),
        "tasks": dict(sorted(ends.items())),
        "waits": len(history.story.episodes),
        "reminders": sum(len(wait.reminded) for wait in history.story.episodes),
        **{name: sum(faults[what] for what in group) for name, group in NAMES.items()},
        "duplicates handled in effect": kinds["twice"],
        "lost": kinds["lost"],
        "time to recover": {
            "median": round(statistics.median(times), 2) if times else None,
            "max": round(max(times), 2) if times else None,
            "of": len(times),
        },
        "violations": [vars(violation) for violation in violations],
    }


def show(console: Console, said: dict[str, Any]) -> None:
    """The figures as a table, and below it what broke."""
    title = f"chaos on a {said['on']}: seed {said['seed']}, {said['seconds']:g} s"
    table = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD, show_header=False)
    table.add_column()
    table.add_column(justify="right")
    for name, value in said.items():
        if name == "time to recover":
            shown = f"median {value['median']} s, max {value['max']} s, of {value['of']}"
        elif name == "tasks":
            shown = ", ".join(f"{state} {number}" for state, number in value.items())
        else:
            shown = f"{value:,}" if isinstance(value, int) else str(value)
        if name not in ("on", "seed", "seconds", "violations"):
            table.add_row(name, shown)
    console.print(table)
    for violation in said["violations"]:
        console.print(f"{violation['promise']}  {violation['what']}", markup=False)
    console.print("every promise held" if not said["violations"] else "promises were broken")
