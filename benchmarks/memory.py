"""What the server's memory holds for each thing."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from benchmarks.fleets import QUESTION, Herd, message, open_herds, open_waits, run_all
from benchmarks.measuring import Options, Place, place, show, times
from tocsin.broker import inbox
from tocsin.broker.ids import make_id

THINGS = 5_000
"""How many of each are made, to see what one takes."""

BATCH = 100


def _each(here: Place, make: Callable[[], object]) -> float:
    before = here.used_memory()
    make()
    return (here.used_memory() - before) / THINGS


def _pass_through(here: Place, herd: Herd, count: int) -> None:
    for _ in range(count // BATCH):
        list(run_all(here.broker, [message(herd.parent, "planner") for _ in range(BATCH)]))
        taken = here.broker.run(inbox.take(herd.planner, "receive", "receive", BATCH))
        here.broker.run(inbox.ack(herd.planner, taken.mail))


def _bare_messages(here: Place) -> None:
    pipeline = here.plain.pipeline(transaction=False)
    for number in range(THINGS):
        message_id = make_id("msg")
        fields: Any = {"sender": "parent", "to": "planner", "body": QUESTION, "at": "1767225600000"}
        pipeline.hset(f"bare:m:{message_id}", mapping=fields)
        pipeline.zadd("bare:waking", {message_id: number})
        pipeline.xadd("bare:inbox", {"m": message_id})
    pipeline.execute()


def _bare_agents(here: Place) -> None:
    pipeline = here.plain.pipeline(transaction=False)
    for number in range(THINGS):
        pipeline.hset(f"bare:a:{number}", mapping={"state": "open", "token": "0" * 64})
    pipeline.execute()


def _register(here: Place) -> None:
    parent = here.broker.open_herd("idle")
    for number in range(THINGS):
        parent.register(f"agent-{number}")


def _things() -> list[list[str]]:
    with place() as here:
        herd = open_herds(here.broker, 1, THINGS)[0]
        _pass_through(here, herd, 20_000)  # the journal, which is capped, is full from here on
        bare_message = _each(here, lambda: _bare_messages(here))
        bare_agent = _each(here, lambda: _bare_agents(here))
        wait = _each(here, lambda: open_waits(here.broker, [herd] * THINGS))
        receipt = _each(here, lambda: _pass_through(here, herd, THINGS))
        agent = _each(here, lambda: _register(here))
    return [
        ["bare message: HSET + ZADD + XADD", f"{bare_message:,.0f}", ""],
        ["open wait: task, question, their timers", f"{wait:,.0f}", times(wait, bare_message)],
        ["receipt of a handled message", f"{receipt:,.0f}", times(receipt, bare_message)],
        ["bare agent: HSET", f"{bare_agent:,.0f}", ""],
        ["registered agent that idles", f"{agent:,.0f}", times(agent, bare_agent)],
    ]


def run(options: Options) -> None:
    """Bytes of each thing."""
    show(options.console, "memory: bytes of one", ["what", "bytes", "ratio"], _things())
