"""The processes of a run: agents that send, handle and keep a log of both, and schedulers.

Each process appends to the log of its place (`scout-0.log`): one line, one write, before the act
that it tells of. A SIGKILL takes nothing of what was written (only a crash of the machine could),
so a line that says `took` was there before the mail was acked.
"""

from __future__ import annotations

import json
import logging
import os
import random
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import timedelta
from multiprocessing import connection, parent_process
from pathlib import Path
from typing import Any, NoReturn, TypeVar

from tests.acceptance.chaos.grounds import go_by
from tests.acceptance.chaos.plan import Intent, agent_of, flood, intents
from tocsin.broker import Broker, Child, Envelope, Parent, Reply, Turn
from tocsin.broker.errors import BrokerError, Unavailable, WrongState
from tocsin.broker.urls import Node
from tocsin.scheduler import Scheduler

T = TypeVar("T")

DRAIN, END = "drain", "end"
"""Files in the run's folder: nothing new is begun, and everybody leaves."""

BATCH = 20
SLOW = 0.3


@dataclass(frozen=True)
class Stage:
    """Where a run takes place, for a process that joins in."""

    folder: str
    fleet: str
    herd: str
    tokens: dict[str, str]
    seed: int
    durability: str | None = None


Way = tuple[str, dict[Node, Node]]
"""The url that a process connects to, and its lines: see `grounds.Lines`."""


class Log:
    """The log of a place, over the lives of the processes in it."""

    def __init__(self, folder: str, slot: str, life: int = 0) -> None:
        self.path = Path(folder, f"{slot}.log")
        self._file = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        self._always = {"slot": slot, "life": life}

    def __call__(self, event: str, **fields: Any) -> None:
        line = {"t": round(time.monotonic(), 4), "event": event} | self._always | fields
        os.write(self._file, (json.dumps(line) + "\n").encode())


def read_log(path: Path) -> list[dict[str, Any]]:
    """The lines of a log, in order."""
    if not path.exists():
        return []
    return [json.loads(line) for line in path.read_text("utf-8").splitlines()]


class Spoilt(Exception):
    """What a handler raises over mail that tells it to."""


