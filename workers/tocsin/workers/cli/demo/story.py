"""The three agents of the demo: what each does with its mail. An example to copy from.

Each runs in the folder that is to be read, and knows the others by name only. A child does its work
turn by turn (`TURNS`): either in a process of its own, which waits for the next one (`scout`,
`planner`), or as a program that a worker starts for each (`turn.py`). Where these read files and
compute an answer, yours ask a model. `pace` is the demo's fast clock; `tell(what, text, ...)`
prints what an agent does, for the timeline.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from pathlib import Path
from typing import Any, Protocol

from tocsin.broker import AsyncChild, AsyncParent, Envelope, Kind, Outcome, Status
from tocsin.workers.cli.demo.pace import GLANCE, Pace
from tocsin.workers.cli.demo.reading import Reading, measure, where_to_start

HERD = "release-42"

Notes = dict[str, Reading]
"""What an agent remembers of each task."""

READ = "Read the code here and tell a newcomer where to start."
REWRITE = "Read the code here and rewrite its longest file, if its owner agrees."


class Tell(Protocol):
    """Prints what an agent does."""

    def __call__(self, what: str, text: str, task: str | None = None, **facts: Any) -> None:
        """`what` in a word, `text` for people, `facts` for whoever checks the story."""


async def parent(me: AsyncParent, pace: Pace, tell: Tell) -> None:
    """Delegates one task after the other, and sleeps until something wakes it."""
    async with asyncio.TaskGroup() as group:
        glancing = group.create_task(_glance(me, pace, tell))
        for description in (READ, REWRITE):
            task = await me.delegate("scout", description, watch=True)
            tell("delegates", f'delegates to scout: "{description}"', task.id)
            turn = await me.next_turn()  # no reminder ends this, however long the task waits
            if turn is not None:
                async with turn:
                    for envelope in turn:
                        _woken(envelope, tell)
        glancing.cancel()


def _woken(envelope: Envelope, tell: Tell) -> None:
    settled = envelope.data
    text = f"is woken, by one settlement: scout's task is {settled['status']}"
    tell("is_woken", text, envelope.task_id, kind=envelope.kind, summary=settled["summary"])


async def _glance(me: AsyncParent, pace: Pace, tell: Tell) -> None:
    """Looks into the inbox now and then, as its person might. Looking takes nothing."""
    while True:
        for envelope in await me.inbox():
            if envelope.kind is Kind.REMINDER:
                who = envelope.data["recipient"]["agent"]
                text = f"looks into its inbox, unwoken, and finds a reminder: scout waits on {who}"
                tell("sees_reminder", text, envelope.task_id, question=envelope.data["question"])
                await me.ack(envelope)
        await pace.sleep(GLANCE)


async def scout(me: AsyncChild, pace: Pace, tell: Tell) -> None:
    """Reads the code, asks about it, ends its turn, and goes on when the answer wakes it."""
    notes: Notes = {}
    async for turn in me.turns():
        async with turn:
            await scout_turn(me, pace, tell, turn, notes)


async def scout_turn(
    me: AsyncChild, pace: Pace, tell: Tell, mail: Iterable[Envelope], notes: Notes
) -> None:
    """One turn of scout; `notes` are what a real agent has in its transcript."""
    await me.set_status(Status.WORKING)
    begun = None
    for envelope in mail:
        if envelope.kind is Kind.TASK:
            await _begin(me, pace, tell, envelope, notes)
            begun = envelope.task_id
        elif envelope.kind is Kind.REPLY:
            await _finish(me, tell, envelope, notes)
    await me.set_status(Status.IDLE)  # its process idles; its task is a matter of its own
    if begun:
        tell("idles", "ends its turn and idles; its task goes on waiting", begun)


async def _begin(me: AsyncChild, pace: Pace, tell: Tell, envelope: Envelope, notes: Notes) -> None:
    task = str(envelope.task_id)
    reading = await asyncio.to_thread(measure, Path.cwd())
    notes[task] = reading
    tell("reads", f"reads {Path.cwd().name}/: {reading}", task, reading=str(reading))
    subject = f"{reading.longest} is the longest, {reading.longest_lines:,} lines."
    if envelope.body == READ:
        question, within = f"{subject} Where should a newcomer start in it?", None
    else:
        question, within = f"{subject} It is yours: may I rewrite it?", pace.reply_within
    await me.message(
        "planner",
        question,
        task=task,  # this is what makes the task wait
        expects_reply=True,
        reply_within=within,
        data={"file": reading.longest},
    )
    tell("asks", f'asks planner: "{question}"', task, question=question)


async def _finish(me: AsyncChild, tell: Tell, reply: Envelope, notes: Notes) -> None:
    task = str(reply.task_id)
    tell("resumes", "is woken by the answer, and goes on", task)
    summary = f"{notes[task]}. In {notes[task].longest}, start {reply.body}."
    await me.done(task, Outcome.COMPLETED, summary=summary)
    tell("is_done", f'is done: "{summary}"', task)


async def planner(me: AsyncChild, pace: Pace, tell: Tell) -> None:
    """Answers what it is asked, turn after turn."""
    async for turn in me.turns():
        async with turn:
            await planner_turn(me, pace, tell, turn, {})


async def planner_turn(
    me: AsyncChild, pace: Pace, tell: Tell, mail: Iterable[Envelope], _notes: Notes
) -> None:
    """Answers what it can, late. What only a person could decide it leaves unanswered."""
    for question in mail:
        if question.kind is not Kind.REQUEST:
            continue
        if "may I" in question.body:
            tell("ignores", "takes the question, and never answers it", question.task_id)
            continue
        tell("is_busy", "takes the question; other work comes first", question.task_id)
        await pace.sleep_until(question.created_at + pace.answer_after)
        answer = where_to_start(Path.cwd() / question.data["file"])
        await me.reply(question, answer)
        tell("answers", f'answers, late: "{answer}"', question.task_id, answer=answer)


TURNS = {"scout": scout_turn, "planner": planner_turn}

ROLES: dict[str, Callable[[Any, Pace, Tell], Awaitable[None]]] = {
    "parent": parent,
    "scout": scout,
    "planner": planner,
}
