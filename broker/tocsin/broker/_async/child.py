"""What a child can do besides."""

from __future__ import annotations

from tocsin.broker import tasks
from tocsin.broker._async.agent import AsyncAgent
from tocsin.broker._async.parent import AsyncParent
from tocsin.broker.envelopes import Outcome, Settlement, Task
from tocsin.broker.settings import HerdSettings


class AsyncChild(AsyncAgent):
    """One instance of a child agent."""

    async def done(
        self,
        task: str,
        outcome: Outcome | str = Outcome.COMPLETED,
        *,
        summary: str | None = None,
        error: str | None = None,
        override_reason: str | None = None,
    ) -> Settlement:
        """Settles this agent's own task: `completed`, `blocked` or `failed`.

        Returns how the task is settled: by this call or, if it was before, as it was then (other
        content is kept in the journal). A waiting task cannot be completed (`pending_requests`)
        without an `override_reason`, which is kept and cancels its questions.
        """
        return await self._run(
            tasks.done(
                self.caller,
                task,
                outcome,
                summary=summary,
                error=error,
                override_reason=override_reason,
            )
        )

    async def open_herd(
        self, herd: str, *, settings: HerdSettings | None = None, task: str | None = None
    ) -> AsyncParent:
        """Opens a herd of its own under this child, and becomes its parent too.

        It closes when this child or its herd does. A cancel of a task that this child has begun
        cancels what is open in it: of any task, or with `task` of that one alone. As the children
        of the new herd may lead herds in turn, that goes on below.
        """
        return await self.broker.open_herd(
            herd,
            settings=settings,
            under=f"{self.herd}/{self.agent}",
            under_token=self.token,
            task=task,
        )

    async def tasks(self) -> list[Task]:
        """This agent's own tasks, newest first."""
        return await self._run(tasks.listing(self.caller, None, tasks.MOST_NAMED))

    async def task(self, task: str) -> Task:
        """One of this agent's own tasks."""
        return (await self._run(tasks.named(self.caller, [task])))[0]
