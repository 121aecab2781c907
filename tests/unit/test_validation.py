"""What is refused at the door: one clear error each, naming the operation, the field, the rule."""

from __future__ import annotations

import math
import types
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from typing import Any

import pytest

from tocsin.broker import validation
from tocsin.broker.envelopes import Delivery
from tocsin.broker.errors import BrokerError, InvalidInput, TooLarge
from tocsin.broker.ids import keyed_id, make_id

TASK = "task_0123456789abcdefghjkmnpqr"
MESSAGE = "msg_0123456789abcdefghjkmnpqr"
HUGE = 10**5000  # beyond what int() reads and str() writes


def each(name: str, values: list[Any]) -> pytest.MarkDecorator:
    """A test for each value, named by its type and place: not every value can be shown."""
    names = [f"{type(value).__name__}{place}" for place, value in enumerate(values)]
    return pytest.mark.parametrize(name, values, ids=names)


def refusal(check: Callable[..., Any], *args: Any, **options: Any) -> str:
    """What the refusal says. It names `op` and can be printed anywhere."""
    with pytest.raises(BrokerError) as refused:
        check("op", *args, **options)
    assert refused.value.code in ("invalid_input", "too_large")
    assert refused.value.operation == "op"
    assert not refused.value.retryable
    assert refused.value.__cause__ is None
    text = str(refused.value)
    assert text.encode("utf-8").decode("utf-8") == text
    assert not [char for char in text if ord(char) < 32 or ord(char) == 127]
    assert len(text) < 400
    return refused.value.detail


@each("name", ["a", "0", "release-42", "a_b", "x" * 64, "9-_"])
def test_a_name_is_taken_as_it_is(name):
    """1 to 64 of a-z, 0-9, `_` and `-`, starting with a letter or digit."""
    assert validation.check_name("op", "herd", name) == name


@each("value", [TASK, MESSAGE, "task_k" + "0" * 24, make_id("watch"), keyed_id("msg", "a")])
def test_an_id_in_the_place_of_a_name_is_named_as_such(value):
    """It has the letters of a name, and who gives it means what it is the id of."""
    detail = refusal(validation.check_name, "to", value)
    assert f"to {value} is the id of a" in detail and "a name is meant" in detail
    assert validation.check_name("op", "to", value[:-1]) == value[:-1]


@each(
    "name",
    ["", "A", "x" * 65, "-a", "_a", "a b", "a.b", "a:b", "a/b", "a{b}", "ä", "а", "a\n", "\na"]
    + ["a\x00", "a\ud800", "*", "a\u200b", "１", None, 1, True, 1.5, b"a", ["a"], object()],
)
def test_what_is_no_name_is_refused_with_the_rule(name):
    """Whatever the type; look-alikes of other alphabets and a line end at the end too."""
    detail = refusal(validation.check_name, "herd", name)
    assert detail.startswith("herd ")
    assert "1 to 64 of a-z, 0-9" in detail


def test_an_id_is_taken_as_it_is():
    """Of the kind that is meant."""
    assert validation.check_id("op", "task", TASK, "task") == TASK
    assert validation.check_id("op", "message", MESSAGE, "msg") == MESSAGE


@pytest.mark.parametrize(
    ("value", "prefix", "says"),
    [
        (MESSAGE, "task", "is the id of a message; a task is meant"),
        (TASK, "msg", "is the id of a task; a message is meant"),
        ("inst_1", "msg", "is the id of an instance; a message is meant"),
        ("watch_1", "task", "is the id of a watch; a task is meant"),
    ],
)
def test_an_id_of_another_kind_is_named_as_such(value, prefix, says):
    """So that the reader sees which of two ids was mixed up."""
    assert says in refusal(validation.check_id, "which", value, prefix)


@each(
    "value",
    ["", "task", "task_", "TASK_1", "scout", "task_ä", "task_a b", "task_1\n", "task_" + "1" * 121]
    + ["x" * 10_000, "task_\x00", "task_\ud800", None, 1, True, HUGE, b"task_1", ["task_1"]],
)
def test_what_is_no_id_is_refused(value):
    """With the form an id has."""
    detail = refusal(validation.check_id, "task", value, "task")
    assert detail.startswith("task ")
    assert "id" in detail


@each("text", ["a", " a ", "a\tb\r\nc", "日本語", "👩‍👩‍👧", "\u202e", "a" * 1_000_000])
def test_text_is_taken_as_it_is(text):
    """Unicode, tabs and line ends included; nothing is trimmed or normalized."""
    assert validation.check_text("op", "body", text) == text


@pytest.mark.parametrize(
    ("text", "code", "at"),
    [
        ("\x00", "U+0000", 0),
        ("ab\x00", "U+0000", 2),
        ("a\x1b[31m", "U+001B", 1),
        ("a\x08", "U+0008", 1),
        ("a\x0b", "U+000B", 1),
        ("a\x7f", "U+007F", 1),
        ("a\ud800", "U+D800", 1),
        ("a\udfff", "U+DFFF", 1),
    ],
)
def test_control_characters_and_lone_surrogates_are_named_with_their_place(text, code, at):
    """The field, the character and where it stands."""
    detail = refusal(validation.check_text, "body", text)
    assert f"body holds {code} at position {at}" in detail


