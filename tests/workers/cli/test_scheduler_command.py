"""`tocsin scheduler`: runs until it is told to stop, or once."""

from __future__ import annotations

import json
import os
import platform
import signal
import socket
import time
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from tests.waiting import wait_until
from tests.webhook import webhook
from tests.workers.cli.long_running import Running, assert_timers_fire, finish, running
from tocsin.broker import Broker, processes

Start = Callable[..., Running]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    with running(tmp_path) as start:
        yield start


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_it_fires_timers_until_it_is_told_to_stop(
    start: Start, url: str, fleet_name: str, number: int
) -> None:
    """SIGTERM and Ctrl-C end it with 0."""
    scheduler = start("scheduler", "--url", url, "--fleet", fleet_name)
    assert_timers_fire(url, fleet_name)
    assert scheduler.end(number) == 0, scheduler.errors


def test_it_is_refused_with_another_number_of_partitions(
    tmp_path: Path, start: Start, url: str, fleet_name: str
) -> None:
    """It ends with the reason: that number is never right, however often it is tried."""
    with Broker.connect(url, fleet=fleet_name, partitions=5) as broker:
        broker.fleet()
    (tmp_path / "tocsin.toml").write_text("partitions = 6\n")
    refused = start("scheduler", "--url", url, "--fleet", fleet_name, "--json")
    assert "has 5 partitions" in refused.document()["error"]["detail"]


def test_its_log_is_json_when_asked(start: Start, url: str, fleet_name: str) -> None:
    """With `--log-format json` each line on stderr is a JSON object."""
    scheduler = start("scheduler", "--url", url, "--fleet", fleet_name, "--log-format", "json")
    assert_timers_fire(url, fleet_name)
    assert scheduler.end() == 0
    lines = [json.loads(line) for line in scheduler.errors]
    fired = [line for line in lines if "reply_deadlines=1" in line["message"]]
    assert [(line["level"], line["logger"]) for line in fired] == [("info", "tocsin.scheduler")]


def test_once_fires_what_is_due_and_prints_how_much(
    tmp_path: Path, url: str, fleet_name: str
) -> None:
    """`--once` makes one pass and ends; a second finds nothing to do."""
    with Broker.connect(url, fleet=fleet_name) as broker:
        parent = broker.open_herd("release-42")
        parent.register("scout")
        parent.delegate("scout", "Find how auth works", deadline=timedelta(milliseconds=100))
        wait_until(lambda: parent.tasks()[0].deadline < _server_time(broker), "the deadline")
    once = ("scheduler", "--once", "--url", url, "--fleet", fleet_name)
    assert json.loads(finish(tmp_path, *once, "--json").stdout)["task_deadlines"] == 1
    again = finish(tmp_path, *once)
    assert (again.returncode, again.stdout) == (0, "Nothing was due.\n")


