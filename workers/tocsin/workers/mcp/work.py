"""Tools of tasks: a parent's to hand out and follow, a child's to report and end."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal

from pydantic import Field

from tocsin.broker import Settlement, Task
from tocsin.broker.errors import InvalidInput
from tocsin.broker.framing import RULE, one_line
from tocsin.broker.rendering import unwakeable
from tocsin.broker.settings_files import resolve_runner
from tocsin.workers.mcp.arguments import (
    AgentName,
    Key,
    QuestionId,
    Reason,
    TaskId,
    TaskIds,
    minutes,
)
from tocsin.workers.mcp.excerpts import (
    PIECES,
    PREVIEWS,
    check_offset,
    cut,
    excerpt,
    fewer,
    fitted,
    piece,
)
from tocsin.workers.mcp.mail import sent
from tocsin.workers.mcp.toolbox import Answer, Toolbox, ToolCall

box = Toolbox()

_MOST_TASKS = 30

_BRIEF = 200
"""Characters of a text that its reader has written, or can read elsewhere."""


def settled_line(ended: Settlement, most: int) -> str:
    """How a task ended, with the words of its agent quoted."""
    call = f"task_show(task={ended.task_id}, part="
    lines = [f"Task {ended.task_id} of {ended.agent} is {str(ended.status).replace('_', ' ')}."]
    if ended.summary:
        lines += [f"{ended.agent} says of it:", excerpt(ended.summary, most, f"{call}summary")]
    elif ended.ok:
        lines.append("It gave no summary.")
    if ended.error:
        lines += ["Reason:", excerpt(ended.error, most, f"{call}error")]
    return "\n".join(lines)


def told(texts: Sequence[str], ended: Sequence[Settlement]) -> str:
    """The whole text of a result: with whose words they are, if it quotes an agent of a task."""
    quotes = any(each.summary or each.error for each in ended)
    return "\n\n".join([*([RULE] if quotes else []), *texts])


def settlement(ended: Settlement, most: int) -> dict[str, Any]:
    """How a task ended, as data."""
    return cut(ended.model_dump(mode="json", exclude_none=True), most, "summary", "error")


def outcomes(
    ended: Sequence[Settlement], still: Sequence[str], data: Mapping[str, Any], last: str
) -> Answer:
    """How some tasks ended and which have not, `last` what to do about the latter."""

    def shown(count: int, most: int) -> Answer:
        left = [each.task_id for each in ended[count:]]
        texts = [settled_line(each, most) for each in ended[:count]]
        texts += [f"{len(left)} more have ended; look at each with task_show."] if left else []
        texts += [last] if still else []
        found = {"settled": [settlement(each, most) for each in ended[:count]], "open": [*still]}
        found |= {"also_settled": left} if left else {}
        return Answer(told(texts, ended[:count]), {**data, **found})

    return fitted(shown(*how) for how in fewer(len(ended)))


@box.tool()
async def delegate(
    call: ToolCall,
    agent: AgentName,
    description: Annotated[
        str, Field(description="What to do, complete, with what a good result is.")
    ],
    deadline_minutes: Annotated[
        float | None, Field(description="It times out after this; by default after a day.", gt=0)
    ] = None,
    watch: Annotated[
        bool, Field(description="Wake you when it has ended; else you find that in your inbox.")
    ] = True,
    queue: Annotated[
        bool, Field(description="If the agent is busy, let it wait for its turn.")
    ] = False,
    continues: Annotated[
        str | None, Field(description="An ended task that this goes on with, 'task_...'.")
    ] = None,
    key: Key = None,
) -> Answer:
    """Hand a task to a child agent, and go on at once. It ends when the child calls done, or by a
    cancel, a failure or its deadline; never because the child fell silent. Wait for it with
    task_wait, or go on and be told in your inbox.
    """
    parent = await call.parent()
    task = await parent.delegate(
        agent,
        description,
        deadline=minutes(deadline_minutes),
        watch=watch,
        queue=queue,
        continues=continues,
        key=key,
    )
    told = "You will be woken when it ends." if watch else "Its end will be in your inbox."
    told += "" if task.wakeable else f" {unwakeable(agent)}"
    return Answer(f"Delegated {task.id} to {agent}. {told}", {"task": _task(task, _BRIEF)})


def _task(task: Task, most: int) -> dict[str, Any]:
    data = task.model_dump(mode="json", exclude_none=True, exclude={"settlement"})
    if task.settlement:
        data["settlement"] = settlement(task.settlement, most)
    return cut(data, most, "description", "question")


@box.tool(repeats=True)
async def watch(
    call: ToolCall,
    tasks: TaskIds,
    wake: Annotated[
        Literal["each", "all"], Field(description="Wake you at each end, or at the last alone.")
    ] = "each",
) -> Answer:
    """Be woken when tasks end. Returns those that have ended already, and waits for none."""
    parent = await call.parent()
    ended = await parent.watch(*tasks, wake=wake)
    still = [each for each in dict.fromkeys(tasks) if each not in {s.task_id for s in ended}]
    return outcomes(ended, still, {}, f"Watched: {', '.join(still)}.")


@box.tool(reads=True)
async def task_show(
    call: ToolCall,
    task: Annotated[
        str | None, Field(description="One task, 'task_...'; without it the newest are listed.")
    ] = None,
    state: Annotated[
        Literal[
            "created",
            "running",
            "waiting",
            "completed",
            "blocked",
            "failed",
            "cancelled",
            "timed_out",
        ]
        | None,
        Field(description="List those in this state only."),
    ] = None,
    part: Annotated[
        Literal["description", "summary", "error"] | None,
        Field(description="With task: read this one text of it in full, in pieces if it is long."),
    ] = None,
    offset: Annotated[
        int, Field(description="With part: the character of it to read on from.", ge=0)
    ] = 0,
) -> Answer:
    """Look at a task: its state, what it waits for, how it ended. Without an id: the newest."""
    parent = await call.parent()
    await call.works()
    if task is None:
        tasks = await parent.tasks(state, limit=_MOST_TASKS)
        return fitted(_listed(tasks[:count]) for count, _ in fewer(len(tasks)))
    found = await parent.task(task)
    if part is None:
        return fitted(_told(found, most) for most in (*PIECES, *PREVIEWS))
    text = _part(found, part)
    check_offset("task_show", offset, text)
    return fitted(_read(found, part, text, offset, most) for most in PIECES)


def _listed(tasks: Sequence[Task]) -> Answer:
    rows = [
        f"- {each.id} of {each.agent}: {each.state}, {one_line(each.description, 80)}"
        for each in tasks
    ]
    brief = [_task(each, _BRIEF) | {"description": one_line(each.description)} for each in tasks]
    return Answer("\n".join(rows) or "There are no such tasks.", {"tasks": brief})


def _told(task: Task, most: int) -> Answer:
    lines = [
        f"Task {task.id} of {task.agent} is {task.state}, its deadline {task.deadline:%F %T} UTC."
    ]
    if task.open_requests:
        lines.append(f"It waits for answers to {', '.join(task.open_requests)}.")
    call = f"task_show(task={task.id}, part=description"
    lines += ["Its description:", excerpt(task.description, most, call)]
    if task.settlement:
        lines.append(settled_line(task.settlement, most))
    ended = [task.settlement] if task.settlement else []
    return Answer(told(["\n".join(lines)], ended), {"task": _task(task, most)})


def _part(task: Task, part: str) -> str:
    text = task.description if part == "description" else getattr(task.settlement, part, None)
    if not text:
        raise InvalidInput("task_show", f"{task.id} has no {part}; it is {task.state}")
    return str(text)


def _read(task: Task, part: str, text: str, offset: int, most: int) -> Answer:
    shown = excerpt(text, most, f"task_show(task={task.id}, part={part}", offset)
    head = f"The {part} of task {task.id} of {task.agent}. {RULE}"
    return Answer(
        f"{head}\n{shown}", {"task_id": task.id, "part": part, **piece(text, offset, most)}
    )


@box.tool(repeats=True, ends=True)
async def task_cancel(call: ToolCall, task: TaskId, reason: Reason = None) -> Answer:
    """Cancel a task. Its child is told to stop. A task that has ended stays as it ended."""
    parent = await call.parent()
    ended = await parent.cancel(task, reason=reason)
    return fitted(
        Answer(told([settled_line(ended, most)], [ended]), {"settlement": settlement(ended, most)})
        for most in PREVIEWS
    )


@box.tool()
async def agent_register(
    call: ToolCall,
    agent: Annotated[str, Field(description="A new name: a-z, 0-9, '_' and '-'.")],
    profile: Annotated[str, Field(description="How it is run: a profile the operator defined.")],
    role: Annotated[str | None, Field(description="What it is for, in a few words.")] = None,
    label: Annotated[str | None, Field(description="Its name for people.")] = None,
) -> Answer:
    """Add a child agent to your herd, run by one of the profiles that the operator defined. Its
    name can then be used in delegate, message and ask.
    """
    parent = await call.parent()
    runner = resolve_runner(profile)
    made = await parent.register(agent, role=role, label=label, runner=runner)
    data = {"agent": made.agent, "generation": made.generation, "profile": profile}
    return Answer(f"Registered {agent}, run by {profile}. It begins when it has mail.", data)


@box.tool(repeats=True, ends=True)
async def agent_close(call: ToolCall, agent: AgentName, reason: Reason = None) -> Answer:
    """Close a child for good: its tasks are cancelled, and who waits for it is told."""
    parent = await call.parent()
    await parent.close(agent, reason=reason)
    return Answer(f"Closed {agent}.", {"agent": agent, "state": "closed"})


@box.tool()
async def remind(call: ToolCall, message: QuestionId) -> Answer:
    """Wake whoever an open question waits for, with the question quoted to it."""
    parent = await call.parent()
    done = await parent.remind(message)
    return sent(done, f"Reminded of {message}: {done.message_id}.")


@box.tool(repeats=True)
async def reroute(call: ToolCall, message: QuestionId, agent: AgentName) -> Answer:
    """Send an open question of your herd to another agent. The first answer from either counts."""
    parent = await call.parent()
    await parent.reroute(message, agent)
    return Answer(f"{message} now waits for {agent}.", {"message_id": message, "recipient": agent})


@box.tool()
async def progress(
    call: ToolCall,
    text: Annotated[str, Field(description="How far you are, in a line.")],
    fraction: Annotated[
        float | None, Field(description="The share that is done, 0 to 1.", ge=0, le=1)
    ] = None,
) -> Answer:
    """Say how far you are, so that who waits for you knows that you work. Wakes nobody."""
    child = await call.child()
    await child.progress(text, fraction)
    return Answer("Noted.", {"noted": True})


@box.tool(repeats=True, ends=True)
async def done(
    call: ToolCall,
    task: TaskId,
    outcome: Annotated[
        Literal["completed", "blocked", "failed"],
        Field(description="blocked: you cannot go on without something; failed: it went wrong."),
    ] = "completed",
    summary: Annotated[
        str | None,
        Field(description="What came of it: all that your parent gets to see of your work."),
    ] = None,
    error: Annotated[
        str | None, Field(description="What went wrong, or what you would need to go on.")
    ] = None,
    override_reason: Annotated[
        str | None,
        Field(description="Why its open questions no longer matter; they are cancelled."),
    ] = None,
) -> Answer:
    """End your task and hand your result to your parent. Call it once, when you are finished: the
    end of your turn does not end the task. The first outcome counts. To wait for an answer, do not
    call this: use ask.
    """
    child = await call.child()
    ended = await child.done(
        task, outcome, summary=summary, error=error, override_reason=override_reason
    )
    data = {"settlement": settlement(ended, _BRIEF)}
    if ended.status != outcome:
        return Answer(f"It had ended before, and stays {ended.status}.", data)
    return Answer(f"Task {task} is {ended.status}. Your parent has your result.", data)
