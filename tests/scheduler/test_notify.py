"""Alerts: a human is told once of what needs one, whatever fails, and no agent is woken."""

from __future__ import annotations

import asyncio
import json
import logging
import re
import threading
from collections import Counter
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest
import redis

from tests.fleets import Herd, HerdMaker, command, key_of
from tests.leftovers import fleet_keys
from tests.waiting import wait_until, wait_until_async
from tests.webhook import Webhook, webhook
from tests.workers.cli.long_running import Running, running
from tocsin.broker import AsyncBroker, Broker, ManualClock, keys, scripts
from tocsin.broker.setting_values import EVENTS
from tocsin.broker.settings import NotifySettings
from tocsin.scheduler import AsyncScheduler, Scheduler
from tocsin.scheduler._async import notify


@pytest.fixture
def hook() -> Iterator[Webhook]:
    with webhook() as hook:
        yield hook


@pytest.fixture
def settings(hook: Webhook) -> NotifySettings:
    return NotifySettings(
        notify_url=hook.url, notify_private=True, notify_timeout=timedelta(seconds=20)
    )


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """What failed is due again at once."""
    monkeypatch.setattr(notify, "FIRST_PAUSE", 0.0)


@pytest.fixture
async def scheduler(broker: AsyncBroker, settings: NotifySettings) -> AsyncScheduler:
    """A scheduler that tells alerts, from the start of the test on."""
    scheduler = AsyncScheduler(broker, settings)
    await scheduler.tick()
    return scheduler


def stored(url: str, fleet: str) -> list[str]:
    """The keys that hold alerts."""
    with redis.Redis.from_url(url) as client:
        return [key for key in fleet_keys(client, fleet) if keys.kind_of(key) in HOLDING]


HOLDING = {"alerts", "alerted"}


async def everything(herd: Herd) -> None:
    """One of each event."""
    await herd.parent.register("absent")
    await herd.scout.message("absent", "Anybody there?", expects_reply=True)
    await herd.waiting("Which backoff?")
    await herd.later(minutes=5)
    await herd.later(minutes=15)
    failing = await herd.working(herd.scout, "Break it")
    await herd.scout.done(failing.id, "failed", error="it broke")
    await herd.scout.message("planner", "poison")
    for _ in range(5):
        await (await herd.planner.receive()).nack(error="cannot parse")
    await herd.working(herd.scout, "Never finished")
    await herd.scout.leave()
    await herd.later(minutes=10)


async def test_a_human_is_told_once_of_each_event(herd: Herd, hook: Webhook) -> None:
    """Reminder, blocked, failed, dead letter, agent away, question nobody hears: one alert each."""
    await everything(herd)
    await herd.later(hours=1)

    events = Counter(alert["event"] for alert in hook.alerts)
    # The question to who is absent and the one that blocked are dead or over, not told again. This
    # herd is under no other that could leave it an orphan.
    assert events == dict.fromkeys(set(EVENTS) - {"herd_orphaned"}, 1)
    assert len(set(hook.ids)) == len(hook.ids)
    told = {alert["event"]: alert for alert in hook.alerts}
    assert told["unheard"]["body"] == "Anybody there?"
    assert (told["unheard"]["sender"], told["unheard"]["recipient"]) == ("scout", "absent")
    assert (told["reminder"]["agent"], told["reminder"]["recipient"]) == ("scout", "planner")
    assert told["reminder"]["question"] == "Which backoff?"
    assert told["reminder"]["waiting_ms"] == 5 * 60_000
    assert "no reply from planner" in told["blocked"]["error"]
    assert (told["failed"]["error"], told["failed"]["description"]) == ("it broke", "Break it")
    assert "cannot parse" in told["dead_letter"]["reason"]
    assert told["dead_letter"]["body"] == "poison"
    assert told["agent_away"]["agent"] == "scout"
    for post in hook.posts:
        assert post.headers["Idempotency-Key"] == post.alert["id"]
        assert post.headers["Content-Type"] == "application/json"
        assert (post.alert["herd"], post.path) == (herd.name, "/told?key=hunter2")
        assert post.alert["text"].startswith(f"Herd {herd.name}: ")


