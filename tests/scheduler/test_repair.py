"""Repair: whatever is lost or wrong beside the records is made again from them, and counted."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import pytest
import redis

from tests.fleets import Herd, command, key_of, reminders
from tests.leftovers import fleet_keys
from tests.requirements import proves
from tests.waiting import wait_until
from tocsin.broker import Broker, Child, HerdSettings, ManualClock, Parent, asks, keys
from tocsin.broker.repairs import INDEXES
from tocsin.scheduler import Scheduler

STRAYS = {"agents": "nonsense", "due": "1:deadline:task_nonsense", "timers": "nonsense"}
TASKS = {"waiting", "episodes", "tasks", "workload", "queue"}
OF_PARTITIONS = {"timers", "herds", "forwards", "planned"}
MADE_AGAIN = {*INDEXES, *OF_PARTITIONS} - {"leads", "turning", "held"}
"""What records know; what agents lead, the herds under them say anew, and of turns
`test_launching.py` has tests."""
ENDED = {"handled", "withdrawn"}


@dataclass
class Scene:
    """A herd in which something of everything is going on."""

    client: Any
    broker: Broker
    clock: ManualClock
    parent: Parent
    children: dict[str, Child]

    @property
    def scheduler(self) -> Scheduler:
        """One that has just been started."""
        return Scheduler(self.broker)

    def key(self, kind: str, **names: str) -> str:
        partition = self.parent.caller.fleet.partition("h")
        return keys.below(partition, kind, herd="h", **names)

    def indexes(self) -> list[tuple[str, str]]:
        """Every key that is derived from records, with its kind."""
        kinds = {*INDEXES, "reminded", *OF_PARTITIONS}
        found = [(name, keys.kind_of(name)) for name in fleet_keys(self.client, self.broker.name)]
        return [(name, kind) for name, kind in found if kind in kinds]

    def dump(self) -> dict[str, Any]:
        """All of the herd that must be the same after a repair: not the places in streams."""
        found: dict[str, Any] = {}
        for name in fleet_keys(self.client, self.broker.name):
            parsed = keys.parse(name)
            if parsed is None or parsed[0] in ("journal", "herd"):
                continue
            kind = keys.KEYS[parsed[0]].type
            if kind == "hash":
                record = self.client.hgetall(name)
                found[name] = {f: v for f, v in record.items() if f != b"entry"}
            elif kind == "zset":
                found[name] = dict(self.client.zrange(name, 0, -1, withscores=True))
            elif kind == "set":
                found[name] = self.client.smembers(name)
            elif kind == "stream":
                found[name] = self._stream(name)
            else:
                found[name] = self.client.get(name)
        due = found[self.key("due")]
        found[self.key("due")] = {t: at for t, at in due.items() if not self._idle(t.decode())}
        return found

    def _stream(self, name: str) -> Any:
        entries = dict(self.client.xrange(name))
        said = sorted(list(fields.items()) for fields in entries.values())
        try:
            pending = self.client.xpending_range(name, "agent", "-", "+", 100)
        except redis.ResponseError:  # no group
            return said, []
        return said, sorted((p["consumer"], *entries[p["message_id"]].values()) for p in pending)

    def _idle(self, timer: str) -> bool:
        """Whether a timer would do nothing: the end of a record that somebody still has to read."""
        if not timer.startswith("9:forget:m:"):
            return False
        state = self.client.hget(self.key("message", message=timer[11:]), "state")
        return state is not None and state.decode() not in ENDED

    def outcome(self) -> tuple[dict[str, str], Counter[str]]:
        """What becomes of it all when a day passes: of the tasks, and in the journal."""
        scheduler = Scheduler(self.broker, repair_every=None)
        for minutes in (5, 10, 10, 240, 1440):
            self.clock.advance(timedelta(minutes=minutes))
            scheduler.tick()
        tasks = {task.description: str(task.state) for task in self.parent.tasks()}
        lines = [line.event for line in self.parent.journal(limit=1000)]
        return tasks, Counter(event for event in lines if event != "repaired")


@pytest.fixture
def scene(url: str, fleet_name: str) -> Iterator[Scene]:
    clock = ManualClock()
    with (
        redis.Redis.from_url(url) as client,
        Broker.connect(url, fleet=fleet_name, clock=clock) as broker,
    ):
        parent = broker.open_herd("h", settings=HerdSettings(max_open_tasks=2, max_attempts=1))
        children: dict[str, Child] = {}
        for name in ("scout", "planner", "tester"):
            child = broker.join("h", name, parent.register(name).token or "")
            assert isinstance(child, Child)
            children[name] = child
        scene = Scene(client, broker, clock, parent, children)
        _live(scene)
        yield scene


def _live(scene: Scene) -> None:
    """A little of everything happens."""
    parent, clock = scene.parent, scene.clock
    scout, planner, tester = scene.children.values()
    parent.register("gone")
    parent.message("gone", "never read")
    parent.close("gone")
    old = parent.delegate("scout", "reminded")
    settled = parent.delegate("planner", "settled")
    planner.receive().ack()
    scout.receive().ack()
    planner.done(settled.id, summary="found")
    scout.message("planner", "first?", task=old.id, expects_reply=True, reply_within=None)
    clock.advance(timedelta(minutes=6))
    scene.scheduler.tick()
    parent.register("ghost")
    parent.delegate("ghost", "nobody is there")
    parent.plan("ghost", "look around", every=timedelta(days=3))
    fresh = parent.delegate("scout", "waits")
    parent.delegate("scout", "queued", queue=True)
    parent.watch(old.id, fresh.id, wake="all")
    scout.receive().ack()
    scout.message("planner", "second?", task=fresh.id, expects_reply=True)
    scout.message("tester", "third?", task=fresh.id, expects_reply=True, delivery="steer")
    tester.receive()
    planner.message("tester", "unread")
    planner.message("scout", "shown")
    scout.inbox()
    parent.message("planner", "to be delayed")
    planner.receive().nack(delay=timedelta(minutes=30))
    parent.message("tester", "broken")
    tester.receive().nack(error="it breaks")
    parent.message("scout", "quite unread", delivery="steer")
    parent.message("elsewhere/parent", "not forwarded yet")
    _ask(tester, "planner", "open?")
    held = _ask(scout, "planner", "held?")
    planner.reply(held, "yes")


def _ask(asker: Child, target: str, body: str, ceiling: timedelta | None = None) -> str:
    request = asker.caller.new_id("msg", "ask", body)
    asker.broker.run(
        asks.open_ask(
            asker.caller,
            target,
            body,
            request=request,
            call="call_1",
            task=None,
            window=None,
            ceiling=ceiling,
            totals="",
            thread=None,
            data=None,
        )
    )
    return request


# -------------------------------------------------------------------- kinds of damage

Damage = Callable[[Scene, random.Random], object]


def lose_an_index(scene: Scene, luck: random.Random) -> object:
    """A whole key is gone."""
    name, _ = luck.choice(scene.indexes())
    return name, scene.client.delete(name)


def lose_an_entry(scene: Scene, luck: random.Random) -> object:
    """One entry of an index is gone."""
    name, kind = luck.choice(scene.indexes())
    if keys.KEYS[kind].type == "zset":
        entry = luck.choice(scene.client.zrange(name, 0, -1))
        return name, entry, scene.client.zrem(name, entry)
    if keys.KEYS[kind].type == "hash":
        return name, scene.client.hdel(name, luck.choice(scene.client.hkeys(name)))
    return name, scene.client.delete(name)


def add_a_stray(scene: Scene, luck: random.Random) -> object:
    """An entry that names no record."""
    indexes = [(name, kind) for name, kind in scene.indexes() if kind not in OF_PARTITIONS]
    name, kind = luck.choice(indexes)
    if keys.KEYS[kind].type == "string":
        return scene.client.set(scene.key("reminded", task="task_nonsense", episode="1"), 1)
    entry = STRAYS.get(kind, "task_nonsense" if kind in TASKS else "msg_nonsense")
    if keys.KEYS[kind].type == "hash":
        return name, scene.client.hset(name, entry, 1)
    return name, scene.client.zadd(name, {entry: 1})


def delete_unread_mail(scene: Scene, luck: random.Random) -> object:
    """The stream entry of mail that nobody took is deleted."""
    mail = [
        record
        for name in fleet_keys(scene.client, scene.broker.name)
        if keys.kind_of(name) == "message"
        and (record := scene.client.hgetall(name))[b"state"] in (b"accepted", b"shown")
    ]
    if not mail:
        return None
    record = luck.choice(mail)
    stream = "steer" if record[b"delivery"] == b"steer" else "inbox"
    return scene.client.xdel(
        scene.key(stream, agent=record[b"to"].decode()), record[b"entry"].decode()
    )


def destroy_a_group(scene: Scene, luck: random.Random) -> object:
    """The group of an inbox is gone, and with it who holds what."""
    agent, stream = luck.choice(("tester", "scout", "planner")), luck.choice(("inbox", "steer"))
    try:
        return agent, scene.client.xgroup_destroy(scene.key(stream, agent=agent), "agent")
    except redis.ResponseError:
        return None


DAMAGES: dict[str, Damage] = {
    each.__name__: each
    for each in (
        lose_an_index,
        lose_an_entry,
        add_a_stray,
        delete_unread_mail,
        destroy_a_group,
    )
}


def test_a_herd_that_nothing_happened_to_needs_no_repair(scene):
    """A look finds nothing, and neither does a repair."""
    looked = scene.scheduler.repair(mend=False)
    assert looked.findings == []
    assert looked.compared > 30
    before = scene.dump()
    assert scene.scheduler.repair().findings == []
    assert scene.dump() == before


@proves("P11")
@pytest.mark.parametrize("seed", range(40))
def test_whatever_is_damaged_is_as_it_was_after_a_repair(scene, seed):
    """Case 14: the same state and the same timers; a second repair finds nothing."""
    luck = random.Random(seed)
    before = scene.dump()
    done = [
        (name, DAMAGES[name](scene, luck))
        for name in luck.choices(list(DAMAGES), k=luck.randint(1, 6))
    ]
    damaged = scene.dump() if scene.client.exists(scene.key("due")) else None

    found = scene.scheduler.repair()

    assert scene.dump() == before, done
    assert found.broken == []
    assert damaged == before or found.findings, done
    assert scene.scheduler.repair().findings == [], done


@pytest.mark.parametrize("lost", [False, True])
def test_the_window_of_an_ask_is_where_its_record_says(scene, lost):
    """Rerouted, an ask has a whole window, or only its ceiling; its timer is made again there."""
    request = _ask(scene.children["scout"], "planner", "which way?")
    timer, due = f"4:window:{request}", scene.key("due")
    scene.clock.advance(timedelta(minutes=3))
    scene.parent.reroute(request, "tester")
    at = scene.client.zscore(due, timer)
    if lost:
        scene.client.zrem(due, timer)
    assert [each.id for each in scene.scheduler.repair().findings] == [timer] * lost
    assert scene.client.zscore(due, timer) == at


def test_an_ask_that_only_its_ceiling_ends_has_no_window(scene):
    """None is missing where the last sign of work reaches beyond the ceiling."""
    request = _ask(scene.children["scout"], "planner", "which way?", ceiling=timedelta(minutes=12))
    scene.clock.advance(timedelta(minutes=3))
    scene.parent.reroute(request, "tester")
    assert scene.client.zscore(scene.key("due"), f"4:window:{request}") is None
    assert scene.scheduler.repair().findings == []


def test_every_index_is_made_again(scene):
    """All of them are lost at once; but what agents lead, which the herds under them say anew."""
    before = scene.dump()
    lost = scene.indexes()
    assert {kind for _, kind in lost} >= MADE_AGAIN
    scene.client.delete(*(name for name, kind in lost if kind != "reminded"))

    assert scene.scheduler.repair().findings

    assert scene.dump() == before
    assert scene.scheduler.repair().findings == []


@pytest.mark.parametrize("damaged", [False, True], ids=["whole", "repaired"])
def test_what_was_repaired_goes_on_as_if_nothing_had_been(scene, damaged):
    """All that is due in the next day comes to the same end, in the same number of steps."""
    if damaged:
        scene.client.delete(*(name for name, kind in scene.indexes() if kind != "reminded"))
        scene.scheduler.repair()
    tasks, events = scene.outcome()
    assert tasks == {
        "settled": "completed",
        "reminded": "blocked",
        "waits": "blocked",
        "nobody is there": "timed_out",
        "queued": "timed_out",
    }
    once = ("reminded", "request_no_reply", "request_settled", "timed_out", "blocked", "dead")
    assert {event: events[event] for event in once} == {
        "reminded": 2,
        "request_no_reply": 1,
        "request_settled": 1,
        "timed_out": 2,
        "blocked": 2,
        "dead": 3,
    }


def test_case_14_by_hand(scene, caplog):
    """Case 14: a wait's entry that was deleted and one without a task are mended, counted, told."""
    [wait] = scene.client.zrange(scene.key("waiting"), 0, -1)
    scene.client.zrem(scene.key("waiting"), wait)
    scene.client.zadd(scene.key("waiting"), {"task_nonsense": 1})

    assert scene.scheduler.tick()["repairs"] == 2

    assert scene.client.zrange(scene.key("waiting"), 0, -1) == [wait]
    assert "herd h: mended 2 of waiting" in caplog.text
    [line] = [line for line in scene.parent.journal(limit=1000) if line.event == "repaired"][-1:]
    assert "waiting" in str(line)
    scene.clock.advance(timedelta(minutes=5))
    assert Scheduler(scene.broker, repair_every=None).tick()["reminders"] == 1


