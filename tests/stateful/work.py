"""What follows from what in the model: waits, settlements, and all that comes with time."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import NamedTuple

from tests.stateful.asking import Asking
from tests.stateful.records import MINUTE, Agent, Mail, Request, Settled, Task, bare, refuse


class Timer(NamedTuple):
    """Something that comes due. Timers of one moment fire by `rank`, then by `name`."""

    due: int
    rank: int
    name: str
    fire: Callable[[], None]


class Work(Asking):
    """Tasks and requests, and the time they take."""

    def bereave(self, mail: Mail) -> None:
        """A dead task envelope fails its task, a dead request closes its wait."""
        if mail.kind == "task":
            self.settle(self.tasks[mail.task or ""], "failed", error=None, wakes=True)
        elif mail.request is not None and mail.request.state == "open":
            self.close_request(mail, "dead", tell=True)

    def need_task(self, ref: str) -> Task:
        refuse(unknown_task=ref not in self.tasks)
        return self.tasks[ref]

    def need_open(self, ref: str) -> Mail:
        refuse(unknown_message=ref not in self.mail)
        mail = self.mail[ref]
        refuse(wrong_state=mail.request is None or mail.request.state != "open")
        return mail

    def questions(self, task: Task) -> list[str]:
        """The open requests that a task waits on, oldest first."""
        return [mail.id for mail in self.open_requests(lambda mail: mail.task == task.id)]

    def waiting_since(self, task: Task) -> int | None:
        """When the oldest question that is still open was asked."""
        questions = self.questions(task)
        request = self.mail[questions[0]].request if questions else None
        return request.opened_at if request is not None and task.state == "waiting" else None

    def works(self, name: str) -> bool:
        return any(task.slot_since is not None for task in self.tasks_of(name))

    def tasks_of(self, name: str) -> list[Task]:
        """Open tasks of an agent: the one in its slot, then its queue."""
        mine = [task for task in self.tasks.values() if task.open and task.agent == name]
        return sorted(mine, key=lambda task: (task.slot_since is None, task.created_at, task.id))

    def unwatch(self, task: Task) -> bool:
        """Takes a task out of the set it is watched in; whether it was the last of it."""
        if isinstance(task.watch, set):
            task.watch.discard(task.id)
            return not task.watch
        return task.watch == "each"

    def settle(
        self,
        task: Task,
        state: str,
        *,
        error: str | None,
        summary: str = "",
        wakes: bool = False,
        tell: bool = False,
        expired: Mail | None = None,
    ) -> None:
        """Once: its requests close, the parent hears of it, the next queued task gets the slot."""
        if not task.open:
            return
        questions = [self.mail[ref] for ref in self.questions(task)]
        task.state, task.slot_since = state, None
        task.settled = Settled(task.id, task.agent, state, summary, error, self.now)
        task.forget_at = self.now + self.settings.task_retention
        for mail in questions:
            self.close_request(mail, "expired" if mail is expired else "settled")
        self.withdraw(self.mail.get(f"msg_task_{bare(task.id)}"))
        wakes = self.unwatch(task) or wakes
        if self.agents["parent"].open:
            letter = Mail(
                f"msg_settled_{bare(task.id)}", "task_settled", task.agent, "parent", wakes
            )
            letter.task, letter.content = task.id, task.settled
            self.send(letter)
        if tell:
            ended = f"msg_ended_{bare(task.id)}"
            self.notice(ended, task.agent, wakes=False, steer=True, task=task.id)
        queue = self.tasks_of(task.agent)
        if queue and not self.works(task.agent) and self.agents[task.agent].open:
            queue[0].slot_since = self.now
            self.deliver(self.mail[f"msg_task_{bare(queue[0].id)}"])
            self.absent(self.agents[task.agent])

    def close_request(self, mail: Mail, how: str, *, tell: bool = False) -> None:
        """The expectation ends; without another one its task runs again."""
        request = mail.request
        assert request is not None
        request.state = how
        mail.forget_at = self.now + self.settings.task_retention
        if not request.answerable:
            self.withdraw(mail)
        task = self.tasks.get(mail.task or "")
        if task is not None and task.state == "waiting" and not self.questions(task):
            task.state = "running"
        if tell:
            self.tell(mail)

    # ---------------------------------------------------------------- time

    def timers(self) -> Iterator[Timer]:
        """Everything that will come due, as the records are now."""
        settings = self.settings
        for task in self.tasks.values():
            if task.open:
                yield Timer(task.deadline, 1, task.id, partial(self._time_out, task))
            elif task.forget_at is not None:
                yield Timer(task.forget_at, 9, f"t:{task.id}", partial(self._forget, task))
        for mail in self.mail.values():
            if mail.request is not None and mail.request.state == "open":
                yield from self._limits(mail, mail.request)
            if mail.delayed_until is not None:
                yield Timer(mail.delayed_until, 6, mail.id, partial(self.deliver, mail))
            if mail.forget_at is not None:
                name = f"m:{mail.id}"
                yield Timer(mail.forget_at, 9, name, partial(self._forget_mail, mail))
        stale = [since for since, _ in self._stale_waits()]
        if stale and settings.threshold >= 1 and self.agents["parent"].live:
            yield Timer(round(min(stale) + settings.threshold * MINUTE), 5, "", self.send_reminders)
        for agent in self.agents.values():
            if agent.held_up_since is not None:
                due = agent.held_up_since + settings.away_after
                yield Timer(due, 8, agent.name, partial(self._away, agent))
            if agent.forget_at is not None:
                name = f"a:{agent.name}"
                yield Timer(agent.forget_at, 9, name, partial(self._forget, agent))

    def tick(self) -> None:
        """Fires whatever is due, in due order."""
        while due := [timer for timer in self.timers() if timer.due <= self.now]:
            min(due, key=lambda timer: timer[:3]).fire()

    def next_due(self) -> int | None:
        """When the next timer is due."""
        return min((timer.due for timer in self.timers()), default=None)

    def _stale_waits(self) -> list[tuple[int, Task]]:
        """Waits whose episode had no reminder yet, with when they began; oldest first."""
        found = [
            (since, task.id, task)
            for task in self.tasks.values()
            if not task.reminded and (since := self.waiting_since(task)) is not None
        ]
        return [(since, task) for since, _, task in sorted(found)]

    def send_reminders(self) -> None:
        """One quiet reminder for each wait past the threshold, if there is a parent to read it."""
        threshold = self.settings.threshold
        if threshold < 1 or not self.agents["parent"].live:
            return
        for since, task in self._stale_waits():
            if self.now - since >= threshold * MINUTE:
                task.reminded = True
                ref = f"msg_reminder_{bare(task.id)}_{task.episode}"
                reminder = Mail(ref, "reminder", "@tocsin", "parent", False, task=task.id)
                reminder.episode = task.episode
                self.send(reminder)

    def _limits(self, mail: Mail, request: Request) -> Iterator[Timer]:
        """The deadline of a request; the ceiling of an ask, and its window if that ends before."""
        if request.deadline is not None:
            yield Timer(request.deadline, 2, mail.id, partial(self._expire, mail))
        if request.ask is None:
            return
        yield Timer(request.ask.ceiling_at, 3, mail.id, partial(self.run_out, mail, "ceiling"))
        silent = self.silent_at(mail, probes=False)
        if silent is not None:
            yield Timer(silent, 4, mail.id, partial(self.run_out, mail, "window"))

    def run_out(self, mail: Mail, limit: str) -> None:
        """A limit of an ask is reached; its task, if it has one, runs again."""
        assert mail.request is not None
        ask = mail.request.ask
        assert ask is not None
        last = self.last_sign(mail)
        works = last > mail.request.opened_at and last + ask.window >= ask.ceiling_at
        ask.limit, ask.silence = limit, "" if works else self.why_silent(mail)
        self.close_request(mail, "ceiling_active" if works else "no_reply", tell=True)

    def _time_out(self, task: Task) -> None:
        self.settle(task, "timed_out", error=None, tell=True)

    def _expire(self, mail: Mail) -> None:
        """The reply deadline blocks the task; an asker without one is told."""
        if mail.task is None:
            self.close_request(mail, "expired", tell=True)
            return
        why = f"no reply from {mail.recipient} to message {mail.id}"
        self.settle(self.tasks[mail.task], "blocked", error=why, tell=True, expired=mail)

    def absent(self, agent: Agent) -> None:
        """Nobody serves an agent that has work: from now on its parent waits to hear of it."""
        held_up = not agent.live and self.works(agent.name)
        if held_up and agent.held_up_since is None and not agent.away_told:
            agent.held_up_since = self.now

    def _away(self, agent: Agent) -> None:
        """One quiet notice per absence, if it still holds up a task."""
        agent.held_up_since = None
        if self.works(agent.name):
            agent.away_told = True
            agent.absences += 1
            task = self.tasks_of(agent.name)[0]
            ref = f"msg_away_{agent.name}_{agent.generation}_{agent.absences}"
            self.notice(ref, "parent", wakes=False, task=task.id)

    def _forget(self, record: Task | Agent) -> None:
        if isinstance(record, Task):
            del self.tasks[record.id]
        else:
            del self.agents[record.name], self.boxes[record.name]

    def _forget_mail(self, mail: Mail) -> None:
        """A record ends once the envelope has; one that is still to be read stays."""
        mail.forget_at = None
        if mail.state in ("handled", "withdrawn", "dead"):
            del self.mail[mail.id]
