"""Questions that hold the line: `ask`, `ask-wait`; and `probe`, which shows that an agent works."""

from __future__ import annotations

import signal
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Annotated, cast

import typer
from rich.console import RenderableType
from rich.text import Text

from tocsin.broker import Reply
from tocsin.broker.durations import show_duration
from tocsin.broker.errors import CeilingActive, InvalidInput, NoReply
from tocsin.broker.settings import parse_setting
from tocsin.workers.child.probe import TranscriptProbe, publish
from tocsin.workers.cli.agent import AgentName
from tocsin.workers.cli.blocks import Facts, Quoted
from tocsin.workers.cli.complete import complete_request, complete_task
from tocsin.workers.cli.inputs import KeyOption, read_span, read_text
from tocsin.workers.cli.output import REFUSED
from tocsin.workers.cli.session import Session, command

app = typer.Typer()

_SHORTEST = timedelta(milliseconds=100)

ProbeOption = Annotated[
    Path | None,
    typer.Option(
        metavar="DIR",
        show_default=False,
        help="Where AGENT's *.jsonl transcripts are, if on this machine: that they grow is work.",
    ),
]


def _probe(directory: Path | None) -> TranscriptProbe | None:
    return None if directory is None else TranscriptProbe(directory)


def _limit(text: str | None, field: str) -> timedelta | None:
    """A window or ceiling, in the bounds of the settings for it."""
    if text is None:
        return None
    try:
        return cast(timedelta, parse_setting(f"ask_{field}", text, where=field))
    except InvalidInput as refusal:
        raise InvalidInput("ask", refusal.detail) from None


@contextmanager
def _stoppable() -> Iterator[None]:
    """SIGTERM and a closed terminal end what is inside as Ctrl-C does: in good order."""
    before = {
        number: signal.signal(number, signal.default_int_handler)
        for number in (signal.SIGTERM, signal.SIGHUP)
    }
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def _on_the_line(session: Session, request: str) -> Iterator[None]:
    """Says how to come back where the asker is interrupted, and which ask it was that ran out."""
    try:
        with _stoppable():
            yield
    except KeyboardInterrupt:
        if session.out.as_json:
            session.out.event({"message_id": request, "request": "open"})
        session.out.note(
            f"Interrupted. The question stays open: `tocsin ask-wait {request}` comes back to it; "
            "otherwise its answer comes as mail."
        )
        raise
    except (NoReply, CeilingActive) as error:
        session.out.refuse(
            error.code,
            error.operation,
            error.detail,
            retryable=error.retryable,
            message_id=error.message_id,
            limit=error.limit,
            reason=error.reason if isinstance(error, NoReply) else "",
        )
        raise typer.Exit(REFUSED) from None


def _reply_blocks(reply: Reply) -> list[RenderableType]:
    head = Text.assemble(
        ("reply", "bold"), " from ", (reply.sender, "bold"), "  ", (reply.message_id, "cyan")
    )
    extended = f", extended {reply.extensions} times" if reply.extensions else ""
    facts = Facts(
        [
            ("to", reply.request_id),
            ("after", f"{show_duration(reply.waited)}{extended}"),
            ("late", "it came after the ask had ended" if reply.late else None),
        ]
    )
    return [head, facts, Quoted(reply.body)]


