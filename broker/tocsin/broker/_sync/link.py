# Generated from _async/link.py by `make generate`; edit that file.

"""Runs calls on a server, one or many at once, each in one round trip."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from redis.exceptions import NoScriptError, RedisError

from tocsin.broker.connections import Server, failure, read
from tocsin.broker.envelopes import decode
from tocsin.broker.errors import BrokerError
from tocsin.broker.scripts import Call, Script
from tocsin.broker.signals import Cancellation

T = TypeVar("T")


class _Naming:
    """How scripts are named to the server, which fakeredis wants otherwise."""

    def __init__(self, *, plain: bool) -> None:
        self.text: Callable[[Script], str]
        self.sha: Callable[[Script], str]
        if plain:
            self.text, self.sha = (lambda script: script.source), (lambda script: script.plain_sha)
        else:
            self.text, self.sha = (lambda script: script.text), (lambda script: script.sha)

    def command(self, call: Call[Any]) -> tuple[str | int, ...]:
        return ("EVALSHA", self.sha(call.script), 1, call.key, *call.args)


class Link:
    """Runs calls through a sync client."""

    def __init__(self, server: Server) -> None:
        self.server = server
        # Any: the commands of redis-py are not all typed.
        self.client: Any = server.connect()
        self._naming = _Naming(plain=server.plain)

    def run(self, call: Call[T]) -> T:
        """The result of one call, in one round trip."""
        try:
            with Cancellation():
                answer = self._execute(call)
        except RedisError as error:
            raise failure(call.operation, self.server.url, error) from error
        return read(call, answer)

    def _execute(self, call: Call[Any]) -> Any:
        try:
            return self.client.execute_command(*self._naming.command(call))
        except NoScriptError:
            self.client.script_load(self._naming.text(call.script))
            return self.client.execute_command(*self._naming.command(call))

    def run_many(self, calls: Sequence[Call[T]]) -> list[T | BrokerError]:
        """The results of independent calls, in one round trip; refusals take their places."""
        if not calls:
            return []
        try:
            pipeline = self.client.pipeline(transaction=False)
            for call in calls:
                pipeline.execute_command(*self._naming.command(call))
            with Cancellation():
                answers = pipeline.execute(raise_on_error=False)
        except RedisError as error:
            raise failure(calls[0].operation, self.server.url, error) from error
        results: list[T | BrokerError] = []
        for call, answer in zip(calls, answers, strict=True):
            result: T | BrokerError = self._result(call, answer)
            results.append(result)
        return results

    def _result(self, call: Call[T], answer: Any) -> T | BrokerError:
        try:
            if isinstance(answer, NoScriptError):
                return self.run(call)
            if isinstance(answer, RedisError):
                return failure(call.operation, self.server.url, answer)
            return read(call, answer)
        except BrokerError as refusal:
            return refusal

    def command(self, operation: str, *command: str | int) -> Any:
        """The answer to a plain command, for what needs no script."""
        try:
            with Cancellation():
                return decode(self.client.execute_command(*command))
        except RedisError as error:
            raise failure(operation, self.server.url, error) from error

    def close(self) -> None:
        """Closes the connections."""
        self.client.close()
        self.client.connection_pool.disconnect()
