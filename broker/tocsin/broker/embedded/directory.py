"""Who serves a data directory: a lock that proves it, a record beside it that says who.

The lock is an flock whose descriptor the server and its watcher inherit, so that it lasts exactly
as long as one of them. The record is only believed when the server at its address agrees.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from tocsin.broker.embedded.errors import EmbeddedServerError

LOCK_FILE = "tocsin.lock"
RECORD_FILE = "tocsin.json"
LOOK_AGAIN = 0.03  # seconds between looks at a lock that another process holds


@dataclass(frozen=True)
class Holder:
    """Who serves a directory: what the record in it says.

    `pid` is the server's process, `owner` the process it belongs to, `run_id` what the server at
    `url` must call itself for the record to be true.
    """

    pid: int
    owner: int
    url: str
    run_id: str


def holder_of(directory: Path | str) -> Holder | None:
    """Return who serves a data directory now, or None if nobody does.

    What the record says is checked: the server at its address must answer with its run id.
    """
    holder = read_record(Path(directory))
    return holder if holder is not None and answers(holder) else None


def take_directory(directory: Path, until: float) -> int | Holder:
    """Return the descriptor of the lock, now ours, or who holds the directory.

    A holder that is just starting or just ending is waited for.
    """
    try:
        lock = os.open(directory / LOCK_FILE, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise EmbeddedServerError(
            f"{directory} cannot be used as a data directory: {error.strerror}."
        ) from error
    while True:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            pass
        else:
            return lock
        if (holder := holder_of(directory)) is not None:
            os.close(lock)
            return holder
        if time.monotonic() > until:
            os.close(lock)
            record = read_record(directory)
            who = f"process {record.pid}" if record else "a process that left no record"
            raise EmbeddedServerError(
                f"{directory} is held by {who}, which does not answer. "
                "End that process, or choose another directory."
            )
        time.sleep(LOOK_AGAIN)


def is_held(directory: Path) -> bool:
    """Whether a server has the directory; one that hangs has it as well."""
    try:
        lock = os.open(directory / LOCK_FILE, os.O_RDWR | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(lock)
    return False


def read_record(directory: Path) -> Holder | None:
    """Return what the record says, true or not; None if there is none that can be read."""
    try:
        return Holder(**json.loads((directory / RECORD_FILE).read_text("utf-8")))
    except (OSError, ValueError, TypeError):
        return None  # none yet, or of another version: the lock is what decides


def write_record(directory: Path, holder: Holder) -> None:
    """Replace the record in one step."""
    fresh = directory / f"{RECORD_FILE}.new"
    fresh.write_text(json.dumps(asdict(holder)) + "\n", "utf-8")
    fresh.replace(directory / RECORD_FILE)


def ask(url: str) -> Mapping[str, object]:
    """Return what the server says of itself."""
    client = redis.Redis.from_url(
        url, socket_timeout=2, socket_connect_timeout=2, retry=Retry(NoBackoff(), 0)
    )
    with contextlib.closing(client):
        info: Mapping[str, object] = client.info("server", "persistence")
        return info


def answers(holder: Holder) -> bool:
    """Say whether the server at the recorded address is the recorded one."""
    try:
        return ask(holder.url).get("run_id") == holder.run_id
    except redis.RedisError:
        return False
