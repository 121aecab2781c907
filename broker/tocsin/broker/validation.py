"""What is refused at the door: each value is checked before anything is sent.

Every function returns the value in the form scripts take, or raises `InvalidInput` that names the
field and the rule.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any, TypeVar

from tocsin.broker.clock import to_ms
from tocsin.broker.durations import MAX_DURATION, MILLISECOND
from tocsin.broker.errors import InvalidInput, TooLarge

E = TypeVar("E", bound=StrEnum)

NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,63}")
_ADDRESS = re.compile(f"({NAME.pattern})/({NAME.pattern})")
_ID = re.compile(r"(task|msg|inst|watch|plan)_[0-9a-z_-]{1,120}")
_MADE = re.compile(r"(task|msg|inst|watch|plan)_[0-9a-z]{25}")
"""An id as Tocsin makes them: also a name by its letters, and never meant as one."""
_MEANT = {
    "task": "a task",
    "msg": "a message",
    "inst": "an instance",
    "watch": "a watch",
    "plan": "a plan",
}
_CONTROL = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\ud800-\udfff]")
_PATH = re.compile(r"[a-z0-9-]{1,32}")
_LINE_ENDS = re.compile(r"[\t\n\r\x85\u2028\u2029]")
_LONGEST_TEXT = 1_000_000
_DEEPEST = 32


def _shown(value: object) -> str:
    """A refused value as an error may show it, whatever was given: short and printable."""
    if isinstance(value, str):
        return repr(value[:60])
    if isinstance(value, int) and value.bit_length() > 128:
        return f"a number of {value.bit_length()} bits"
    if value is None or isinstance(value, bool | int | float | timedelta):
        return repr(value)
    return f"of type {type(value).__name__}"


def check_name(operation: str, field: str, value: object) -> str:
    """The name of a fleet, herd or agent."""
    if isinstance(value, str) and NAME.fullmatch(value):
        made = _MADE.fullmatch(value)
        if made is None:
            return value
        raise InvalidInput(
            operation, f"{field} {value} is the id of {_MEANT[made[1]]}; a name is meant"
        )
    if split_address(value):
        raise InvalidInput(
            operation,
            f"{field} {_shown(value)} is not a name (1 to 64 of a-z, 0-9, '_' and '-'): it has a "
            "herd before it, and only a plain message reaches another herd, and only its parent; "
            "write it with `message`, and say in the text what you want",
        )
    raise InvalidInput(
        operation,
        f"{field} {_shown(value)} is not a name: use 1 to 64 of a-z, 0-9, '_' and '-', "
        "starting with a letter or digit",
    )


def split_address(value: object) -> tuple[str, str] | None:
    """Herd and agent of `herd/agent`; None for anything else."""
    found = _ADDRESS.fullmatch(value) if isinstance(value, str) else None
    return (found[1], found[2]) if found else None


def check_id(operation: str, field: str, value: object, prefix: str) -> str:
    """An id with this prefix; one of another kind is named as such."""
    if not isinstance(value, str):
        raise InvalidInput(operation, f"{field} must be a text id, not {type(value).__name__}")
    found = _ID.fullmatch(value)
    if found is None:
        raise InvalidInput(operation, f"{field} {value[:80]!r} is not an id like '{prefix}_...'")
    if found[1] != prefix:
        raise InvalidInput(
            operation, f"{field} {value} is the id of {_MEANT[found[1]]}; {_MEANT[prefix]} is meant"
        )
    return value


def check_text(operation: str, field: str, value: object, *, empty: bool = False) -> str:
    """Text for people and models: no lone surrogates, NUL or control characters but \\t \\n \\r."""
    if not isinstance(value, str):
        raise InvalidInput(operation, f"{field} must be text, not {type(value).__name__}")
    if not value.strip() and not empty:
        raise InvalidInput(operation, f"{field} is empty; say something")
    if len(value) > _LONGEST_TEXT:
        raise TooLarge(operation, f"{field} has {len(value)} characters; no limit allows that")
    found = _CONTROL.search(value)
    if found:
        raise InvalidInput(
            operation,
            f"{field} holds U+{ord(found[0]):04X} at position {found.start()}; control characters "
            "(other than tab and line ends) and lone surrogates are refused",
        )
    return value


def printable(text: str) -> str:
    """Text from elsewhere (an exception's, say), with what `check_text` refuses replaced."""
    return _CONTROL.sub("\N{REPLACEMENT CHARACTER}", text)


def check_line(operation: str, field: str, value: object, limit: int = 256) -> str:
    """Text of one line, such as a label or a role; None is empty."""
    text = check_text(operation, field, "" if value is None else value, empty=True)
    if _LINE_ENDS.search(text):
        raise InvalidInput(operation, f"{field} must be one line")
    if len(text) > limit:
        raise TooLarge(operation, f"{field} has {len(text)} characters and the limit is {limit}")
    return text


def check_path(operation: str, field: str, value: object) -> str:
    """The name of a path by which an agent is woken, or of a host."""
    if isinstance(value, str) and _PATH.fullmatch(value):
        return value
    raise InvalidInput(
        operation,
        f"{field} {_shown(value)} must be 1 to 32 lower-case letters, digits and hyphens",
    )


def check_token(operation: str, value: object) -> str:
    """A token as `register` or `open_herd` returned it. Never shown in the refusal."""
    if isinstance(value, str) and 16 <= len(value) <= 256 and value.isascii():
        return value
    raise InvalidInput(operation, "token is not a token as `register` or `open_herd` returned it")


def check_duration(operation: str, field: str, value: object) -> int:
    """A `timedelta` from 0 to 366 days, in whole milliseconds."""
    if not isinstance(value, timedelta):
        raise InvalidInput(operation, f"{field} must be a timedelta, not {_shown(value)}")
    if not timedelta(0) <= value <= MAX_DURATION:
        raise InvalidInput(operation, f"{field} must be between 0 and 366 days")
    return value // MILLISECOND


def check_deadline(operation: str, field: str, value: object) -> tuple[str, str]:
    """A `timedelta` from now or an aware `datetime`, as (lasts, until) in ms; one is empty."""
    if isinstance(value, datetime):
        if value.tzinfo is None or value.utcoffset() is None:
            raise InvalidInput(operation, f"{field} has no time zone; give an aware datetime")
        return "", str(to_ms(value))
    lasts = check_duration(operation, field, value)
    if lasts == 0:
        raise InvalidInput(operation, f"{field} must be more than 0")
    return str(lasts), ""


def check_timeout(operation: str, field: str, value: object) -> float | None:
    """How long a call may block, in seconds: a `timedelta` or a number; None is without end."""
    if value is None:
        return None
    if isinstance(value, timedelta):
        value = value.total_seconds()
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise InvalidInput(
            operation, f"{field} must be a timedelta or seconds, not {_shown(value)}"
        )
    if not 0 <= value <= MAX_DURATION.total_seconds():
        raise InvalidInput(
            operation, f"{field} must be between 0 and 366 days, not {_shown(value)}"
        )
    return float(value)


def check_count(operation: str, field: str, value: object, most: int) -> int:
    """A whole number from 1 to `most`."""
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= most:
        raise InvalidInput(
            operation, f"{field} must be a whole number from 1 to {most}, not {_shown(value)}"
        )
    return value


def check_fraction(operation: str, field: str, value: object) -> str:
    """A number from 0 to 1, or nothing."""
    if value is None:
        return ""
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= 1:
        raise InvalidInput(operation, f"{field} must be a number from 0 to 1, not {_shown(value)}")
    return repr(float(value))


def check_flag(operation: str, field: str, value: object) -> str:
    """True or False, as "1" or "0"."""
    if not isinstance(value, bool):
        raise InvalidInput(operation, f"{field} must be True or False, not {_shown(value)}")
    return "1" if value else "0"


def check_choice(operation: str, field: str, value: object, choices: type[E]) -> E:
    """A member of a string enum, or its text."""
    try:
        return choices(value if isinstance(value, str) else "")
    except ValueError:
        offered = ", ".join(repr(str(choice)) for choice in choices)
        raise InvalidInput(
            operation, f"{field} must be one of {offered}, not {_shown(value)}"
        ) from None


def _check_depth(operation: str, field: str, value: object, depth: int = 0) -> None:
    if depth > _DEEPEST:
        raise InvalidInput(operation, f"{field} is nested more than {_DEEPEST} deep")
    if isinstance(value, str):
        check_text(operation, field, value, empty=True)
    elif isinstance(value, float) and not math.isfinite(value):
        raise InvalidInput(operation, f"{field} holds {value}, which is not a number")
    elif isinstance(value, int) and abs(value) > 2**53:
        raise InvalidInput(operation, f"{field} holds a number over 2**53; send it as text")
    elif isinstance(value, Mapping):
        for name, item in value.items():
            if not isinstance(name, str):
                raise InvalidInput(operation, f"{field} has a key {_shown(name)}; use text keys")
            inner = f"{field}.{printable(name[:40])}"
            _check_depth(operation, inner, name, depth + 1)
            _check_depth(operation, inner, item, depth + 1)
    elif isinstance(value, list | tuple):
        for item in value:
            _check_depth(operation, field, item, depth + 1)
    elif value is not None and not isinstance(value, bool | int | float):
        raise InvalidInput(operation, f"{field} holds {type(value).__name__}, which JSON has not")


def check_data(operation: str, field: str, value: Mapping[str, Any] | None) -> str:
    """A JSON object, encoded; nothing is empty."""
    if value is None:
        return ""
    if not isinstance(value, Mapping):
        raise InvalidInput(operation, f"{field} must be a mapping, not {type(value).__name__}")
    _check_depth(operation, field, value)
    # `default`: mappings that are no dict, such as a MappingProxyType.
    return json.dumps(
        value, ensure_ascii=False, separators=(",", ":"), sort_keys=True, default=dict
    )
