"""How a function becomes a tool: its schema, its answers, its refusals.

    @box.tool
    async def remind(call: ToolCall, message: MessageId) -> Answer:
        \"\"\"Wake whoever an open question waits on. ...\"\"\"

The docstring is what a model reads of the tool; parameters with their `Field`s are its flat schema.
A `BrokerError` becomes a tool error with its code, what to do next, and whether to try again.
"""

from __future__ import annotations

import difflib
import inspect
import json
import logging
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from mcp.server.context import ServerRequestContext
from mcp_types import CallToolResult, TextContent, Tool, ToolAnnotations
from pydantic import BaseModel, ConfigDict, ValidationError, create_model
from pydantic_core import to_jsonable_python

from tocsin.broker import AsyncAgent, AsyncChild, AsyncParent
from tocsin.broker.errors import BrokerError, Forbidden, InvalidInput, to_json_rpc
from tocsin.workers.mcp.clients import Patience
from tocsin.workers.mcp.visitors import Visitor

log = logging.getLogger("tocsin.mcp")


@dataclass(frozen=True)
class Answer:
    """What a tool has to say: a short text, and the same as data."""

    text: str
    data: Mapping[str, Any]

    def result(self) -> CallToolResult:
        """The answer as it is sent."""
        return CallToolResult(
            content=[TextContent(type="text", text=self.text)],
            structured_content=to_jsonable_python(self.data),
        )


