"""One story through every script, so that tests can look at what the scripts did.

`tell` plays it on a server with a manual clock; `heard` is what each script answered with.
"""

from __future__ import annotations

import json
from collections import defaultdict
from contextlib import suppress
from datetime import timedelta
from typing import Any

import pytest

from tocsin.broker import (
    Broker,
    CommandRunner,
    HerdSettings,
    ManualClock,
    agents,
    alerts,
    asks,
    dead,
    errors,
    failures,
    herds,
    inbox,
    plans,
    processes,
    requests,
    scripts,
    timers,
    turns,
)
from tocsin.broker._sync import link
from tocsin.broker.ids import make_token
from tocsin.broker.records import decode
from tocsin.broker.testing import lapse
from tocsin.scheduler import Scheduler

Heard = dict[str, set[str]]


def listen(patch: pytest.MonkeyPatch) -> Heard:
    """The first words that each script answers with from now on."""
    heard: Heard = defaultdict(set)

    def read(call: scripts.Call[Any], answer: Any) -> Any:
        heard[call.script.name].add(decode(answer)[0])
        return failures.read(call, answer)

    patch.setattr(link, "read", read)
    return heard


def refused(code: str, operation: Any, *args: Any, **options: Any) -> None:
    """The operation is refused with this code."""
    with pytest.raises(errors.BrokerError) as refusal:
        operation(*args, **options)
    assert refusal.value.code == code


def tell(url: str, fleet: str) -> None:
    """Plays it: each operation well, again, and refused where it can be."""
    clock = ManualClock()
    with Broker.connect(url, fleet=fleet, clock=clock) as broker:
        scheduler = Scheduler(broker)
        parent = broker.open_herd("release")
        with Broker.connect(url, fleet=fleet, clock=clock) as other:
            other.open_herd("release", token=parent.token, settings=HerdSettings(max_attempts=2))
            _agents(broker, parent)
            scout = broker.join("release", "scout", parent.rotate("scout").token or "")
            planner = broker.join("release", "planner", parent.rotate("planner").token or "")
            _mail(parent, scout, planner)
            _asks(parent, scout, planner, clock, scheduler)
            _sessions(parent, planner)
            _tasks(parent, scout, planner, clock, scheduler)
            _losses(broker, parent, scout, clock, scheduler)
            _dead_letters(broker, parent, scout)
            _plans(broker, parent, clock, scheduler)
            _alerts(broker, parent, clock, scheduler)
            _between_herds(broker, parent, scheduler)
            _under(broker, scout, scheduler)
            _turns(broker, parent, clock)
            _views(broker, parent, scheduler)
        _endings(broker, parent, clock, scheduler)


def _agents(broker: Broker, parent: Any) -> None:
    for name in ("scout", "planner", "tester"):
        parent.register(name, role="researcher", label=name.title())
    parent.register("scout", exist_ok=True)
    refused("agent_exists", parent.register, "scout")
    refused("herd_exists", broker.open_herd, "release")
    refused("unknown_herd", broker.join, "nowhere", "scout", make_token())
    refused("unauthorized", broker.join, "release", "scout", make_token())
    parent.set_settings(HerdSettings(receipt_retention=timedelta(minutes=30)))


def _mail(parent: Any, scout: Any, planner: Any) -> None:
    scout.set_status("working")
    scout.progress("half of it", 0.5)
    sent = scout.message("planner", "a question", expects_reply=True, key="k")
    scout.message("planner", "a question", expects_reply=True, key="k")
    refused("duplicate_conflict", scout.message, "planner", "another", key="k")
    reminder = requests.remind(parent.caller, sent.message_id)
    for _ in range(2):
        parent.broker.run(reminder)
    parent.reroute(sent.message_id, "tester")
    parent.reroute(sent.message_id, "tester")
    planner.receive().nack(delay=timedelta(seconds=1))
    planner.receive()
    planner.reply(sent.message_id, "an answer")
    planner.reply(sent.message_id, "an answer")
    planner.reply(sent.message_id, "another answer")
    given_up = scout.message("planner", "never mind", expects_reply=True)
    scout.cancel_request(given_up.message_id)
    scout.cancel_request(given_up.message_id)
    planner.reply(given_up.message_id, "still")
    assert scout.inbox()
    scout.receipt(sent.message_id)
    turn = scout.next_turn(timeout=0)
    turn.ack()
    turn.ack()
    assert scout.next_turn(timeout=0) is None


