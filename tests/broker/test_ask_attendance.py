"""Who waits: replicas, askers that die, are cut off or cancelled; the answer comes once."""

from __future__ import annotations

import asyncio
import contextlib
import time
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

import pytest
import redis

from tests.asking import REQUEST, asking, attending, join_in, opening
from tests.fleets import about, bodies, token_of
from tests.proxy import Proxy
from tests.requirements import proves
from tests.waiting import wait_until
from tocsin.broker import AsyncBroker, Broker, HerdSettings, asks, errors, keys, scripts, signals
from tocsin.broker.testing import lapse
from tocsin.scheduler import Scheduler


async def mail(agent) -> list[str]:
    """What would wake the agent now."""
    turn = await agent.next_turn(timeout=0)
    found = bodies(turn or [])
    if turn:
        await turn.ack()
    return found


# ------------------------------------------------------------------ replicas


@proves("P16")
async def test_two_replicas_with_asks_of_their_own(herd):
    """Each has the answer to its own ask, whichever comes first; neither has mail."""
    other = await herd.another("scout")
    async with (
        asking(herd, herd.scout, "planner", "one") as one,
        asking(herd, other, "planner", "two") as two,
    ):
        await herd.planner.reply(two.id, "to two")
        await herd.planner.reply(one.id, "to one")
        assert ((await one.reply()).body, (await two.reply()).body) == ("to one", "to two")
    assert await mail(herd.scout) == await mail(other) == []


async def test_a_replica_that_reads_mail_does_not_get_the_answer(herd):
    """While somebody waits, the answer is theirs."""
    other = await herd.another("scout")
    async with asking(herd, herd.scout, "planner") as line:
        reading = asyncio.create_task(other.next_turn(timeout=0.3))
        await herd.planner.reply(line.id, "!")
        assert (await line.reply()).body == "!"
        assert await reading is None


@proves("P9", "P16")
async def test_one_of_two_that_wait_for_one_ask_dies(herd):
    """The ask is attended while one of them is there."""
    other = await herd.another("scout")
    async with asking(herd, herd.scout, "planner", key="k") as line:
        second = await join_in(herd, other, line.id, key="k")
        lapse(other)
        await herd.planner.reply(line.id, "!")
        assert (await line.reply()).body == "!"
        second.cancel()
    assert await mail(herd.scout) == []


async def test_one_of_two_that_wait_for_one_ask_hangs_up(herd):
    """The answer is held for the other one."""
    async with asking(herd, herd.scout, "planner", key="k") as line:
        second = await join_in(herd, herd.scout, line.id, key="k")
        await line.hang_up()
        await herd.planner.reply(line.id, "!")
        assert (await second).body == "!"
    assert await mail(herd.scout) == []


# ------------------------------------------------------------------ dead askers


@proves("P9", "P11")
async def test_an_asker_that_died_before_the_answer(herd):
    """It becomes waking mail to the agent, once."""
    scout = await herd.another("scout")
    async with asking(herd, scout, "planner") as line:
        lapse(scout)
        sent = await herd.planner.reply(line.id, "!")
        assert not sent.late
        turn = await herd.scout.next_turn(timeout=5)
        assert [(each.message_id, each.late) for each in turn] == [(sent.message_id, False)]
        await turn.ack()
        assert await mail(herd.scout) == []


@proves("P9", "P11")
async def test_an_asker_that_died_with_the_answer_held(herd):
    """It landed, nobody said that they have it, and its process is gone: waking mail, once."""
    scout = await herd.another("scout")
    opened = await herd.broker.run(opening(scout))
    assert isinstance(opened, asks.Pending)
    await herd.planner.reply(REQUEST, "!")
    assert await mail(herd.scout) == [], "it is held for who waits"

    lapse(scout)

    assert await mail(herd.scout) == ["!"]
    assert await mail(herd.scout) == []
    assert (await herd.scout.ask_wait(REQUEST)).body == "!"


async def test_an_asker_that_comes_back_before_its_mail_is_read(herd):
    """It says that it has the answer: mail nobody read goes back."""
    scout = await herd.another("scout")
    await herd.broker.run(opening(scout))
    lapse(scout)
    await herd.planner.reply(REQUEST, "!")

    assert (await herd.scout.ask_wait(REQUEST)).body == "!"

    assert await mail(herd.scout) == []