def _server_time(broker: Broker):
    from tocsin.broker.clock import from_ms

    seconds, micros = broker.link.command("test", "TIME")
    return from_ms(int(seconds) * 1000 + int(micros) // 1000)


def test_health_is_that_of_the_schedulers_of_this_machine(
    start: Start, tmp_path: Path, url: str, fleet_name: str
) -> None:
    """Case 32: it fails while none runs, within 10 s of one being frozen, and not of an end."""
    place = ("--url", url, "--fleet", fleet_name)

    def health(*more: str) -> tuple[int, Any]:
        looked = finish(tmp_path, "scheduler", "--health", "--json", *place, *more)
        return looked.returncode, json.loads(looked.stdout)

    code, found = health()
    assert (code, found["healthy"]) == (1, False) and "has reported from this" in str(found)
    one, two = start("scheduler", *place), start("scheduler", *place)
    wait_until(lambda: len(health()[1]["schedulers"]) == 2, "both to report", 30)
    code, found = health()
    assert (code, found["problems"]) == (0, []) and found["lag_ms"] < 1_000
    assert {each["pid"] for each in found["schedulers"]} == {one.pid, two.pid}

    one.process.send_signal(signal.SIGSTOP)
    frozen = time.monotonic()
    problem = wait_until(lambda: health()[1]["problems"], "it to fail", 30)
    assert f"process {one.pid}) has not reported for" in problem[0]
    assert processes.SILENT.total_seconds() < 10 and time.monotonic() - frozen < 30
    one.process.send_signal(signal.SIGCONT)
    wait_until(lambda: health()[0] == 0, "it to be well again", 30)
    one.process.kill()
    one.wait()
    assert health()[0] == 0, "the other does the work"
    assert two.end() == 0
    assert health()[0] == 1


def test_health_fails_when_timers_are_late(tmp_path: Path, url: str, fleet_name: str) -> None:
    """Above `--max-lag`, and says what to do; a herd that nobody can visit is not counted."""
    with Broker.connect(url, fleet=fleet_name) as broker:
        parent = broker.open_herd("release-42")
        parent.register("scout")
        parent.delegate("scout", "Find how auth works", deadline=timedelta(milliseconds=1))
        facts: dict[str, Any] = {"host": platform.node(), "pid": os.getpid()}
        health = ("scheduler", "--health", "--url", url, "--fleet", fleet_name)

        def report(**more: Any) -> None:
            broker.run(processes.report(broker.name, "sched_1", {**facts, **more}))

        report()
        late = finish(tmp_path, *health, "--max-lag", "0")
        assert late.returncode == 1 and "run more of them" in late.stdout
        report()  # one of before that look may be too old by now
        assert finish(tmp_path, *health).returncode == 0
        report(left_out={"release-42": "no script can read it"})
        assert finish(tmp_path, *health, "--max-lag", "0").returncode == 0
        report(duties={"repair": "has done nothing for 6 s, because it hangs in one pass"})
        stopped = finish(tmp_path, *health)
        assert stopped.returncode == 1 and "repair of sched_1 has done nothing" in stopped.stdout


def test_without_a_server_it_waits_and_still_stops_at_once(start: Start) -> None:
    """It says that it waits, and ends with 0 when told to, in the midst of its back-off."""
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        scheduler = start("scheduler", "--url", f"redis://127.0.0.1:{bound.getsockname()[1]}/0")
        wait_until(lambda: any("timers wait" in line for line in scheduler.errors), "its warning")
        assert scheduler.end() == 0, scheduler.errors


def test_once_without_a_server_is_69(tmp_path: Path) -> None:
    """Only a pass that can be made is a success."""
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        url = f"redis://127.0.0.1:{bound.getsockname()[1]}/0"
        assert finish(tmp_path, "scheduler", "--once", "--url", url).returncode == 69
        assert finish(tmp_path, "scheduler", "--health", "--url", url).returncode == 69


def test_an_unknown_log_format_is_usage(tmp_path: Path) -> None:
    """What is offered is named."""
    refused = finish(tmp_path, "scheduler", "--log-format", "xml")
    assert refused.returncode == 2 and "json" in refused.stderr


def test_a_sample_alert_goes_where_alerts_go(tmp_path: Path) -> None:
    """`--test-notify` sends one, by the options or by the settings, and needs no server."""
    with webhook() as hook:
        url = ("--notify-url", hook.url, "--notify-private")
        done = finish(tmp_path, "scheduler", "--test-notify", "--json", *url)
        assert done.returncode == 0, done.stderr
        assert hook.alerts == [json.loads(done.stdout)]
        assert hook.alerts[0]["event"] == "test"
        hook.statuses = [500]
        failed = finish(tmp_path, "scheduler", "--test-notify", *url)
        assert failed.returncode == 69 and "answered 500" in failed.stderr
        refused = finish(tmp_path, "scheduler", "--test-notify", "--notify-url", hook.url)
        assert "notify_private" in refused.stderr
        assert "hunter2" not in done.stderr + failed.stderr + refused.stderr
    command = ("--notify-command", f"tee '{tmp_path / 'a file'}'")
    assert finish(tmp_path, "scheduler", "--test-notify", *command).returncode == 0
    assert json.loads((tmp_path / "a file").read_text())["event"] == "test"


def test_a_sample_with_nowhere_to_go(tmp_path: Path) -> None:
    """Says what to set; a bad option is named."""
    refused = finish(tmp_path, "scheduler", "--test-notify")
    assert refused.returncode == 1 and "--notify-command or --notify-url" in refused.stderr
    refused = finish(tmp_path, "scheduler", "--notify-events", "nothing")
    assert refused.returncode == 1 and "--notify-events is 'nothing'" in refused.stderr


def test_a_running_scheduler_tells_a_human(
    start: Start, tmp_path: Path, url: str, fleet_name: str
) -> None:
    """What its command is told is there as soon as it happened."""
    told = tmp_path / "told"
    script = tmp_path / "tell.sh"
    script.write_text(f"#!/bin/sh\ncat >> '{told}'\n")
    script.chmod(0o755)
    scheduler = start(
        "scheduler", "--url", url, "--fleet", fleet_name, "--notify-command", str(script)
    )
    with Broker.connect(url, fleet=fleet_name) as broker:
        partition = broker.fleet().partition("release-42")
        wait_until(
            lambda: broker.link.command("test", "HGET", partition, "alerting"), "it to listen", 30
        )
    assert_timers_fire(url, fleet_name)
    wait_until(lambda: told.exists() and len(told.read_text().splitlines()) == 2, "both alerts")
    assert scheduler.end() == 0, scheduler.errors
    alerts = [json.loads(line) for line in told.read_text().splitlines()]
    assert {alert["event"] for alert in alerts} == {"unheard", "blocked"}
