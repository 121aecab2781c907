"""A whole fleet on one server: every herd full of agents, every agent in an open wait.

All of it goes through the same scripts as in a fleet that grew by itself, pipelined, from several
processes. Agents have no process here, as those with a runner have none between turns: what live
processes cost, their renewals, is arithmetic (`docs/operations.md`).
"""

from __future__ import annotations

import multiprocessing
import os
import statistics
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any, TypeVar

import redis

from benchmarks.fleets import DESCRIPTION, QUESTION, run_all
from benchmarks.measuring import Options, seconds, show
from benchmarks.schedulers import FLEET, inbox, now, reminded_at, schedulers, until
from tocsin.broker import Broker, HerdSettings, ScaledClock, agents, herds, keys, requests, tasks
from tocsin.broker import inbox as mail
from tocsin.broker.caller import Caller, Fleet
from tocsin.broker.embedded import EmbeddedServer
from tocsin.broker.ids import PARENT, hash_token
from tocsin.broker.scripts import Call
from tocsin.broker.settings_files import resolve
from tocsin.scheduler import Scheduler

T = TypeVar("T")

Work = Callable[[str, "Size"], dict[str, float]]

FACTOR = 60.0
"""The fleet's minute, the shortest threshold there is, is a second; so nothing below is short."""

LONG = timedelta(days=30)

SETTINGS = HerdSettings(
    stale_wait_threshold=0,
    reply_timeout=timedelta(0),
    task_deadline=LONG,
    lease=LONG,
    receipt_retention=LONG,
    journal_limit=1_000,
)

BUILDERS = 2
"""Processes that build side by side."""

REPLIES = 0.05
"""The share of waits that is answered."""

SETTLE = 2.0
"""Seconds in which schedulers that have just started look round."""

IDLE = 10.0
"""Seconds for which it is looked at while nothing is due."""


@dataclass(frozen=True)
class Size:
    """How large the fleet is: agents of each herd, and what of it a process builds."""

    agents: int
    herds: Sequence[int]


def _caller(fleet: Fleet, herd: int, agent: str) -> Caller:
    """Anybody, from any process: tokens follow from names, and one instance serves each agent."""
    name = f"herd-{herd}"
    return Caller(fleet, name, agent, hash_token(f"{name}/{agent}"), f"inst_{herd}_{agent}")


def _scouts(fleet: Fleet, herd: int, count: int) -> list[Caller]:
    return [_caller(fleet, herd, f"scout-{number}") for number in range(count)]


def _connect(url: str) -> Broker:
    return Broker.connect(url, fleet=FLEET, clock=ScaledClock(FACTOR))


def _build(url: str, size: Size) -> dict[str, float]:
    """Herds in which each scout asks the next about its task; the seconds that each step took."""
    spent: dict[str, float] = {}

    def timed(step: str, calls: Iterable[Call[T]]) -> list[T]:
        results: list[T] = []
        spent[step] = spent.get(step, 0.0) + seconds(lambda: results.extend(run_all(broker, calls)))
        return results

    with _connect(url) as broker:
        fleet = broker.fleet()
        for herd in size.herds:
            parent, scouts = _caller(fleet, herd, PARENT), _scouts(fleet, herd, size.agents)
            resolved = resolve(SETTINGS)
            broker.run(herds.open_herd(parent, resolved, SETTINGS, reopening=False))
            timed("register", (_register(parent, scout) for scout in scouts))
            held = timed("delegate", (_delegate(parent, scout) for scout in scouts))
            taken = timed("take", (mail.take(each, "receive", "receive", 10) for each in scouts))
            timed("ack", (mail.ack(who, got.mail) for who, got in zip(scouts, taken, strict=True)))
            nexts = [*scouts[1:], scouts[0]]
            timed(
                "ask",
                (
                    _ask(scout, to.agent, task.id)
                    for scout, to, task in zip(scouts, nexts, held, strict=True)
                ),
            )
    return spent


def _register(parent: Caller, scout: Caller) -> Call[Any]:
    token = f"{scout.herd}/{scout.agent}"
    return agents.register(parent, scout.agent, token, None, None, exist_ok=False)


def _delegate(parent: Caller, scout: Caller) -> Call[Any]:
    return tasks.delegate(
        parent,
        scout.agent,
        DESCRIPTION,
        deadline=None,
        watch=False,
        queue=False,
        continues=None,
        key=None,
    )


def _ask(scout: Caller, to: str, task: str) -> Call[Any]:
    return requests.message(
        scout,
        to,
        QUESTION,
        task=task,
        expects_reply=True,
        reply_within=None,
        delivery="follow_up",
        thread=None,
        key="wait",  # so that whoever answers can tell its id
        data=None,
    )


def _answer(url: str, size: Size) -> dict[str, float]:
    with _connect(url) as broker:
        fleet = broker.fleet()
        took = 0.0
        for herd in size.herds:
            scouts = _scouts(fleet, herd, size.agents)
            calls = [
                requests.reply(
                    answers, scout.new_id("msg", "message", "wait"), "2 s.", key=None, data=None
                )
                for scout, answers in zip(scouts, [*scouts[1:], scouts[0]], strict=True)
            ]
            took += seconds(lambda calls=calls: list(run_all(broker, calls)))  # type: ignore[misc]
    return {"reply": took}


def _shared(work: Work, url: str, size: Size) -> dict[str, float]:
    """Has builders do it, a share of the herds each; the seconds of each step and of the whole.

    Of a step that builders take side by side, the seconds are those of one of them.
    """
    shares = [Size(size.agents, size.herds[n::BUILDERS]) for n in range(BUILDERS)]
    spent = Counter[str]()
    with multiprocessing.get_context("spawn").Pool(BUILDERS) as pool:
        began = time.perf_counter()
        for each in pool.starmap(work, [(url, share) for share in shares]):
            spent.update({step: took / BUILDERS for step, took in each.items()})
        return {**spent, "whole": time.perf_counter() - began}


