"""Agents far away: lost answers, servers that restart, and what is the operator's."""

from __future__ import annotations

import json
import re
import threading
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from tests.proxy import Proxy
from tests.requirements import proves
from tests.waiting import wait_until
from tests.workers.api.conftest import standing
from tests.workers.cli.conftest import Cli
from tests.workers.cli.test_agents_document import FROM_AFAR, commands
from tests.workers.cli.test_connect import HOSTS
from tocsin.broker import Broker, errors
from tocsin.broker.signals import Signal
from tocsin.workers.addresses import check_address
from tocsin.workers.remote import Remote, RemoteChild, RemoteParent

SCOUT = ("--seat", "release-42/scout")
LONG = 30.0


@pytest.fixture
def seats(url, fleet_name):
    """A herd with two children, opened at the fleet's own url, and their tokens."""
    with Broker.connect(url, fleet=fleet_name) as broker:
        parent = broker.open_herd("h")
        tokens = {name: str(parent.register(name).token) for name in ("scout", "planner")}
        tokens["parent"] = parent.token
        yield tokens


@pytest.fixture
def far(seats):
    """Joins an agent at a server."""
    lines: list[Remote] = []

    def join(address: str, agent: str, token: str | None = None) -> Any:
        lines.append(Remote(address, "h", agent, token or seats[agent]))
        return lines[-1].join()

    yield join
    for line in lines:
        line.close()


def listens(signal):
    """Until it is quiet: what rings between two calls is not heard, but looked for by and by."""
    signal.clear()
    while signal.wait(0.5):
        signal.clear()


def test_a_bell_far_away_is_heard(address, far):
    """What arrives wakes who listens, at once and also what is quiet; nothing rings for nothing."""
    parent, scout = far(address, "parent"), far(address, "scout")
    signal = Signal()
    with scout.hear_arrivals(signal):
        listens(signal)
        parent.message("scout", "look here")
        assert signal.wait(LONG)
        [found] = scout.look()
        assert found.wakes
        listens(signal)
        task = parent.delegate("scout", "work")
        assert signal.wait(LONG)
        scout.inbox()
        listens(signal)
        parent.cancel(task.id)
        assert signal.wait(LONG)


@proves("P12")
@pytest.mark.parametrize("before", [False, True])
def test_a_lost_answer(address, far, before):
    """A call whose answer, or which itself, is lost is made again, and has one effect (case 1)."""
    with Proxy(address) as proxy:
        parent, scout = (far(proxy.url, name) for name in ("parent", "scout"))
        cut = proxy.cut_next("Find how", before=before)
        task = parent.delegate("scout", "Find how auth works")
        cut.wait()
        cut = proxy.cut_next("/message", before=before)
        scout.message("planner", "Which?", task=task.id, expects_reply=True)
        cut.wait()
        cut = proxy.cut_next("/register", before=before)
        made = parent.register("tester")
        cut.wait()
        cut = proxy.cut_next("/done", before=before)
        ended = scout.done(task.id, "failed", error="no")
        cut.wait()
    assert [each.id for each in far(address, "parent").tasks()] == [task.id]
    assert ended.status == "failed"
    planner = far(address, "planner")
    mail = planner.inbox()
    assert len(mail) <= 1 and mail.remaining == 0  # its question was taken back with the task
    assert far(address, "tester", made.token).agent == "tester"


def test_an_ask_outlives_its_server(url, fleet_name, seats, far):
    """The server is started anew in mid-ask, and the asker gets its answer (case 33)."""
    with Broker.connect(url, fleet=fleet_name) as broker:
        planner = broker.join("h", "planner", seats["planner"])
        answers: list[str] = []
        with standing(url, fleet_name) as first, Proxy(first) as proxy:
            scout = far(proxy.url, "scout")
            asking = threading.Thread(
                target=lambda: answers.append(scout.ask("planner", "Which?").body)
            )
            asking.start()
            wait_until(lambda: len(planner.inbox()) == 1, "the question")
            proxy.cut_all()
            with standing(url, fleet_name) as second:
                proxy._target = proxy._target._replace(netloc=second.removeprefix("http://"))
                proxy.cut_all()
                planner.reply(planner.inbox()[0], "Exponential")
                asking.join(30)
        assert answers == ["Exponential"]


def test_a_server_that_is_away(seats, far):
    """It is unavailable after a while, and says which server, never the token."""
    with pytest.raises(errors.Unavailable) as refused:
        far("http://127.0.0.1:1", "scout")
    assert "127.0.0.1:1" in refused.value.detail and seats["scout"] not in str(refused.value)


@pytest.mark.parametrize(
    ("url", "word"),
    [
        ("http://tocsin.example/", "https://"),
        ("https://me:secret@tocsin.example/", "seat add"),
        ("https://tocsin.example/?token=secret", "seat add"),
    ],
)
def test_an_address_that_would_give_a_token_away(url, word):
    """Plain HTTP beyond loopback, and secrets in the address, are refused (case 31)."""
    with pytest.raises(errors.InvalidInput) as refused:
        check_address(url)
    assert word in refused.value.detail and "secret" not in refused.value.detail


def test_addresses():
    """The address of the MCP server is the same server's."""
    assert check_address("https://tocsin.example/") == "https://tocsin.example"
    assert check_address("https://tocsin.example/a/mcp") == "https://tocsin.example/a"
    assert check_address("http://[::1]:8765/mcp/") == "http://[::1]:8765"


