"""`tocsin why`: what somebody or something waits for."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.text import Text

from tocsin.workers.cli.blocks import Line, clean
from tocsin.workers.cli.session import Session, command

app = typer.Typer()


@command(app, "why", example="tocsin why task_...", seat=True)
def why(
    session: Session,
    about: Annotated[
        str,
        typer.Argument(
            metavar="ID", help="A task, message, question or reminder; an agent, instance or herd."
        ),
    ],
) -> None:
    """Say what something waits for: a line for each cause, the last for what to do about it.

    A child sees its own tasks and mail, the parent all of its herd. Looking counts as no presence.
    """
    found = session.looking().why(about)
    first, *causal, steps = str(found).split("\n")
    session.out.result(
        found,
        Line(Text(clean(first), style="bold")),
        *(Line(Text(clean(line))) for line in causal),
        Line(Text(clean(steps), style="green")),
    )