class Actor:
    """One process of an agent: an outbox that means things, and a handler of mail."""

    def __init__(self, stage: Stage, slot: str, url: str, life: int) -> None:
        self.stage = stage
        self.slot = slot
        self.log = Log(stage.folder, slot, life)
        self.broker = Broker.connect(url, fleet=stage.fleet, durability=stage.durability)
        self.agent: Parent | Child
        self.ending = False
        lines = read_log(self.log.path)  # of the processes before it in this place
        self.begun = {line["key"] for line in lines if self.of_outbox(line)}
        self.ended = {line["key"] for line in lines if line["event"] in ENDS}
        self.tasks = {line["key"]: line["task"] for line in lines if delegated(line)}
        self.debts = [line for line in lines if line["event"] == "owes"]

    def of_outbox(self, line: dict[str, Any]) -> bool:
        """Whether a line tells of an intent of this place, which must have its answer."""
        return bool(line["event"] == "meant" and line["key"].startswith(f"{self.slot}:"))

    def told(self, word: str) -> bool:
        """Whether everybody was told to drain, or to end."""
        return Path(self.stage.folder, word).exists()

    def run(self) -> None:
        """Lives until it is told to end, or ended."""
        with self.broker:
            self.agent = self.patiently(self.join)
            self.log("joined", instance=self.agent.instance)
            if self.slot.startswith("flood"):
                self.send(flood(self.stage.seed, self.slot))
            else:
                threading.Thread(target=self.guard, args=(self.outbox,), daemon=True).start()
                self.handle_mail()
        self.log("left")

    def join(self) -> Parent | Child:
        name = agent_of(self.slot)
        return self.broker.join(self.stage.herd, name, self.stage.tokens[name])

    def guard(self, work: Callable[[], None]) -> None:
        """A thread whose failure is the failure of its process."""
        try:
            work()
        except Exception:
            if not self.ending:  # or its broker was closed under it
                self.log("crashed", error=traceback.format_exc())
                os._exit(1)

    def end(self, *_: object) -> NoReturn:
        """SIGTERM: leaves in an orderly way, from wherever it is."""
        self.ending = True
        sys.exit()

    # ------------------------------------------------------------------------ calls

    def patiently(self, call: Callable[[], T], **what: Any) -> T:
        """The answer to a call, repeated while it is unknown whether it took effect."""
        while True:
            try:
                return call()
            except Unavailable:
                self.log("unknown", **what)
                time.sleep(random.uniform(0.02, 0.3))

    def mean(self, key: str, operation: str, call: Callable[[], T], **what: Any) -> T | None:
        """Does one thing: logs what is meant, and what came of it. None if it was refused."""
        what |= {"key": key, "operation": operation}
        self.log("meant", **what)
        try:
            result = self.patiently(call, **what)
        except BrokerError as refusal:
            self.log("refused", **what, code=refusal.code, detail=refusal.detail)
            return None
        finally:
            self.ended.add(key)
        said = {name: getattr(result, name) for name in TOLD if hasattr(result, name)}
        self.log("answered", **what, said=said)
        return result

    # ------------------------------------------------------------------------ the outbox

    def outbox(self) -> None:
        """Goes on where the process before it in this place ended."""
        self.send(intents(self.stage.seed, self.slot))
        while not self.told(END):
            self.pay()
            self.log("idle")
            time.sleep(0.2)

    def send(self, meant: Iterable[Intent]) -> None:
        floods = self.slot.startswith("flood")
        for intent in meant:
            if intent.key in self.ended:
                continue
            drains = not floods and self.told(DRAIN)
            if drains and not self.begun - self.ended:
                return
            if drains and intent.key not in self.begun:
                continue
            self.do(intent)
            self.pay()
            time.sleep(0 if drains else intent.pause)

    def do(self, intent: Intent) -> None:
        key, to, options = intent.key, intent.to, dict(intent.options)
        body = json.dumps(intent.body | {"key": key})
        parent: Any = self.agent
        if intent.operation in ("cancel", "watch"):
            task = self.tasks.get(to)
            if task is not None:
                call = parent.cancel if intent.operation == "cancel" else parent.watch
                self.mean(key, intent.operation, lambda: call(task), task=task)
            return
        if intent.operation == "ask":
            if key in self.begun:  # who asked was killed, and nobody asks again: it comes as mail
                self.log("abandoned", key=key)
                self.ended.add(key)
            else:
                self.ask(key, body)
            return
        within = timedelta(minutes=options.pop("minutes")) if "minutes" in options else None
        if intent.operation == "delegate":
            task = self.agent.caller.new_id("task", "delegate", key)
            options |= {"deadline": within, "key": key}
            self.tasks[key] = task
            self.mean(
                key,
                "delegate",
                lambda: parent.delegate(to, body, **options),
                task=task,
                does=intent.body["do"],
            )
        else:
            if intent.operation == "request":
                options |= {"expects_reply": True, "reply_within": within}
            self.message(key, to, body, **options)

    def message(self, key: str, to: str, body: str, **options: Any) -> None:
        message = self.agent.caller.new_id("msg", "message", key)
        self.mean(
            key,
            "message",
            lambda: self.agent.message(to, body, key=key, **options),
            message=message,
        )

    def ask(self, key: str, question: str, task: str | None = None) -> Reply | None:
        return self.mean(
            key,
            "ask",
            lambda: self.agent.ask("planner", question, task=task, key=key),
            message=self.agent.caller.new_id("msg", "ask", key),
        )

    def pay(self) -> None:
        """Sends the answers that are owed by now; when all is drained, all of them."""
        now, drains = time.monotonic(), self.told(DRAIN)
        for line in list(self.debts):
            if line["due"] <= now or drains:
                if line["key"] not in self.ended:
                    self.reply(line["message"], line["key"], line["body"])
                self.debts.remove(line)

    def reply(self, request: str, key: str, body: str) -> None:
        self.mean(
            key,
            "reply",
            lambda: self.agent.reply(request, body, key=key),
            request=request,
            message=self.agent.caller.new_id("msg", "reply", key),
        )

    # ------------------------------------------------------------------------ the handler

    def handle_mail(self) -> None:
        while not self.told(END):
            turn = self.patiently(lambda: self.agent.next_turn(timeout=0.5, limit=BATCH))
            if turn is None:  # what does not wake, too
                turn = self.patiently(lambda: self.agent.receive(limit=BATCH))
            if len(turn):
                self.handle(turn)

    def handle(self, turn: Turn) -> None:
        ids = [envelope.message_id for envelope in turn]
        instance = self.agent.instance
        self.log("took", messages=ids, instance=instance, kinds=[e.kind.value for e in turn])
        good = []
        for envelope in turn:
            try:
                self.on(envelope)
            except Spoilt:
                continue
            good.append(envelope.message_id)
        spoilt = [message for message in ids if message not in good]
        if spoilt:
            if good:
                self.ack_some(good)
            self.patiently(lambda: turn.nack(error="told to raise"), key=f"nack {spoilt[0]}")
            self.log("nacked", messages=spoilt, instance=instance)
            return
        self.patiently(turn.ack, key=f"ack {ids[0]}")
        self.log("acked", messages=ids, fenced=list(turn.fenced), instance=instance)

    def ack_some(self, messages: list[str]) -> None:
        """Acks a part of a turn, by its ids; nothing if they were handed back meanwhile."""
        try:
            self.patiently(lambda: self.agent.ack(*messages), key=f"ack {messages[0]}")
        except WrongState:
            self.log("fenced", messages=messages)
        else:
            self.log("acked some", messages=messages)  # by whose handling, it is not told

    def on(self, envelope: Envelope) -> None:
        """Handles one envelope. Whatever it sends has a key of this envelope's."""
        if envelope.kind == "task":
            self.work(envelope)
        elif envelope.kind == "reply" and envelope.task_id and isinstance(self.agent, Child):
            self.done(envelope.task_id, "completed")
        elif envelope.kind in ("message", "request"):
            told = json.loads(envelope.body)
            if told["do"] == "raise":
                raise Spoilt
            if told["do"] == "slow":
                time.sleep(SLOW)
            if envelope.kind == "request":
                self.answer(envelope.message_id, told)

    def answer(self, message: str, told: dict[str, Any]) -> None:
        how, key, body = told["answer"], f"{message}:answer", json.dumps({"to": told["key"]})
        if how == "owed":
            due = time.monotonic() + told["after"]
            owes = {"key": key, "message": message, "due": due, "body": body}
            self.log("owes", **owes)
            self.debts.append(owes)
        elif how != "never":
            if how == "slow":
                time.sleep(SLOW)
            self.reply(message, key, body)

    def work(self, envelope: Envelope) -> None:
        assert envelope.task_id is not None
        told, task, message = json.loads(envelope.body), envelope.task_id, envelope.message_id
        does, key = told["do"], f"{message}:asks"
        question = json.dumps({"do": "answer", "key": key} | told["asks"])
        if does == "raise":
            raise Spoilt
        if does == "do":
            self.done(task, "completed")
        elif does == "fail":
            self.done(task, "failed")
        elif does == "ask":
            if self.ask(key, question, task) is not None:
                self.done(task, "completed")
        elif does != "lapse":
            within = {"deadline": timedelta(minutes=2)}.get(does, timedelta(0))
            options: Any = {"expects_reply": True, "reply_within": within}
            self.message(key, "planner", question, task=task, **options)

    def done(self, task: str, outcome: str) -> None:
        child: Any = self.agent
        self.mean(
            f"{task}:{outcome}",
            "done",
            lambda: child.done(task, outcome, summary=f"{outcome} {task}"),
            task=task,
            outcome=outcome,
        )