async def test_an_asker_that_comes_back_after_its_mail_was_taken(herd):
    """Thawed too late: another has the answer, and the asker is told so instead of both."""
    frozen = await herd.another("scout")
    async with asking(herd, frozen, "planner") as line:
        lapse(frozen)
        # Its bell rings, but its look is held up until the mail has been taken.
        with _held_up(frozen) as looks:
            await herd.planner.reply(line.id, "!")
            turn = await herd.scout.next_turn(timeout=5)
            assert bodies(turn) == ["!"]
            looks.set()
            ended = await line.ends(errors.WrongState)
    assert herd.scout.instance in ended.detail
    await turn.ack()


@contextlib.contextmanager
def _held_up(agent):
    go, run = asyncio.Event(), agent.broker.run

    async def late(call):
        if call.script.name == "ask_look":
            await go.wait()
        return await run(call)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(agent, "_run", late)
        yield go


async def test_many_held_answers_of_an_asker_that_died(herd):
    """All of them become mail."""
    scout = await herd.another("scout")
    requests = [f"msg_{number:025d}" for number in range(150)]
    for request in requests:
        await herd.broker.run(opening(scout, request))
        await herd.planner.reply(request, request)
    lapse(scout)
    assert sorted(bodies(await herd.scout.receive(limit=1000))) == requests


# ------------------------------------------------------------------ ends nobody heard


async def test_an_end_of_an_ask_that_nobody_waits_for(herd):
    """The agent is told by mail, which wakes if it has work open."""
    for wakes in (False, True):
        if wakes:
            await herd.working(herd.scout)
        async with asking(herd, herd.scout, "planner") as line:
            pass
        await herd.later(minutes=10)
        assert (await herd.scout.next_turn(timeout=0) is not None) == wakes
        for notice in about(await herd.scout.receive(), "request_closed"):
            assert notice.data["request"] == line.id and notice.data["how"] == "no_reply"


@proves("P16")
async def test_an_end_that_its_asker_did_not_live_to_hear(herd):
    """It ended while somebody waited who died before hearing so: the agent is told by mail."""
    task = await herd.working(herd.scout)
    scout = await herd.another("scout")
    await herd.broker.run(opening(scout))
    await herd.later(minutes=10)
    assert await mail(herd.scout) == [], "somebody waits"

    lapse(scout)

    (notice,) = about(await herd.scout.next_turn(timeout=5), "request_closed")
    assert notice.data["request"] == REQUEST and await herd.state(task) == "running"
    await herd.scout.ack(notice)
    assert await mail(herd.scout) == []


async def test_an_answer_while_an_end_is_untold(herd):
    """Who waits has the answer, late; no mail tells of the end."""
    await herd.broker.run(opening(herd.scout))
    await herd.later(minutes=10)
    assert (await herd.planner.reply(REQUEST, "!")).late

    assert (await herd.scout.ask_wait(REQUEST)).late
    await herd.broker.run(asks.leave(herd.scout.caller, REQUEST, "call_1", told=False))

    assert await mail(herd.scout) == []
    assert len(await herd.scout.receive()) == 0


async def test_coming_back_takes_back_the_news(herd):
    """Who asks how it ended needs no mail about it any more."""
    async with asking(herd, herd.scout, "planner") as line:
        pass
    await herd.later(minutes=10)
    with pytest.raises(errors.NoReply):
        await herd.scout.ask_wait(line.id)
    assert len(await herd.scout.receive()) == 0


# ------------------------------------------------------------------ cancelled askers


@proves("P9")
async def test_a_cancelled_asker(herd):
    """The connection stays usable, the request answerable, the answer is waking mail."""
    task = await herd.working(herd.scout)
    async with asking(herd, herd.scout, "planner", task=task.id) as line:
        await line.hang_up()
        assert await herd.state(task) == "waiting"
        assert (await herd.scout.receipt(line.id)).request == "open"
        assert not (await herd.planner.reply(line.id, "!")).late
    assert await mail(herd.scout) == ["!"]
    assert await herd.state(task) == "running"


