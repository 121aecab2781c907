"""Every refusal and failure of Tocsin, as one tree.

Each error says what was refused, which rule refused it and what to do next (`detail`), which
operation was asked for (`operation`), and whether the same call may succeed later without any
other change (`retryable`). Codes are stable; transports map codes, never messages.
"""

from __future__ import annotations

from typing import ClassVar


class BrokerError(Exception):
    """Root of the tree.

    `code` is one of the words of `CODES`; `operation` is the name of the call that was refused
    (`delegate`, `reply`, ...); `detail` is a sentence for the reader.
    """

    code: ClassVar[str] = "unavailable"
    retryable: ClassVar[bool] = False

    def __init__(self, operation: str, detail: str) -> None:
        super().__init__(operation, detail)
        self.operation = operation
        self.detail = detail

    def __str__(self) -> str:
        return f"{self.operation}: {self.detail} [{self.code}]"


class InvalidInput(BrokerError):
    """A value broke a rule of the call: its type, range, alphabet or length."""

    code = "invalid_input"


class InvalidEnvelope(BrokerError):
    """A stored or received envelope cannot be read."""

    code = "invalid_envelope"


class UnknownHerd(BrokerError):
    """No herd has this name in this fleet."""

    code = "unknown_herd"


class UnknownAgent(BrokerError):
    """The herd has no such agent."""

    code = "unknown_agent"


class UnknownTask(BrokerError):
    """The herd has no such task, or it is past its retention."""

    code = "unknown_task"


class UnknownMessage(BrokerError):
    """The herd has no such message, or its record has ended."""

    code = "unknown_message"


class UnknownPlan(BrokerError):
    """The herd has no such plan, or its record has ended."""

    code = "unknown_plan"


class HerdExists(BrokerError):
    """A herd of this name is there: open, and its token reopens it, or closed and still kept."""

    code = "herd_exists"


class AgentExists(BrokerError):
    """An agent of this name is registered, and `exist_ok` was not given."""

    code = "agent_exists"


class AgentClosed(BrokerError):
    """The agent was closed, or its name now belongs to a newer generation."""

    code = "agent_closed"


class HerdClosed(BrokerError):
    """The herd is closing or closed and takes no new work."""

    code = "herd_closed"


class Unauthorized(BrokerError):
    """The token does not prove the agent that the call names."""

    code = "unauthorized"


class Forbidden(BrokerError):
    """The agent is who it says, but this is not its to do."""

    code = "forbidden"


class AgentBusy(BrokerError):
    """The agent holds as many open tasks as it may."""

    code = "agent_busy"
    retryable = True


class WrongState(BrokerError):
    """The state of the task, request or message does not allow this."""

    code = "wrong_state"


class PendingRequests(BrokerError):
    """A waiting task cannot be completed without saying why its questions no longer matter."""

    code = "pending_requests"


class QueueFull(BrokerError):
    """The recipient's inbox, the task's open questions or the herd's plans are at their limit."""

    code = "queue_full"
    retryable = True


class TooLarge(BrokerError):
    """A body, label or envelope is over its limit."""

    code = "too_large"


class DuplicateConflict(BrokerError):
    """An id or key that was used before came again with other content."""

    code = "duplicate_conflict"


class NoReply(BrokerError):
    """An ask ran out in silence; the request stays answerable.

    `reason` is the first that is true of: `queued`, `away`, `unread`, `waiting_on <agent>`,
    `read_but_silent`. `limit` is what ran out: `window` or `ceiling`. `message_id` is the ask.
    """

    code = "no_reply"
    retryable = True

    def __init__(
        self,
        operation: str,
        detail: str,
        message_id: str = "",
        reason: str = "",
        limit: str = "",
    ) -> None:
        super().__init__(operation, detail)
        self.message_id = message_id
        self.reason = reason
        self.limit = limit


class CeilingActive(BrokerError):
    """The ceiling of an ask was reached while its target was still at work.

    The request stays answerable. `message_id` is the ask.
    """

    code = "ceiling_active"
    limit = "ceiling"

    def __init__(self, operation: str, detail: str, message_id: str = "") -> None:
        super().__init__(operation, detail)
        self.message_id = message_id


class RequestCancelled(BrokerError):
    """The request ended without an answer because its task settled or it was cancelled."""

    code = "request_cancelled"


class LoopLimit(BrokerError):
    """Agents would wait for one another in a circle, or answer one another without end."""

    code = "loop_limit"


class Unavailable(BrokerError):
    """The server could not be reached, or did not answer in time.

    Whether the call took effect is unknown. What was tried again on the way took effect once, by
    the id made before the first try; to repeat it yourself, give it a `key`, or look first.
    """

    code = "unavailable"
    retryable = True


def _leaves(root: type[BrokerError]) -> list[type[BrokerError]]:
    return [leaf for child in root.__subclasses__() for leaf in (child, *_leaves(child))]


CODES: dict[str, type[BrokerError]] = {error.code: error for error in _leaves(BrokerError)}
"""The error class of each code."""

JSON_RPC: dict[str, tuple[int, str]] = {
    "no_reply": (-32001, "NO_REPLY"),
    "ceiling_active": (-32002, "RENDEZVOUS_CEILING_ACTIVE"),
}
"""The JSON-RPC code and `data.code` of each error that has its own; all others are -32000."""


def to_json_rpc(error: BrokerError) -> dict[str, object]:
    """The JSON-RPC error object of an error; `data` says whether the call may be repeated."""
    number, name = JSON_RPC.get(error.code, (-32000, error.code.upper()))
    data = {"code": name, "operation": error.operation, "retryable": error.retryable}
    for field in ("message_id", "reason"):
        if field in vars(error):
            data[field] = vars(error)[field]
    return {"code": number, "message": error.detail, "data": data}
