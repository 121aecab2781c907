"""The policy of a herd, and where a fleet is found: names, defaults, bounds, refusals.

`HerdSettings` is what a caller gives and what scripts read from a herd's record. A field that was
not given is not an opinion: it takes the layers below (`settings_files`) when a herd is opened, and
stays as it is when one is reopened or set. Which fields were given is `model_fields_set`.

What comes from text (files, variables, command lines, records) is validated with a context: the
function that says where the setting of a name was found. `setting_values` has what is valid.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterable, Mapping
from datetime import timedelta
from difflib import get_close_matches
from typing import Annotated, Any, NamedTuple, Self

from annotated_types import Ge, Le
from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    ModelWrapValidatorHandler,
    ValidationError,
    ValidationInfo,
    model_validator,
)
from pydantic_core import ErrorDetails

from tocsin.broker.durations import MAX_DURATION, MILLISECOND, Duration, show_duration
from tocsin.broker.errors import InvalidInput
from tocsin.broker.keys import MOST_PARTITIONS
from tocsin.broker.masking import origin, redacted, shown
from tocsin.broker.setting_values import (
    EVENTS,
    AnyUrl,
    Count,
    Event,
    Events,
    FleetUrl,
    HerdNames,
    Minutes,
    Span,
    Switch,
    Tick,
    WebhookUrl,
    Whole,
    Words,
)
from tocsin.broker.validation import NAME

OPERATION = "settings"
"""The operation that errors about settings name."""

OFFERED_THRESHOLDS = (0, 1, 2, 5, 10, 15, 30)
"""The stale-wait thresholds a menu offers, in minutes; 0 is off. Others may be given."""

Where = Callable[[str], str]
"""The context of text: says for people where the setting of this name was found."""


class SettingsModel(BaseModel):
    """Base of the settings: frozen, closed, strict; a bad value raises `InvalidInput`."""

    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        strict=True,
        hide_input_in_errors=True,
        use_attribute_docstrings=True,
    )

    @model_validator(mode="wrap")
    @classmethod
    def _refuse_in_words(
        cls, data: Any, handler: ModelWrapValidatorHandler[Self], info: ValidationInfo
    ) -> Self:
        try:
            return handler(data)
        except ValidationError as failure:
            error = failure.errors(include_url=False)[0]
        # Raised outside the handler: the pydantic error holds the input, which may be a secret.
        raise _refusal(cls, data, error, info.context)


class HerdSettings(SettingsModel):
    """The policy of one herd. Durations are `timedelta`s of whole milliseconds, 0 to 366 days."""

    stale_wait_threshold: Annotated[Minutes, Le(MAX_DURATION / timedelta(minutes=1))] = 5.0
    """A wait this old reminds the parent, once; 0, negative or below 1: off"""
    reply_timeout: Duration = timedelta(minutes=20)
    """A question still open after this blocks its task; 0: as long as its task"""
    task_deadline: Tick = timedelta(hours=24)
    """A task delegated without a deadline times out after this"""
    ask_window: Span = timedelta(minutes=10)
    """An ask ends when its target has shown no sign of work for this long"""
    ask_ceiling: Span = timedelta(hours=4)
    """An ask ends after this, whatever its target does"""
    away_after: Duration = timedelta(minutes=10)
    """An agent with an open task and no live process this long is reported away"""
    lease: Tick = timedelta(seconds=30)
    """A process unheard for this long is taken for gone"""
    lease_renewal: Tick = timedelta(seconds=7)
    """A process renews its lease this often, and never later than at half of it"""
    grace: Tick = timedelta(seconds=30)
    """Mail of a gone process goes to another after this more"""
    max_open_tasks: Annotated[Count, Le(1_000)] = 1
    """Open tasks one agent may hold at a time"""
    max_plans: Annotated[Count, Le(1_000)] = 100
    """Plans the herd may have at a time"""
    max_open_requests: Annotated[Count, Le(10_000)] = 100
    """Open questions one task may have at a time"""
    turns_at_once: Annotated[Count, Le(100_000)] = 50
    """Turns of this herd's agents, of those that have a runner, that run or are launched at once"""
    inbox_limit: Annotated[Count, Le(1_000_000)] = 1_000
    """Unread envelopes of one agent, above which new work is refused"""
    accepts_from: HerdNames = ()
    """Herds whose agents may write to this herd's parent: names, or patterns with one `*`"""
    outbox_limit: Annotated[Count, Le(100_000)] = 1_000
    """Messages that wait to be forwarded to one other herd; ten times as many to all"""
    max_herds_under: Annotated[Count, Le(1_000)] = 1_000
    """Herds that one agent may lead, each a herd under its own"""
    max_levels_under: Annotated[Count, Le(100)] = 8
    """Levels of herds that may be under this one; of all herds above, the lowest counts"""
    max_attempts: Annotated[Count, Le(1_000)] = 5
    """Failed handlings after which an envelope becomes a dead letter"""
    body_limit: Annotated[Count, Le(1_000_000)] = 50_000
    """Characters of a body or task description"""
    envelope_limit: Annotated[Count, Ge(256), Le(16_777_216)] = 65_536
    """Bytes of an encoded envelope"""
    hop_limit: Annotated[Count, Le(1_000)] = 16
    """Replies to replies in one chain, above which the next is refused"""
    pair_rate: Annotated[Count, Le(1_000_000)] = 200
    """Times two agents may answer each other in a `pair_window`, also round others in a ring"""
    pair_window: Tick = timedelta(hours=1)
    """The time in which two agents that answer each other without end are stopped"""
    label_limit: Annotated[Count, Le(1_024)] = 64
    """Characters of an agent's label"""
    task_retention: Duration = timedelta(days=7)
    """A settled task is kept this long"""
    receipt_retention: Duration = timedelta(hours=1)
    """A handled envelope's receipt, and its id, is kept this long"""
    dead_retention: Duration = timedelta(days=30)
    """A dead letter that nobody replays or drops is kept this long"""
    herd_retention: Duration = timedelta(days=7)
    """A closed herd is kept this long"""
    journal_limit: Annotated[Count, Le(10_000_000)] = 10_000
    """Entries of the herd's journal, above which the oldest are dropped"""
    journal_retention: Tick = timedelta(days=7)
    """Entries of the herd's journal older than this are dropped"""

    @property
    def renews_every(self) -> timedelta:
        """How often a lease is renewed: at half of it where `lease_renewal` does not fit into it.

        Not refused, because a lease that is shortened alone, live, must not need the other too.
        """
        return min(self.lease_renewal, self.lease / 2)

    @property
    def reminders_off(self) -> bool:
        """Whether stale waits raise no reminder: the threshold is 0, negative or below 1."""
        return self.stale_wait_threshold < 1