def test_repair_keeps_a_pace_of_its_own(scene):
    """A scheduler sweeps at its first tick, and again when the time has come; not at every tick."""
    scheduler = Scheduler(scene.broker, repair_every=timedelta(minutes=3))
    swept = []
    for _ in range(4):
        scene.client.delete(scene.key("episodes"))
        swept.append(scheduler.tick().get("repairs", 0) > 0)
        scene.clock.advance(timedelta(minutes=1, seconds=30))
    assert swept == [True, False, True, False]
    assert scene.scheduler.repair().findings


def test_a_long_index_is_walked_in_short_runs(scene, monkeypatch):
    """Each run of the script compares a bounded number of entries, and none is left out."""
    scene.client.zadd(scene.key("waiting"), {f"task_n{n}": n for n in range(1000)})
    runs: list[int] = []
    run_many = scene.broker.link.run_many

    def listen(calls: Any) -> Any:
        answers = run_many(calls)
        runs.extend(len(answer.findings) for answer in answers)
        return answers

    monkeypatch.setattr(scene.broker.link, "run_many", listen)

    assert len(scene.scheduler.repair().findings) == 1000

    assert max(runs) < 300


def test_mail_of_a_holder_whose_lease_was_lost_comes_back_by_the_usual_way(scene):
    """A consumer that holds mail gets its instance back, and so its grace to renew."""
    tester = scene.children["tester"]
    instances = scene.key("instances", agent="tester")
    scene.client.delete(instances)

    found = scene.scheduler.repair()

    assert [each.what for each in found.findings] == ["instances"]
    assert scene.client.zrange(instances, 0, -1) == [tester.instance.encode()]
    assert scene.scheduler.repair().findings == []