@each("text", ["", " ", "\n\t ", "\u2003"])
def test_empty_text_is_refused_where_something_must_be_said(text):
    """And taken where nothing need be."""
    assert refusal(validation.check_text, "body", text) == "body is empty; say something"
    assert validation.check_text("op", "body", text, empty=True) == text


@each("value", [None, 1, True, b"a", ["a"], {}, 1.5, HUGE, object()])
def test_what_is_no_text_is_refused_with_its_type(value):
    """`body must be text, not int`."""
    detail = refusal(validation.check_text, "body", value)
    assert detail == f"body must be text, not {type(value).__name__}"


def test_text_beyond_every_limit_is_refused_before_it_is_sent():
    """A million characters; the herd's own limit is smaller and its script's business."""
    with pytest.raises(TooLarge, match="body has 1000001 characters"):
        validation.check_text("op", "body", "a" * 1_000_001)


@each("end", ["\n", "\r", "\t", "\u2028", "\u2029"])
def test_a_line_is_one_line(end):
    """Whatever a terminal or a model may take for the end of one."""
    assert refusal(validation.check_line, "label", f"a{end}b") == "label must be one line"


def test_a_line_has_a_limit_and_nothing_is_an_empty_one():
    """256 characters, or what the field allows."""
    assert validation.check_line("op", "label", None) == ""
    assert validation.check_line("op", "label", "a" * 256) == "a" * 256
    with pytest.raises(TooLarge, match="label has 257 characters and the limit is 256"):
        validation.check_line("op", "label", "a" * 257)
    with pytest.raises(TooLarge, match="limit is 5"):
        validation.check_line("op", "label", "a" * 6, 5)


@each("token", [None, "", "short", "x" * 257, "tok_" + "é" * 40, 1, b"x" * 40])
def test_what_is_no_token_is_refused_without_being_shown(token):
    """A secret with a slip of the pen is still a secret."""
    detail = refusal(validation.check_token, token)
    assert detail == "token is not a token as `register` or `open_herd` returned it"


@pytest.mark.parametrize(
    ("value", "ms"),
    [
        (timedelta(0), 0),
        (timedelta(milliseconds=1), 1),
        (timedelta(microseconds=1999), 1),
        (timedelta(days=366), 366 * 86_400_000),
    ],
)
def test_a_duration_becomes_whole_milliseconds(value, ms):
    """From 0 to 366 days."""
    assert validation.check_duration("op", "delay", value) == ms


@each(
    "value",
    [timedelta(microseconds=-1), timedelta(days=366, microseconds=1), timedelta.max, timedelta.min]
    + [5, 5.0, "5m", True, None, math.nan, HUGE, datetime.now(UTC), [timedelta(1)]],
)
def test_what_is_no_duration_is_refused(value):
    """A number is not a duration: of what unit?"""
    assert refusal(validation.check_duration, "delay", value).startswith("delay must be ")


@each(
    "moment",
    [
        datetime(2026, 1, 1, tzinfo=UTC),
        datetime(2026, 1, 1, 9, tzinfo=timezone(timedelta(hours=9))),
        datetime(2025, 12, 31, 19, tzinfo=timezone(timedelta(hours=-5))),
    ],
)
def test_an_aware_deadline_is_exact_in_every_zone(moment):
    """Also where the process runs in another (case 23)."""
    assert validation.check_deadline("op", "deadline", moment) == ("", "1767225600000")


def test_a_deadline_from_now_is_a_length():
    """Milliseconds to be added to the server's time by the script."""
    assert validation.check_deadline("op", "deadline", timedelta(minutes=2)) == ("120000", "")


@each(
    "value", [datetime.fromisoformat(day) for day in ("2026-01-01", "9999-12-31")] + [timedelta(0)]
)
def test_a_naive_deadline_and_one_of_nothing_are_refused(value):
    """Nobody can tell which moment a naive time is (case 23)."""
    assert refusal(validation.check_deadline, "deadline", value).startswith("deadline ")


@each("value", [1767225600000, 60, "2026-01-01", date(2026, 1, 1), True, math.inf])
def test_a_deadline_as_a_number_text_or_date_is_refused(value):
    """Milliseconds and seconds look alike (case 23)."""
    assert "must be a timedelta" in refusal(validation.check_deadline, "deadline", value)


@pytest.mark.parametrize(
    ("value", "seconds"),
    [(None, None), (0, 0.0), (1, 1.0), (0.5, 0.5), (timedelta(minutes=1), 60.0)],
)
def test_a_timeout_is_seconds_or_a_timedelta(value, seconds):
    """None is without end."""
    assert validation.check_timeout("op", "timeout", value) == seconds


@each(
    "value",
    [-1, -0.001, math.nan, math.inf, -math.inf, 2**53, HUGE, -HUGE, timedelta(-1), timedelta.max]
    + [True, "5", b"5", Decimal(5), [5]],
)
def test_what_is_no_timeout_is_refused(value):
    """NaN, infinite, negative and beyond 366 days; and what is no number."""
    assert refusal(validation.check_timeout, "timeout", value).startswith("timeout must be ")