class ConnectionSettings(SettingsModel):
    """Where a fleet is. Shown without the password of its url; `url` itself has it."""

    url: AnyUrl = "redis://127.0.0.1:6379/0"
    """The Redis server, or https:// of a Tocsin server"""
    fleet: Annotated[str, Field(pattern=f"^{NAME.pattern}$")] = "default"
    """The fleet's name on its server"""
    rq_url: FleetUrl | None = None
    """The plain Redis of RQ's queues, if that is not the fleet's server, as on a Cluster"""
    partitions: Annotated[Count, Le(MOST_PARTITIONS)] | None = None
    """What a new fleet is divided into, for good; none: as the fleet is, a new one into 16"""

    @property
    def queues_url(self) -> str:
        """Where RQ's queues are."""
        return self.rq_url or self.url

    def __repr_args__(self) -> Iterable[tuple[str | None, Any]]:
        return [(name, show_setting(name, value)) for name, value in self]


class NotifySettings(SettingsModel):
    """How schedulers tell a human of what needs one. Without a command or a url they do not.

    It is the operator's of the scheduler, and never in a herd's record: a command that a herd could
    set would be code that runs on another machine.
    """

    notify_command: Words = ()
    """Told of alerts as JSON on its stdin: words, run without a shell"""
    notify_url: WebhookUrl | None = None
    """Told of alerts as JSON by POST; redirects are not followed"""
    notify_private: Switch = False
    """Whether the url may lead to a private, loopback or link-local address"""
    notify_events: Events = EVENTS
    """The events that are told"""
    notify_preview: Annotated[Whole, Ge(0), Le(1_000)] = 200
    """Characters of agents' texts that an alert shows; 0: none"""
    notify_timeout: Annotated[Duration, Ge(100 * MILLISECOND), Le(timedelta(minutes=5))] = (
        timedelta(seconds=10)
    )
    """A try to tell an alert is ended after this, and its command killed"""

    @property
    def target(self) -> str | None:
        """Where alerts go, as it may be shown; None if nowhere."""
        if self.notify_command:
            return f"command {self.notify_command[0]}"
        return show_setting("notify_url", self.notify_url) if self.notify_url else None

    def __repr_args__(self) -> Iterable[tuple[str | None, Any]]:
        return [(name, show_setting(name, value)) for name, value in self]