def test_a_consumer_that_holds_nothing_goes(scene):
    """What is left in a group of an instance that is gone."""
    stream = scene.key("inbox", agent="tester")
    scene.client.xgroup_createconsumer(stream, "agent", "inst_gone")
    assert [each.id for each in scene.scheduler.repair().findings] == ["inst_gone"]
    assert "inst_gone" not in str(scene.client.xinfo_consumers(stream, "agent"))


def test_mail_whose_holder_and_entry_are_gone_is_taken_again(scene):
    """It counts as held by one that died; here that was its last attempt: a dead letter."""
    scene.client.delete(scene.key("instances", agent="tester"), scene.key("steer", agent="tester"))
    found = scene.scheduler.repair()
    assert "holders" in {each.what for each in found.findings}
    assert scene.parent.tasks("waiting"), "the other questions are still open"


def test_a_lost_marker_does_not_remind_twice(scene):
    """P1 holds where the reminder is still to be read, or its record is kept."""
    for _ in range(2):
        for name, kind in scene.indexes():
            if kind == "reminded":
                scene.client.delete(name)
        assert [each.what for each in scene.scheduler.repair().findings] == ["reminded"]
        assert len(scene.parent.inbox()) >= 1


def test_what_cannot_be_read_is_told_and_holds_up_nothing(scene):
    """A record of another type is left as it is, and not said to be mended; all the rest is."""
    fresh = next(each for each in scene.parent.tasks() if each.description == "waits")
    record = scene.key("task", task=fresh.id)
    scene.client.rename(record, record + ":kept")
    scene.client.set(record, "nonsense")
    scene.client.delete(scene.key("episodes"))
    found = scene.scheduler.repair()
    assert found.counts["h", "episodes"] == 1
    assert fresh.id in {each.id for each in found.broken}
    assert all("WRONGTYPE" in each.why for each in found.broken)
    scene.client.rename(record + ":kept", record)
    scene.scheduler.repair()
    assert scene.scheduler.repair().findings == []


