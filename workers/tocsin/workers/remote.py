"""Agents whose operations run at a server of Tocsin, for whom the fleet's own url is not.

`TOCSIN_URL=https://host/` leads here: `Remote` is one seat at one server, and gives a `Parent` or
`Child` whose methods are POSTs to its JSON API. A call whose answer was lost is made again, with
the id that it had, for as long as one to the fleet itself would be. Calls that wait are chains of
short ones. httpcore2 is the client because it is a dependency already, bounds each step, verifies
certificates, follows nowhere, and logs no headers.
"""

from __future__ import annotations

import json
import math
import random
import ssl
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime, timedelta
from functools import partial
from typing import Any, NoReturn, cast

import httpcore2

from tocsin.broker import Broker, Child, Parent, Reply, ReturnWhen, Sent, Settlement
from tocsin.broker.caller import Caller, Fleet
from tocsin.broker.connections import ANSWER_WITHIN, GIVE_UP_AFTER
from tocsin.broker.errors import (
    CODES,
    BrokerError,
    CeilingActive,
    Forbidden,
    InvalidInput,
    NoReply,
    QueueFull,
    Unavailable,
)
from tocsin.broker.ids import PARENT, hash_token, make_id
from tocsin.broker.requests import check_message
from tocsin.broker.signals import Settable
from tocsin.broker.validation import check_choice, check_timeout
from tocsin.workers.addresses import check_address, operators_own
from tocsin.workers.operations import ELSEWHERE, OPERATIONS, Operation

HOLD = 25.0
"""Seconds that one call of a chain waits at the server."""

_SLACK = 15.0
"""Seconds after that in which it must be answered."""

LONGEST_ANSWER = 64 * 1024 * 1024
_PAUSE, _LONGEST_PAUSE, _LONGEST_QUIET = 0.1, 1.0, 10.0
_AWAY = (httpcore2.NetworkError, httpcore2.TimeoutException, httpcore2.ProtocolError)


class Remote:
    """One seat at one server of Tocsin."""

    def __init__(
        self, url: str, herd: str, agent: str, token: str, *, unseen: bool = False
    ) -> None:
        self._address = check_address(url)
        self._name = f"{herd}/{agent}"
        self.token = token
        self._unseen = unseen
        self._closed = False
        trusted = ssl.create_default_context() if self._address.startswith("https") else None
        self._pool = httpcore2.ConnectionPool(
            ssl_context=trusted, max_connections=4, keepalive_expiry=20
        )

    def __repr__(self) -> str:
        return f"Remote({self._name} at {self._address})"

    def close(self) -> None:
        """Closes the connections."""
        self._closed = True
        self._pool.close()

    def join(self) -> RemoteParent | RemoteChild:
        """The agent, its token proved at this moment."""
        seat = self._seat()
        caller = Caller(
            Fleet(seat["fleet"], 1, None),
            seat["herd"],
            seat["agent"],
            hash_token(self.token),
            seat["instance"],
            seat["generation"],
        )
        return (RemoteParent if seat["agent"] == PARENT else RemoteChild)(self, caller)

    def rang(self) -> bool:
        """Whether something arrives for the agent, or may have, in the time of one call."""
        headers = {"Prefer": f"wait={HOLD:g}"}
        found = self._exchange("bell", "GET", None, headers, HOLD + _SLACK)
        return bool(self._asked("bell", found)["result"]["rang"])

    def now(self) -> datetime:
        """The fleet's time."""
        return datetime.fromisoformat(self._seat()["now"])

    def _seat(self) -> dict[str, Any]:
        """Whom the token proves, and what time it is there."""
        found = self._asked("seat", self._exchange("seat", "GET", None, {}, GIVE_UP_AFTER))
        return dict(found["result"])

    def call(
        self,
        name: str,
        given: Mapping[str, Any],
        *,
        wait: float | None = None,
        key: str | None = None,
    ) -> dict[str, Any]:
        """What the server says to one call, made again while its answers are lost."""
        headers = {"Idempotency-Key": key or make_id("call"), "Content-Type": "application/json"}
        patience = GIVE_UP_AFTER
        if wait is not None:
            headers["Prefer"] = f"wait={wait:.3f}"
            patience = wait + _SLACK
        try:
            body = json.dumps(given, allow_nan=False).encode()
        except ValueError:
            detail = "a number is not finite; give one that is"
            raise InvalidInput(name, detail) from None
        return self._asked(name, self._exchange(name, "POST", body, headers, patience))

    def _asked(self, name: str, answer: tuple[int, Any]) -> dict[str, Any]:
        status, said = answer
        if isinstance(said, dict) and status in (200, 202):
            return said
        error = said.get("error") if isinstance(said, dict) else None
        raise refusal_of(name, status, error if isinstance(error, dict) else {}, self._address)

    def _exchange(
        self, name: str, method: str, body: bytes | None, headers: dict[str, str], patience: float
    ) -> tuple[int, Any]:
        headers = headers | {
            "Authorization": f"Bearer {self._name}:{self.token}",
            "Accept": "application/json",
            **({"Tocsin-Presence": "none"} if self._unseen else {}),
        }
        ends, pause = time.monotonic() + patience, _PAUSE
        while True:
            try:
                status, said, after = self._try(name, method, body, headers, ends)
            except httpcore2.ConnectError as failure:
                problem, told = f"{failure}", unproved(self._address, failure)
                if told:
                    raise Unavailable(name, told) from None
            except _AWAY as failure:
                problem = f"{failure}" or type(failure).__name__
            else:
                if status not in (429, 502, 503, 504) or _is_ours(status, said):
                    return status, said
                problem, pause = f"it answers {status}", max(pause, after)
            rest = random.uniform(pause / 2, pause)
            if self._closed:
                raise Unavailable(name, "the line was closed")
            if time.monotonic() + rest >= ends:
                raise Unavailable(
                    name, f"{self._address} did not answer within {patience:g} s: {problem}"
                ) from None
            time.sleep(rest)
            pause = min(2 * pause, _LONGEST_PAUSE)

    def _try(
        self, name: str, method: str, body: bytes | None, headers: dict[str, str], ends: float
    ) -> tuple[int, Any, float]:
        left = max(0.1, ends - time.monotonic())
        quick = min(left, ANSWER_WITHIN)
        limits = {"connect": quick, "pool": quick, "write": quick, "read": left}
        url = f"{self._address}/api/v1/{name}"
        sent = [(key.encode(), value.encode("latin-1")) for key, value in headers.items()]
        with self._pool.stream(
            method, url, headers=sent, content=body, extensions={"timeout": limits}
        ) as answer:
            if 300 <= answer.status < 400:
                raise InvalidInput(
                    name, f"{self._address} sends elsewhere; set TOCSIN_URL to where it leads"
                )
            text = b"".join(self._bounded(name, answer.iter_stream()))
            after = dict(answer.headers).get(b"retry-after", b"0")
            try:
                said = json.loads(text)
            except (ValueError, RecursionError):
                said = None
            return answer.status, said, float(after) if after.isdigit() else 0.0

    def _bounded(self, name: str, pieces: Any) -> Iterator[bytes]:
        size = 0
        for piece in pieces:
            size += len(piece)
            if size > LONGEST_ANSWER:
                raise Unavailable(name, f"{self._address} answers without end")
            yield piece


