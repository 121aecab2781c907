"""`tocsin scheduler`: runs until it is told to stop, or once."""

from __future__ import annotations

import json
import signal
import socket
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path

import pytest

from tests.waiting import wait_until
from tests.workers.cli.long_running import Running, assert_timers_fire, finish, running
from tocsin.broker import Broker

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


def test_an_unknown_log_format_is_usage(tmp_path: Path) -> None:
    """What is offered is named."""
    refused = finish(tmp_path, "scheduler", "--log-format", "xml")
    assert refused.returncode == 2 and "json" in refused.stderr
