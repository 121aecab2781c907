"""`tocsin doctor`: what is fit, what is not, and what it says to do."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import timedelta

import pytest
import redis

from tests.waiting import wait_until
from tocsin.broker import Broker, ScaledClock, agents, keys, processes, versions
from tocsin.broker.embedded import EmbeddedServer
from tocsin.scheduler import health


@pytest.fixture
def alive(url, fleet_name) -> Iterator[None]:
    """A scheduler has just reported."""
    with Broker.connect(url, fleet=fleet_name) as broker:
        broker.fleet()
        facts = {"host": "h", "pid": 7, "version": "0"}
        broker.run(processes.report(broker.name, "sched_1", facts))
        yield
        broker.run(processes.report(broker.name, "sched_1", None))


def look(cli, *args, **variables):
    """What doctor found: exit code, and its findings by check."""
    result = cli.run("doctor", "--json", *args, **variables)
    document = json.loads(result.stdout)
    assert document["healthy"] is (result.exit_code == 0)
    return result.exit_code, {each["check"]: each for each in document["findings"]}


def test_a_fleet_that_is_fit(cli, alive):
    """A running server and scheduler are good, and each check has its line."""
    code, found = look(cli)
    assert code == 0
    assert list(found) == [
        "server", "eviction", "memory", "persistence", "clock", "fleet", "schedulers",
        "lag", "instances", "versions", "records",
    ]  # fmt: skip
    assert "valkey" in found["server"]["detail"] or "redis" in found["server"]["detail"]
    assert "1 alive: sched_1 (h, process 7" in found["schedulers"]["detail"]
    assert "16 partitions, schema 1" in found["fleet"]["detail"]
    assert found["persistence"]["health"] == "warning"
    table = cli.good("doctor").stdout
    assert "✓ good" in table and "! warning" in table


def test_it_changes_nothing(cli, url):
    """A look at a fleet that nobody has used leaves no key, and misses the scheduler."""
    code, found = look(cli)
    assert code == 1
    assert "not used yet" in found["fleet"]["detail"]
    assert found["schedulers"]["health"] == "broken"
    assert "tocsin scheduler" in found["schedulers"]["detail"]
    with redis.Redis.from_url(url) as client:
        assert client.keys(f"*{cli.fleet}*") == []


def test_a_scheduler_that_went_silent(cli, alive, url):
    """A scheduler that has not reported for a while does not count as alive; others do its work."""
    with redis.Redis.from_url(url) as client:
        seconds, _ = client.time()
        client.hset(
            keys.schedulers(cli.fleet), "sched_1", f'{(seconds - 60) * 1000} {{"host": "h"}}'
        )
    code, found = look(cli)
    assert (code, found["schedulers"]["health"]) == (1, "broken")
    with Broker.connect(url, fleet=cli.fleet) as broker:
        broker.run(processes.report(broker.name, "sched_2", {"host": "h", "pid": 8}))
        code, found = look(cli)
        broker.run(processes.report(broker.name, "sched_2", None))
    assert (code, found["schedulers"]["health"]) == (0, "warning")
    assert "silent: sched_1 (h, process 0)" in found["schedulers"]["detail"]


def test_a_scheduler_one_of_whose_duties_has_stopped_turning(cli, url):
    """Case 32: it is alive, and broken all the same; the duty and its reason are named."""
    with Broker.connect(url, fleet=cli.fleet) as broker:
        duties = {"timers": "has done nothing for 45 s, because it fails: boom", "repair": ""}
        facts = {"host": "h", "pid": 7, "version": "0", "duties": duties}
        broker.run(processes.report(broker.name, "sched_1", facts))
        code, found = look(cli)
        broker.run(processes.report(broker.name, "sched_1", None))
    assert (code, found["schedulers"]["health"]) == (1, "broken")
    assert "timers of sched_1 has done nothing for 45 s" in found["schedulers"]["detail"]


def test_a_process_of_an_agent_one_of_whose_loops_has_stopped(cli, alive, url, monkeypatch):
    """Case 32: what its instance said with its last renewal, or that it renews no more."""
    with Broker.connect(url, fleet=cli.fleet) as broker:
        parent = broker.open_herd("h")
        assert look(cli)[1]["instances"]["detail"].startswith("1 run, and nothing")
        broker.run(agents.renew(parent.caller, loops="bells has done nothing for 6 s"))
        code, found = look(cli)
        assert (code, found["instances"]["health"]) == (1, "broken")
        assert f"h/parent {parent.instance}: bells has done nothing" in str(found["instances"])
        monkeypatch.setattr(processes, "OVERDUE", timedelta(seconds=-10))
        assert "has not renewed its lease for" in look(cli)[1]["instances"]["detail"]


def test_every_process_is_listed_with_its_version(cli, alive, url):
    """Schedulers with load and lag, live instances of every herd; all is well, of one version."""
    with Broker.connect(url, fleet=cli.fleet) as broker:
        for herd in ("h1", "h2"):
            parent = broker.open_herd(herd)
            scout = broker.join(herd, "scout", parent.register("scout").token or "")
        gone = broker.join("h2", "scout", scout.token)
        gone.leave()
        facts = {"host": "h", "pid": 8, "load": 0.25, "lag_ms": 1500, "fired": 7}
        build = {"version": versions.MINE.version, "schema": versions.SCHEMA}
        broker.run(processes.report(broker.name, "sched_1", {**facts, **build}))
        document = json.loads(cli.run("doctor", "--json").stdout)
        listed = {(each["herd"], each["agent"]) for each in document["instances"]}
        assert listed == {(herd, agent) for herd in ("h1", "h2") for agent in ("parent", "scout")}
        assert gone.instance not in str(document)
        assert {each["build"]["version"] for each in document["instances"]} == {build["version"]}
        (scheduler,) = document["schedulers"]
        assert (scheduler["load"], scheduler["lag"], scheduler["fired"]) == (0.25, "PT1.5S", 7)
        found = {each["check"]: each for each in document["findings"]}
        assert found["versions"]["health"] == "good" and "all 5 processes" in str(found["versions"])
        shown = cli.good("doctor").stdout
        assert "25%" in shown and "h1/scout" in shown and scout.instance in shown


def test_a_mixed_fleet_names_those_that_should_restart(cli, alive, url, monkeypatch):
    """After an upgrade: a scheduler and an instance of the version before; both go on working."""
    with Broker.connect(url, fleet=cli.fleet) as broker:
        parent = broker.open_herd("h")
        monkeypatch.setattr(agents, "MINE", versions.Build("0.0.9", versions.SCHEMA))
        scout = broker.join("h", "scout", parent.register("scout").token or "")
        monkeypatch.undo()
        code, found = look(cli)
        assert (code, found["versions"]["health"]) == (0, "warning")
        detail = found["versions"]["detail"]
        assert "a mixed fleet: 1 run 0," in detail and f"h/scout {scout.instance}" in detail
        assert "sched_1 (h, process 7)" in detail and parent.instance not in detail


def test_a_fleet_that_is_late(cli, alive, url, monkeypatch):
    """The lag is that of the oldest timer of all partitions; above the bound it is broken."""
    with Broker.connect(url, fleet=cli.fleet) as broker:
        parent = broker.open_herd("h")
        parent.register("scout")
        assert look(cli)[1]["lag"]["detail"] == "no timer is late"
        parent.delegate("scout", "Find it", deadline=timedelta(milliseconds=1))
        wait_until(lambda: "late" in look(cli)[1]["lag"]["detail"], "it to be late")
        monkeypatch.setattr(health, "MAX_LAG", timedelta(0))
        code, found = look(cli)
        assert (code, found["lag"]["health"]) == (1, "broken")
        assert "run more of them" in found["lag"]["detail"]


def test_a_herd_that_schedulers_cannot_visit(cli, url):
    """It is named, and does not count as lag: no scheduler can catch up with it."""
    with Broker.connect(url, fleet=cli.fleet) as broker:
        facts = {"host": "h", "pid": 7, "left_out": {"h": "WRONGTYPE"}}
        broker.run(processes.report(broker.name, "sched_1", facts))
        code, found = look(cli)
        broker.run(processes.report(broker.name, "sched_1", None))
    assert (code, found["schedulers"]["health"]) == (1, "broken")
    assert "herd h cannot be visited: WRONGTYPE" in found["schedulers"]["detail"]


def test_what_does_not_agree_with_the_records(cli, alive, url):
    """Case 14: doctor says what is wrong and changes nothing; with --repair it mends."""
    with Broker.connect(url, fleet=cli.fleet) as broker:
        parent = broker.open_herd("h")
        scout = broker.join("h", "scout", parent.register("scout").token or "")
        task = parent.delegate("scout", "Find it")
        scout.message("parent", "Which?", task=task.id, expects_reply=True)
        partition = broker.fleet().partition("h")
        waiting = keys.below(partition, "waiting", herd="h")
        with redis.Redis.from_url(url) as client:
            client.zrem(waiting, task.id)
            client.zadd(waiting, {"task_nonsense": 1})
            code, found = look(cli)
            assert (code, found["records"]["health"]) == (0, "warning")
            assert "h: 2 of waiting; run `tocsin doctor --repair`" in found["records"]["detail"]
            assert client.zrange(waiting, 0, -1) == [b"task_nonsense"]

            mended = look(cli, "--repair")[1]["records"]
            assert (mended["health"], mended["detail"][:22]) == ("good", "mended h: 2 of waiting")
            assert client.zrange(waiting, 0, -1) == [task.id.encode()]
        assert "agree with all" in look(cli)[1]["records"]["detail"]


def test_a_fleet_of_another_version(cli, alive, url):
    """A fleet whose layout this version does not know is broken, and says which it has."""
    with redis.Redis.from_url(url) as client:
        client.hset(keys.fleet(cli.fleet), "schema", 99)
        code, found = look(cli)
        client.hset(keys.fleet(cli.fleet), "schema", 1)
    assert (code, found["fleet"]["health"]) == (1, "broken")
    assert "schema 99" in found["fleet"]["detail"]


def test_a_fleet_that_does_not_agree(cli, alive, url):
    """A number of partitions that is not the fleet's is said once, and no more is asked."""
    cli.variables["TOCSIN_PARTITIONS"] = "64"
    code, found = look(cli)
    del cli.variables["TOCSIN_PARTITIONS"]
    broken = {check: each["detail"] for check, each in found.items() if each["health"] == "broken"}
    assert code == 1 and list(broken) == ["fleet"]
    assert "has 16 partitions" in broken["fleet"] and "not 64" in broken["fleet"]


