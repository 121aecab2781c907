"""`tocsin worker`: it says that it is there, ends when told to, and says why it cannot run."""

from __future__ import annotations

import json
import signal
from typing import Any

import pytest

from tests.workers.cli.long_running import finish, running
from tocsin.broker import Broker


@pytest.fixture
def start(tmp_path):
    with running(tmp_path) as start:
        yield start


def test_a_worker_says_that_it_is_there(start, url, tmp_path):
    """It names itself; --health sees it; SIGTERM ends it with 0, and then --health fails."""
    place = ("--url", url, "--rq-url", f"{url.rpartition('/')[0]}/2")
    worker = start("worker", *place, "--name", "mine", "--json")
    said = worker.document()
    assert said["worker"].startswith(f"mine-{worker.pid}-") and said["queues"] == ["tocsin"]
    while not json.loads(finish(tmp_path, "worker", *place, "--health", "--json").stdout)[
        "healthy"
    ]:
        assert worker.process.poll() is None, worker.errors
    assert worker.end(signal.SIGTERM) == 0
    gone = finish(tmp_path, "worker", *place, "--health", "--json")
    assert gone.returncode == 1
    assert "no worker runs on this machine" in json.loads(gone.stdout)["problems"][0]


def test_a_worker_that_hangs_or_was_killed(start, url, tmp_path):
    """--health fails while its loop does not turn; one that was killed is not there."""
    place = ("--url", url, "--rq-url", f"{url.rpartition('/')[0]}/2")
    worker = start("worker", *place, "--json")
    worker.document()

    def problems() -> list[str]:
        done = finish(tmp_path, "worker", *place, "--health", "--json")
        found: dict[str, Any] = json.loads(done.stdout)
        assert (done.returncode == 0) == found["healthy"]
        return list(found["problems"])

    while problems():
        assert worker.process.poll() is None, worker.errors
    worker.process.send_signal(signal.SIGSTOP)
    while not (found := problems()):
        assert worker.process.poll() is None, worker.errors
    assert "has been silent for" in found[0]
    worker.process.kill()
    worker.process.wait()
    assert "no worker runs on this machine" in problems()[0]


def test_a_worker_that_is_to_run_what_is_queued(tmp_path, url):
    """`--burst` ends when nothing is queued."""
    place = ("--url", url, "--rq-url", f"{url.rpartition('/')[0]}/2")
    assert finish(tmp_path, "worker", *place, "--burst").returncode == 0


def test_a_worker_that_does_not_agree_with_its_fleet(tmp_path, url, fleet_name):
    """Each of its turns would fail; and of a fleet that nobody used yet it decides nothing."""
    place = ("--url", url, "--rq-url", f"{url.rpartition('/')[0]}/2", "--fleet", fleet_name)
    assert finish(tmp_path, "worker", *place, "--burst").returncode == 0
    with Broker.connect(url, fleet=fleet_name, partitions=4) as broker:
        broker.fleet()
    done = finish(tmp_path, "worker", *place, "--burst", TOCSIN_PARTITIONS="8")
    assert done.returncode == 1 and "has 4 partitions" in done.stderr
    assert finish(tmp_path, "worker", *place, "--burst", TOCSIN_PARTITIONS="4").returncode == 0


def test_a_worker_whose_redis_is_away(tmp_path):
    """--burst and --health say so, without the password."""
    place = ("--url", "redis://:s3cret@127.0.0.1:1/0")
    for words, code in ((("--burst",), 69), (("--health",), 1)):
        done = finish(tmp_path, "worker", *place, *words)
        assert done.returncode == code
        assert "127.0.0.1:1" in done.stdout + done.stderr
        assert "s3cret" not in done.stdout + done.stderr


def test_a_cluster_is_refused_for_queues(tmp_path):
    """With what to set instead."""
    done = finish(tmp_path, "worker", "--url", "redis+cluster://127.0.0.1:1", "--burst")
    assert done.returncode == 1 and "TOCSIN_RQ_URL" in done.stderr
