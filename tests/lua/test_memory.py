"""A server whose memory is full: what frees it goes on, what fills it is refused (case 19)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta

import pytest
import redis

from tests.asking import opening
from tocsin.broker import (
    Broker,
    Child,
    CommandRunner,
    HerdSettings,
    ManualClock,
    Parent,
    errors,
    outbox,
    plans,
    scripts,
    timers,
)
from tocsin.broker.embedded import EmbeddedServer
from tocsin.scheduler import Scheduler
from tocsin.scheduler._sync import forwarding

ENDS_WORK = {
    "inbox_take",
    "inbox_show",
    "inbox_ack",
    "inbox_nack",
    "request_reply",
    "request_cancel",
    "task_done",
    "task_cancel",
    "agent_close",
    "herd_close",
    "ask_look",
    "ask_confirm",
    "ask_leave",
    "inbox_bury",
    "dead_drop",
    "message_hand_back",
    "plan_pause",
    "plan_remove",
}
"""What takes mail in and brings work to its end."""

KEEPS_ALIVE = {
    "fleet_open",
    "instance_join",
    "instance_renew",
    "instance_leave",
    "session_report",
}
"""Without these no process could come and end anything."""

AT_WORK = {"agent_probe", "agent_progress", "scheduler_report", "chore_take"}
"""Without these who works in a full memory would be taken for silent or dead, or do it twice."""

TELLS = {"alerts_take", "alert_end"}
"""What tells a human, and frees what was kept for that."""

FORWARDS = {"outbox_take", "outbox_note", "outbox_hear"}
"""What takes mail out of the outbox again (taking it in is refused, and it waits), and what ends
herds under herds."""

TURNS = {"turn_claim", "turn_look", "turn_end"}
"""Without these no turn could end anything."""

LAUNCHES = {
    "turns_count",
    "turns_due",
    "turns_freed",
    "turn_launched",
    "slots_take",
    "slots_set",
    "slots_read",
}
"""What brings turns to their workers, and takes no more than it gives back."""

LOOKS = {
    "dead_list",
    "dead_read",
    "herd_instances",
    "herd_list",
    "herd_read",
    "inbox_look",
    "journal_read",
    "message_read",
    "plan_list",
    "plans_due",
    "roster",
    "task_list",
    "task_read",
    "tie_read",
    "timers_due",
    "why",
}
"""What writes nothing but the partition's clock."""


@dataclass
class Full:
    """A herd on a server, and the memory of that server."""

    parent: Parent
    scout: Child
    planner: Child
    clock: ManualClock
    broker: Broker
    client: redis.Redis
    plan: str
    """A plan, which is paused."""
    due: plans.DuePlan
    """Another, as a scheduler finds it."""

    def fill(self) -> None:
        """From here on the server has more in its memory than it may; it has seen no script."""
        self.client.script_flush()
        self.client.config_set("maxmemory", 1024 * 1024)

    def empty(self) -> None:
        """The limit is lifted."""
        self.client.config_set("maxmemory", 0)

    def dump(self) -> dict[bytes, bytes]:
        """Everything the server holds, to the byte."""
        names = sorted(self.client.scan_iter(count=1000))
        return {name: self.client.dump(name) or b"" for name in names}


@pytest.fixture(scope="module")
def server() -> Iterator[EmbeddedServer]:
    """A server of these tests' own, because they fill it."""
    with EmbeddedServer(durable=False) as running:
        yield running


@pytest.fixture
def full(server: EmbeddedServer, fleet_name: str) -> Iterator[Full]:
    """A herd with a task at work that waits for an answer."""
    clock = ManualClock()
    with (
        redis.Redis.from_url(server.url) as client,
        Broker.connect(server.url, fleet=fleet_name, clock=clock) as broker,
    ):
        parent = broker.open_herd("h", settings=HerdSettings(max_open_tasks=5))
        scout, planner = (
            broker.join("h", name, parent.register(name).token or "")
            for name in ("scout", "planner")
        )
        assert isinstance(scout, Child)
        assert isinstance(planner, Child)
        parent.plan("scout", "Look", cron="* * * * *")
        plan = parent.plan("scout", "Look", every=HOUR).id
        parent.pause_plan(plan)
        fleet = broker.fleet()
        found = broker.run(plans.look(fleet, fleet.partition("h"), 10))
        yield Full(parent, scout, planner, clock, broker, client, plan, found.due[0])
        client.config_set("maxmemory", 0)