@each("value", [0, -1, 11, 2**53, HUGE, True, False, 1.0, "1", None, math.nan])
def test_what_is_no_count_is_refused(value):
    """A bool is no number here, and 1.0 is no whole one."""
    assert "from 1 to 10" in refusal(validation.check_count, "limit", value, 10)
    assert validation.check_count("op", "limit", 10, 10) == 10


@each("value", [-0.1, 1.1, 50, math.nan, math.inf, True, "0.5", HUGE, [0.5]])
def test_what_is_no_fraction_is_refused(value):
    """From 0 to 1: 50 is not 50 %."""
    assert "from 0 to 1" in refusal(validation.check_fraction, "fraction", value)


@pytest.mark.parametrize(("value", "text"), [(None, ""), (0, "0.0"), (1, "1.0"), (0.25, "0.25")])
def test_a_fraction_is_kept_exactly(value, text):
    """As the shortest text that reads back the same."""
    assert validation.check_fraction("op", "fraction", value) == text


@each("value", [0, 1, None, "true", "", HUGE, [], object()])
def test_what_is_no_flag_is_refused(value):
    """Truthiness is not taken for an answer: `watch="no"` would be True."""
    assert "must be True or False" in refusal(validation.check_flag, "watch", value)
    assert [validation.check_flag("op", "watch", flag) for flag in (True, False)] == ["1", "0"]


@each("value", ["", "Steer", "steer ", None, 1, HUGE, ["steer"], {}, b"steer"])
def test_what_is_no_choice_is_refused_with_the_choices(value):
    """Whatever its type."""
    detail = refusal(validation.check_choice, "delivery", value, Delivery)
    assert detail.startswith("delivery must be one of 'follow_up', 'steer', not ")


def test_a_choice_is_a_member_or_its_text():
    """Both become the member."""
    for value in ("steer", Delivery.STEER):
        assert validation.check_choice("op", "delivery", value, Delivery) is Delivery.STEER


def nested(depth: int) -> Any:
    """Lists in lists."""
    value: Any = 1
    for _ in range(depth):
        value = [value]
    return value


@pytest.mark.parametrize(
    ("value", "field"),
    [
        ([], "data must be a mapping, not list"),
        ("{}", "data must be a mapping, not str"),
        ({"a": math.nan}, "data.a holds nan"),
        ({"a": [1, math.inf]}, "data.a holds inf"),
        ({"a": 2**53 + 1}, "data.a holds a number over 2**53"),
        ({"a": {"b": -HUGE}}, "data.a.b holds a number over 2**53"),
        ({"a": "\x00"}, "data.a holds U+0000"),
        ({"a": {"b": "\ud800"}}, "data.a.b holds U+D800"),
        ({"a\x00": 1}, "data.a\N{REPLACEMENT CHARACTER} holds U+0000"),
        ({"\ud800": 1}, "data.\N{REPLACEMENT CHARACTER} holds U+D800"),
        ({1: 2}, "data has a key 1; use text keys"),
        ({None: 2}, "data has a key None"),
        ({HUGE: 2}, "data has a key a number of 16610 bits"),
        ({"a": b"x"}, "data.a holds bytes"),
        ({"a": {1, 2}}, "data.a holds set"),
        ({"a": datetime.now(UTC)}, "data.a holds datetime"),
        ({"a": nested(40)}, "data.a is nested more than 32 deep"),
        ({"a": nested(5_000)}, "data.a is nested more than 32 deep"),
    ],
)
def test_data_that_json_cannot_carry_is_refused_with_its_place(value, field):
    """The path to what is wrong, then what is wrong with it."""
    assert refusal(validation.check_data, "data", value).startswith(field)


def test_data_that_holds_itself_is_refused():
    """Like any other that is too deep."""
    value: dict[str, Any] = {}
    value["a"] = value
    assert "nested more than 32 deep" in refusal(validation.check_data, "data", value)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, ""),
        ({}, "{}"),
        ({"b": 1, "a": [True, None, 1.5, "ü\n"]}, '{"a":[true,null,1.5,"ü\\n"],"b":1}'),
        ({"a": 2**53, "b": -(2**53)}, '{"a":9007199254740992,"b":-9007199254740992}'),
        ({"a": (1, 2)}, '{"a":[1,2]}'),
        (types.MappingProxyType({"a": types.MappingProxyType({"b": 1})}), '{"a":{"b":1}}'),
    ],
)
def test_data_is_encoded_the_same_way_every_time(value, text):
    """So that a repeat of a call has the same fingerprint."""
    assert validation.check_data("op", "data", value) == text


def test_text_from_elsewhere_is_made_fit_to_send():
    """An exception's text may hold anything; what is refused is replaced."""
    made = validation.printable("a\x00b\x1b[0m\ud800\nc")
    assert made == "a\ufffdb\ufffd[0m\ufffd\nc"
    assert validation.check_text("op", "error", made) == made
    assert isinstance(InvalidInput("op", made), BrokerError)
