"""The policy of a herd and where a fleet is: what is accepted, refused, shown and stored."""

from __future__ import annotations

import math
import pickle
import re
from contextlib import suppress
from datetime import timedelta
from itertools import count
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from tocsin.broker.durations import MAX_DURATION, MILLISECOND
from tocsin.broker.errors import InvalidInput
from tocsin.broker.masking import redacted
from tocsin.broker.settings import (
    ENV_NAMES,
    OFFERED_THRESHOLDS,
    ConnectionSettings,
    HerdSettings,
    NotifySettings,
    describe,
    from_record,
    parse_setting,
    show_setting,
    to_record,
)

KINDS = {row.name: row.kind for row in describe() if row.name in HerdSettings.model_fields}
DURATIONS = [name for name, kind in KINDS.items() if kind == "duration"]
COUNTS = [name for name, kind in KINDS.items() if kind == "count"]


def made(name: str, value: Any) -> HerdSettings:
    return HerdSettings(**{name: value})


def refused(model: Any = HerdSettings, /, **values: Any) -> str:
    """The detail of the refusal of these values, which may be read and has no secret behind it."""
    with pytest.raises(InvalidInput) as caught:
        model(**values)
    assert caught.value.__cause__ is None
    assert caught.value.__context__ is None
    assert caught.value.detail.isprintable()
    assert len(caught.value.detail) < 500
    return caught.value.detail


POLICY = """
stale_wait_threshold 5, reply_timeout 20m, task_deadline 1d, ask_window 10m, ask_ceiling 4h,
away_after 10m, lease 30s, lease_renewal 7s, grace 30s, max_open_tasks 1, max_plans 100,
max_open_requests 100, turns_at_once 50, inbox_limit 1000, accepts_from none, outbox_limit 1000,
max_herds_under 1000, max_levels_under 8,
max_attempts 5, body_limit 50000, envelope_limit 65536, hop_limit 16, pair_rate 200, pair_window 1h,
label_limit 64, task_retention 7d, receipt_retention 1h,
dead_retention 30d, herd_retention 7d, journal_limit 10000, journal_retention 7d"""


def test_the_documented_policy():
    """Without opinions a herd has these settings, which may also be given."""
    rows = {row.name: row for row in describe()}
    defaults = [f"{name} {rows[name].default}" for name in HerdSettings.model_fields]
    assert ", ".join(defaults) == " ".join(POLICY.split())
    models = (ConnectionSettings, NotifySettings, HerdSettings)
    assert list(rows) == [name for model in models for name in model.model_fields]
    assert rows["reply_timeout"][2:4] == ("duration", "TOCSIN_REPLY_TIMEOUT")
    assert {row.name: row.variable for row in rows.values()} == ENV_NAMES
    assert all(row.description and "\n" not in row.description for row in rows.values())
    assert HerdSettings(**{name: f.default for name, f in HerdSettings.model_fields.items()}) == (
        HerdSettings()
    )


def test_settings_are_values_that_know_what_was_given():
    """They are frozen and equal by content; a field given with its default is given."""
    settings = HerdSettings(max_attempts=5)
    assert settings == HerdSettings()
    assert HerdSettings().model_fields_set == set()
    with pytest.raises(ValidationError):
        settings.max_attempts = 4  # type: ignore[misc]
    assert pickle.loads(pickle.dumps(settings)).model_fields_set == {"max_attempts"}


@pytest.mark.parametrize(
    "minutes", [0, -0.0, -3, 0.5, 0.999, -1e308, 2.5, 527_040, *OFFERED_THRESHOLDS], ids=count()
)
def test_thresholds(minutes):
    """Zero, negative and below one turn reminders off; the number stays as given."""
    settings = HerdSettings(stale_wait_threshold=minutes)
    assert settings.reminders_off == (minutes < 1)
    assert settings.stale_wait_threshold == minutes
    assert settings.model_fields_set == {"stale_wait_threshold"}
    assert HerdSettings().stale_wait_threshold in OFFERED_THRESHOLDS


NO_MINUTES = [math.nan, math.inf, -math.inf, True, False, None, "5", "off", [5], timedelta(1)]


@pytest.mark.parametrize("value", [*NO_MINUTES, 527_041, 2**53, 10**400, -(10**400)], ids=count())
def test_bad_thresholds(value):
    """A threshold is a finite number of at most 366 days, never a bool, text or duration."""
    detail = refused(stale_wait_threshold=value)
    assert detail.startswith("stale_wait_threshold is ")
    assert "but must be a finite number of minutes, at most 527040" in detail