@command(
    app,
    "ask",
    example='tocsin ask planner "Which backoff?" --task task_... --window 10m',
    seat=True,
)
def ask(
    session: Session,
    to: AgentName,
    body: Annotated[
        str, typer.Argument(metavar="BODY", help="The question; `-` reads it from stdin.")
    ],
    window: Annotated[
        str | None,
        typer.Option(
            metavar="SPAN",
            show_default=False,
            help="Give up after so much silence, `90s`, `10m` (else the herd's ask_window). It "
            "starts anew with each sign that AGENT works.",
        ),
    ] = None,
    ceiling: Annotated[
        str | None,
        typer.Option(
            metavar="SPAN",
            show_default=False,
            help="Give up after this in any case, `4h` (else the herd's ask_ceiling).",
        ),
    ] = None,
    task: Annotated[
        str | None,
        typer.Option(
            metavar="TASK",
            show_default=False,
            help="Your task, which waits meanwhile.",
            autocompletion=complete_task,
        ),
    ] = None,
    probe: ProbeOption = None,
    key: KeyOption = None,
) -> None:
    """Ask an agent and stay on the line until it answers; print the answer.

    Silence ends the wait, hard work does not: as long as AGENT shows signs of
    work (it writes, replies, reports progress, or its transcript grows, see
    `tocsin probe`), the wait goes on, up to the ceiling. Exit code 1 with
    `no_reply` (try again) or `ceiling_active` (do not: it is still at work);
    either way a late answer comes as mail.

    Ctrl-C leaves the question open and prints how to come back to it.
    """
    span, limit = _limit(window, "window"), _limit(ceiling, "ceiling")
    text = read_text(body, "ask", "body")
    agent = session.staying()
    key = key if key is not None else uuid.uuid4().hex
    request = agent.caller.new_id("msg", "ask", key)
    session.out.note(f"Waiting for {to}, question {request}; Ctrl-C leaves it open.")
    with _on_the_line(session, request):
        reply = agent.ask(
            to, text, task=task, window=span, ceiling=limit, probe=_probe(probe), key=key
        )
    session.out.result(reply, *_reply_blocks(reply))


@command(app, "ask-wait", example="tocsin ask-wait msg_... --timeout 10m", seat=True)
def ask_wait(
    session: Session,
    message: Annotated[
        str,
        typer.Argument(
            metavar="MESSAGE", help="The id of your ask.", autocompletion=complete_request
        ),
    ],
    timeout: Annotated[
        str | None,
        typer.Option(metavar="SPAN", show_default=False, help="`90s`, `10m`; default: no end."),
    ] = None,
    probe: ProbeOption = None,
) -> None:
    """Come back to an ask, from wherever it was made: print its answer, or how it ended.

    Exit code 1 if it is still open at the timeout; it goes on.
    """
    span = read_span(timeout, "ask_wait", "timeout")
    agent = session.staying()
    with _on_the_line(session, message):
        reply = agent.ask_wait(message, timeout=span, probe=_probe(probe))
    if reply is None:
        session.out.result(
            {"message_id": message, "request": "open"}, Text(f"{message} is still open.")
        )
        raise typer.Exit(REFUSED)
    session.out.result(reply, *_reply_blocks(reply))


@command(
    app,
    "probe",
    example="tocsin probe --dir ~/.claude/projects/x --seat release-42/scout",
    seat=True,
)
def probe(
    session: Session,
    directory: Annotated[
        Path,
        typer.Option("--dir", metavar="DIR", help="Where the agent's *.jsonl transcripts are."),
    ],
    every: Annotated[str, typer.Option(metavar="SPAN", help="How often to look.")] = "5s",
    source: Annotated[
        str, typer.Option(metavar="NAME", help="Its name, if an agent has several.")
    ] = "transcript",
) -> None:
    """Watch an agent's transcript, so that who asks it knows that it works, in a long turn too.

    Counts the bytes of the `*.jsonl` files below DIR and publishes the total
    for the seat's agent; growth is a sign of work. Nothing of what is in the
    files is sent. Run it beside the agent; it runs until Ctrl-C or SIGTERM.
    """
    span = read_span(every, "probe", "every")
    if span is None or span < _SHORTEST:
        raise InvalidInput("probe", f"every must be at least {show_duration(_SHORTEST)}")
    agent = session.looking()
    name = f"{agent.herd}/{agent.agent}"
    facts = {"seat": name, "directory": str(directory), "every_s": span.total_seconds()}
    try:
        with _stoppable():
            session.out.event(facts, f"Watching {directory} for {name} every {every}.")
            watched = TranscriptProbe(directory, source=source)
            if not watched.there:
                session.out.warn(f"{directory} is no directory that can be read, and counts 0")
            publish(agent, watched, span, warn=session.out.warn)
    except KeyboardInterrupt:
        session.out.note("Stopped.")