async def test_a_human_is_told_once_of_a_herd_that_lost_the_one_above(
    open_herd: HerdMaker, hook: Webhook
) -> None:
    """An orphan: what was above it is gone, so that no close can come any more."""
    top = await open_herd("top", "lead")
    await top.children["lead"].open_herd("sub")
    await top.scheduler.tick()
    await top.children["lead"].leave()
    await command(top, "DEL", key_of(top, "agent", agent="lead"))
    for _ in range(3):
        await top.later(minutes=11)

    [alert] = hook.alerts
    assert (alert["event"], alert["herd"], alert["under"]) == ("herd_orphaned", "sub", "top/lead")
    assert "no agent top/lead any more" in alert["reason"] and alert["reason"] in alert["text"]


async def test_nobody_asked_for_alerts_so_none_is_stored(
    broker: AsyncBroker, clock: ManualClock, url: str, fleet_name: str
) -> None:
    """Without a notifier nothing is kept, nor is anything written to look for one."""
    herd = await HerdMaker(broker, clock, AsyncScheduler(broker))("h", "scout", "planner")
    await everything(herd)

    assert stored(url, fleet_name) == []
    with redis.Redis.from_url(url) as client:
        partition = keys.partition(fleet_name, keys.partition_of("h", 16))
        assert client.hkeys(partition) == [b"last", b"offset"]


async def test_no_agent_is_woken_and_none_has_mail_of_it(herd: Herd, hook: Webhook) -> None:
    """What tells a human adds nothing to anybody's mail."""
    await herd.waiting()
    await herd.planner.receive()
    await herd.later(minutes=5)
    assert hook.alerts[0]["event"] == "reminder"

    for agent in (herd.parent, herd.scout, herd.planner):
        assert await agent.next_turn(timeout=0) is None
    assert [mail.kind for mail in await herd.parent.receive()] == ["reminder"]
    assert not await herd.scout.receive() and not await herd.planner.receive()


async def test_schedulers_share_the_work_and_tell_nothing_twice(
    open_herd: HerdMaker, settings: NotifySettings, hook: Webhook, url: str
) -> None:
    """Two that look at the same time tell each alert once between them."""
    herds = [await open_herd(f"h{number}", "scout") for number in range(6)]
    async with AsyncBroker.connect(url, fleet=open_herd.broker.name) as other:
        second = AsyncScheduler(other, settings)
        for herd in herds:
            await herd.parent.register("absent")
            for number in range(5):
                await herd.scout.message("absent", f"{number}?", expects_reply=True)

        done = await asyncio.gather(open_herd.scheduler.tick(), second.tick())

    assert sum(each.get("alerts_told", 0) for each in done) == 30
    assert len(hook.ids) == len(set(hook.ids)) == 30


async def test_what_fails_is_tried_again_by_the_same_id(herd: Herd, hook: Webhook) -> None:
    """A webhook that answers 500, then 302, which is not followed, then 204 was told once."""
    hook.statuses = [500, 302, 204]
    await herd.parent.register("absent")
    await herd.scout.message("absent", "?", expects_reply=True)

    done = [await herd.scheduler.tick() for _ in range(4)]

    assert done == [{"alerts_failed": 1}, {"alerts_failed": 1}, {"alerts_told": 1}, {}]
    assert len(hook.ids) == 3 and len(set(hook.ids)) == 1
    assert {post.path for post in hook.posts} == {"/told?key=hunter2"}


