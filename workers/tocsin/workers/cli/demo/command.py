"""The command `tocsin demo`."""

from __future__ import annotations

import asyncio
import signal
import tempfile
import time
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from tocsin.broker.embedded import EmbeddedServer
from tocsin.broker.pulse import is_running
from tocsin.workers.cli.demo import timeline
from tocsin.workers.cli.demo.events import Event, Record
from tocsin.workers.cli.demo.performance import Audience, Performance
from tocsin.workers.cli.demo.promises import Judge
from tocsin.workers.cli.demo.reading import find_tree
from tocsin.workers.cli.demo.stage import StageError
from tocsin.workers.cli.output import INTERRUPTED, REFUSED, Output
from tocsin.workers.cli.session import Session, command

app = typer.Typer()


class Runs(StrEnum):
    """How the children of the demo run."""

    PROCESS = "process"
    RQ = "rq"


@command(app, "demo", example="tocsin demo --speed 60")
def demo(
    session: Session,
    speed: Annotated[
        float,
        typer.Option("--speed", min=1, max=1000, help="How many times fast the clock runs."),
    ] = 60.0,
    runner: Annotated[
        Runs,
        typer.Option(
            "--runner",
            help="How the two children run: each in a process of its own, or turn by turn, as a "
            "coding agent's command line does, started by workers of RQ.",
        ),
    ] = Runs.PROCESS,
    tree: Annotated[
        Path | None,
        typer.Option(
            "--tree",
            exists=True,
            file_okay=False,
            show_default=False,
            help="The folder to read (else the repository of Tocsin around this folder, or the "
            "source of the installed package).",
        ),
    ] = None,
) -> None:
    """Watch three agents live the main job: a task, a late answer, one reminder, a deadline.

    Real processes on a server of their own, which is gone afterwards. Each
    promise is checked as the story goes; if one breaks, the demo names it
    and ends with 1.
    """
    if session.connection.sources["url"] == "argument":
        raise typer.BadParameter("the demo brings a server of its own; leave out --url")
    folder = (tree or find_tree(Path.cwd())).resolve()
    started = time.monotonic()
    if not session.out.as_json:
        session.out.event(None, *timeline.opening(speed, str(folder), turns=runner is Runs.RQ))
    with EmbeddedServer(durable=False) as server, tempfile.TemporaryDirectory() as notes:
        pid = server.pid
        turns = Path(notes) if runner is Runs.RQ else None
        play = Performance(server.url, speed, folder, _audience(session.out), turns)
        stuck = _run(play)
    play.processes["server"] = pid
    if is_running(pid):
        play.record.left = (*(play.record.left or ()), f"process {pid} (server)")
        play.judge.look(play.record)
    _tell(session.out, play, stuck, time.monotonic() - started, speed=speed, tree=str(folder))
    if stuck or play.judge.broken:
        _refuse(session.out, play.judge, stuck)
        raise typer.Exit(REFUSED)


def _run(play: Performance) -> str | None:
    """Performs the play; what it got stuck with, if it did."""
    try:
        asyncio.run(_perform(play))
    except StageError as error:
        return str(error)
    except asyncio.CancelledError:
        raise typer.Exit(INTERRUPTED) from None
    return None


async def _perform(play: Performance) -> None:
    task = asyncio.current_task()
    assert task is not None
    for number in (signal.SIGTERM, signal.SIGHUP):
        asyncio.get_running_loop().add_signal_handler(number, task.cancel)
    await play.run()


def _audience(out: Output) -> Audience:
    def show(row: timeline.Row | None) -> None:
        if row is not None and not out.as_json:
            out.event(None, row)

    return Audience(
        event=lambda event, record: show(timeline.event_row(event, record)),
        verdict=lambda promise, verdict: show(timeline.verdict_row(promise, verdict)),
    )


def _tell(out: Output, play: Performance, stuck: str | None, seconds: float, **facts: Any) -> None:
    """The end: for people the last word, for programs the one document."""
    document = {
        "kept": not (stuck or play.judge.broken),
        "stuck": stuck,
        "seconds": round(seconds, 1),
        **facts,
        "processes": play.processes,
        "events": [_as_json(event, play.record) for event in play.record.events],
        "promises": [
            {
                "name": promise.name,
                "promise": promise.sentence,
                "verdict": verdict.word,
                "detail": verdict.detail,
            }
            for promise, verdict in play.judge.verdicts.items()
        ],
    }
    out.result(document, *timeline.closing(play.judge, stuck, seconds))


def _as_json(event: Event, record: Record) -> dict[str, Any]:
    return {
        "minute": round(record.minute(event), 3),
        "at": event.at,
        "who": event.who,
        "what": event.what,
        "text": event.text,
        "task": event.task,
        "state": event.state,
        "source": "journal" if event.journal else "agent",
        "facts": dict(event.facts),
    }


def _refuse(out: Output, judge: Judge, stuck: str | None) -> None:
    """Names on stderr what went wrong; with `--json` the document says it."""
    if out.as_json:
        return
    if stuck:
        out.refuse("stuck", "demo", stuck)
    for promise, verdict in judge.broken:
        out.refuse("broken_promise", promise.name, f"{promise.sentence} {verdict.detail}")
