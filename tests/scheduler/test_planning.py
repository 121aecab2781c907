"""Plans as schedulers see to them: each slot once, whatever becomes of schedulers and of RQ."""

from __future__ import annotations

import json
import zlib
from collections.abc import AsyncIterator, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
import redis
from rq import Queue, SimpleWorker
from rq.job import Job
from rq.serializers import JSONSerializer

from tests.acceptance.test_lost_answers import LOST, behind, cut, proxy
from tests.fleets import command, key_of
from tests.requirements import proves
from tests.topologies import free_port
from tests.turning import employ
from tests.waiting import wait_until_async
from tocsin.broker import AsyncBroker, AsyncParent, HerdSettings, Missed, ScaledClock, plans
from tocsin.broker.clock import to_ms
from tocsin.scheduler import AsyncScheduler

__all__ = ["behind", "proxy"]

HOUR = timedelta(hours=1)


@pytest.fixture
def rq(url: str, fleet_name: str) -> Iterator[redis.Redis]:
    """The server of RQ, which is the fleet's."""
    with redis.Redis.from_url(url) as client:
        yield client
        for job in client.zrange(jobs(fleet_name), 0, -1):
            client.delete(Job.key_for(job.decode()))
        client.delete(jobs(fleet_name))


def jobs(fleet: str) -> str:
    return f"rq:scheduler:tocsin:{fleet}"


def held(rq: redis.Redis, fleet: str) -> dict[str, int]:
    """The jobs of plans that rq-scheduler holds, and when."""
    found: Any = rq.zrange(jobs(fleet), 0, -1, withscores=True)
    return {name.decode(): int(at) for name, at in found if b"plan_" in name}


async def hourly(herd, **how: Any) -> plans.Plan:
    plan: plans.Plan = await herd.parent.plan("scout", "Look around", every=HOUR, **how)
    return plan


async def slots(herd) -> list[int]:
    """The slots of which there is a task, in ms, oldest first."""
    return sorted(int(task.id.rpartition("_")[2]) for task in await herd.parent.tasks())


async def test_a_daily_time_runs_once_on_each_local_day(broker, clock, open_herd, scheduler):
    """02:30 in Paris, over the days on which clocks go forward and back."""
    for start in (datetime(2026, 3, 27, 12, tzinfo=UTC), datetime(2026, 10, 23, 12, tzinfo=UTC)):
        clock.advance(start - clock.now())
        herd = await open_herd(f"h-{start:%m}", "scout", max_open_tasks=10)
        await herd.parent.plan("scout", "Nightly", cron="30 2 * * *", tz="Europe/Paris")
        for _ in range(5 * 24 * 2):
            clock.advance(timedelta(minutes=30))
            await scheduler.tick()
        assert len(await slots(herd)) == 5


@proves("P16")
async def test_a_slot_is_seen_to_once_by_any_number_of_schedulers(herd, broker):
    """All have looked before one of them acts; the others come too late."""
    plan = await hourly(herd)
    await herd.later(minutes=1)
    herd.clock.advance(HOUR)
    fleet = await broker.fleet()
    looks = [await broker.run(plans.look(fleet, fleet.partition(herd.name), 10)) for _ in range(5)]
    came = [await broker.run(plans.fire(fleet, look.due[0], herd.clock.now())) for look in looks]
    assert [each[0] for each in came] == ["fired", "past", "past", "past", "past"]
    assert await slots(herd) == [to_ms(plan.created_at + HOUR)]


@LOST
@proves("P12")
async def test_an_answer_that_is_lost_gives_no_second_task(herd, behind, proxy, when):
    """Case 17: the repeat finds the slot seen to."""
    plan = await hourly(herd)
    herd.clock.advance(HOUR)
    lost = cut(proxy, "plan_fire", when)
    await AsyncScheduler(behind, repair_every=None).tick()
    assert lost.happened
    assert await slots(herd) == [to_ms(plan.created_at + HOUR)]
    assert (await herd.parent.plan_record(plan.id)).runs == 1


@pytest.mark.parametrize(
    ("missed", "count"), [(Missed.ONCE, 1), (Missed.SKIP, 0), (Missed.ALL, 72)]
)
async def test_schedulers_that_were_off_for_hours(open_herd, broker, missed, count):
    """Case 24: a plan of every five minutes, six hours without a scheduler, then three at once."""
    herd = await open_herd("h", "scout")
    plan = await herd.parent.plan("scout", "Look", every=timedelta(minutes=5), missed=missed)
    herd.clock.advance(timedelta(hours=6, minutes=2))
    for scheduler in [AsyncScheduler(broker, repair_every=None) for _ in range(3)]:
        await scheduler.tick()
    assert len(await slots(herd)) == count
    seen = await herd.parent.plan_record(plan.id)
    assert (seen.runs, seen.skipped) == (count, 72 - count)
    await herd.later(minutes=3)
    assert len(await slots(herd)) == count + 1