def test_a_scaled_clock(cli, url):
    """A fleet that runs fast says how fast."""
    with Broker.connect(url, fleet=cli.fleet, clock=ScaledClock(60)) as broker:
        broker.fleet()
    assert "60 times as fast" in look(cli)[1]["fleet"]["detail"]


@pytest.mark.parametrize(
    ("limit", "health"), [("0", "warning"), ("100mb", "broken")], ids=["unlimited", "limited"]
)
def test_an_evicting_server(cli, limit, health):
    """Case 14: an eviction policy other than noeviction is a loud warning."""
    options = {"maxmemory": limit, "maxmemory-policy": "allkeys-lru"}
    with EmbeddedServer(durable=False, options=options) as server:
        code, found = look(cli, TOCSIN_URL=server.url)
        result = cli.run("doctor", TOCSIN_URL=server.url)
    assert (code, found["eviction"]["health"]) == (1, health)
    assert "CONFIG SET maxmemory-policy noeviction" in found["eviction"]["detail"]
    assert "warning: THE SERVER MAY LOSE YOUR DATA" in result.stderr


def test_memory_and_persistence(cli, tmp_path):
    """A durable server keeps an append-only file; a full memory and a missing one are told."""
    options = {"maxmemory": "100mb"}
    with EmbeddedServer(tmp_path / "data", options=options) as server:
        found = look(cli, TOCSIN_URL=server.url)[1]
        assert found["persistence"]["detail"] == "append-only file"
        assert "of 100.0 MB" in found["memory"]["detail"]
        with redis.Redis.from_url(server.url) as client:
            client.config_set("maxmemory", "1mb")
            assert look(cli, TOCSIN_URL=server.url)[1]["memory"]["health"] == "broken"


def test_a_replica(cli, server):
    """A replica takes no writes: broken, and says to use its primary."""
    with EmbeddedServer(durable=False) as other:
        with redis.Redis.from_url(other.url) as client:
            client.replicaof("127.0.0.1", server.port)
        code, found = look(cli, TOCSIN_URL=other.url)
    assert (code, found["server"]["health"]) == (1, "broken")
    assert "use its primary" in found["server"]["detail"]


def test_no_server(cli):
    """A server that is not there is 69, as of any command."""
    assert cli.run("doctor", TOCSIN_URL="redis://127.0.0.1:1/0").exit_code == 69
