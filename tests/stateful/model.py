"""What the broker promises about one herd, in plain Python: an executable reading of the design.

No keys, no scripts, no indexes: records in dictionaries, and time that a test moves. Whatever is
due is found by looking at the records, never kept beside them. An operation that the broker must
refuse raises `Refused` with the codes that apply; where several do, it is the broker's choice which
one it names. Read this file for the operations and `rendezvous` for those of asks, `work` and
`asking` for what follows from them, `mailroom` for what becomes of envelopes.
"""

from __future__ import annotations

from collections.abc import Sequence

from tests.stateful.records import (
    UNREAD,
    Agent,
    Mail,
    Refused,
    Request,
    Seat,
    Settled,
    Task,
    bare,
    refuse,
)
from tests.stateful.rendezvous import Rendezvous


class Model(Rendezvous):
    """One herd, with the same operations as the broker has."""

    # ---------------------------------------------------------------- agents

    def register(self, seat: Seat, name: str, generation: int | None) -> None:
        """A name that was closed is used anew; its generation is one that no agent had before."""
        self.prove(seat)
        known = self.agents.get(name)
        refuse(agent_exists=known is not None and known.open)
        self.act(self.agents["parent"])
        assert generation is not None
        assert generation > self.last_generation.get(name, 0), f"{name} is an old generation"
        self.last_generation[name] = generation
        self.agents[name] = Agent(name, generation)
        self.boxes[name] = []

    def join(self, seat: Seat) -> None:
        """An instance starts. When the parent was away, it is reminded before it reads."""
        agent = self.prove(seat)
        was_live = agent.live
        agent.instances.add(seat.instance)
        if not was_live:
            agent.held_up_since, agent.away_told = None, False
            if agent.name == "parent":
                self.send_reminders()

    def leave(self, seat: Seat, *, died: bool) -> None:
        """An instance ends, and what it held comes back; its death counts as an attempt."""
        agent = self.agents.get(seat.agent)
        if agent is None or agent.generation != seat.generation:
            raise Refused("agent_closed", "unauthorized", "unknown_agent")
        if not agent.open:
            return
        for mail in self.in_order(agent.name):
            if mail.state == "taken" and mail.by == seat.instance:
                if died:
                    self.failed(mail, "its holder died")
                else:
                    self.hand_back(mail)
        if seat.instance in agent.instances:
            agent.instances.remove(seat.instance)
            self.asker_gone(agent.name)
            self.absent(agent)

    def close(self, seat: Seat, name: str, reason: str) -> None:
        """Its tasks are cancelled, who waits on it is told, its mail goes to dead letters."""
        self.prove(seat)
        refuse(unknown_agent=name not in self.agents)
        agent = self.agents[name]
        if not agent.open:
            return
        self.act(self.agents["parent"])
        agent.open = False
        for task in self.tasks_of(name):
            self.settle(task, "cancelled", error=reason)
        for mail in self.open_requests(lambda mail: mail.recipient == name):
            self.close_request(mail, "agent_closed", tell=True)
        for mail in self.open_requests(lambda mail: mail.sender == name):
            self.close_request(mail, "asker_closed")
        for mail in [mail for mail in self.mail.values() if mail.recipient == name]:
            if mail.state in ("held", "delayed", *UNREAD, "taken"):
                self.bury(mail, silent=True)
        agent.instances.clear()
        agent.held_up_since = None
        agent.forget_at = self.now + self.settings.task_retention

    def close_herd(self, seat: Seat) -> None:
        """Every open task is cancelled; nothing is accepted any more."""
        self.prove(seat)
        for name in [*(name for name in self.agents if name != "parent"), "parent"]:
            self.agents[name].open = False
            for task in self.tasks_of(name):
                self.settle(task, "cancelled", error=None)
        self.closed = True

    def set_threshold(self, seat: Seat, minutes: float) -> None:
        """Waits that are open already follow at once."""
        self.prove(seat)
        self.settings.threshold = minutes

    # ---------------------------------------------------------------- tasks

    def delegate(
        self,
        seat: Seat,
        ref: str,
        child: str,
        text: str,
        *,
        deadline: int | None = None,
        watch: bool = False,
        queue: bool = False,
        continues: str | None = None,
    ) -> Task:
        """One open task per agent; others wait in its queue, if that is wanted."""
        self.prove(seat)
        content = (child, text, deadline, watch, queue, continues)
        if ref in self.tasks:
            refuse(duplicate_conflict=self.tasks[ref].content != content)
            return self.tasks[ref]
        earlier = self.tasks.get(continues or "")
        refuse(
            invalid_input=child == "parent",
            unknown_task=continues is not None and earlier is None,
            wrong_state=earlier is not None and earlier.open,
            agent_busy=not queue and self.works(child),
            **self.reachable(child),
        )
        self.act(self.agents["parent"])
        ends = self.now + (deadline or self.settings.task_deadline)
        task = Task(ref, child, self.agents[child].generation, content, text, self.now, ends)
        task.watch = "each" if watch else None
        free = not self.works(child)
        self.tasks[ref] = task
        envelope = Mail(f"msg_task_{bare(ref)}", "task", "parent", child, True, task=ref, body=text)
        if free:
            task.slot_since = self.now
            self.send(envelope)
            self.absent(self.agents[child])
        else:
            envelope.state = "queued"
            self.mail[envelope.id] = envelope
        return task

    def done(
        self, seat: Seat, ref: str, outcome: str, summary: str, error: str, override: str | None
    ) -> Settled:
        """The first outcome stands. A waiting task is completed only with a reason."""
        agent = self.prove(seat)
        task = self.need_task(ref)
        refuse(forbidden=(task.agent, task.generation) != (agent.name, agent.generation))
        content = (outcome, summary, error, override)
        if task.settled is None:
            waits = task.state == "waiting" and outcome == "completed"
            refuse(pending_requests=waits and override is None)
            task.done = content
            self.settle(task, outcome, summary=summary, error=error)
            self.act(agent)
        elif task.done != content:
            self.act(agent)
        assert task.settled is not None
        return task.settled

    def cancel(self, seat: Seat, ref: str, reason: str) -> Settled:
        """An open task is cancelled and its child told; a settled one stays as it is."""
        agent = self.prove(seat)
        task = self.need_task(ref)
        self.act(agent)
        if task.settled is None:
            self.settle(task, "cancelled", error=reason, tell=True)
        assert task.settled is not None
        return task.settled

    def watch(self, seat: Seat, ids: Sequence[str], wake: str) -> list[Settled]:
        """Those already settled; of the others each wakes the parent, or the last of them."""
        self.prove(seat)
        tasks = [self.need_task(ref) for ref in dict.fromkeys(ids)]
        group = {task.id for task in tasks if task.open}
        for task in tasks:
            if task.open:
                self.unwatch(task)
                task.watch = "each" if wake == "each" else group
        return [task.settled for task in tasks if task.settled is not None]

    # ---------------------------------------------------------------- messages and requests

    def message(
        self,
        seat: Seat,
        ref: str,
        to: str,
        body: str,
        *,
        task: str | None = None,
        expects: bool = False,
        within: int | None = None,
        steer: bool = False,
    ) -> bool:
        """Whether it is a repeat. A request on a task has it wait."""
        agent = self.prove(seat)
        content = (to, body, task, expects, within, steer)
        if ref in self.mail:
            refuse(duplicate_conflict=self.mail[ref].content != content)
            return True
        subject = self.tasks.get(task or "")
        mine = subject is not None and (subject.agent, subject.generation) == (
            agent.name,
            agent.generation,
        )
        refuse(
            unknown_task=task is not None and subject is None,
            forbidden=subject is not None and agent.name != "parent" and not mine,
            wrong_state=expects and subject is not None and not subject.open,
            invalid_input=expects and to == agent.name,
            **self.reachable(to),
        )
        self.act(agent)
        mail = Mail(ref, "message", agent.name, to, True, steer=steer, task=task, body=body)
        mail.content, mail.sender_generation = content, agent.generation
        if expects:
            wait = self.settings.reply_timeout if within is None else within
            if wait == 0 and task is None:
                wait = self.settings.task_deadline
            mail.kind, mail.request = (
                "request",
                Request(self.now, self.now + wait if wait else None),
            )
        self.send(mail)
        if expects and subject is not None and subject.state != "waiting":
            subject.state, subject.episode, subject.reminded = "waiting", subject.episode + 1, False
        return False

    def reply(self, seat: Seat, ref: str, to: str, body: str) -> tuple[str, str]:
        """`sent`, `late` or `duplicate`, and the id of the answer that stands."""
        agent = self.prove(seat)
        if ref in self.mail:
            refuse(duplicate_conflict=self.mail[ref].content != (to, body))
            return "duplicate", ref
        refuse(unknown_message=to not in self.mail)
        asked = self.mail[to]
        request = asked.request
        may = (agent.name, agent.generation) == (asked.recipient, asked.meant_for)
        if request is not None:
            may = may or agent.name in ("parent", *request.was)
        refuse(
            forbidden=agent.name == asked.sender or not may,
            wrong_state=asked.kind not in ("request", "message", "reply"),
        )
        if request is not None and request.reply is not None:
            if request.answer != body:
                self.act(agent)
            return "duplicate", request.reply
        asker = self.agents.get(asked.sender)
        refuse(
            unknown_agent=asker is None,
            agent_closed=asker is not None
            and (not asker.open or asker.generation != asked.sender_generation),
        )
        self.act(agent)
        late = request is not None and request.state != "open"
        wakes = True
        if request is not None:
            request.reply, request.answer = ref, body
            if late:
                task = self.tasks.get(asked.task or "")
                wakes = request.state != "cancelled" and (
                    asked.task is None or (task is not None and task.open)
                )
                self.withdraw(asked)
            else:
                self.close_request(asked, "answered")
        mail = Mail(ref, "reply", agent.name, asked.sender, wakes, task=asked.task, body=body)
        mail.content, mail.sender_generation = (to, body), agent.generation
        mail.reply_to, mail.late = to, late
        if request is not None:
            self.answered(asked, mail)
        else:
            self.send(mail)
        return ("late" if late else "sent"), ref

    def remind(self, seat: Seat, made: str, ref: str) -> None:
        """A waking message to whoever the request waits on."""
        self.prove(seat)
        mail = self.need_open(ref)
        self.act(self.agents["parent"])
        nudge = Mail(made, "message", "parent", mail.recipient, True, task=mail.task)
        nudge.reply_to, nudge.sender_generation = ref, 1
        self.send(nudge)

    def reroute(self, seat: Seat, ref: str, to: str) -> None:
        """The same request to somebody else; the first copy is taken back."""
        self.prove(seat)
        mail = self.need_open(ref)
        if mail.recipient == to:
            return
        circle = self.attended(mail) and self.circle(mail.sender, to)
        refuse(invalid_input=mail.sender == to, loop_limit=circle, **self.reachable(to))
        self.act(self.agents["parent"])
        self.unlist(mail)
        assert mail.request is not None
        mail.request.was.append(mail.recipient)
        if mail.request.ask is not None:
            mail.request.ask.rerouted_at = self.now
        mail.recipient, mail.attempts, mail.by = to, 0, None
        self.send(mail)

    def cancel_request(self, seat: Seat, ref: str) -> None:
        """Given up, by its asker or the parent; its task runs again."""
        agent = self.prove(seat)
        refuse(unknown_message=ref not in self.mail)
        mail = self.mail[ref]
        mine = (mail.sender, mail.sender_generation) == (agent.name, agent.generation)
        again = mail.request is not None and mail.request.state == "cancelled"
        refuse(
            forbidden=mail.request is not None and agent.name != "parent" and not mine,
            wrong_state=mail.request is None or (mail.request.state != "open" and not again),
        )
        if not again:
            self.act(agent)
            self.close_request(mail, "cancelled", tell=not mine)

    def progress(self, seat: Seat) -> None:
        """Says how far it is, which moves nothing and is a sign of work."""
        self.act(self.prove(seat))
