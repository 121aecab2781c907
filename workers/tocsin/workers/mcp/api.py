"""The JSON API: the operations of an agent as POSTs of JSON, behind the gate of the MCP server.

Whoever must not hold the fleet's own url works through it: the command line and hooks with
`TOCSIN_URL=https://...`, and any program that speaks HTTP. The table of `operations` says what
there is. Nothing is kept from one call to the next: one that is repeated with its `Idempotency-Key`
makes the same ids, and so has one effect; one that waits returns in time, and is made again.
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import AsyncIterator, Coroutine
from contextlib import (
    AbstractContextManager,
    AsyncExitStack,
    asynccontextmanager,
    nullcontext,
)
from dataclasses import dataclass
from typing import Any, TypeVar

from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from tocsin.broker import AsyncAgent, AsyncBroker, AsyncChild, AsyncParent, ReturnWhen, asks
from tocsin.broker._async.attendance import AsyncAttendance
from tocsin.broker.clock import ScaledClock, read_time
from tocsin.broker.errors import BrokerError, HerdClosed, InvalidInput
from tocsin.broker.ids import repeating
from tocsin.broker.requests import check_message
from tocsin.broker.signals import AsyncSignal
from tocsin.broker.validation import check_text, check_timeout
from tocsin.workers.mcp.gate import API, VISITOR
from tocsin.workers.mcp.openapi import document
from tocsin.workers.mcp.toolbox import next_step
from tocsin.workers.mcp.visitors import Guest, finished
from tocsin.workers.operations import ELSEWHERE, OPERATIONS, UNSEEN, WAITS, Method, Operation

T = TypeVar("T")

log = logging.getLogger("tocsin.api")

LONGEST_WAIT = 25.0
"""Seconds that a call waits at most, below the limit of every proxy that is in use."""

STATUS = {
    "invalid_input": 400,
    "unauthorized": 401,
    "forbidden": 403,
    "unknown_agent": 404,
    "unknown_herd": 404,
    "unknown_message": 404,
    "unknown_plan": 404,
    "unknown_task": 404,
    "agent_closed": 410,
    "herd_closed": 410,
    "too_large": 413,
    "invalid_envelope": 500,
    "unavailable": 503,
}
"""The status of each error; of all others it is 409, what there is does not allow it."""

_PREFER = re.compile(r"\bwait=([0-9]{1,6}(?:\.[0-9]{1,3})?)")


def refused(error: BrokerError, guest: Guest) -> Response:
    """A refusal, with what to do."""
    facts: dict[str, Any] = {
        "code": error.code,
        "operation": error.operation,
        "detail": error.detail,
        "retryable": error.retryable,
        "next": next_step(error, is_parent=guest.is_parent),
    }
    for name in ("message_id", "reason", "limit"):
        if vars(error).get(name):
            facts[name] = vars(error)[name]
    return JSONResponse({"error": facts}, status_code=STATUS.get(error.code, 409))


def routes(broker: AsyncBroker) -> list[Route]:
    """What the API serves, of the fleet of this broker."""
    doors = Doors(broker)
    return [
        Route(f"{API}openapi.json", doors.described),
        Route(f"{API}seat", doors.seat),
        Route(f"{API}bell", doors.bell),
        Route(f"{API}{{operation}}", doors.operation, methods=["POST"]),
    ]


@dataclass(frozen=True)
class _Call:
    """One call of an operation."""

    operation: Operation
    method: Method
    listed: list[Any]
    given: dict[str, Any]
    key: str | None
    """What stands for this call, however often it is sent."""
    wait: float
    """Seconds that it may last."""


class Doors:
    """The handlers of the API."""

    def __init__(self, broker: AsyncBroker) -> None:
        self._broker = broker
        self._document = document()

    async def described(self, request: Request) -> Response:
        """What there is, as OpenAPI has it."""
        return JSONResponse(self._document)

    async def seat(self, request: Request) -> Response:
        """Whom the token proves, and what the caller must know to make ids and tell time."""
        guest: Guest = request.scope[VISITOR]
        try:
            async with _agent(guest, request) as agent:
                fleet, caller = await self._broker.fleet(), agent.caller
                now = read_time(await self._broker.link.command("seat", "TIME"))
        except BrokerError as error:
            return refused(error, request.scope[VISITOR])
        if isinstance(fleet.clock, ScaledClock):
            now = fleet.clock.at(now)
        found = {
            "fleet": fleet.name,
            "herd": caller.herd,
            "agent": caller.agent,
            "generation": caller.generation,
            "instance": caller.instance,
            "now": now.isoformat(),
        }
        return JSONResponse({"result": found})

    async def bell(self, request: Request) -> Response:
        """Whether mail arrived for the agent while the call lasted, or may have."""
        signal = AsyncSignal()
        try:
            async with _agent(request.scope[VISITOR], request, seen=False) as agent:
                await agent.look(limit=1)  # the token is proved
                with agent.hear_arrivals(signal):
                    rang = await _unless_gone(signal.wait(_patience(request)), request)
        except BrokerError as error:
            return refused(error, request.scope[VISITOR])
        except ClientDisconnect:
            return Response(status_code=400)
        return JSONResponse({"result": {"rang": rang}})

    async def operation(self, request: Request) -> Response:
        """One call of an operation."""
        name, guest = request.path_params["operation"], request.scope[VISITOR]
        try:
            call = await _read(name, guest, request)
            return await self._answer(call, guest, request)
        except BrokerError as error:
            return refused(error, request.scope[VISITOR])
        except ClientDisconnect:
            return Response(status_code=400)
        except Exception:
            log.exception("a defect of Tocsin in operation %s", name)
            facts = {
                "code": "internal",
                "operation": name,
                "detail": "a defect of Tocsin; the log of its server has more",
                "retryable": False,
                "next": "Tell your user.",
            }
            return JSONResponse({"error": facts}, status_code=500)

    async def _answer(self, call: _Call, guest: Guest, request: Request) -> Response:
        name = call.operation.name
        pending: dict[str, Any] | None = None
        async with _agent(guest, request, waits=name in WAITS, seen=name not in UNSEEN) as agent:
            if name == "wait":
                found, pending = await _settled(call, agent, request)
            elif name in WAITS:
                found, pending = await _on_the_line(call, agent, request)
            else:
                with _same(call, guest):
                    found = await getattr(agent, name)(*call.listed, **call.given)
        if pending is None:
            return JSONResponse({"result": call.operation.write(found)})
        settled = {} if found is None else {"result": call.operation.write(found)}
        return JSONResponse({"pending": pending, **settled}, status_code=202)


def _same(call: _Call, guest: Guest) -> AbstractContextManager[None]:
    """While inside, ids are those of every call with this one's `Idempotency-Key`."""
    if call.key is None:
        return nullcontext()
    return repeating("api", guest.secret, call.operation.name, call.key)


