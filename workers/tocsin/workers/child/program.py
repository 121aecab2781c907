"""A turn that is run by a program: started, watched, ended, and judged by how it ended."""

from __future__ import annotations

import os
import signal
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from queue import Empty
from typing import TYPE_CHECKING

from tocsin.broker import Outcome, TaskState
from tocsin.broker.errors import BrokerError
from tocsin.broker.runners import CommandRunner
from tocsin.broker.turns import Ending, How
from tocsin.broker.urls import parse
from tocsin.workers.child.ending import judge
from tocsin.workers.child.folder import Folder
from tocsin.workers.child.output import Output
from tocsin.workers.child.probe import TranscriptProbe
from tocsin.workers.child.profiles import PROFILES, Profile
from tocsin.workers.child.prompt import Story

if TYPE_CHECKING:
    from tocsin.workers.child.job import Running

ORPHAN_GRACE = 2.0
"""Seconds between SIGTERM and SIGKILL for a program whose worker is gone."""

_SECRET_FROM = 8
"""Characters from which the value of a variable is hidden in what a program printed."""


def run(running: Running) -> Ending:
    """Runs the turn's program to its end, or ends it."""
    turn, runner = running.turn, running.turn.runner
    assert isinstance(runner, CommandRunner)
    profile = PROFILES.get(runner.profile)
    if profile is None:
        known = ", ".join(PROFILES)
        return Ending(
            kind=How.CRASHED, error=f"its worker knows no profile {runner.profile}, but {known}"
        )
    story = Story(
        herd=turn.herd,
        agent=turn.agent,
        number=turn.number,
        reason=turn.reason,
        attempt=turn.attempt,
        session=turn.session,
        mail=running.mail,
        tasks=running.tasks,
    )
    ours = (turn.token, running.place.url, *parse(running.place.url).secrets)
    output = Output(profile, (*ours, *_handed(runner)))
    with Folder(running.place, story, turn.token) as folder:
        ending = _run(running, runner, profile, folder, output)
        session = folder.session or output.session or turn.session
    if ending.kind is How.EXITED and ending.exit_code == 0 and runner.on_exit == "complete":
        _complete(running, output.answer)
    return ending.model_copy(update={"session": session})


def _handed(runner: CommandRunner) -> list[str]:
    """Values of the variables it is given, which may be keys of a provider; short ones are none."""
    values = [*runner.env.values(), *(os.environ.get(name, "") for name in runner.pass_env)]
    return [value for value in values if len(value) >= _SECRET_FROM]


def _run(
    running: Running, runner: CommandRunner, profile: Profile, folder: Folder, output: Output
) -> Ending:
    given = {**profile.environ, **runner.env}
    env = folder.environ(os.environ, runner.pass_env, given)
    cwd = Path(runner.cwd or tempfile.gettempdir()).expanduser()
    keeper = running.keeper
    keeper.start(
        _words(running, runner, profile),
        cwd=cwd,
        env=env,
        stdin=folder.prompt,
        grace=min(runner.stop_grace.total_seconds(), ORPHAN_GRACE),
        heard=output.feed,
        ended=lambda: running.events.put("ended"),
    )
    if count := _probe(running, runner, profile, cwd, env, output):
        running.probe(count)
    while (event := running.next_event()) is None:
        pass
    if event != "ended":
        keeper.signal(signal.SIGTERM)
        _await_end(running, runner.stop_grace.total_seconds())
    output.close()
    if event != "ended":
        return running.interrupted(event, output.tail)
    if keeper.failure is not None:
        return Ending(kind=How.CRASHED, error=keeper.failure)
    assert keeper.status is not None
    return judge(runner, profile, output, keeper.status, datetime.now().astimezone())


def _words(running: Running, runner: CommandRunner, profile: Profile) -> list[str]:
    session = running.turn.session
    if runner.resume:
        resume = [word.replace("{session}", session) for word in runner.resume] if session else []
        return [*profile.words(runner.command, None), *resume]
    return profile.words(runner.command, session)


def _await_end(running: Running, grace: float) -> None:
    """Until it has ended after SIGTERM, at most `grace` seconds; then it is killed."""
    until = time.monotonic() + grace
    killed = False
    while True:
        left = None if killed else max(0.0, until - time.monotonic())
        with suppress(Empty):
            if running.events.get(timeout=left) == "ended":
                return
            continue
        running.keeper.signal(signal.SIGKILL)
        killed = True


def _probe(
    running: Running,
    runner: CommandRunner,
    profile: Profile,
    cwd: Path,
    env: dict[str, str],
    output: Output,
) -> Callable[[], dict[str, int]] | None:
    """What counts the signs of its work; None if it gives none that anybody could see.

    A transcript that grows is one, and so are events that it prints. What any program prints is
    none: it may be a heartbeat.
    """
    if runner.transcripts:
        return TranscriptProbe(Path(runner.transcripts).expanduser())
    if not profile.events:
        return None
    where = profile.transcripts(cwd, env) if profile.transcripts else None

    def count() -> dict[str, int]:
        totals = {"output": output.size}
        session = output.session or running.turn.session
        if where is not None and session:  # other agents' transcripts may be beside it
            totals |= TranscriptProbe(where, about=session)()
        return totals

    return count


def _complete(running: Running, answer: str) -> None:
    """A clean end settles what the turn left open, as its runner has it."""
    child = running.turn.child
    for task in running.tasks:
        try:
            if child.task(task.id).state is TaskState.RUNNING:
                child.done(task.id, Outcome.COMPLETED, summary=answer or None)
        except BrokerError:  # it was settled meanwhile, or its agent is closed
            continue