def _is_ours(status: int, said: Any) -> bool:
    """Whether an answer is the fleet's word, and not that of a server or proxy that is busy."""
    error = said.get("error") if isinstance(said, dict) else None
    return status != 429 and isinstance(error, dict) and error.get("code") in CODES


def unproved(address: str, failure: Exception) -> str:
    """What is wrong with a server's certificate, and what to do, if that kept a line from it."""
    wrong: BaseException | None = failure
    while wrong is not None and not isinstance(wrong, ssl.SSLCertVerificationError):
        inner = (each for each in wrong.args if isinstance(each, Exception))
        wrong = next(inner, wrong.__cause__)
    if wrong is None:
        return ""
    return (
        f"{address} does not prove who it is ({wrong.verify_message}); if its authority is your "
        "own, name its certificate in SSL_CERT_FILE"
    )


def refusal_of(name: str, status: int, error: Mapping[str, Any], address: str) -> BrokerError:
    """The error that a body tells of."""
    operation = str(error.get("operation") or name)
    detail, code = str(error.get("detail") or f"{address} answers {status}"), error.get("code")
    more = {each: str(error.get(each) or "") for each in ("message_id", "reason", "limit")}
    if code == NoReply.code:
        return NoReply(operation, detail, **more)
    if code == CeilingActive.code:
        return CeilingActive(operation, detail, more["message_id"])
    kind = CODES.get(str(code))
    if kind is not None:
        return kind(operation, detail)
    if code == "internal":
        return Unavailable(operation, f"at {address}: {detail}")
    codes = {401: "unauthorized", 403: "forbidden", 413: "too_large"}  # as a proxy says it
    if status in codes:
        return CODES[codes[status]](operation, detail)
    text = f"{detail}; is TOCSIN_URL the address of `tocsin mcp --http`?"
    return InvalidInput(operation, text) if status < 500 else Unavailable(operation, text)


class _FarBroker:
    """In the place of the broker, whose bells ring at the server."""

    def __init__(self, remote: Remote) -> None:
        self._remote = remote

    @contextmanager
    def hear(self, channel: str, topic: str, waiter: Settable) -> Iterator[None]:
        """Of the agent's own arrivals the server tells. For all else who waits looks again."""
        over = threading.Event()
        if topic == "arrived":
            listen = partial(self._listen, waiter, over)
            threading.Thread(target=listen, name="tocsin-bell", daemon=True).start()
        try:
            yield
        finally:
            over.set()

    def _listen(self, waiter: Settable, over: threading.Event) -> None:
        pause = _PAUSE
        while not over.is_set():
            try:
                if self._remote.rang():
                    waiter.set()
                pause = _PAUSE
            except Exception:  # who waits will be told, by a call of its own
                over.wait(pause)
                pause = min(2 * pause, _LONGEST_QUIET)

    def forget(self, agent: object) -> None:
        """Nothing is renewed here."""

    def __getattr__(self, name: str) -> NoReturn:
        raise operators_own(name)


