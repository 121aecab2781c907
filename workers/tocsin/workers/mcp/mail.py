"""Tools of mail, for parent and child: read it, write it, and see who there is."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Annotated, Any

from pydantic import Field

from tocsin.broker import AgentInfo, AsyncAgent, Delivery, Envelope, Sent, herds
from tocsin.broker.errors import UnknownMessage
from tocsin.broker.framing import RULE, framed, head, one_line
from tocsin.broker.inbox import MOST
from tocsin.broker.requests import check_message
from tocsin.workers.mcp.arguments import Key, MessageId, OwnTask, Target, Words, minutes
from tocsin.workers.mcp.excerpts import PIECES, PREVIEWS, check_offset, fewer, fitted, piece
from tocsin.workers.mcp.toolbox import Answer, Toolbox, ToolCall

box = Toolbox()

PAGE = 10
"""Messages on one page of `inbox`."""

_MOST_AGENTS = 50


@box.tool(repeats=True)
async def inbox(
    call: ToolCall,
    skip: Annotated[
        int, Field(description="How many of the first messages to leave out.", ge=0, le=900)
    ] = 0,
    message: Annotated[
        str | None,
        Field(description="Read this one message in full, 'msg_...', in pieces if it is long."),
    ] = None,
    offset: Annotated[
        int, Field(description="With message: the character of its text to read on from.", ge=0)
    ] = 0,
) -> Answer:
    """Read your mail: tasks, questions to you, answers, notices. Shows it without removing it, so
    you may call it as often as you like; name what you have dealt with to ack. Long texts are cut:
    read one in full with message=ID. Call it first when you start, and whenever you are told of
    mail.
    """
    agent = await call.agent()
    if message is not None:
        found = await _find(agent, check_message("inbox", message))
        check_offset("inbox", offset, found.body)
        return fitted(_piece(found, offset, most) for most in PIECES)
    mail, remaining = await _show(agent, skip)
    return fitted(_page(mail, remaining, skip, most) for most in PREVIEWS)


async def _show(agent: AsyncAgent, skip: int) -> tuple[list[Envelope], int]:
    """One page, and how much follows it. Nothing else counts as shown."""
    if not skip:
        shown = await agent.inbox(limit=PAGE)
        return list(shown), shown.remaining
    waiting = [each.message_id for each in await agent.look(limit=MOST)]
    page, following = waiting[skip : skip + PAGE], waiting[skip + PAGE :]
    return list(await agent.inbox(messages=page)) if page else [], len(following)


def _page(mail: Sequence[Envelope], remaining: int, skip: int, most: int) -> Answer:
    rows, texts = [], []
    for envelope in mail:
        cut = len(envelope.body) > most
        row = head(envelope) | {"body": envelope.body[:most]}
        rest = ""
        if cut:
            row |= {"cut": True, "characters": len(envelope.body)}
            rest = (
                f"Cut at {most} of {len(envelope.body)} characters; read all of it with "
                f"inbox(message={envelope.message_id})."
            )
        if envelope.data and len(json.dumps(envelope.data)) <= most:
            row["data"] = envelope.data
        rows.append(row)
        texts.append(framed(envelope, body=envelope.body[:most], rest=rest))
    following = skip + len(mail)
    data: dict[str, Any] = {"messages": rows, "remaining": remaining}
    if not mail:
        return Answer("No mail." if not skip else "No more mail.", data)
    more = ""
    if remaining:
        data["next_skip"] = following
        more = f" {remaining} more: ack these, or read on with inbox(skip={following})."
    count = f"{len(mail)} message{'s' if len(mail) > 1 else ''}.{more}"
    return Answer("\n\n".join([f"{count} {RULE}", *texts]), data)


def _piece(envelope: Envelope, offset: int, most: int) -> Answer:
    part = piece(envelope.body, offset, most)
    rest = ""
    if "next_offset" in part:
        rest = f"Goes on: inbox(message={envelope.message_id}, offset={part['next_offset']})."
    text = framed(envelope, body=part["body"], rest=rest)
    return Answer(f"{RULE}\n\n{text}", {"message": head(envelope) | part})


async def _find(agent: AsyncAgent, message: str) -> Envelope:
    """One message of the inbox. No other is shown by that."""
    for envelope in await agent.inbox(messages=[message]):
        return envelope
    raise UnknownMessage("inbox", f"{message} is not in your inbox; it may be acked already")


@box.tool(repeats=True)
async def ack(
    call: ToolCall,
    messages: Annotated[
        list[str],
        Field(description="Ids of messages that inbox has shown, 'msg_...'.", min_length=1),
    ],
) -> Answer:
    """Say that you have dealt with messages, so that inbox does not show them again. Acking a task
    or a question does not end it: end a task with done, answer a question with reply.
    """
    agent = await call.agent()
    await call.works()
    named = list(dict.fromkeys(messages))
    done = await agent.ack(*named)
    if done == len(named):
        count = "1 message" if done == 1 else f"{done} messages"
        return Answer(f"Acked {count}.", {"acked": named, "not_acked": []})
    states = {message: (await agent.receipt(message)).state for message in named}
    refused = {message: state for message, state in states.items() if state != "handled"}
    acked = [message for message in named if message not in refused]
    why = [{"message_id": message, "why": _unacked(state)} for message, state in refused.items()]
    lines = [f"{row['message_id']}: {row['why']}" for row in why]
    return Answer(
        "\n".join([f"Acked {len(acked)}. Not acked:", *lines]),
        {
            "acked": acked,
            "not_acked": why,
        },
    )


def _unacked(state: str) -> str:
    if state == "taken":
        return "another process of yours has it in hand"
    if state in ("accepted", "delayed", "queued"):
        return "you have not been shown it; read it with inbox first"
    return f"it is {state}, and needs no ack"


def sent(done: Sent, text: str) -> Answer:
    """What became of something that was sent."""
    if done.superseded:
        text = f"Not delivered: it had been answered already, by {done.message_id}"
    elif done.duplicate:
        text += " It had been sent before; nothing was sent twice"
    elif done.late:
        text += " The question had ended; it is delivered as late mail"
    return Answer(f"{text.rstrip('.')}.", done.model_dump(mode="json"))


@box.tool()
async def message(
    call: ToolCall,
    to: Target,
    body: Words,
    expects_reply: Annotated[
        bool,
        Field(description="It is a question whose answer will come as mail, while you go on."),
    ] = False,
    task: OwnTask = None,
    reply_within_minutes: Annotated[
        float | None,
        Field(description="With expects_reply: after this the task is blocked; 0: never.", ge=0),
    ] = None,
    steer: Annotated[
        bool, Field(description="Urgent: shown in the midst of a running turn, not after it.")
    ] = False,
    thread: Annotated[
        str | None, Field(description="A name for messages that go together.")
    ] = None,
    key: Key = None,
) -> Answer:
    """Write to another agent and go on at once. It is woken. If you need the answer before you can
    go on, use ask. To answer somebody, use reply. Your turn's text reaches nobody: only this does.
    """
    agent = await call.agent()
    done = await agent.message(
        to,
        body,
        task=task,
        expects_reply=expects_reply,
        reply_within=minutes(reply_within_minutes),
        delivery=Delivery.STEER if steer else Delivery.FOLLOW_UP,
        thread=thread,
        key=key,
    )
    what = "Asked; the answer will come as mail" if expects_reply else "Sent"
    return sent(done, f"{what}: {done.message_id} to {to}.")


@box.tool(repeats=True)
async def reply(call: ToolCall, message: MessageId, body: Words, key: Key = None) -> Answer:
    """Answer a question of your inbox, or write back to who sent a message. The first answer counts
    and lets whoever asked go on. A parent may answer any open question of its herd.
    """
    agent = await call.agent()
    done = await agent.reply(message, body, key=key)
    return sent(done, f"Replied to {message}: {done.message_id}.")


@box.tool(reads=True)
async def roster(
    call: ToolCall,
    skip: Annotated[int, Field(description="How many of the first agents to leave out.", ge=0)] = 0,
) -> Answer:
    """See who is in your herd: names, roles, whether a process of each runs, its open tasks, unread
    mail, last progress, and which questions wait for it. Use the names in message, ask and
    delegate. Of one that is unwakeable, mail waits until it looks by itself.
    """
    agent = await call.agent()
    await call.works()
    agents = (await agent.broker.run(herds.roster(agent.caller)))[skip:]
    counts = (count for count, _ in fewer(min(len(agents), _MOST_AGENTS)))
    return fitted(_listed(agent, agents, skip, count) for count in counts)


def _listed(agent: AsyncAgent, agents: Sequence[AgentInfo], skip: int, count: int) -> Answer:
    listed, remaining = agents[:count], len(agents) - count
    lines = [f"Herd {agent.herd}; you are {agent.agent}."]
    if any(each.role or each.label or each.progress for each in listed):
        lines.append(RULE)
    lines += [_line(each, agent.agent) for each in listed]
    data = {
        "herd": agent.herd,
        "you": agent.agent,
        "agents": [each.model_dump(mode="json", exclude_none=True) for each in listed],
        "remaining": remaining,
    }
    if remaining:
        data["next_skip"] = skip + count
        lines.append(f"{remaining} more: read on with roster(skip={skip + count}).")
    elif not listed and skip:
        lines.append("There are no more.")
    return Answer("\n".join(lines), data)


def _line(each: AgentInfo, me: str) -> str:
    words = [each.state] if each.state != "open" else []
    words.append("a process is running" if each.present else "no process is running")
    words += [] if each.wakeable else ["unwakeable"]
    words += [f"{len(each.sessions)} live sessions"] if len(each.sessions) > 1 else []
    words += [f'role "{one_line(each.role)}"'] if each.role else []
    words += [f'label "{one_line(each.label)}"'] if each.label else []
    words += [f"open task {', '.join(each.tasks)}"] if each.tasks else []
    words += [f"{len(each.queued)} queued"] if each.queued else []
    words += [f"{each.unread} unread"] if each.unread else []
    words += [f"asked {', '.join(each.waited_on_by)}"] if each.waited_on_by else []
    words += [f"waits for {', '.join(each.waits_for)}"] if each.waits_for else []
    words += [f'progress "{one_line(each.progress)}"'] if each.progress else []
    words += [f"worked at {each.active_at.isoformat(timespec='seconds')}"] if each.active_at else []
    return f"- {each.agent}{' (you)' if each.agent == me else ''}: {'; '.join(words)}"
