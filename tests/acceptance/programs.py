"""Programs that acceptance tests run as processes of their own, to kill, freeze and race them.

    python -m tests.acceptance.programs NAME ARGUMENTS

Each says what it does in lines on its output, and does what lines on its input tell it.
"""

from __future__ import annotations

import asyncio
import json
import multiprocessing
import os
import random
import signal
import sys
import threading
import time
from collections.abc import Callable
from contextlib import AsyncExitStack
from datetime import timedelta
from pathlib import Path
from typing import Any

from tocsin.broker import AsyncBroker, Broker, Child
from tocsin.broker.errors import BrokerError
from tocsin.scheduler import AsyncScheduler, Scheduler


def say(*words: object) -> None:
    """One line to the test."""
    sys.stdout.write(" ".join(map(str, words)) + "\n")
    sys.stdout.flush()


def told() -> str:
    """The next line from the test; the program ends with the test."""
    line = sys.stdin.readline()
    if not line:
        sys.exit()
    return line.strip()


def skew(seconds: str) -> None:
    """Puts this process's own clock ahead, or behind."""
    by, now, now_ns = float(seconds), time.time, time.time_ns
    time.time = lambda: now() + by
    time.time_ns = lambda: now_ns() + int(by * 1e9)


def handler(url: str, fleet: str, herd: str, agent: str, token: str, ahead: str = "0") -> None:
    """An agent: says what it took, and acks it when told `ack`."""
    skew(ahead)
    with Broker.connect(url, fleet=fleet) as broker:
        child = broker.join(herd, agent, token)
        say("joined", child.instance)
        for turn in child.turns():
            for envelope in turn:
                say("took", json.dumps([envelope.body, envelope.attempts]))
            if told() == "ack":
                turn.ack()
                say("acked", len(turn.fenced))


def laborer(url: str, fleet: str, herd: str, agent: str, token: str, how: str, long: str) -> None:
    """On an event loop: each handler takes `long` seconds, which it `waits` or `burns`."""

    async def work() -> None:
        async with AsyncBroker.connect(url, fleet=fleet) as broker:
            child = await broker.join(herd, agent, token)
            say("joined", child.instance)
            async for turn in child.turns():
                async with turn:
                    say("took", json.dumps([turn[0].body, turn[0].attempts]))
                    if how == "waits":
                        await asyncio.sleep(float(long))
                    else:
                        until = time.monotonic() + float(long)
                        while time.monotonic() < until:
                            sum(range(1000))
                say("handled", len(turn.fenced))

    asyncio.run(work())


def one_by_one(url: str, fleet: str, herd: str, agent: str, token: str, works: str = "") -> None:
    """Takes one message at a time, and works on it for seconds or until told; SIGTERM ends it."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit())
    with Broker.connect(url, fleet=fleet) as broker:
        child = broker.join(herd, agent, token)
        say("joined", child.instance)
        for turn in child.turns(limit=1):
            with turn:
                say("took", *[envelope.body for envelope in turn])
                if works:
                    time.sleep(float(works))
                else:
                    told()


def gatherer(url: str, fleet: str, herd: str, agent: str, token: str) -> None:
    """Takes a whole turn, says how much, and begins with none of it; SIGTERM ends it."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit())
    with Broker.connect(url, fleet=fleet) as broker:
        child = broker.join(herd, agent, token)
        for turn in child.turns():
            with turn:
                say("holds", len(turn))
                told()


def forker(url: str, fleet: str, herd: str, agent: str, token: str) -> None:
    """Forks with a broker in use, one not yet used, and says what children could do with each."""
    unused = Broker.connect(url, fleet=fleet)
    with Broker.connect(url, fleet=fleet) as broker:
        child = broker.join(herd, agent, token)
        waiting = threading.Thread(target=child.next_turn, kwargs={"timeout": 30}, daemon=True)
        waiting.start()
        attempts: dict[str, Callable[[], Any]] = {
            "message": lambda: child.message("parent", "x"),
            "next_turn": lambda: child.next_turn(timeout=1),
            "ask": lambda: child.ask("parent", "?"),
            "leave": child.leave,
            "join": lambda: broker.join(herd, agent, token),
            "herds": broker.herds,
            "close": broker.close,
            "unused": lambda: unused.join(herd, agent, token).message("parent", "from a fork"),
        }
        say("results", json.dumps(_in_forks(attempts)))
        child.message("parent", "from before")
        waiting.join()
        say("woken")
        told()