@proves("P9")
async def test_cancelled_in_the_moment_of_the_answer(herd):
    """Case 27: at any moment between the answer and the return: had, or mail; never both.

    Steps of the event loop stand in for moments: each round cancels some steps later.
    """
    returned = 0
    for number in range(100):
        async with asking(herd, herd.scout, "planner", str(number)) as line:
            await herd.planner.reply(line.id, str(number))
            for _ in range(int(1.1**number)):
                await asyncio.sleep(0)
            await line.hang_up()
            had: list[str] = []
            with contextlib.suppress(asyncio.CancelledError):
                had = [(await line.reply()).body]
            assert had + await mail(herd.scout) == [str(number)]
            assert await attending(herd, line.id) == 0, "no waiter is left behind"
            returned += len(had)
    assert 0 < returned < 100, "in some rounds either came first"


@pytest.mark.parametrize("script", ["ask_look", "ask_confirm"])
@pytest.mark.parametrize("moment", ["before", "after"])
async def test_cancelled_while_it_fetches_the_answer(herd, script, moment, monkeypatch):
    """Also where the server has heard that the answer arrived, and its asker has not."""
    reached, run = asyncio.Event(), herd.broker.run

    async def stuck(call):
        if call.script.name != script or reached.is_set():
            return await run(call)
        if moment == "after":
            await run(call)
        reached.set()
        return await asyncio.Event().wait()

    async with asking(herd, herd.scout, "planner") as line:
        monkeypatch.setattr(herd.scout, "_run", stuck)
        await herd.planner.reply(line.id, "!", data={"base": 2})
        await asyncio.wait_for(reached.wait(), 10)
        await line.hang_up()
        turn = await herd.scout.next_turn(timeout=0)
        assert [(each.body, each.data) for each in turn] == [("!", {"base": 2})]
        await turn.ack()
    assert await mail(herd.scout) == []


def test_an_interrupted_asker(sync_broker, monkeypatch):
    """Ctrl-C in a sync ask: the connection is usable, the request answerable, nobody waits."""
    parent = sync_broker.open_herd("h")
    scout, planner = (
        sync_broker.join("h", name, parent.register(name).token) for name in ("scout", "planner")
    )
    interrupted = []

    def interrupt(signal, timeout):
        interrupted.append(timeout)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(signals.Signal, "wait", interrupt)
        with pytest.raises(KeyboardInterrupt):
            scout.ask("planner", "Which?")
    assert interrupted
    (asked,) = planner.next_turn(timeout=5)
    planner.reply(asked, "!")
    assert bodies(scout.next_turn(timeout=5)) == ["!"]


# ------------------------------------------------------------------ lost answers of the server


@pytest.fixture
def proxy(url):
    """The way to a server that knows all scripts, so that a call is one command."""
    with redis.Redis.from_url(url) as client:
        for name in scripts.names():
            client.script_load(scripts.load(name).text)
    with Proxy(url) as proxy:
        yield proxy


@pytest.fixture
async def behind(proxy, fleet_name, clock):
    """A broker whose every command goes through the proxy."""
    async with AsyncBroker.connect(proxy.url, fleet=fleet_name, clock=clock) as broker:
        yield broker


@proves("P9", "P12")
@pytest.mark.parametrize("when", ["answer", "command"])
@pytest.mark.parametrize("script", ["ask_open", "ask_look", "ask_confirm", "request_reply"])
@pytest.mark.one_server
async def test_an_ask_whose_step_loses_its_answer(herd, behind, proxy, script, when):
    """Case 1: one question, one answer, to its asker alone."""
    scout = await behind.join(herd.name, "scout", herd.scout.token)
    planner = await behind.join(herd.name, "planner", herd.planner.token)
    lost = proxy.cut_next(scripts.load(script).sha, before=when == "command")
    waiting = asyncio.create_task(scout.ask("planner", "once"))
    turn = await planner.next_turn(timeout=10)
    await planner.reply(turn[0], "!")
    await turn.ack()

    assert (await asyncio.wait_for(waiting, 20)).body == "!"

    assert lost.happened
    assert len(await herd.planner.receive()) == len(await herd.scout.receive()) == 0
    assert "second_reply" not in [line.event for line in await herd.parent.journal(limit=1000)]