def test_the_scripts_that_work_in_a_full_memory_are_those_that_end_work():
    """A script is `allow-oom` for one of six reasons, and no other script is."""
    allowed = {name for name in scripts.names() if scripts.load(name).memory == "allow-oom"}
    assert (
        allowed == ENDS_WORK | KEEPS_ALIVE | AT_WORK | TELLS | FORWARDS | TURNS | LAUNCHES | LOOKS
    )


def test_work_comes_to_its_end_in_a_full_memory(full, server):
    """Take, ack, reply, done, cancel; also from a process that starts only now."""
    task = full.parent.delegate("scout", "Find it")
    other = full.parent.delegate("scout", "Find the other")
    full.scout.inbox()
    question = full.scout.message("planner", "Which?", task=task.id, expects_reply=True)
    given_up = full.scout.message("planner", "And?", task=task.id, expects_reply=True)
    full.fill()

    with Broker.connect(server.url, fleet=full.broker.name, clock=full.clock) as late:
        again = late.join("h", "scout", full.scout.token)
        assert isinstance(again, Child)
        asked = full.planner.next_turn(timeout=0)
        assert asked is not None
        assert [mail.message_id for mail in asked] == [question.message_id, given_up.message_id]
        full.planner.reply(question.message_id, "That one.")
        full.scout.cancel_request(given_up.message_id)
        asked.ack()
        answered = again.receive()
        assert [mail.kind for mail in answered] == ["task", "task", "reply"]
        answered.ack()
        assert again.done(task.id, summary="found").ok
    assert full.parent.cancel(other.id).return_code == 130
    full.parent.receive().ack()
    assert full.parent.tasks("waiting") == []
    full.parent.close("planner")
    assert {info.agent: info.state for info in full.parent.roster()}["planner"] == "closed"


@pytest.mark.parametrize("end", ["close", "close_herd", "cancel"])
def test_herds_under_an_agent_end_in_a_full_memory(full, end):
    """What a close or a cancel ends below it does too, level by level, in bounded sweeps."""
    task = full.parent.delegate("scout", "Find it")
    full.scout.inbox()
    sub = full.scout.open_herd("sub", settings=HerdSettings(max_open_tasks=1000))
    lead = full.broker.join("sub", "lead", sub.register("lead").token or "")
    assert isinstance(lead, Child)
    deep = lead.open_herd("deep")
    deep.register("worker")
    Scheduler(full.broker).tick()
    parts = [sub.delegate("lead", str(number)) for number in range(150)]
    lead.receive(limit=1)
    last = deep.delegate("worker", "the last")
    full.fill()

    if end == "close":
        full.parent.close("scout")
    elif end == "close_herd":
        full.parent.close_herd()
    else:
        full.parent.cancel(task.id)
    with suppress(errors.Unavailable):  # timers are not fired now
        Scheduler(full.broker, repair_every=None).tick()

    assert {sub.task(part.id).state for part in parts} == {"cancelled"}
    assert deep.task(last.id).state == "cancelled"
    wanted = "open" if end == "cancel" else "closed"
    assert [each.herd_record().state for each in (sub, deep)] == [wanted] * 2


def test_an_ask_comes_to_its_end_in_a_full_memory(full):
    """It is answered, or its own look ends it; its task runs again."""
    task = full.parent.delegate("scout", "Find it")
    full.scout.inbox()
    for request, how in (("msg_0000000000000000000000001", task.id), (LAST, None)):
        full.broker.run(opening(full.scout, request, task=how))
    full.fill()

    full.planner.reply("msg_0000000000000000000000001", "That one.")
    answer = full.scout.ask_wait("msg_0000000000000000000000001")
    assert answer is not None
    assert answer.body == "That one."
    assert full.parent.task(task.id).state == "running"
    full.clock.advance(timedelta(minutes=10))
    with pytest.raises(errors.NoReply):
        full.scout.ask_wait(LAST)


@pytest.mark.parametrize("sign", ["probe", "progress"])
def test_work_counts_in_a_full_memory(full, sign):
    """Who is at work then is not taken for silent."""
    full.scout.probe({"transcript": 1})
    full.broker.run(opening(full.parent, LAST, to="scout"))
    full.fill()
    full.clock.advance(timedelta(minutes=9))
    if sign == "probe":
        full.scout.probe({"transcript": 2})
    else:
        full.scout.progress("half")
    full.clock.advance(timedelta(minutes=9))
    assert full.parent.ask_wait(LAST, timeout=0) is None


