"""What a program prints in its turn: its session, how its model fared, and the tail for diagnosis.

Nothing is kept but the ends: a program may print without end.
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Iterable

from tocsin.broker.validation import printable
from tocsin.workers.child.profiles import Profile

TAIL = 4_000
"""Characters that are kept of what it printed last."""

_LONGEST_EVENT = 1 << 20
"""Bytes of a line that are read as an event; of a longer one nothing is."""

_LONGEST_LINE = 500
"""Characters that the tail has of one line."""


class Output:
    """Reads what a program prints, as it comes, on two streams."""

    def __init__(self, profile: Profile, secrets: Iterable[str] = ()) -> None:
        self._profile = profile
        self._secrets = [secret for secret in secrets if secret]
        self._lines: deque[str] = deque()
        self._length = 0
        self._pending = {"stdout": bytearray(), "stderr": bytearray()}
        self._errors: deque[str] = deque(maxlen=50)
        self._answer = ""
        self.size = 0
        """Bytes on its standard output so far."""
        self.session: str | None = None
        """The last session that one of its events named."""
        self.verdict: str | None = None
        """What its last event said that says how the model fared, without secrets: "" for well."""

    def feed(self, stream: str, data: bytes) -> None:
        """Takes in what came on a stream, `stdout` or `stderr`."""
        if stream == "stdout":
            self.size += len(data)
        pending = self._pending[stream]
        *lines, rest = data.split(b"\n")
        for line in lines:
            pending += line[: _LONGEST_EVENT - len(pending)]
            self._line(stream, bytes(pending))
            pending.clear()
        pending += rest[: _LONGEST_EVENT - len(pending)]

    def close(self) -> None:
        """Takes in what came without the end of a line."""
        for stream, pending in self._pending.items():
            if pending:
                self._line(stream, bytes(pending))
                pending.clear()

    @property
    def answer(self) -> str:
        """The model's last words; of a program that prints no events, its last output."""
        return (self._answer or "\n".join(self._lines))[-TAIL:].strip()

    @property
    def tail(self) -> str:
        """What it printed last, on both streams, without secrets."""
        return "\n".join(self._lines)[-TAIL:]

    @property
    def errors(self) -> str:
        """What it printed last on its standard error, without secrets."""
        return "\n".join(self._errors)

    def _hidden(self, text: str) -> str:
        for secret in self._secrets:
            text = text.replace(secret, "***")
        return printable(text)

    def _line(self, stream: str, line: bytes) -> None:
        text = line.decode("utf-8", "replace").rstrip("\r")
        shown = self._hidden(text)  # before it is cut: half a secret would not be found any more
        if stream == "stderr":
            self._errors.append(shown[:_LONGEST_LINE])
        elif self._profile.events:
            self._event(text)
        self._keep(shown)

    def _event(self, text: str) -> None:
        try:
            event = json.loads(text) if text.startswith("{") else None
        except (ValueError, RecursionError):
            return
        if not isinstance(event, dict):
            return
        try:
            session, verdict = self._profile.session(event), self._profile.verdict(event)
            answer = self._profile.answer(event)
        except (AttributeError, TypeError, LookupError):  # an event of another shape than is known
            return
        if isinstance(session, str) and session:
            self.session = session
        if isinstance(answer, str):
            self._answer = self._hidden(answer)
        if verdict is not None:
            self.verdict = self._hidden(verdict)

    def _keep(self, text: str) -> None:
        shown = text if len(text) <= _LONGEST_LINE else f"{text[:_LONGEST_LINE]}..."
        self._lines.append(shown)
        self._length += len(shown) + 1
        while self._length > TAIL + _LONGEST_LINE and len(self._lines) > 1:
            self._length -= len(self._lines.popleft()) + 1