@proves("P9", "P11")
@pytest.mark.one_server
async def test_an_asker_whose_line_stays_down(herd, proxy, behind, monkeypatch):
    """It waits for the server to be back, and has its answer then."""
    scout = await behind.join(herd.name, "scout", herd.scout.token)
    async with asking(herd, scout, "planner") as line:
        refusals = 0
        run = scout.broker.run

        async def broken(call):
            nonlocal refusals
            if call.script.name == "ask_look" and refusals < 5:
                refusals += 1
                raise errors.Unavailable("ask", "no answer")
            return await run(call)

        monkeypatch.setattr(scout, "_run", broken)
        await herd.planner.reply(line.id, "!")
        assert (await line.reply()).body == "!"
    assert refusals == 5


async def test_an_asker_that_cannot_say_it_has_the_answer(herd, monkeypatch):
    """Says it as soon as it can; until then it has none."""
    run, refusals = herd.broker.run, 0

    async def broken(call):
        nonlocal refusals
        if call.script.name == "ask_confirm" and refusals < 5:
            refusals += 1
            await run(call)
            raise errors.Unavailable(call.operation, "no answer")
        return await run(call)

    scout = await herd.another("scout")
    async with asking(herd, scout, "planner") as line:
        monkeypatch.setattr(scout, "_run", broken)
        await herd.planner.reply(line.id, "!")
        assert (await line.reply()).body == "!"
    assert refusals == 5
    lapse(scout)
    assert await mail(herd.scout) == []


async def test_an_asker_that_finds_no_server(herd, monkeypatch):
    """The error of one that did not wait yet names the id to come back with."""
    scout = await herd.another("scout")

    async def broken(call):
        raise errors.Unavailable(call.operation, "no answer")

    monkeypatch.setattr(scout, "_run", broken)
    with pytest.raises(errors.Unavailable, match=r"ask_wait\('msg_"):
        await scout.ask("planner", "?")


@proves("P9", "P12")
@pytest.mark.parametrize("leaving", [(), (1,), (2,), (1, 2)])
async def test_two_calls_that_confirm_one_answer(herd, leaving):
    """It is mail again only when no call that confirmed it has it, and then once."""
    caller = herd.scout.caller
    for call in ("call_1", "call_2"):
        await herd.broker.run(opening(herd.scout, call=call))
    await herd.planner.reply(REQUEST, "!")
    for call in ("call_1", "call_2"):
        assert await herd.broker.run(asks.confirm(caller, REQUEST, call)) is None
    for number in leaving:
        left = asks.leave(caller, REQUEST, f"call_{number}", told=False)
        for _ in range(2):
            await herd.broker.run(left)
    assert bodies(await herd.scout.receive()) == (["!"] if len(leaving) == 2 else [])


@proves("P12")
async def test_an_asker_frozen_for_longer_than_receipts_are_kept(herd):
    """What another replica handled as its mail is not its answer any more."""
    other = await herd.another("scout")
    await herd.broker.run(opening(herd.scout))
    lapse(herd.scout)
    await herd.planner.reply(REQUEST, "!")
    assert await mail(other) == ["!"]
    await herd.later(minutes=61)
    await herd.broker.run(asks.look(herd.scout.caller, REQUEST, "call_1", ""))
    assert await herd.broker.run(asks.confirm(herd.scout.caller, REQUEST, "call_1")) == ""


async def test_confirming_an_answer_that_was_dead_lettered(open_herd):
    """Takes it out of the dead letters: its asker has it after all."""
    herd = await open_herd("h", "scout", "planner", max_attempts=1)
    other = await herd.another("scout")
    await herd.broker.run(opening(herd.scout))
    lapse(herd.scout)
    sent = await herd.planner.reply(REQUEST, "!")
    await (await other.next_turn(timeout=5)).nack(error="broke")
    assert (await herd.scout.receipt(sent.message_id)).state == "dead"
    assert await herd.broker.run(asks.confirm(herd.scout.caller, REQUEST, "call_1")) is None
    partition = herd.parent.caller.fleet.partition(herd.name)
    dead = keys.below(partition, "dead", herd=herd.name)
    assert await herd.broker.link.command("test", "ZCARD", dead) == 0
    assert (await herd.scout.receipt(sent.message_id)).state == "handled"


