"""The way to the server breaks, in every way it can; agents and timers go on when it is back."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import socket
import threading
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from datetime import timedelta
from functools import partial
from typing import Any

import pytest
import redis

from tests.acceptance.processes import Program
from tests.fleets import bodies, token_of
from tests.proxy import Proxy
from tests.requirements import proves
from tests.topologies import TOPOLOGIES, primaries
from tests.waiting import wait_until_async
from tocsin.broker import AsyncBroker, Broker, HerdSettings, agents, connections, errors, herds
from tocsin.broker.embedded import EmbeddedServer
from tocsin.scheduler import AsyncScheduler

SOON = 10.0
"""Seconds within which mail and timers flow again."""

SETTINGS = HerdSettings(
    lease=timedelta(seconds=2), grace=timedelta(seconds=30), lease_renewal=timedelta(seconds=0.2)
)


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Limits of fractions of a second, so that what is told of minutes is seen in moments."""
    for module in ("connections", "bells"):
        monkeypatch.setattr(f"tocsin.broker.{module}.ANSWER_WITHIN", 0.4)
    monkeypatch.setattr("tocsin.broker.connections.GIVE_UP_AFTER", 1.0)
    monkeypatch.setattr("tocsin.broker.connections.FREE_WITHIN", 0.1)
    monkeypatch.setattr("tocsin.broker.bells.SILENCE", 0.4)
    monkeypatch.setattr("tocsin.broker.bells.BREATH", 0.1)


@pytest.fixture
def only_bells(monkeypatch: pytest.MonkeyPatch) -> None:
    """No slow look: what wakes a waiting call is a bell, or nothing."""
    for kind in ("_async", "_sync"):
        monkeypatch.setattr(f"tocsin.broker.{kind}.agent.SLOW_POLL", 3600.0)


@pytest.fixture
def own(request: pytest.FixtureRequest) -> Iterator[Any]:
    """Servers for a test that ends, flushes or disturbs them: one, if nothing else is said."""
    with TOPOLOGIES[getattr(request, "param", "server")]() as servers:
        yield servers


@asynccontextmanager
async def waiting_agent(
    url: str, behind: str, settings: HerdSettings = SETTINGS
) -> AsyncIterator[tuple]:
    """A parent with a good line, and the mail of a child that waits at the end of a bad one."""
    async with AsyncBroker.connect(url, fleet="f") as good:
        parent = await good.open_herd("h", settings=settings)
        token = token_of(await parent.register("scout"))
        async with AsyncBroker.connect(behind, fleet="f") as bad:
            scout = await bad.join("h", "scout", token)
            got: list[str] = []

            async def work() -> None:
                async for turn in scout.turns():
                    async with turn:
                        got.extend(bodies(turn))

            working = asyncio.create_task(work())
            try:
                await parent.message("scout", "before")
                await wait_until_async(lambda: got == ["before"], "the first message")
                yield parent, scout, got
                assert not working.done()
            finally:
                working.cancel()
                await asyncio.wait({working})


# ------------------------------------------------------------------ idle


@pytest.mark.usefixtures("impatient", "only_bells")
async def test_idle_for_many_times_the_limit_of_a_socket(own, caplog):
    """Case 3: an agent that idles ten times as long as any read may take; then it is woken.

    Nothing is logged meanwhile, and nothing but the bell tells it.
    """
    caplog.set_level(logging.INFO, "tocsin")
    with Proxy(own.url) as proxy:
        async with waiting_agent(own.url, proxy.url) as (parent, _, got):
            await wait_until_async(lambda: proxy.connections == 3, "lines of calls, bells, leases")
            idle_until = time.monotonic() + 4.0
            await wait_until_async(lambda: time.monotonic() > idle_until, "some idle time")
            assert [record.message for record in caplog.records] == []
            assert proxy.connections == 3

            await parent.message("scout", "woken")
            await wait_until_async(lambda: got == ["before", "woken"], "the message")


@pytest.mark.usefixtures("only_bells")
async def test_idle_with_default_settings(own, caplog):
    """Case 3: longer than an answer may take, and than a socket of the library waits; then woken.

    Under a second from accepted to taken, by the server's clock; on a busy machine once in five.
    """
    caplog.set_level(logging.INFO, "tocsin")
    async with waiting_agent(own.url, own.url, HerdSettings()) as (parent, _, got):
        idle_until = time.monotonic() + connections.ANSWER_WITHIN + 1.5
        await wait_until_async(lambda: time.monotonic() > idle_until, "some idle time")
        assert [record.message for record in caplog.records] == []
        delays = []
        for number in range(5):
            sent = await parent.message("scout", str(number))
            await wait_until_async(partial(got.__contains__, str(number)), "the message")
            receipt = await parent.receipt(sent.message_id)
            delays.append(receipt.taken_at - receipt.accepted_at)
    assert min(delays) < timedelta(seconds=1), delays


