"""`tocsin task`: delegate, look at, watch, wait for, cancel, settle, retry."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Annotated

import typer
from rich.console import RenderableType
from rich.text import Text

from tocsin.broker import Delegated, Outcome, Parent, ReturnWhen, Settlement, Task, TaskState
from tocsin.broker.rendering import unwakeable
from tocsin.workers.cli.agent import AgentName
from tocsin.workers.cli.blocks import Facts, Quoted, Rows, age, brief, state, when
from tocsin.workers.cli.complete import complete_task
from tocsin.workers.cli.history import LOOK_AGAIN, PAGE, concerns, line
from tocsin.workers.cli.inputs import KeyOption, read_deadline, read_span, read_text
from tocsin.workers.cli.output import REFUSED
from tocsin.workers.cli.session import Session, command

app = typer.Typer(name="task", no_args_is_help=True, help="Tasks: delegate, watch, wait, settle.")

TaskId = Annotated[
    str, typer.Argument(metavar="TASK", help="The task's id.", autocompletion=complete_task)
]
TaskIds = Annotated[
    list[str],
    typer.Argument(metavar="TASK...", help="Their ids.", autocompletion=complete_task),
]
DeadlineOption = Annotated[
    str | None,
    typer.Option(
        metavar="WHEN",
        show_default=False,
        help="`20m` from now, or a moment with its zone; default: the herd's task_deadline.",
    ),
]
WatchFlag = Annotated[bool, typer.Option("--watch", help="Its settlement wakes the parent.")]
QueueFlag = Annotated[bool, typer.Option("--queue", help="Wait for a slot if the child is busy.")]


def task_blocks(task: Task, now: datetime) -> list[RenderableType]:
    """One task for people."""
    ended = task.settlement
    blocks: list[RenderableType] = [
        Facts(
            [
                ("task", task.id),
                ("agent", task.agent),
                ("state", state(task.state)),
                ("created", when(task.created_at, now)),
                ("started", when(task.started_at, now) if task.started_at else None),
                ("deadline", None if ended else when(task.deadline, now)),
                ("waiting", when(task.waiting_since, now) if task.waiting_since else None),
                ("episode", str(task.episode) if task.episode else None),
                ("waits for", "\n".join(task.open_requests) or None),
                ("watched", "yes" if task.watched else None),
                ("continues", task.continues),
                ("open question", task.question),
            ]
        ),
        Text("description", style="bold"),
        Quoted(task.description),
    ]
    return blocks + (settlement_blocks(ended, now) if ended else [])


def settlement_blocks(ended: Settlement, now: datetime) -> list[RenderableType]:
    """How a task ended, for people."""
    blocks: list[RenderableType] = [
        Text.assemble(
            ("ended  ", "bold"), state(ended.status), f"  {when(ended.completed_at, now)}"
        ),
    ]
    if ended.summary:
        blocks += [Text("summary", style="bold"), Quoted(ended.summary)]
    elif ended.ok:
        blocks += [Text("It gave no summary.", style="dim")]
    if ended.error:
        blocks += [Text("reason", style="bold"), Quoted(ended.error)]
    return blocks


def delegated(session: Session, task: Task | Delegated) -> None:
    """Tells of a task that was just given."""
    asleep = isinstance(task, Delegated) and not task.wakeable
    unread = [Text(unwakeable(task.agent), style="yellow")] if asleep else []
    session.out.result(
        task,
        Facts(
            [
                ("delegated", task.id),
                ("to", task.agent),
                ("state", state(task.state)),
                ("deadline", when(task.deadline, session.now())),
            ]
        ),
        *unread,
    )


@command(
    app,
    "delegate",
    example='tocsin task delegate scout "Find how auth works" --deadline 20m',
    seat=True,
)
def delegate(
    session: Session,
    agent: AgentName,
    description: Annotated[
        str, typer.Argument(metavar="DESCRIPTION", help="What to do; `-`: from stdin.")
    ],
    deadline: DeadlineOption = None,
    watch: WatchFlag = False,
    queue: QueueFlag = False,
    continues: Annotated[
        str | None,
        typer.Option(metavar="TASK", show_default=False, help="The ended task it carries on."),
    ] = None,
    key: KeyOption = None,
) -> None:
    """Give a child a task. It ends by the child's `done`, a cancel, a failure or its deadline."""
    text = read_text(description, "delegate", "description")
    ends = read_deadline(deadline, "delegate", "deadline")
    task = session.parent().delegate(
        agent, text, deadline=ends, watch=watch, queue=queue, continues=continues, key=key
    )
    delegated(session, task)


@command(app, "retry", example="tocsin task retry task_... --agent planner", seat=True)
def retry(
    session: Session,
    task: TaskId,
    agent: Annotated[
        str | None,
        typer.Option(metavar="AGENT", show_default=False, help="Another child; default: the same."),
    ] = None,
    deadline: DeadlineOption = None,
    watch: WatchFlag = False,
    queue: QueueFlag = False,
    key: KeyOption = None,
) -> None:
    """Delegate an ended task again: a new task of the same description, which continues it.

    It carries what stopped the first one: its open question, and an answer that came late.
    """
    parent = session.parent()
    first = parent.task(task)
    ends = read_deadline(deadline, "delegate", "deadline")
    again = parent.delegate(
        agent or first.agent,
        first.description,
        deadline=ends,
        watch=watch,
        queue=queue,
        continues=first.id,
        key=key,
    )
    delegated(session, again)