async def test_what_never_arrives_is_given_up_and_counted(
    herd: Herd, hook: Webhook, url: str, caplog: pytest.LogCaptureFixture
) -> None:
    """After the last try there is a line in the log, without the secret of the url."""
    hook.statuses = [500] * 100
    await herd.parent.register("absent")
    await herd.scout.message("absent", "?", expects_reply=True)
    with caplog.at_level(logging.WARNING, "tocsin.scheduler"):
        for _ in range(notify.TRIES - 1):
            assert await herd.scheduler.tick() == {"alerts_failed": 1}
        assert await herd.scheduler.tick() == {"alerts_given_up": 1}

    assert await herd.scheduler.tick() == {}
    assert f"is given up after {notify.TRIES} tries: http://127.0.0.1:" in caplog.text
    assert "hunter2" not in caplog.text and "told" not in caplog.text.replace("not told", "")
    assert stored(url, herd.broker.name) == []


async def test_an_outage_costs_those_that_wait_no_tries(herd: Herd, hook: Webhook) -> None:
    """A pass in which nothing arrives ends, and leaves the others for later."""
    await herd.parent.register("absent")
    for number in range(20):
        await herd.scout.message("absent", f"{number}?", expects_reply=True)
    hook.statuses = [503] * 2

    assert await herd.scheduler.tick() == {"alerts_failed": 1}
    assert await herd.scheduler.tick() == {"alerts_failed": 1}
    assert await herd.scheduler.tick() == {"alerts_told": 20}


async def test_a_webhook_that_does_not_answer_is_left_at_its_time_out(
    herd: Herd, settings: NotifySettings, hook: Webhook
) -> None:
    """The try ends, and counts as failed."""
    quick = settings.model_copy(update={"notify_timeout": timedelta(milliseconds=100)})
    await herd.parent.register("absent")
    await herd.scout.message("absent", "?", expects_reply=True)
    hook.goes_on.clear()
    assert await AsyncScheduler(herd.broker, quick).tick() == {"alerts_failed": 1}
    hook.goes_on.set()
    assert await herd.scheduler.tick() == {"alerts_told": 1}


async def test_a_slow_webhook_holds_up_no_timer(
    herd: Herd, scheduler: AsyncScheduler, hook: Webhook
) -> None:
    """While a request hangs, deadlines pass as ever."""
    hook.goes_on.clear()
    running = asyncio.create_task(scheduler.run())
    await herd.parent.register("absent")
    await herd.scout.message("absent", "?", expects_reply=True)
    await wait_until_async(lambda: hook.posts, "the alert to be on its way")

    await herd.parent.delegate("planner", "x", deadline=timedelta(minutes=1), watch=True)
    herd.clock.advance(timedelta(minutes=1))
    await herd.parent.delegate("scout", "rings", deadline=timedelta(seconds=1))
    turn = await herd.parent.next_turn(timeout=10)

    assert turn is not None and [mail.kind for mail in turn] == ["task_settled"]
    assert len(hook.posts) == 1
    hook.goes_on.set()
    scheduler.stop()
    await asyncio.wait_for(running, 10)
    assert await scheduler.tick() == {}


def test_a_killed_schedulers_alert_is_told_by_another(
    tmp_path: Any, url: str, fleet_name: str, hook: Webhook, settings: NotifySettings
) -> None:
    """SIGKILL between taking and telling: another tells it, by the same id."""
    hook.goes_on.clear()
    options = ("--url", url, "--fleet", fleet_name, "--notify-url", hook.url, "--notify-private")
    with (
        running(tmp_path) as start,
        Broker.connect(url, fleet=fleet_name) as broker,
        redis.Redis.from_url(url) as client,
    ):
        first = start("scheduler", *options)
        _listening(first, client, fleet_name)
        parent = broker.open_herd("h")
        parent.register("absent")
        parent.message("absent", "?", expects_reply=True)
        _posted(first, hook)
        first.process.kill()
        first.wait()
        hook.goes_on.set()

        another = Scheduler(broker, settings)
        assert "alerts_told" not in another.tick()  # it may still be on its way
        [alerts] = [key for key in stored(url, fleet_name) if keys.kind_of(key) == "alerts"]
        client.zadd(alerts, {hook.ids[0]: 0})  # its time is over
        assert another.tick()["alerts_told"] == 1

        assert len(hook.ids) == 2 and len(set(hook.ids)) == 1
        parent.close_herd()
    assert stored(url, fleet_name) == []