def _rates(options: Options, url: str, size: Size, plain: redis.Redis) -> None:
    """Builds the fleet; how quick each step was, and what one wait takes of the memory."""
    waits, before = size.agents * len(size.herds), _info(plain, "memory")["used_memory"]
    spent = _shared(_build, url, size)
    memory = _info(plain, "memory")
    answered = Size(size.agents, size.herds[: _answered(size)])
    replied = _shared(_answer, url, answered)
    times = [(step, waits, took) for step, took in spent.items()]
    times.append(("reply", answered.agents * len(answered.herds), replied["reply"]))
    show(
        options.console,
        f"scale: {len(size.herds):,} herds of {size.agents:,} agents, {waits:,} open waits; "
        f"by {BUILDERS} processes",
        ["step", "times", "took", "a second"],
        [[step, f"{n:,}", f"{took:.1f} s", f"{n / took:,.0f}"] for step, n, took in times],
    )
    each, resident = (memory["used_memory"] - before) / waits, memory["used_memory_rss"] / waits
    options.console.print(
        f"memory of a wait with agent and task: {each:,.0f} bytes used, {resident:,.0f} resident"
    )


def _answered(size: Size) -> int:
    """Herds, the first, whose waits are answered; of the others those that are due are taken."""
    return max(BUILDERS, round(len(size.herds) * REPLIES))


def _quiet(options: Options, url: str) -> None:
    """What a pass costs while nothing is due, and a sweep of repair, which looks at everything."""
    with _connect(url) as broker:
        scheduler = Scheduler(broker, repair_every=None)
        ticks = [seconds(scheduler.tick) * 1000 for _ in range(50)]
        options.console.print(
            f"a tick with nothing due: {statistics.median(ticks):.1f} ms, at most {max(ticks):.1f}"
        )
        if options.sweep:
            took = seconds(lambda: scheduler.repair(mend=False))
            options.console.print(f"one sweep of repair: {took:.0f} s")


def _row(url: str, parents: list[Caller], count: int, plain: redis.Redis) -> list[str]:
    """So many schedulers: first with nothing due, then with every wait of these herds at once."""
    on = HerdSettings(stale_wait_threshold=1)
    with _connect(url) as broker, schedulers(url, count) as running:
        waits = {parent: _waiting(plain, parent) for parent in parents}
        idle = _idle(plain, running)
        began = now(plain)
        list(run_all(broker, [herds.set_settings(parent, on, "argument") for parent in parents]))
        until(lambda: all(plain.xlen(inbox(p)) >= n for p, n in waits.items()), "all reminders")
    at = sorted(each - began for parent in parents for each in reminded_at(plain, parent))
    return [
        str(count),
        f"{len(at):,}",
        f"{statistics.median(at):,.0f} ms",
        f"{at[-1]:,} ms",
        f"{len(at) / max(1, at[-1]) * 1000:,.0f}",
        *idle,
    ]


def _waiting(plain: redis.Redis, parent: Caller) -> int:
    partition = parent.fleet.partition(parent.herd)
    return int(plain.zcard(keys.below(partition, "waiting", herd=parent.herd)))


def _idle(plain: redis.Redis, running: list[int]) -> list[str]:
    """Commands a second that the server runs, those in scripts too, its CPU and a scheduler's."""
    time.sleep(SETTLE)
    before = _commands(plain), _server_cpu(plain), sum(map(_cpu, running))
    time.sleep(IDLE)
    after = _commands(plain), _server_cpu(plain), sum(map(_cpu, running))
    commands, server, mine = (now - then for now, then in zip(after, before, strict=True))
    return [
        f"{commands / IDLE:.0f}",
        f"{server / IDLE:.1%}",
        f"{mine / IDLE / len(running):.1%}",
    ]


def _info(plain: redis.Redis, section: str) -> Any:
    return plain.info(section)


def _commands(plain: redis.Redis) -> float:
    return float(_info(plain, "stats")["total_commands_processed"])


def _server_cpu(plain: redis.Redis) -> float:
    cpu = _info(plain, "cpu")
    return float(cpu["used_cpu_sys"]) + float(cpu["used_cpu_user"])


def _cpu(process: int) -> float:
    """Seconds of CPU that a process has used."""
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(") ")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def run(options: Options) -> None:
    """Builds 1,000 herds of 1,000 agents with a wait each, and looks at it from all sides."""
    size = Size(options.agents, range(options.herds))
    with (
        EmbeddedServer(durable=False) as server,
        redis.Redis.from_url(server.url, decode_responses=True) as plain,
        _connect(server.url) as broker,
    ):
        fleet = broker.fleet()
        _rates(options, server.url, size, plain)
        _quiet(options, server.url)
        each = max(1, options.due // size.agents)
        rows = []
        for number, count in enumerate((1, 2, 4)):
            due = size.herds[: _answered(size) - 1 : -1][number * each : (number + 1) * each]
            if not due:
                options.console.print(f"for {count} schedulers no herds are left; build more")
                break
            parents = [_caller(fleet, herd, PARENT) for herd in due]
            rows.append(_row(server.url, parents, count, plain))
        show(
            options.console,
            f"scale: {each:,} herds' waits due at once, and what it costs while nothing is",
            [
                "schedulers",
                "due",
                "median lag",
                "worst lag",
                "a second",
                "idle cmds/s",
                "server CPU",
                "each's CPU",
            ],
            rows,
        )
