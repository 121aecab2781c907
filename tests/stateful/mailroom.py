"""The mail of a herd in the model: inboxes, and how far each envelope got."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tests.stateful.records import (
    MINUTE,
    UNREAD,
    Agent,
    Hold,
    Mail,
    Refused,
    Seat,
    Settings,
    Task,
    bare,
    refuse,
)


class Mailroom:
    """The records of one herd, and what is done with its mail."""

    def __init__(self, now: int) -> None:
        self.now = now
        self.settings = Settings()
        self.closed = False
        self.agents: dict[str, Agent] = {"parent": Agent("parent", 1)}
        self.tasks: dict[str, Task] = {}
        self.mail: dict[str, Mail] = {}
        self.boxes: dict[str, list[Mail]] = {"parent": []}
        self.last_generation: dict[str, int] = {}

    def join(self, seat: Seat) -> None:
        """Whoever reads is present from then on."""
        raise NotImplementedError

    def waiting_since(self, task: Task) -> int | None:
        """When the oldest question that is still open was asked."""
        raise NotImplementedError

    def works(self, name: str) -> bool:
        """Whether an agent has a task in hand."""
        raise NotImplementedError

    def bereave(self, mail: Mail) -> None:
        """What hangs on an envelope moves on when that goes to the dead letters."""
        raise NotImplementedError

    def prove(self, seat: Seat) -> Agent:
        """The caller; an earlier generation of a name is nobody."""
        agent = self.agents.get(seat.agent)
        if agent is None or agent.generation != seat.generation:
            raise Refused("agent_closed", "unauthorized", "unknown_agent")
        refuse(herd_closed=self.closed, agent_closed=not agent.open)
        return agent

    def reachable(self, name: str) -> dict[str, bool]:
        agent = self.agents.get(name)
        return {
            "unknown_agent": agent is None,
            "agent_closed": agent is not None and not agent.open,
        }

    def act(self, agent: Agent) -> None:
        """It shows that it works, which is more than that its process runs."""
        agent.acts.append(self.now)

    def take(self, seat: Seat, *, turn: bool) -> list[Mail]:
        """All unread mail; of a turn only if something in it wakes. What keeps failing is alone."""
        self.join(seat)
        unread = [mail for mail in self.in_order(seat.agent) if mail.state in UNREAD]
        if turn and not any(mail.wakes for mail in unread):
            return []
        taken: list[Mail] = []
        patience = max(1, min(2, self.settings.max_attempts - 1))
        for steer in (True, False):
            for mail in unread:
                if mail.steer is not steer:
                    continue
                failed = mail.wakes and mail.attempts >= patience
                if failed and taken:
                    break
                if self._hand_over(mail, seat.instance):
                    taken.append(mail)
                    if failed:
                        return taken
        return taken

    def show(self, seat: Seat) -> list[Mail]:
        """Unread mail and what this instance holds, left where it is."""
        self.join(seat)
        shown = [
            mail
            for mail in self.in_order(seat.agent)
            if mail.state in UNREAD or (mail.state == "taken" and mail.by == seat.instance)
        ]
        return [mail for mail in shown if self._hand_over(mail, None)]

    def ack(self, seat: Seat, held: Sequence[Hold]) -> None:
        """Handled, if it is still the caller's."""
        for mail in self._held(seat, held):
            self.end(mail, "handled")

    def nack(self, seat: Seat, held: Sequence[Hold], *, delay: int = 0, error: str = "") -> None:
        """Back to where it can be taken, at once or later; an error counts an attempt."""
        for mail in self._held(seat, held):
            if mail.state not in ("taken", "shown"):
                continue  # taken back when an envelope before it was given up
            if error:
                self.failed(mail, error, delay)
            else:
                self.hand_back(mail, delay)

    def _held(self, seat: Seat, held: Sequence[Hold]) -> list[Mail]:
        agent = self.prove(seat)
        found = []
        for ref, delivery in held:
            if ref not in self.mail:  # whose delivery it was, another had ended by then
                refuse(unknown_message=delivery is None)
                continue
            mail = self.mail[ref]
            if mail.recipient != agent.name:
                former = mail.request is not None and agent.name in mail.request.was
                refuse(forbidden=not former)
                continue
            if mail.state in ("handled", "withdrawn"):
                continue
            if delivery is not None:
                fenced = mail.delivery != delivery or mail.state != "taken"
                found += [] if fenced else [mail]
                continue
            refuse(wrong_state=mail.state not in ("shown", "taken"))
            if mail.state == "shown" or mail.by == seat.instance:
                found.append(mail)
        return found

    def _hand_over(self, mail: Mail, taker: str | None) -> bool:
        """Hands mail over as taken or shown; what is no longer true is dropped instead."""
        if not self.true(mail):
            self.end(mail, "withdrawn")
            return False
        if mail.kind == "reminder" and not mail.handed_over and not self._still_stale(mail):
            self.unlist(mail)  # as if it had never been sent
            del self.mail[mail.id]
            self.tasks[mail.task or ""].reminded = False
            return False
        mail.handed_over = True
        if mail.state != "taken":
            mail.state, mail.by = ("taken", taker) if taker else ("shown", None)
        if mail.kind == "task":
            task = self.tasks[mail.task or ""]
            if task.state == "created":
                task.state = "running"
        return True

    def _still_stale(self, mail: Mail) -> bool:
        """Whether the wait is as old as its reminder says, by the threshold of this moment."""
        threshold, since = self.settings.threshold, self.waiting_since(self.tasks[mail.task or ""])
        return threshold >= 1 and since is not None and self.now - since >= threshold * MINUTE

    def true(self, mail: Mail) -> bool:
        """Whether it still says what is: a reminder of its episode, an envelope of its task."""
        task = self.tasks.get(mail.task or "")
        if mail.kind != "reminder":
            return mail.kind != "task" or task is not None
        return task is not None and task.state == "waiting" and task.episode == mail.episode

    def in_order(self, agent: str) -> list[Mail]:
        return sorted(self.boxes[agent], key=lambda mail: not mail.steer)

    def send(self, mail: Mail) -> None:
        self.mail[mail.id] = mail
        self.deliver(mail)

    def notice(
        self,
        ref: str,
        to: str,
        *,
        wakes: bool,
        steer: bool = False,
        task: str | None,
        content: tuple[Any, ...] = (),
    ) -> None:
        """One of each id, to an agent that can read it."""
        if ref not in self.mail and self.agents[to].open:
            mail = Mail(ref, "notice", "@tocsin", to, wakes, steer=steer, task=task)
            mail.content = content
            self.send(mail)

    def deliver(self, mail: Mail) -> None:
        mail.state, mail.by, mail.delayed_until = "accepted", None, None
        mail.delivery += 1
        mail.meant_for = self.agents[mail.recipient].generation
        self.boxes[mail.recipient].append(mail)

    def unlist(self, mail: Mail) -> None:
        box = self.boxes.get(mail.recipient, [])
        box[:] = [other for other in box if other is not mail]
        mail.delayed_until = None

    def end(self, mail: Mail, state: str) -> None:
        self.unlist(mail)
        mail.state = state
        if mail.request is None:
            mail.forget_at = self.now + self.settings.receipt_retention
        elif mail.request.state != "open":
            mail.forget_at = self.now + self.settings.task_retention

    def withdraw(self, mail: Mail | None) -> None:
        if mail is not None and mail.state in ("queued", "delayed", *UNREAD):
            self.end(mail, "withdrawn")

    def hand_back(self, mail: Mail, delay: int = 0) -> None:
        self.unlist(mail)
        if self._pointless(mail):
            self.end(mail, "withdrawn")
        elif delay:
            mail.state, mail.by, mail.delayed_until = "delayed", None, self.now + delay
        else:
            self.deliver(mail)

    def _pointless(self, mail: Mail) -> bool:
        """Whether what the envelope asks for has ended: unread, it would be taken back."""
        if mail.kind == "task":
            task = self.tasks.get(mail.task or "")
            return task is None or not task.open
        return mail.request is not None and not mail.request.answerable

    def failed(self, mail: Mail, error: str, delay: int = 0) -> None:
        if self._pointless(mail):
            self.hand_back(mail)
            return
        mail.attempts += 1
        if mail.attempts >= self.settings.max_attempts:
            self.bury(mail)
        else:
            self.hand_back(mail, delay)

    def bury(self, mail: Mail, *, silent: bool = False) -> None:
        """Dead letters; the parent hears of it, and its sender, unless they know."""
        self.unlist(mail)
        mail.state = "dead"
        asks = mail.request is not None and mail.request.state == "open"
        if not silent:
            self.bereave(mail)
        kept = self.settings.dead_retention
        if mail.request is not None:
            kept = max(kept, self.settings.task_retention)
        mail.forget_at = self.now + kept
        if silent:
            return
        if not (mail.sender == "@tocsin" and mail.recipient == "parent"):
            self.notice(f"msg_dead_{bare(mail.id)}", "parent", wakes=True, task=mail.task)
        sender = self.agents.get(mail.sender)
        if sender is None or sender.name == "parent" or asks:
            return
        if sender.generation == mail.sender_generation:
            ref = f"msg_undelivered_{bare(mail.id)}"
            self.notice(ref, mail.sender, wakes=False, task=mail.task)