def async_forker(url: str, fleet: str, herd: str, agent: str, token: str) -> None:
    """The same with an async broker, each fork with an event loop of its own."""

    async def fork() -> None:
        async with AsyncBroker.connect(url, fleet=fleet) as broker:
            child = await broker.join(herd, agent, token)
            waiting = asyncio.create_task(child.next_turn(timeout=30))
            await asyncio.sleep(0.2)
            attempts = {
                "message": lambda: asyncio.run(child.message("parent", "x")),
                "next_turn": lambda: asyncio.run(child.next_turn(timeout=1)),
                "leave": lambda: asyncio.run(child.leave()),
                "aclose": lambda: asyncio.run(broker.aclose()),
            }
            say("results", json.dumps(_in_forks(attempts)))
            await child.message("parent", "from before")
            await waiting
            say("woken")

    asyncio.run(fork())


def _in_forks(attempts: dict[str, Callable[[], Any]]) -> dict[str, str]:
    """What came of each attempt, made by a child process of its own."""
    fork = multiprocessing.get_context("fork")
    results: dict[str, str] = {}
    for name, attempt in attempts.items():
        told_by_child = fork.SimpleQueue()

        def tell(attempt: Callable[[], Any], answer: Any) -> None:
            try:
                attempt()
            except BrokerError as error:
                answer.put(f"{error.code}: {error.detail}")
            else:
                answer.put("done")

        process = fork.Process(target=tell, args=(attempt, told_by_child))
        process.start()
        process.join(10)
        if process.is_alive():
            process.kill()
        results[name] = "hangs" if told_by_child.empty() else told_by_child.get()
    return results


def asker(url: str, fleet: str, herd: str, agent: str, token: str, ahead: str = "0") -> None:
    """A child that asks planner about each task it is given."""
    skew(ahead)
    with Broker.connect(url, fleet=fleet) as broker:
        child = broker.join(herd, agent, token)
        say("joined", child.instance)
        for turn in child.turns():
            with turn:
                for envelope in turn:
                    if envelope.kind == "task":
                        child.message("planner", "?", task=envelope.task_id, expects_reply=True)
                        say("asked", envelope.task_id)


def worker(url: str, fleet: str, herd: str, agent: str, token: str, directory: str) -> None:
    """Works on each question in one long turn, with a transcript and no call, until told to answer.

    A thread appends to the transcript, as a coding agent's does while its model thinks.
    """
    with Broker.connect(url, fleet=fleet) as broker:
        child = broker.join(herd, agent, token)
        say("joined", child.instance)
        for turn in child.turns():
            with turn:
                done = threading.Event()
                writing = threading.Thread(target=_write, args=(directory, done), daemon=True)
                writing.start()
                say("works")
                assert told() == "answer"
                done.set()
                writing.join()
                child.reply(turn[0], f"done: {turn[0].body}")


def _write(directory: str, done: threading.Event) -> None:
    with Path(directory, "transcript.jsonl").open("a", buffering=1) as transcript:
        while not done.wait(0.05):
            transcript.write("{}\n")


def answerer(url: str, fleet: str, herd: str, agent: str, token: str) -> None:
    """Says each question it is asked, and answers those that lines tell it, by their text."""
    with Broker.connect(url, fleet=fleet) as broker:
        child = broker.join(herd, agent, token)
        say("joined", child.instance)
        questions: dict[str, Any] = {}

        def take() -> None:
            for turn in child.turns():
                for envelope in turn:
                    questions[envelope.body] = envelope
                    say("asked", envelope.body)
                turn.ack()

        threading.Thread(target=take, daemon=True).start()
        while body := told():
            child.reply(questions[body], f"to {body}")


