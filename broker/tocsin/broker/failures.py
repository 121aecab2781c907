"""What answers of a server come to: the result of a call, a refusal, or a failure in our words."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

from redis import exceptions

from tocsin.broker.connections import REPLICATED_WITHIN, NotReplicatedError, is_lost, is_passing
from tocsin.broker.errors import CODES, BrokerError, InvalidEnvelope, Unavailable
from tocsin.broker.masking import redacted
from tocsin.broker.records import decode
from tocsin.broker.scripts import Call
from tocsin.broker.urls import Shape, parse

T = TypeVar("T")

_WRITTEN_OVER = "a record that the server keeps cannot be read, so somebody wrote over it"
_SEE_DOCTOR = "see what `tocsin doctor` finds"


def failure(operation: str, url: str, error: exceptions.RedisError) -> BrokerError:
    """What a failure of the server or the way to it means to the caller."""
    where = redacted(url)
    if isinstance(error, exceptions.AuthenticationError):
        return Unavailable(operation, f"{where} refused the user or password of the URL")
    if isinstance(error, exceptions.MovedError) and parse(url).shape is Shape.SINGLE:
        return Unavailable(
            operation, f"{where} is one node of a Cluster; write redis+cluster:// with its address"
        )
    unknown = (
        "whether this call took effect is unknown. With a `key` it may be repeated, because it "
        "takes effect once"
    )
    if is_lost(error):
        return Unavailable(
            operation,
            f"no answer from {where}; see that the server runs and is reachable, then try again: "
            f"{unknown}",
        )
    if is_passing(error):
        return Unavailable(
            operation,
            f"{where} has no server that takes this call at the moment, because a primary is being "
            f"replaced or slots are moving ({str(error)[:100]}); try again: {unknown}",
        )
    if isinstance(error, NotReplicatedError):
        return Unavailable(
            operation,
            f"{where} took this call, and no replica confirmed it within {REPLICATED_WITHIN:g} s; "
            f"see that a replica runs and keeps up, then try again: {unknown}",
        )
    if isinstance(error, exceptions.OutOfMemoryError):
        return Unavailable(
            operation,
            f"the memory of {where} is full, so new work is refused whole; let agents take and ack "
            "mail, or raise maxmemory, then try again",
        )
    if "WRONGTYPE" in str(error):
        return InvalidEnvelope(operation, f"{_WRITTEN_OVER} ({str(error)[:100]}); {_SEE_DOCTOR}")
    return Unavailable(operation, f"{where} answered: {str(error)[:300]}")


@contextmanager
def failures_of(operation: str, url: str) -> Iterator[None]:
    """While inside, failures of a plain client are raised as errors of ours."""
    try:
        yield
    except exceptions.RedisError as error:
        raised = failure(operation, url, error)
    else:
        return
    raise raised  # outside, because that error may quote the password


def read(call: Call[T], answer: Any) -> T:
    """The result of an answer; a refusal is raised as the error of its code."""
    decoded = decode(answer)
    if decoded[0] == "refused":
        raise CODES[decoded[1]](call.operation, decoded[2])
    try:
        return call.read(decoded)
    except (LookupError, ValueError, TypeError) as error:
        why = f"{type(error).__name__}: {error}"
        raise InvalidEnvelope(call.operation, f"{_WRITTEN_OVER} ({why}); {_SEE_DOCTOR}") from error
