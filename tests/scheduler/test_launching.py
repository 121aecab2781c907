"""Turns that are due become RQ jobs: once, within slots, fairly, whatever is killed or lost."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import pytest
from rq.job import JobStatus

from tests.fleets import command, key_of
from tests.requirements import proves
from tests.turning import claim, employ, job, queue_of, run, turns_of
from tests.waiting import wait_until_async
from tocsin.broker import AsyncBroker, CommandRunner, HerdSettings, ScaledClock, errors, keys, turns
from tocsin.broker.embedded import EmbeddedServer
from tocsin.scheduler import AsyncScheduler
from tocsin.scheduler._async import turns as duty
from tocsin.scheduler.launching import job_id

BATCH = {"seconds": 5}


@pytest.fixture
def queue(url, fleet_name):
    """The queue that turns of this fleet are put into."""
    with queue_of(url, fleet_name) as queue:
        yield queue


@pytest.fixture
async def herd(open_herd, queue):
    """A herd with a child that has a runner, coder."""
    herd = await open_herd("release_42")
    await employ(herd)
    return herd


async def state(herd, agent="coder"):
    return (await turns_of(herd, agent)).state


async def test_a_turn_that_is_due_becomes_one_job(herd, queue):
    """Its id, description and fields name it to people; its payload is JSON (case 31)."""
    task = await herd.parent.delegate("coder", "write it")
    assert not queue.job_ids
    assert await herd.later(**BATCH) == {"turns": 1, "turns_launched": 1}
    assert await state(herd) == "launched"
    [name] = queue.job_ids
    found = job(queue, name)
    assert name.startswith(f"{herd.broker.name}-release_42-coder-1")
    assert found.description == "turn 1 of release_42/coder"
    assert found.func_name == "tocsin.workers.child.job.run_turn"
    assert found.kwargs == {
        "fleet": herd.broker.name,
        "herd": "release_42",
        "agent": "coder",
        "turn": 1,
    }
    assert found.meta == {"herd": "release_42", "agent": "coder", "turn": 1, "task": task.id}
    assert (found.timeout, found.retries_left) == (-1, None)
    assert queue.connection.hget(found.key, "data").count(b"pickle") == 0
    assert await herd.scheduler.tick() == {}


def test_no_two_turns_have_one_job_id():
    """Names may hold what stands between them in an id."""

    def name(herd: str, agent: str) -> str:
        return job_id("f", turns.DueTurn(herd, agent, 1, "q/-", "mail", 1.0, 1, ""))

    assert name("h", "scout") == "f-h-scout-1"
    assert len({name("a-b", "c"), name("a", "b-c"), name("a", "b_c")}) == 3


async def test_a_due_turn_is_launched_once_by_two_schedulers_at_once(herd, queue, broker):
    """Whichever is first; the other does the same to no other effect (case 21)."""
    for number in range(10):
        await employ(herd, f"child{number}")
        await herd.parent.delegate(f"child{number}", "write it")
    herd.clock.advance(timedelta(seconds=5))
    await asyncio.gather(*(AsyncScheduler(broker).tick() for _ in range(3)))
    assert len(queue.job_ids) == len(set(queue.job_ids)) == 10
    assert (await herd.broker.turn_slots())[0].taken == 10


async def test_a_turn_that_nobody_begins_is_launched_again(herd, queue):
    """RQ was emptied: its job is there again; a job that still waits is left as it is (case 16)."""
    await herd.parent.delegate("coder", "write it")
    await herd.later(**BATCH)
    before = queue.job_ids
    await herd.later(minutes=5)
    assert queue.job_ids == before
    queue.delete(delete_jobs=True)
    await herd.later(minutes=5)
    assert queue.job_ids == before
    await claim(herd)
    await herd.later(minutes=5)
    assert queue.job_ids == before and await state(herd) == "running"


async def test_a_job_that_was_begun_and_broken_off_is_put_there_again(herd, queue):
    """Its worker died before it claimed the turn, so RQ knows of it and nobody runs it."""
    await herd.parent.delegate("coder", "write it")
    await herd.later(**BATCH)
    [name] = queue.job_ids
    queue.connection.lrem(queue.key, 0, name)
    job(queue, name).set_status(JobStatus.FAILED)
    await herd.later(minutes=5)
    assert queue.job_ids == [name]
    assert job(queue, name).get_status() == "queued"


@pytest.mark.parametrize("after", ["due", "slots", "put", "launched"])
@proves("P16")
async def test_a_scheduler_that_is_killed_between_its_steps_costs_nothing(herd, queue, after):
    """Another does the rest: one job, one slot, and the turn runs once."""
    await herd.parent.delegate("coder", "write it")
    herd.clock.advance(timedelta(seconds=5))
    await herd.scheduler._timers.turn()
    fleet, launching = await herd.broker.fleet(), duty.AsyncLaunching(herd.broker, None)
    partition = fleet.partition(herd.name)
    found = (await herd.broker.run(turns.due(fleet, partition, 10))).turns
    if after != "due":
        await herd.broker.run(turns.take_slots(fleet, [], found))
    if after in ("put", "launched"):
        launching._open().put(found)
    if after == "launched":
        await herd.broker.run(turns.launched(fleet, found[0]))
    await herd.scheduler.tick()
    assert len(queue.job_ids) == 1 and await state(herd) == "launched"
    assert (await herd.broker.turn_slots())[0].taken == 1
    await run(herd)
    await herd.scheduler.tick()
    assert (await herd.broker.turn_slots())[0].taken == 0


# ------------------------------------------------------------------ slots


async def test_limits_of_fleet_queue_and_account(herd, queue):
    """What has no slot waits until one is given back, and then goes at once."""
    await employ(herd, "other", account="acme")
    await employ(herd, "third", account="acme")
    await herd.broker.limit_turns("account/acme", 1)
    for name in ("coder", "other", "third"):
        await herd.parent.delegate(name, "write it")
    await herd.later(**BATCH)
    assert len(queue.job_ids) == 2
    [waits] = [name for name in ("other", "third") if await state(herd, name) == "due"]
    assert waits != "coder"
    [first] = {"other", "third"} - {waits}
    await run(herd, agent=first)
    await herd.scheduler.tick()
    assert await state(herd, waits) == "launched"

    for scope in ("fleet", f"queue/{queue.name}"):
        await herd.broker.limit_turns("account/acme", None)
        await herd.broker.limit_turns(scope, 2)
        assert 2 in [each.limit for each in await herd.broker.turn_slots()]
        await herd.later(**BATCH)  # the nudge of the one that ended
        assert await state(herd, first) == "due"
        await herd.broker.limit_turns(scope, None)


async def test_a_herd_has_no_more_turns_at_once_than_it_may(open_herd, queue):
    """The others are held, and follow as those end."""
    herd = await open_herd("crowd", turns_at_once=2)
    for number in range(5):
        await employ(herd, f"child{number}")
        await herd.parent.message(f"child{number}", "hello")
    await herd.later(**BATCH)
    assert len(queue.job_ids) == 2
    done: list[int] = []
    for _ in range(5):
        left = [n for n in range(5) if n not in done]
        running = [n for n in left if await state(herd, f"child{n}") == "launched"]
        assert len(running) == min(2, 5 - len(done))
        await run(herd, agent=f"child{running[0]}")
        done.append(running[0])
        await herd.scheduler.tick()
    assert len(queue.job_ids) == 5


async def test_a_herd_that_may_have_more_turns_at_once_has_them_at_once(open_herd, queue):
    """Those that were held do not wait until one has ended."""
    herd = await open_herd("crowd", turns_at_once=1)
    for number in range(3):
        await employ(herd, f"child{number}")
        await herd.parent.message(f"child{number}", "hello")
    await herd.later(**BATCH)
    assert len(queue.job_ids) == 1
    await herd.parent.set_settings(HerdSettings(turns_at_once=3))
    await herd.scheduler.tick()
    assert len(queue.job_ids) == 3


@proves("P14")
async def test_a_herd_with_a_crowd_keeps_no_others_turn_from_the_queue(open_herd, queue):
    """A hundred due turns, one slot at a time: another herd's only turn is the second to go."""
    crowd, other = await open_herd("crowd", turns_at_once=1_000), await open_herd("other")
    await crowd.broker.limit_turns("fleet", 1)
    for number in range(100):
        await employ(crowd, f"child{number}")
        await crowd.parent.message(f"child{number}", "hello")
    await crowd.later(**BATCH)
    await employ(other)
    await other.parent.message("coder", "hello")
    await other.later(**BATCH)
    [number] = [n for n in range(100) if await state(crowd, f"child{n}") == "launched"]
    await run(crowd, agent=f"child{number}")
    await crowd.scheduler.tick()
    assert await state(other) == "launched"


