"""The mail of one turn, in hand until it is acked or given back."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from datetime import timedelta
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Self

from tocsin.broker import inbox
from tocsin.broker._async.persisting import until_answered
from tocsin.broker.envelopes import Envelope
from tocsin.broker.errors import Unavailable
from tocsin.broker.inbox import Taken
from tocsin.broker.validation import printable

if TYPE_CHECKING:
    from tocsin.broker._async.agent import AsyncAgent

log = logging.getLogger("tocsin.broker")

_ERROR = 1_000
"""Characters of an exception that its mail keeps; a nack takes them in any herd."""


class AsyncTurn:
    """The mail of one turn, in order. Ack it when it is handled; unacked, it comes again.

    As a context manager it acks on a clean exit and gives the mail back on an exception, which
    counts as a failed attempt; both however long the server is away.
    """

    def __init__(self, agent: AsyncAgent, taken: Taken) -> None:
        self._agent = agent
        self._held = taken.mail
        self.more = taken.more
        """Whether more mail that wakes was unread when this was taken."""
        self.fenced: tuple[str, ...] = ()
        """Messages that had gone to another instance before they were acked or given back."""

    @property
    def envelopes(self) -> tuple[Envelope, ...]:
        """The envelopes: steer before follow-up, otherwise as they were accepted."""
        return tuple(held.envelope for held in self._held)

    def __iter__(self) -> Iterator[Envelope]:
        return iter(self.envelopes)

    def __len__(self) -> int:
        return len(self._held)

    def __getitem__(self, index: int) -> Envelope:
        return self._held[index].envelope

    async def ack(self) -> None:
        """Says that all of it is handled. Repeating it, or acking an empty turn, does nothing.

        Mail that went to another instance meanwhile (this one's lease had ended) stays there and
        is named in `fenced`: its handler may have run twice.
        """
        if self._held:
            self._fence(await self._agent._run(inbox.ack(self._agent.caller, self._held)))

    async def nack(self, delay: timedelta | None = None, error: str | None = None) -> None:
        """Gives all of it back, to come again after `delay`. Only an `error` counts an attempt."""
        if self._held:
            call = inbox.nack(self._agent.caller, self._held, delay, error)
            self._fence(await self._agent._run(call))

    def _fence(self, done: inbox.Acked) -> None:
        self.fenced = done.fenced
        if done.fenced:
            log.warning("%s lost its lease; others have %s", self._agent, ", ".join(done.fenced))

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if error is None:
            await until_answered(self._agent, self.ack)
        elif isinstance(error, Exception):
            why = printable(f"{type(error).__name__}: {error}"[:_ERROR])
            await until_answered(self._agent, partial(self.nack, error=why))
        else:  # cancelled or interrupted: nobody's failure, and what ends it goes first
            try:
                await self.nack()
            except Unavailable as away:
                log.warning("%s keeps what it holds until it leaves: %s", self._agent, away.detail)
