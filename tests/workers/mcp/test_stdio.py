"""MCP over stdio: a process for one agent, whose stdout is the protocol's alone (case 33)."""

from __future__ import annotations

import asyncio
import json
import os
from pathlib import Path

import pytest

from tests.waiting import wait_until_async
from tests.workers.mcp.desk import PROGRAM, environment, hosted, initialize, joined, serving
from tocsin.broker import AsyncBroker
from tocsin.broker.settings import ConnectionSettings
from tocsin.workers import channels, lineage
from tocsin.workers.credentials import Credentials, StoredSeat

STARTS = 60.0  # seconds that a process may take to start on a busy machine


@pytest.fixture
async def broker(url, fleet_name):
    """A broker whose time is the server's, as that of other processes is."""
    async with AsyncBroker.connect(url, fleet=fleet_name) as broker:
        yield broker


@pytest.fixture
async def parent(broker):
    """The parent of an open herd."""
    parent = await broker.open_herd("release-42")
    yield parent
    await parent.close_herd()


async def child(broker, parent, name):
    """A child that is registered and has an instance here."""
    return await broker.join(parent.herd, name, (await parent.register(name)).token)


async def test_the_main_story_with_a_process_of_its_own(broker, parent, url):
    """A child over stdio and its parent over HTTP: delegated, asked, answered, done."""
    scout = await child(broker, parent, "scout")
    env = environment(broker, url, scout)
    async with (
        serving(broker) as base,
        hosted(env, "--limit", "0.5") as mine,
        joined(base, parent) as boss,
    ):
        told = await boss.data("delegate", agent="scout", description="Find how auth works")
        task = told["task"]["id"]
        [mail] = (await mine.data("inbox"))["messages"]
        await mine.data("ack", messages=[mail["message_id"]])
        pending = await mine.data("ask", to="parent", body="Which branch?", task=task)
        assert pending["status"] == "pending"
        await boss.data("reply", message=pending["ask_id"], body="main")
        answer = await mine.data("ask_wait", ask_id=pending["ask_id"])
        assert answer["body"] == "main"
        await mine.data("done", task=task, summary="JWT")
        ended = await boss.data("task_wait", tasks=[task])
        assert ended["settled"][0]["summary"] == "JWT"