async def _read(name: str, guest: Guest, request: Request) -> _Call:
    operation = OPERATIONS.get(name)
    if operation is None:
        instead = ELSEWHERE.get(name)
        known = f"there are {', '.join(OPERATIONS)}"
        detail = f"there is no operation {name[:80]!r} over HTTP; {instead or known}"
        raise InvalidInput("api", detail)
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    body = await request.body()
    if kind != "application/json" and (body or kind):
        raise InvalidInput(name, "send the header `Content-Type: application/json`")
    method = operation.method_of(parent=guest.is_parent)
    listed, given = method.read(body)
    key = request.headers.get("idempotency-key")
    if key is not None:
        check_text(name, "Idempotency-Key", key)
    wait = _patience(request)
    for field in ("timeout", "wait"):
        if given.get(field) is not None:
            seconds = check_timeout(name, field, given[field])
            assert seconds is not None
            given[field] = wait = min(wait, seconds)
    return _Call(operation, method, listed, given, key, wait)


def _patience(request: Request) -> float:
    """Seconds that a call may last."""
    prefer = _PREFER.search(request.headers.get("prefer", ""))
    return min(float(prefer[1]), LONGEST_WAIT) if prefer else LONGEST_WAIT


@asynccontextmanager
async def _agent(
    guest: Guest, request: Request, *, waits: bool = False, seen: bool = True
) -> AsyncIterator[AsyncParent | AsyncChild]:
    """The agent that calls. In a closed herd it can only look."""
    async with AsyncExitStack() as stack:
        agent: AsyncAgent
        try:
            if not seen or request.headers.get("tocsin-presence") == "none":
                agent = await guest.unseen()
            elif waits:
                agent = await stack.enter_async_context(guest.staying())
            else:
                agent = await guest.agent()
        except HerdClosed:
            agent = await guest.unseen()
        assert isinstance(agent, AsyncParent | AsyncChild)
        yield agent


async def _on_the_line(
    call: _Call, agent: AsyncParent | AsyncChild, request: Request
) -> tuple[Any, dict[str, Any] | None]:
    """What an ask came to in the time of this call, and else what to come back with.

    An answer that came as its client went goes to the agent's mail, because nobody has it.
    """
    name, given = call.operation.name, call.given
    if name == "ask":
        key = given.get("key") or call.key
        if key is None:
            detail = "give a key, or the header Idempotency-Key: an ask is made again by it"
            raise InvalidInput(name, detail)
        ask = agent.caller.new_id("msg", name, key)
        line = AsyncAttendance(agent, ask, None)
        names = ("task", "window", "ceiling", "thread", "data")
        first = asks.open_ask(
            agent.caller,
            given["to"],
            given["body"],
            request=ask,
            call=line.call,
            totals="",
            **{each: given.get(each) for each in names},
        )
    else:
        ask = check_message(name, given["message"])
        line = AsyncAttendance(agent, ask, None)
        first = await line.look()
    try:
        reply = await _unless_gone(line.wait(first, call.wait), request)
    except ClientDisconnect:
        await finished(agent.broker.run(asks.leave(agent.caller, ask, line.call, told=False)))
        raise
    return reply, {"message_id": ask} if reply is None else None


async def _settled(
    call: _Call, agent: AsyncParent | AsyncChild, request: Request
) -> tuple[Any, dict[str, Any] | None]:
    """The tasks that have settled, and those that are waited for on."""
    assert isinstance(agent, AsyncParent)
    call.given["timeout"] = call.wait
    found = await _unless_gone(agent.wait(*call.listed, **call.given), request)
    left = [each for each in call.listed if each not in {one.task_id for one in found}]
    enough = not left or (found and call.given.get("return_when") == ReturnWhen.FIRST)
    return found, None if enough else {"task_ids": left}


async def _unless_gone(waiting: Coroutine[Any, Any, T], request: Request) -> T:
    """What is waited for, while its client is there."""
    work = asyncio.ensure_future(waiting)
    gone = asyncio.ensure_future(_gone(request))
    try:
        await asyncio.wait({work, gone}, return_when=asyncio.FIRST_COMPLETED)
        if gone.done():
            raise ClientDisconnect
        return work.result()
    finally:
        gone.cancel()
        if not work.done():
            work.cancel()
            await finished(asyncio.wait({work}))


async def _gone(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass
