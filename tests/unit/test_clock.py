"""Clocks that a test or a demonstration gives, and how times are told."""

from __future__ import annotations

import math
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest

from tocsin.broker.clock import ManualClock, ScaledClock, from_ms, to_ms
from tocsin.broker.errors import InvalidInput


@pytest.mark.parametrize(
    ("moment", "ms"),
    [
        (datetime(1970, 1, 1, tzinfo=UTC), 0),
        (datetime(2026, 1, 1, tzinfo=UTC), 1_767_225_600_000),
        (datetime(2026, 1, 1, 9, tzinfo=timezone(timedelta(hours=9))), 1_767_225_600_000),
        (datetime(2026, 1, 1, 0, 0, 0, 999_999, tzinfo=UTC), 1_767_225_600_999),
        (datetime(9999, 12, 31, 23, 59, 59, tzinfo=UTC), 253_402_300_799_000),
    ],
)
def test_moments_and_milliseconds_are_the_same_thing(moment, ms):
    """Exact in whole milliseconds, in every zone, and read back as UTC."""
    assert to_ms(moment) == ms
    assert from_ms(ms) == moment.replace(microsecond=moment.microsecond // 1000 * 1000)
    assert from_ms(str(ms)).tzinfo is UTC


def test_milliseconds_as_lua_writes_them_are_read():
    """A number that went through a script may come back with a fraction or an exponent."""
    assert from_ms("1767225600000.0") == from_ms("1.7672256e12") == from_ms(1_767_225_600_000)


def test_a_manual_clock_moves_only_when_told():
    """And never back."""
    clock = ManualClock()
    assert clock.now() == datetime(2026, 1, 1, tzinfo=UTC)
    assert clock.argument == "manual:1767225600000"
    clock.advance(timedelta(minutes=5))
    clock.advance(timedelta(0))
    clock.advance(timedelta(microseconds=1500))
    assert clock.argument == "manual:1767225900001"
    assert clock.now() == datetime(2026, 1, 1, 0, 5, 0, 1000, tzinfo=UTC)


@pytest.mark.parametrize("by", [timedelta(seconds=-1), 5, 5.0, "5m", None, math.nan])
def test_a_manual_clock_refuses_what_is_no_step_forward(by: Any):
    """It stays where it is."""
    clock = ManualClock()
    with pytest.raises(InvalidInput, match="by must be a timedelta of 0 or more"):
        clock.advance(by)
    assert clock.argument == "manual:1767225600000"


@pytest.mark.parametrize("start", [datetime.fromisoformat("2026-01-01"), 5, "2026-01-01", 0])
def test_a_manual_clock_starts_at_an_aware_moment(start: Any):
    """Nobody can tell which moment a naive one is."""
    with pytest.raises(InvalidInput, match="time zone"):
        ManualClock(start)


def test_a_manual_clock_does_not_start_before_1970():
    """A script would not read a negative number as a time, and take the server's instead."""
    with pytest.raises(InvalidInput, match="before 1970"):
        ManualClock(datetime(1969, 12, 31, 23, 59, 59, tzinfo=UTC))
    assert ManualClock(datetime(1970, 1, 1, tzinfo=UTC)).argument == "manual:0"


@pytest.mark.parametrize("factor", [0, -1, math.nan, math.inf, 1_000_001, True, "60", None])
def test_a_scaled_clock_runs_forward_at_a_finite_speed(factor: Any):
    """A factor is a number above 0, up to a million."""
    with pytest.raises(InvalidInput, match="factor"):
        ScaledClock(factor)


def test_a_scaled_clock_is_an_argument_once_its_fleet_has_fixed_its_base():
    """Base and speed, so that the script can work out the fleet's time from the server's."""
    assert ScaledClock(60).argument == ""
    assert ScaledClock(60.0, 1_767_225_600_000).argument == "scaled:1767225600000:60.0"
    assert ScaledClock(0.5, 1).argument == "scaled:1:0.5"