@pytest.mark.usefixtures("impatient", "only_bells")
def test_a_thread_idle_for_many_times_the_limit_of_a_socket(url, fleet_name, caplog):
    """Case 3: the same for the sync client."""
    caplog.set_level(logging.INFO, "tocsin")
    with Broker.connect(url, fleet=fleet_name) as broker:
        parent = broker.open_herd("h", settings=SETTINGS)
        scout = broker.join("h", "scout", token_of(parent.register("scout")))
        sending = threading.Timer(4.0, parent.message, ["scout", "woken"])
        sending.start()
        turn = scout.next_turn()
        sending.join()
        assert turn is not None and bodies(turn) == ["woken"]
        turn.ack()
    assert [record.message for record in caplog.records] == []


# ------------------------------------------------------------------ nobody answers


@contextmanager
def nobody() -> Iterator[str]:
    """A port where nobody listens."""
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        yield f"redis://127.0.0.1:{bound.getsockname()[1]}/0"


@contextmanager
def silence() -> Iterator[str]:
    """A port where connections are accepted, and nothing is ever answered."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield f"redis://127.0.0.1:{listener.getsockname()[1]}/0"


@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize("where", [nobody, silence])
async def test_unavailable_comes_in_time(where):
    """A server that is gone, or accepts and never answers: `unavailable` in `GIVE_UP_AFTER`."""
    with where() as url:
        async with AsyncBroker.connect(url) as broker:
            for attempt in (broker.herds, lambda: broker.link.command("test", "PING")):
                begun = time.monotonic()
                with pytest.raises(errors.Unavailable) as gone:
                    await attempt()
                assert time.monotonic() - begun < 1.0 + 0.5, "the limit, and time to notice"
                assert gone.value.retryable
        with Broker.connect(url) as sync:
            begun = time.monotonic()
            with pytest.raises(errors.Unavailable):
                sync.herds()
            assert time.monotonic() - begun < 1.0 + 0.5


@pytest.mark.usefixtures("impatient")
async def test_no_call_hangs_when_the_server_stops_answering(own):
    """Every kind of call of an agent that was at work; closing does not wait for each in turn."""
    async with AsyncBroker.connect(own.url, fleet="f") as broker:
        parent = await broker.open_herd("h", settings=SETTINGS)
        scout = await broker.join("h", "scout", token_of(await parent.register("scout")))
        replicas = [await broker.join("h", "scout", scout.token) for _ in range(20)]
        os.kill(own.pid, signal.SIGSTOP)
        try:
            begun = time.monotonic()
            calls = [
                scout.message("parent", "x"),
                scout.receive(),
                scout.next_turn(timeout=60),
                scout.ask("parent", "?"),
                parent.roster(),
                parent.wait("task_1", timeout=60),
                broker.link.run_many([agents.renew(parent.caller), agents.renew(scout.caller)]),
            ]
            outcomes = await asyncio.gather(*calls, return_exceptions=True)
            assert [type(outcome) for outcome in outcomes] == [errors.Unavailable] * len(calls)
            assert len(replicas) == 20, "each of which has a lease to give up"
            await broker.aclose()
            assert time.monotonic() - begun < SOON
        finally:
            os.kill(own.pid, signal.SIGCONT)


@pytest.mark.usefixtures("impatient")
async def test_a_silent_server_blocks_nobody_who_begins_to_wait():
    """The bells' thread waits for an answer; the event loop does not wait for that thread."""
    with silence() as url:
        async with AsyncBroker.connect(url) as broker:
            waiter = threading.Event()
            with broker.hear("channel", "mail", waiter):
                for number in range(20):
                    begun = time.monotonic()
                    with broker.hear(f"channel-{number}", "mail", waiter):
                        await asyncio.sleep(0.02)
                    assert time.monotonic() - begun < 0.3


# ------------------------------------------------------------------ lines that break


@proves("P12")
@pytest.mark.parametrize("own", TOPOLOGIES, indirect=True)
@pytest.mark.usefixtures("only_bells")
async def test_lines_killed_three_times_in_two_seconds(own):
    """Case 32: CLIENT KILL of every connection, three times: mail flows, bells ring again."""
    with primaries(own.url) as clients:
        async with waiting_agent(own.url, own.url) as (parent, _, got):
            for text in ("one", "two", "three"):
                for client in clients:
                    client.client_kill_filter(_type="normal", skipme=True)
                    client.client_kill_filter(_type="pubsub", skipme=True)
                await parent.message("scout", text)
                await wait_until_async(partial(got.__contains__, text), "the mail", timeout=SOON)
    assert got == ["before", "one", "two", "three"]