HOUR = timedelta(hours=1)
LAST = "msg_0000000000000000000000002"

REFUSED: dict[str, Callable[[Full, str, str], object]] = {
    "message_send": lambda f, task, request: f.scout.message("planner", "hello"),
    "outbox_send": lambda f, task, request: f.scout.message("other/parent", "hello"),
    "outbox_accept": lambda f, task, request: f.broker.run(
        outbox.accept(f.broker.fleet(), outbox.Outbox("other", "h", "inst_1", [], []))
    ),
    "task_delegate": lambda f, task, request: f.parent.delegate("scout", "Find it"),
    "plan_add": lambda f, task, request: f.parent.plan("scout", "Look", every=HOUR),
    "plan_run": lambda f, task, request: f.parent.run_plan(f.plan),
    "plan_resume": lambda f, task, request: f.parent.resume_plan(f.plan),
    "plan_fire": lambda f, task, request: f.broker.run(
        plans.fire(f.broker.fleet(), f.due, f.clock.now() + HOUR)
    ),
    "task_watch": lambda f, task, request: f.parent.watch(task),
    "request_remind": lambda f, task, request: f.parent.remind(request),
    "request_reroute": lambda f, task, request: f.parent.reroute(request, "scout"),
    "agent_register": lambda f, task, request: f.parent.register("tester"),
    "agent_employ": lambda f, task, request: f.parent.set_runner("scout", CommandRunner(["code"])),
    "agent_rotate": lambda f, task, request: f.parent.rotate("scout"),
    "agent_status": lambda f, task, request: f.scout.set_status("idle"),
    "ask_open": lambda f, task, request: f.scout.ask("planner", "Which?"),
    "dead_replay": lambda f, task, request: f.parent.replay(request),
    "herd_open": lambda f, task, request: f.broker.open_herd("another"),
    "tie_prove": lambda f, task, request: f.scout.open_herd("another"),
    "herd_set": lambda f, task, request: f.parent.set_settings(HerdSettings(inbox_limit=5)),
    "herd_visit": lambda f, task, request: f.broker.run(timers.visit(f.broker.fleet(), "h", 10)),
    "herd_repair": lambda f, task, request: Scheduler(f.broker).repair(),
    "wake_report": lambda f, task, request: f.planner.report_wake("tmux", True, [request]),
}


def test_every_script_is_judged_here():
    """Each that is not `allow-oom` has its refusal below."""
    allowed = ENDS_WORK | KEEPS_ALIVE | AT_WORK | TELLS | FORWARDS | TURNS | LAUNCHES | LOOKS
    assert REFUSED.keys() == set(scripts.names()) - allowed


@pytest.mark.parametrize("name", REFUSED)
def test_new_work_is_refused_whole_in_a_full_memory(full, name):
    """`unavailable`, retryable, saying what to do; no key of the server is different afterwards."""
    task = full.parent.delegate("scout", "Find it")
    asked = full.scout.message("planner", "Which?", task=task.id, expects_reply=True)
    full.fill()
    before = full.dump()
    with pytest.raises(errors.Unavailable) as refusal:
        REFUSED[name](full, task.id, asked.message_id)
    assert refusal.value.retryable
    assert "memory" in refusal.value.detail and "maxmemory" in refusal.value.detail
    assert full.dump() == before


HALF_DONE: dict[str, Callable[[Full, str], object]] = {
    "a question on a task": lambda f, task: f.scout.message(
        "planner", "Which?", task=task, expects_reply=True
    ),
    "a question with a deadline": lambda f, task: f.scout.message(
        "planner", "Which?", expects_reply=True, reply_within=timedelta(minutes=1)
    ),
    "steering mail": lambda f, task: f.parent.message("scout", "stop", delivery="steer"),
    "a message that may wait": lambda f, task: f.scout.message("planner", "hello", wait=0),
    "a watched task": lambda f, task: f.parent.delegate("planner", "Find it", watch=True),
    "a queued task": lambda f, task: f.parent.delegate("scout", "Find it", queue=True),
    "a task that continues": lambda f, task: f.parent.delegate("planner", "On", continues=task),
    "an ask on a task": lambda f, task: f.scout.ask("planner", "Which?", task=task),
}


