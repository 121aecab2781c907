"""A program in a process group of its own, which ends with the process that had it started.

A keeper is a small process that is forked before anything else is there. It starts the program when
it is told to, says how it ended, and holds one end of a pipe: when the other end goes, because its
parent was killed, it ends the whole group. No signal of the parent's death is needed, which not
every system has; if it is the keeper that is killed, its parent ends the group.
"""

from __future__ import annotations

import json
import math
import os
import selectors
import shutil
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NoReturn

DRAIN = 1.0
"""Seconds in which the rest of the output is read when a program has ended, if its pipe is held."""

_MOST_FILES = 65_536

_CHUNK = 65_536


class Keeper:
    """One program, or none. Make it before the process has other threads, and close it."""

    def __init__(self) -> None:
        orders, self._orders = os.pipe()
        self._said, says = os.pipe()
        self._out, out = os.pipe()
        self._err, err = os.pipe()
        self.pid = os.fork()
        """The keeper's process, and the program's group."""
        if self.pid == 0:
            try:
                _keep(orders, says, out, err)
            finally:
                os._exit(1)
        for end in (orders, says, out, err):
            os.close(end)
        self.status: int | None = None
        """How the program ended, as `Popen.returncode` has it; None while it has not."""
        self.failure: str | None = None
        """Why it could not be started, if so."""
        self._reader: threading.Thread | None = None
        self._closed = False

    def start(
        self,
        words: Sequence[str],
        *,
        cwd: Path,
        env: Mapping[str, str],
        stdin: Path,
        grace: float,
        heard: Callable[[str, bytes], object],
        ended: Callable[[], object],
    ) -> None:
        """Starts a program. `heard` is told its output by stream, `ended` once when it has ended.

        Both are called in another thread. `cwd` is made if it is not there. Left alone, it gets
        `grace` seconds between SIGTERM and SIGKILL, and then the file's folder is removed.
        """
        order = {"words": list(words), "cwd": str(cwd), "env": dict(env), "stdin": str(stdin)}
        line = json.dumps(order | {"grace": grace}).encode() + b"\n"
        self._reader = threading.Thread(
            target=self._read, args=(heard, ended), name="tocsin-output", daemon=True
        )
        self._reader.start()
        view = memoryview(line)
        with suppress(BrokenPipeError):  # it is gone, which the reader hears
            while view:
                view = view[os.write(self._orders, view) :]

    def signal(self, number: signal.Signals) -> None:
        """Signals the whole group."""
        if not self._closed:
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(self.pid, number)

    def close(self) -> None:
        """Ends the group, whatever is left of it, and the keeper."""
        if self._closed:
            return
        self.signal(signal.SIGKILL)
        with suppress(ProcessLookupError):  # it has not made itself a group yet
            os.kill(self.pid, signal.SIGKILL)
        self._closed = True
        os.close(self._orders)
        os.waitpid(self.pid, 0)
        if self._reader is not None:
            self._reader.join()
        for end in (self._said, self._out, self._err):
            os.close(end)

    def _read(self, heard: Callable[[str, bytes], object], ended: Callable[[], object]) -> None:
        said = bytearray()
        with selectors.DefaultSelector() as open_ends:
            open_ends.register(self._said, selectors.EVENT_READ, "said")
            open_ends.register(self._out, selectors.EVENT_READ, "stdout")
            open_ends.register(self._err, selectors.EVENT_READ, "stderr")
            ends = math.inf
            while open_ends.get_map() and time.monotonic() < ends:  # who escaped may hold a pipe
                left = None if ends == math.inf else max(0.0, ends - time.monotonic())
                for key, _ in open_ends.select(left):
                    data = os.read(key.fd, _CHUNK)
                    if key.data != "said":
                        if data:
                            heard(key.data, data)
                        else:
                            open_ends.unregister(key.fd)
                    elif data:
                        said += data
                    if key.data == "said" and (not data or said.endswith(b"\n")):
                        open_ends.unregister(key.fd)
                        ends = time.monotonic() + DRAIN
                        self._note(bytes(said))
                        self.signal(signal.SIGKILL)  # what the program left behind
        ended()

    def _note(self, said: bytes) -> None:
        try:
            news = json.loads(said)
        except ValueError:  # it was killed before it could say anything
            news = {"status": -int(signal.SIGKILL)}
        self.status, self.failure = news.get("status"), news.get("failure")


# ------------------------------------------------------------------ in the keeper's own process


def _keep(orders: int, says: int, out: int, err: int) -> NoReturn:
    os.setsid()
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, lambda *_: None)  # a program that is started has the defaults again
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    _close_all_but(orders, says, out, err)
    order = _next_order(orders)
    if order is None:
        os._exit(0)
    folder = Path(order["stdin"]).parent
    try:
        with Path(order["stdin"]).open("rb") as prompt:
            program = subprocess.Popen(
                order["words"],
                stdin=prompt,
                stdout=out,
                stderr=err,
                cwd=order["cwd"],
                env=order["env"],
            )
    except (OSError, ValueError) as error:
        _tell(says, {"failure": f"{order['words'][0]} could not be started: {error}"})
        os._exit(0)
    os.close(out)
    os.close(err)
    threading.Thread(
        target=_outlive_nobody, args=(orders, order["grace"], folder), daemon=True
    ).start()
    _tell(says, {"status": program.wait()})
    threading.Event().wait()  # until the group is ended, by the parent or for want of one
    os._exit(0)


def _outlive_nobody(orders: int, grace: float, folder: Path) -> None:
    while os.read(orders, _CHUNK):
        pass
    os.killpg(0, signal.SIGTERM)
    until = time.monotonic() + grace
    while time.monotonic() < until and _is_anybody_left():
        time.sleep(0.05)
    shutil.rmtree(folder, ignore_errors=True)
    os.killpg(0, signal.SIGKILL)


def _is_anybody_left() -> bool:
    """Whether a child of the keeper still runs."""
    try:
        return os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None
    except ChildProcessError:
        return False


def _next_order(orders: int) -> dict[str, Any] | None:
    line = bytearray()
    while not line.endswith(b"\n"):
        data = os.read(orders, _CHUNK)
        if not data:
            return None
        line += data
    found: dict[str, Any] = json.loads(line)
    return found


def _tell(says: int, news: dict[str, Any]) -> None:
    with suppress(BrokenPipeError):
        os.write(says, json.dumps(news).encode() + b"\n")


def _close_all_but(*kept: int) -> None:
    """Closes what came along, such as connections of the parent; what it held open ends with it."""
    low = 3
    for number in sorted(kept):
        os.closerange(low, number)
        low = number + 1
    os.closerange(low, max(low, min(os.sysconf("SC_OPEN_MAX"), _MOST_FILES)))
