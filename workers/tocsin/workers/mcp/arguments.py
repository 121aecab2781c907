"""The arguments that several tools have in common, as a model reads of them."""

from __future__ import annotations

from datetime import timedelta
from typing import Annotated

from pydantic import Field

AgentName = Annotated[str, Field(description="An agent's name, as roster shows it.")]
Target = Annotated[
    str,
    Field(
        description="Whom: an agent's name as roster shows it, or 'parent'. A plain message may "
        "also go to 'other-herd/parent'."
    ),
]
Words = Annotated[str, Field(description="What to say, complete: the reader sees nothing else.")]
TaskId = Annotated[str, Field(description="A task's id, 'task_...'.")]
OwnTask = Annotated[
    str | None, Field(description="The task this belongs to, 'task_...'; it then waits meanwhile.")
]
TaskIds = Annotated[
    list[str], Field(description="Ids of tasks, 'task_...'.", min_length=1, max_length=100)
]
MessageId = Annotated[str, Field(description="A message's id, 'msg_...', as inbox shows it.")]
QuestionId = Annotated[str, Field(description="The id of an open question, 'msg_...'.")]
Reason = Annotated[str | None, Field(description="Why; whom it concerns is told.")]
Key = Annotated[
    str | None,
    Field(description="Any word of yours. The same call again with the same key is one call."),
]


def minutes(number: float | None) -> timedelta | None:
    """A span given in minutes."""
    if number is None:
        return None
    try:
        return timedelta(minutes=number)
    except (OverflowError, ValueError):  # whoever checks it has the words for it
        return timedelta.max
