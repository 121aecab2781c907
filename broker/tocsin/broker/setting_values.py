"""What kinds of values settings have, and how text means one.

In Python values are typed. Text is read only where all is text (files, variables, command lines,
records), which validation knows by its context.
"""

from __future__ import annotations

import json
import re
import shlex
from datetime import timedelta
from typing import Annotated, Literal, get_args
from urllib.parse import urlsplit

from annotated_types import Ge, Le, Len
from pydantic import AfterValidator, AllowInfNan, BeforeValidator, Field, ValidationInfo

from tocsin.broker import urls
from tocsin.broker.durations import MILLISECOND, Duration


def _from_text(value: object, info: ValidationInfo) -> object:
    """Text as the number it means (`-2.5`, or `off`), if it comes from where all is text."""
    if info.context is None or not isinstance(value, str):
        return value
    number = re.fullmatch(r"-?[0-9]{1,400}(\.[0-9]{1,400})?(e[+-]?[0-9]{1,3})?", value)
    if number is None:
        return 0 if value == "off" else value
    return float(value) if number[1] or number[2] else int(value)


def _from_switch(value: object, info: ValidationInfo) -> object:
    words = {"true": True, "on": True, "1": True, "false": False, "off": False, "0": False}
    return words.get(value, value) if info.context and isinstance(value, str) else value


def _from_words(value: object, info: ValidationInfo) -> object:
    """A list as it is, or text: a JSON list, or words as a shell would part them."""
    if info.context is not None and isinstance(value, str):
        try:
            value = json.loads(value) if value.lstrip().startswith("[") else shlex.split(value)
        except ValueError:
            return value
    return tuple(value) if isinstance(value, list) else value


def _from_names(value: object, info: ValidationInfo) -> object:
    if info.context is not None and isinstance(value, str):
        value = [name.strip() for name in value.split(",")]
    return tuple(value) if isinstance(value, list) else value


def _from_herds(value: object, info: ValidationInfo) -> object:
    return () if info.context and value in ("", "none") else _from_names(value, info)


def _postable(url: str) -> str:
    parts = urlsplit(url)
    if not parts.hostname or parts.port == 0 or not re.fullmatch(r"https?://[!-~]{1,2048}", url):
        raise ValueError("not what can be posted to")
    return url


def _reachable(url: str) -> str:
    """Where the fleet is, or a server of Tocsin that works for agents who do not hold its url."""
    return _postable(url) if url.startswith(("http://", "https://")) else urls.check(url)


Event = Literal[
    "reminder", "blocked", "failed", "dead_letter", "agent_away", "unheard", "herd_orphaned"
]
"""What a human is told of. `unheard` is a question to an agent without a live instance."""

EVENTS: tuple[Event, ...] = get_args(Event)

FleetUrl = Annotated[str, AfterValidator(urls.check)]
AnyUrl = Annotated[str, AfterValidator(_reachable)]
WebhookUrl = Annotated[str, AfterValidator(_postable)]
Words = Annotated[tuple[str, ...], BeforeValidator(_from_words)]
Events = Annotated[tuple[Event, ...], BeforeValidator(_from_names)]
HerdName = Annotated[
    str, Field(pattern=r"^([a-z0-9][a-z0-9_-]*\*?|\*)[a-z0-9_-]*$", min_length=1, max_length=64)
]
HerdNames = Annotated[tuple[HerdName, ...], Len(0, 1_000), BeforeValidator(_from_herds)]
Switch = Annotated[bool, BeforeValidator(_from_switch)]
Minutes = Annotated[float, AllowInfNan(False), BeforeValidator(_from_text)]
Whole = Annotated[int, BeforeValidator(_from_text)]
Count = Annotated[int, Ge(1), BeforeValidator(_from_text)]
Tick = Annotated[Duration, Ge(100 * MILLISECOND)]
Span = Annotated[Duration, Ge(MILLISECOND), Le(timedelta(days=7))]