NO_DURATIONS = [5, 0, 2.5, True, None, "10m", "", math.nan, -MILLISECOND, timedelta.max]
NO_DURATIONS += [MAX_DURATION + MILLISECOND, timedelta(microseconds=1500), timedelta.min, "\ud800"]


@pytest.mark.parametrize("name", DURATIONS)
def test_durations(name):
    """In Python a duration is a timedelta of whole ms, up to 366 days; some are at least 100 ms,
    those of an ask above 0 and at most 7 days."""
    low, high, bounds = timedelta(0), MAX_DURATION, "0s to 366d"
    spans = ("lease", "lease_renewal", "grace", "task_deadline", "journal_retention", "pair_window")
    if name in spans:
        low, bounds = 100 * MILLISECOND, "100ms to 366d"
    if name in ("ask_window", "ask_ceiling"):
        low, high, bounds = MILLISECOND, timedelta(days=7), "1ms to 7d"
    for good in (low, high):
        assert getattr(made(name, good), name) == good
    for bad in [*NO_DURATIONS, low - MILLISECOND, high + MILLISECOND]:
        detail = refused(**{name: bad})
        assert detail.startswith(f"{name} is ")
        assert f"must be a timedelta of whole milliseconds from {bounds}" in detail


NO_COUNTS = [0, -1, True, False, None, 2.0, 2.5, "3", "\u0663", math.nan, math.inf, 10**5000]


@pytest.mark.parametrize("name", COUNTS)
def test_counts(name):
    """A count is a positive whole number within its bounds, never a bool, float or text."""
    found = re.search(r"but must be a whole number from (\d+) to (\d+)", refused(**{name: 0}))
    assert found is not None
    low, high = int(found[1]), int(found[2])
    assert 1 <= low <= HerdSettings.model_fields[name].default <= high <= 2**53
    for good in (low, high):
        assert getattr(made(name, good), name) == good
    for bad in [*NO_COUNTS, low - 1, high + 1]:
        assert f", but must be {found[0][12:]}" in refused(**{name: bad})


NEAREST: list[tuple[dict[str, Any], object]] = [
    ({"reply_timeout": 90}, timedelta(seconds=90)),
    ({"reply_timeout": "10 min"}, timedelta(minutes=10)),
    ({"reply_timeout": timedelta(days=400)}, MAX_DURATION),
    ({"lease": timedelta(0)}, 100 * MILLISECOND),
    ({"stale_wait_threshold": 1e9}, 527_040.0),
    ({"max_attempts": 0}, 1),
    ({"max_attempts": 10**400}, 1000),
]


@pytest.mark.parametrize(("values", "nearest"), NEAREST, ids=count())
def test_refusals_name_the_nearest_right_value(values, nearest):
    """Where a right value is near, the refusal shows it as Python code."""
    assert refused(**values).endswith(f"; did you mean {nearest!r}?")


@pytest.mark.parametrize("value", [-MILLISECOND, timedelta(microseconds=5), 0, "soon"], ids=count())
def test_nothing_far_is_suggested(value):
    """0 means 'as long as its task', so nobody is talked into it by a bad value."""
    assert "did you mean" not in refused(reply_timeout=value)


def test_unknown_names():
    """An unknown name is refused with the nearest right one, or with all there are."""
    said = "unknown setting 'reply_timout'; did you mean reply_timeout?"
    assert refused(reply_timout=timedelta(1)) == said
    assert "; known are stale_wait_threshold, reply_timeout, " in refused(zzz=1)
    assert "; known are url, fleet" in refused(ConnectionSettings, **{"x\n" * 9_999: 1})
    for ask in (show_setting, parse_setting):
        with pytest.raises(InvalidInput, match="unknown setting 'leese'; did you mean lease"):
            ask("leese", 1)


@pytest.mark.parametrize("value", [None, 5, "x", []], ids=count())
def test_not_settings_at_all(value):
    """What is no mapping of fields is refused in the same way."""
    with pytest.raises(InvalidInput, match="HerdSettings cannot be made from"):
        HerdSettings.model_validate(value)


# ------------------------------------------------------------------------ where a fleet is

URLS = ["redis://127.0.0.1:6379/0", "rediss://u:p%40@h:1/2", "redis://[::1]:6379", "redis://h"]
URLS += ["unix:///run/redis.sock?db=1"]
URLS += ["https://broker.example/base", "http://127.0.0.1:8765/mcp"]
NO_URLS: list[object] = ["", "localhost", "127.0.0.1:6379", "redis:127.0.0.1", "redis:///0", 5]
NO_URLS += [
    "redis://",
    "unix://",
    "ftp://h",
    "redis://h:99999",
    "redis://h:x",
    "redis://[::1",
    True,
]
NO_URLS += ["redis://\uff48", "redis://h\0", "redis://h\ud800", "redis://" + "h" * 3000, None, b"h"]
NO_URLS += ["redis://h /0", "redis://h:0"]
NO_NAMES: list[object] = ["", "A", "-a", "a b", "é", "a" * 65, "a\n", "\ud800", 5, None]


