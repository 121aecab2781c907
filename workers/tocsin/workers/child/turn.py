"""What a function is given that runs turns of an agent in Python."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tocsin.broker import AsyncChild, Child, Envelope, Outcome, Task


class Turn:
    """One turn: its mail, its task, and what an agent does.

    In a function that is `async` each of the calls is awaited. The turn is over when the function
    returns: what it was told is handled then, and nothing is settled. If it raises, its mail is
    given back, and the turn is tried again as its runner says.
    """

    def __init__(
        self,
        child: Child | AsyncChild,
        *,
        number: int,
        reason: str,
        attempt: int,
        session: str | None,
        mail: Sequence[Envelope],
        tasks: Sequence[Task],
    ) -> None:
        self.child = child
        """The agent, for what is not offered here."""
        self.number = number
        self.reason = reason
        """`mail`, `nudge` (a task was left open) or `retry` (the turn before it failed)."""
        self.attempt = attempt
        self.session = session
        """Whatever the turn before left here; what is left here the next one finds."""
        self.mail = tuple(mail)
        """What has come since the last turn, in order."""
        self.tasks = tuple(tasks)
        """The agent's open tasks, newest first."""

    def __repr__(self) -> str:
        return f"turn {self.number} of {self.child}"

    @property
    def task(self) -> Task | None:
        """The task that it is about: the one its mail names, else the only one that is open."""
        named = {envelope.task_id for envelope in self.mail}
        found = [task for task in self.tasks if task.id in named]
        if not found and len(self.tasks) == 1:
            found = list(self.tasks)
        return found[0] if found else None

    def message(self, to: str, body: str, **how: Any) -> Any:
        """Writes to another agent; with `expects_reply=True` its answer makes the next turn due."""
        if how.get("expects_reply"):
            self._link(how)
        return self.child.message(to, body, **how)

    def ask(self, to: str, body: str, **how: Any) -> Any:
        """Asks another agent and waits for its answer, within this turn."""
        self._link(how)
        return self.child.ask(to, body, **how)

    def reply(self, to: Envelope | str, body: str, **how: Any) -> Any:
        """Answers a question or a message."""
        return self.child.reply(to, body, **how)

    def progress(self, text: str, fraction: float | None = None) -> Any:
        """Says how far the work is."""
        return self.child.progress(text, fraction)

    def done(
        self,
        outcome: Outcome | str = Outcome.COMPLETED,
        *,
        summary: str | None = None,
        task: Task | str | None = None,
        **how: Any,
    ) -> Any:
        """Settles its task, or `task`."""
        about = task if task is not None else self.task
        name = about.id if isinstance(about, Task) else about
        return self.child.done(name, outcome, summary=summary, **how)  # type: ignore[arg-type]

    def _link(self, how: dict[str, Any]) -> None:
        if self.task is not None:
            how.setdefault("task", self.task.id)
