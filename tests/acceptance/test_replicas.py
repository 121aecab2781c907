"""Several processes that serve one agent: slow, busy, joining, leaving, killed."""

from __future__ import annotations

import json
import platform
import random
import socket
from collections import Counter
from contextlib import ExitStack
from datetime import timedelta

import pytest
import redis

from tests.acceptance.processes import Program
from tests.fleets import bodies, token_of
from tests.requirements import proves
from tests.waiting import wait_until
from tocsin.broker import Broker, HerdSettings, Parent, keys
from tocsin.scheduler import Scheduler

SHORT = HerdSettings(
    lease=timedelta(milliseconds=600),
    lease_renewal=timedelta(milliseconds=150),
    grace=timedelta(milliseconds=600),
)


@pytest.fixture
def real_broker(url: str, fleet_name: str):
    """A broker on the server's own time."""
    with Broker.connect(url, fleet=fleet_name) as broker:
        yield broker


@proves("P12", "P16")
@pytest.mark.parametrize("how", ["waits", "burns"])
def test_a_handler_that_takes_three_times_the_lease(real_broker, url, fleet_name, how):
    """Case 4: awaiting or burning CPU, with a replica that idles: one run, and its ack counts."""
    parent = real_broker.open_herd("h", settings=SHORT)
    where = (url, fleet_name, "h", "scout", token_of(parent.register("scout")), how, "1.8")
    with Program("laborer", *where) as one, Program("laborer", *where) as two:
        names = {one.says("joined"): one, two.says("joined"): two}
        sent = parent.message("scout", "heavy")
        busy = names[_taken_by(parent, sent.message_id)]
        assert json.loads(busy.says("took")) == ["heavy", 0]
        assert busy.says("handled") == "0"
        receipt = parent.receipt(sent.message_id)
        assert (receipt.state, receipt.attempts) == ("handled", 0)
        assert _times_taken(parent, sent.message_id) == 1


@proves("P11", "P16")
def test_the_busy_replica_killed(real_broker, url, fleet_name):
    """Case 4: the other gets the mail, with the attempt counted."""
    parent = real_broker.open_herd("h", settings=SHORT)
    where = (url, fleet_name, "h", "scout", token_of(parent.register("scout")), "waits", "1.8")
    with Program("laborer", *where) as one, Program("laborer", *where) as two:
        names = {one.says("joined"): one, two.says("joined"): two}
        sent = parent.message("scout", "heavy")
        busy = names.pop(_taken_by(parent, sent.message_id))
        busy.kill()
        (other,) = names.values()
        assert json.loads(other.says("took")) == ["heavy", 1]
        assert other.says("handled") == "0"


def _taken_by(parent: Parent, message: str) -> str:
    return wait_until(lambda: parent.receipt(message).by or "", "it to be taken")


def _times_taken(parent: Parent, message: str) -> int:
    lines = [line for line in parent.journal(limit=1000) if line.event == "taken"]
    return sum(message in line.fields["messages"] for line in lines)


@proves("P11", "P12")
def test_five_hundred_starts_and_stops(real_broker, url, fleet_name, monkeypatch):
    """Case 9: two replicas on one host with a 60-character name, 500 cycles, a fifth of them lost.

    Six by a real SIGKILL with mail in hand. Names are unique, fewer than ten are left behind, no
    mail is lost when a dead one is removed, and what every one held is handled in the end.
    """
    for module, name in ((socket, "gethostname"), (platform, "node")):
        monkeypatch.setattr(module, name, lambda: "h" * 60)
    chance = random.Random(9)
    settings = HerdSettings(
        lease=timedelta(milliseconds=200), grace=timedelta(milliseconds=100), max_attempts=100
    )
    parent = real_broker.open_herd("h", settings=settings)
    token = token_of(parent.register("scout"))
    names: list[str] = []
    handled: Counter[str] = Counter()
    wanted = {str(number) for number in range(500)}

    where = (url, fleet_name, "h", "scout", token)
    killed = {f"killed with {number}" for number in range(6)}
    with ExitStack() as stack:
        victims = [stack.enter_context(Program("handler", *where)) for _ in killed]
        names += [victim.says("joined") for victim in victims]
        for text in sorted(killed):
            _taken_by(parent, parent.message("scout", text).message_id)
        for victim in victims:
            victim.says("took")
            victim.kill()
    for number in range(500):
        parent.message("scout", str(number))
        replicas = [real_broker.join("h", "scout", token) for _ in range(2 if number % 50 else 1)]
        names += [replica.instance for replica in replicas]
        for replica in replicas:
            turn = replica.receive(limit=3)
            if chance.random() < 0.2:
                real_broker.forget(replica)  # as a kill would: it renews no more and says nothing
                continue
            if chance.random() < 0.8:
                turn.ack()
                handled.update(bodies(turn))
            replica.leave()

    last = real_broker.join("h", "scout", token)
    names.append(last.instance)
    scheduler = Scheduler(real_broker)

    def drained() -> bool:
        scheduler.tick()
        turn = last.receive()
        turn.ack()
        handled.update(bodies(turn))
        return wanted | killed <= handled.keys() and _left(url, parent) < 10

    wait_until(drained, "all mail to be handled and the dead to be removed", timeout=20)
    assert len(set(names)) == len(names) > 900
    assert max(handled.values()) == 1