async def test_an_account_whose_limit_is_reached_pauses_all_its_turns(herd, queue):
    """Until it ends; turns of others go on."""
    for name in ("one", "two"):
        await employ(herd, name, account="acme")
    await herd.parent.delegate("one", "write it")
    await herd.later(**BATCH)
    turn = await claim(herd, "one")
    await turn.end(turns.Ending(kind=turns.How.LIMITED, error="limit"))
    for name in ("two", "coder"):
        await herd.parent.delegate(name, "write it")
    await herd.later(**BATCH)
    assert [await state(herd, name) for name in ("one", "two", "coder")] == [
        "due",
        "due",
        "launched",
    ]
    await herd.later(minutes=16)
    assert [await state(herd, name) for name in ("one", "two")] == ["launched", "launched"]


@pytest.mark.parametrize("before", ["due", "launched"])
async def test_a_turn_follows_its_agent_to_another_account(herd, queue, before):
    """A turn that waits for a slot of its account, or for a worker, is put among those of the new
    one: its job of before is over, and the slot is given back."""
    await herd.broker.limit_turns("account/acme", 1)
    for name in ("first", "other"):
        await employ(herd, name, account="acme")
        if name == "other" or before == "due":
            await herd.parent.delegate(name, "write it")
            await herd.later(**BATCH)
    was = await turns_of(herd, "other")
    assert was.state == before
    moved = CommandRunner(["code"], queue=queue.name, account="another")
    await herd.parent.set_runner("other", moved)
    await herd.scheduler.tick()
    now = await turns_of(herd, "other")
    assert (now.state, now.account) == ("launched", "another")
    assert await herd.broker.claim_turn(herd.name, "other", was.number) is None
    used = {each.scope: each.taken for each in await herd.broker.turn_slots()}
    assert (used["account/acme"], used["account/another"]) == (int(before == "due"), 1)
    assert (await claim(herd, "other")).number > was.number


