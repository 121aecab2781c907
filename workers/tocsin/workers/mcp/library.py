"""What can be read beside the tools: the herd's roster, a task with its history, the rules."""

from __future__ import annotations

import json
from typing import Any

from mcp.shared.exceptions import MCPError
from mcp_types import (
    GetPromptResult,
    Prompt,
    PromptMessage,
    ReadResourceResult,
    Resource,
    ResourceTemplate,
    TextContent,
    TextResourceContents,
)

from tocsin.broker import AsyncAgent, AsyncChild, AsyncParent, herds
from tocsin.broker.errors import BrokerError, to_json_rpc
from tocsin.broker.framing import RULE

ROSTER = Resource(
    uri="tocsin://roster",
    name="roster",
    title="Roster of the herd",
    description="Every agent of your herd: role, presence, tasks, unread mail, who waits on whom.",
    mime_type="application/json",
)

TASK = ResourceTemplate(
    uri_template="tocsin://task/{task_id}",
    name="task",
    title="A task and its history",
    description="One task and, for a parent, every step it went through.",
    mime_type="application/json",
)

_TASK_PREFIX = "tocsin://task/"
_NOT_FOUND = -32002
_HISTORY = 1_000

PURPOSE = (
    "You are one agent of a herd: a parent that hands out tasks, and children that do them. These "
    "tools are how you reach the others; what you merely say in your turn reaches nobody. Start "
    "with inbox."
)
"""What a client is told of this server at the beginning."""

_RULES = {
    "child_rules": (
        "How a child works in a herd",
        f"""You are a child agent of a herd. Your parent hands you tasks; others may write to you.

1. Begin with `inbox`. Your task is there, with its id. `ack` what you have dealt with.
2. The end of your turn does not end your task. It stays open until you call `done`.
3. If you cannot go on without an answer, call `ask`. If it returns "pending", call `ask_wait` with
   the ask_id until there is an answer or an error. Never end your turn with a question in its text:
   nobody reads that.
4. If you can go on meanwhile, use `message` with expects_reply, and read the answer in your inbox.
5. Answer questions of others with `reply`, naming the message. The one who asked is waiting.
6. In long work call `progress` now and then. Who waits for you sees by it that you work.
7. When you are finished call `done` once: completed with a summary that holds your whole result, or
   blocked (you cannot go on without something) or failed, with the reason.
8. An error that says retryable may be tried again; any other says what to do instead.

{RULE}""",
    ),
    "parent_rules": (
        "How a parent leads a herd",
        f"""You are the parent of a herd. Your children do the tasks that you hand out.

1. `roster` shows your children. `delegate` hands one of them a task; say in it all that it needs.
2. A task ends by the child's `done`, by a cancel, a failure or its deadline. A child that is
   silent, or whose turn has ended, has not ended its task.
3. Wait with `task_wait` ("pending": call it again), or go on: the end of a watched task wakes you.
4. Read `inbox` when you begin and when you are woken. Answer questions at once with `reply`: a
   child's task waits for it. A reminder there says who waits too long, and what you can do: `reply`
   yourself, `remind`, `reroute`, `task_cancel`, or look with `task_show`.
5. `ack` what you have dealt with.

{RULE}""",
    ),
}


def prompts() -> list[Prompt]:
    """The prompts there are."""
    return [
        Prompt(name=name, title=title, description=title) for name, (title, _) in _RULES.items()
    ]


def prompt(name: str) -> GetPromptResult:
    """One prompt; a name that is none is refused."""
    if name not in _RULES:
        known = ", ".join(_RULES)
        raise MCPError(code=-32602, message=f"there is no prompt {name[:80]!r}; there are {known}")
    title, text = _RULES[name]
    content = TextContent(type="text", text=text)
    return GetPromptResult(
        description=title, messages=[PromptMessage(role="user", content=content)]
    )


async def read(agent: AsyncAgent, uri: str) -> ReadResourceResult:
    """What stands at an address."""
    if uri == ROSTER.uri:
        agents = await agent.broker.run(herds.roster(agent.caller))
        found: Any = [each.model_dump(mode="json", exclude_none=True) for each in agents]
    elif uri.startswith(_TASK_PREFIX):
        found = await _task(agent, uri.removeprefix(_TASK_PREFIX))
    else:
        known = f"{ROSTER.uri} and {TASK.uri_template}"
        raise MCPError(
            code=_NOT_FOUND, message=f"there is no resource {uri[:120]!r}; there are {known}"
        )
    text = json.dumps(found, ensure_ascii=False)
    contents = TextResourceContents(uri=uri, mime_type="application/json", text=text)
    return ReadResourceResult(contents=[contents])


async def _task(agent: AsyncAgent, task: str) -> dict[str, Any]:
    assert isinstance(agent, AsyncParent | AsyncChild)
    found: dict[str, Any] = {"task": (await agent.task(task)).model_dump(mode="json")}
    if isinstance(agent, AsyncParent):
        lines = await agent.journal(limit=_HISTORY)
        found["history"] = [
            each.model_dump(mode="json") for each in lines if each.fields.get("task") == task
        ]
    return found


def refused(error: BrokerError) -> MCPError:
    """A refusal where there is no tool whose error it could be."""
    rpc: dict[str, Any] = to_json_rpc(error)
    return MCPError(code=rpc["code"], message=rpc["message"], data=rpc["data"])
