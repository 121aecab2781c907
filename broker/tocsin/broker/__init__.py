"""Tocsin's broker library: herds, agents, envelopes, tasks, requests and their timers.

Start at `AsyncBroker` or `Broker`; the two have one surface.
"""

from tocsin.broker import errors
from tocsin.broker._async.agent import AsyncAgent
from tocsin.broker._async.broker import AsyncBroker
from tocsin.broker._async.child import AsyncChild
from tocsin.broker._async.claimed import AsyncClaimedTurn
from tocsin.broker._async.parent import AsyncParent
from tocsin.broker._async.turn import AsyncTurn
from tocsin.broker._sync.agent import Agent
from tocsin.broker._sync.broker import Broker
from tocsin.broker._sync.child import Child
from tocsin.broker._sync.claimed import ClaimedTurn
from tocsin.broker._sync.parent import Parent
from tocsin.broker._sync.turn import Turn
from tocsin.broker.causes import Why
from tocsin.broker.clock import ManualClock, ScaledClock
from tocsin.broker.dead import DeadLetter, DeadLetters, HandedBack, Replayed
from tocsin.broker.envelopes import (
    AgentInfo,
    Delegated,
    Delivery,
    Envelope,
    JournalEntry,
    Kind,
    Outcome,
    Receipt,
    Reply,
    ReturnWhen,
    Seat,
    Sent,
    SessionInfo,
    SessionState,
    Settlement,
    Status,
    Task,
    Waiting,
    Wake,
    WakeTry,
)
from tocsin.broker.inbox import Inbox
from tocsin.broker.plans import Plan
from tocsin.broker.pulse import LoopHealth
from tocsin.broker.runners import CallableRunner, CommandRunner
from tocsin.broker.schedules import Missed
from tocsin.broker.settings import HerdSettings
from tocsin.broker.states import TaskState
from tocsin.broker.ties import HerdTree
from tocsin.broker.turns import Decision, Ending, How

__all__ = [
    "Agent",
    "AgentInfo",
    "AsyncAgent",
    "AsyncBroker",
    "AsyncChild",
    "AsyncClaimedTurn",
    "AsyncParent",
    "AsyncTurn",
    "Broker",
    "CallableRunner",
    "Child",
    "ClaimedTurn",
    "CommandRunner",
    "DeadLetter",
    "DeadLetters",
    "Decision",
    "Delegated",
    "Delivery",
    "Ending",
    "Envelope",
    "HandedBack",
    "HerdSettings",
    "HerdTree",
    "How",
    "Inbox",
    "JournalEntry",
    "Kind",
    "LoopHealth",
    "ManualClock",
    "Missed",
    "Outcome",
    "Parent",
    "Plan",
    "Receipt",
    "Replayed",
    "Reply",
    "ReturnWhen",
    "ScaledClock",
    "Seat",
    "Sent",
    "SessionInfo",
    "SessionState",
    "Settlement",
    "Status",
    "Task",
    "TaskState",
    "Turn",
    "Waiting",
    "Wake",
    "WakeTry",
    "Why",
    "errors",
]
