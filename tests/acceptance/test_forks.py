"""Processes that fork, as multiprocessing and servers of web applications do."""

from __future__ import annotations

import json

import pytest

from tests.acceptance.processes import Program
from tests.fleets import bodies, token_of
from tests.waiting import wait_until
from tocsin.broker import Broker

REFUSED = "invalid_input: this broker was in use in process "


@pytest.mark.parametrize("program", ["forker", "async_forker"])
def test_a_broker_in_use_is_refused_in_a_fork(url, fleet_name, program):
    """At once, in words, whatever is called; nothing hangs, and the parent process goes on.

    A child process that closes such a broker ends nothing of its parent's: no instance, no line.
    One that nobody had used (made as a web application is loaded) works in each child.
    """
    with Broker.connect(url, fleet=fleet_name) as broker:
        parent = broker.open_herd("h")
        token = token_of(parent.register("scout"))
        with Program(program, url, fleet_name, "h", "scout", token) as forks:
            results = json.loads(forks.says("results", timeout=60))
            assert {results.pop(name, "done") for name in ("close", "aclose", "unused")} == {"done"}
            assert results
            for name, result in results.items():
                assert result.startswith(REFUSED), f"{name}: {result}"
                assert "make a new one in the child process" in result
            wait_until(lambda: "from before" in bodies(parent.inbox()), "the parent's own message")
            parent.message("scout", "wakes it")
            forks.says("woken")
        assert ("from a fork" in bodies(parent.inbox())) == (program == "forker")
