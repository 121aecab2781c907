"""The examples of docs/turns.md, run as they stand there."""

from __future__ import annotations

import json
import re
import sys
from datetime import timedelta
from pathlib import Path

import pytest

from tests.architecture.test_documents import blocks
from tests.workers.child.turning import Turning
from tocsin.broker import Broker, CallableRunner, CommandRunner
from tocsin.broker.runners import read_runner
from tocsin.workers.child.folder import ESSENTIAL
from tocsin.workers.child.profiles import PROFILES

TEXT = (Path(__file__).parents[3] / "docs" / "turns.md").read_text("utf-8")
PROGRAM, FUNCTIONS = blocks(TEXT, "python")
NOW = timedelta(0)


@pytest.fixture
def herd(url, fleet_name):
    with Broker.connect(url, fleet=fleet_name) as broker:
        turning = Turning(broker, url, fleet_name)
        yield turning
        turning.parent.close_herd()


def summary(herd: Turning, task: str) -> str | None:
    settlement = herd.parent.task(task).settlement
    return settlement.summary if settlement else None


def test_the_program(herd, tmp_path):
    """It finds its turn, is resumed with its session, and its output is the task's summary."""
    path = tmp_path / "counting.py"
    path.write_text(PROGRAM)
    [shown] = re.findall(r"Its runner is `(\{.*?\})`", TEXT, re.DOTALL)
    runner = read_runner(json.loads(shown))
    assert isinstance(runner, CommandRunner)
    runner = runner.model_copy(update={"command": (sys.executable, str(path)), "wake_batch": NOW})
    herd.child(runner)
    for number, said in ((1, "turn 1, resumed 0 times: a"), (2, "turn 2, resumed 1 times: a")):
        task = herd.parent.delegate("scout", "a")
        assert herd.run(herd.turn(number)) == "idle"
        assert summary(herd, task.id) == said


def test_the_functions(herd, tmp_path):
    """Scout asks planner, and is done with its answer."""
    (tmp_path / "documented_agents.py").write_text(FUNCTIONS)
    for name in ("scout", "planner"):
        herd.child(CallableRunner(f"documented_agents:{name}", wake_batch=NOW), name)
    task = herd.parent.delegate("scout", "auth")
    place = {"PYTHONPATH": str(tmp_path)}
    assert herd.run(herd.turn(1), **place) == "waits"
    assert herd.run(herd.turn(1, "planner"), **place) == "idle"
    assert herd.run(herd.turn(2), **place) == "idle"
    assert summary(herd, task.id) == "Start with the README"


def test_the_runner_of_the_coding_agent():
    """It is one, and of a profile there is; so are the profiles, variables and defaults told."""
    [shown] = re.findall(r"<<'END'\n(\{.*?\})\nEND", TEXT, re.DOTALL)
    runner = read_runner(json.loads(shown))
    assert isinstance(runner, CommandRunner) and runner.profile in PROFILES
    assert re.findall(r"^\| `([a-z-]+)` \|", TEXT, re.MULTILINE) == list(PROFILES)
    assert set(re.findall(r"[A-Z_]{2,}", re.findall(r"`(PATH [A-Z_ ]+)`", TEXT)[0])) == set(
        ESSENTIAL
    )
    fields = CommandRunner.model_fields
    for name, value in (("max_nudges", "2"), ("retries", "2"), ("queue", "tocsin")):
        assert str(fields[name].default) == value
        assert re.search(rf"`{name}`.{{0,80}}{value}", TEXT, re.DOTALL), name