def _listening(scheduler: Running, client: redis.Redis, fleet: str) -> None:
    partition = keys.partition(fleet, keys.partition_of("h", 16))
    wait_until(lambda: client.hget(partition, "alerting"), f"it to listen: {scheduler.errors}", 30)


def _posted(scheduler: Running, hook: Webhook) -> None:
    wait_until(lambda: hook.posts, f"its post: {scheduler.errors}")


async def test_a_reminder_whose_wait_is_over_is_not_told(
    herd: Herd, hook: Webhook, url: str
) -> None:
    """As for the parent: what is told is true when it is told."""
    _task, question = await herd.waiting()
    herd.clock.advance(timedelta(minutes=5))
    await AsyncScheduler(herd.broker).tick()
    assert stored(url, herd.broker.name) != []
    await herd.planner.reply(question, "That one.")

    assert await herd.scheduler.tick() == {}
    assert hook.posts == [] and stored(url, herd.broker.name) == []


async def test_only_the_chosen_events_are_told(
    herd: Herd, settings: NotifySettings, hook: Webhook, url: str
) -> None:
    """What is not of `notify_events` is taken off and told nobody."""
    chosen = settings.model_copy(update={"notify_events": ("failed", "dead_letter")})
    herd.scheduler = AsyncScheduler(herd.broker, chosen)
    await everything(herd)
    assert sorted(alert["event"] for alert in hook.alerts) == ["dead_letter", "failed"]
    assert stored(url, herd.broker.name) == []


@pytest.mark.parametrize("preview", [0, 20])
async def test_texts_of_agents_are_cut_and_secrets_masked(
    herd: Herd, settings: NotifySettings, hook: Webhook, preview: int
) -> None:
    """Of a body `notify_preview` characters are told, of 0 none; never a token or a password."""
    cut = settings.model_copy(update={"notify_preview": preview})
    await herd.parent.register("absent")
    text = f"{herd.scout.token} redis://u:hunter2@h/0 " + "x" * 100
    await herd.scout.message("absent", text, expects_reply=True)
    await AsyncScheduler(herd.broker, cut).tick()
    await herd.scout.message("absent", "password=hunter2 api_key: hunter2", expects_reply=True)
    whole = settings.model_copy(update={"notify_preview": 1_000})
    await AsyncScheduler(herd.broker, whole).tick()

    first, second = hook.alerts
    assert first.get("body") == ("tok_*** redis://u:***…"[:20] + "…" if preview else None)
    assert second["body"] == "password=*** api_key: ***"
    sent = json.dumps(hook.alerts)
    assert herd.scout.token[5:] not in sent and "hunter2" not in sent


async def millisecond(herd: Herd) -> tuple[int, int]:
    """The one that it is at the server."""
    seconds, microseconds = await command(herd, "TIME")
    return seconds, microseconds // 1_000


async def test_the_oldest_are_dropped_where_nobody_takes_them(
    open_herd: HerdMaker, hook: Webhook, caplog: pytest.LogCaptureFixture
) -> None:
    """1,000 wait in a partition at most; how many were dropped is told in the log."""
    herd = await open_herd("h", "scout", inbox_limit=5_000)
    await herd.parent.register("absent")
    for number in range(1_003):
        await herd.scout.message("absent", f"{number}?", expects_reply=True)
        if number == 2:  # alerts of one millisecond of the server have no order
            before = await millisecond(herd)
            while await millisecond(herd) == before:
                pass
    with caplog.at_level(logging.ERROR, "tocsin.scheduler"):
        done = await herd.scheduler.tick()

    assert done == {"alerts_told": 1_000, "alerts_dropped": 3}
    assert "3 alerts found no room" in caplog.text
    assert min(int(alert["body"].strip("?")) for alert in hook.alerts) == 3