async def test_plans_are_jobs_that_rq_tools_can_show(herd, rq, fleet_name):
    """Case 31: an id and a description that can be read, and arguments that are JSON."""
    plan = await hourly(herd)
    await herd.scheduler.tick()
    [(name, at)] = held(rq, fleet_name).items()
    assert name == f"tocsin-{fleet_name}-{herd.name}-{plan.id}"
    assert at * 1000 == to_ms(plan.created_at + HOUR)
    job = Job.fetch(name, connection=rq, serializer=JSONSerializer)
    assert job.description == f"{herd.name}: {plan.id} at 2026-01-01 01:00:00 UTC"
    data = json.loads(zlib.decompress(rq.hget(Job.key_for(name), "data") or b""))
    assert data[3] == {"fleet": fleet_name, "herd": herd.name, "plan": plan.id}
    assert herd.parent.token not in repr(rq.hgetall(Job.key_for(name)))


async def test_jobs_follow_their_plans(herd, rq, fleet_name):
    """Moved on when a slot was seen to, taken out with a pause, put back with a resume."""
    plan = await hourly(herd)
    await herd.later(hours=1)
    assert [at * 1000 for at in held(rq, fleet_name).values()] == [
        to_ms(plan.created_at + 2 * HOUR)
    ]
    await herd.parent.pause_plan(plan.id)
    await herd.scheduler.tick()
    assert held(rq, fleet_name) == {}
    assert not [key for key in rq.scan_iter("rq:job:*") if fleet_name in key.decode()]
    await herd.parent.resume_plan(plan.id)
    await herd.scheduler.tick()
    assert len(held(rq, fleet_name)) == 1
    await herd.parent.remove_plan(plan.id)
    await herd.scheduler.tick()
    assert rq.exists(jobs(fleet_name)) == 0


@pytest.mark.parametrize("what", ["all", "jobs", "set"])
async def test_a_flushed_rq_loses_no_slot(herd, rq, fleet_name, what):
    """The plans' records have it all: what is lost is put back, and what is due comes."""
    plan = await hourly(herd)
    await herd.scheduler.tick()
    if what != "set":
        rq.delete(*(Job.key_for(name) for name in held(rq, fleet_name)))
    if what != "jobs":
        rq.delete(jobs(fleet_name))
    herd.clock.advance(HOUR)
    for _ in range(2):
        await herd.scheduler.tick()
    assert await slots(herd) == [to_ms(plan.created_at + HOUR)]
    assert len(held(rq, fleet_name)) == 1


@pytest.mark.parametrize(
    "field",
    [
        {"data": b"garbage"},
        {"data": zlib.compress(json.dumps(["x.y", None, [], {"herd": "x", "plan": "y"}]).encode())},
        {"created_at": "yesterday"},
        None,
    ],
    ids=["no data", "another plan's", "no time", "no name"],
)
async def test_a_job_that_was_written_over_stops_no_plan(herd, rq, fleet_name, field):
    """The plans' records have it all; whoever can write into RQ's Redis can delay none of them."""
    plan = await hourly(herd)
    await herd.scheduler.tick()
    [name] = held(rq, fleet_name)
    if field is None:
        rq.zadd(jobs(fleet_name), {b"\xff\xfe": 1})
    else:
        rq.hset(Job.key_for(name), mapping=field)
    assert (await herd.later(hours=1))["planned"] == 1
    assert await slots(herd) == [to_ms(plan.created_at + HOUR)]
    assert list(held(rq, fleet_name)) == [name]


@pytest.fixture
async def fast(url: str, fleet_name: str) -> AsyncIterator[AsyncParent]:
    """The parent of a herd whose hour is a tenth of a second, with scout and its hourly plan."""
    async with AsyncBroker.connect(url, fleet=fleet_name, clock=ScaledClock(36_000)) as broker:
        parent = await broker.open_herd("h", settings=HerdSettings(max_open_tasks=100))
        await parent.register("scout")
        await parent.plan("scout", "Look", every=HOUR, missed="skip")
        yield parent