@pytest.mark.parametrize("what", HALF_DONE)
def test_nothing_is_half_done_in_a_full_memory(full, what):
    """Case 19: every shape of message, ask and delegate leaves not a byte, however often."""
    task = full.parent.delegate("scout", "Find it")
    full.scout.inbox()
    if "continues" in what:
        full.scout.done(task.id)
    full.fill()
    before = full.dump()
    for _ in range(3):
        with pytest.raises(errors.Unavailable, match="memory"):
            HALF_DONE[what](full, task.id)
    assert full.dump() == before


def test_a_full_inbox_drains_in_a_full_memory(full):
    """Case 7: mail given back, a process that leaves and one that comes lose none of it."""
    for number in range(50):
        full.scout.message("planner", str(number))
    full.fill()

    full.planner.receive(limit=20).nack(error="broken")
    full.planner.receive(limit=20)
    full.planner.leave()
    with Broker.connect(full.broker.server.url, fleet=full.broker.name, clock=full.clock) as late:
        again = late.join("h", "planner", full.planner.token)
        read = []
        while turn := again.next_turn(timeout=0, limit=20):
            read += [mail.body for mail in turn]
            turn.ack()
    assert sorted(read, key=int) == [str(number) for number in range(50)]


def test_a_loop_is_stopped_and_told_of_in_a_full_memory(full):
    """Case 12: replies go on in a full memory, and so end there as elsewhere."""
    full.parent.set_settings(HerdSettings(hop_limit=1))
    sent = full.scout.message("planner", "hello")
    full.fill()
    reply = full.planner.reply(sent.message_id, "hello")
    for _ in range(3):
        with pytest.raises(errors.LoopLimit):
            full.scout.reply(reply.message_id, "and you?")
    (notice,) = full.parent.receive()
    assert notice.data["about"] == "loop"


def test_mail_between_herds_waits_while_the_memory_is_full(full):
    """Case 19: news arrive; what has not arrived is put off, and comes when there is room."""
    scheduler = Scheduler(full.broker, repair_every=None)
    other = full.broker.open_herd("other", settings=HerdSettings(accepts_from=("h",)))
    told = full.scout.message("other/parent", "told")
    scheduler.tick()
    other.receive().ack()
    sent = full.scout.message("other/parent", "hello")
    full.fill()

    assert forwarding.Forwarding(full.broker).turn().counts == {"news": 1, "forwards_put_off": 1}

    assert full.scout.receipt(told.message_id).state == "handled"
    waits = full.scout.receipt(sent.message_id)
    assert waits.state == "outgoing" and "memory" in (waits.error or "")
    full.empty()
    full.clock.advance(timedelta(seconds=2))
    assert scheduler.tick() == {"forwarded": 1}
    assert [mail.body for mail in other.receive()] == ["hello"]


def test_what_was_refused_is_accepted_once_when_there_is_room(full):
    """The same call again, by its key, is one message."""
    full.fill()
    with pytest.raises(errors.Unavailable):
        full.scout.message("planner", "hello", key="k")
    full.empty()
    sent = full.scout.message("planner", "hello", key="k")
    assert not sent.duplicate
    assert [mail.message_id for mail in full.planner.receive()] == [sent.message_id]


def test_a_reminder_that_fell_due_in_a_full_memory_comes_exactly_once(full):
    """The scheduler is told, nothing is half done, and afterwards there is one reminder a wait."""
    scheduler = Scheduler(full.broker)
    for number in range(3):
        task = full.parent.delegate("scout", f"Find {number}")
        full.scout.message("planner", "Which?", task=task.id, expects_reply=True)
    full.fill()
    full.clock.advance(timedelta(minutes=6))
    before = full.dump()
    for _ in range(3):
        with pytest.raises(errors.Unavailable, match="memory"):
            scheduler.tick()
    after = full.dump()  # in which looking has moved the clocks of the partitions on, no more
    assert {name for name in before if before[name] != after.get(name)} <= {
        name for name in before if name.endswith(b"}")
    }
    full.empty()
    assert scheduler.tick()["reminders"] == 3
    assert "reminders" not in scheduler.tick()
    reminders = [mail for mail in full.parent.receive() if mail.kind == "reminder"]
    assert len({mail.task_id for mail in reminders}) == len(reminders) == 3