def test_what_could_not_be_mended_is_not_counted_as_mended(scene):
    """A repair that breaks in the middle is told with what broke it, each time anew."""
    fresh = next(each for each in scene.parent.tasks() if each.description == "waits")
    scene.client.hdel(scene.key("task", task=fresh.id), "episode")
    for _ in range(2):
        found = scene.scheduler.repair()
        assert fresh.id in {each.id for each in found.broken}
        assert fresh.id not in {each.id for each in found.findings if each.what != "broken"}
    scene.client.hset(scene.key("task", task=fresh.id), "episode", 1)


OTHER_TYPES = ["string", "list"]


def overwrite(scene: Scene, name: str, other: str) -> None:
    """Puts a key of another type where one was."""
    scene.client.delete(name)
    if other == "string":
        scene.client.set(name, "nonsense")
    else:
        scene.client.rpush(name, "nonsense")


@proves("P11")
@pytest.mark.parametrize("other", OTHER_TYPES)
def test_every_index_that_was_written_over_is_made_again(scene, other):
    """Case 14: a key of another type in its place goes; the records know what belongs there."""
    before = scene.dump()
    written_over = [(name, kind) for name, kind in scene.indexes() if kind != "reminded"]
    assert {kind for _, kind in written_over} >= MADE_AGAIN
    for name, _ in written_over:
        overwrite(scene, name, other)

    looked = scene.scheduler.repair(mend=False)
    found = scene.scheduler.repair()

    kinds = {kind for _, kind in written_over}
    assert {each.what for each in looked.findings} >= kinds
    assert {what for _, what in found.counts} >= kinds
    assert found.broken == []
    assert scene.dump() == before
    assert scene.scheduler.repair().findings == []


