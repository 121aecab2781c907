"""Messages, questions, answers, and taking mail: one at a time, and a hundred in a round trip."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from benchmarks import bare
from benchmarks.fleets import QUESTION, Herd, message, open_herds, open_tasks
from benchmarks.measuring import Options, Place, medians, place, show, times
from tocsin.broker import inbox, requests
from tocsin.broker.ids import make_id
from tocsin.broker.scripts import Call

SINGLE = 300
"""Calls, one after the other, in one run."""

MANY = 5_000
"""Calls by hundreds, and messages taken by hundreds, in one run."""

BATCH = 100

Made = Callable[[], Call[Any]]


def _one_by_one(here: Place, make: Made) -> Callable[[], None]:
    def work() -> None:
        for _ in range(SINGLE):
            here.broker.run(make())

    return work


def _by_hundreds(here: Place, make: Made) -> Callable[[], None]:
    def work() -> None:
        for _ in range(MANY // BATCH):
            here.broker.link.run_many([make() for _ in range(BATCH)])

    return work


def _bare(here: Place, command: Callable[[], Sequence[Any]], many: bool) -> Callable[[], None]:
    client: Any = here.plain

    def one_by_one() -> None:
        for _ in range(SINGLE):
            client.execute_command(*command())

    def by_hundreds() -> None:
        for _ in range(MANY // BATCH):
            pipeline = client.pipeline(transaction=False)
            for _ in range(BATCH):
                pipeline.execute_command(*command())
            pipeline.execute()

    return by_hundreds if many else one_by_one


def _questions(here: Place, herd: Herd, answered: list[str], runs: int) -> tuple[Made, Made]:
    """Makers of calls that open a question on a task of its own, and that answer it."""
    tasks = open_tasks(here.broker, [herd] * (runs * (SINGLE + MANY)))
    todo = iter(tasks)

    def ask() -> Call[Any]:
        scout, task = next(todo)
        call = message(scout, "planner", task, asks=True)
        answered.append(call.args[call.script.args.index("message")])
        return call

    def answer() -> Call[Any]:
        return requests.reply(herd.planner, answered.pop(), QUESTION, key=None, data=None)

    return ask, answer


def _sending(options: Options) -> Iterator[list[str]]:
    with place() as here:
        needed = options.runs * (SINGLE + MANY)
        herd = open_herds(here.broker, 1, needed)[0]
        load = here.plain.script_load
        sent, replied = load(bare.SEND), load(bare.REPLY)
        ask, answer = _questions(here, herd, [], options.runs)

        def bare_send() -> Sequence[Any]:
            sender, to = herd.parent.agent, herd.planner.agent
            return "EVALSHA", sent, 1, "bare", make_id("msg"), sender, to, QUESTION, 1767225600000

        def bare_reply() -> Sequence[Any]:
            ids = make_id("msg"), make_id("msg")
            return "EVALSHA", replied, 1, "bare", *ids, "scout-0", QUESTION

        for many in (False, True):
            ours = _by_hundreds if many else _one_by_one
            works = {
                "bare PING": _bare(here, lambda: ("PING",), many),
                "bare HSET + ZADD + XADD": _bare(here, bare_send, many),
                "bare answer": _bare(here, bare_reply, many),
                "message": ours(here, lambda: message(herd.parent, "planner")),
                "question on a task": ours(here, ask),
                "reply": ours(here, answer),
            }
            took = medians(options.runs, works)
            calls = MANY if many else SINGLE
            for name, each in took.items():
                beside = "bare answer" if name == "reply" else "bare HSET + ZADD + XADD"
                ratio = "" if name.startswith("bare") else times(each, took[beside])
                how = "by hundreds" if many else "one by one"
                yield [name, how, f"{each / calls * 1e6:,.0f} us", ratio]


def _taking(options: Options) -> Iterator[list[str]]:
    with place() as here:
        herd = open_herds(here.broker, 1)[0]
        stream, group, reader = "bare:inbox", "agent", "inst"
        here.plain.xgroup_create(stream, group, "0", mkstream=True)

        def fill_bare() -> None:
            pipeline = here.plain.pipeline(transaction=False)
            for _ in range(MANY):
                fields: Any = {"m": make_id("msg"), "sender": "parent", "body": QUESTION}
                pipeline.xadd(stream, fields)
            pipeline.execute()

        def take_bare() -> None:
            while got := here.plain.xreadgroup(group, reader, {stream: ">"}, BATCH):
                answer: Any = got
                ids = [entry[0] for entry in answer[0][1]]
                here.plain.xack(stream, group, *ids)
                here.plain.xdel(stream, *ids)

        def take() -> None:
            while True:
                taken = here.broker.run(inbox.take(herd.planner, "receive", "receive", BATCH))
                if not taken.mail:
                    return
                here.broker.run(inbox.ack(herd.planner, taken.mail))

        works = {
            "fill": _by_hundreds(here, lambda: message(herd.parent, "planner")),
            "fill bare": fill_bare,
            "bare XREADGROUP + XACK + XDEL": take_bare,
            "take + ack": take,
        }
        took = medians(options.runs, works)
        bare_took = took["bare XREADGROUP + XACK + XDEL"]
        for name in ("bare XREADGROUP + XACK + XDEL", "take + ack"):
            ratio = "" if name.startswith("bare") else times(took[name], bare_took)
            yield [name, "by hundreds", f"{took[name] / MANY * 1e6:,.0f} us", ratio]


def run(options: Options) -> None:
    """Sends, asks, answers, takes and acks."""
    show(
        options.console,
        f"mail: one call, and {MANY:,} by hundreds, of which each takes",
        ["what", "how", "each", "ratio"],
        [*_sending(options), *_taking(options)],
    )
