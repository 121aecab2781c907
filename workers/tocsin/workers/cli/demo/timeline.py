"""The timeline: who did what at which minute of the fleet, and the promises as they are kept."""

from __future__ import annotations

from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.text import Text

from tocsin.workers.cli.blocks import clean, state
from tocsin.workers.cli.demo.events import Event, Record
from tocsin.workers.cli.demo.promises import Judge, Promise, Verdict

STYLES = {
    "parent": "bold magenta",
    "scout": "bold blue",
    "planner": "bold cyan",
    "scheduler": "bold yellow",
}

MARKS = {"kept": ("✓", "green"), "broken": ("✗", "bold red"), "open": ("?", "yellow")}

_WHEN, _WHO, _STATE = 7, 11, 18
_NARROWEST = 24


def clock(minutes: float) -> str:
    """Minutes and seconds of the fleet: `5:00`."""
    seconds = max(0, int(minutes * 60))
    return f"{seconds // 60}:{seconds % 60:02}"


class Row:
    """One line of the timeline; a longer text goes on under itself."""

    def __init__(self, when: str, who: Text, what: Text, right: Text | None = None) -> None:
        self._when, self._who, self._what, self._right = when, who, what, right or Text()

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        left = Text.assemble((f"{self._when:>{_WHEN - 2}}  ", "dim"), self._who)
        left.pad_right(max(0, _WHEN + _WHO - left.cell_len))
        width = max(_NARROWEST, options.max_width - _WHEN - _WHO - _STATE)
        for number, line in enumerate(self._what.wrap(console, width)):
            line.rstrip()
            if number:
                yield Text.assemble(" " * (_WHEN + _WHO), line)
                continue
            if self._right.plain and console.is_terminal:
                line.pad_right(max(0, width - line.cell_len))
            yield Text.assemble(left, line, "  " if self._right.plain else "", self._right)


def opening(speed: float, tree: str, *, turns: bool = False) -> list[RenderableType]:
    """What the audience should know beforehand."""
    cast = (
        "A parent, a scheduler and two workers, which run the turns of two children, a program each"
        if turns
        else "Three agents and a scheduler, each a process of its own"
    )
    text = (
        f"{cast}, on a server of their own. "
        f"Their clock runs {speed:g} times fast; minutes are theirs. Scout reads {clean(tree)}"
    )
    return [Text("Tocsin, the main job", style="bold"), Text(text, style="dim"), ""]


def event_row(event: Event, record: Record) -> Row | None:
    """The row of an event; None if there is nothing to show of it."""
    if not event.text:
        return None
    right = Text()
    if event.task in record.tasks:
        number = record.tasks.index(event.task) + 1
        right = Text.assemble((f"task {number} ", "dim"), state(record.states(event.task)[-1]))
    who = Text(event.who, style=STYLES.get(event.who, "bold"))
    return Row(clock(record.minute(event)), who, Text(clean(event.text)), right)


def verdict_row(promise: Promise, verdict: Verdict) -> Row | None:
    """The row of a promise that was just kept or broken."""
    if verdict.word == "open":
        return None
    mark, style = MARKS[verdict.word]
    text = Text(promise.sentence, style=style)
    if verdict.detail:
        text.append(f" ({clean(verdict.detail)})", style="dim")
    return Row("", Text(f"        {mark}", style=style), text)


def closing(judge: Judge, stuck: str | None, seconds: float) -> list[RenderableType]:
    """The last word."""
    count, broken = len(judge.verdicts), len(judge.broken)
    if stuck:
        text = Text("The story was not told to its end.", style="bold red")
    elif broken:
        text = Text(f"{broken} of {count} promises broken.", style="bold red")
    else:
        text = Text(f"All {count} promises kept, in {seconds:.0f} s.", style="bold green")
    return ["", text]