def _asks(parent: Any, scout: Any, planner: Any, clock: ManualClock, scheduler: Scheduler) -> None:
    def ask(key: str, call: str = "call_1", totals: int = 0) -> asks.Outcome:
        opened = asks.open_ask(
            scout.caller,
            "planner",
            key,
            request=scout.caller.new_id("msg", "ask", key),
            call=call,
            task=None,
            window=timedelta(minutes=10),
            ceiling=timedelta(minutes=15),
            totals=json.dumps({"transcript": totals}),
            thread=None,
            data=None,
        )
        outcome: asks.Outcome = scout.broker.run(opened)
        return outcome

    def look(key: str) -> asks.Outcome:
        request = scout.caller.new_id("msg", "ask", key)
        outcome: asks.Outcome = scout.broker.run(asks.look(scout.caller, request, "call_1", ""))
        return outcome

    def confirm(key: str) -> str | None:
        request = scout.caller.new_id("msg", "ask", key)
        elsewhere: str | None = scout.broker.run(asks.confirm(scout.caller, request, "call_1"))
        return elsewhere

    one, two, three = (scout.caller.new_id("msg", "ask", key) for key in ("one", "two", "three"))
    assert not planner.probe({"transcript": 5})
    assert isinstance(ask("one"), asks.Pending) and isinstance(look("one"), asks.Pending)
    refused("loop_limit", planner.ask, "scout", "and you?")
    planner.reply(one, "answered")
    assert ask("one").body == look("one").body == "answered"  # type: ignore[union-attr]
    assert confirm("one") is None
    for key in ("two", "three"):
        ask(key)
    scout.broker.run(asks.leave(scout.caller, two, "call_1", told=False))
    planner.reply(two, "answered")
    scout.receive()
    assert confirm("two") == scout.instance
    clock.advance(timedelta(minutes=9))
    assert planner.probe({"transcript": 6})
    clock.advance(timedelta(minutes=6))
    assert scheduler.tick()["ceilings"] == 1
    assert isinstance(look("three"), asks.Ended) and isinstance(ask("three"), asks.Ended)
    refused("ceiling_active", scout.ask_wait, three)
    for turn in (scout.receive(), planner.receive()):
        turn.ack()


def _sessions(parent: Any, planner: Any) -> None:
    sent = parent.message("planner", "look here")
    planner.report_session("pi", "one", "started", ["send-user-message"])
    assert planner.report_session("pi", "two", "working", ["send-user-message"])
    assert [each.message_id for each in planner.look()] == [sent.message_id]
    planner.report_wake("send-user-message", True, [sent.message_id], "sent it")
    planner.receive().ack()
    for session in ("one", "two"):
        planner.report_session("pi", session, "ended")
    parent.receive().ack()


def _tasks(parent: Any, scout: Any, planner: Any, clock: ManualClock, scheduler: Scheduler) -> None:
    one = parent.delegate("scout", "the first", watch=True, key="first")
    parent.delegate("scout", "the first", watch=True, key="first")
    refused("agent_busy", parent.delegate, "scout", "the second")
    two = parent.delegate("scout", "the second", queue=True)
    parent.watch(one.id, two.id, wake="all")
    scout.receive().ack()
    question = scout.message("planner", "which?", task=one.id, expects_reply=True)
    clock.advance(timedelta(minutes=6))
    assert scheduler.tick()["reminders"] == 1
    parent.receive().ack()
    refused("pending_requests", scout.done, one.id)
    for about in (one, two.id, question.message_id, f"msg_reminder_{one.id[5:]}_1", "planner"):
        assert parent.why(about).links
    planner.reply(question.message_id, "that one")
    scout.done(one.id, summary="found")
    scout.done(one.id, summary="found")
    scout.done(one.id, summary="otherwise")
    parent.cancel(one.id)
    scout.message("planner", "and?", task=two.id, expects_reply=True)
    clock.advance(timedelta(minutes=21))
    assert scheduler.tick()["reply_deadlines"] == 1
    three = parent.delegate("scout", "the third", continues=two.id)
    parent.cancel(three.id, reason="enough")
    four = parent.delegate("scout", "the fourth")
    clock.advance(timedelta(hours=25))
    assert scheduler.tick()["task_deadlines"] == 1
    ended = {task.id: str(task.state) for task in scout.tasks()}
    assert [ended[task.id] for task in (one, two, three, four)] == [
        "completed",
        "blocked",
        "cancelled",
        "timed_out",
    ]
    assert parent.watch(four.id)[0].return_code == 124


