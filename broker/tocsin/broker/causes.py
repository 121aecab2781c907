"""A chain of causes: its links, and the line that each of them reads as.

What hangs on what, `why` finds out. Words of agents stand in marks that they cannot close.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from typing import Annotated, Any, Literal

from pydantic import Field

from tocsin.broker.durations import show_duration
from tocsin.broker.envelopes import Kind, Model, WakeTry
from tocsin.broker.states import TaskState


class TaskLink(Model):
    """A task. `since`: when it came into its state; `queued`: it has no slot yet."""

    kind: Literal["task"] = "task"
    task: str
    agent: str
    state: TaskState
    queued: bool
    since: datetime
    description: str
    open_requests: tuple[str, ...]
    reason: str | None
    """Why it ended, or what its owner said at the end."""


class MessageLink(Model):
    """An envelope. `since`: when it came into its state, or what it asked for ended; `by`: the
    instance that holds or handled it."""

    kind: Literal["message"] = "message"
    message: str
    envelope: Kind | None
    """None for a dead letter that is no whole message."""
    sender: str
    recipient: str
    state: str
    since: datetime
    text: str
    request: str | None
    """What became of a request: open, answered, and so on."""
    answered_by: str | None
    by: str | None
    holder_lives: bool
    reached: int | None
    """How many processes its last bell reached; None if none was rung, or none can know."""
    tries: tuple[WakeTry, ...]
    """By which other paths it was tried to wake its recipient."""
    attempts: int
    reason: str | None


class AgentLink(Model):
    """An agent, and whether a process of it runs; `away_since` None: none ever ran."""

    kind: Literal["agent"] = "agent"
    agent: str
    state: str
    present: bool
    away_since: datetime | None
    status: str | None
    active_at: datetime | None
    holds: tuple[str, ...]
    queued: int
    asks: tuple[str, ...]
    unread: int
    turn: str | None = None
    """Of one with a runner: none, due, launched or running."""
    turn_number: int = 0
    turn_since: datetime | None = None


class CycleLink(Model):
    """Agents that wait for one another, the first of them named again at the end."""

    kind: Literal["cycle"] = "cycle"
    agents: tuple[str, ...]


class TimerLink(Model):
    """What happens by itself next, unless something else does. `overdue`: no scheduler fired it."""

    kind: Literal["timer"] = "timer"
    timer: str
    """deadline, reply, ceiling, window, deliver, forward, turn, attend, lease or away."""
    of: str
    """The task, message or agent whose timer it is."""
    task: str | None
    at: datetime
    overdue: bool


Link = Annotated[
    TaskLink | MessageLink | AgentLink | CycleLink | TimerLink, Field(discriminator="kind")
]


class Step(Model):
    """Something to do about it, and the command for it where there is one."""

    what: str
    command: str | None = None


class Why(Model):
    """One chain of causes; as text, a line for each link and one for what to do.

    `cut`: there was more than one look follows.
    """

    about: str
    at: datetime
    links: tuple[Link, ...]
    todo: tuple[Step, ...]
    cut: bool

    def __str__(self) -> str:
        return "\n".join(_lines(self))


def _lasting(duration: timedelta) -> str:
    return show_duration(timedelta(seconds=duration // timedelta(seconds=1)))


def _ago(moment: datetime, now: datetime) -> str:
    return f"{_lasting(now - moment)} ago"


def _at(moment: datetime) -> str:
    return f"{moment:%Y-%m-%d %H:%M:%S} UTC"


def _briefly(text: str) -> str:
    """Words of an agent on one line, in marks that they cannot close."""
    line = " ".join(text.split()).replace('"', "'")
    return f'"{line}"' if len(line) <= 80 else f'"{line[:79]}…"'


def _task_link(task: TaskLink, now: datetime) -> str:
    name = f"{task.task} of {task.agent}, {_briefly(task.description)},"
    age = _lasting(now - task.since)
    if task.state.terminal:
        said = f": {_briefly(task.reason)}" if task.reason else ""
        return f"{name} is {task.state.replace('_', ' ')} since {_at(task.since)} ({age}){said}"
    if task.queued:
        return f"{name} waits {age} for a free slot of {task.agent}"
    if not task.open_requests:
        step = "waits to be taken" if task.state == "created" else "runs"
        return f"{name} {step} since {_at(task.since)} ({age})"
    more = len(task.open_requests) - 1
    others = f" and {more} more" if more else ""
    question = task.open_requests[0]
    return f"{name} waits since {_at(task.since)} ({age}) for an answer to {question}{others}"


_MAIL_STATES = {
    "queued": "waits with its task for a slot of {to}",
    "held": "is held for the call of {to} that waits for it",
    "delayed": "was given back, to come again later",
    "accepted": "is unread by {to}",
    "shown": "was shown to {to} {ago}",
    "taken": "was taken by {to} {ago}",
    "handled": "was handled by {to} {ago}",
    "withdrawn": "was taken back {ago}",
    "dead": "went to the dead letters {ago}",
    "outgoing": "waits in the outbox to be forwarded to {to}",
    "forwarded": "was forwarded to {to} {ago}",
    "refused": "was refused by the herd of {to} {ago}",
}


def _tried(each: WakeTry, now: datetime) -> str:
    came = "which nothing confirmed" if each.confirmed_at is None else "confirmed"
    return f", {each.path} tried {_ago(each.at, now)}, {came if each.ok else 'which failed'}"


def _message_link(mail: MessageLink, now: datetime) -> str:
    text = f" {_briefly(mail.text)}" if mail.text else ""
    to, ago = mail.recipient, _ago(mail.since, now)
    if mail.request in (None, "open", "dead"):
        said = _MAIL_STATES[mail.state].format(to=to, ago=ago)
    else:
        late = "" if mail.request == "answered" else ", and answered late"
        by = f"{late} by {mail.answered_by}" if mail.answered_by else ""
        said = f"ended {ago}: {mail.request.replace('_', ' ')}{by}"
    if mail.state == "accepted" and mail.reached == 0:
        said += ", and nobody heard its bell"
    if mail.state in ("accepted", "shown"):
        said += "".join(_tried(each, now) for each in mail.tries)
    if mail.state == "taken" and not mail.holder_lives:
        said += f", whose instance {mail.by} is gone"
    if mail.attempts:
        said += f", after {mail.attempts} failed attempt(s)"
    if mail.reason:
        said += f": {_briefly(mail.reason)}"
    if mail.envelope is None:
        return f"{mail.message}, what was in the inbox of {to} and is no message,{text} {said}"
    kind = mail.envelope.replace("_", " ")
    return f"{mail.message}, a {kind} from {mail.sender} to {to}{text}, {said}"


_TURNS = {
    "none": "has no turn due; mail that wakes makes one due",
    "due": "has turn {n} due since {at} ({age}), which has not started",
    "launched": "has turn {n} in its queue since {at} ({age}), which no worker has begun",
    "running": "runs turn {n} since {at} ({age})",
}


def _turn_of(agent: AgentLink, now: datetime) -> str:
    if agent.turn_since is None:
        return _TURNS["none"]
    return _TURNS[agent.turn or "none"].format(
        n=agent.turn_number, at=_at(agent.turn_since), age=_lasting(now - agent.turn_since)
    )


def _agent_link(agent: AgentLink, now: datetime) -> str:
    if agent.state != "open":
        return f"{agent.agent} is {agent.state}"
    if agent.turn is not None:
        facts = [_turn_of(agent, now)]
    elif agent.present:
        facts = ["is alive", agent.status or ""]
    elif agent.away_since:
        facts = [f"is away since {_at(agent.away_since)} ({_ago(agent.away_since, now)})"]
    else:
        facts = ["has never had a process"]
    facts.append(f"holds {', '.join(agent.holds)}" if agent.holds else "holds no task")
    facts.append(f"{agent.unread} unread" if agent.unread else "")
    if agent.active_at:
        facts.append(f"last at work {_ago(agent.active_at, now)}")
    if agent.asks:
        facts.append(f"itself waits for an answer to {', '.join(agent.asks)}")
    return f"{agent.agent} {', '.join(filter(None, facts))}"


def _cycle_link(cycle: CycleLink, now: datetime) -> str:
    return f"these agents wait for one another: {' -> '.join(cycle.agents)}"


_TIMERS = {
    "deadline": ("the deadline of {of}", "times it out"),
    "reply": ("the reply deadline of {of}", "blocks {task}"),
    "ceiling": ("the ceiling of {of}", "ends the ask"),
    "window": ("the window of {of}", "ends the ask unless its target is at work"),
    "deliver": ("the delay of {of}", "has it come again"),
    "forward": ("the time until {of} is forwarded", "has it tried"),
    "turn": ("the time of the next turn of {of}", "has it launched"),
    "attend": ("the time to fetch what {of} came to", "makes it mail"),
    "lease": ("the lease of {of}", "has its instances looked at: what a lost one held goes back"),
    "away": ("the patience with {of}", "tells the parent that it is away"),
}
"""What each timer is called, and what it does when it fires."""


def _timer_link(timer: TimerLink, now: datetime) -> str:
    name, does = (part.format(of=timer.of, task=timer.task) for part in _TIMERS[timer.timer])
    if timer.timer == "reply" and timer.task is None:
        does = "tells its asker"
    if timer.overdue:
        return f"{name} ended {_ago(timer.at, now)}, but no scheduler saw to it; it {does}"
    return f"{name} ends in {_lasting(timer.at - now)} and {does}"


_LINKS: Mapping[str, Callable[[Any, datetime], str]] = {
    "task": _task_link,
    "message": _message_link,
    "agent": _agent_link,
    "cycle": _cycle_link,
    "timer": _timer_link,
}


def _lines(chain: Why) -> list[str]:
    """A line for each link of a chain of causes; the last says what to do."""
    lines = [_LINKS[link.kind](link, chain.at) for link in chain.links]
    lines = [*lines[:1], *(f"<- {line}" for line in lines[1:])]
    if chain.cut:
        lines.append("<- and further, beyond what one look follows")
    steps = [f"{step.what}: `{step.command}`" if step.command else step.what for step in chain.todo]
    if not steps:
        last = chain.links[-1]
        waits = last.kind == "timer" or (last.kind == "agent" and last.state != "closed")
        steps = ["nothing to do but wait" if waits else "nothing waits any more"]
    return [*lines, f"-> {'; '.join(steps)}"]
