"""`tocsin plan`: tasks at planned times."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated
from zoneinfo import ZoneInfo

import typer
from rich.console import RenderableType
from rich.text import Text

from tocsin.broker import Missed, Plan
from tocsin.broker.durations import read_duration, show_duration
from tocsin.broker.errors import InvalidInput
from tocsin.workers.cli.agent import AgentName
from tocsin.workers.cli.blocks import Facts, Quoted, Rows, age, brief, state, when
from tocsin.workers.cli.complete import complete_plan
from tocsin.workers.cli.inputs import KeyOption, confirm, read_span, read_text
from tocsin.workers.cli.session import Session, command
from tocsin.workers.cli.task import WatchFlag, delegated

app = typer.Typer(name="plan", no_args_is_help=True, help="Plans: tasks at planned times.")

PlanId = Annotated[
    str, typer.Argument(metavar="PLAN", help="The plan's id.", autocompletion=complete_plan)
]


def rule(plan: Plan) -> str:
    """What a plan goes by, in words."""
    if plan.cron is not None:
        return f"cron {plan.cron} {plan.tz}"
    if plan.every is not None:
        return f"every {show_duration(plan.every)}"
    return f"at {_zoned(plan, plan.at) if plan.at else '?'}"


def _zoned(plan: Plan, moment: datetime) -> str:
    return f"{moment.astimezone(ZoneInfo(plan.tz)):%Y-%m-%d %H:%M:%S %Z}"


def plan_blocks(plan: Plan, now: datetime) -> list[RenderableType]:
    """One plan for people."""
    runs = [_zoned(plan, each) for each in plan.next_runs]
    blocks: list[RenderableType] = [
        Facts(
            [
                ("plan", plan.id),
                ("agent", plan.agent),
                ("runs", rule(plan)),
                ("state", state(plan.state)),
                ("why", plan.reason),
                ("problem", plan.problem),
                ("next", Text("\n".join(runs)) if runs else None),
                ("missed", plan.missed),
                ("if busy", "queued" if plan.queue else "skipped"),
                ("deadline", show_duration(plan.deadline) if plan.deadline else None),
                ("watched", "yes" if plan.watch else None),
                ("made", when(plan.created_at, now)),
                ("last run", when(plan.last_run, now) if plan.last_run else None),
                ("last task", plan.last_task),
                ("tasks given", str(plan.runs)),
                ("skipped", str(plan.skipped) if plan.skipped else None),
            ]
        ),
        Text("description", style="bold"),
        Quoted(plan.description),
    ]
    return blocks


def _shown(session: Session, plan: Plan) -> None:
    session.out.result(plan, *plan_blocks(plan, session.now()))


def _read_at(text: str | None) -> datetime | None:
    if text is None:
        return None
    try:
        return datetime.fromisoformat(text)
    except ValueError:
        pass
    hint = " (for once in a while, use --every)" if read_duration(text) else ""
    raise InvalidInput(
        "plan",
        f"at {text[:80]!r} is no moment such as 2026-12-01T09:00+01:00, or 2026-12-01T09:00 with "
        f"--tz{hint}",
    )


@command(
    app,
    "add",
    example='tocsin plan add --cron "0 2 * * 1-5" --tz Europe/Paris scout "Audit the logs"',
    seat=True,
)
def add(
    session: Session,
    agent: AgentName,
    description: Annotated[
        str, typer.Argument(metavar="DESCRIPTION", help="What to do; `-`: from stdin.")
    ],
    cron: Annotated[
        str | None,
        typer.Option(
            metavar="FIELDS", show_default=False, help="Minute hour day month weekday, in --tz."
        ),
    ] = None,
    at: Annotated[
        str | None,
        typer.Option(
            metavar="TIME", show_default=False, help="Once, at a moment with its zone or --tz."
        ),
    ] = None,
    every: Annotated[
        str | None,
        typer.Option(metavar="SPAN", show_default=False, help="`90m`, `1d`, counted from now."),
    ] = None,
    tz: Annotated[
        str | None,
        typer.Option(metavar="ZONE", show_default=False, help="Such as Europe/Paris; else UTC."),
    ] = None,
    missed: Annotated[
        Missed, typer.Option(help="What becomes of times at which no scheduler ran.")
    ] = Missed.ONCE,
    deadline: Annotated[
        str | None,
        typer.Option(
            metavar="SPAN",
            show_default=False,
            help="Of each task, from when it is given; default: the herd's task_deadline.",
        ),
    ] = None,
    watch: WatchFlag = False,
    queue: Annotated[
        bool,
        typer.Option("--queue/--no-queue", help="If the child is busy: wait for a slot, or skip."),
    ] = True,
    key: KeyOption = None,
) -> None:
    """Have a child given a task at planned times, each of them once.

    One of --cron, --at and --every. A daily time runs once on each local day,
    also where clocks are changed. Schedulers see to it; see `tocsin scheduler`.
    """
    plan = session.parent().plan(
        agent,
        read_text(description, "plan", "description"),
        cron=cron,
        at=_read_at(at),
        every=read_span(every, "plan", "every"),
        tz=tz,
        missed=missed,
        deadline=read_span(deadline, "plan", "deadline"),
        watch=watch,
        queue=queue,
        key=key,
    )
    _shown(session, plan)


@command(app, "list", example="tocsin plan list", seat=True)
def list_plans(session: Session) -> None:
    """List the herd's plans, oldest first, each with its next run."""
    found = session.parent().plans()
    now = session.now()
    rows = [
        (
            Text(plan.id, style="cyan"),
            plan.agent,
            state(plan.state),
            rule(plan),
            _zoned(plan, plan.next_runs[0]) if plan.next_runs else brief(plan.reason or "-", 60),
            age(plan.last_run, now),
            f"“{brief(plan.description, 40)}”",
        )
        for plan in found
    ]
    columns = ("plan", "agent", "state", "runs", "next", "last", "description")
    session.out.result(found, Rows(columns, rows, empty="No plans.", whole=("plan",)))


@command(app, "show", example="tocsin plan show plan_...", seat=True)
def show(session: Session, plan: PlanId) -> None:
    """Show a plan: what it goes by, its next runs in its zone, what it gave."""
    _shown(session, session.parent().plan_record(plan))


@command(app, "run-now", example="tocsin plan run-now plan_...", seat=True)
def run_now(session: Session, plan: PlanId, key: KeyOption = None) -> None:
    """Have a plan give its task now, beside its times; also while it is paused."""
    delegated(session, session.parent().run_plan(plan, key=key))


@command(app, "pause", example="tocsin plan pause plan_...", seat=True)
def pause(session: Session, plan: PlanId) -> None:
    """Pause a plan: its times pass unused until it is resumed."""
    _shown(session, session.parent().pause_plan(plan))


@command(app, "resume", example="tocsin plan resume plan_...", seat=True)
def resume(session: Session, plan: PlanId) -> None:
    """Have a paused plan go on from now; what passed meanwhile is not made up for."""
    _shown(session, session.parent().resume_plan(plan))


@command(app, "remove", example="tocsin plan remove plan_...", seat=True)
def remove(
    session: Session,
    plan: PlanId,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask at a terminal.")] = False,
) -> None:
    """Remove a plan for good. Tasks that it gave stay as they are."""
    confirm(session.out, f"Remove {plan}?", yes=yes)
    _shown(session, session.parent().remove_plan(plan))
