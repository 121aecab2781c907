"""The benchmarks between processes run to their end; what they measure is nobody's promise."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from benchmarks import ask, turnaround
from benchmarks.measuring import Options


@pytest.mark.parametrize("benchmark", [ask, turnaround])
def test_a_benchmark_runs(benchmark, monkeypatch):
    """It shows a round trip of ours beside a bare one."""
    monkeypatch.setattr(benchmark, "TRIPS", 110)  # twice: over `pair_rate`
    out = io.StringIO()
    benchmark.run(Options(runs=1, waits=(), fired=0, console=Console(file=out, width=120)))
    assert "bare" in out.getvalue() and "us" in out.getvalue()