def test_the_sync_scheduler_tells_too(
    sync_broker: Broker, settings: NotifySettings, hook: Webhook
) -> None:
    """By a tick, and from a thread of its own while it runs."""

    scheduler = Scheduler(sync_broker, settings)
    assert scheduler.tick() == {}
    parent = sync_broker.open_herd("h")
    parent.register("absent")
    parent.message("absent", "one?", expects_reply=True)
    assert scheduler.tick() == {"alerts_told": 1}
    thread = threading.Thread(target=scheduler.run)
    thread.start()
    parent.message("absent", "two?", expects_reply=True)
    wait_until(lambda: len(hook.posts) == 2, "the second alert")
    scheduler.stop()
    thread.join(10)
    assert not thread.is_alive()
    assert scheduler.tick() == {}


def test_the_scripts_raise_the_events_that_settings_offer() -> None:
    """No event without a setting, none to choose that never comes."""
    source = scripts.load("herd_visit").source + scripts.load("message_send").source
    assert set(re.findall(r"\balert\('(\w+)'", source)) | {"blocked", "failed"} == set(EVENTS)


@pytest.mark.parametrize("damaged", ["task", "alert"])
async def test_one_damaged_record_silences_no_alert_beside_it(
    herd: Herd, hook: Webhook, scheduler: AsyncScheduler, damaged: str
) -> None:
    """What can be read of it is told, or it is dropped; all others reach the human."""
    await herd.parent.register("absent")
    failing = await herd.working(herd.scout, "Break it")
    await herd.scout.done(failing.id, "failed", error="it broke")
    partition = herd.parent.caller.fleet.partition(herd.name)
    link = herd.broker.link
    if damaged == "task":
        record = keys.below(partition, "task", herd=herd.name, task=failing.id)
        await link.command("test", "SET", record, "nonsense")
    else:
        name = f"alert_failed_{herd.name}_{failing.id.partition('_')[2]}"
        await link.command("test", "HSET", keys.below(partition, "alerted"), name, "{nonsense")
    other = await herd.broker.open_herd("other-herd")
    await other.register("nobody")
    await other.message("nobody", "Anybody there?", expects_reply=True)
    await herd.scout.message("absent", "Anybody there?", expects_reply=True)

    try:
        await scheduler.tick()
    finally:
        if damaged == "task":
            await link.command("test", "DEL", record)

    failed = ["failed"] if damaged == "task" else []
    assert sorted(alert["event"] for alert in hook.alerts) == [*failed, "unheard", "unheard"]


async def test_a_question_rerouted_to_who_is_absent_is_told(
    herd: Herd, hook: Webhook, scheduler: AsyncScheduler
) -> None:
    """It can wake nobody, as if it had been asked of that agent."""
    await herd.parent.register("absent")
    _, question = await herd.waiting("Which backoff?")
    await herd.parent.reroute(question, "absent")
    await scheduler.tick()

    [alert] = hook.alerts
    assert (alert["event"], alert["recipient"], alert["message"]) == ("unheard", "absent", question)


async def test_what_is_alike_in_two_herds_is_two_alerts(
    herd: Herd, hook: Webhook, scheduler: AsyncScheduler
) -> None:
    """Also where both live in one partition, and the first of each is of the same number."""
    place = keys.partition_of(herd.name, 16)
    beside = next(f"h{n}" for n in range(999) if keys.partition_of(f"h{n}", 16) == place)
    other = await herd.broker.open_herd(beside)
    third = await herd.broker.open_herd(
        next(f"i{n}" for n in range(999) if keys.partition_of(f"i{n}", 16) == place)
    )
    for parent in (other, third):
        partition = parent.caller.fleet.partition(parent.herd)
        inbox = keys.below(partition, "inbox", herd=parent.herd, agent="parent")
        await herd.broker.link.command("test", "XADD", inbox, "*", "nothing", "of ours")
        await parent.receive()
    await scheduler.tick()
    assert sorted(alert["herd"] for alert in hook.alerts) == sorted([other.herd, third.herd])
    assert len({alert["id"] for alert in hook.alerts}) == 2
