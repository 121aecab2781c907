"""Where a command's answers go: for people, or with `--json` one exact document on stdout.

    with guard(out, "task show"):
        out.result(task, Facts(...), Quoted(task.description))

Exit codes: 0 well, 1 refused, 2 usage, 69 the server cannot be reached, 70 a defect of Tocsin.
"""

from __future__ import annotations

import json
import os
import re
import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from io import StringIO
from typing import Any, TextIO
from urllib.parse import unquote

import typer
from pydantic_core import to_jsonable_python
from rich.console import Console, RenderableType
from rich.text import Text

from tocsin.broker.embedded import EmbeddedServerError
from tocsin.broker.errors import BrokerError, Unavailable
from tocsin.broker.masking import redacted, without_tokens
from tocsin.broker.urls import parse
from tocsin.workers.cli.blocks import Line, clean

REFUSED = 1
UNAVAILABLE = 69
DEFECT = 70
INTERRUPTED = 130

_ENDLESS = 100_000  # columns; what is piped is never broken or cut
_URL = re.compile(r"[a-z][a-z+]*://[^\s'\"<>]+")


class Output:
    """Prints what a command has to say. Safe to give data of anybody: nothing in it is markup."""

    def __init__(self, *, as_json: bool = False) -> None:
        self.as_json = as_json
        """Whether stdout belongs to a program: JSON only."""
        self._secrets: set[str] = set()

    @property
    def interactive(self) -> bool:
        """Whether a person is at the keyboard and may be asked."""
        return not self.as_json and sys.stdin.isatty() and sys.stdout.isatty()

    def hide(self, url: str) -> None:
        """Sees that the password of `url` is in nothing that is printed about errors."""
        for secret in parse(url).secrets:
            self._secrets |= {secret, unquote(secret)}

    def mask(self, text: str) -> str:
        """`text` without tokens and passwords."""
        text = without_tokens(_URL.sub(lambda url: redacted(url[0]), text))
        for secret in sorted(self._secrets, key=len, reverse=True):
            text = text.replace(secret, "***")
        return text

    def result(self, value: Any, *blocks: RenderableType) -> None:
        """The command's one answer: `value` as JSON, or the blocks for people."""
        if self.as_json:
            self._write(value, indent=2 if sys.stdout.isatty() else None)
        else:
            self._show(sys.stdout, blocks)

    def event(self, value: Any, *blocks: RenderableType) -> None:
        """One line of a stream of answers, out at once: a JSON document a line."""
        if self.as_json:
            self._write(value, indent=None)
        else:
            self._show(sys.stdout, blocks)
        sys.stdout.flush()

    def note(self, text: str) -> None:
        """A remark for people beside the answer, on stderr; nothing with `--json`."""
        if not self.as_json:
            self._show(sys.stderr, [Text(clean(text), style="dim")])

    def warn(self, text: str) -> None:
        """Something that somebody should see to, on stderr, whatever stdout is for."""
        self._show(sys.stderr, [Text(clean(self.mask(f"warning: {text}")), style="bold yellow")])

    def refuse(
        self, code: str, operation: str, detail: str, *, retryable: bool = False, **more: str
    ) -> None:
        """An error: a sentence and its code on stderr, or a JSON object, with `more`, on stdout."""
        detail = self.mask(detail)
        if self.as_json:
            error = {
                "code": code,
                "operation": operation,
                "detail": detail,
                "retryable": retryable,
                **more,
            }
            self.event({"error": error})
            return
        line = Text.assemble(("error: ", "bold red"), clean(detail), (f" [{code}]", "dim"))
        self._show(sys.stderr, [Line(line)])

    def _write(self, value: Any, indent: int | None) -> None:
        plain = to_jsonable_python(value)
        sys.stdout.write(json.dumps(plain, indent=indent, allow_nan=False) + "\n")

    def _show(self, stream: TextIO, blocks: Any) -> None:
        terminal = stream.isatty()
        file = stream if terminal else StringIO()
        console = Console(
            file=file,
            width=None if terminal else _ENDLESS,
            force_terminal=None if terminal else False,
            color_system="auto" if terminal else None,
            markup=False,
            emoji=False,
            highlight=False,
        )
        for block in blocks:
            console.print(Text(clean(block)) if isinstance(block, str) else block)
        if isinstance(file, StringIO):
            lines = file.getvalue().split("\n")
            stream.write("\n".join(line.rstrip() for line in lines))


@contextmanager
def guard(out: Output, operation: str) -> Iterator[None]:
    """Turns what goes wrong inside into a message and an exit code."""
    try:
        yield
        sys.stdout.flush()
    except BrokerError as error:
        out.refuse(error.code, error.operation, error.detail, retryable=error.retryable)
        code = UNAVAILABLE if isinstance(error, Unavailable) else REFUSED
        raise typer.Exit(code) from None
    except EmbeddedServerError as error:
        out.refuse("unavailable", operation, str(error), retryable=True)
        raise typer.Exit(UNAVAILABLE) from None
    except KeyboardInterrupt:
        raise typer.Exit(INTERRUPTED) from None
    except BrokenPipeError:  # the reader has seen enough, as `head` does
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise typer.Exit(REFUSED) from None
    except (typer.Exit, typer.Abort, typer.TyperException, typer.BadParameter):
        raise
    except Exception as error:
        if not out.as_json:
            sys.stderr.write(clean(out.mask(traceback.format_exc())))
        out.refuse("internal", operation, f"a defect of Tocsin: {type(error).__name__}: {error}")
        raise typer.Exit(DEFECT) from None
