"""One MCP server for every agent and either transport: what it offers, and to whom."""

from __future__ import annotations

import logging
from collections.abc import Callable
from importlib.metadata import version
from typing import Any

from mcp.server.context import ServerRequestContext
from mcp.server.lowlevel import Server
from mcp.shared.exceptions import MCPError
from mcp_types import (
    INVALID_PARAMS,
    CallToolRequestParams,
    CallToolResult,
    GetPromptRequestParams,
    GetPromptResult,
    ListPromptsResult,
    ListResourcesResult,
    ListResourceTemplatesResult,
    ListToolsResult,
    PaginatedRequestParams,
    ReadResourceRequestParams,
    ReadResourceResult,
)

from tocsin.broker.errors import BrokerError
from tocsin.workers.mcp import asking, library, mail, work
from tocsin.workers.mcp.clients import Patience
from tocsin.workers.mcp.toolbox import Entry, ToolCall, defect, read_arguments, refusal
from tocsin.workers.mcp.visitors import Visitor, insist

log = logging.getLogger("tocsin.mcp")

Context = ServerRequestContext[Any, Any]

PARENT_TOOLS = (
    "delegate watch task_wait task_show task_cancel agent_register agent_close roster message ask "
    "ask_wait reply remind reroute inbox ack"
)
CHILD_TOOLS = "inbox ack message ask ask_wait reply progress done roster"

_ALL = mail.box.entries | work.box.entries | asking.box.entries


class Handlers:
    """What is done with each kind of request: made by whom `visit` says, and as patient as
    `patience` says."""

    def __init__(
        self, visit: Callable[[Context], Visitor], patience: Callable[[Context], Patience]
    ) -> None:
        self._visit = visit
        self._patience = patience

    def _tools(self, context: Context) -> dict[str, Entry]:
        names = PARENT_TOOLS if self._visit(context).is_parent else CHILD_TOOLS
        return {name: _ALL[name] for name in names.split()}

    async def list_tools(
        self, context: Context, params: PaginatedRequestParams | None
    ) -> ListToolsResult:
        """The tools of whoever asks."""
        return ListToolsResult(tools=[entry.shown for entry in self._tools(context).values()])

    async def call_tool(
        self, context: Context, params: CallToolRequestParams
    ) -> CallToolResult | dict[str, Any]:
        """The answer of a tool, its refusal, or the handle of an ask."""
        tools = self._tools(context)
        entry = tools.get(params.name)
        if entry is None:
            detail = f"there is no tool {params.name[:80]!r} for you; there are {', '.join(tools)}"
            raise MCPError(code=INVALID_PARAMS, message=detail)
        handles = params.name == "ask" and asking.takes_handles(context)
        call = ToolCall(context, self._visit(context), self._patience(context), handles)
        try:
            given = read_arguments(entry, params.arguments)
            answer = await insist(call.visitor, lambda: entry.run(call, **given))
            if handles and answer.data["status"] == "pending":
                handle = await asking.handle(await call.agent(), answer.data["ask_id"])
                return {"resultType": "task"} | handle
        except BrokerError as error:
            return refusal(error, call.visitor)
        except Exception:
            log.exception("a defect of Tocsin in tool %s", params.name)
            return defect()
        return answer.result()

    async def list_resources(
        self, context: Context, params: PaginatedRequestParams | None
    ) -> ListResourcesResult:
        """What can be read under an address of its own."""
        return ListResourcesResult(resources=[library.ROSTER])

    async def list_templates(
        self, context: Context, params: PaginatedRequestParams | None
    ) -> ListResourceTemplatesResult:
        """What can be read by an id."""
        return ListResourceTemplatesResult(resource_templates=[library.TASK])

    async def read_resource(
        self, context: Context, params: ReadResourceRequestParams
    ) -> ReadResourceResult:
        """What stands at an address."""
        visitor = self._visit(context)

        async def read() -> ReadResourceResult:
            return await library.read(await visitor.agent(), str(params.uri))

        try:
            return await insist(visitor, read)
        except BrokerError as error:
            raise library.refused(error) from None

    async def list_prompts(
        self, context: Context, params: PaginatedRequestParams | None
    ) -> ListPromptsResult:
        """The prompts."""
        return ListPromptsResult(prompts=library.prompts())

    async def get_prompt(self, context: Context, params: GetPromptRequestParams) -> GetPromptResult:
        """One prompt."""
        return library.prompt(params.name)

    async def get_task(self, context: Context, params: asking.TaskParams) -> dict[str, Any]:
        """How it stands with an ask that was answered by a handle."""
        return await asking.task_state(self._visit(context), params.task_id)

    async def leave_task(self, context: Context, params: asking.TaskParams) -> dict[str, Any]:
        """Nothing: an ask takes no input, and goes on when its client has stopped waiting."""
        return {}


def build(do: Handlers) -> Server[Any]:
    """A server that does this with what it is asked."""
    server: Server[Any] = Server(
        "tocsin",
        version=version("tocsin"),
        title="Tocsin",
        instructions=library.PURPOSE,
        on_list_tools=do.list_tools,
        on_list_resources=do.list_resources,
        on_list_resource_templates=do.list_templates,
        on_read_resource=do.read_resource,
        on_list_prompts=do.list_prompts,
        on_get_prompt=do.get_prompt,
    )
    server.add_request_handler("tools/call", CallToolRequestParams, do.call_tool)
    server.add_request_handler("tasks/get", asking.TaskParams, do.get_task)
    server.add_request_handler("tasks/cancel", asking.TaskParams, do.leave_task)
    server.add_request_handler("tasks/update", asking.TaskParams, do.leave_task)
    server.extensions = {asking.TASKS: {}}
    return server