async def test_a_refused_ask_makes_nobody_present(herd):
    """What is refused changes nothing: the lease of a process that is gone is not taken up."""
    async with asking(herd, herd.planner, "scout") as line:
        lapse(herd.scout)
        for refused in (
            opening(herd.scout),
            asks.look(herd.scout.caller, line.id, "call_1", ""),
            asks.look(herd.scout.caller, "msg_unknown", "call_1", ""),
        ):
            with pytest.raises(errors.BrokerError):
                await herd.broker.run(refused)
    assert not {each.agent: each.present for each in await herd.parent.roster()}["scout"]


def test_closing_a_broker_that_waits(url, fleet_name):
    """Ends the calls that wait in other threads, at once."""
    broker = Broker.connect(url, fleet=fleet_name)
    parent = broker.open_herd("release-42")
    scout = broker.join("release-42", "scout", token_of(parent.register("scout")))
    parent.register("planner")
    with ThreadPoolExecutor() as pool:
        asked = pool.submit(scout.ask, "planner", "?")
        polled = pool.submit(scout.next_turn)
        wait_until(lambda: any(each.waits_for for each in parent.roster()), "the ask to be open")
        broker.close()
        for waiting in (asked, polled):
            with pytest.raises(errors.InvalidInput, match="closed"):
                waiting.result(timeout=5)


# ------------------------------------------------------------------ real leases


LEASES = HerdSettings(lease=timedelta(milliseconds=200), grace=timedelta(milliseconds=200))


def test_a_stateless_call_that_waits(url, fleet_name):
    """Nobody renews its lease but its looks: as long as they come, the answer is held for it."""
    with Broker.connect(url, fleet=fleet_name) as broker:
        parent = broker.open_herd("h", settings=LEASES)
        token = token_of(parent.register("scout"))
        planner = broker.join("h", "planner", token_of(parent.register("planner")))
        scout = broker.join("h", "scout", token, instance="inst_tool")
        scheduler = Scheduler(broker)
        broker.run(opening(scout))
        ends = time.monotonic() + 1
        while time.monotonic() < ends:
            assert scout.ask_wait(REQUEST, timeout=0.05) is None
            scheduler.tick()
        broker.run(asks.look(scout.caller, REQUEST, "call_1", ""))
        planner.reply(REQUEST, "!")
        reply = scout.ask_wait(REQUEST)
        assert reply is not None
        assert planner.receipt(reply.message_id).state == "handled"
        assert "lost" not in [line.event for line in parent.journal()]
        assert scout.next_turn(timeout=0) is None


@proves("P9", "P11")
def test_an_asker_whose_leases_ran_out(url, fleet_name):
    """On the server's own time: held for lease and grace, then waking mail, by whoever looks."""
    settings = LEASES
    with Broker.connect(url, fleet=fleet_name) as broker:
        parent = broker.open_herd("h", settings=settings)
        token = token_of(parent.register("scout"))
        asker = broker.join("h", "scout", token)
        planner = broker.join("h", "planner", token_of(parent.register("planner")))
        broker.run(opening(asker))
        broker.forget(asker)  # as a process that was killed
        planner.reply(REQUEST, "!")

        restarted = broker.join("h", "scout", token)
        scheduler = Scheduler(broker)

        def comes():
            scheduler.tick()
            return restarted.next_turn(timeout=0)

        turn = wait_until(comes, "the answer to come as mail")
        assert bodies(turn) == ["!"]
        turn.ack()
        assert "lost" in [line.event for line in parent.journal()]


async def test_a_broker_that_closes_while_its_ask_waits(herd, url, fleet_name, clock, monkeypatch):
    """What its other calls do meanwhile brings no instance back: the answer is mail at once."""
    own = AsyncBroker.connect(url, fleet=fleet_name, clock=clock)
    me = await own.join(herd.name, "scout", herd.scout.token)
    async with asking(herd, me, "planner") as line:
        real = own.link.run

        async def run(call):
            result = await real(call)
            if call.operation == "leave":
                with contextlib.suppress(errors.BrokerError):
                    await me.ask_wait(line.id, timeout=0)
            return result

        monkeypatch.setattr(own.link, "run", run)
        await own.aclose()
        await herd.planner.reply(line.id, "Exponential")
        assert bodies(await herd.scout.receive()) == ["Exponential"]
