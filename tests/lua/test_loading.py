"""Every script loads and runs where it should: a real server, and fakeredis without `#!lua`."""

from __future__ import annotations

import re

import pytest
import redis

from tests.lua import sources
from tests.lua.test_calls import every_call
from tocsin.broker import Broker, herds, scripts
from tocsin.broker._sync.link import Link
from tocsin.broker.caller import Caller, Fleet
from tocsin.broker.connections import Server
from tocsin.broker.errors import BrokerError, UnknownHerd
from tocsin.broker.ids import make_id
from tocsin.broker.records import decode
from tocsin.broker.testing import FakeServer

each_script = pytest.mark.parametrize("name", scripts.names())


@pytest.fixture
def client(url):
    """A plain client of the shared server."""
    with redis.Redis.from_url(url) as client:
        yield client


@each_script
def test_a_script_loads_on_a_real_server_under_its_name(name, client):
    """The server compiles it, flags and all, and names it as the library does."""
    script = scripts.load(name)
    assert decode(client.script_load(script.text)) == script.sha


@each_script
def test_a_script_loads_on_fakeredis_without_its_first_line(name):
    """What differs between the two texts is the `#!lua` line alone."""
    script = scripts.load(name)
    first, _, rest = script.text.partition("\n")
    assert re.fullmatch(r"#!lua( flags=allow-oom)?", first)
    assert rest == script.source
    assert decode(FakeServer().connect().script_load(script.source)) == script.plain_sha


@each_script
def test_a_loaded_script_is_the_file_with_its_parts_in_front(name):
    """The text of the file stands in it whole, once, behind what it is built from."""
    script = scripts.load(name)
    assert script.body == sources.text_of(name)
    assert script.source.count(script.body) == 1
    assert script.source.startswith(f"local args = {{ {script.args[0]} = ARGV[1]")
    for each in sources.reach(name).functions.values():
        start = each.code.split("\n")[0].rstrip()
        assert start in script.source, f"{each.name} is left out"


def test_every_call_runs_on_both_kinds_of_server(url):
    """No script fails in itself: on an empty server each answers or refuses in words."""
    for server in (Server(url), FakeServer()):
        link = Link(server)
        for operation, call in every_call().items():
            refusals = [one for one in link.run_many([call]) if isinstance(one, BrokerError)]
            assert "unavailable" not in {one.code for one in refusals}, f"{operation}: {refusals}"
        link.close()


def test_a_server_that_forgot_the_scripts_is_told_them_again(client, url, fleet_name):
    """SCRIPT FLUSH between two calls costs a round trip, alone and among many."""
    nowhere = Caller(Fleet(fleet_name, 16, None), "nowhere", "parent", "", make_id("inst"))
    link, call = Link(Server(url)), herds.roster(nowhere)
    for _ in range(2):
        client.script_flush()
        with pytest.raises(UnknownHerd):
            link.run(call)
    client.script_flush()
    assert [type(refusal) for refusal in link.run_many([call, call])] == [UnknownHerd] * 2
    link.close()


def test_a_script_that_breaks_is_no_refusal(url, fleet_name, client):
    """A mistake in a script stays an error of the server, and is not taken for an answer."""
    with Broker.connect(url, fleet=fleet_name) as broker:
        parent = broker.open_herd("h")
        client.hset(f"{parent.caller.fleet.partition('h')}:h:h", "inbox_limit", "nonsense")
        parent.register("scout")
        with pytest.raises(BrokerError) as failed:
            parent.message("scout", "hello")
        assert failed.value.code == "unavailable"
        assert "answered" in failed.value.detail
