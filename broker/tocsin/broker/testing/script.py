"""Agents that follow a script, and a driver that runs them until nothing is left to do."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Protocol

from tocsin.broker._sync.agent import Agent
from tocsin.broker._sync.turn import Turn

Step = Callable[[Any, Turn], None]
"""What a scripted agent does in one turn: called with the agent and the turn."""


class Ticking(Protocol):
    """A scheduler: `tocsin.scheduler.Scheduler`."""

    def tick(self) -> dict[str, int]:
        """Runs every duty once."""


class ScriptedAgent:
    """An agent that does one step a turn; when its steps are used up it only acks.

    A step that raises gives the turn's mail back, as an agent that crashed in its handler would.
    """

    def __init__(self, agent: Agent, steps: Iterable[Step] = ()) -> None:
        self.agent = agent
        self.turns: list[Turn] = []
        """The turns it has had, for the test to look at."""
        self._steps = list(steps)

    def then(self, step: Step) -> ScriptedAgent:
        """Adds a step for the next turn without one."""
        self._steps.append(step)
        return self

    def take_turn(self) -> bool:
        """Takes one turn if there is waking mail; whether there was."""
        turn = self.agent.next_turn(timeout=0)
        if turn is None:
            return False
        self.turns.append(turn)
        with turn:
            if self._steps:
                self._steps.pop(0)(self.agent, turn)
        return True


def run_until_idle(
    *agents: ScriptedAgent, scheduler: Ticking | None = None, most_rounds: int = 1_000
) -> int:
    """Lets the agents take turns, and the scheduler tick, until nothing moves; turns taken.

    Raises `AssertionError` if something still moves after `most_rounds`.
    """
    taken = 0
    for _ in range(most_rounds):
        fired = scheduler.tick() if scheduler is not None else {}
        moved = sum(agent.take_turn() for agent in agents)
        taken += moved
        if not moved and not fired:
            return taken
    raise AssertionError(f"the fleet is not idle after {most_rounds} rounds and {taken} turns")