FIELDS = ConnectionSettings.model_fields | NotifySettings.model_fields | HerdSettings.model_fields
"""Every setting, connection first, a herd's last, in the order of the models."""

ENV_NAMES: dict[str, str] = {name: f"TOCSIN_{name.upper()}" for name in FIELDS}
"""The environment variable of each setting."""

_FILE_KEYS = {
    name: f"{name} at the top level" for name in FIELDS if name not in HerdSettings.model_fields
}
_FILE_KEYS |= {name: f"{name} in [herd]" for name in HerdSettings.model_fields} | {"herd": "[herd]"}

_KINDS: dict[Any, str] = {
    timedelta: "duration",
    float: "minutes",
    int: "count",
    bool: "switch",
    tuple[str, ...]: "command",
    tuple[Event, ...]: "events",
    HerdSettings.model_fields["accepts_from"].annotation: "herds",
    NotifySettings.model_fields["notify_url"].annotation: "webhook",
    ConnectionSettings.model_fields["rq_url"].annotation: "redis",
    ConnectionSettings.model_fields["partitions"].annotation: "partitions",
}
_RULES = {
    "timedelta": "a timedelta of whole milliseconds from {low} to {high}",
    "duration": 'seconds or text such as "90s", "10m", "4h", "7d", "1h30m", from {low} to {high}',
    "minutes": "a finite number of minutes, at most {high}; 0, negative or below 1 means off, "
    'in text also "off"',
    "count": "a whole number from {low} to {high}",
    "redis": "a url such as redis://127.0.0.1:6379/0 (also rediss://, unix://, redis+cluster://, "
    "redis+sentinel://)",
    "url": "a url such as redis://127.0.0.1:6379/0 (also rediss://, unix://, redis+cluster://, "
    "redis+sentinel://, or https:// of a Tocsin server)",
    "switch": "true or false",
    "command": 'a list of words such as ["notify-send", "Tocsin"]',
    "events": f"some of {', '.join(EVENTS)}",
    "herds": "names of herds, or patterns with one '*' such as 'release-*', and '*' for all",
    "webhook": "a url such as https://hooks.example.com/tocsin",
    "partitions": f"a whole number from 1 to {MOST_PARTITIONS}",
    "fleet": "1 to 64 of a-z, 0-9, '_' and '-', starting with a letter or digit",
}


def _refusal(
    model: type[SettingsModel], data: Any, error: ErrorDetails, where: Where | None
) -> InvalidInput:
    """What pydantic's error says, in our words: place, value, rule, and the nearest right one."""
    place = where or str
    if not error["loc"]:
        name = model.__name__
        return InvalidInput(OPERATION, f"{place(name)} cannot be made from {shown(data)}")
    name = str(error["loc"][0])
    if name not in model.model_fields:
        words = _FILE_KEYS if where else {each: each for each in model.model_fields}
        return unknown_setting(place(shown(name)), name, words)
    field, value = model.model_fields[name], data[name]
    lows: list[Any] = [each.ge for each in field.metadata if isinstance(each, Ge)]
    highs: list[Any] = [each.le for each in field.metadata if isinstance(each, Le)]
    low, high = max(lows, default=None), min(highs, default=None)
    near = {"greater_than_equal": low, "less_than_equal": high}.get(error["type"])
    if guess := error.get("ctx", {}).get("nearest"):
        near = max(low, min(high, guess))
    kind = _KINDS.get(field.annotation, name)
    rule = _RULES["timedelta" if kind == "duration" and where is None else kind]
    rule = rule.format(low=plain(low), high=plain(high))
    # A 0 that nobody wrote is not suggested: it has a meaning.
    hint = f"; did you mean {plain(near) if where else repr(near)}?" if near else ""
    if kind in ("url", "redis", "webhook") and "://" not in str(value):
        said = "no url at all"  # it may be a password in the wrong place
    else:
        said = shown(origin(value) if kind == "webhook" else value)
    return InvalidInput(OPERATION, f"{place(name)} is {said}, but must be {rule}{hint}")


