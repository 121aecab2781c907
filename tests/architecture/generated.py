"""Writes the parts of ARCHITECTURE.md and README.md that are told from the code.

Each stands between `<!-- generated: name -->` and `<!-- end -->`. Run by `make generate`
(`python -m tests.architecture.generated`); a test compares.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterable
from pathlib import Path

from tests.lua import sources
from tocsin.broker import errors, keys, scripts, settings
from tocsin.broker.states import MOVES, OPEN, RETURN_CODES, TaskState

PROJECT = Path(__file__).resolve().parents[2]
DOCUMENTS = (PROJECT / "ARCHITECTURE.md", PROJECT / "README.md")

_PART = re.compile(r"(<!-- generated: (\w+) -->\n).*?(<!-- end -->)", re.DOTALL)

TIMERS = {
    "0:close:<agent>, 0:close:herd": ("at once", "one more pass of closing"),
    "1:deadline:<task>": ("the task's deadline", "the task is `timed_out`"),
    "2:reply:<request>": ("the reply deadline", "the task is `blocked`, or the asker is told"),
    "3:ceiling:<ask>": (
        "the ask's start + its ceiling",
        "the ask ends `ceiling_active`, or `no_reply`",
    ),
    "4:window:<ask>": (
        "the last sign of work + the ask's window",
        "on from a later sign of work, or the ask ends `no_reply`",
    ),
    "5:stale": ("the oldest wait + threshold", "reminders, a batch at a time"),
    "6:deliver:<message>": ("the delay of a `nack`", "the mail is there to be taken again"),
    "6:turn:<agent>": (
        "the first mail that wakes + `wake_batch`, or the end of a pause",
        "the turn is to be launched, or again if nobody began it; one that runs on is lost",
    ),
    "7:lease:<agent>": ("end of the earliest lease", "a look at the agent's instances"),
    "7:attend:<ask>": (
        "a grace after its last waiting call counts",
        "what the ask came to becomes mail",
    ),
    "8:away:<agent>": ("`away_after` without a live instance", "one notice to the parent"),
    "9:forget:m:<message>, 9:forget:t:<task>, 9:forget:p:<plan>, 9:forget:a:<agent>, "
    "9:forget:herd, 9:forget:journal": (
        "the end of a retention",
        "the record goes, of a journal its old lines",
    ),
}
"""Members of a herd's `due` set, in the order in which those of one millisecond fire."""


def _table(titles: str, rows: Iterable[Iterable[str]]) -> str:
    names = [title.strip() for title in titles.split("|")]
    cells = [[cell.replace("|", "\\|") for cell in row] for row in rows]
    lines = [names, ["---"] * len(names), *cells]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def keys_table() -> str:
    """Every key, from `keys.KEYS`."""
    above = [
        (
            "`tocsin:{fleet}`",
            "hash",
            "fleet",
            "never",
            "shape of the fleet, its scaled clock, limits of turns",
        ),
        (
            "`tocsin:{fleet}:schedulers`",
            "hash",
            "fleet",
            "an hour",
            "what schedulers last reported",
        ),
        (
            "`tocsin:{fleet}:slots`, `...:slots:queue/{queue}`, `...:slots:account/{account}`",
            "zset",
            "fleet",
            "empty",
            "turn -> until when it has its slot",
        ),
        ("`tocsin:{fleet:number}`", "hash", "partition", "never", "the partition's clock"),
    ]
    below = [
        (f"`…:{spec.template}`", spec.type, spec.owner, spec.ends, spec.holds)
        for spec in keys.KEYS.values()
    ]
    return _table("key | type | owner | ends with | holds", [*above, *below])


def states_chart() -> str:
    """The state chart, from `states.MOVES`."""
    lines = ["```mermaid", "stateDiagram-v2", "    [*] --> created: delegate"]
    for move in MOVES:
        sources = [state for state in TaskState if state in move.sources]
        lines += [f"    {source} --> {move.target}: {move.event}" for source in sources]
    lines += [f"    {state} --> [*]" for state in TaskState if state not in OPEN]
    return "\n".join([*lines, "```", "", ""]) + states_table()


def states_table() -> str:
    """The same as a table, with who moves and the return codes."""
    rows = []
    for move in MOVES:
        sources = ", ".join(state for state in TaskState if state in move.sources)
        code = RETURN_CODES.get(move.target)
        rows.append(
            (move.event, sources, move.target, "" if code is None else str(code), move.mover)
        )
    return _table("event | from | to | return code | moved by", rows)


def scripts_table() -> str:
    """Every script, from its header."""
    rows = []
    for script in map(scripts.load, scripts.names()):
        moves = " ".join(sorted(script.moves)) or "–"
        full = "yes" if script.memory else "no"
        rows.append((f"`{script.name}`", script.summary, ", ".join(script.answers), moves, full))
    return _table("script | what it does | answers | moves | in a full memory", rows)


def includes_table() -> str:
    """Every include, from the first sentence of its comment."""
    rows = []
    for name in sources.include_names():
        comment = sources.text_of(f"include/{name}").split("\n\n")[0].replace("\n-- ", " ")
        rows.append((f"`{name}`", comment.removeprefix("-- ").split(". ")[0].rstrip(".") + "."))
    return _table("include | its subject", rows)


def timers_table() -> str:
    """The timers of a herd."""
    rows = [
        (", ".join(f"`{one}`" for one in members.split(", ")), due, does)
        for members, (due, does) in TIMERS.items()
    ]
    return _table("timer | due at | what fires", rows)


def settings_table() -> str:
    """Every setting, from `settings.describe`."""
    rows = [
        (f"`{row.name}`", f"`{row.default}`", row.kind, f"`{row.variable}`", row.description)
        for row in settings.describe()
    ]
    return _table("setting | default | kind | variable | what it does", rows)


def errors_table() -> str:
    """Every error, from the tree."""
    rows = [
        (f"`{code}`", "yes" if kind.retryable else "no", (kind.__doc__ or "").split("\n")[0])
        for code, kind in sorted(errors.CODES.items())
    ]
    return _table("code | may the same call succeed later | when", rows)


PARTS: dict[str, Callable[[], str]] = {
    "keys": keys_table,
    "states": states_chart,
    "scripts": scripts_table,
    "includes": includes_table,
    "timers": timers_table,
    "settings": settings_table,
    "errors": errors_table,
}


def current(text: str) -> str:
    """The document with its generated parts as they should be."""
    return _PART.sub(lambda found: found[1] + PARTS[found[2]]() + found[3], text)


def parts_of(text: str) -> list[str]:
    """The names of a document's generated parts."""
    return [found[2] for found in _PART.finditer(text)]


def main() -> None:
    """Writes the documents whose parts are not current."""
    for path in DOCUMENTS:
        text = path.read_text("utf-8")
        if text != current(text):
            path.write_text(current(text), "utf-8")
            sys.stdout.write(f"wrote {path.name}\n")


if __name__ == "__main__":
    main()
