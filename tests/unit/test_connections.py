"""The way to a server: a wrong url in words, failures as ours, no secret anywhere (case 31)."""

from __future__ import annotations

import asyncio
import tempfile
import time
import traceback
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing

import pytest
import redis
from redis import exceptions

from tocsin.broker import AsyncBroker, Broker, agents, connections, errors
from tocsin.broker.caller import Caller, Fleet
from tocsin.broker.connections import (
    NotReplicatedError,
    Patience,
    Server,
    is_passing,
)
from tocsin.broker.embedded import EmbeddedServer
from tocsin.broker.failures import failure, read

SECRET = "pa55w0rd"

REFUSED = [
    f"redis://user:{SECRET}/x@127.0.0.1:1/0",
    f"redis://user:{SECRET}#@127.0.0.1:1/0",
    f"redis://user:{SECRET}?@127.0.0.1:1/0",
    f"redis://user:{SECRET}@127.0.0.1:port/0",
    f"redis://user:{SECRET}@127.0.0.1:99999/0",
    f"redis://user:{SECRET}@[::1/0",
    f"redis://user:{SECRET}@\u2100.example/0",
    f"http://user:{SECRET}@127.0.0.1:1",
    f"redis+tls://user:{SECRET}@127.0.0.1:1",
    f"user:{SECRET}@127.0.0.1:1",
    f"redis://127.0.0.1:1/0?passwd={SECRET}",
    f"redis://127.0.0.1:1/0?socket_timeout={SECRET}",
    f"rediss://127.0.0.1:1/0?ssl_cert_reqs={SECRET}",
    f"redis+cluster://user:{SECRET}@127.0.0.1:1/3",
    f"redis+cluster://user:{SECRET}@127.0.0.1:1,,127.0.0.1:2",
    f"redis+cluster://user:{SECRET}/x@127.0.0.1:1",
    f"redis+cluster://127.0.0.1:1?passwd={SECRET}",
    f"redis+sentinel://user:{SECRET}@127.0.0.1:1/0",
    f"redis+sentinel://user:{SECRET}@main@127.0.0.1:99999/0",
    f"redis+sentinel://main@127.0.0.1:1/0?no_such_option={SECRET}",
    "redis+cluster://",
    "",
    "127.0.0.1:6379",
    "redis://127.0.0.1:1/0?no_such_option=1",
]
UNREACHABLE = [
    f"redis://user:{SECRET}@127.0.0.1:1/0",
    f"redis://:{SECRET}%40x@127.0.0.1:1/0",
    f"redis://127.0.0.1:1/0?password={SECRET}",
    f"rediss://user:{SECRET}@127.0.0.1:1/0",
    f"unix://user:{SECRET}@/no/such.sock",
    f"redis+cluster://user:{SECRET}@127.0.0.1:1,127.0.0.1:2",
    f"rediss+cluster://127.0.0.1:1?password={SECRET}",
    f"redis+sentinel://user:{SECRET}@main@127.0.0.1:1/0?sentinel_password={SECRET}",
]


def told(error: BaseException) -> str:
    """All that a log with a traceback would show of it, causes and contexts included."""
    return "".join(traceback.format_exception(error)) + repr(error)


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """One try: the back-off between several is not what is looked at."""
    monkeypatch.setattr("tocsin.broker.connections.REPEATS", 0)
    monkeypatch.setattr("tocsin.broker.connections.GIVE_UP_AFTER", 4.0)


@pytest.mark.parametrize("url", REFUSED)
def test_a_url_that_cannot_be_used_is_refused_without_its_secret(url):
    """`invalid_input`, with the form that a url has; nothing is sent."""
    with Broker.connect(url) as broker, pytest.raises(errors.InvalidInput) as refused:
        broker.herds()
    assert "redis://user:password@host:port/0" in refused.value.detail
    assert SECRET not in told(refused.value)


