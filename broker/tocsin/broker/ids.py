"""Ids and tokens, made by the client.

An id (`task_...`, `msg_...`, `inst_...`) is made by the client before its first try, so that a
repeat of the call is the same call. It sorts roughly by time (one that stands for a caller's key
does not), and holds only characters that are safe in a Redis key, a file name, a shell word and an
RQ job id.
"""

from __future__ import annotations

import base64
import hashlib
import secrets
import time
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from itertools import count

PARENT = "parent"
"""The reserved agent id of the owner of each herd."""

_ALPHABET = "0123456789abcdefghjkmnpqrstvwxyz"

_repeated: ContextVar[Iterator[tuple[str, ...]] | None] = ContextVar("repeated", default=None)


@contextmanager
def repeating(*parts: str) -> Iterator[None]:
    """Inside, new ids and tokens follow from `parts`, so that a call made again is the same call.

    For whoever makes calls in the name of a client far away, which repeats what was lost on the
    way. The parts hold a secret of that client, so that nobody else can foresee a token.
    """
    token = _repeated.set((*parts, str(number)) for number in count())
    try:
        yield
    finally:
        _repeated.reset(token)


def _base32(number: int, length: int) -> str:
    return "".join([_ALPHABET[number >> shift & 31] for shift in range(5 * length - 5, -5, -5)])


def make_id(prefix: str) -> str:
    """A new id: the prefix, 9 letters of the time in ms, 16 letters of chance (80 bits)."""
    repeated = _repeated.get()
    if repeated is not None:
        return keyed_id(prefix, *next(repeated))
    now = time.time_ns() // 1_000_000
    return f"{prefix}_{_base32(now, 9)}{_base32(secrets.randbits(80), 16)}"


def keyed_id(prefix: str, *parts: str) -> str:
    """The id that stands for a caller's own `key`: the same parts always give the same id.

    Two processes that send with one key therefore send one message. The parts name who sends
    (fleet, herd, agent, generation), so that nobody can meet somebody else's key.
    """
    digest = hashlib.sha256("\x00".join(parts).encode()).digest()
    return f"{prefix}_k{_base32(int.from_bytes(digest[:15], 'big'), 24)}"


def make_token() -> str:
    """A new secret of 256 random bits. Only its hash is ever sent or stored."""
    repeated = _repeated.get()
    if repeated is None:
        return "tok_" + secrets.token_urlsafe(32)
    digest = hashlib.sha256("\x00".join(("token", *next(repeated))).encode()).digest()
    return "tok_" + base64.urlsafe_b64encode(digest).decode().rstrip("=")


def hash_token(token: str) -> str:
    """SHA-256 of a token, in hexadecimal: what scripts and records see."""
    return hashlib.sha256(token.encode()).hexdigest()