def _left(url: str, parent: Parent) -> int:
    """Names of instances that the server still keeps, wherever."""
    partition = parent.caller.fleet.partition("h")
    with redis.Redis.from_url(url, decode_responses=True) as client:
        kept = set(
            client.zrange(keys.below(partition, "instances", herd="h", agent="scout"), 0, -1)
        )
        inbox = keys.below(partition, "inbox", herd="h", agent="scout")
        kept |= {consumer["name"] for consumer in client.xinfo_consumers(inbox, "agent")}
        record = client.hgetall(keys.below(partition, "agent", herd="h", agent="scout"))
        kept |= {name.partition(":")[2] for name in record if ":inst_" in name}
    return len(kept)


@proves("P12")
def test_replicas_that_join_share_the_work_at_once(real_broker, url, fleet_name):
    """Case 10: 100 messages and one replica, then four more: each has a fifth of the work.

    A worker that takes one at a time (`limit=1`) leaves the rest to whoever comes.
    """
    parent = real_broker.open_herd("h")
    where = (url, fleet_name, "h", "scout", token_of(parent.register("scout")))
    sent = [parent.message("scout", str(number)).message_id for number in range(100)]
    with ExitStack() as stack:
        replicas = []
        for number in range(5):
            replicas.append(stack.enter_context(Program("one_by_one", *where)))
            assert replicas[-1].says("took") == str(number), "at once, while the others work"
        for number in range(5, 100):
            replica = replicas[number % 5]
            replica.tell("go")
            assert replica.says("took") == str(number)
        for replica in replicas:
            replica.tell("go")
        receipts = [parent.receipt(message) for message in sent]
        wait_until(lambda: parent.receipt(sent[-1]).state == "handled", "the last ack")
    assert sorted(Counter(receipt.by for receipt in receipts).values()) == [20] * 5
    assert {receipt.attempts for receipt in receipts} == {0}


WORK = 0.1
"""Seconds that a message is worked on."""


@proves("P12")
def test_five_replicas_are_done_before_one_alone_could_be(real_broker, url, fleet_name):
    """Case 10: a hundred messages that take their time; each of five works, side by side."""
    parent = real_broker.open_herd("h")
    where = (url, fleet_name, "h", "scout", token_of(parent.register("scout")), str(WORK))
    with ExitStack() as stack:
        replicas = [stack.enter_context(Program("one_by_one", *where)) for _ in range(5)]
        for replica in replicas:
            replica.says("joined")
        sent = [parent.message("scout", str(number)).message_id for number in range(100)]
        wait_until(
            lambda: all(parent.receipt(message).handled_at for message in sent),
            "all to be handled",
            timeout=30,
        )
    receipts = [parent.receipt(message) for message in sent]
    shares = Counter(receipt.taken_by for receipt in receipts)
    began = [receipt.taken_at for receipt in receipts if receipt.taken_at]
    ended = [receipt.handled_at for receipt in receipts if receipt.handled_at]
    assert len(shares) == 5 and {receipt.attempts for receipt in receipts} == {0}
    took = (max(ended) - min(began)).total_seconds()
    assert took < 100 * WORK * 0.9, "less than the work itself takes one"


@proves("P11", "P12")
def test_a_replica_that_is_told_to_end_hands_back_what_it_holds(real_broker, url, fleet_name):
    """Case 10: SIGTERM with a hundred taken and none begun: another has them at once, uncounted.

    The lease is a minute, so that nothing but the hand-back brings them.
    """
    parent = real_broker.open_herd("h", settings=HerdSettings(lease=timedelta(minutes=1)))
    where = (url, fleet_name, "h", "scout", token_of(parent.register("scout")))
    sent = [parent.message("scout", str(number)).message_id for number in range(100)]
    with Program("gatherer", *where) as holder:
        assert int(holder.says("holds")) == 100
        with Program("one_by_one", *where) as other:
            other.says("joined")
            assert holder.end() == 0
            for number in range(100):
                assert other.says("took") == str(number)
                other.tell("go")
            wait_until(lambda: parent.receipt(sent[-1]).state == "handled", "the last ack")
    assert {parent.receipt(message).attempts for message in sent} == {0}
