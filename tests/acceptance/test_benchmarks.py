"""The benchmarks between processes run to their end; what they measure is nobody's promise."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from benchmarks import ask, fair, scale, turnaround, turns
from benchmarks.measuring import Options


@pytest.mark.parametrize("benchmark", [ask, turnaround])
def test_a_benchmark_runs(benchmark, monkeypatch):
    """It shows a round trip of ours beside a bare one."""
    monkeypatch.setattr(benchmark, "TRIPS", 110)  # twice: over `pair_rate`
    out = io.StringIO()
    benchmark.run(Options(runs=1, waits=(), fired=0, console=Console(file=out, width=120)))
    assert "bare" in out.getvalue() and "us" in out.getvalue()


def test_the_benchmark_of_fairness_runs():
    """It shows the delay of quiet herds: no backlog, then one, with 1, 2 and 4 schedulers."""
    out = io.StringIO()
    options = Options(1, (), 0, Console(file=out, width=120), backlog=200)
    fair.run(options)
    assert out.getvalue().count(" ms ") == 8


def test_the_benchmark_of_turns_runs():
    """It shows a turn beside a job of RQ that runs the same program."""
    out = io.StringIO()
    turns.run(Options(1, (), 0, Console(file=out, width=120)))
    assert "bare RQ job" in out.getvalue() and out.getvalue().count(" ms ") == 2


@pytest.mark.parametrize(("herds", "times"), [(5, 6), (4, 4)])
def test_the_benchmark_of_scale_runs(monkeypatch, herds, times):
    """It builds a fleet, and shows rates, memory, lag and what an idle fleet costs; where herds
    are too few for the last number of schedulers, it ends with what it has."""
    monkeypatch.setattr(scale, "SETTLE", 0.1)
    monkeypatch.setattr(scale, "IDLE", 0.5)
    out = io.StringIO()
    console = Console(file=out, width=120)
    scale.run(Options(1, (), 0, console, herds=herds, agents=10, due=10))
    assert "bytes used" in out.getvalue() and out.getvalue().count(" ms ") >= times
