"""Asks in the model: who is on the line, what is kept for them, when a limit is reached and why."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tests.stateful.mailroom import Mailroom
from tests.stateful.records import Ask, Mail, Outcome, bare


class Asking(Mailroom):
    """The rendezvous of an ask: attended while a call waits whose process is there."""

    def __init__(self, now: int) -> None:
        super().__init__(now)
        self.tied: set[str] = set()
        """Mail that came at once when a process ended."""

    def open_requests(self, wanted: Callable[[Mail], bool]) -> list[Mail]:
        """The open requests among all mail, oldest first."""
        found = [
            (mail.request.opened_at, mail.id, mail)
            for mail in self.mail.values()
            if mail.request is not None and mail.request.state == "open" and wanted(mail)
        ]
        return [mail for _, _, mail in sorted(found)]

    def asks(self) -> list[tuple[Mail, Ask]]:
        """All requests whose askers stay, or stayed, on the line."""
        found = [(mail, mail.request.ask) for mail in self.mail.values() if mail.request]
        return [(mail, ask) for mail, ask in found if ask is not None]

    # ---------------------------------------------------------------- who waits

    def attended(self, mail: Mail) -> bool:
        """Whether somebody waits: a call that has not left, of a process that is there."""
        assert mail.request is not None
        ask, asker = mail.request.ask, self.agents.get(mail.sender)
        if ask is None or asker is None or asker.generation != mail.sender_generation:
            return False
        return any(instance in asker.instances for instance in ask.calls.values())

    def circle(self, asker: str, target: str) -> bool:
        """Whether the target waits on the line, through however many others, for the asker."""
        waits = {(mail.sender, mail.recipient) for mail in self.open_requests(self.attended)}
        found = {target}
        while more := {to for sender, to in waits if sender in found} - found:
            found |= more
        return asker in found

    def answered(self, asked: Mail, reply: Mail) -> None:
        """An answer is kept for whoever waits; where nobody does it is mail like any other."""
        assert asked.request is not None
        if asked.request.ask is None or not self.attended(asked):
            self.send(reply)
            return
        reply.state, reply.meant_for = "held", self.agents[asked.sender].generation
        self.mail[reply.id] = reply

    def tell(self, mail: Mail) -> None:
        """The news that a request ended without an answer: for who waits, or else as mail."""
        assert mail.request is not None
        ask = mail.request.ask
        if ask is not None and self.attended(mail):
            ask.untold = True
            return
        task = self.tasks.get(mail.task or "")
        works = task is not None and task.open if mail.task else self.works(mail.sender)
        news = (mail.request.state, ask.silence if ask else "", ask.limit if ask else "")
        self.notice(self.news_of(mail), mail.sender, wakes=works, task=mail.task, content=news)

    def news_of(self, mail: Mail) -> str:
        """The id of that notice; each time an ask is opened again it has another."""
        assert mail.request is not None
        ask = mail.request.ask
        again = f"_{ask.round}" if ask is not None and ask.round > 1 else ""
        return f"msg_closed_{bare(mail.id)}{again}"

    def hung_up(self, mail: Mail) -> None:
        """What was kept for those on the line becomes mail when nobody is there any more."""
        assert mail.request is not None
        ask, reply = mail.request.ask, self.mail.get(mail.request.reply or "")
        assert ask is not None
        if self.attended(mail):
            return
        untold, ask.untold = ask.untold, False
        if reply is not None and reply.state == "held":
            self.deliver(reply)
        elif untold:
            self.tell(mail)

    def asker_gone(self, name: str) -> None:
        """A process of an agent ended: what nobody waits for now becomes mail, in any order."""
        before = len(self.boxes[name])
        for mail, _ in self.asks():
            if mail.sender == name:
                self.hung_up(mail)
        self.tied |= {mail.id for mail in self.boxes[name][before:]}

    def in_the_order_of(self, name: str, ids: Sequence[str]) -> None:
        """The broker chose the order of mail that came at once: from now on it is that."""
        box, place = self.boxes[name], {ref: at for at, ref in enumerate(ids)}
        tied = [mail for mail in box if mail.id in self.tied.intersection(place)]
        self.tied -= {mail.id for mail in tied}
        chosen = {
            id(before): after
            for before, after in zip(
                tied, sorted(tied, key=lambda mail: place[mail.id]), strict=True
            )
        }
        box[:] = [chosen.get(id(mail), mail) for mail in box]

    # ---------------------------------------------------------------- silence and work

    def last_sign(self, mail: Mail) -> int:
        """When its target was last at work, or a probe saw it, since the ask began."""
        assert mail.request is not None
        assert mail.request.ask is not None
        began = mail.request.opened_at
        signs = self.agents[mail.recipient].acts + mail.request.ask.grew
        return max((at for at in signs if at >= began), default=began)

    def silent_at(self, mail: Mail, *, probes: bool) -> int | None:
        """When its window ends if nothing more is seen of its target; None: its ceiling is first.

        Who does not look with a probe leaves one that does, and is on the line, a grace.
        """
        assert mail.request is not None
        ask = mail.request.ask
        assert ask is not None
        ends = max(self.last_sign(mail), ask.rerouted_at) + ask.window
        if ends >= ask.ceiling_at:
            return None
        if ask.probing and not probes and self.attended(mail):
            ends += self.settings.grace
        return min(ends, ask.ceiling_at)

    def why_silent(self, mail: Mail) -> str:
        """The first of the reasons that is true."""
        if not self.agents[mail.recipient].live:
            return "away"
        if mail.state in ("accepted", "delayed"):
            return "unread"
        waits = self.open_requests(lambda other: other.sender == mail.recipient)
        return f"waiting_on {waits[0].recipient}" if waits else "read_but_silent"

    def outcome(self, mail: Mail) -> Outcome:
        """What a look at it tells."""
        request = mail.request
        assert request is not None
        assert request.ask is not None
        if request.reply is not None:
            return Outcome("answered", request.reply)
        if request.state == "open":
            return Outcome("pending")
        if request.state in ("no_reply", "ceiling_active"):
            return Outcome(request.state, "", request.ask.silence, request.ask.limit)
        closed = request.state == "agent_closed"
        return Outcome("agent_closed" if closed else "request_cancelled")