@proves("P11", "P12")
@pytest.mark.usefixtures("impatient", "only_bells")
async def test_packets_dropped_without_a_word(own, caplog):
    """Case 32: both directions swallow; when the way is healed mail, leases and timers go on."""
    with Proxy(own.url) as proxy:
        async with (
            waiting_agent(own.url, proxy.url) as (parent, _, got),
            AsyncBroker.connect(proxy.url, fleet="f") as line,
        ):
            scheduler = AsyncScheduler(line)
            running = asyncio.create_task(scheduler.run())
            proxy.swallow()
            await parent.message("scout", "meanwhile")
            asked = await parent.message(
                "scout", "?", expects_reply=True, reply_within=timedelta(seconds=1)
            )
            for_long = time.monotonic() + 3.0
            await wait_until_async(lambda: time.monotonic() > for_long, "all limits to pass")
            assert got == ["before"]

            proxy.heal()
            await wait_until_async(lambda: "meanwhile" in got, "the mail", timeout=SOON)

            async def expired() -> bool:
                receipt = await parent.receipt(asked.message_id)
                return bool(receipt.request != "open")

            await wait_until_async(expired, "the timer", timeout=SOON)
            await parent.message("scout", "again")
            await wait_until_async(lambda: "again" in got, "the bell", timeout=SOON)
            lines = [record for record in caplog.records if record.levelno >= logging.WARNING]
            assert len(lines) < 12, [record.message for record in lines]
            scheduler.stop()
            await running


@proves("P11", "P12")
@pytest.mark.usefixtures("impatient", "only_bells")
async def test_a_server_that_is_away_and_comes_back(tmp_path, caplog):
    """Case 32: killed and started again on its data: what was accepted comes, timers fire."""
    with EmbeddedServer(tmp_path, options={"appendfsync": "always"}) as server:
        url, port = server.url, server.port
        async with waiting_agent(url, url) as (parent, _, got):
            scheduler = AsyncScheduler(parent.broker)
            running = asyncio.create_task(scheduler.run())
            server.stop()
            with pytest.raises(errors.Unavailable):
                await parent.message("scout", "refused")
            await asyncio.to_thread(server.start)
            assert server.port == port
            await wait_until_async(
                lambda: _sent(parent, "after"), "the server to be back", timeout=SOON
            )
            await wait_until_async(lambda: "after" in got, "the mail", timeout=SOON)
            lines = [record for record in caplog.records if record.levelno >= logging.WARNING]
            assert len(lines) < 12, [record.message for record in lines]
            scheduler.stop()
            await running


async def _sent(parent, text: str) -> bool:
    try:
        await parent.message("scout", text, key=text)
    except errors.Unavailable:
        return False
    return True


@proves("P12")
def test_three_hundred_interrupts_at_random_moments(url, fleet_name):
    """Ctrl-C in the middle of whatever: every later answer is its own call's, and none hangs."""
    with Program("interrupted", url, fleet_name, "300") as calls:
        assert calls.says("strange", timeout=60) == "0"


# ------------------------------------------------------------------ scripts


async def test_a_script_that_was_forgotten_is_sent_once_for_many_calls(own):
    """Its text is long, and a scheduler visits many herds at once after a server's restart."""
    with redis.Redis.from_url(own.url) as client:
        async with AsyncBroker.connect(own.url, fleet="f") as broker:
            parent = await broker.open_herd("h")
            client.script_flush()
            client.config_resetstat()
            many = [herds.roster(parent.caller) for _ in range(50)]
            assert len(await broker.link.run_many(many)) == 50
            sent = client.info("commandstats")
            assert sent["cmdstat_eval"]["calls"] == 1


async def test_scripts_forgotten_at_any_moment(own):
    """SCRIPT FLUSH again and again, between a look and its repeat too: no call notices."""
    stop = threading.Event()

    def forget() -> None:
        with redis.Redis.from_url(own.url) as client:
            while not stop.is_set():
                client.script_flush()

    forgetting = threading.Thread(target=forget)
    forgetting.start()
    try:
        async with AsyncBroker.connect(own.url, fleet="f") as broker:
            parent = await broker.open_herd("h")
            seat = await parent.register("scout")
            with Broker.connect(own.url, fleet="f") as sync:
                scout = sync.join("h", "scout", token_of(seat))
                for number in range(50):
                    await parent.message("scout", str(number))
                    await asyncio.gather(*[parent.roster() for _ in range(4)])
                    many = [herds.roster(parent.caller) for _ in range(4)]
                    assert not [
                        answer
                        for answer in await broker.link.run_many(many) + sync.link.run_many(many)
                        if isinstance(answer, errors.BrokerError)
                    ]
                    turn = scout.next_turn(timeout=5)
                    assert turn is not None and bodies(turn) == [str(number)]
                    turn.ack()
    finally:
        stop.set()
        forgetting.join()
