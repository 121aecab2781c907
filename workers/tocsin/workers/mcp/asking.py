"""Tools that wait: `ask`, `ask_wait`, `task_wait`; and the handle of an ask as an MCP task.

No client waits as long as an agent may work. So a call that waits says every few seconds that it
does, to a client that wants to hear it, and in any case returns before its client gives up, with
what to come back with. What is waited for is in the broker: a client that gives up, cancels or dies
ends its own call and nothing else, and the same question again joins the one that is open.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import time
from collections.abc import Coroutine
from typing import Annotated, Any, TypeVar

from mcp.server.context import ServerRequestContext
from mcp.shared.exceptions import MCPError
from mcp_types import INVALID_PARAMS, RequestParams
from mcp_types.version import MODERN_PROTOCOL_VERSIONS
from pydantic import Field

from tocsin.broker import AsyncAgent, Reply, ReturnWhen, asks, herds
from tocsin.broker._async.attendance import AsyncAttendance
from tocsin.broker.errors import BrokerError, UnknownMessage
from tocsin.broker.framing import RULE, relation
from tocsin.broker.requests import check_message
from tocsin.workers.mcp.arguments import OwnTask, Target, TaskIds, Words, minutes
from tocsin.workers.mcp.excerpts import PIECES, check_offset, excerpt, fitted, piece
from tocsin.workers.mcp.toolbox import Answer, Toolbox, ToolCall, refusal
from tocsin.workers.mcp.visitors import Visitor, finished, insist
from tocsin.workers.mcp.work import outcomes

T = TypeVar("T")

box = Toolbox()

TASKS = "io.modelcontextprotocol/tasks"
"""The MCP extension by which a client takes a handle and asks for the result by `tasks/get`."""

_RETRY_AFTER = 1
_POLL_MS = 2_000
_SHORTEST = 0.05

AskId = Annotated[str, Field(description="The ask_id that ask returned, 'msg_...'.")]


def key_of(to: str, body: str, task: str | None, key: str | None) -> str:
    """The key of a question: the caller's own, or one that stands for what it asks of whom."""
    content = ["key", key] if key is not None else ["content", to, body, task or ""]
    return f"mcp-{hashlib.sha256(json.dumps(content).encode()).hexdigest()[:40]}"


@box.tool(repeats=True)
async def ask(
    call: ToolCall,
    to: Target,
    body: Words,
    task: OwnTask = None,
    window_minutes: Annotated[
        float | None,
        Field(description="Give up after so much silence; by default after 10 minutes.", gt=0),
    ] = None,
    ceiling_minutes: Annotated[
        float | None,
        Field(description="Give up after this in any case; by default after 4 hours.", gt=0),
    ] = None,
    key: Annotated[
        str | None,
        Field(description="Any word: give one to ask anew what was answered before."),
    ] = None,
) -> Answer:
    """Ask another agent and wait for its answer, when you cannot go on without it. If the answer
    does not come at once, this returns status "pending" with an ask_id: call ask_wait with it,
    again and again, until there is an answer or an error. The same question again joins the one
    that is open.
    """
    async with call.visitor.staying() as agent:
        request = agent.caller.new_id("msg", "ask", key_of(to, body, task, key))
        line = AsyncAttendance(agent, request, None)
        opening = asks.open_ask(
            agent.caller,
            to,
            body,
            request=request,
            call=line.call,
            task=task,
            window=minutes(window_minutes),
            ceiling=minutes(ceiling_minutes),
            totals="",
            thread=None,
            data=None,
        )
        left = 0.0 if call.tasks else _left(call)
        reply = await _on_the_line(call, agent, request, line, line.wait(opening, left))
        return await _outcome(call, agent, request, to, reply)


@box.tool(repeats=True)
async def ask_wait(
    call: ToolCall,
    ask_id: AskId,
    offset: Annotated[
        int, Field(description="Of a long answer: the character of it to read on from.", ge=0)
    ] = 0,
) -> Answer:
    """Wait on for the answer to an ask. Returns it, or status "pending" again: then call this
    again. An error says why no answer came; one that still comes later will be in your inbox.
    """
    request = check_message("ask_wait", ask_id)
    async with call.visitor.staying() as agent:
        line = AsyncAttendance(agent, request, None)
        waiting = line.wait(await line.look(), _left(call))
        reply = await _on_the_line(call, agent, request, line, waiting)
        return await _outcome(call, agent, request, None, reply, offset)


def _left(call: ToolCall) -> float:
    return max(call.patience.limit - (time.monotonic() - call.started), _SHORTEST)


async def _on_the_line(
    call: ToolCall,
    agent: AsyncAgent,
    request: str,
    line: AsyncAttendance,
    waiting: Coroutine[Any, Any, Reply | None],
) -> Reply | None:
    """The answer, if it comes in time. An answer that came as the client cancelled goes to the
    agent's mail, because nobody has it."""
    reply = None
    try:
        reply = await _meanwhile(call, waiting, f"waiting for the answer to {request}")
        await asyncio.sleep(0)  # a cancellation that is under way comes before the answer
    except asyncio.CancelledError:
        leaving = asks.leave(agent.caller, request, line.call, told=False)
        await finished(agent.broker.run(leaving))
        raise
    return reply


async def _meanwhile(call: ToolCall, waiting: Coroutine[Any, Any, T], text: str) -> T:
    """What is waited for; meanwhile its client hears now and then that it is.

    It is a task of its own, which ends in good order when the call is cancelled.
    """
    task = asyncio.ensure_future(waiting)
    try:
        while not (await asyncio.wait({task}, timeout=call.patience.progress_every))[0]:
            await call.report(text)
    except asyncio.CancelledError:
        task.cancel()
        await finished(asyncio.wait({task}))
        raise
    return task.result()