async def test_a_job_that_a_worker_gets_is_one_more_look(fast, rq, fleet_name, monkeypatch, url):
    """Moved into a queue by hand, or by a scheduler of RQ's own, it gives what is due."""
    monkeypatch.setenv("TOCSIN_URL", url)
    await AsyncScheduler(fast.broker, repair_every=None).tick()
    [name] = held(rq, fleet_name)
    queue = Queue(f"{fleet_name}-by-hand", connection=rq, serializer=JSONSerializer)
    job = Job.fetch(name, connection=rq, serializer=JSONSerializer)
    fleet = await fast.broker.fleet()

    async def due() -> bool:
        return bool((await fast.broker.run(plans.look(fleet, fleet.partition("h"), 1))).due)

    await wait_until_async(due, "the plan to be due")
    queue.enqueue_job(job)
    SimpleWorker([queue], connection=rq, serializer=JSONSerializer).work(burst=True)
    assert job.get_status(refresh=True) == "finished", job.latest_result()
    assert len(await fast.tasks()) >= 1
    job.delete()
    queue.delete()


async def test_a_scaled_clock_scales_plans(fast):
    """An hour of a fleet that runs fast is an hour of its time, and what is late scales with it."""
    scheduler = AsyncScheduler(fast.broker, repair_every=None)

    async def given() -> bool:
        await scheduler.tick()
        return len(await fast.tasks()) >= 3

    await wait_until_async(given, "three hours")


@pytest.mark.parametrize(
    ("elsewhere", "says"),
    [
        (f"redis://127.0.0.1:{free_port()}", "no answer from"),
        ("redis+cluster://127.0.0.1:7000", "TOCSIN_RQ_URL"),
    ],
    ids=["away", "a Cluster"],
)
async def test_plans_go_on_where_rq_is_not(herd, broker, caplog, elsewhere, says):
    """By their records alone; the log says so once, with what to do."""
    plan = await hourly(herd)
    scheduler = AsyncScheduler(broker, repair_every=None, rq_url=elsewhere)
    for _ in range(3):
        herd.clock.advance(HOUR)
        await scheduler.tick()
    assert len(await slots(herd)) == 3
    told = [each.message for each in caplog.records if "records alone" in each.message]
    assert len(told) == 1 and says in told[0]
    assert (await herd.parent.plan_record(plan.id)).runs == 3


async def test_a_plan_that_cannot_be_read_stops_no_other(herd, open_herd):
    """Neither one whose record was written over, nor one whose rule makes no sense."""
    spoilt, strange, good = [await hourly(herd) for _ in range(3)]
    await command(herd, "DEL", key_of(herd, "plan", plan=spoilt.id))
    await command(herd, "SET", key_of(herd, "plan", plan=spoilt.id), "x")
    await command(herd, "HSET", key_of(herd, "plan", plan=strange.id), "rule", "x")
    assert (await herd.later(hours=1))["planned"] == 1
    assert [task.id.startswith(f"task_{good.id[5:]}") for task in await herd.parent.tasks()] == [
        True
    ]
    for plan in (spoilt, strange):
        await command(herd, "DEL", key_of(herd, "plan", plan=plan.id))
    await herd.scheduler.repair()
    assert [plan.id for plan in await herd.parent.plans()] == [good.id]


async def test_intervals_do_not_drift(herd):
    """However late each look comes."""
    plan = await hourly(herd)
    for _ in range(10):
        await herd.later(minutes=61)
    assert await slots(herd) == [to_ms(plan.created_at + n * HOUR) for n in range(1, 11)]


async def test_registries_of_rq_are_cleaned_once_for_each_slot(herd, broker, rq, fleet_name):
    """Housekeeping is carried like plans: whoever comes first does it, for all."""
    await hourly(herd)
    queue = Queue(f"{fleet_name}-done", connection=rq)
    registry = queue.finished_job_registry
    rq.sadd(Queue.redis_queues_keys, queue.key)
    rq.zadd(registry.key, {"old": 1})
    cleaned = [
        (await each.tick()).get("registries", 0)
        for each in (
            AsyncScheduler(broker, repair_every=None),
            AsyncScheduler(broker, repair_every=None),
        )
    ]
    assert cleaned == [1, 0]
    rq.zadd(registry.key, {"old": 1})
    assert "registries" not in await herd.scheduler.tick()
    assert (await herd.later(minutes=10))["registries"] == 1
    queue.delete()


async def test_registries_of_rq_are_cleaned_where_turns_alone_use_it(herd, rq, fleet_name):
    """Also of a fleet that plans nothing."""
    queue = Queue(fleet_name, connection=rq)
    rq.zadd(queue.finished_job_registry.key, {"old": 1})
    assert "registries" not in await herd.later(minutes=10)
    await employ(herd)
    await herd.parent.delegate("coder", "write it")
    assert (await herd.later(seconds=5))["turns_launched"] == 1
    assert (await herd.later(minutes=10))["registries"] == 1
    queue.delete(delete_jobs=True)