@pytest.mark.parametrize("kind", sorted(MADE_AGAIN))
def test_one_index_that_was_written_over_is_made_again(scene, kind):
    """Case 14: alone, it is found by what is compared first with it."""
    before = scene.dump()
    overwrite(scene, next(name for name, of in scene.indexes() if of == kind), "string")

    found = scene.scheduler.repair()

    assert found.broken == []
    assert scene.dump() == before
    assert scene.scheduler.repair().findings == []


@pytest.mark.parametrize("stream", ["inbox", "steer"])
def test_an_inbox_that_was_written_over_is_made_again(scene, stream):
    """Case 14: unread mail is there again, in its order, and is taken."""
    scout = scene.children["scout"]
    for text in ("one", "two"):
        scene.parent.message("scout", text, delivery="steer" if stream == "steer" else "follow_up")
    expected = [mail.message_id for mail in scout.inbox()]
    overwrite(scene, scene.key(stream, agent="scout"), "string")

    assert scene.scheduler.repair().broken == []

    assert [mail.message_id for mail in scout.receive()] == expected
    scene.scheduler.repair()
    assert scene.scheduler.repair().findings == []


@pytest.mark.parametrize("kind", ["exchanges", "journal", "arrivals", "instances", "leads"])
def test_what_no_record_knows_begins_anew_when_it_was_written_over(scene, kind):
    """Case 14: nobody is held up by a key that cannot be used."""
    name = scene.key(
        kind, **({"agent": "scout"} if kind in ("exchanges", "instances", "leads") else {})
    )
    overwrite(scene, name, "string")

    found = scene.scheduler.repair()

    assert kind in {what for _, what in found.counts}
    assert found.broken == []
    scene.children["planner"].message("scout", "It goes on.")
    assert "It goes on." in [mail.body for mail in scene.children["scout"].receive()]


def test_two_repairs_at_once_do_no_harm(scene, url, fleet_name):
    """Any number of schedulers may sweep at the same time."""
    before = scene.dump()
    scene.client.delete(*(name for name, kind in scene.indexes() if kind != "reminded"))

    def repair(_: int) -> None:
        with Broker.connect(url, fleet=fleet_name, clock=scene.clock) as broker:
            Scheduler(broker).repair()

    with ThreadPoolExecutor(3) as pool:
        list(pool.map(repair, range(3)))

    assert scene.dump() == before
    assert scene.scheduler.repair().findings == []


def test_the_lease_timer_of_a_live_instance_is_kept_and_made_again(url, fleet_name):
    """Case 2: by the server's clock an instance always has a timer, also after it has renewed."""
    settings = HerdSettings(lease=timedelta(milliseconds=300), grace=timedelta(milliseconds=100))
    with (
        redis.Redis.from_url(url) as client,
        Broker.connect(url, fleet=fleet_name) as broker,
    ):
        parent = broker.open_herd("h", settings=settings)
        due = keys.below(parent.caller.fleet.partition("h"), "due", herd="h")
        scheduler = Scheduler(broker)
        first = client.zscore(due, "7:lease:parent")

        def renewed() -> bool:
            scheduler.tick()
            score = client.zscore(due, "7:lease:parent")
            return score is not None and score > first + 300

        wait_until(renewed, "a later timer of the same instance")