async def test_a_parked_turn_follows_its_agent_to_another_account(herd, queue):
    """The limit was that of the account of before; what changes no account ends no pause."""
    await employ(herd, "other", account="acme")
    await herd.parent.delegate("other", "write it")
    await herd.later(**BATCH)
    turn = await claim(herd, "other")
    await turn.end(turns.Ending(kind=turns.How.LIMITED, error="limit"))
    for account, then in (("acme", "due"), ("another", "launched")):
        runner = CommandRunner(["code", "again"], queue=queue.name, account=account)
        await herd.parent.set_runner("other", runner)
        await herd.scheduler.tick()
        assert await state(herd, "other") == then


async def test_a_runner_that_is_taken_away_while_its_turn_is_launched_keeps_no_slot(herd, queue):
    """Another scheduler has carried what was given back before this one took a slot."""
    await herd.parent.delegate("coder", "write it")
    herd.clock.advance(timedelta(seconds=5))
    await herd.scheduler._timers.turn()
    fleet = await herd.broker.fleet()
    found = (await herd.broker.run(turns.due(fleet, fleet.partition(herd.name), 10))).turns
    await herd.parent.set_runner("coder", None)
    await herd.scheduler.tick()
    await herd.broker.run(turns.take_slots(fleet, [], found))
    assert await herd.broker.run(turns.launched(fleet, found[0])) == "over"
    await herd.scheduler.tick()
    assert (await herd.broker.turn_slots())[0].taken == 0


async def test_a_pause_is_in_the_fleets_time(url, fleet_name, queue):
    """A clock that runs a thousand times as fast ends it as much sooner."""
    clock = ScaledClock(1_000)
    async with AsyncBroker.connect(url, fleet=fleet_name, clock=clock) as broker:
        parent = await broker.open_herd("h")
        await parent.register("coder", runner=CommandRunner(["code"], account="acme"))
        await parent.message("coder", "hello")
        turn = await broker.claim_turn("h", "coder", 1)
        assert turn is not None
        await turn.end(turns.Ending(kind=turns.How.LIMITED, error="limit"))
        [_, account] = await broker.turn_slots()
        assert 0 < account.paused_ms <= 15 * 60_000
        await wait_until_async(lambda: _goes_on(broker), "the account to go on")


async def _goes_on(broker):
    return all(not each.paused_ms for each in await broker.turn_slots())


# ------------------------------------------------------------------ RQ itself