@pytest.mark.parametrize("url", REFUSED)
async def test_the_async_client_refuses_the_same(url):
    """In the same words."""
    async with AsyncBroker.connect(url) as broker:
        with pytest.raises(errors.InvalidInput) as refused:
            await broker.herds()
    assert SECRET not in told(refused.value)


@pytest.mark.parametrize("url", UNREACHABLE)
def test_a_server_that_is_not_there_is_unavailable_and_the_secret_stays_one(url):
    """Retryable, naming the address without what proves the caller."""
    with Broker.connect(url) as broker, pytest.raises(errors.Unavailable) as failed:
        broker.herds()
    assert failed.value.retryable
    assert "see that the server runs" in failed.value.detail
    assert SECRET not in told(failed.value)


@pytest.mark.parametrize("value", [None, 1, b"redis://127.0.0.1", ["redis://127.0.0.1"]])
def test_a_url_is_text(value):
    """Whatever else is given is named by its type."""
    with pytest.raises(errors.InvalidInput, match=f"url must be text, not {type(value).__name__}"):
        Broker.connect(value)


@pytest.fixture(scope="module")
def guarded() -> Iterator[EmbeddedServer]:
    """A server that asks for a password."""
    with EmbeddedServer(durable=False) as server, redis.Redis.from_url(server.url) as client:
        client.config_set("requirepass", SECRET)
        yield server
        client.auth(SECRET)
        client.config_set("requirepass", "")


@pytest.mark.parametrize("wrong", ["", ":wrong-pa55@", f"nobody:{SECRET}@"])
def test_a_refused_password_is_said_to_be_that(guarded, wrong):
    """`unavailable`, naming neither the wrong password nor the right one."""
    url = guarded.url.replace("redis://", f"redis://{wrong}")
    with Broker.connect(url) as broker, pytest.raises(errors.Unavailable) as failed:
        broker.herds()
    assert "refused the user or password" in failed.value.detail
    assert SECRET not in told(failed.value) and "wrong-pa55" not in told(failed.value)


def test_a_password_with_strange_characters_opens_the_door(guarded):
    """Written as %XX in the url, as the refusal of a wrong one says."""
    with redis.Redis.from_url(guarded.url, password=SECRET) as client:
        client.config_set("requirepass", "p@s:s/w?d#")
        url = guarded.url.replace("redis://", "redis://:p%40s%3As%2Fw%3Fd%23@")
        with Broker.connect(url) as broker:
            assert broker.fleet().partitions == 16
        client.config_set("requirepass", SECRET)


def test_a_unix_socket_will_do():
    """Calls, bells and leases over a socket in the file system."""
    with tempfile.TemporaryDirectory() as folder:  # its name is shorter than tmp_path's
        options = {"unixsocket": f"{folder}/s"}
        with (
            EmbeddedServer(durable=False, options=options),
            Broker.connect(f"unix://{folder}/s") as broker,
        ):
            parent = broker.open_herd("h")
            assert parent.next_turn(timeout=0.01) is None
            assert parent.roster()[0].present


@pytest.mark.parametrize(
    ("error", "says"),
    [
        (exceptions.ConnectionError("Error 111"), "no answer from redis://u:***@h/0"),
        (exceptions.TimeoutError("slow"), "no answer from redis://u:***@h/0"),
        (exceptions.BusyLoadingError("loading"), "no answer from"),
        (exceptions.AuthenticationError("WRONGPASS"), "refused the user or password"),
        (exceptions.ClusterDownError("The cluster is down"), "a primary is being replaced"),
        (exceptions.ReadOnlyError("READONLY"), "a primary is being replaced"),
        (exceptions.TryAgainError("TRYAGAIN"), "slots are moving"),
        (exceptions.ResponseError("NOREPLICAS Not enough"), "a primary is being replaced"),
        (exceptions.MovedError("1 h:2"), "is one node of a Cluster; write redis+cluster://"),
        (NotReplicatedError("late"), "no replica confirmed it within 2 s"),
        (exceptions.NoPermissionError("NOPERM this user"), "answered: NOPERM this user"),
        (exceptions.OutOfMemoryError("OOM command not allowed"), "raise maxmemory"),
        (exceptions.ResponseError("x" * 5_000), "answered: xxx"),
    ],
)
def test_what_goes_wrong_at_the_server_is_unavailable_with_what_to_do(error, says):
    """One class for all of it, its operation, a text of bounded length, no password."""
    made = failure("delegate", f"redis://u:{SECRET}@h/0", error)
    assert (made.code, made.operation, made.retryable) == ("unavailable", "delegate", True)
    assert says in made.detail
    assert len(made.detail) < 500 and SECRET not in made.detail