@dataclass
class ToolCall:
    """One call: who makes it, and how long its client stays on the line."""

    context: ServerRequestContext[Any, Any]
    visitor: Visitor
    patience: Patience
    tasks: bool = False
    """Whether the client takes a task handle in the place of an answer."""
    started: float = field(default_factory=time.monotonic)

    async def agent(self) -> AsyncAgent:
        """The agent that calls."""
        return await self.visitor.agent()

    async def parent(self) -> AsyncParent:
        """The agent that calls, which is a parent, or it would not have this tool."""
        return self.as_parent(await self.agent())

    def as_parent(self, agent: AsyncAgent) -> AsyncParent:
        """An agent that is a parent, or is refused."""
        if not isinstance(agent, AsyncParent):
            raise Forbidden("tool", "this tool is for the parent of a herd; ask it with `message`")
        return agent

    async def child(self) -> AsyncChild:
        """The agent that calls, which is a child, or it would not have this tool."""
        agent = await self.agent()
        if not isinstance(agent, AsyncChild):
            raise Forbidden("tool", "this tool is for a child, of its own task")
        return agent

    async def works(self) -> None:
        """Notes that this agent's model is at work, where what it calls does not show that.

        The count of a probe that grows from call to call, whichever process makes it.
        """
        agent = await self.agent()
        await agent.probe({"tool_calls": time.time_ns() // 1_000_000})

    async def report(self, text: str) -> None:
        """Says that the call is still waited on, to a client that wants to know."""
        elapsed = time.monotonic() - self.started
        await self.context.session.report_progress(round(elapsed, 1), message=text)


Run = Callable[..., Awaitable[Answer]]


class _Arguments(BaseModel):
    model_config = ConfigDict(extra="forbid", hide_input_in_errors=True)


@dataclass(frozen=True)
class Entry:
    """A tool: what a client is told of it, and what it does."""

    shown: Tool
    arguments: type[BaseModel]
    run: Run


class Toolbox:
    """Tools by name, in the order in which they were put in."""

    def __init__(self) -> None:
        self.entries: dict[str, Entry] = {}

    def tool(
        self, *, reads: bool = False, repeats: bool = False, ends: bool = False
    ) -> Callable[[Run], Run]:
        """Puts a function in. `reads`: it changes nothing; `repeats`: called twice it does no more
        than once; `ends`: it ends something for good."""

        def put(run: Run) -> Run:
            parameters = list(inspect.signature(run, eval_str=True).parameters.values())[1:]
            fields: dict[str, Any] = {
                each.name: (
                    each.annotation,
                    ... if each.default is inspect.Parameter.empty else each.default,
                )
                for each in parameters
            }
            arguments = create_model(run.__name__, __base__=_Arguments, **fields)
            shown = Tool(
                name=run.__name__,
                description=inspect.cleandoc(run.__doc__ or ""),
                input_schema=flat_schema(arguments),
                annotations=ToolAnnotations(
                    read_only_hint=reads,
                    idempotent_hint=repeats or reads,
                    destructive_hint=ends,
                    open_world_hint=False,
                ),
            )
            self.entries[run.__name__] = Entry(shown, arguments, run)
            return run

        return put


def flat_schema(arguments: type[BaseModel]) -> dict[str, Any]:
    """The schema of a tool's arguments, as plain as models read it best: no references, no unions
    with null, no titles."""
    schema = arguments.model_json_schema()
    return {
        "type": "object",
        "properties": {name: _plain(each) for name, each in schema.get("properties", {}).items()},
        "required": schema.get("required", []),
        "additionalProperties": False,
    }


def _plain(schema: dict[str, Any]) -> dict[str, Any]:
    plain = {name: value for name, value in schema.items() if name not in ("anyOf", "title")}
    for kind in schema.get("anyOf", []):
        if kind != {"type": "null"}:
            plain |= kind
    if plain.get("default") is None:
        plain.pop("default", None)
    return plain


def read_arguments(entry: Entry, given: Mapping[str, Any] | None) -> dict[str, Any]:
    """The checked arguments of a call; what is wrong with them is said in words."""
    try:
        read = entry.arguments.model_validate(dict(given or {}))
    except ValidationError as failure:
        found = failure.errors(include_url=False, include_context=False)
        error = next((each for each in found if each["type"] == "extra_forbidden"), found[0])
    else:
        return {name: getattr(read, name) for name in type(read).model_fields}
    name, known = ".".join(str(part) for part in error["loc"]), list(entry.arguments.model_fields)
    if error["type"] == "extra_forbidden":
        near = difflib.get_close_matches(name, known, 1)
        meant = f", did you mean {near[0]}" if near else ""
        detail = (
            f"there is no argument {name[:80]!r}{meant}; there are {', '.join(known) or 'none'}"
        )
    elif error["type"] == "missing":
        detail = f"the argument {name} is missing; it is needed"
    else:
        detail = f"{name}: {error['msg']}"
    raise InvalidInput(entry.shown.name, detail)


NEXT = {
    "agent_busy": "Wait until its task has ended, or delegate with queue=true.",
    "agent_closed": "Look at roster for who is there.",
    "ceiling_active": "Do not ask again; look at roster or go on. The answer will come as mail.",
    "duplicate_conflict": "Use another key for other content.",
    "forbidden": "Ask your parent with message, or do it yourself.",
    "herd_closed": "Stop; nothing more can be done in this herd.",
    "invalid_input": "Call again with the argument put right.",
    "loop_limit": "Stop answering this agent; go on with your task, or tell your parent.",
    "no_reply": "Call ask again with the same words to wait on, or go on without the answer.",
    "pending_requests": "Wait for the answers, or call done with override_reason.",
    "queue_full": "Wait until it has read its mail, then call again.",
    "request_cancelled": "Go on without the answer.",
    "too_large": "Shorten it, or put it into a file and send the path.",
    "unauthorized": "Stop and tell your user: this seat's token is not valid any more.",
    "unavailable": "Wait some seconds, then make the same call again.",
    "unknown_agent": "Look at roster for the names.",
    "unknown_herd": "Stop and tell your user: the herd of this seat is not there.",
    "unknown_message": "Look at inbox for the ids of your mail.",
    "unknown_task": "Check the id; inbox names the task that is yours.",
    "wrong_state": "Look at its state before you try something else.",
}
"""What a model does best after each refusal."""

_ELSE = "Tell your user what was refused, and why."

_NEXT_OF = {
    ("ack", "wrong_state"): "Read it with inbox first, then ack it.",
    ("done", "wrong_state"): "It has ended; go on with your next mail.",
}
"""The same, where one tool knows better."""

_NEXT_OF_PARENT = {
    "forbidden": "Do something else, or tell your user: a parent may not do this.",
    "loop_limit": "Stop answering this agent, and go on with other work.",
    "unknown_task": "Check the id; task_show without one lists your tasks.",
}
"""The same, for whom nobody is above."""

_SETUP = frozenset({"seat", "settings", "connect", "join", "mcp"})
"""Operations before any call of a tool, whose arguments are none of the tool's."""

_SETUP_CODES = frozenset({"invalid_input", "unknown_agent", "agent_closed"})


def next_step(error: BrokerError, *, is_parent: bool) -> str:
    """What to do after a refusal."""
    if error.operation in _SETUP and error.code in _SETUP_CODES:
        return "Stop and tell your user: this is about how these tools were set up, not your call."
    known = _NEXT_OF.get((error.operation, error.code))
    above = _NEXT_OF_PARENT.get(error.code) if is_parent else None
    return known or above or NEXT.get(error.code, _ELSE)


def refusal(error: BrokerError, visitor: Visitor) -> CallToolResult:
    """A refusal as the error of a tool call that this one made."""
    rpc = to_json_rpc(error)
    facts: dict[str, Any] = {
        "code": error.code,
        "operation": error.operation,
        "detail": error.detail,
        "next": next_step(error, is_parent=visitor.is_parent),
        "retryable": error.retryable,
        "json_rpc": rpc,
    }
    for name in ("message_id", "reason", "limit"):
        if vars(error).get(name):
            facts["ask_id" if name == "message_id" else name] = vars(error)[name]
    again = "may succeed later" if error.retryable else "will not succeed unchanged"
    text = f"Refused ({error.code}): {error.detail}.\n{facts['next']} The same call {again}."
    return CallToolResult(
        content=[TextContent(type="text", text=text)],
        structured_content={"error": json.loads(json.dumps(facts))},
        is_error=True,
    )


def defect() -> CallToolResult:
    """What a model is told of a failure that is none of its own."""
    text = "Refused (internal): a defect of Tocsin; the log of its MCP server has more."
    error = {"code": "internal", "detail": text, "next": "Tell your user.", "retryable": False}
    return CallToolResult(
        content=[TextContent(type="text", text=text)],
        structured_content={"error": error},
        is_error=True,
    )
