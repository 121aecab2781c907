"""Asks on both sides: calls that stay on the line, each step of them done to broker and model."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

from tests.stateful.comparing import compare_outcome
from tests.stateful.records import Outcome
from tests.stateful.twins import Player, Twins, span
from tocsin.broker import asks
from tocsin.broker.probing import encode_totals

SOURCES = ("log", "out")
"""What probes count."""


class Question(NamedTuple):
    """What is asked under one id, whichever call asks it."""

    id: str
    to: str
    text: str
    task: str | None
    asker: Player


@dataclass
class Line:
    """A call that waits for what comes of an ask; `sources` are what its probe looks at."""

    player: Player
    ask: str
    call: str
    sources: tuple[str, ...] | None = None
    got: str = "pending"
    """What it was last told; `confirmed` once it has said that it has the answer."""

    def __repr__(self) -> str:
        return f"{self.player} on {self.ask} by {self.call}"


class Lines:
    """The waiting calls of a herd, and what its probes see."""

    def __init__(self, twins: Twins) -> None:
        self.twins = twins
        self.waiting: list[Line] = []
        self.asked: list[Question] = []
        self.work = dict.fromkeys(SOURCES, 0)

    def question(self, asker: Player, to: str, task: str | None) -> Question:
        """A question that no agent was asked before."""
        key = self.twins.key()
        asked = Question(asker.real.caller.new_id("msg", "ask", key), to, f"ask {key}", task, asker)
        self.asked.append(asked)
        return asked

    def ask(
        self,
        player: Player,
        asked: Question,
        window: int | None,
        ceiling: int | None,
        sources: tuple[str, ...] | None,
    ) -> None:
        """Asks it, for the first time or again, by a call of its own."""
        line = Line(player, asked.id, f"call_{self.twins.key()}", sources)
        content = asked.to, asked.text

        def real() -> asks.Outcome:
            opening = asks.open_ask(
                player.real.caller,
                *content,
                request=asked.id,
                call=line.call,
                task=asked.task,
                window=span(window),
                ceiling=span(ceiling),
                totals=self.counted_by(line),
                thread=None,
                data=None,
            )
            return self.twins.broker.run(opening)

        def model() -> Outcome:
            how: Any = {"task": asked.task, "window": window, "ceiling": ceiling}
            totals = self.totals(line)
            return self.twins.model.ask(
                player.seat, asked.id, *content, call=line.call, totals=totals, **how
            )

        def call() -> None:
            limits = f"task={asked.task} {window=} {ceiling=} {sources=}"
            self.wait(line, f"{line} asks {asked.to}, {limits}", real, model)

        self.twins.repeatable(call)

    def wait(
        self,
        line: Line,
        what: str,
        real: Callable[[], asks.Outcome],
        model: Callable[[], Outcome],
    ) -> None:
        """What a call on the line is told."""

        def same(found: asks.Outcome, expected: Outcome) -> bool:
            probes = line.sources is not None
            compare_outcome(self.twins.model, line.ask, found, expected, probes=probes)
            line.got = expected.how
            if line not in self.waiting:
                self.waiting.append(line)
            return True

        self.twins.both(what, real, model, same)

    def totals(self, line: Line) -> dict[str, int] | None:
        """What the probe of a call counts now."""
        if line.sources is None:
            return None
        return {source: self.work[source] for source in line.sources}

    def counted_by(self, line: Line) -> str:
        """The same as the broker's calls take it."""
        totals = self.totals(line)
        return "" if totals is None else encode_totals("ask", totals)

    def ask_wait(self, player: Player, ref: str, sources: tuple[str, ...] | None) -> None:
        """Comes back to an ask, by another call."""
        self.look_at(Line(player, ref, f"call_{self.twins.key()}", sources))

    def look_at(self, line: Line) -> None:
        """A call looks what has come of its ask."""
        caller, seat, run = line.player.real.caller, line.player.seat, self.twins.broker.run
        self.wait(
            line,
            f"{line} looks",
            lambda: run(asks.look(caller, line.ask, line.call, self.counted_by(line))),
            lambda: self.twins.model.look(seat, line.ask, line.call, self.totals(line)),
        )

    def has_news(self, line: Line) -> bool:
        """Whether its ask came to something, which a call hears when it looks."""
        mail = self.twins.model.mail.get(line.ask)
        return mail is not None and self.twins.model.outcome(mail).how != "pending"

    def confirm(self, line: Line) -> None:
        """A call says that it has the answer."""
        caller, seat = line.player.real.caller, line.player.seat

        def same(elsewhere: str | None, had: bool) -> bool:
            line.got = "confirmed"
            return (elsewhere is None) == had

        self.twins.both(
            f"{line} confirms",
            lambda: self.twins.broker.run(asks.confirm(caller, line.ask, line.call)),
            lambda: self.twins.model.confirm(seat, line.ask, line.call),
            same,
        )

    def hang_up(self, line: Line, *, told: bool) -> None:
        """A call waits no more."""
        caller, seat = line.player.real.caller, line.player.seat
        self.twins.both(
            f"{line} hangs up, {told=}",
            lambda: self.twins.broker.run(asks.leave(caller, line.ask, line.call, told=told)),
            lambda: self.twins.model.hang_up(seat, line.ask, line.call, told=told),
        )
        self.forget(line)

    def forget(self, line: Line) -> None:
        """The call is over."""
        self.waiting = [other for other in self.waiting if other is not line]

    def publish(self, player: Player) -> None:
        """A probe publishes what it counted of an agent's work."""
        totals = dict(self.work)
        self.twins.both(
            f"{player} publishes {totals}",
            lambda: player.real.probe(totals),
            lambda: self.twins.model.publish(player.seat, totals),
            lambda found, expected: found == expected,
        )

    def hang_up_all(self) -> None:
        """Nobody waits any more."""
        for line in list(self.waiting):
            self.hang_up(line, told=False)