def asks(
    url: str,
    fleet: str,
    herd: str,
    agent: str,
    token: str,
    to: str,
    body: str,
    window: str = "600",
) -> None:
    """Asks, and says what came of it."""
    with Broker.connect(url, fleet=fleet) as broker:
        me = broker.join(herd, agent, token)
        say("joined", me.instance)
        try:
            reply = me.ask(to, body, window=timedelta(seconds=float(window)))
        except BrokerError as error:
            say("ended", error.code, error.detail)
        else:
            say("answered", json.dumps(reply.body))
        told()


def interrupted(url: str, fleet: str, times: str) -> None:
    """Calls and is interrupted as by Ctrl-C, at random moments; says whose answers it got."""

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    signal.signal(signal.SIGALRM, interrupt)
    calls = interrupts = strange = 0
    with Broker.connect(url, fleet=fleet) as broker:
        while interrupts < int(times):
            try:
                signal.setitimer(signal.ITIMER_REAL, random.uniform(0.0003, 0.004))
                until = time.monotonic() + 1.0  # one that came within a `__del__` is lost
                while time.monotonic() < until:
                    calls += 1
                    strange += broker.link.command("test", "ECHO", str(calls)) != str(calls)
            except KeyboardInterrupt:
                interrupts += 1
        signal.setitimer(signal.ITIMER_REAL, 0)
        say("strange", strange)


def scheduler(url: str, fleet: str, ahead: str = "0", repairs: str = "yes") -> None:
    """A scheduler that runs until SIGTERM."""
    skew(ahead)
    with Broker.connect(url, fleet=fleet) as broker:
        running = Scheduler(broker) if repairs == "yes" else Scheduler(broker, repair_every=None)
        signal.signal(signal.SIGTERM, lambda *_: running.stop())
        say("runs")
        running.run()
    say("stopped")


def schedulers(url: str, fleet: str) -> None:
    """Starts one more scheduler process at each line, and says its process id."""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    say("ready")
    while told() == "start":
        pid = os.fork()
        if pid == 0:
            with Broker.connect(url, fleet=fleet) as broker:
                Scheduler(broker).run()
            os._exit(0)
        say("started", pid)


def many_schedulers(url: str, fleet: str, count: str) -> None:
    """As many schedulers in one process, until it is killed."""

    async def run() -> None:
        async with AsyncExitStack() as stack:
            brokers = [
                await stack.enter_async_context(AsyncBroker.connect(url, fleet=fleet))
                for _ in range(int(count))
            ]
            running = [asyncio.create_task(AsyncScheduler(each).run()) for each in brokers]
            say("runs")
            await asyncio.gather(*running)

    asyncio.run(run())


def finishers(url: str, fleet: str, herd: str, agent: str, token: str, task: str, n: str) -> None:
    """As many processes, which all say at once that the task is done, each with its own words."""
    fork = multiprocessing.get_context("fork")
    line, results = fork.Barrier(int(n)), fork.SimpleQueue()

    def finish(number: int) -> None:
        with Broker.connect(url, fleet=fleet) as broker:
            child = broker.join(herd, agent, token)
            assert isinstance(child, Child)
            line.wait(30)
            settled = child.done(task, "completed", summary=f"by process {number}")
            results.put([number, settled.summary])

    processes = [fork.Process(target=finish, args=(number,)) for number in range(int(n))]
    for process in processes:
        process.start()
    say("results", json.dumps([results.get() for _ in processes]))
    for process in processes:
        process.join()


PROGRAMS: dict[str, Callable[..., Any]] = {
    program.__name__: program
    for program in (
        handler,
        laborer,
        one_by_one,
        gatherer,
        forker,
        async_forker,
        interrupted,
        asker,
        worker,
        answerer,
        asks,
        scheduler,
        schedulers,
        many_schedulers,
        finishers,
    )
}

if __name__ == "__main__":
    PROGRAMS[sys.argv[1]](*sys.argv[2:])
