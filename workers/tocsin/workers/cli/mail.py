"""Mail of the seat's agent: `message send`, `reply`, `inbox`, `ack`; questions; signs of work."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated

import typer
from rich.console import RenderableType
from rich.text import Text

from tocsin.broker import Delivery, Envelope, Kind, Sent, Status
from tocsin.workers.cli import receipts, task
from tocsin.workers.cli.agent import AgentName, list_agents
from tocsin.workers.cli.blocks import Facts, Quoted, age
from tocsin.workers.cli.complete import complete_request, complete_task
from tocsin.workers.cli.inputs import KeyOption, read_span, read_text
from tocsin.workers.cli.session import Session, command

app = typer.Typer()

Body = Annotated[str, typer.Argument(metavar="TEXT", help="What to say; `-` reads it from stdin.")]
RequestId = Annotated[
    str,
    typer.Argument(
        metavar="MESSAGE", help="The open question's id.", autocompletion=complete_request
    ),
]


def _sent(session: Session, sent: Sent, done: str) -> None:
    note = "  (it had been sent before)" if sent.duplicate else ""
    if sent.superseded:
        done, note = "not delivered, because an answer stands:", "  (yours is in the journal)"
    note += "  (late: the question had ended; it is delivered all the same)" if sent.late else ""
    session.out.result(sent, Text.assemble(f"{done} ", (sent.message_id, "cyan"), note))


@command(app, "send", example="tocsin send planner TEXT", seat=True, hidden=True)
@command(
    receipts.app,
    "send",
    example='tocsin message planner "Which backoff?" --task task_... --expects-reply',
    seat=True,
)
def message(
    session: Session,
    to: AgentName,
    body: Body,
    expects_reply: Annotated[
        bool, typer.Option("--expects-reply", help="A question: its task waits for the answer.")
    ] = False,
    reply_within: Annotated[
        str | None,
        typer.Option(
            metavar="SPAN", show_default=False, help="`10m`; then its task is blocked. 0: no limit."
        ),
    ] = None,
    task: Annotated[
        str | None,
        typer.Option(
            metavar="TASK",
            show_default=False,
            help="The task it belongs to.",
            autocompletion=complete_task,
        ),
    ] = None,
    steer: Annotated[
        bool, typer.Option("--steer", help="At the next safe point of a running turn.")
    ] = False,
    thread: Annotated[
        str | None, typer.Option(metavar="NAME", show_default=False, help="A thread of messages.")
    ] = None,
    wait: Annotated[
        str | None,
        typer.Option(metavar="SPAN", show_default=False, help="Wait so long for room: `30s`."),
    ] = None,
    key: KeyOption = None,
) -> None:
    """Write to another agent of the herd. It wakes. `tocsin message AGENT TEXT` is the same.

    With --expects-reply it is a question: the linked task waits until it is answered, and the
    parent is reminded once when that drags on.

    `other-herd/parent` is the parent of another herd: it gets plain messages, if its herd's
    setting accepts_from names this one; `tocsin message show` tells what became of one.
    """
    sent = session.agent().message(
        to,
        read_text(body, "message", "body"),
        task=task,
        expects_reply=expects_reply,
        reply_within=read_span(reply_within, "message", "reply_within"),
        delivery=Delivery.STEER if steer else Delivery.FOLLOW_UP,
        thread=thread,
        key=key,
        wait=read_span(wait, "message", "wait"),
    )
    _sent(session, sent, "asked" if expects_reply else "sent")


@command(app, "reply", example='tocsin reply msg_... "Exponential, base 2 s"', seat=True)
def reply(
    session: Session,
    message: RequestId,
    body: Body,
    as_operator: Annotated[
        bool,
        typer.Option(
            "--as-operator", help="Answer as the herd's parent, by its seat on this machine."
        ),
    ] = False,
    key: KeyOption = None,
) -> None:
    """Answer a question, or write back to whoever sent a message.

    The first answer ends the wait. The parent may answer in anybody's place.
    """
    agent = session.operator() if as_operator else session.agent()
    sent = agent.reply(message, read_text(body, "reply", "body"), key=key)
    _sent(session, sent, "replied")


@command(app, "remind", example="tocsin remind msg_...", seat=True)
def remind(session: Session, message: RequestId) -> None:
    """Remind whoever an open question waits on, with a message that wakes it. Parent only."""
    _sent(session, session.parent().remind(message), "reminded")


@command(app, "reroute", example="tocsin reroute msg_... architect", seat=True)
def reroute(session: Session, message: RequestId, agent: AgentName) -> None:
    """Send an open question to another agent. The first answer from either counts. Parent only.

    It stays the same question, with its wait and its deadline.
    """
    session.parent().reroute(message, agent)
    session.out.result(
        {"message_id": message, "recipient": agent}, f"{message} now waits for {agent}."
    )


@command(app, "cancel-request", example="tocsin cancel-request msg_...", seat=True)
def cancel_request(session: Session, message: RequestId) -> None:
    """Give an open question up; its task runs again. For its asker, and the parent."""
    session.agent().cancel_request(message)
    session.out.result({"message_id": message, "request": "cancelled"}, f"{message} is cancelled.")


@command(receipts.app, "hand-back", example="tocsin message hand-back msg_...", seat=True)
def hand_back(session: Session, message: receipts.MessageId) -> None:
    """Take mail from a process that is alive and stuck, for any other of its agent. Parent only.

    No attempt is counted, and what the old holder still says of it is fenced. What it did with it
    stays done.
    """
    back = session.parent().hand_back(message)
    end = "taken back, because what it asks for has ended" if back.withdrawn else "unread again"
    session.out.result(
        back, Text.assemble((message, "cyan"), f" is {end}; {back.held_by} held it.")
    )


def envelope_blocks(envelope: Envelope, now: datetime) -> list[RenderableType]:
    """One envelope for people: who, what and when in our words; its text behind a bar."""
    flags = [
        "steer" if envelope.delivery is Delivery.STEER else "",
        "" if envelope.trigger_turn else "quiet",
        "late" if envelope.late else "",
        f"attempt {envelope.attempts + 1}" if envelope.attempts else "",
    ]
    head = Text.assemble(
        (envelope.kind.replace("_", " "), "bold"),
        " from ",
        (envelope.sender, "bold"),
        "  ",
        (envelope.message_id, "cyan"),
        (f"  {age(envelope.created_at, now)}", "dim"),
        (f"  [{', '.join(flag for flag in flags if flag)}]" if any(flags) else "", "yellow"),
    )
    facts = Facts(
        [
            ("task", envelope.task_id),
            ("in reply to", envelope.reply_to),
            ("thread", f"“{envelope.thread_id}”" if envelope.thread_id else None),
        ]
    )
    linked = envelope.task_id or envelope.reply_to or envelope.thread_id
    return [head, *([facts] if linked else []), Quoted(envelope.body), ""]


@command(app, "inbox", example="tocsin inbox --json", seat=True)
def inbox(
    session: Session,
    limit: Annotated[int, typer.Option(metavar="N", help="At most so many.")] = 100,
) -> None:
    """Show unread mail without taking it: as often as you like, until you `ack` it.

    Showing a task starts it. What another process of this agent is at work on is not shown.
    """
    mail = session.agent().inbox(limit=limit)
    now = session.now()
    blocks: list[RenderableType] = []
    for envelope in mail:
        blocks += envelope_blocks(envelope, now)
    session.out.result(
        {"envelopes": list(mail), "remaining": mail.remaining},
        *(blocks or [Text("No unread mail.", style="dim")]),
    )
    if mail.remaining:
        session.out.note(f"{mail.remaining} more; ack these, or raise --limit.")
    if any(envelope.kind is Kind.REQUEST for envelope in mail):
        session.out.note("Answer a request with `tocsin reply MESSAGE TEXT`.")
    if len(mail):
        session.out.note("Say that mail is handled with `tocsin ack MESSAGE...`.")


@command(app, "ack", example="tocsin ack msg_... msg_...", seat=True)
def ack(
    session: Session,
    messages: Annotated[list[str], typer.Argument(metavar="MESSAGE...", help="Their ids.")],
) -> None:
    """Say that mail which was shown is handled; it is not shown again."""
    count = session.agent().ack(*messages)
    wanted = len(set(messages))
    rest = "" if count == wanted else "; the rest was handled or withdrawn before, or is another's"
    session.out.result({"acked": count}, f"{count} of {wanted} handled{rest}.")


@command(app, "progress", example='tocsin progress "120 of 300 tests" --fraction 0.4', seat=True)
def progress(
    session: Session,
    text: Annotated[str, typer.Argument(metavar="TEXT", help="Where the work is.")],
    fraction: Annotated[
        float | None, typer.Option(metavar="0..1", show_default=False, help="How far it is.")
    ] = None,
) -> None:
    """Say how far the work is. A sign of work for whoever waits; it settles nothing."""
    agent = session.agent()
    agent.progress(text, fraction)
    session.out.result(
        {"herd": agent.herd, "agent": agent.agent, "progress": text, "fraction": fraction},
        "Noted.",
    )


@command(app, "status", example="tocsin status idle", seat=True)
def status(
    session: Session,
    value: Annotated[Status, typer.Argument(metavar="working|idle", help="What it does.")],
) -> None:
    """Say whether the agent's process is at work or idle. Moves no task."""
    agent = session.agent()
    agent.set_status(value)
    session.out.result(
        {"herd": agent.herd, "agent": agent.agent, "status": value}, f"{agent!r} is {value}."
    )


command(app, "receipt", example="tocsin receipt msg_...", seat=True, hidden=True)(receipts.show)
command(app, "roster", example="tocsin roster", seat=True)(list_agents)
command(app, "done", example='tocsin done task_... completed --summary "JWT"', seat=True)(task.done)
