"""The command line of Tocsin: `tocsin`, with its commands by noun.

Each module here has an `app`: a group where it bears a name, else commands of the top level.
"""

from __future__ import annotations

import os
import re
import sys
from typing import Annotated

import typer

from tocsin.workers.cli import (
    agent,
    ask,
    connect,
    dead,
    demo,
    doctor,
    herd,
    hook,
    mail,
    mcp,
    plan,
    receipts,
    scheduler,
    seat,
    settings,
    task,
    turn,
    up,
    why,
    worker,
)

app = typer.Typer(
    name="tocsin",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="Start with `tocsin demo` to see what it is, or `tocsin up` to have it.",
)

for module in (
    up,
    demo,
    scheduler,
    worker,
    doctor,
    herd,
    agent,
    task,
    plan,
    turn,
    receipts,
    mail,
    dead,
    ask,
    why,
    mcp,
    hook,
    connect,
    seat,
    settings,
):
    app.add_typer(module.app)


def _show_version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version  # slow to import

        typer.echo(f"tocsin {version('tocsin')}")
        raise typer.Exit


@app.callback()
def tocsin(
    _version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_show_version, is_eager=True, help="Print the version and exit."
        ),
    ] = False,
) -> None:
    """Message broker for fleets of AI agents, on Redis: tasks, questions, and one reminder each."""
    _drop_unexpanded()


# A reference to a variable, as hosts write them in their settings, and nothing else beside it.
_REFERENCE = re.compile(r"\$\{[^{}]*\}|\$[A-Za-z_]\w*|\{env:\w*\}")


def _drop_unexpanded() -> None:
    """Hosts hand on `${TOCSIN_SEAT}` as it stands where that is not set: so it is not set."""
    for name in [name for name in os.environ if name.startswith("TOCSIN_")]:
        if _REFERENCE.fullmatch(os.environ[name]):
            del os.environ[name]


def main() -> None:
    """Runs the command line; what the console script `tocsin` calls."""
    for stream in (sys.stdout, sys.stderr):  # a terminal that knows only ASCII gets escapes
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")
    app()


if __name__ == "__main__":
    main()