@command(app, "list", example="tocsin task list --state waiting", seat=True)
def list_tasks(
    session: Session,
    only: Annotated[
        TaskState | None, typer.Option("--state", show_default=False, help="Only of this state.")
    ] = None,
    limit: Annotated[int, typer.Option(metavar="N", help="At most so many.")] = 100,
) -> None:
    """List tasks, newest first: the herd's for its parent, its own for a child."""
    agent = session.agent()
    if isinstance(agent, Parent):
        found = agent.tasks(only, limit=limit)
    else:
        found = [task for task in agent.tasks() if only in (None, task.state)][:limit]
    now = session.now()
    rows = [
        (
            Text(task.id, style="cyan"),
            task.agent,
            state(task.state),
            age(task.created_at, now),
            age(task.waiting_since, now) if task.waiting_since else "",
            f"“{brief(task.description, 60)}”",
        )
        for task in found
    ]
    session.out.result(
        found,
        Rows(
            ("task", "agent", "state", "created", "waiting", "description"),
            rows,
            empty="No tasks.",
            whole=("task",),
        ),
    )


@command(app, "show", example="tocsin task show task_...", seat=True)
def show(session: Session, task: TaskId) -> None:
    """Show a task: its state and times, what it waits for, how it ended."""
    found = session.agent().task(task)
    session.out.result(found, *task_blocks(found, session.now()))


@command(app, "watch", example="tocsin task watch task_...", seat=True)
def watch_tasks(
    session: Session,
    tasks: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[TASK]...",
            show_default=False,
            help="Default: all that are open now, and whatever happens in the herd.",
            autocompletion=complete_task,
        ),
    ] = None,
) -> None:
    """Follow what happens to tasks, past and live, until they have settled.

    With --json: one journal entry a line, and the settlements as the last line.
    """
    session.staying()
    parent = session.parent()
    ids = list(dict.fromkeys(tasks or [])) or [
        task.id for task in parent.tasks() if not task.state.terminal
    ]
    settled = _followed(session, parent, ids, everything=not tasks) if ids else []
    now = session.now()
    ends = [block for each in settled for block in _ended(each, now)]
    session.out.event({"settled": settled}, *(ends or [Text("No task is open.", style="dim")]))


def _ended(each: Settlement, now: datetime) -> list[RenderableType]:
    head = Text.assemble(("\n", ""), (each.task_id, "cyan"), f"  of {each.agent}")
    return [head, *settlement_blocks(each, now)]


def _followed(
    session: Session, parent: Parent, ids: Sequence[str], *, everything: bool
) -> list[Settlement]:
    """Prints what the journal says of the tasks until all have settled."""
    wanted, after = set(ids), None
    while True:
        settled = parent.wait(*ids, timeout=0 if after is None else LOOK_AGAIN)
        entries = parent.journal(after=after, limit=PAGE)
        while entries:
            for entry in entries:
                if concerns(entry, wanted) or (everything and after is not None):
                    session.out.event(entry, line(entry))
            after = entries[-1].id
            entries = parent.journal(after=after, limit=PAGE)
        if len(settled) == len(ids):
            return settled


@command(app, "wait", example="tocsin task wait task_... --timeout 10m", seat=True)
def wait(
    session: Session,
    tasks: TaskIds,
    timeout: Annotated[
        str | None,
        typer.Option(metavar="SPAN", show_default=False, help="`90s`, `10m`; default: no end."),
    ] = None,
    first: Annotated[
        bool, typer.Option("--first", help="Until the first of them has settled.")
    ] = False,
) -> None:
    """Block until tasks have settled. Exit code 1 if the timeout came first; nothing is touched.

    How they ended does not change the exit code: see `status` and `return_code` of each.
    """
    span = read_span(timeout, "wait", "timeout")
    enough = ReturnWhen.FIRST if first else ReturnWhen.ALL
    session.staying()
    settled = session.parent().wait(*tasks, timeout=span, return_when=enough)
    done = {each.task_id for each in settled}
    missing = [task for task in dict.fromkeys(tasks) if task not in done]
    timed_out = bool(missing) and not (first and settled)
    now = session.now()
    session.out.result(
        {"settled": settled, "unsettled": missing, "timed_out": timed_out},
        *(block for each in settled for block in _ended(each, now)),
        *(Text(f"{task} has not settled", style="yellow") for task in missing),
    )
    if timed_out:
        raise typer.Exit(REFUSED)


def _settled(session: Session, ended: Settlement, meant: str) -> None:
    if ended.status != meant:
        session.out.note(f"It had settled before, and stays {ended.status}.")
    session.out.result(
        ended,
        Facts([("task", ended.task_id), ("agent", ended.agent)]),
        *settlement_blocks(ended, session.now()),
    )


@command(
    app, "cancel", example='tocsin task cancel task_... --reason "no longer needed"', seat=True
)
def cancel(
    session: Session,
    task: TaskId,
    reason: Annotated[str | None, typer.Option(help="Told to the child.")] = None,
) -> None:
    """Cancel a task. Its running child is told; a task that has settled stays as it is."""
    _settled(session, session.parent().cancel(task, reason=reason), TaskState.CANCELLED)


@command(
    app,
    "done",
    example='tocsin task done task_... completed --summary "JWT, see auth.py"',
    seat=True,
)
def done(
    session: Session,
    task: TaskId,
    outcome: Annotated[Outcome, typer.Argument(help="How it ended.")] = Outcome.COMPLETED,
    summary: Annotated[
        str | None, typer.Option(help="What came of it; `-` reads it from stdin.")
    ] = None,
    error: Annotated[str | None, typer.Option(help="What went wrong.")] = None,
    override_reason: Annotated[
        str | None,
        typer.Option(help="Why its open questions no longer matter; they are cancelled."),
    ] = None,
) -> None:
    """Settle your own task. The first word counts; a second one changes nothing."""
    ended = session.child().done(
        task,
        outcome,
        summary=None if summary is None else read_text(summary, "done", "summary"),
        error=error,
        override_reason=override_reason,
    )
    _settled(session, ended, outcome)