def _losses(
    broker: Broker, parent: Any, scout: Any, clock: ManualClock, scheduler: Scheduler
) -> None:
    clock.advance(timedelta(hours=1))
    scheduler.tick()
    doomed = parent.delegate("tester", "too heavy")
    seat = parent.rotate("tester")
    for _ in range(2):
        tester = broker.join("release", "tester", seat.token or "")
        tester.receive()
        lapse(tester)
    assert parent.task(doomed.id).state == "failed"
    for number in range(120):
        parent.message("tester", f"note {number}")
    tester = broker.join("release", "tester", seat.token or "")
    while tester.receive():
        pass
    broker.run(agents.renew(tester.caller))
    tester.leave()
    # An ack of what another took by then is fenced.
    first, second = (broker.join("release", "tester", seat.token or "") for _ in "12")
    held = broker.run(inbox.take(first.caller, "receive", "receive", 10))
    first.leave()
    second.receive()
    assert broker.run(inbox.ack(first.caller, held.mail)).fenced


def _alerts(broker: Broker, parent: Any, clock: ManualClock, scheduler: Scheduler) -> None:
    def take() -> list[alerts.Alert]:
        fleet = broker.fleet()
        key = fleet.partition("release")
        return broker.run(alerts.take(fleet, key, 10, timedelta(minutes=1))).alerts

    assert take() == []  # from here on they are noted
    parent.register("watcher")
    asked = parent.message("watcher", "anybody there?", expects_reply=True)
    [found] = take()
    assert (found.event, found.facts["body"]) == ("unheard", "anybody there?")
    assert take() == []
    assert broker.run(alerts.end(broker.fleet(), found, timedelta(0))) == "again"
    [again] = take()
    assert (again.id, again.tries) == (found.id, 2)
    assert broker.run(alerts.end(broker.fleet(), again)) == "ended"
    parent.cancel_request(asked.message_id)


def _dead_letters(broker: Broker, parent: Any, scout: Any) -> None:
    sent = [parent.message("scout", text).message_id for text in ("one", "two", "three")]
    for _ in range(2 * len(sent)):  # what has failed before is taken alone
        scout.receive().nack(error="broke")
    assert {letter.message_id for letter in parent.dead_letters()} >= set(sent)
    assert parent.dead_letter(sent[0]).body == "one"
    replay, drop = dead.replay(parent.caller, sent[0]), dead.drop(parent.caller, sent[1])
    for _ in range(2):
        broker.run(replay)
        broker.run(drop)
    scout.receive()
    back = dead.hand_back(parent.caller, sent[0])
    broker.run(back)
    broker.run(back)
    held = broker.run(inbox.take(scout.caller, "receive", "receive", 10)).mail
    unread = errors.InvalidEnvelope("receive", "it cannot be read")
    spoilt = [inbox.Spoilt(mail.envelope.message_id, mail.entry, unread) for mail in held]
    broker.run(inbox.bury(scout.caller, "receive", spoilt))
    parent.receive().ack()


def _plans(broker: Broker, parent: Any, clock: ManualClock, scheduler: Scheduler) -> None:
    fleet = broker.fleet()
    parent.register("watcher")
    hourly = parent.plan("watcher", "look", every=timedelta(hours=1), key="hourly")
    parent.plan("watcher", "look", every=timedelta(hours=1), key="hourly")
    refused("duplicate_conflict", parent.plan, "watcher", "look", cron="0 * * * *", key="hourly")
    once = parent.plan("watcher", "once", at=clock.now() + timedelta(minutes=30), queue=False)
    parent.run_plan(hourly.id, key="now")
    parent.run_plan(hourly.id, key="now")
    clock.advance(timedelta(hours=1))
    look = plans.look(fleet, fleet.partition("release"), 10)
    calls = [plans.fire(fleet, due, clock.now()) for due in broker.run(look).due]
    assert [broker.run(call)[0] for call in (*calls, *calls)] == ["fired", "fired", "past", "past"]
    assert parent.plan_record(once.id).state == "ended"
    for change in (parent.pause_plan, parent.resume_plan):
        change(hourly.id)
        change(hourly.id)
    parent.set_settings(HerdSettings(inbox_limit=1))
    clock.advance(timedelta(hours=1))
    assert scheduler.tick()["plans_put_off"] == 1
    parent.set_settings(HerdSettings(inbox_limit=1000))
    parent.close("watcher")
    clock.advance(timedelta(hours=1))
    assert scheduler.tick()["plans_paused"] == 1
    assert [plan.state for plan in parent.plans()] == ["paused"]
    parent.remove_plan(hourly.id)
    parent.remove_plan(hourly.id)
    for _ in range(2):
        broker.run(plans.take_chore(fleet, "sweeping", clock.now()))
    parent.receive().ack()