def unknown_setting(found: str, name: str, words: Mapping[str, str]) -> InvalidInput:
    """The refusal of a name that is none of `words`, with the text of the nearest of them."""
    near = get_close_matches(name[:64], words, n=1)
    hint = f"did you mean {words[near[0]]}?" if near else f"known are {', '.join(words.values())}"
    return InvalidInput(OPERATION, f"unknown setting {found}; {hint}")


def plain(value: Any) -> Any:
    """A typed value as a file has it: text, or a number without a needless fraction."""
    if isinstance(value, timedelta):
        return show_duration(value)
    if isinstance(value, tuple):
        return list(value)
    return int(value) if isinstance(value, float) and value.is_integer() else value


def show_setting(name: str, value: Any) -> str:
    """A value for people: `20m`, `off`, `1000`, a url without its password."""
    if model_of(name) is ConnectionSettings:
        return redacted(str(value)) if value else "none"
    if name == "notify_url":
        return origin(value) if value else "none"
    if isinstance(value, tuple):
        text = redacted(shlex.join(value)) if name == "notify_command" else ",".join(value)
        return text or ("" if name == "notify_events" else "none")
    if isinstance(value, bool):
        return "true" if value else "false"
    return "off" if name == "stale_wait_threshold" and value < 1 else str(plain(value))


class SettingRow(NamedTuple):
    """One setting for a table: its default as shown, what kind of value, its variable."""

    name: str
    default: str
    kind: str
    variable: str
    description: str


def describe() -> list[SettingRow]:
    """Every setting, in the order of `FIELDS`."""
    rows = []
    for name, field in FIELDS.items():
        kind = _KINDS.get(field.annotation, name)
        default = show_setting(name, field.default)
        rows.append(SettingRow(name, default, kind, ENV_NAMES[name], field.description or ""))
    return rows


AnySettings = HerdSettings | ConnectionSettings | NotifySettings


def model_of(name: str) -> type[AnySettings]:
    """The model that has this field; an unknown name is refused with the nearest one."""
    if name not in FIELDS:
        raise unknown_setting(shown(name), name, {each: each for each in FIELDS})
    models = (HerdSettings, ConnectionSettings, NotifySettings)
    return next(model for model in models if name in model.model_fields)


def parse_setting(name: str, value: object, *, where: str | None = None) -> Any:
    """The typed value that text or a plain number of a file or command line means for a setting.

    What is already typed is checked. `where` says in a refusal where the value was found.
    """
    given = model_of(name).model_validate({name: value}, context=lambda _: where or name)
    return getattr(given, name)


class _Alone(SettingsModel):
    duration: Duration


def parse_duration(
    value: object, *, operation: str = OPERATION, field: str = "duration"
) -> timedelta:
    """The duration that `value` means: whole milliseconds, from 0 to 366 days.

    `value` is a number of seconds (`90`, `0.5`, also as text), a text of days, hours, minutes,
    seconds and milliseconds in this order (`90s`, `10m`, `1h30m`, `7d`, `500ms`), or a `timedelta`.
    Anything else is refused with `InvalidInput`, naming `field` and the rule.
    """
    try:
        return _Alone.model_validate({"duration": value}, context=lambda _: field).duration
    except InvalidInput as refusal:
        raise InvalidInput(operation, refusal.detail) from None


def to_record(settings: HerdSettings, *, only_given: bool = False) -> dict[str, str]:
    """The fields as a herd's record keeps them and Lua reads them with `tonumber`.

    Durations are whole milliseconds, the threshold is the number of minutes as given, counts are
    whole numbers, names have commas between them. With `only_given` only the fields that were
    given: what reopening changes.
    """
    return {
        name: ",".join(value)
        if isinstance(value, tuple)
        else str(value // MILLISECOND if isinstance(value, timedelta) else plain(value))
        for name, value in settings
        if name in settings.model_fields_set or not only_given
    }


def from_record(record: Mapping[str, str]) -> HerdSettings:
    """The settings that `to_record` wrote.

    Fields the record lacks (written by an older version) have their defaults, and fields unknown
    here (written by a newer one) are passed over. A text that is no value raises `InvalidInput`.
    """
    values = {
        name: f"{record[name]}ms" if field.annotation is timedelta else record[name]
        for name, field in HerdSettings.model_fields.items()
        if name in record
    }
    return HerdSettings.model_validate(values, context=lambda name: f"{name} in the herd's record")