class _RemoteAgent:
    """What parents and children far away have in common."""

    _remote: Remote
    caller: Caller

    def _do(self, name: str, args: Any, given: Mapping[str, Any], key: str | None = None) -> Any:
        operation = OPERATIONS[name]
        method = operation.method_of(parent=self.caller.is_parent)
        said = self._remote.call(name, method.bind(*args, **given), key=key)
        return operation.read(said.get("result"))

    def _wait(
        self, name: str, args: Any, given: Mapping[str, Any], ends: float
    ) -> tuple[Any, dict[str, Any] | None]:
        """What one call of a chain brought, and what is pending."""
        operation = OPERATIONS[name]
        method = operation.method_of(parent=self.caller.is_parent)
        wait = max(0.0, min(HOLD, ends - time.monotonic()))
        said = self._remote.call(name, method.bind(*args, **given), wait=wait)
        result = operation.read(said["result"]) if "result" in said else None
        return result, said.get("pending")

    def message(self, to: str, body: str, **given: Any) -> Sent:
        """As of an agent at hand; where there is no room, it waits in short calls."""
        patience = check_timeout("message", "wait", given.pop("wait", None))
        key = make_id("call")  # of all tries, so that they are one message
        ends = time.monotonic() + (patience or 0)
        while True:
            left = max(0.0, ends - time.monotonic())
            if patience is not None:
                given["wait"] = min(HOLD / 5, left)
            try:
                sent: Sent = self._do("message", (to, body), given, key)
            except QueueFull as error:
                if patience is None:
                    raise
                if time.monotonic() >= ends:
                    detail = error.detail.rpartition(" (it waited ")[0] or error.detail
                    raise QueueFull(
                        error.operation, f"{detail} (it waited {patience:g} s)"
                    ) from None
            else:
                return sent

    def ask(self, to: str, body: str, *, key: str | None = None, **given: Any) -> Reply:
        """As of an agent at hand; its probe must be beside the agent that is asked."""
        key = key if key is not None else make_id("call")
        reply, pending = self._wait("ask", (to, body), {**given, "key": key}, math.inf)
        if pending is not None:
            reply = self.ask_wait(str(pending["message_id"]))
        assert isinstance(reply, Reply)
        return reply

    def ask_wait(
        self, message: Any, timeout: timedelta | float | None = None, *, probe: Any = None
    ) -> Reply | None:
        """As of an agent at hand."""
        request = check_message("ask_wait", message)
        seconds = check_timeout("ask_wait", "timeout", timeout)
        ends = math.inf if seconds is None else time.monotonic() + seconds
        while True:
            try:
                reply, _ = self._wait("ask_wait", (request,), {"probe": probe}, ends)
            except Unavailable as error:
                back = f"to come back to this ask: ask_wait({request!r})"
                raise Unavailable("ask", f"{error.detail}; {back}") from error
            if isinstance(reply, Reply):
                return reply
            if time.monotonic() >= ends:
                return None


class RemoteParent(_RemoteAgent, Parent):
    """A parent whose operations run at a server of Tocsin."""

    def __init__(self, remote: Remote, caller: Caller) -> None:
        super().__init__(cast("Broker", _FarBroker(remote)), caller, remote.token)
        self._remote = remote

    def wait(
        self,
        *task_ids: str,
        timeout: timedelta | float | None = None,
        return_when: ReturnWhen | str = ReturnWhen.ALL,
    ) -> list[Settlement]:
        """As of a parent at hand."""
        seconds = check_timeout("wait", "timeout", timeout)
        enough = check_choice("wait", "return_when", return_when, ReturnWhen)
        ends = math.inf if seconds is None else time.monotonic() + seconds
        while True:
            settled, pending = self._wait("wait", task_ids, {"return_when": enough}, ends)
            if pending is None or time.monotonic() >= ends:
                return list(settled)


class RemoteChild(_RemoteAgent, Child):
    """A child whose operations run at a server of Tocsin."""

    def __init__(self, remote: Remote, caller: Caller) -> None:
        super().__init__(cast("Broker", _FarBroker(remote)), caller, remote.token)
        self._remote = remote


def _far(operation: Operation) -> Callable[..., Any]:
    def method(self: _RemoteAgent, *args: Any, **given: Any) -> Any:
        return self._do(operation.name, args, given)

    method.__doc__ = operation.text
    return method


def _refused(name: str) -> Callable[..., NoReturn]:
    def method(self: _RemoteAgent, *args: Any, **given: Any) -> NoReturn:
        raise Forbidden(name, f"{name} does not work over HTTP: {ELSEWHERE[name]}")

    return method


for _kind in (RemoteParent, RemoteChild):
    for _each in OPERATIONS.values():
        if _each.name not in vars(_RemoteAgent) and _each.name not in vars(_kind):
            setattr(_kind, _each.name, _far(_each))
    for _name in ELSEWHERE.keys() & set(dir(_kind)):
        setattr(_kind, _name, _refused(_name))
