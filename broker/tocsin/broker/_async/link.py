"""Runs calls on the servers of a fleet, one or many at once, each in one round trip."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from functools import partial
from typing import Any, TypeVar

from redis.exceptions import ConnectionError as LineDown
from redis.exceptions import NoScriptError, ReadOnlyError, RedisError

from tocsin.broker.connections import (
    MARK,
    REPLICATED_WITHIN,
    NotReplicatedError,
    Patience,
    Server,
    is_lost,
    is_passing,
)
from tocsin.broker.errors import BrokerError
from tocsin.broker.failures import failure, read
from tocsin.broker.records import decode
from tocsin.broker.scripts import Call, Script
from tocsin.broker.signals import in_thread, together, undisturbed
from tocsin.broker.urls import Node

T = TypeVar("T")


class _Naming:
    """How scripts are named to the server, which fakeredis wants otherwise."""

    def __init__(self, server: Server) -> None:
        self._keys = server.keys_of
        self.text: Callable[[Script], str]
        self.sha: Callable[[Script], str]
        if server.plain:
            self.text, self.sha = (lambda script: script.source), (lambda script: script.plain_sha)
        else:
            self.text, self.sha = (lambda script: script.text), (lambda script: script.sha)

    def command(self, call: Call[Any], *, whole: bool = False) -> tuple[str | int, ...]:
        """The command of a call. `whole`: with the script's text, which the server remembers."""
        name = ("EVAL", self.text(call.script)) if whole else ("EVALSHA", self.sha(call.script))
        keys = self._keys(call)
        return (*name, len(keys), *keys, *call.args)


