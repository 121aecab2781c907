"""A turn that is run by a function in Python, in the process of its job."""

from __future__ import annotations

import asyncio
import importlib
import inspect
import os
import signal
import threading
import traceback
from collections.abc import Callable
from functools import partial
from threading import Event, Thread
from typing import TYPE_CHECKING, Any, NoReturn

from tocsin.broker import AsyncBroker, AsyncChild
from tocsin.broker.runners import CallableRunner
from tocsin.broker.turns import Ending, How
from tocsin.broker.validation import printable
from tocsin.workers.child.turn import Turn

if TYPE_CHECKING:
    from tocsin.workers.child.job import Running


class Stopped(BaseException):
    """Raised in a function whose turn must end, wherever it is."""


def run(running: Running) -> Ending:
    """Calls the turn's function; it is interrupted, once, when the turn must end."""
    turn, runner = running.turn, running.turn.runner
    assert isinstance(runner, CallableRunner)
    try:
        function = _load(runner.function)
    except (ImportError, AttributeError, SyntaxError) as error:
        return Ending(kind=How.CRASHED, error=f"{runner.function} cannot be imported: {error}")
    guard = _Guard(running)
    facts: dict[str, Any] = {
        "number": turn.number,
        "reason": turn.reason,
        "attempt": turn.attempt,
        "session": turn.session,
        "mail": running.mail,
        "tasks": running.tasks,
    }
    try:
        with guard:
            if inspect.iscoroutinefunction(function):
                session = asyncio.run(_call_async(guard, running, function, facts))
            else:
                context = Turn(turn.child, **facts)
                function(context)
                session = context.session
    except (Stopped, asyncio.CancelledError):
        return running.interrupted(guard.why or "signal")
    except SystemExit as error:
        if guard.why:
            return running.interrupted(guard.why)
        return _exited(runner.function, error.code)
    except Exception as error:
        if guard.why:
            return running.interrupted(guard.why)
        why = printable(f"{type(error).__name__}: {error}"[:500])
        tail = printable(traceback.format_exc()[-4_000:])
        return Ending(kind=How.EXITED, exit_code=1, error=why, tail=tail)
    return Ending(kind=How.EXITED, exit_code=0, session=session)


def _exited(name: str, code: object) -> Ending:
    """The end of a function that left as a program does, by `sys.exit`."""
    if code is None or code == 0:
        return Ending(kind=How.EXITED, exit_code=0)
    said = f"{name} ended with {code}" if isinstance(code, int) else f"{name} ended: {code}"
    number = code if isinstance(code, int) else 1
    return Ending(kind=How.EXITED, exit_code=number, error=printable(said[:500]))


def _load(name: str) -> Callable[[Turn], Any]:
    module, _, path = name.partition(":")
    found: Any = importlib.import_module(module)
    for part in path.split("."):
        found = getattr(found, part)
    if not callable(found):
        raise AttributeError(f"{path} is no function")
    return found  # type: ignore[no-any-return]


async def _call_async(
    guard: _Guard, running: Running, function: Callable[[Turn], Any], facts: dict[str, Any]
) -> str | None:
    task = asyncio.current_task()
    assert task is not None
    # Not the loop's own handler of signals: as it closes it would let the next kill the process.
    guard.interrupt = partial(asyncio.get_running_loop().call_soon_threadsafe, task.cancel)
    place, child = running.place, running.turn.child
    async with AsyncBroker.connect(place.url, fleet=place.fleet) as broker:
        context = Turn(AsyncChild(broker, child.caller, child.token), **facts)
        await function(context)
        return context.session


def _raise() -> NoReturn:
    raise Stopped


class _Guard:
    """Interrupts the function when the turn must end, and ends the process if that is not heard.

    A program can be killed; a function only together with its process, so its end is told first.
    """

    def __init__(self, running: Running) -> None:
        self._running = running
        self._left = Event()
        self._told = threading.Lock()
        self.why: str | None = None
        self.interrupt: Callable[[], object] = _raise
        """How a function is interrupted, from the main thread."""

    def __enter__(self) -> None:
        signal.signal(signal.SIGTERM, self._hear)
        Thread(target=self._watch, name="tocsin-guard", daemon=True).start()

    def __exit__(self, *_exc: object) -> None:
        self._left.set()
        signal.signal(signal.SIGTERM, signal.SIG_IGN)

    def _hear(self, *_: object) -> None:
        if not self._left.is_set():
            self.why = self.why or "signal"
            self.interrupt()

    def _watch(self) -> None:
        while not self._left.is_set():
            event = self._running.next_event()
            if event is None:
                continue
            self.why = self.why or event
            os.kill(os.getpid(), signal.SIGTERM)
            break
        grace = self._running.turn.runner.stop_grace.total_seconds()
        if self.why and not self._left.wait(grace):
            self._running.turn.end(self._running.interrupted(self.why))
            os._exit(1)
