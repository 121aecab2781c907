"""The text of what Tocsin itself says, made from the data of the envelope.

Pure: the same data always gives the same text. Words of agents (questions, summaries, reasons)
are quoted line by line, so that they cannot pass for the text around them.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Mapping
from datetime import timedelta
from typing import Any

from tocsin.broker.clock import from_ms
from tocsin.broker.durations import show_duration

# All that a terminal, a browser or a model may take for the end of a line.
_LINE_END = re.compile(r"\r\n|[\n\r\x85\u2028\u2029]")


def _quoted(text: str) -> str:
    return "\n".join(f"  > {line}" for line in _LINE_END.split(text))


def _named(agent: str, label: str | None) -> str:
    name = " ".join((label or "").split()).replace('"', "'")
    return f'{agent} "{name}"' if name else agent


def _since(milliseconds: float) -> str:
    return show_duration(timedelta(seconds=int(milliseconds) // 1000))


def _exactly(milliseconds: int) -> str:
    return show_duration(timedelta(milliseconds=milliseconds))


_TURN = {
    "none": "it has no turn due",
    "due": "its turn is due and has not started",
    "launched": "its turn is in a queue and has not started",
    "running": "its turn is running",
}
"""What there is to say of a recipient that has a runner, instead of processes."""


def _stale_wait(data: Mapping[str, Any]) -> str:
    recipient = data["recipient"]
    task = f", its own task is {recipient['task']}" if recipient["task"] else ""
    presence = "a process is running" if recipient["present"] else "no process is running"
    presence = _TURN.get(recipient.get("turn"), presence)
    others = "".join(f"\nAlso open: {other}" for other in data["other_requests"])
    return (
        f"{_named(data['agent'], data['label'])} has waited {_since(data['elapsed_ms'])} "
        f"(since {from_ms(data['waiting_since']):%Y-%m-%d %H:%M:%S} UTC, longer than "
        f"{data['threshold_minutes']:g} min) on task {data['task']}:\n"
        f"{_quoted(data['description'])}\n"
        f"for an answer from {_named(recipient['agent'], recipient['label'])} "
        f"({presence}, {recipient['process']}{task}) to {data['request']}:\n"
        f"{_quoted(data['question'])}{others}\n"
        "You can answer it yourself, remind the recipient, reroute the question, cancel the "
        "question or the task, or inspect the task. Nothing is settled by this reminder."
    )


def _task_settled(data: Mapping[str, Any]) -> str:
    text = f"Task {data['task_id']} of {data['agent']}: {data['status'].replace('_', ' ')}."
    if data["summary"]:
        text += f"\nSummary:\n{_quoted(data['summary'])}"
    elif data["ok"]:
        text += "\nIt gave no summary."
    if data["error"]:
        text += f"\nReason:\n{_quoted(data['error'])}"
    return text


def _reminded(data: Mapping[str, Any]) -> str:
    return (
        f"{data['asker']} has waited {_since(data['waiting_ms'])} for your answer to "
        f"{data['request']}:\n{_quoted(data['question'])}\nPlease reply to {data['request']}."
    )


def _request_closed(data: Mapping[str, Any]) -> str:
    if "limit" in data:
        text = silence(
            data["how"],
            data["request"],
            data["recipient"],
            data["reason"],
            data["limit"],
            data["window_ms"],
            data["ceiling_ms"],
        )
        return f"{text[0].upper()}{text[1:]}."
    return (
        f"Your question {data['request']} to {data['recipient']} closed without an answer "
        f"({data['how'].replace('_', ' ')}):\n{_quoted(data['detail'])}"
    )


def _task_ended(data: Mapping[str, Any]) -> str:
    detail = f" Reason:\n{_quoted(data['detail'])}" if data["detail"] else ""
    return f"Stop working on task {data['task']}; it is {data['state'].replace('_', ' ')}.{detail}"


def _agent_away(data: Mapping[str, Any]) -> str:
    return (
        f"{data['agent']} holds open task {data['task']} and no process has served it for "
        f"{_since(data['away_after_ms'])}. Start one, or cancel the task."
    )


def _dead_letter(data: Mapping[str, Any]) -> str:
    what = (
        f"The {data['kind']} {data['message']} from {data['sender']} to {data['recipient']}"
        if data.get("kind")
        else f"What was in the inbox of {data['recipient']} and is no message, {data['message']},"
    )
    can = "You can look at it, replay it once the cause is mended, or drop it."
    if obstacle := data.get("obstacle"):
        can = f"You can look at it; it cannot be replayed:\n{_quoted(obstacle)}"
    return f"{what} went to the dead letters:\n{_quoted(data['reason'])}\n{can}"


def _undelivered(data: Mapping[str, Any]) -> str:
    what = data.get("kind", "message")
    return (
        f"Your {what} {data['message']} to {data['recipient']} was not handled and went to "
        f"the dead letters:\n{_quoted(data['reason'])}\nThe parent knows, and may have it replayed."
    )


def _refused(data: Mapping[str, Any]) -> str:
    return (
        f"Your {data['kind']} {data['message']} to {data['recipient']} was refused there:\n"
        f"{_quoted(data['reason'])}\nNobody has read it."
    )


def _loop(data: Mapping[str, Any]) -> str:
    agent, other, count = data["agent"], data["recipient"], data["count"]
    what = f"{agent} and {other} seem to answer each other without end"
    why = f"they have answered each other {count} times in a short time (pair_rate)"
    if data["limit"] == "hop_limit":
        why = f"it would be more than {count} replies to replies in a chain (hop_limit)"
    elif data["limit"] == "ring":
        what = f"{agent}, {other} and others seem to pass messages round without end"
        why = f"what it writes to {other} has come round {count} times in a short time (pair_rate)"
    return (
        f"{what}, so {agent} is refused to go on: {why}. Tell them to stop, or raise the limit if "
        "they mean it."
    )


def _herd_orphaned(data: Mapping[str, Any]) -> str:
    return (
        f"This herd was opened under {data['under']}, and stands alone now:\n"
        f"{_quoted(data['reason'])}\nNobody above closes it or cancels its tasks any more: go on "
        "with what is still wanted, and close the herd when it is done."
    )


def _plan_paused(data: Mapping[str, Any]) -> str:
    return f"Plan {data['plan']} gives {data['agent']} no more tasks: {data['reason']}."


def _sessions(data: Mapping[str, Any]) -> str:
    named = "\n".join(
        f"{each['host']} {each['session']}, since {from_ms(each['since']):%Y-%m-%d %H:%M:%S} UTC"
        for each in data["sessions"]
    )
    return (
        f"{data['agent']} has {len(data['sessions'])} live sessions on one seat:\n"
        f"{_quoted(named)}\nThey share its mail and its tasks, and each may get what the other "
        "waits for. If that is not meant, end one, or register another agent for it."
    )


def _unfinished(data: Mapping[str, Any]) -> str:
    return (
        f"{data['agent']} has ended its turns well and left task {data['task']} open, waiting for "
        f"nothing; {data['nudges']} more turns that said so changed nothing. Write to it, which "
        "gives it another turn, or cancel the task."
    )


def _limited(data: Mapping[str, Any]) -> str:
    return (
        f"A usage limit of {data['account']} is reached, as {data['agent']} says:\n"
        f"{_quoted(data['detail'])}\nIts task stays open, and its turns go on at "
        f"{from_ms(data['until_ms']):%Y-%m-%d %H:%M:%S} UTC."
    )


_TEXTS = {
    "stale_wait": _stale_wait,
    "task_settled": _task_settled,
    "reminded": _reminded,
    "request_closed": _request_closed,
    "task_ended": _task_ended,
    "agent_away": _agent_away,
    "dead_letter": _dead_letter,
    "undelivered": _undelivered,
    "refused": _refused,
    "loop": _loop,
    "herd_orphaned": _herd_orphaned,
    "plan_paused": _plan_paused,
    "sessions": _sessions,
    "unfinished": _unfinished,
    "limited": _limited,
}


def unwakeable(agent: str) -> str:
    """What it means to give something to an agent that nothing can wake."""
    return (
        f"Nothing can wake {agent} now: it has no runner, no process that waits for a turn, and no "
        f"session with a proven path. This waits until {agent} looks at its mail."
    )


def _continued(data: Mapping[str, Any]) -> str:
    earlier = data["continues"]
    text = f"\n\nThis continues task {earlier['task']} ({earlier['status'].replace('_', ' ')}):"
    text += f"\n{_quoted(earlier['description'])}"
    if earlier.get("error"):
        text += f"\nIt ended because:\n{_quoted(earlier['error'])}"
    if earlier.get("question"):
        text += f"\nOpen then, to {earlier['asked']}:\n{_quoted(earlier['question'])}"
    if earlier.get("answer"):
        text += f"\nAnswered since:\n{_quoted(earlier['answer'])}"
    return text


_SILENCE = {
    "queued": "{target} has a turn due that has not started",
    "away": "no process of {target} is running",
    "unread": "{target} has not read it",
    "waiting_on": "{target} itself waits for {other}",
    "read_but_silent": "{target} has read it and shown no sign of work since",
}


def silence(
    how: str, request: str, target: str, reason: str, limit: str, window: int, ceiling: int
) -> str:
    """Why an ask ended without an answer, which limit (both in ms) ended it, and what to do."""
    if how == "ceiling_active":
        return (
            f"{target} is still working on {request}, past the ceiling of {_exactly(ceiling)}; "
            "do not retry blindly: look at its work in progress first. Its answer will come as mail"
        )
    kind, _, other = reason.partition(" ")
    spent = (
        f"the window of {_exactly(window)} without a sign of work ran out"
        if limit == "window"
        else f"the ceiling of {_exactly(ceiling)} was reached after a window of silence"
    )
    return (
        f"no reply from {target} to {request}: {spent}; "
        f"{_SILENCE[kind].format(target=target, other=other)}. "
        "Ask again, or go on: an answer that still comes will be delivered as mail"
    )


def body_of(kind: str, data: Mapping[str, Any], body: str) -> str:
    """The text of an envelope: what its sender wrote, or what `data["about"]` has Tocsin say."""
    if body:
        return body + _continued(data) if kind == "task" and "continues" in data else body
    write = _TEXTS.get(str(data.get("about")))
    return write(data) if write else body


_ALERTS = {
    "reminder": "{agent} has waited {waiting} on task {task} for an answer from {recipient}",
    "blocked": "task {task} of {agent} is blocked",
    "failed": "task {task} of {agent} has failed",
    "dead_letter": "the {message_kind} {message} from {sender} to {recipient} is a dead letter",
    "agent_away": "{agent} holds open task {task} and no process has served it for {away}",
    "unheard": "{sender} asked {recipient}, of which no process is running ({message})",
    "herd_orphaned": "it was opened under {under}, and stands alone now",
    "test": "a test: alerts of this fleet arrive here",
}


def alert_of(event: str, herd: str, facts: Mapping[str, Any]) -> str:
    """What a human is told of an event, in a sentence; then what agents wrote of it, quoted."""
    spans = {
        name: _since(facts[f"{name}_ms"]) for name in ("waiting", "away") if f"{name}_ms" in facts
    }
    known = defaultdict(lambda: "?", {**facts, **spans})
    text = f"Herd {herd}: {_ALERTS.get(event, event).format_map(known)}."
    for name in ("error", "reason", "question", "body", "description"):
        if name in facts:
            text += f"\n{name.capitalize()}:\n{_quoted(facts[name])}"
    return text