ENDS = ("answered", "refused", "abandoned")

TOLD = ("message_id", "duplicate", "superseded", "late", "status")
"""What of an answer its log line tells."""


def delegated(line: dict[str, Any]) -> bool:
    """Whether a line of a log says that a task was meant to be delegated."""
    return bool(line["event"] == "meant" and line["operation"] == "delegate")


def act(stage: Stage, slot: str, way: Way, life: int) -> None:
    """The main function of a process of an agent."""
    url = _be_a_process(stage, slot, way)
    actor = Actor(stage, slot, url, life)
    signal.signal(signal.SIGTERM, actor.end)
    try:
        actor.run()
    except Exception:
        actor.log("crashed", error=traceback.format_exc())
        raise


def schedule(stage: Stage, slot: str, way: Way, life: int) -> None:
    """The main function of a process that is a scheduler."""
    url = _be_a_process(stage, slot, way)
    log = Log(stage.folder, slot, life)
    try:
        with Broker.connect(url, fleet=stage.fleet) as broker:
            scheduler = Scheduler(broker)
            signal.signal(signal.SIGTERM, lambda *_: scheduler.stop())
            log("joined", instance=scheduler.name)
            scheduler.run()
    except Exception:
        log("crashed", error=traceback.format_exc())
        raise
    log("left")


def _be_a_process(stage: Stage, slot: str, way: Way) -> str:
    """Says what it has to say in a file, and ends with the driver, whatever ends that. Its url."""
    url, routes = way
    go_by(routes)
    output = os.open(Path(stage.folder, f"{slot}.out"), os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    for stream in (1, 2):
        os.dup2(output, stream)
    logging.basicConfig(level=logging.WARNING, format="%(asctime)s %(message)s", force=True)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the driver's to hear
    driver = parent_process()
    assert driver is not None

    def watch() -> None:
        connection.wait([driver.sentinel])
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()
    return url