async def test_rq_away_stops_no_other_duty(url, fleet_name, clock, open_herd):
    """Turns stay due and timers fire; the duty fails and says so; then all goes on (case 16)."""
    with EmbeddedServer(durable=False) as rq:
        away = rq.url
    async with AsyncBroker.connect(url, fleet=fleet_name, clock=clock) as broker:
        herd, scheduler = await open_herd("h"), AsyncScheduler(broker, rq_url=away)
        await employ(herd)
        await herd.parent.delegate("coder", "write it", deadline=timedelta(hours=1))
        clock.advance(timedelta(seconds=5))
        with pytest.raises(errors.Unavailable) as failure:
            await scheduler.tick()
        assert failure.value.operation == "launch"
        assert await state(herd) == "due"
        clock.advance(timedelta(hours=1))
        with pytest.raises(errors.Unavailable):
            await scheduler.tick()
        assert (await herd.parent.tasks())[0].state == "timed_out"


async def test_a_cluster_has_to_name_a_plain_redis_for_rq():
    """The refusal says what to set, and no password."""
    launching = duty.AsyncLaunching(
        AsyncBroker.connect("redis+cluster://user:hunter2@127.0.0.1:1"), None
    )
    with pytest.raises(errors.InvalidInput) as refusal:
        launching._open().put([])
    assert "TOCSIN_RQ_URL" in refusal.value.detail and "hunter2" not in refusal.value.detail


def test_the_sync_scheduler_launches_too(sync_broker, sync_scheduler, clock, queue):
    """The same duty in threads."""
    parent = sync_broker.open_herd("h")
    parent.register("coder", runner=CommandRunner(["code"], queue=queue.name))
    parent.message("coder", "hello")
    clock.advance(timedelta(seconds=5))
    assert sync_scheduler.tick()["turns_launched"] == 1
    assert len(queue.job_ids) == 1


# ------------------------------------------------------------------ damage


async def test_repair_finds_a_turn_that_lost_its_time(herd, queue):
    """Its timer, or its place among those to be launched, was deleted by hand (case 14)."""
    await herd.parent.delegate("coder", "write it")
    await command(herd, "ZREM", key_of(herd, "due"), "6:turn:coder")
    await herd.scheduler.repair()
    await herd.scheduler.tick()
    assert await state(herd) == "launched"
    await command(herd, "ZREM", key_of(herd, "due"), "6:turn:coder")
    await command(herd, "DEL", key_of(herd, "turning"))
    await command(herd, "ZADD", key_of(herd, "turning"), 1, "nobody")
    swept = await herd.scheduler.repair()
    assert {what for _, what in swept.counts} == {"timers", "turning"}
    assert await command(herd, "ZRANGE", key_of(herd, "turning"), 0, -1) == ["coder"]
    assert not (await herd.scheduler.repair()).counts


@pytest.mark.parametrize(
    "lost", ["lanes", "lanes, by another type", "launches", "launches, by another type"]
)
async def test_repair_finds_a_turn_that_nobody_would_launch(herd, queue, lost):
    """The lane that it stands in is in no list any more, or was lost or written over (case 14)."""
    await employ(herd, "other")
    await herd.broker.limit_turns("fleet", 1)
    for name in ("other", "coder"):
        await herd.parent.delegate(name, "write it")
        await herd.later(**BATCH)
    assert await state(herd) == "due"
    await herd.broker.limit_turns("fleet", None)
    kind, _, by = lost.partition(", ")
    name = key_of(herd, kind, lane=f"{queue.name}/-")
    await command(herd, "DEL", name)
    if by:
        await command(herd, "SET", name, "nonsense")
    assert (await herd.scheduler.repair()).counts
    await herd.scheduler.tick()
    assert await state(herd) == "launched"
    assert not (await herd.scheduler.repair()).counts


async def test_nothing_is_left_of_the_turns_of_a_closed_herd(herd, queue, broker):
    """Due, launched or running: no list, slot or lane outlives it."""
    for name in ("one", "two"):
        await employ(herd, name)
        await herd.parent.delegate(name, "write it")
    await herd.later(**BATCH)
    await claim(herd, "one")
    await herd.parent.delegate("coder", "write it")
    await herd.parent.close_herd()
    await herd.scheduler.tick()
    for left in (
        *(key_of(herd, kind) for kind in ("turning", "held", "lanes", "freed")),
        key_of(herd, "launches", lane=f"{queue.name}/-"),
        keys.slots(broker.name),
        keys.slots(broker.name, f"queue/{queue.name}"),
    ):
        assert not await command(herd, "EXISTS", left)
