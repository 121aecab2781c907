"""`tocsin message`: how far a message got. It also sends, which is in `mail`."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any

import typer
from rich.console import RenderableType
from rich.text import Text
from typer.core import TyperGroup

from tocsin.broker import Receipt, WakeTry
from tocsin.workers.cli.blocks import Cell, Facts, Quoted, when
from tocsin.workers.cli.complete import complete_request
from tocsin.workers.cli.session import Session, command


class _SendsUnlessTold(TyperGroup):
    """What names no command of the group is meant for `send`: `tocsin message planner TEXT`."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        if args and args[0] not in {*self.commands, *ctx.help_option_names}:
            args = ["send", *args]
        return super().parse_args(ctx, args)

    def shell_complete(self, ctx: Any, incomplete: str) -> list[Any]:
        (to,) = (each for each in self.commands["send"].params if each.name == "to")
        return [*to.shell_complete(ctx, incomplete), *super().shell_complete(ctx, incomplete)]


app = typer.Typer(
    name="message",
    cls=_SendsUnlessTold,
    no_args_is_help=True,
    help="Write to another agent (`tocsin message AGENT TEXT`), or see how far a message got.",
)

MessageId = Annotated[
    str,
    typer.Argument(metavar="MESSAGE", help="Its id.", autocompletion=complete_request),
]


def _reported(each: WakeTry, now: datetime) -> str:
    times = f"{each.tries} times, last " if each.tries > 1 else ""
    came = "not confirmed" if each.ok else "failed"
    if each.confirmed_at is not None:
        came = f"confirmed {when(each.confirmed_at, now)}"
    return f"{times}{when(each.at, now)}, {came}" + (f": {each.detail}" if each.detail else "")


def _tries(receipt: Receipt, now: datetime) -> list[tuple[str, Cell]]:
    """By which paths it was tried to wake the recipient, or why by none."""
    found: list[tuple[str, Cell]] = []
    for each in receipt.wake:
        if each.ok is not None:
            found.append((f"{each.path} tried", _reported(each, now)))
            continue
        heard = f"{each.reached} process(es) heard it" if each.reached else "nobody heard it"
        if each.reached is None:
            heard = "who heard it no server of a Cluster knows"
        found.append((f"{each.path} rung", f"{when(each.at, now)}, {heard}"))
    return found or [("not rung", receipt.not_tried or "")]


def _step(moment: datetime | None, now: datetime, by: str | None = None) -> str | None:
    if moment is None:
        return None
    return f"{when(moment, now)} by {by}" if by else when(moment, now)


@command(app, "show", example="tocsin message show msg_...", seat=True)
def show(session: Session, message: MessageId) -> None:
    """Show how far a message got: accepted, rung, shown, taken, handled, or why not.

    For its sender, its recipient, and the parent.
    """
    found = session.agent().receipt(message)
    now = session.now()
    holder = found.by if found.state != "handled" else None
    quoted: list[RenderableType] = []
    for name, text in (("reason", found.reason), ("last error", found.error)):
        if text:
            quoted += [Text(name, style="bold"), Quoted(text)]
    session.out.result(
        found,
        Facts(
            [
                ("message", found.message_id),
                ("kind", found.kind.replace("_", " ")),
                ("from", found.sender),
                ("to", found.recipient),
                ("task", found.task_id),
                ("state", found.state),
                ("accepted", when(found.accepted_at, now)),
                *_tries(found, now),
                ("forwarded", _step(found.forwarded_at, now)),
                ("shown", _step(found.shown_at, now, found.shown_by)),
                ("taken", _step(found.taken_at, now, found.taken_by)),
                ("held by", holder),
                ("comes again", _step(found.comes_at, now)),
                ("handled", _step(found.handled_at, now, found.by)),
                (found.state if found.ended_at else "", _step(found.ended_at, now)),
                ("attempts", str(found.attempts) if found.attempts else None),
                ("question", found.request),
                ("answered by", found.answered_by),
                ("reply", found.reply),
            ]
        ),
        *quoted,
    )
