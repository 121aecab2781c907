"""`tocsin worker`: the process that runs turns of children which need none of their own."""

from __future__ import annotations

import os
import sys
from contextlib import closing, suppress
from datetime import timedelta
from pathlib import Path
from typing import Annotated

import typer

from tocsin.broker import keys
from tocsin.broker.errors import Unavailable
from tocsin.broker.runners import CommandRunner
from tocsin.broker.settings import parse_duration
from tocsin.broker.validation import check_name
from tocsin.workers.cli.blocks import Rows, span
from tocsin.workers.cli.output import REFUSED
from tocsin.workers.cli.serving import LogFormat, log_to_stderr
from tocsin.workers.cli.session import Session, command

app = typer.Typer()

QUEUE: str = CommandRunner.model_fields["queue"].default
"""The queue of a runner that names none."""


@command(app, "worker", example="tocsin worker --queue tocsin --queue gpu")
def worker(
    session: Session,
    queue: Annotated[
        list[str] | None,
        typer.Option(
            "--queue",
            "-q",
            metavar="NAME",
            show_default=False,
            help="A queue whose turns it runs, the first ones first (else `tocsin`). A runner "
            "says which is its own.",
        ),
    ] = None,
    rq_url: Annotated[
        str | None,
        typer.Option(
            "--rq-url",
            metavar="URL",
            show_default=False,
            help="The plain Redis of the queues, where the fleet is on a Cluster (else "
            "TOCSIN_RQ_URL, a settings file, the fleet's server).",
        ),
    ] = None,
    name: Annotated[
        str | None,
        typer.Option(
            metavar="NAME", show_default=False, help="What its name begins with (else the host's)."
        ),
    ] = None,
    burst: Annotated[
        bool, typer.Option("--burst", help="Run what is queued now, then end.")
    ] = False,
    grace: Annotated[
        str,
        typer.Option(
            metavar="SPAN",
            help="How long a running turn may go on when the worker is told to stop.",
        ),
    ] = "10m",
    health: Annotated[
        bool,
        typer.Option("--health", help="Look whether this machine's workers are there; 0 if so."),
    ] = False,
    log_format: Annotated[
        LogFormat, typer.Option("--log-format", help="How its log on stderr is written.")
    ] = LogFormat.HUMAN,
) -> None:
    """Run turns of children that have a runner, one at a time; start as many as you like.

    A turn is one run of a coding agent's command line, or of a function in
    Python. A scheduler puts turns that are due into queues of RQ; a worker
    on any machine takes one, runs it, and says how it ended. It needs the
    programs that it is to run, their folders and their logins; functions
    are imported from the folder where it was started, too.

    SIGTERM or Ctrl-C lets the running turn end, for --grace at most; a
    second one stops it. A turn that was stopped is run again, and a worker
    that was killed has lost its own, which is tried again.

    Ordinary tools of RQ see it all: `rq info --url ...`, `rq-dashboard --json`.
    """
    place = session.place("worker")
    url = rq_url or place.queues_url
    session.out.hide(url)
    if health:
        _health(session, url)
        return
    queues = [check_name("worker", "queue", each) for each in queue or [QUEUE]]
    seconds = parse_duration(grace, operation="worker", field="--grace")
    if name is not None:
        check_name("worker", "name", name)
    log_to_stderr(log_format)
    _check_fleet(session, place.fleet)
    # Where its turns find the fleet: each is a process that inherits this environment.
    os.environ["TOCSIN_URL"] = place.url
    if (folder := str(Path.cwd())) not in sys.path:
        sys.path.insert(0, folder)
    from tocsin.workers.child import worker  # RQ is slow to import

    def ready(called: str) -> None:
        session.out.event(
            {"worker": called, "queues": queues, "pid": os.getpid()},
            f"Worker {called} runs turns of {', '.join(queues)}; Ctrl-C stops it.",
        )

    worker.serve(url, queues, name=name, burst=burst, grace=seconds, ready=ready)


def _check_fleet(session: Session, name: str) -> None:
    """Refuses a fleet that is there and does not agree with what is set here: each turn would fail.

    One that is not there is left to whoever uses it first, one that is away is waited for.
    """
    key = keys.fleet(name)
    with suppress(Unavailable), closing(session):
        if session.broker.link.command("worker", "EXISTS", key, key=key):
            session.broker.fleet()


def _health(session: Session, url: str) -> None:
    from tocsin.workers.child import worker

    try:
        workers, problems = worker.check(url)
    except Unavailable as error:
        workers, problems = [], [error.detail]
    session.out.result(
        {"healthy": not problems, "problems": problems, "workers": workers},
        Rows(
            ("worker", "state", "queues", "seen"),
            [
                (
                    each["worker"],
                    each["state"],
                    ", ".join(each["queues"]),
                    f"{span(timedelta(milliseconds=each['seen_ms']))} ago",
                )
                for each in workers
            ],
            empty="",
        ),
        *problems,
    )
    if problems:
        raise typer.Exit(REFUSED)