def test_places():
    """Urls of a Redis server, and of one of Tocsin, are taken as they are; all else is refused."""
    for url in URLS:
        assert ConnectionSettings(url=url).url == url
    for bad in NO_URLS:
        found = refused(ConnectionSettings, url=bad)
        assert re.match("url is .*, but must be a url such as redis:", found)
    for bad in NO_NAMES:
        found = refused(ConnectionSettings, fleet=bad)
        assert re.match("fleet is .*, but must be 1 to 64 of a-z, 0-9", found)


SECRETS = """
redis://:hunter2@h:6379/0
redis://user:hunter2@h:6379/0
redis://user:hun/hunter2@h:6379/0
redis://user:hunter2@hunter2@h:6379/0
redis://user:a?b#hunter2@h
redis://hunter2@h
https://hunter2@h/x
redis://h:6379/0?password=hunter2
redis://h:6379/0?db=1&p%61ssword=hunter2
redis://h?ssl_password=hunter2;username=hunter2
reds://user:hunter2@h
redis://user:hunter2@h:99999
redis://user:hunter2@h h
redis://a://user:hunter2@h
redis+cluster://user:hunter2@h:1,i:2
redis+cluster://user:hun@ter2@h:1,i:2
rediss+cluster://h:1?password=hunter2
redis+sentinel://user:hunter2@main@h:1,i:2/0
redis+sentinel://user:hunter2@h:1
redis+sentinel://main@h:1?sentinel_password=hunter2
redis+sentinel://:hunter2@main@h:1:2
"""


@pytest.mark.parametrize(
    "url", [*SECRETS.split("\n")[1:-1], "redis://u:hun\nter2@h", "user:hunter2@h"]
)
def test_passwords_are_never_shown(url):
    """Neither repr, str nor a refusal tells a password, in good urls and in bad ones."""
    assert "ter2" not in redacted(url) + show_setting("url", url)
    for name in ("url", "fleet"):
        said: list[object] = []
        with suppress(InvalidInput):
            said.append(ConnectionSettings(**{name: url}))
        if not said:
            said.append(refused(ConnectionSettings, **{name: url}))
        assert "ter2" not in f"{said} {said[0]}"


def test_what_is_shown_stays_useful():
    """A lone text may be a password and is hidden; of a url what is no secret is still there."""
    assert "hunter2" not in refused(ConnectionSettings, url="hunter2")
    assert redacted("redis://ann:pw@h:1/0?db=2&x=y") == "redis://ann:***@h:1/0?db=2&x=***"
    for url in ("redis://127.0.0.1:6379/0", "redis+cluster://h:1,i:2", "redis+sentinel://m@h:1/0"):
        assert redacted(url) == url
    assert redacted("redis+sentinel://u:pw@m@h:1,i:2/0") == "redis+sentinel://u:***@h:1,i:2/0"


# ------------------------------------------------------------------------ text and records


def test_settings_are_shown_and_read_as_people_write_them():
    """What `show_setting` says, `parse_setting` reads; typed values are checked as well."""
    values: dict[str, Any] = {"lease": timedelta(seconds=90), "inbox_limit": 1000, "fleet": "acme"}
    for name, value in (values | {"stale_wait_threshold": 2.0}).items():
        assert parse_setting(name, show_setting(name, value)) == value
        assert parse_setting(name, value) == value
    assert show_setting("lease", timedelta(seconds=90)) == "1m30s"
    assert show_setting("stale_wait_threshold", -3) == "off"
    assert parse_setting("stale_wait_threshold", "off") == 0
    with pytest.raises(InvalidInput, match=r"^settings: --set is 'soon', but must be seconds or"):
        parse_setting("lease", "soon", where="--set")


def test_record_form():
    """Lua reads whole milliseconds, minutes as given, whole numbers; only given ones if asked."""
    record = to_record(HerdSettings(stale_wait_threshold=2.5, lease=100 * MILLISECOND))
    assert list(record) == list(HerdSettings.model_fields)
    assert (record["stale_wait_threshold"], record["lease"]) == ("2.5", "100")
    assert (record["reply_timeout"], record["inbox_limit"]) == ("1200000", "1000")
    given = HerdSettings(max_attempts=5, stale_wait_threshold=-3)
    only = {"stale_wait_threshold": "-3", "max_attempts": "5"}
    assert to_record(given, only_given=True) == only


