"""Why something waits, down to what it now hangs on. Operation -> `Call`; no I/O.

The script of `why` answers with facts: the task, message or agent that was named, what each of them
waits for in turn, and their timers. `_Chain` makes one chain of `causes` of them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any, NamedTuple

from tocsin.broker.caller import Caller
from tocsin.broker.causes import (
    AgentLink,
    CycleLink,
    Link,
    MessageLink,
    Step,
    TaskLink,
    TimerLink,
    Why,
)
from tocsin.broker.clock import from_ms
from tocsin.broker.envelopes import Envelope, Kind, Task
from tocsin.broker.errors import InvalidInput
from tocsin.broker.ids import PARENT
from tocsin.broker.records import pairs, read_tries
from tocsin.broker.scripts import Call
from tocsin.broker.states import TaskState
from tocsin.broker.validation import check_id, check_name

MOST = 60
"""How many tasks, messages and agents one look follows."""


class _Facts(NamedTuple):
    """A record of the answer, its timers, and what else the script says of its kind."""

    record: Mapping[str, str]
    due: Mapping[str, str]
    more: list[Any]


def _moment(record: Mapping[str, str], *fields: str) -> datetime:
    return from_ms(next(record[field] for field in fields if record.get(field)))


def _envelope_of(task: str) -> str:
    return f"msg_task_{task.partition('_')[2]}"


def _kind(text: str | None) -> Kind | None:
    return Kind(text) if text in set(Kind) else None


_LEADING = (Kind.REMINDER, Kind.TASK)
"""Envelopes that are about a task which goes on when they are read."""

_ENTERED = {
    "waiting": ("waiting_since", "created_at"),
    "running": ("started_at", "created_at"),
    "created": ("created_at",),
}
_REACHED = {
    "shown": ("shown_at",),
    "taken": ("taken_at",),
    "handled": ("there_at", "handled_at"),
    "withdrawn": ("ended_at",),
    "dead": ("there_at", "ended_at"),
    "forwarded": ("forwarded_at",),
    "refused": ("ended_at",),
}


class _Chain:
    """Follows the facts link by link, as `caller` may see them."""

    def __init__(self, caller: Caller, answer: list[Any]) -> None:
        self._caller = caller
        self.at = from_ms(answer[1])
        self.cut = bool(int(answer[2]))
        self.links: list[Link] = []
        self.todo: list[Step] = []
        self._facts = {
            (kind, name): _Facts(pairs(flat), pairs(due), more)
            for kind, name, flat, due, *more in answer[3:]
        }
        self._timers: list[TimerLink] = []
        self._waiting: list[str] = []
        """Agents that wait, each for the next."""
        self._open: tuple[str, Mapping[str, str]] | None = None
        """The last open request on the way: what all before it waits for."""
        self._mine: list[str] = []
        """Open requests on the way that the caller is to answer."""

    def follow(self) -> None:
        """Adds what was asked about and all that it hangs on, and what to do about that."""
        kind, name = next(iter(self._facts))
        step: Callable[[str], None] = getattr(self, f"_{kind}")
        step(name)
        for name in self._mine:
            self._may(self._caller.agent, ("answer", f"tocsin reply {name} TEXT"))
        if self._open:
            self._advise(*self._open)
        if self._timers:
            first = min(self._timers, key=lambda each: each.at)
            self.links.append(first)
            if first.overdue:
                self.todo.insert(0, Step(what="run a scheduler", command="tocsin scheduler"))

    def _advise(self, name: str, question: Mapping[str, str]) -> None:
        """What the caller can do about an open request."""
        me = self._caller.agent
        answer = ("answer", f"tocsin reply {name} TEXT")
        if me != question["to"]:
            remind, reroute = f"tocsin remind {name}", f"tocsin reroute {name} AGENT"
            self._may(PARENT, ("remind", remind), ("reroute", reroute), answer)
        if me in (question["sender"], PARENT):
            self._may(me, ("cancel", f"tocsin cancel-request {name}"))

    def _find(self, kind: str, name: str) -> _Facts | None:
        """The facts of the next link, each of which is followed once."""
        return self._facts.pop((kind, name), None)

    def _note(self, facts: _Facts, of: str, *timers: str, task: str | None = None) -> None:
        for timer in timers:
            if timer in facts.due:
                at = from_ms(facts.due[timer])
                self._timers.append(
                    TimerLink(timer=timer, of=of, task=task, at=at, overdue=at < self.at)
                )

    def _may(self, agent: str, *steps: tuple[str, str]) -> None:
        if self._caller.agent == agent:
            self.todo += [Step(what=what, command=command) for what, command in steps]

    # ---------------------------------------------------------------- tasks

    def _task(self, name: str) -> None:
        facts = self._find("task", name)
        if facts is None:
            return
        record, (questions, place) = facts.record, facts.more
        state, agent = TaskState(record["state"]), record["agent"]
        why = (record.get(field) for field in ("error", "override", "summary"))
        self.links.append(
            TaskLink(
                task=name,
                agent=agent,
                state=state,
                queued=place != "",
                since=_moment(record, *_ENTERED.get(state, ("settled_at",))),
                description=record["description"],
                open_requests=tuple(questions),
                reason=next(filter(None, why), None) if state.terminal else None,
            )
        )
        self._note(facts, name, "deadline", task=name)
        if state.terminal:
            if state is not TaskState.COMPLETED and self._is_open(agent):
                self._may(PARENT, ("do it again", f"tocsin task retry {name}"))
        elif place != "":
            self._behind(agent)
        elif questions:
            self._message(questions[0])
        elif state is TaskState.CREATED or self._given_back(name):
            self._message(_envelope_of(name))
        else:
            self._agent(agent)
            self._may(agent, ("end it when it is done", f"tocsin task done {name} --summary TEXT"))
            if not self._open:
                ask = f"tocsin message {agent} TEXT --steer"
                self._may(
                    PARENT, ("ask how far it is", ask), ("cancel", f"tocsin task cancel {name}")
                )

    def _is_open(self, agent: str) -> bool:
        facts = self._facts.get(("agent", agent))
        return facts is not None and facts.record["state"] == "open"

    def _given_back(self, task: str) -> bool:
        """Whether a task that was begun is to be taken anew."""
        facts = self._facts.get(("message", _envelope_of(task)))
        return facts is not None and facts.record["state"] in ("accepted", "delayed")

    def _behind(self, agent: str) -> None:
        """A queued task waits for the slot of another."""
        facts = self._facts.get(("agent", agent))
        holds = facts.more[1] if facts else []
        if holds:
            self._task(holds[0])
        else:
            self._agent(agent)

    # ---------------------------------------------------------------- mail

    def _message(self, name: str) -> None:
        facts = self._find("message", name)
        if facts is None:
            return
        record, tries = facts.record, read_tries(facts.record)
        state = record.get("there") or record["state"]
        entered, reason = _REACHED.get(state, ()), record.get("reason")
        over = record.get("request", "open") not in ("open", "dead")
        if over:
            entered, reason = ("closed_at",), record.get("silence")
        self.links.append(
            MessageLink(
                message=name,
                envelope=_kind(record.get("kind")),
                sender=record.get("sender", ""),
                recipient=record["to"],
                state=state,
                since=_moment(record, *entered, "accepted_at"),
                text=record.get("body", ""),
                request=record.get("request"),
                answered_by=record.get("answered_by"),
                by=record.get("by") or None,
                holder_lives=record.get("holder") == "alive",
                reached=next((each.reached for each in tries if each.path == "bell"), None),
                tries=tuple(each for each in tries if each.ok is not None),
                attempts=int(record["attempts"]),
                reason=reason or (state == "outgoing" and record.get("error")) or None,
            )
        )
        task = record.get("task") or None
        self._note(facts, name, *facts.due, task=task)
        if state == "dead" and "there" not in record:
            self._dead(name, record)
        elif record["kind"] in _LEADING and task:
            self._told(name, record, task)
        elif over:
            if record.get("reply"):
                self._message(record["reply"])
        elif record.get("request") == "open":
            self._question(name, record)
        elif state not in ("delayed", "held", "handled", "withdrawn"):
            self._agent(record["to"])
            self._in_hand(name, record)

    def _in_hand(self, name: str, record: Mapping[str, str]) -> None:
        """What its recipient does about mail that is there for it."""
        if record["state"] == "accepted":
            self._may(record["to"], ("read it", "tocsin inbox"))
        elif record["state"] in ("shown", "taken"):
            self._may(record["to"], ("say that it is handled", f"tocsin ack {name}"))

    def _told(self, name: str, record: Mapping[str, str], task: str) -> None:
        """A reminder, or the envelope of a task: what it is about goes on, read or not."""
        if record["kind"] == Kind.REMINDER or record["state"] in ("handled", "withdrawn"):
            self._in_hand(name, record)
            self._task(task)
        elif record["state"] == "queued":
            self._task(task)
        elif record["state"] != "delayed":
            self._agent(record["to"])
            self._in_hand(name, record)

    def _dead(self, name: str, record: Mapping[str, str]) -> None:
        if not record.get("obstacle"):
            self._may(PARENT, ("replay", f"tocsin dead replay {name}"))
        elif record.get("kind") == Kind.TASK and record.get("task"):
            self._task(record["task"])
        self._may(PARENT, ("drop", f"tocsin dead drop {name}"))

    def _question(self, name: str, record: Mapping[str, str]) -> None:
        """An open request: whoever asked waits for whoever is to answer."""
        self._open = name, record
        if record["to"] == self._caller.agent:
            self._mine.append(name)
        if not self._waiting:
            self._waiting.append(record["sender"])
        recipient = record["to"]
        if recipient in self._waiting:
            circle = self._waiting[self._waiting.index(recipient) :]
            self.links.append(CycleLink(agents=(*circle, recipient)))
        else:
            self._waiting.append(recipient)
            self._agent(recipient)

    # ---------------------------------------------------------------- agents

    def _agent(self, name: str) -> None:
        facts = self._find("agent", name)
        if facts is None:
            return
        record, (live, holds, queued, asking, unread) = facts.record, facts.more
        away = record.get("away_since") or record.get("closed_at")
        self.links.append(
            AgentLink(
                agent=name,
                state=record["state"],
                present=bool(live),
                away_since=from_ms(away) if away else None,
                status=record.get("status") or None,
                active_at=from_ms(record["active_at"]) if record.get("active_at") else None,
                holds=tuple(holds),
                queued=int(queued),
                asks=tuple(asking),
                unread=int(unread),
                turn=record.get("turn_state"),
                turn_number=int(record.get("turn", 0)),
                turn_since=from_ms(record["turn_since"]) if record.get("turn_since") else None,
            )
        )
        if record["state"] != "open":
            return
        turn = record.get("turn_state")
        if turn in ("due", "launched"):
            self._note(facts, name, "turn")
            if turn == "launched" or "turn" not in facts.due:
                self.todo.append(Step(what="run a worker", command="tocsin worker"))
        elif turn is None and not live:
            self._note(facts, name, "lease", "away")
            if name != self._caller.agent:
                self.todo.append(Step(what=f"start a process of {name}"))
        elif asking:
            self._message(asking[0])
        elif len(self.links) == 1 and holds:  # it was asked about
            self._task(holds[0])


def _named(about: object) -> tuple[str, str]:
    """What an id names, and of which kind it is."""
    if isinstance(about, Envelope):
        about = about.message_id
    elif isinstance(about, Task):
        about = about.id
    if not isinstance(about, str):
        raise InvalidInput("why", f"name a task, message or agent, not {type(about).__name__}")
    for prefix, kind in (("task", "task"), ("msg", "message"), ("inst", "instance")):
        if about.startswith(f"{prefix}_"):
            return kind, check_id("why", kind, about, prefix)
    return "agent", check_name("why", "agent", about)


def why(caller: Caller, about: object) -> Call[Why]:
    """What a task, message, reminder, agent, instance or the herd hangs on."""
    kind, name = _named(about)

    def read(answer: list[Any]) -> Why:
        chain = _Chain(caller, answer)
        chain.follow()
        return Why(
            about=name,
            at=chain.at,
            links=tuple(chain.links),
            todo=tuple(chain.todo),
            cut=chain.cut,
        )

    return caller.call("why", "why", read, kind=kind, id=name, limit=MOST)
