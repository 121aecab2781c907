"""Who calls, on which fleet: what every operation of an agent has in common.

From a `Caller` and its arguments, the functions of `herds`, `agents`, `tasks`, `requests`, `asks`,
`inbox`, `dead`, `plans` and `why` make a `Call`. Nothing here or there does I/O.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

from tocsin.broker import keys
from tocsin.broker.clock import Clock
from tocsin.broker.ids import PARENT, keyed_id, make_id
from tocsin.broker.scripts import Call, call
from tocsin.broker.validation import check_text

T = TypeVar("T")

_CONTENT = json.JSONEncoder(sort_keys=True, default=str)


@dataclass(frozen=True)
class Fleet:
    """A fleet as its clients agree on it: name, number of partitions, whose time it is."""

    name: str
    partitions: int
    clock: Clock | None

    @property
    def clock_argument(self) -> str:
        """The first argument of every script; empty is the server's own time."""
        return "" if self.clock is None else self.clock.argument

    def partition(self, herd: str) -> str:
        """The key of the partition that holds a herd."""
        return keys.partition(self.name, keys.partition_of(herd, self.partitions))


@dataclass(frozen=True)
class Caller:
    """One agent's instance, with the hash of the token that proves it."""

    fleet: Fleet
    herd: str
    agent: str
    token: str
    instance: str
    generation: int = 1

    def __repr__(self) -> str:
        return f"Caller({self.herd}/{self.agent} as {self.instance})"

    @property
    def is_parent(self) -> bool:
        """Whether this is the herd's parent."""
        return self.agent == PARENT

    def call(
        self,
        script: str,
        operation: str,
        read: Callable[[list[Any]], T],
        **args: str | int,
    ) -> Call[T]:
        """A call of this agent's, with what every script asks of it filled in."""
        return call(
            script,
            read,
            operation=operation,
            key=self.fleet.partition(self.herd),
            clock=self.fleet.clock_argument,
            herd=self.herd,
            agent=self.agent,
            token=self.token,
            instance=self.instance,
            **args,
        )

    def new_id(self, prefix: str, operation: str, key: str | None) -> str:
        """An id for this call: a new one, or the one that stands for the caller's own `key`."""
        if key is None:
            return make_id(prefix)
        check_text(operation, "key", key)
        whose = (self.fleet.name, self.herd, self.agent, str(self.generation), operation)
        return keyed_id(prefix, *whose, key)


def digest(**content: Any) -> str:
    """The fingerprint by which a repeat of a call is told from another call with its id."""
    return hashlib.sha256(_CONTENT.encode(content).encode()).hexdigest()[:32]


def word(answer: list[Any]) -> str:
    """The first word of an answer."""
    return str(answer[0])
