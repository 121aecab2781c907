"""Messages, and requests with their replies. Operation -> `Call`; no I/O."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tocsin.broker.caller import Caller, digest, word
from tocsin.broker.envelopes import Delivery, Envelope, Sent
from tocsin.broker.errors import InvalidInput
from tocsin.broker.ids import PARENT, make_id
from tocsin.broker.scripts import Call
from tocsin.broker.validation import (
    check_choice,
    check_data,
    check_duration,
    check_flag,
    check_id,
    check_line,
    check_name,
    check_text,
    split_address,
)


def _sent(message_id: str, answer: list[Any]) -> Sent:
    how = word(answer)
    return Sent(
        message_id=message_id,
        duplicate=how in ("duplicate", "superseded"),
        superseded=how == "superseded",
        late=how == "late",
    )


def message(
    caller: Caller,
    to: object,
    body: object,
    *,
    task: object,
    expects_reply: object,
    reply_within: object,
    delivery: object,
    thread: object,
    key: str | None,
    data: Mapping[str, Any] | None,
    waits: bool = False,
) -> Call[Sent]:
    """Writes to an agent of the herd; with `expects_reply` it is a request.

    `waits`: refused for want of room, it is rung when there may be some. `herd/agent` names an
    agent of another herd, or of this one.
    """
    op = "message"
    address = split_address(to)
    if address and address[0] == caller.herd:
        to = address[1]
    elif address:
        if expects_reply or reply_within is not None or task is not None:
            raise InvalidInput(
                op,
                f"to {to} is an agent of another herd, which takes plain messages only: no "
                "question (expects_reply), no task; say in the text what you want",
            )
        return _message_abroad(
            caller, *address, body, delivery=delivery, thread=thread, key=key, data=data
        )
    content: dict[str, str] = {
        "to": check_name(op, "to", to),
        "body": check_text(op, "body", body),
        "data": check_data(op, "data", data),
        "task": "" if task is None else check_id(op, "task", task, "task"),
        "thread": check_line(op, "thread", thread),
        "expects": check_flag(op, "expects_reply", expects_reply),
        "within": "",
        "delivery": check_choice(op, "delivery", delivery, Delivery),
    }
    if reply_within is not None:
        if content["expects"] == "0":
            raise InvalidInput(op, "reply_within is given, but expects_reply is False")
        content["within"] = str(check_duration(op, "reply_within", reply_within))
    message_id = caller.new_id("msg", op, key)
    return caller.call(
        "message_send",
        op,
        lambda answer: _sent(message_id, answer),
        message=message_id,
        waits=int(waits),
        digest=digest(**content),
        **content,
    )


def _message_abroad(
    caller: Caller,
    herd: str,
    agent: str,
    body: object,
    *,
    delivery: object,
    thread: object,
    key: str | None,
    data: Mapping[str, Any] | None,
) -> Call[Sent]:
    """Writes to the parent of another herd, by way of this herd's outbox."""
    op = "message"
    if agent != PARENT:
        raise InvalidInput(
            op, f"to {herd}/{agent} is a child of another herd; write to its parent, {herd}/parent"
        )
    content: dict[str, str] = {
        "other": herd,
        "body": check_text(op, "body", body),
        "data": check_data(op, "data", data),
        "thread": check_line(op, "thread", thread),
        "delivery": check_choice(op, "delivery", delivery, Delivery),
    }
    message_id = caller.new_id("msg", op, key)
    return caller.call(
        "outbox_send",
        op,
        lambda answer: _sent(message_id, answer),
        message=message_id,
        digest=digest(**content),
        **content,
    )


def check_message(operation: str, value: object) -> str:
    """The id of a message, given as such or as its envelope."""
    if isinstance(value, Envelope):
        value = value.message_id
    return check_id(operation, "message", value, "msg")


def reply(
    caller: Caller,
    to: object,
    body: object,
    *,
    key: str | None,
    data: Mapping[str, Any] | None,
) -> Call[Sent]:
    """Answers a request, or writes back to the sender of a message."""
    op = "reply"
    request = check_message(op, to)
    text, extra = check_text(op, "body", body), check_data(op, "data", data)
    message_id = caller.new_id("msg", op, key)

    def read(answer: list[Any]) -> Sent:
        return _sent(answer[1] if len(answer) > 1 else message_id, answer)

    return caller.call(
        "request_reply",
        op,
        read,
        request=request,
        message=message_id,
        body=text,
        data=extra,
        digest=digest(request=request, body=text, data=extra),
        answer_digest=digest(body=text, data=extra),
    )


def remind(caller: Caller, request: object) -> Call[Sent]:
    """Reminds the recipient of an open request."""
    message_id = caller.new_id("msg", "remind", None)
    return caller.call(
        "request_remind",
        "remind",
        lambda answer: _sent(message_id, answer),
        request=check_message("remind", request),
        message=message_id,
    )


def reroute(caller: Caller, request: object, agent: object) -> Call[None]:
    """Sends an open request to another agent."""
    return caller.call(
        "request_reroute",
        "reroute",
        lambda _: None,
        call=make_id("call"),
        request=check_message("reroute", request),
        target=check_name("reroute", "agent", agent),
    )


def cancel_request(caller: Caller, request: object) -> Call[None]:
    """Gives an open request up."""
    return caller.call(
        "request_cancel",
        "cancel_request",
        lambda _: None,
        request=check_message("cancel_request", request),
    )