async def _outcome(
    call: ToolCall,
    agent: AsyncAgent,
    request: str,
    to: str | None,
    reply: Reply | None,
    offset: int = 0,
) -> Answer:
    if reply is not None:
        return answered(agent, reply, offset)
    if to is None:
        to = (await agent.receipt(request)).recipient
    data = {
        "status": "pending",
        "ask_id": request,
        "target": await _target(agent, to),
        "retry_after_s": _RETRY_AFTER,
    }
    text = (
        f"No answer from {to} yet; the question {request} stays open. "
        f"Call ask_wait(ask_id={request}) to wait on."
    )
    return Answer(text, data)


async def _target(agent: AsyncAgent, name: str) -> dict[str, Any]:
    """How it stands with whom is asked."""
    for each in await agent.broker.run(herds.roster(agent.caller)):
        if each.agent == name:
            facts = ("agent", "present", "status", "unread", "active_at", "progress", "fraction")
            return each.model_dump(mode="json", exclude_none=True, include=set(facts))
    return {"agent": name}


def answered(agent: AsyncAgent, reply: Reply, offset: int = 0) -> Answer:
    """An answer, its words quoted; of a long one, those from `offset` on."""
    check_offset("ask_wait", offset, reply.body)
    return fitted(_answered(agent, reply, offset, most) for most in PIECES)


def _answered(agent: AsyncAgent, reply: Reply, offset: int, most: int) -> Answer:
    sender = relation(reply.sender, agent.agent)
    late = " It came after the ask had ended." if reply.late else ""
    words = excerpt(reply.body, most, f"ask_wait(ask_id={reply.request_id}", offset)
    text = (
        f"{reply.sender} ({sender}) answered {reply.request_id} with {reply.message_id}, "
        f"{reply.created_at.isoformat(timespec='seconds')}.{late} {RULE}\n{words}"
    )
    data = {
        "status": "answered",
        "ask_id": reply.request_id,
        "message_id": reply.message_id,
        "from": reply.sender,
        "relation": sender,
        "at": reply.created_at.isoformat(timespec="seconds"),
        "late": reply.late,
        "waited_s": round(reply.waited.total_seconds(), 3),
        "body": reply.body,
    }
    if len(reply.body) > most or offset:
        data |= piece(reply.body, offset, most)
    if len(json.dumps(reply.data)) <= most:
        data["data"] = reply.data
    return Answer(text, data)


@box.tool(reads=True)
async def task_wait(
    call: ToolCall,
    tasks: TaskIds,
    first: Annotated[bool, Field(description="Return when the first of them has ended.")] = False,
) -> Answer:
    """Wait until tasks have ended. Returns their results, or status "pending" with those that have
    ended so far: then call this again, or go on and let your inbox tell you.
    """
    async with call.visitor.staying() as agent:
        parent = call.as_parent(agent)
        enough = ReturnWhen.FIRST if first else ReturnWhen.ALL
        waiting = parent.wait(*tasks, timeout=_left(call), return_when=enough)
        ended = await _meanwhile(call, waiting, f"waiting for {', '.join(tasks[:3])}")
    over = {each.task_id for each in ended}
    still = [each for each in dict.fromkeys(tasks) if each not in over]
    pending = bool(still) and not (first and ended)
    data: dict[str, Any] = {"status": "pending" if pending else "settled"}
    last = f"Still open: {', '.join(still)}."
    if pending:
        data["retry_after_s"] = _RETRY_AFTER
        last += " Call task_wait again to wait on."
    return outcomes(ended, still, data, last)


def takes_handles(context: ServerRequestContext[Any, Any]) -> bool:
    """Whether the client of this call takes a handle where an answer is not there yet."""
    if context.protocol_version not in MODERN_PROTOCOL_VERSIONS:
        return False
    capabilities = context.session.client_capabilities
    return bool(capabilities and TASKS in (capabilities.extensions or {}))


async def handle(agent: AsyncAgent, request: str) -> dict[str, Any]:
    """The handle of an ask that is open: it is in the broker, so any server answers for it."""
    at = (await agent.receipt(request)).accepted_at.isoformat(timespec="milliseconds")
    return {
        "taskId": request,
        "status": "working",
        "statusMessage": "The question is open.",
        "createdAt": at,
        "lastUpdatedAt": at,
        "ttlMs": None,
        "pollIntervalMs": _POLL_MS,
    }


class TaskParams(RequestParams):
    """What the requests about a handle name."""

    task_id: str = Field(alias="taskId")


async def task_state(visitor: Visitor, request: str) -> dict[str, Any]:
    """How it stands with an ask, as `tasks/get` tells it: with its result where there is one."""

    async def look() -> tuple[AsyncAgent, dict[str, Any]]:
        agent = await visitor.agent()
        return agent, await handle(agent, check_message("tasks/get", request))

    try:
        agent, known = await insist(visitor, look)
    except BrokerError as error:
        raise MCPError(code=INVALID_PARAMS, message=error.detail) from None
    line = AsyncAttendance(agent, request, None)
    try:
        reply = await line.wait(await line.look(), 0.0)
    except UnknownMessage as error:
        raise MCPError(code=INVALID_PARAMS, message=error.detail) from None
    except BrokerError as error:
        if error.code == "unavailable":
            raise MCPError(code=-32000, message=error.detail) from None
        result = refusal(error, visitor)
    else:
        if reply is None:
            return known
        result = answered(agent, reply).result()
        known["lastUpdatedAt"] = reply.created_at.isoformat(timespec="milliseconds")
    ended = {"status": "completed", "statusMessage": "The ask has ended."}
    return (
        known | ended | {"result": result.model_dump(mode="json", by_alias=True, exclude_none=True)}
    )
