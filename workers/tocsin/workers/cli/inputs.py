"""What commands read from people: texts from stdin, durations, deadlines, secrets."""

from __future__ import annotations

import sys
from datetime import datetime, timedelta
from typing import Annotated

import typer

from tocsin.broker.durations import read_duration
from tocsin.broker.errors import InvalidInput
from tocsin.broker.settings import parse_duration
from tocsin.broker.validation import check_token
from tocsin.workers.cli.output import Output

KeyOption = Annotated[
    str | None,
    typer.Option(
        metavar="KEY",
        show_default=False,
        help="The same key does it once, however often it is run.",
    ),
]

_MOST_BYTES = 16_777_216


def read_text(text: str, operation: str, field: str) -> str:
    """`text`, or for `-` all of stdin without its last line end."""
    if text != "-":
        return text
    raw = sys.stdin.buffer.read(_MOST_BYTES + 1)
    if len(raw) > _MOST_BYTES:
        raise InvalidInput(operation, f"{field} on stdin is over {_MOST_BYTES} bytes")
    try:
        found = raw.decode("utf-8")
    except UnicodeDecodeError as failure:
        raise InvalidInput(
            operation, f"{field} on stdin is not UTF-8 text, at byte {failure.start}"
        ) from None
    return found.removesuffix("\n").removesuffix("\r")


def read_span(text: str | None, operation: str, field: str) -> timedelta | None:
    """A duration such as `90s`, `10m` or `1h30m`; a number is of seconds."""
    return None if text is None else parse_duration(text, operation=operation, field=field)


def read_deadline(text: str | None, operation: str, field: str) -> timedelta | datetime | None:
    """A duration from now, or a moment in ISO 8601 with its zone."""
    if text is not None and read_duration(text) is None:
        try:
            return datetime.fromisoformat(text)
        except ValueError:
            pass
    return read_span(text, operation, field)


def read_token(out: Output, operation: str, whose: str) -> str:
    """A token from stdin, or asked for at a terminal without being shown."""
    if out.interactive:
        token = typer.prompt(f"Token of {whose}", hide_input=True, err=True)
    else:
        token = sys.stdin.readline()
    return check_token(operation, token.strip())


def confirm(out: Output, question: str, *, yes: bool) -> None:
    """Asks a person at a terminal before something that cannot be undone; others meant it."""
    if out.interactive and not yes:
        typer.confirm(question, abort=True, err=True)