class Host:
    """A host that writes lines to a server's stdin, and reads what comes."""

    def __init__(self, process: asyncio.subprocess.Process, log: Path) -> None:
        self.process = process
        self.log = log

    @classmethod
    async def start(cls, log: Path, env, *args):
        pipe = asyncio.subprocess.PIPE
        with log.open("wb") as errors:
            process = await asyncio.create_subprocess_exec(
                *PROGRAM, *args, env=env, stdin=pipe, stdout=pipe, stderr=errors, limit=2**20
            )
        return cls(process, log)

    async def write(self, *lines):
        assert self.process.stdin is not None
        for line in lines:
            text = line if isinstance(line, str) else json.dumps(line)
            self.process.stdin.write(text.encode("utf-8", "surrogateescape") + b"\n")
        await self.process.stdin.drain()

    async def next(self):
        """The next message."""
        assert self.process.stdout is not None
        message = json.loads(await asyncio.wait_for(self.process.stdout.readline(), STARTS))
        assert message["jsonrpc"] == "2.0"
        return message

    async def answer(self, number):
        """The answer to a request; every line before it is JSON-RPC, too."""
        while (message := await self.next()).get("id") != number:
            pass
        return message

    async def end(self):
        """Closes stdin, and looks at what stdout still held; all that stderr got."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        rest, _ = await asyncio.wait_for(self.process.communicate(), STARTS)
        for line in rest.splitlines():
            assert json.loads(line)["jsonrpc"] == "2.0"
        return self.log.read_text()


BROKEN = {
    "the broker is down": {"TOCSIN_URL": "redis://user:p%40ss-word@127.0.0.1:1/0"},
    "the url is none": {"TOCSIN_URL": "redis//user:p%40ss-word@nowhere"},
    "the seat is not known": {"TOCSIN_TOKEN": "", "TOCSIN_SEAT": "release-42/nobody"},
    "the server is away": {"TOCSIN_URL": "http://127.0.0.1:1/mcp"},
    "its url has a password": {"TOCSIN_URL": "https://user:p%40ss-word@tocsin.example"},
}


async def test_stdout_is_json_rpc_whatever_fails(url, tmp_path):
    """Broker down, wrong url, no seat, debug logging, broken input: only JSON-RPC on stdout."""
    token = "tok_" + "a" * 43
    known = {
        "TOCSIN_URL": url,
        "TOCSIN_SEAT": "release-42/scout",
        "TOCSIN_TOKEN": token,
        "TOCSIN_DIR": str(tmp_path),
    }
    hosts = [
        await Host.start(tmp_path / f"log-{number}", os.environ | known | each, "--debug")
        for number, each in enumerate(BROKEN.values())
    ]
    for host in hosts:
        await host.write(
            initialize(),
            {"jsonrpc": "2.0", "method": "notifications/initialized"},
            "{broken",
            "",
            "\udcff\udcfe",
            "[" * 2_000,
            {"jsonrpc": "2.0", "id": 7, "method": "nonsense"},
            {"jsonrpc": "2.0", "id": 8, "method": "tools/call", "params": None},
            {"jsonrpc": "2.0", "id": None, "method": "ping"},
            {"id": 9},
            {
                "jsonrpc": "2.0",
                "id": 10,
                "method": "tools/call",
                "params": {"name": "inbox", "arguments": {}},
            },
        )
    for host, why in zip(hosts, BROKEN, strict=True):
        begun = await host.answer(0)
        assert begun["result"]["serverInfo"]["name"] == "tocsin"
        assert (await host.answer(7))["error"]["code"] == -32601
        assert "error" in await host.answer(8)
        result = (await host.answer(10))["result"]
        error = result["structuredContent"]["error"]
        assert result["isError"] and error["code"] in ("unavailable", "invalid_input"), why
        errors = await host.end()
        assert host.process.returncode == 0, errors
        for secret in ("p%40ss-word", "p@ss-word", token):
            assert secret not in errors + json.dumps(result), why


HALF = "\\ud83d"


async def test_a_line_that_cannot_be_read_is_answered(url, tmp_path):
    """Its sender would wait until its time-out: half of a cut emoji, by the request's own id."""
    host = await Host.start(tmp_path / "log", os.environ | {"TOCSIN_URL": url})
    ping = json.dumps({"jsonrpc": "2.0", "id": 4, "method": "ping", "params": {"a": "?"}})
    await host.write(initialize(), "", "{broken", "[]", ping.replace("?", HALF))
    told = await host.answer(0), await host.next(), await host.next(), await host.next()
    assert [(each["id"], each.get("error", {}).get("code")) for each in told] == [
        (0, None),
        (None, -32700),
        (None, -32600),
        (4, -32700),
    ]
    await host.end()


async def test_who_speaks_is_said_and_never_guessed(url, tmp_path, broker, parent):
    """Of a host that handed on no seat, nobody becomes the one that a terminal chose."""
    name, folder = f"{parent.herd}/parent", tmp_path / "seats"
    place = ConnectionSettings(url=url, fleet=broker.name)
    Credentials(place, folder).put(name, StoredSeat(token=parent.token), use=True)
    env = {"TOCSIN_URL": url, "TOCSIN_FLEET": broker.name, "TOCSIN_DIR": str(folder)}
    for seat in ("${TOCSIN_SEAT}", ""):
        async with hosted(os.environ | env | {"TOCSIN_SEAT": seat}) as nobody:
            error = await nobody.refusal("roster")
            assert "TOCSIN_SEAT=herd/agent" in error["detail"]
            assert "tell your user" in error["next"] and "argument" not in error["next"]
            tools = (await nobody.client.list_tools()).tools
            assert "delegate" not in {each.name for each in tools}
    async with hosted(os.environ | env | {"TOCSIN_SEAT": name}) as boss:
        assert (await boss.data("roster"))["you"] == "parent"


async def test_a_limit_that_is_none_is_said_by_the_tools(url, broker, parent):
    """A host shows nothing of a server that does not start; what its tools answer is read."""
    env = environment(broker, url, parent) | {"TOCSIN_MCP_LIMIT": "soon"}
    async with hosted(env) as session:
        error = await session.refusal("inbox")
        assert "TOCSIN_MCP_LIMIT, must be 0.1 to 3600 seconds" in error["detail"]
        assert "tell your user" in error["next"]