class AsyncLink:
    """Runs calls through async clients, one for each server that has something.

    `replicated`: each call waits until a replica has what it wrote.
    """

    def __init__(self, server: Server, *, replicated: bool = False) -> None:
        self.server = server
        # Any: the commands of redis-py are not all typed.
        self._clients: dict[Node, Any] = {}
        self._naming = _Naming(server)
        self._replicated = replicated

    async def run(self, call: Call[T]) -> T:
        """The result of one call, in one round trip."""
        if self._replicated:
            [result] = await self.run_many([call])
            if isinstance(result, BrokerError):
                raise result
            return result

        async def send(client: Any) -> Any:
            try:
                return await client.execute_command(*self._naming.command(call))
            except NoScriptError:
                return await client.execute_command(*self._naming.command(call, whole=True))

        return read(call, await self._persist(call.operation, call.key, send))

    async def run_many(self, calls: Sequence[Call[T]]) -> list[T | BrokerError]:
        """The results of independent calls, in one round trip to each server; refusals take their
        places, and so do failures of some of several servers.
        """
        if not calls:
            return []
        answers: dict[int, Any] = {}
        left = dict(enumerate(calls))
        patience = Patience(self.server)
        while left:
            answers |= await undisturbed(partial(self._round, left))
            left = {n: call for n, call in left.items() if _may_go_well(answers[n])}
            pause = patience.pause(answers[next(iter(left))]) if left else None
            if pause is None:
                break
            await asyncio.sleep(pause)
        if all(isinstance(each, RedisError) and _says_nothing(each) for each in answers.values()):
            raise failure(calls[0].operation, self.server.url, answers[0]) from answers[0]
        results: list[T | BrokerError] = []
        for n, call in enumerate(calls):
            result: T | BrokerError = self._result(call, answers[n])
            results.append(result)
        return results

    async def _round(self, calls: dict[int, Call[Any]]) -> dict[int, Any]:
        """One try of calls, on all their servers at once."""
        unfound: RedisError = LineDown("no server is known to hold it")
        lost = [call.key for call in calls.values() if self.server.node_of(call.key) is None]
        if lost:
            try:
                await in_thread(partial(self.server.find, lost[0]))
            except RedisError as error:
                unfound = error
        groups: dict[Node, list[int]] = {}
        answers: dict[int, Any] = {}
        for n, call in calls.items():
            node = self.server.node_of(call.key)
            if node is None:
                answers[n] = unfound
            else:
                groups.setdefault(node, []).append(n)
        sending = [
            partial(self._exchange, node, [calls[n] for n in group])
            for node, group in groups.items()
        ]
        for group, got in zip(groups.values(), await together(sending), strict=True):
            answers.update(zip(group, got, strict=True))
        return answers

    async def _exchange(self, node: Node, calls: list[Call[Any]]) -> list[Any]:
        """The answers of one server; its failures take their places."""
        answers = await self._send(node, calls, [False] * len(calls))
        # The server remembers a text once it has it, unless it is made to forget it in between.
        for each_whole in (False, True):
            unknown = [n for n, answer in enumerate(answers) if isinstance(answer, NoScriptError)]
            if not unknown:
                break
            first = {calls[n].script.name: n for n in reversed(unknown)}
            whole = [each_whole or first[calls[n].script.name] == n for n in unknown]
            again = await self._send(node, [calls[n] for n in unknown], whole)
            for n, answer in zip(unknown, again, strict=True):
                answers[n] = answer
        failed = next((each for each in answers if isinstance(each, RedisError)), None)
        if failed is not None:
            await self._doubt(node, failed)
        return answers

    async def _send(
        self, node: Node, calls: Sequence[Call[Any]], whole: Sequence[bool]
    ) -> list[Any]:
        pipeline = self._client(node).pipeline(transaction=False)
        for call, with_text in zip(calls, whole, strict=True):
            pipeline.execute_command(*self._naming.command(call, whole=with_text))
        replicated = [call.key for call in calls if call.script.key == "partition"][:1]
        if self._replicated and replicated:
            pipeline.execute_command("EVAL", MARK, 1, *replicated)
            pipeline.execute_command("WAIT", 1, int(REPLICATED_WITHIN * 1000))
        try:
            answers: list[Any] = await pipeline.execute(raise_on_error=False)
        except RedisError as error:
            return [error] * len(calls)
        if len(answers) > len(calls):
            *answers, marked, reached = answers
            if isinstance(marked, RedisError) or isinstance(reached, RedisError) or reached < 1:
                late = NotReplicatedError("no replica has it yet")
                answers = [each if isinstance(each, RedisError) else late for each in answers]
        return answers

    async def _persist(
        self,
        operation: str,
        where: str | None,
        send: Callable[[Any], Awaitable[Any]],
        to: Node | None = None,
    ) -> Any:
        """What comes of sending, tried again while servers fail and `Patience` lasts.

        To `to`, or else the server that holds the key `where`, or any if that is None.
        """
        patience = Patience(self.server)
        while True:
            node = to or self.server.node_of(where)
            try:
                if node is None:
                    find = partial(self.server.find, where)
                    node = await undisturbed(partial(in_thread, find))
                return await undisturbed(partial(send, self._client(node)))
            except RedisError as error:
                if node is not None:
                    await self._doubt(node, error)
                pause = patience.pause(error)
                if pause is None:
                    raise failure(operation, self.server.url, error) from error
            await asyncio.sleep(pause)

    def _client(self, node: Node) -> Any:
        client = self._clients.get(node)
        if client is None:
            client = self._clients.setdefault(node, self.server.connect_async(node))
        return client

    async def _doubt(self, node: Node, error: RedisError) -> None:
        self.server.doubt(node, error)
        if isinstance(error, ReadOnlyError):  # behind the same name there may be another by now
            await self._client(node).connection_pool.disconnect(inuse_connections=False)

    def _result(self, call: Call[T], answer: Any) -> T | BrokerError:
        try:
            if isinstance(answer, RedisError):
                return failure(call.operation, self.server.url, answer)
            return read(call, answer)
        except BrokerError as refusal:
            return refusal

    async def command(self, operation: str, *command: str | int, key: str | None = None) -> Any:
        """The answer to a plain command, for what needs no script.

        Of the server that holds `key`; of any, if nothing is said.
        """

        return await self._command(operation, command, key=key)

    async def _command(
        self,
        operation: str,
        command: tuple[str | int, ...],
        *,
        key: str | None = None,
        to: Node | None = None,
    ) -> Any:
        async def send(client: Any) -> Any:
            return await client.execute_command(*command)

        return decode(await self._persist(operation, key, send, to))

    async def command_each(self, operation: str, *command: str | int) -> dict[Node, Any]:
        """The answers of all servers that take writes, to a plain command."""
        return {
            node: await self._command(operation, command, to=node)
            for node in await self._nodes(operation)
        }

    async def keys(self, operation: str, pattern: str) -> AsyncIterator[str]:
        """The names of all keys that match, in pages; some may come twice."""
        for node in await self._nodes(operation):
            cursor = -1
            while cursor != 0:
                words = ("SCAN", max(cursor, 0), "MATCH", pattern, "COUNT", 1_000)
                at, page = await self._command(operation, words, to=node)
                cursor = int(at)
                for key in page:
                    yield decode(key)

    async def _nodes(self, operation: str) -> tuple[Node, ...]:
        if not self.server.nodes:
            await self.command(operation, "PING")
        return self.server.nodes

    async def aclose(self) -> None:
        """Closes the connections."""
        for client in self._clients.values():
            await client.aclose()
            await client.connection_pool.disconnect()


def _may_go_well(answer: Any) -> bool:
    return isinstance(answer, RedisError) and is_passing(answer)


def _says_nothing(error: RedisError) -> bool:
    return is_lost(error) or is_passing(error)