def test_errors_are_the_same(address, far):
    """What is refused there is raised here as what it is, with its sentence."""
    parent, scout = far(address, "parent"), far(address, "scout")
    assert isinstance(parent, RemoteParent) and isinstance(scout, RemoteChild)
    task = parent.delegate("scout", "x")
    with pytest.raises(errors.AgentBusy) as busy:
        parent.delegate("scout", "y")
    assert busy.value.retryable and busy.value.operation == "delegate"
    with pytest.raises(errors.NoReply) as silent:
        scout.ask("planner", "Which?", window=timedelta(milliseconds=200))
    assert silent.value.message_id.startswith("msg_") and silent.value.reason
    assert parent.wait(task.id, timeout=0.1) == []
    with pytest.raises(errors.InvalidInput):
        scout.progress("x", float("nan"))
    for refused in (scout.next_turn, parent.receive):
        with pytest.raises(errors.Forbidden, match="inbox"):
            refused()
    with pytest.raises(errors.Forbidden, match="its operator's"):
        parent.broker.tree()


def test_what_is_the_operators(cli):
    """Commands that work on the fleet itself are refused, with what to do instead."""
    cli.staff("scout")
    for args in (
        ("doctor",), ("herd", "list"), ("herd", "tree"), ("turn", "slots"),
        ("seat", "rotate", "release-42/parent"),
        ("scheduler",), ("worker",), ("mcp", "--http", "--port", "0"),
    ):  # fmt: skip
        refused = cli.run(*args, "--json")
        assert "redis://" in refused.stdout, (args, refused.output)
        assert refused.exit_code != 0 and "its operator's" in refused.stdout
    opened = Cli.run(cli, "herd", "open", "other", "--json")
    assert json.loads(opened.stdout)["error"]["code"] == "forbidden"


@pytest.mark.parametrize("host", HOSTS)
def test_a_host_is_connected_from_afar(cli, address, tmp_path, monkeypatch, host):
    """As at the fleet's own url: what is written names seat and server, and is tried."""
    monkeypatch.chdir(tmp_path)
    cli.staff("scout")
    told = cli.json("connect", host, *SCOUT, PATH=str(tmp_path))
    assert [each["ok"] for each in told["checks"]] == [True, None], told
    assert "9 tools, herd release-42" in told["checks"][0]["told"]
    texts = [Path(each).read_text() for each in told["files"]]
    assert any(address in text for text in texts)
    assert not any("tok_" in text for text in texts)
    cli.good("connect", host, "--undo")
    assert not any(Path(each).exists() for each in told["files"])


def test_the_document_tells_how_to_join_from_afar(cli, tmp_path, monkeypatch):
    """Its commands, on a machine that has only an address, a seat and its token."""
    monkeypatch.chdir(tmp_path)
    cli.staff("planner")
    token = cli.token("release-42/planner")
    cli.good("seat", "forget", "release-42/planner", "--yes")
    add, connect = commands(*FROM_AFAR)
    cli.good(*add[1:], typed=f"{token}\n")
    assert "works" in cli.good(*connect[1:], PATH=str(tmp_path)).output


def test_connecting_to_a_server_that_is_away(cli, tmp_path, monkeypatch):
    """It is written all the same, and said that it does not work, and why."""
    monkeypatch.chdir(tmp_path)
    cli.staff("scout")
    token = cli.token("release-42/scout")
    away = {"TOCSIN_URL": "http://127.0.0.1:1"}
    cli.good("seat", "add", "release-42/scout", "--no-check", typed=f"{token}\n", **away)
    failed = cli.run("connect", "pi", *SCOUT, "--json", **away)
    [tried, _] = json.loads(failed.stdout)["checks"]
    assert failed.exit_code != 0 and "127.0.0.1:1 cannot be reached" in tried["told"]


def test_a_newcomer(cli, address):
    """Somebody with an address, a seat and its token stores them, and is in (case 31)."""
    cli.staff("scout")
    token = cli.token("release-42/scout")
    cli.good("seat", "forget", "release-42/scout", "--yes")
    cli.good("seat", "add", "release-42/scout", typed=f"{token}\n", TOCSIN_URL=f"{address}/mcp")
    assert cli.json("inbox", *SCOUT)["envelopes"] == []
    rotated = cli.json("seat", "rotate", "release-42/scout")
    assert rotated["token"] is None and cli.token("release-42/scout") != token
    assert cli.json("inbox", *SCOUT)["envelopes"] == []
    wrong = cli.run(
        "inbox", "--json", TOCSIN_SEAT="release-42/scout", TOCSIN_TOKEN="tok_" + "x" * 43
    )
    assert json.loads(wrong.stdout)["error"]["code"] == "unauthorized"
    assert not re.search(r"tok_\w{9}", wrong.output)


@pytest.mark.parametrize("key", ["nyckel-\u2603", "a b ", " lead"])
def test_a_key_of_any_text(address, far, key):
    """It is a word of the body; no header could hold it."""
    scout, planner = far(address, "scout"), far(address, "planner")
    with pytest.raises(errors.NoReply):
        scout.ask("planner", "Which?", key=key, window=timedelta(seconds=1))
    planner.reply(planner.inbox()[-1], "Exponential")
    assert scout.ask("planner", "Which?", key=key).body == "Exponential"