async def test_a_rotation_is_not_noticed(url, tmp_path, broker, parent):
    """The first call after it goes well: to be told to stop would end an agent's work."""
    scout = await child(broker, parent, "scout")
    name, folder = f"{parent.herd}/scout", tmp_path / "seats"
    seats = Credentials(ConnectionSettings(url=url, fleet=broker.name), folder)
    seats.put(name, StoredSeat(token=scout.token))
    env = {"TOCSIN_URL": url, "TOCSIN_FLEET": broker.name, "TOCSIN_DIR": str(folder)}
    async with hosted(os.environ | env | {"TOCSIN_SEAT": name}) as session:
        for again in (
            lambda: session.data("inbox"),
            lambda: session.client.read_resource("tocsin://roster"),
        ):
            await session.data("roster")
            seats.put(name, StoredSeat(token=(await parent.rotate("scout")).token))
            await again()
        await parent.rotate("scout")  # and is not told
        assert (await session.refusal("inbox"))["code"] == "unauthorized"


async def test_a_channel_is_said_to_the_host_unasked(url, tmp_path, monkeypatch):
    """With `--channel` it offers one, and what a listener says there its host is told; without, it
    neither offers nor opens any."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    env = os.environ | {"TOCSIN_URL": url, "TOCSIN_SEAT": "release-42/scout"}
    hosts = [
        await Host.start(tmp_path / f"log-{number}", env, *options)
        for number, options in enumerate(([], ["--channel"]))
    ]
    for host in hosts:
        await host.write(initialize(), {"jsonrpc": "2.0", "method": "notifications/initialized"})
    offers = [(await host.answer(0))["result"]["capabilities"] for host in hosts]
    assert "experimental" not in offers[0] or not offers[0]["experimental"]
    assert offers[1]["experimental"] == {"claude/channel": {}}
    me = lineage.host_of([(os.getpid(), "pytest")])
    above = lineage.Process.of(me)
    assert channels.is_open(above)
    assert channels.say(above, "Tocsin: a message\nwaits for you")
    told = await hosts[1].next()
    assert told["method"] == "notifications/claude/channel"
    assert told["params"] == {"content": "Tocsin: a message waits for you"}
    for host in hosts:
        await host.end()
    assert not channels.is_open(above)


async def test_a_host_that_is_killed_leaves_the_question_open(broker, parent, url, tmp_path):
    """A process killed while its call waits: the ask stays, and its answer is kept (case 27)."""
    scout = await child(broker, parent, "scout")
    planner = await child(broker, parent, "planner")
    host = await Host.start(tmp_path / "log", environment(broker, url, scout))
    call = {"name": "ask", "arguments": {"to": "planner", "body": "Which?"}}
    await host.write(
        initialize(), {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": call}
    )
    turn = await planner.next_turn(STARTS)
    host.process.kill()
    await host.process.communicate()
    await planner.reply(turn[0], "Exponential")
    await turn.ack()
    assert (await scout.ask_wait(turn[0], 30)).body == "Exponential"


async def test_stdin_that_ends_and_sigterm_end_it_in_good_order(broker, parent, url, tmp_path):
    """The agent's instance leaves at once, so that nobody waits for its lease to run out."""
    scout = await parent.register("scout")
    first = await broker.join(parent.herd, "scout", scout.token)
    env = environment(broker, url, first)
    await first.leave()
    hosts = [await Host.start(tmp_path / f"log-{number}", env) for number in range(2)]
    call = {"name": "inbox", "arguments": {}}

    async def instances():
        [row] = [each for each in await parent.roster() if each.agent == "scout"]
        return row.instances

    for host in hosts:
        await host.write(
            initialize(), {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": call}
        )
        await host.answer(1)
    assert len(await instances()) == 2
    hosts[0].process.terminate()
    await asyncio.wait_for(hosts[0].process.wait(), STARTS)
    await hosts[0].process.communicate()
    await hosts[1].end()
    assert [host.process.returncode for host in hosts] == [0, 0]

    async def none():
        return not await instances()

    await wait_until_async(none, "both instances to leave")