SPANS = st.integers(100, MAX_DURATION // MILLISECOND).map(lambda amount: amount * MILLISECOND)
SETTINGS = st.builds(
    HerdSettings,
    stale_wait_threshold=st.floats(max_value=527_040, allow_nan=False, allow_infinity=False),
    lease=SPANS,
    inbox_limit=st.integers(1, 1_000_000),
)


@given(SETTINGS)
def test_records_are_read_back(settings):
    """Any settings come back from their record as they were."""
    assert from_record(to_record(settings)) == settings


def test_records_of_other_versions():
    """A record without a field has its default; fields of a newer version are passed over."""
    record = {"max_attempts": "2", "from_the_future": "1"}
    assert from_record(record) == HerdSettings(max_attempts=2)
    assert from_record({}) == HerdSettings()


BROKEN = [("stale_wait_threshold", text) for text in ("nan", "soon", "")]
BROKEN += [("lease", text) for text in ("1.5", "10m", "-1", "9" * 18, "9" * 5000, "")]
BROKEN += [("max_attempts", text) for text in ("", "0", "\u0663", "1.0")]


@pytest.mark.parametrize(("name", "text"), BROKEN, ids=count())
def test_broken_records(name, text):
    """A text that is no value is refused, naming the field and the record."""
    with pytest.raises(InvalidInput, match=f"^settings: {name} in the herd's record is "):
        from_record({name: text})


@pytest.mark.parametrize("names", [(), ("a",), ("*",), ("a-*", "b", "x*y", "1")])
def test_the_herds_that_may_write_are_read_back(names):
    """From a record, and as people write and see them."""
    settings = HerdSettings(accepts_from=names)
    assert from_record(to_record(settings)) == settings
    assert parse_setting("accepts_from", ", ".join(names)) == names
    assert parse_setting("accepts_from", show_setting("accepts_from", names)) == names


@pytest.mark.parametrize("name", ["", "A", "a b", "a,b", "**", "*a*", "-a", "a.b", "x" * 65, "a/b"])
def test_what_is_no_herd_that_may_write(name):
    """Each is a name, or a pattern with one `*`."""
    with pytest.raises(InvalidInput, match="names of herds, or patterns with one"):
        HerdSettings(accepts_from=(name,))


# ------------------------------------------------------------------------ how a human is told


def test_what_text_says_of_telling_a_human():
    """Words as a shell parts them or a JSON list, names with commas, a switch."""
    for text in ('notify-send "Tocsin says"', '["notify-send", "Tocsin says"]'):
        assert parse_setting("notify_command", text) == ("notify-send", "Tocsin says")
    assert parse_setting("notify_command", ["a"]) == ("a",)
    assert parse_setting("notify_events", "failed, dead_letter") == ("failed", "dead_letter")
    assert [parse_setting("notify_private", text) for text in ("true", "off", True)] == [
        True,
        False,
        True,
    ]
    assert parse_setting("notify_preview", "0") == 0
    assert NotifySettings().target is None
    assert NotifySettings(notify_command=("/bin/x", "--key=hunter2")).target == "command /bin/x"


@pytest.mark.parametrize(
    ("name", "bad", "rule"),
    [
        ("notify_url", "ftp://h/x", "a url such as https://"),
        ("notify_url", "https://", "a url such as https://"),
        ("notify_url", "hunter2", "is no url at all, but must be"),
        ("notify_command", 'an "open quote', "a list of words"),
        ("notify_command", 5, "a list of words"),
        ("notify_events", "failed,nothing", "some of reminder, blocked"),
        ("notify_private", "perhaps", "true or false"),
        ("notify_preview", "-1", "a whole number from 0 to 1000"),
        ("notify_timeout", "1ms", "from 100ms to 5m"),
    ],
)
def test_what_is_refused_of_telling_a_human(name, bad, rule):
    """The refusal has the rule, and no secret of the value."""
    with pytest.raises(InvalidInput) as refusal:
        parse_setting(name, bad)
    assert rule in refusal.value.detail and "hunter2" not in refusal.value.detail


def test_a_webhook_is_shown_without_its_path():
    """A path is as secret as a password; neither is in what is shown, refused or printed."""
    url = "https://u:hunter2@hooks.example:8443/hunter2?k=hunter2"
    assert show_setting("notify_url", url) == "https://hooks.example:8443/***"
    assert show_setting("notify_url", "https://hooks.example") == "https://hooks.example"
    assert "hunter2" not in repr(NotifySettings(notify_url=url))
    with pytest.raises(InvalidInput) as refusal:
        parse_setting("notify_url", url.replace("https", "gopher"))
    assert "hunter2" not in refusal.value.detail
