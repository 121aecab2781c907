"""Durations as people write them: what is read, what is refused, how they are shown."""

from __future__ import annotations

import math
from datetime import timedelta
from itertools import count

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tocsin.broker.durations import MAX_DURATION, MILLISECOND, show_duration
from tocsin.broker.errors import InvalidInput
from tocsin.broker.settings import parse_duration

READ: list[tuple[object, int]] = [("90s", 90_000), ("10m", 600_000), ("4h", 14_400_000)]
READ += [("7d", 604_800_000), ("1h30m", 5_400_000), ("1d2h3m4s5ms", 93_784_005), ("500ms", 500)]
READ += [("0", 0), ("0s", 0), ("90", 90_000), ("0.5", 500), (0, 0), (91, 91_000), (1.001, 1001)]
READ += [(timedelta(minutes=3), 180_000)]


@pytest.mark.parametrize(("value", "milliseconds"), READ, ids=repr)
def test_durations_that_are_read(value, milliseconds):
    """A number is seconds; text is days, hours, minutes, seconds, milliseconds in this order."""
    assert parse_duration(value) == milliseconds * MILLISECOND


WORDS = ["", " ", "soon", "10 m", " 10m", "10m ", "10m\n", "30m1h", "1.5h", "1h1h", "m", "h1", "5x"]
WORDS += ["-5", "+5", "-5m", "1e3", "1_000", "\u0665m", "\uff15s", "\u00b2s", "m\0", "\ud800"]
WORDS += ["inf", "9" * 5000, "9" * 12 + "d", "366d1ms", "1d" * 50, "0.0001", "1e-11", "1,5", "0x10"]
WORDS += ["nan", "0.00000000001"]
OTHERS: list[object] = [-1, -0.001, 31_622_400.001, math.nan, math.inf, 10**400, 1e-9, 1e308]
OTHERS += [True, False, None, [], {}, b"5m"]
OTHERS += [timedelta(-1), timedelta.max, timedelta(microseconds=1)]


@pytest.mark.parametrize("value", [*WORDS, *OTHERS], ids=count())
def test_durations_that_are_refused(value):
    """Anything else is refused with the rule and in a line that can be read."""
    with pytest.raises(InvalidInput) as caught:
        parse_duration(value, operation="delegate", field="deadline")
    assert caught.value.operation == "delegate"
    assert caught.value.detail.startswith("deadline is ")
    assert 'must be seconds or text such as "90s"' in caught.value.detail
    assert "from 0s to 366d" in caught.value.detail
    assert caught.value.detail.isprintable()
    assert len(caught.value.detail) < 250


NEAREST: list[tuple[object, str]] = [("10 minutes", "10m"), ("10 Min", "10m"), ("1.5h", "1h30m")]
NEAREST += [("30m1h", "1h30m"), (" 90 ", "1m30s"), ("2 hours, 5 seconds", "2h5s"), (1e308, "366d")]
NEAREST += [("250 millis", "250ms"), ("400d", "366d"), (timedelta(microseconds=1500), "1ms")]


@pytest.mark.parametrize(("value", "nearest"), NEAREST, ids=repr)
def test_nearest_duration(value, nearest):
    """A duration in other words, or out of bounds, is refused with the nearest one, re-spelled."""
    with pytest.raises(InvalidInput) as caught:
        parse_duration(value)
    assert caught.value.detail.endswith(f"; did you mean {nearest}?")
    assert parse_duration(nearest) >= timedelta(0)


@given(st.integers(min_value=0, max_value=MAX_DURATION // MILLISECOND))
def test_durations_are_read_as_they_are_shown(milliseconds):
    """`show_duration` and `parse_duration` are inverse for every duration allowed."""
    duration = milliseconds * MILLISECOND
    assert parse_duration(show_duration(duration)) == duration


@given(st.one_of(st.text(max_size=80), st.from_regex(r"[0-9dhms. ]{0,70}")))
def test_any_text_is_read_or_refused(text):
    """No text makes anything but a duration within the rule, or `InvalidInput`."""
    try:
        duration = parse_duration(text)
    except InvalidInput:
        return
    assert timedelta(0) <= duration <= MAX_DURATION


SHOWN = {
    0: "0s",
    1200: "20m",
    5400: "1h30m",
    86_400: "1d",
    -90: "-1m30s",
    999e-6: "0s",
    -1e-6: "0s",
}


@pytest.mark.parametrize(("seconds", "text"), SHOWN.items())
def test_durations_are_shown(seconds, text):
    """Zero units are left out, what is below a millisecond too."""
    assert show_duration(timedelta(seconds=seconds)) == text
