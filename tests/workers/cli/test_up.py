"""`tocsin up`: a server and a scheduler that live as long as it, and data that lives longer."""

from __future__ import annotations

import json
import signal
import socket
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.workers.cli.long_running import (
    Running,
    assert_timers_fire,
    finish,
    gone,
    running,
    wait_until_gone,
)
from tocsin.broker import Broker
from tocsin.broker.embedded import EmbeddedServer

Start = Callable[..., Running]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    with running(tmp_path) as start:
        yield start


def test_it_serves_a_fleet_and_fires_its_timers(start: Start, tmp_path: Path) -> None:
    """What it prints is where a fleet can be used at once, timers included."""
    up = start("up", "--dir", str(tmp_path / "data"), "--json")
    said = up.document()
    assert said["directory"] == str(tmp_path / "data")
    assert said["owner_pid"] == up.pid and not said["attached"]
    assert_timers_fire(said["url"], "default")


def test_partitions_are_chosen_at_first_use(start: Start, tmp_path: Path) -> None:
    """`--partitions` fixes those of a new fleet; whoever says another number later is refused."""
    up = start("up", "--dir", str(tmp_path / "data"), "--partitions", "5", "--json")
    url = up.document()["url"]
    with Broker.connect(url) as broker:
        assert broker.fleet().partitions == 5
    again = start("up", "--url", url, "--partitions", "6", "--json")
    assert "has 5 partitions" in again.document()["error"]["detail"]


def test_people_get_a_line_to_copy(start: Start) -> None:
    """Without `--json` it prints the variable to set, and keeps data in the user's own folder."""
    up = start("up", "--fleet", "acme")
    lines = [up.line() for _ in range(5)]
    url = next(word for word in lines[0].split() if word.startswith("redis://")).rstrip(";")
    assert lines[2].strip() == f"export TOCSIN_URL={url} TOCSIN_FLEET=acme"
    assert "/tocsin/server" in lines[4]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_signal_stops_both_cleanly(start: Start, tmp_path: Path, number: int) -> None:
    """Ctrl-C, SIGTERM and a closed terminal end it with 0, and the server with it."""
    up = start("up", "--dir", str(tmp_path / "data"), "--json")
    server = up.document()["server_pid"]
    assert up.end(number) == 0, up.errors
    assert gone(server)


def test_the_next_one_recovers_what_a_killed_one_had(start: Start, tmp_path: Path) -> None:
    """SIGKILL leaves no process; the next `up` on the directory has the data, at the same URL."""
    first = start("up", "--dir", str(tmp_path / "data"), "--json")
    said = first.document()
    with Broker.connect(said["url"]) as broker:
        broker.open_herd("kept")
    assert first.end(signal.SIGKILL) == -signal.SIGKILL
    wait_until_gone(said["server_pid"])

    second = start("up", "--dir", str(tmp_path / "data"), "--json")
    again = second.document()
    with Broker.connect(again["url"]) as broker:
        assert [name for name, _, _ in broker.herds()] == ["kept"]
    assert again["url"] == said["url"] and not again["attached"]
    assert second.end() == 0
    assert gone(again["server_pid"])


def test_a_second_one_attaches_and_says_who_holds_the_directory(
    start: Start, tmp_path: Path
) -> None:
    """It names the first one's processes, and its own end leaves their server alone."""
    first = start("up", "--dir", str(tmp_path / "data"), "--json")
    said = first.document()
    second = start("up", "--dir", str(tmp_path / "data"), "--json")
    assert second.document() == said | {"attached": True}
    third = start("up", "--dir", str(tmp_path / "data"))
    line = third.line()
    assert f"process {said['server_pid']} (started by process {first.pid})" in line
    assert second.end() == 0 and third.end() == 0
    with Broker.connect(said["url"]) as broker:
        assert broker.herds() == []


def test_an_attached_one_ends_when_the_server_does(start: Start, tmp_path: Path) -> None:
    """When the first one stops, the second says that the server is gone, and ends with 69."""
    first = start("up", "--dir", str(tmp_path / "data"), "--json")
    first.document()
    second = start("up", "--dir", str(tmp_path / "data"), "--json")
    second.document()
    assert first.end() == 0
    error = second.document()["error"]
    assert error["code"] == "unavailable" and "is gone" in error["detail"]
    assert second.wait() == 69


def test_a_url_gets_a_scheduler_only(start: Start, url: str, fleet_name: str) -> None:
    """With `--url` it starts no server: it fires the timers of the one that is there."""
    up = start("up", "--url", url, "--fleet", fleet_name, "--json")
    said = up.document()
    assert said["url"] == url and said["server_pid"] is None
    assert_timers_fire(url, fleet_name)
    assert up.end() == 0, up.errors
    with Broker.connect(url, fleet=fleet_name) as broker:
        assert len(broker.herds()) == 1


def test_a_server_that_is_not_there_is_69(tmp_path: Path) -> None:
    """`--url` where nobody listens, and `--server` with a program that is not there."""
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        url = f"redis://127.0.0.1:{bound.getsockname()[1]}/0"
        nobody = finish(tmp_path, "up", "--url", url)
    assert nobody.returncode == 69 and "no answer" in nobody.stderr
    nothing = finish(tmp_path, "up", "--server", "/no/such/server", "--json")
    assert nothing.returncode == 69
    assert "/no/such/server" in json.loads(nothing.stdout)["error"]["detail"]


def test_a_server_program_can_be_named(
    start: Start, tmp_path: Path, server: EmbeddedServer
) -> None:
    """`--server` runs another program than the one that comes with Tocsin."""
    from tocsin.broker.embedded import find_binary

    program = tmp_path / "valkey-server"
    program.symlink_to(find_binary())
    up = start("up", "--server", str(program), "--dir", str(tmp_path / "data"), "--json")
    assert not gone(up.document()["server_pid"])
    assert up.end() == 0, up.errors


@pytest.mark.parametrize(
    "arguments",
    [
        ["./valkey-server"],
        ["--url", "redis://127.0.0.1:1/0", "--dir", "data"],
        ["--url", "redis://127.0.0.1:1/0", "--server"],
        ["--port", "0"],
    ],
)
def test_what_does_not_go_together_is_usage(tmp_path: Path, arguments: list[str]) -> None:
    """Options that contradict each other end with 2 before anything starts."""
    assert finish(tmp_path, "up", *arguments).returncode == 2
    assert not (tmp_path / "data").exists()
