"""What a session is told at its moments: mail that came meanwhile, and that it is not done yet.

Mail that does not wake, and what is to steer a running turn, is handed over as it is, once, and
again after a while unless it is acked. Of mail that wakes a session is only told that it is there:
it is shown by the tool that reads it, and only that proves that somebody woke.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from tocsin.broker import Child, Delivery, Envelope, Parent, TaskState
from tocsin.broker.envelopes import Waiting
from tocsin.broker.framing import RULE, framed, introduction, relation
from tocsin.workers.hosts.doorbell import IDLE, MAIL, TASK, WAKING, WORKING, Handed, SessionFiles
from tocsin.workers.hosts.events import Event, HookedHost, Moment

Known = dict[str, dict[str, float]]
"""What was handed over, by message; what is known of each, `Handed.open` says."""

AGAIN = 600.0
"""Seconds after which mail that is not acked is handed over again."""

CONTINUATIONS = 3
"""How often in a row a turn is continued, and how often for one message."""

LONG_BODY = 2_000
"""Characters of a body that is too long to be handed over: where to read it is said instead."""

_LONGEST = 8_500  # of a whole text; hosts put what is longer than 10,000 into a file
_MOST = 8  # messages at once

_READ = "Read your mail with the tool inbox, or `tocsin inbox`; ack what you have dealt with."

ASK_OR_DONE = (
    "Tocsin: your task {task} is still open, and you wait for nothing. The end of your turn is not "
    "its end. If it is finished, say so with done (the tool, or `tocsin done`). If you cannot go "
    "on without an answer, ask for it with ask or message. Else go on with it."
)


def due(waiting: Iterable[Waiting], known: Known, now: float) -> list[Waiting]:
    """Quiet and steer mail that is to be handed over now.

    What somebody else has shown counts as handed over, and is noted in `known` as that.
    """
    found = []
    for each in waiting:
        if each.wakes and each.delivery != Delivery.STEER:
            continue
        before = known.get(each.message_id)
        if before is None and each.shown_at is not None:
            known[each.message_id] = {"at": now}
        elif before is None or now - before.get("at", 0.0) >= AGAIN:
            found.append(each)
    return found


def waking(waiting: Iterable[Waiting]) -> list[Waiting]:
    """Mail that wakes and that nobody has been shown."""
    return [each for each in waiting if each.wakes and each.shown_at is None]


def open_task(agent: Parent | Child) -> str | None:
    """A task that the agent is at work on, and that waits for nobody."""
    if not isinstance(agent, Child):
        return None
    running = [task.id for task in agent.tasks() if task.state is TaskState.RUNNING]
    return running[0] if running else None


def ring(files: SessionFiles, waiting: Sequence[Waiting], known: Known, task: str | None) -> None:
    """Puts up the flags of what is there, and down those of what is not."""
    files.flag(MAIL, bool(due(waiting, known, time.time())))
    files.flag(WAKING, bool(waking(waiting)))
    files.flag(TASK, task is not None)


def blind(files: SessionFiles) -> None:
    """Puts all flags down: nobody knows what is there."""
    for flag in (MAIL, WAKING, TASK):
        files.flag(flag, False)


def pointers(agent: Parent | Child, mail: Sequence[Waiting]) -> str:
    """That mail is there, in our words alone: nobody's text is in it."""
    count = "a message waits" if len(mail) == 1 else f"{len(mail)} messages wait"
    each = [
        f"{one.kind} {one.message_id} from {_name(one.sender)} "
        f"({relation(one.sender, agent.agent)})"
        for one in mail[:_MOST]
    ]
    more = "" if len(mail) <= _MOST else f"; and {len(mail) - _MOST} more"
    return f"Tocsin: {count} for you ({agent}): {'; '.join(each)}{more}. {_READ}"


def _name(sender: str) -> str:
    return "Tocsin" if sender.startswith("@") else sender


def text_of(mail: Sequence[Envelope]) -> str:
    """Mail for the model to read: quoted, or where to read it."""
    parts, left = [RULE], _LONGEST - len(RULE)
    for envelope in mail:
        part = framed(envelope)
        if len(envelope.body) > LONG_BODY or len(part) > left // 2:
            part = (
                f"{introduction(envelope)}\n{len(envelope.body)} characters; read them with "
                f"inbox(message={envelope.message_id}), or `tocsin inbox`."
            )
        parts.append(part)
        left -= len(part) + 2
    return "Mail for you by Tocsin. " + "\n\n".join(parts)


def hand_over(agent: Parent | Child, mail: Sequence[Waiting], known: Known) -> list[Envelope]:
    """Shows mail, and notes that it was."""
    if not mail:
        return []
    shown = list(agent.inbox(messages=[each.message_id for each in mail[:_MOST]]))
    now = time.time()
    for envelope in shown:
        known.setdefault(envelope.message_id, {})["at"] = now
    return shown


class Answering:
    """Answers the events of one session."""

    def __init__(
        self, host: HookedHost, agent: Parent | Child, files: SessionFiles, handed: Handed
    ) -> None:
        self._host = host
        self._agent = agent
        self._files = files
        self._handed = handed

    def answer(self, event: Event, *, first: str = "") -> Mapping[str, Any] | None:
        """What the host is told; `first` is said before all else."""
        waiting = self._agent.look()
        task = open_task(self._agent)
        with self._handed.open() as known:
            if event.moment is Moment.STOP:
                reason = self._at_stop(event, waiting, known, task)
                said = self._host.go_on(reason) if reason else None
                self._files.say(WORKING if reason else IDLE)
            else:
                texts = [first] if first else []
                if event.moment in (Moment.START, Moment.PROMPT):
                    texts += self._told(waiting, known)
                mail = hand_over(self._agent, due(waiting, known, time.time()), known)
                texts += [text_of(mail)] if mail else []
                shown = {each.message_id for each in mail}
                waiting = [each for each in waiting if each.message_id not in shown]
                said = self._host.context(event.moment, "\n\n".join(texts)) if texts else None
            ring(self._files, waiting, known, task)
        return said

    def _told(self, waiting: Sequence[Waiting], known: Known) -> list[str]:
        """At a turn's start: that there is mail which could have started it."""
        now = time.time()
        fresh = [
            each
            for each in waking(waiting)
            if each.delivery != Delivery.STEER
            and now - known.get(each.message_id, {}).get("told", 0.0) >= AGAIN
        ]
        for each in fresh:
            known.setdefault(each.message_id, {"at": now})["told"] = now
        return [pointers(self._agent, fresh)] if fresh else []

    def _at_stop(
        self, event: Event, waiting: Sequence[Waiting], known: Known, task: str | None
    ) -> str | None:
        turn = self._files.turn
        active = turn.get("continued", 0) > 0 if event.continued is None else event.continued
        if not active:
            turn = {}
        if turn.get("continued", 0) >= CONTINUATIONS:
            return None
        reason = None
        mail = [
            each
            for each in waking(waiting)
            if known.get(each.message_id, {}).get("stops", 0) < CONTINUATIONS
        ]
        if mail:
            reason = pointers(self._agent, mail)
            for each in mail:
                facts = known.setdefault(each.message_id, {"at": time.time()})
                facts["stops"] = facts.get("stops", 0) + 1
        elif task and not active and not event.background:
            reason = ASK_OR_DONE.format(task=task)
        if reason:
            turn["continued"] = turn.get("continued", 0) + 1
        self._files.keep_turn(turn)
        return reason