def _between_herds(broker: Broker, parent: Any, scheduler: Scheduler) -> None:
    other = broker.open_herd("other", settings=HerdSettings(accepts_from=("release",)))
    for to in ("other/parent", "nobody/parent"):
        parent.message(to, "hello", key=to)
        assert parent.message(to, "hello", key=to).duplicate
    assert scheduler.tick() == {"forwarded": 1, "forwards_refused": 1}
    other.receive().ack()
    assert scheduler.tick() == {"news": 1}
    other.close_herd()


def _under(broker: Broker, scout: Any, scheduler: Scheduler) -> None:
    below = scout.open_herd("below")
    assert scheduler.tick() == {"ties": 1}
    below.register("worker")
    (tree,) = (each for each in broker.tree() if each.herd == "release")
    assert [(each.herd, each.tie) for each in tree.herds] == [("below", "tied")]


def _turns(broker: Broker, parent: Any, clock: ManualClock) -> None:
    for runner in (CommandRunner(["code"]), None, CommandRunner(["code"], account="acme")):
        parent.register("coder", exist_ok=True, runner=runner)
        parent.set_runner("coder", runner)
    fleet, task = broker.fleet(), parent.delegate("coder", "write it")
    clock.advance(timedelta(seconds=5))
    broker.run(timers.visit(fleet, "release", 100))
    [first] = broker.run(turns.due(fleet, fleet.partition("release"), 10)).turns
    broker.limit_turns("account/acme", 1)
    assert broker.run(turns.take_slots(fleet, [], [first])).full == [""]
    for word in ("launched", "over"):
        assert broker.run(turns.launched(fleet, first)) == word
    assert len(broker.turn_slots()) == 3
    assert broker.run(turns.count(fleet, fleet.partition("release"))) == (0, 0, 1)
    one = broker.claim_turn("release", "coder", first.number)
    assert one is not None and broker.claim_turn("release", "coder", first.number) is None
    assert one.child.receive() and not one.wait_stop(0)
    parent.cancel(task.id)
    assert one.wait_stop(0)
    for _ in range(2):
        assert one.end(turns.Ending(kind=turns.How.STOPPED)).decision == "stopped"
    assert one.wait_stop(0)
    parent.message("coder", "hello")
    two = broker.claim_turn("release", "coder", first.number + 1)
    assert two is not None and two.child.receive()
    lapse(two.child)
    assert two.end(turns.Ending(kind=turns.How.EXITED, exit_code=0)).decision == "over"
    freed = broker.run(turns.due(fleet, fleet.partition("release"), 10)).freed
    broker.run(turns.take_slots(fleet, freed, []))
    broker.run(turns.freed(fleet, fleet.partition("release"), freed))


def _views(broker: Broker, parent: Any, scheduler: Scheduler) -> None:
    for look in (parent.herd_record, parent.roster, parent.journal, parent.tasks):
        assert look()
    broker.herds()
    fleet = broker.fleet()
    broker.run(processes.report(fleet.name, scheduler.name, {"pid": 1}))
    broker.run(processes.report(fleet.name, scheduler.name, None))
    assert broker.run(processes.instances(fleet, "release")).instances


def _endings(broker: Broker, parent: Any, clock: ManualClock, scheduler: Scheduler) -> None:
    for number in range(150):
        parent.message("planner", f"unread {number}")
    parent.delegate("planner", "never begun")
    parent.close("planner", reason="not needed")
    parent.close("planner")
    parent.register("planner")
    for number in range(150):
        parent.message("planner", f"unread {number}")
    while not broker.run(herds.close_herd(parent.caller)):
        scheduler.tick()
    with suppress(errors.HerdClosed):
        parent.receive()
    clock.advance(timedelta(days=30))
    scheduler.tick()
    refused("unknown_herd", parent.herd_record)
