"""Who makes a call, and the instance of that agent which carries it out."""

from __future__ import annotations

import asyncio
import hashlib
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Any, TypeVar

import anyio

from tocsin.broker import AsyncAgent, AsyncBroker, AsyncChild, AsyncParent
from tocsin.broker.caller import Caller
from tocsin.broker.errors import AgentClosed, BrokerError, HerdClosed, Unauthorized
from tocsin.broker.ids import PARENT, hash_token

T = TypeVar("T")

_LAST = 10.0
"""Seconds that leaving may take; after that the lease runs out by itself."""


@dataclass(frozen=True)
class Seat:
    """An agent and its tokens: one, or the two of which a rotation left one in force."""

    herd: str
    agent: str
    tokens: Sequence[str] = field(repr=False)

    @property
    def is_parent(self) -> bool:
        """Whether it is the herd's parent, which has other tools than a child."""
        return self.agent == PARENT


class Visitor(ABC):
    """One agent at this server, for the length of a call or of a session."""

    @property
    @abstractmethod
    def is_parent(self) -> bool:
        """Whether this is a parent, by the name alone: the token is proved by each call."""

    @abstractmethod
    async def agent(self) -> AsyncAgent:
        """The agent, its token proved at this moment or before."""

    @abstractmethod
    def staying(self) -> AbstractAsyncContextManager[AsyncAgent]:
        """The agent for a call that waits: while inside, an instance of it stays alive."""

    async def refused(self, error: BrokerError) -> bool:
        """Takes note that the broker refused a call; whether the same call may go well now."""
        return False


async def _join(broker: AsyncBroker, seat: Seat, instance: str | None) -> AsyncAgent:
    *first, last = seat.tokens
    for token in first:
        try:
            return await broker.join(seat.herd, seat.agent, token, instance=instance)
        except Unauthorized:
            continue
    return await broker.join(seat.herd, seat.agent, last, instance=instance)


@dataclass(frozen=True)
class Place:
    """Where a fleet is, and who speaks."""

    url: str = field(repr=False)
    fleet: str
    seat: Seat
    partitions: int | None = None


class Resident(Visitor):
    """The one agent of a process: an instance that lives as long as it, from its first call on.

    `find` says whose seat it is. It is asked again after a refusal, since a token may be rotated
    and a name registered anew while the process lives; and when nothing was found, at each call.
    """

    def __init__(self, find: Callable[[], Place]) -> None:
        self._find = find
        self._broker: AsyncBroker | None = None
        self._agent: AsyncAgent | None = None
        self._joining = asyncio.Lock()

    @property
    def is_parent(self) -> bool:
        """Whether its seat is a parent's; what is unknown has a child's tools."""
        try:
            return self._find().seat.is_parent
        except BrokerError:
            return False

    async def agent(self) -> AsyncAgent:
        """The agent; an instance of it starts at the first call."""
        async with self._joining:
            if self._agent is None:
                place = self._find()
                if self._broker is None:
                    self._broker = AsyncBroker.connect(
                        place.url, fleet=place.fleet, partitions=place.partitions
                    )
                self._agent = await _join(self._broker, place.seat, None)
            return self._agent

    @asynccontextmanager
    async def staying(self) -> AsyncIterator[AsyncAgent]:
        """The same: it stays anyway."""
        yield await self.agent()

    async def refused(self, error: BrokerError) -> bool:
        """Of a token that is not valid any more, lets go: the next call finds the seat anew.

        A token may have been rotated, so it is worth another try. To a name that is another
        agent's by now, the caller is told so.
        """
        if isinstance(error, Unauthorized | AgentClosed) and self._agent is not None:
            agent, self._agent = self._agent, None
            agent.broker.forget(agent)
        return isinstance(error, Unauthorized)

    async def aclose(self) -> None:
        """Ends the instance, and the connections."""
        if self._broker is not None:
            await self._broker.aclose()


class Guest(Visitor):
    """An agent for one call of many to a server that keeps nothing of it.

    All calls of one agent, at whichever server, are one instance: its lease is taken up by each and
    runs out by itself, as it should when no more come.
    """

    def __init__(self, broker: AsyncBroker, seat: Seat) -> None:
        self._broker = broker
        self._seat = seat
        self._agent: AsyncAgent | None = None

    @property
    def is_parent(self) -> bool:
        """Whether it says it is a parent."""
        return self._seat.is_parent

    @property
    def secret(self) -> str:
        """Its token."""
        return self._seat.tokens[0]

    @property
    def name(self) -> str:
        """What stands for the agent and its token, which it does not tell."""
        return f"{self._seat.herd}/{self._seat.agent}:{hash_token(self.secret)}"

    async def prove(self) -> None:
        """Proves the token at this moment, without presence; it does so in a closed herd, too."""
        with suppress(HerdClosed, AgentClosed):
            await (await self.unseen()).look(limit=1)

    @property
    def _instance(self) -> str:
        name = f"{self._broker.name}\x00{self._seat.herd}\x00{self._seat.agent}"
        return f"inst_mcp_{hashlib.sha256(name.encode()).hexdigest()[:24]}"

    async def agent(self) -> AsyncAgent:
        """The agent, by the one instance of all its calls."""
        if self._agent is None:
            self._agent = await _join(self._broker, self._seat, self._instance)
        return self._agent

    async def unseen(self) -> AsyncParent | AsyncChild:
        """The agent without an instance that lives: for looking, it counts as no presence."""
        herd, agent, token = self._seat.herd, self._seat.agent, self._seat.tokens[0]
        fleet, instance = await self._broker.fleet(), self._instance
        caller = Caller(fleet, herd, agent, hash_token(token), instance)
        return (AsyncParent if self.is_parent else AsyncChild)(self._broker, caller, token)

    @asynccontextmanager
    async def staying(self) -> AsyncIterator[AsyncAgent]:
        """An instance of its own, for as long as this call waits."""
        agent = await _join(self._broker, self._seat, None)
        try:
            yield agent
        finally:
            await finished(agent.leave())


async def insist(visitor: Visitor, do: Callable[[], Awaitable[T]]) -> T:
    """What `do` comes to, at a second try if the first was made with a token of yesterday."""
    try:
        return await do()
    except BrokerError as error:
        if not await visitor.refused(error):
            raise
    return await do()


async def finished(last: Awaitable[Any]) -> None:
    """Does a last thing to its end, also for a call that was cancelled."""
    with anyio.move_on_after(_LAST, shield=True), suppress(BrokerError):
        await last
