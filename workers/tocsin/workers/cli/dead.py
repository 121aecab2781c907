"""`tocsin dead`: mail that nobody will be given any more: list, show, replay, drop."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.console import RenderableType
from rich.text import Text

from tocsin.broker import DeadLetter
from tocsin.workers.cli.blocks import Facts, Quoted, Rows, age, brief, when
from tocsin.workers.cli.complete import complete_dead
from tocsin.workers.cli.herd import HerdArgument
from tocsin.workers.cli.session import Session, command

app = typer.Typer(
    name="dead",
    no_args_is_help=True,
    help="Dead letters: mail that failed or cannot be read, and what to do with it.",
)

DeadId = Annotated[
    str,
    typer.Argument(metavar="MESSAGE", help="The dead letter's id.", autocompletion=complete_dead),
]
DeadIds = Annotated[
    list[str],
    typer.Argument(metavar="MESSAGE...", help="Their ids.", autocompletion=complete_dead),
]


def _kind(letter: DeadLetter) -> str:
    return letter.kind.replace("_", " ") if letter.kind else "no message"


@command(app, "list", example="tocsin dead list release-42", seat=True)
def list_letters(
    session: Session,
    herd: HerdArgument = None,
    before: Annotated[
        str | None,
        typer.Option(metavar="MESSAGE", show_default=False, help="Only those older than this one."),
    ] = None,
    limit: Annotated[int, typer.Option(metavar="N", help="At most so many.")] = 100,
) -> None:
    """List the dead letters of a herd, newest first. Looking changes nothing."""
    found = session.parent(herd).dead_letters(before=before, limit=limit)
    now = session.now()
    session.out.result(
        {"dead_letters": list(found), "remaining": found.remaining},
        Rows(
            ("message", "kind", "from", "to", "attempts", "died", "reason"),
            [
                (
                    Text(letter.message_id, style="cyan"),
                    _kind(letter),
                    letter.sender or "-",
                    letter.recipient or "-",
                    str(letter.attempts),
                    age(letter.died_at, now),
                    brief(letter.reason),
                )
                for letter in found
            ],
            empty="No dead letters.",
            whole=("message",),
        ),
    )
    if found.remaining:
        last = found[-1].message_id
        session.out.note(f"{found.remaining} older ones; go on with --before {last}.")
    if len(found):
        session.out.note("See one with `tocsin dead show MESSAGE`; then `replay` or `drop` it.")


@command(app, "show", example="tocsin dead show msg_...", seat=True)
def show(session: Session, message: DeadId) -> None:
    """Show a dead letter: why it died, what it says, and whether it can be replayed."""
    letter = session.parent().dead_letter(message)
    now = session.now()
    blocks: list[RenderableType] = [
        Facts(
            [
                ("message", Text(letter.message_id, style="cyan")),
                ("kind", _kind(letter)),
                ("from", letter.sender),
                ("to", letter.recipient),
                ("task", letter.task_id),
                ("question", letter.request),
                ("attempts", str(letter.attempts)),
                ("accepted", when(letter.accepted_at, now) if letter.accepted_at else None),
                ("taken", when(letter.taken_at, now) if letter.taken_at else None),
                ("died", when(letter.died_at, now)),
            ]
        )
    ]
    for name, text in (
        ("reason", letter.reason),
        ("error", letter.error),
        ("body", letter.body),
        ("data", letter.data),
        ("cannot be replayed", letter.obstacle),
    ):
        if text:
            blocks += [Text(name, style="bold"), Quoted(text)]
    session.out.result(letter, *blocks)


@command(app, "replay", example="tocsin dead replay msg_... msg_...", seat=True)
def replay(session: Session, messages: DeadIds) -> None:
    """Make dead letters mail again: the same messages, their attempts forgotten.

    What a death ended stays ended: a failed task is continued by a new one (`tocsin task retry`),
    and the answer to a replayed question comes as late mail.
    """
    parent = session.parent()
    replayed = [parent.replay(message) for message in messages]
    session.out.result(
        replayed,
        *(
            Text.assemble("replayed ", (each.message_id, "cyan"), f" to {each.recipient}")
            for each in replayed
        ),
    )
    if any(each.request for each in replayed):
        session.out.note("The wait of a question stays closed; its answer comes as late mail.")


@command(app, "drop", example="tocsin dead drop msg_...", seat=True)
def drop(session: Session, messages: DeadIds) -> None:
    """Take dead letters off the list for good. Others go after `dead_retention`."""
    parent = session.parent()
    for message in messages:
        parent.drop(message)
    session.out.result(
        [{"message_id": message, "dropped": True} for message in messages],
        *(Text.assemble("dropped ", (message, "cyan")) for message in messages),
    )
