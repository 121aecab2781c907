# Generated from _async/link.py by `make generate`; edit that file.

"""Runs calls on a server, one or many at once, each in one round trip."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

from redis.exceptions import NoScriptError, RedisError

from tocsin.broker.connections import Patience, Server, failure, read
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

    def command(self, call: Call[Any], *, whole: bool = False) -> tuple[str | int, ...]:
        """The command of a call. `whole`: with the script's text, which the server remembers."""
        name = ("EVAL", self.text(call.script)) if whole else ("EVALSHA", self.sha(call.script))
        return (*name, 1, call.key, *call.args)


class Link:
    """Runs calls through a sync client."""

    def __init__(self, server: Server) -> None:
        self.server = server
        # Any: the commands of redis-py are not all typed.
        self.client: Any = server.connect()
        self._naming = _Naming(plain=server.plain)

    def run(self, call: Call[T]) -> T:
        """The result of one call, in one round trip."""

        def send() -> Any:
            try:
                return self.client.execute_command(*self._naming.command(call))
            except NoScriptError:
                whole = self._naming.command(call, whole=True)
                return self.client.execute_command(*whole)

        return read(call, self._persist(call.operation, send))

    def run_many(self, calls: Sequence[Call[T]]) -> list[T | BrokerError]:
        """The results of independent calls, in one round trip; refusals take their places."""
        if not calls:
            return []
        operation = calls[0].operation
        answers = self._persist(operation, lambda: self._send(calls))
        unknown = [n for n, answer in enumerate(answers) if isinstance(answer, NoScriptError)]
        if unknown:
            missed = [calls[n] for n in unknown]
            again = self._persist(operation, lambda: self._send(missed, whole=True))
            for n, answer in zip(unknown, again, strict=True):
                answers[n] = answer
        results: list[T | BrokerError] = []
        for call, answer in zip(calls, answers, strict=True):
            result: T | BrokerError = self._result(call, answer)
            results.append(result)
        return results

    def _send(self, calls: Sequence[Call[Any]], *, whole: bool = False) -> list[Any]:
        pipeline = self.client.pipeline(transaction=False)
        for call in calls:
            pipeline.execute_command(*self._naming.command(call, whole=whole))
        answers: list[Any] = pipeline.execute(raise_on_error=False)
        return answers

    def _persist(self, operation: str, send: Callable[[], Any]) -> Any:
        """What comes of sending, tried again while the line fails and `Patience` lasts."""
        patience = Patience()
        while True:
            try:
                with Cancellation():
                    return send()
            except RedisError as error:
                pause = patience.pause(error)
                if pause is None:
                    raise failure(operation, self.server.url, error) from error
            time.sleep(pause)

    def _result(self, call: Call[T], answer: Any) -> T | BrokerError:
        try:
            if isinstance(answer, RedisError):
                return failure(call.operation, self.server.url, answer)
            return read(call, answer)
        except BrokerError as refusal:
            return refusal

    def command(self, operation: str, *command: str | int) -> Any:
        """The answer to a plain command, for what needs no script."""
        return decode(self._persist(operation, lambda: self.client.execute_command(*command)))

    def keys(self, operation: str, pattern: str) -> Iterator[str]:
        """The names of all keys that match, in pages; some may come twice."""
        cursor = -1
        while cursor != 0:
            words = ("SCAN", max(cursor, 0), "MATCH", pattern, "COUNT", 1_000)
            at, page = self.command(operation, *words)
            cursor = int(at)
            for key in page:
                yield decode(key)

    def close(self) -> None:
        """Closes the connections."""
        self.client.close()
        self.client.connection_pool.disconnect()
