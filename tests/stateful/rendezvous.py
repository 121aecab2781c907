"""The operations of asks in the model: opening, looking, confirming, hanging up, publishing."""

from __future__ import annotations

from collections.abc import Mapping

from tests.stateful.records import Agent, Ask, Mail, Outcome, Refused, Request, Seat, refuse
from tests.stateful.work import Work


def grown(last: dict[str, int], totals: Mapping[str, int]) -> bool:
    """Notes the totals of a probe; whether any source grew since its last total."""
    grew = any(total > last.get(source, total) for source, total in totals.items())
    last.update(totals)
    return grew


class Rendezvous(Work):
    """An asker stays on the line: each step of its call, and what it is told."""

    def ask(
        self,
        seat: Seat,
        ref: str,
        to: str,
        body: str,
        *,
        call: str,
        task: str | None,
        window: int | None,
        ceiling: int | None,
        totals: dict[str, int] | None,
    ) -> Outcome:
        """Opens an ask, joins it, opens it again after a `no_reply`, or tells what came of it."""
        agent = self.prove(seat)
        content, known = (to, body, task), self.mail.get(ref)
        refuse(duplicate_conflict=known is not None and known.content != content)
        if known is not None and known.request is not None and known.request.ask is not None:
            again = known.request.state in ("no_reply", "dead") and known.request.reply is None
            if not again:
                self.refuse_circle(known, known.request.ask, call)
                return self._attend(seat, known, known.request.ask, call, totals)
            to = known.recipient
        subject = self.tasks.get(task or "")
        mine = subject is not None and (subject.agent, subject.generation) == (
            agent.name,
            agent.generation,
        )
        refuse(
            unknown_task=task is not None and subject is None,
            forbidden=subject is not None and agent.name != "parent" and not mine,
            wrong_state=subject is not None and not subject.open,
            invalid_input=to == agent.name,
            loop_limit=self.circle(agent.name, to),
            **self.reachable(to),
        )
        self.act(agent)
        ceiling = ceiling or self.settings.ask_ceiling
        window = min(window or self.settings.ask_window, ceiling)
        ask = Ask(window, self.now + ceiling, totals is not None)
        if known is None:
            mail = Mail(ref, "request", agent.name, to, True, task=task, body=body)
            mail.content, mail.sender_generation = content, agent.generation
            mail.request = Request(self.now, None, ask=ask)
            self.send(mail)
        else:
            mail = known
            self._open_again(mail, ask)
        if subject is not None and subject.state != "waiting":
            subject.state, subject.episode, subject.reminded = "waiting", subject.episode + 1, False
        return self._attend(seat, mail, ask, call, totals)

    def _open_again(self, mail: Mail, ask: Ask) -> None:
        """A new window and ceiling for the same question; who is done with it gets it anew."""
        request = mail.request
        assert request is not None
        assert request.ask is not None
        self.withdraw(self.mail.get(self.news_of(mail)))
        ask.round, ask.calls = request.ask.round + 1, request.ask.calls
        request.state, request.opened_at, request.ask = "open", self.now, ask
        mail.forget_at = None
        if mail.state in ("handled", "withdrawn", "dead"):
            mail.attempts = 0
            self.deliver(mail)

    def refuse_circle(self, mail: Mail, ask: Ask, call: str) -> None:
        """Nor may a call that comes to an ask which is open already close a circle."""
        assert mail.request is not None
        comes = mail.request.state == "open" and call not in ask.calls
        refuse(loop_limit=comes and self.circle(mail.sender, mail.recipient))

    def _attend(
        self, seat: Seat, mail: Mail, ask: Ask, call: str, totals: Mapping[str, int] | None
    ) -> Outcome:
        """One more call on the line, or the same once more."""
        self.join(seat)
        ask.calls[call] = seat.instance
        assert mail.request is not None
        if mail.request.state == "open" and totals is not None:
            self.note(ask, seat.instance, totals)
        return self.outcome(mail)

    def note(self, ask: Ask, instance: str, totals: Mapping[str, int]) -> None:
        """What a probe counted, from where this process sees it."""
        if grown(ask.totals.setdefault(instance, {}), totals):
            ask.grew.append(self.now)

    def own_ask(self, agent: Agent, ref: str) -> tuple[Mail, Ask]:
        """An ask of the caller's own."""
        refuse(unknown_message=ref not in self.mail)
        mail = self.mail[ref]
        ask = mail.request.ask if mail.request is not None else None
        mine = (mail.sender, mail.sender_generation) == (agent.name, agent.generation)
        refuse(wrong_state=ask is None, forbidden=not mine)
        assert ask is not None
        return mail, ask

    def look(self, seat: Seat, ref: str, call: str, totals: dict[str, int] | None) -> Outcome:
        """Waits on, and sees to the limits of the ask itself where they are reached."""
        mail, ask = self.own_ask(self.prove(seat), ref)
        self.refuse_circle(mail, ask, call)
        self.join(seat)
        assert mail.request is not None
        if mail.request.state != "open":
            return self.outcome(mail)
        ask.calls[call] = seat.instance
        if totals is not None:
            self.note(ask, seat.instance, totals)
        silent = self.silent_at(mail, probes=totals is not None)
        if silent is not None and silent <= self.now:
            self.run_out(mail, "window")
        elif ask.ceiling_at <= self.now:
            self.run_out(mail, "ceiling")
        return self.outcome(mail)

    def confirm(self, seat: Seat, ref: str, call: str) -> bool:
        """The call has its answer, which then does not come as mail; False: it came as mail."""
        mail, ask = self.own_ask(self.prove(seat), ref)
        waited = ask.calls.pop(call, None) is not None
        assert mail.request is not None
        reply = self.mail.get(mail.request.reply or "")
        answered = mail.request.reply is not None
        as_mail = reply is None or reply.state in ("taken", "handled")
        if answered and as_mail and not ask.confirmed:
            return False
        if reply is not None and not ask.confirmed:
            self.end(reply, "handled")
            ask.confirmed.add(call)
        elif reply is not None and waited:
            ask.confirmed.add(call)
        ask.untold = False
        return True

    def hang_up(self, seat: Seat, ref: str, call: str, *, told: bool) -> None:
        """The call waits no more: it was told how the ask ended, or not; it may be cut off."""
        agent = self.agents.get(seat.agent)
        if agent is None or agent.generation != seat.generation:
            raise Refused("agent_closed", "unauthorized", "unknown_agent")
        mail, ask = self.own_ask(agent, ref)
        ask.calls.pop(call, None)
        if not agent.open:
            return
        if told:
            ask.untold = False
            self.withdraw(self.mail.get(self.news_of(mail)))
        assert mail.request is not None
        reply = self.mail.get(mail.request.reply or "")
        if reply is not None and call in ask.confirmed:
            ask.confirmed.discard(call)
            if not ask.confirmed:
                reply.state, reply.forget_at = "held", None
        self.hung_up(mail)

    def publish(self, seat: Seat, totals: dict[str, int]) -> bool:
        """What a probe of an agent's work counted: only growth is a sign of work."""
        agent = self.prove(seat)
        grew = grown(agent.totals.setdefault(seat.instance, {}), totals)
        if grew:
            self.act(agent)
        return grew