def test_a_lost_lease_timer_is_made_again(url, fleet_name):
    """Nobody looks at an instance that dies unless a timer says so."""
    with (
        redis.Redis.from_url(url) as client,
        Broker.connect(url, fleet=fleet_name) as broker,
    ):
        parent = broker.open_herd("h")
        due = keys.below(parent.caller.fleet.partition("h"), "due", herd="h")
        before = client.zscore(due, "7:lease:parent")
        client.zrem(due, "7:lease:parent")
        assert "7:lease:parent" in {each.id for each in Scheduler(broker).repair().findings}
        assert client.zscore(due, "7:lease:parent") >= before


@pytest.mark.parametrize("lost", ["entry", "stream", "skipped"])
def test_a_reminder_that_nobody_read_is_there_again(scene, lost):
    """Its marker says that it was sent, so its wait would never be reminded of."""
    scene.parent.receive().ack()
    inbox = scene.key("inbox", agent="parent")
    scene.children["planner"].message("parent", "So that there is a group.")
    scene.parent.receive().ack()
    fresh = next(each for each in scene.parent.tasks() if each.description == "waits")
    marker = scene.key("reminded", task=fresh.id, episode="1")
    scene.clock.advance(timedelta(minutes=6))
    scene.scheduler.tick()
    assert scene.client.exists(marker)
    if lost == "entry":
        entries = scene.client.xrange(inbox)
        scene.client.xdel(inbox, *(entry for entry, fields in entries if b"r" in fields))
    elif lost == "stream":
        scene.client.delete(inbox)
    else:
        scene.client.xgroup_setid(inbox, "agent", "$")

    scene.scheduler.repair()

    assert not scene.scheduler.repair(mend=False).counts
    reminders = [mail for mail in scene.parent.receive() if mail.kind == "reminder"]
    assert [mail.task_id for mail in reminders] == [fresh.id]
    assert not [mail for mail in scene.parent.receive() if mail.kind == "reminder"]


def test_a_reminder_that_was_read_long_ago_is_not_sent_again(scene):
    """Its record ends before its wait does."""
    scene.parent.receive().ack()
    scene.scheduler.repair()
    scene.clock.advance(timedelta(hours=2))
    Scheduler(scene.broker, repair_every=None).tick()
    scene.parent.receive().ack()

    assert not scene.scheduler.repair().counts
    assert not [mail for mail in scene.parent.receive() if mail.kind == "reminder"]


@pytest.mark.parametrize("repaired", [True, False])
@pytest.mark.parametrize("damage", ["destroyed", "set back"])
def test_a_group_that_forgot_whose_mail_it_is_hands_it_to_nobody_else(scene, damage, repaired):
    """A living instance has it in hand, so a replica does not get it, mended or not yet."""
    tester = scene.children["tester"]
    scene.parent.message("tester", "Hold this.")
    held = [mail.message_id for mail in tester.receive()]
    for stream in ("inbox", "steer"):
        name = scene.key(stream, agent="tester")
        if damage == "destroyed":
            scene.client.xgroup_destroy(name, "agent")
        elif scene.client.exists(name):
            scene.client.xgroup_setid(name, "agent", "0")
    if repaired:
        assert scene.scheduler.repair().counts
    replica = scene.broker.join("h", "tester", tester.token)

    assert not [mail for mail in replica.receive() if mail.message_id in held]
    tester.ack(*held)
    assert scene.parent.receipt(held[0]).by == tester.caller.instance


def test_a_herd_whose_record_is_lost_is_told(scene):
    """It cannot be made again, and is not called whole."""
    scene.client.delete(scene.key("herd"))
    try:
        [found] = scene.scheduler.repair().broken
        assert (found.herd, found.id) == ("h", "h")
        assert "record is gone" in found.why
    finally:
        scene.client.delete(*fleet_keys(scene.client, scene.broker.name))


async def test_a_reminder_that_was_read_is_not_made_again(herd: Herd) -> None:
    """Not even if its marker is lost after its record had its end."""
    task, _ = await herd.waiting(reply_within=timedelta(days=1))
    await herd.later(minutes=5)
    await (await herd.parent.receive()).ack()
    await herd.later(hours=2)
    assert await command(herd, "DEL", key_of(herd, "reminded", task=task.id, episode="1")) == 1

    await herd.scheduler.repair()

    assert "reminders" not in await herd.later(minutes=1)
    assert reminders(await herd.parent.receive()) == []