@pytest.mark.parametrize("code", sorted(errors.CODES))
def test_a_refusal_of_a_script_is_the_error_of_its_code(code):
    """With the operation that was called and the sentence of the script."""
    call = agents.renew(Caller(Fleet("f", 16, None), "h", "scout", "", "inst_1"))
    with pytest.raises(errors.CODES[code]) as refused:
        read(call, [b"refused", code.encode(), "because \u2014 yes".encode()])
    assert (refused.value.operation, refused.value.detail) == ("renew", "because \u2014 yes")


def test_a_server_shows_no_secret_of_its_url():
    """Not in a log that shows the object either."""
    assert SECRET not in repr(Server(f"redis://user:{SECRET}@127.0.0.1:1/0"))


# ------------------------------------------------------------------ several servers

LOST = exceptions.ConnectionError("gone")


def paused(server: Server, errors: list[exceptions.RedisError]) -> list[float | None]:
    """What `Patience` says to each failure of one call in turn."""
    patience = Patience(server)
    return [patience.pause(error) for error in errors]


def test_where_another_server_can_take_over_only_time_ends_the_tries(monkeypatch):
    """A single server is tried a few times; a Cluster until the call's time is over."""
    monkeypatch.setattr("tocsin.broker.connections.REPEATS", 3)
    monkeypatch.setattr("tocsin.broker.connections.GIVE_UP_AFTER", 10.0)
    assert [pause is None for pause in paused(Server("redis://h"), [LOST] * 5)] == [False] * 3 + [
        True
    ] * 2
    pauses = paused(Server("redis+cluster://h"), [LOST] * 12)
    assert all(pause is not None and 0 < pause <= 0.5 for pause in pauses)
    monkeypatch.setattr("tocsin.broker.connections.GIVE_UP_AFTER", 4.0)
    assert paused(Server("redis+cluster://h"), [LOST]) == [None]


def test_a_slot_that_has_moved_is_followed_at_once_but_not_in_circles(monkeypatch):
    """The first `MOVED` costs no pause, the next do; `ASK`, which leads to a part, always does."""
    monkeypatch.setattr("tocsin.broker.connections.GIVE_UP_AFTER", 10.0)
    moved, ask = exceptions.MovedError("7 h:1"), exceptions.AskError("7 h:1")
    server = Server("redis+cluster://h")
    first, second = paused(server, [moved, moved])
    assert first == 0 and second is not None
    assert all(pause is not None and pause > 0 for pause in paused(server, [ask, moved]))


@pytest.mark.parametrize(
    "error",
    [
        exceptions.AuthenticationError("WRONGPASS"),
        exceptions.OutOfMemoryError("OOM"),
        exceptions.NoPermissionError("NOPERM"),
        exceptions.ResponseError("ERR"),
        NotReplicatedError("late"),
    ],
)
def test_what_another_try_would_not_mend_is_not_tried_again(error):
    """Neither on one server nor on several."""
    assert not is_passing(error)
    assert paused(Server("redis+cluster://h"), [error]) == [None]


class Told(Server):
    """A Cluster whose nodes say what the test has them say."""

    def __init__(self, said: dict[str, list]) -> None:
        super().__init__("redis+cluster://a:1,b:2")
        self.said = said
        self.asked: list[str] = []

    def _ask(self, url: str, *command: str):
        node = url.removeprefix("redis://").partition("/")[0]
        self.asked.append(node)
        if node not in self.said:
            raise LOST
        return [[first, last, [host.encode(), port]] for first, last, host, port in self.said[node]]


