"""How a program's turn ended, by its exit code and what it printed. Pure."""

from __future__ import annotations

import re
import signal
from collections.abc import Iterable
from datetime import datetime

from tocsin.broker.runners import CommandRunner
from tocsin.broker.turns import Ending, How
from tocsin.workers.child.output import Output
from tocsin.workers.child.profiles import Profile
from tocsin.workers.child.profiles.resets import reset_time


def judge(
    runner: CommandRunner, profile: Profile, output: Output, status: int, now: datetime
) -> Ending:
    """What an end that nobody asked for was; `status` is negative for a signal.

    A profile's patterns look at what the program says of itself: its events, and its standard
    error if it failed. The model's words and its mail are not looked at, because they may speak of
    limits too. The runner's own patterns look at the tail of all that it printed.
    """
    said, tail = output.verdict or "", output.tail
    own = said or (output.errors if status else "")
    session = output.session
    if _found(profile.limits, own):
        return _ended(How.LIMITED, runner, status, own, tail, session, reset_time(own, now))
    if _found(runner.limit_patterns, tail):
        return _ended(How.LIMITED, runner, status, own, tail, session, reset_time(tail, now))
    broke = said or _found(runner.error_patterns, tail)
    if broke or (status and _found(profile.errors, own)):
        return _ended(How.PROVIDER_ERROR, runner, status, own, tail, session)
    kind = How.CRASHED if status < 0 else How.EXITED
    return _ended(kind, runner, status, "", tail, session)


def _ended(
    kind: How,
    runner: CommandRunner,
    status: int,
    said: str,
    tail: str,
    session: str | None,
    until: datetime | None = None,
) -> Ending:
    how = how_it_ended(runner.command[0], status)
    return Ending(
        kind=kind,
        exit_code=status if status >= 0 else None,
        signal=-status if status < 0 else None,
        error=f"{how}: {' '.join(said.split())[:500]}" if said else how if status else None,
        tail=tail,
        session=session,
        limited_until=until,
    )


def how_it_ended(program: str, status: int) -> str:
    """An exit code or a signal, in words."""
    if status >= 0:
        return f"{program} ended with {status}"
    try:
        name = signal.Signals(-status).name
    except ValueError:
        name = f"signal {-status}"
    return f"{program} was ended by {name}"


def _found(patterns: Iterable[re.Pattern[str] | str], text: str) -> bool:
    return any(re.search(pattern, text) for pattern in patterns)