SLOT_OF_A, SLOT_OF_B = "{b}", "{a}"  # slots 3300 and 15495


def test_whom_to_ask_is_found_out_once_and_again_when_in_doubt():
    """The nodes of the url are asked until one tells; then a failure or `MOVED` asks anew."""
    server = Told({"b:2": [[0, 8191, "a", 1], [8192, 16383, "b", 2]]})
    assert server.node_of(SLOT_OF_A) is None
    assert str(server.find(SLOT_OF_A)) == "a:1" and str(server.node_of(SLOT_OF_B)) == "b:2"
    assert {str(node) for node in server.nodes} == {"a:1", "b:2"}
    count = len(server.asked)
    a = server.node_of(SLOT_OF_A)
    assert a is not None and len(server.asked) == count

    server.doubt(a, LOST)
    assert server.node_of(SLOT_OF_A) is None, "it is asked for again"
    assert str(server.node_of(SLOT_OF_B)) == "b:2", "and nobody else waits for that"
    assert str(server.node_of(None)) == "b:2"
    server.said = {"c:3": [[0, 8191, "c", 3], [8192, 16383, "b", 2]]}
    server.doubt(a, exceptions.MovedError("3300 c:3"))
    assert str(server.find(SLOT_OF_A)) == "c:3" and server.asked[-1] == "c:3"
    assert a not in server.nodes

    server.doubt(a, exceptions.TryAgainError("TRYAGAIN"))
    assert str(server.node_of(SLOT_OF_A)) == "c:3", "the right one was asked"


def test_a_slot_that_nobody_holds_is_a_line_that_is_down():
    """So the call is tried again, for as long as its time lasts."""
    server = Told({"a:1": [[0, 100, "", 1]]})
    with pytest.raises(exceptions.ConnectionError, match="no server is known"):
        server.find(SLOT_OF_A)
    assert str(server.nodes[0]) == "a:1", "an empty host is the one that was asked"
    server = Told({})
    with pytest.raises(exceptions.ConnectionError):
        server.find(SLOT_OF_A)
    assert sorted(server.asked) == ["a:1", "b:2"]


def test_a_call_that_waits_for_a_connection_first_is_given_up_in_time_all_the_same():
    """The last try begins early enough for both: a free connection, and an answer on it.

    With 40 callers at once on a server that answers none of them, most wait for one first.
    """
    patience = Patience(Server("redis+cluster://h"))
    began = time.monotonic()
    longest = connections.FREE_WITHIN + connections.ANSWER_WITHIN
    assert patience._last_try - began + longest <= connections.GIVE_UP_AFTER
    with closing(Server("redis://h").connect()) as client:
        assert vars(client.connection_pool)["timeout"] == connections.FREE_WITHIN


MANY = 7 * connections.CONNECTIONS
"""Calls at once, of 0.2 s each: the last wait for longer than `FREE_WITHIN`."""


@pytest.fixture
def busy(url: str, monkeypatch: pytest.MonkeyPatch) -> Server:
    """A server whose calls take long, for a process that tries each once."""
    monkeypatch.setattr(connections, "REPEATS", 0)
    return Server(url)


async def test_many_tasks_wait_their_turn_while_the_server_answers(busy):
    """However many call at once: a queue of this process's own makes no server unavailable."""
    client = busy.connect_async()
    calls = [client.blpop(["tocsin:nothing"], 0.2) for _ in range(MANY)]
    assert await asyncio.gather(*calls) == [None] * MANY
    await client.connection_pool.disconnect()


def test_many_threads_wait_their_turn_while_the_server_answers(busy):
    """The same of threads."""
    client = busy.connect()
    with ThreadPoolExecutor(MANY) as threads:
        calls = [threads.submit(client.blpop, ["tocsin:nothing"], 0.2) for _ in range(MANY)]
        assert [call.result() for call in calls] == [None] * MANY
    client.connection_pool.disconnect()
