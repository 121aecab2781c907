"""The operations of an agent, as one table: what the JSON API serves and what remote agents call.

Each is a public method of `AsyncParent` or `AsyncChild`, by its name. What it takes and what it
answers follow from the method's signature, so that nothing is kept twice; the values themselves are
checked by the method.
"""

from __future__ import annotations

import difflib
import inspect
import json
import types
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum
from functools import cached_property
from typing import Annotated, Any, Union, get_args, get_origin, get_type_hints

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PlainSerializer,
    TypeAdapter,
    ValidationError,
    WithJsonSchema,
    create_model,
)
from pydantic_core import to_jsonable_python

from tocsin.broker import AsyncAgent, AsyncChild, AsyncParent, Envelope, Task
from tocsin.broker.dead import DeadLetter, DeadLetters
from tocsin.broker.envelopes import Model
from tocsin.broker.errors import Forbidden, InvalidInput
from tocsin.broker.herds import HerdRecord
from tocsin.broker.inbox import Inbox
from tocsin.broker.settings import HerdSettings, plain

ELSEWHERE = {
    "next_turn": "mail is taken by a process that keeps a lease; show it with inbox, then ack it",
    "receive": "mail is taken by a process that keeps a lease; show it with inbox, then ack it",
    "turns": "mail is taken by a process that keeps a lease; show it with inbox, then ack it",
    "leave": "its instance is the server's, and ends by itself",
    "open_herd": "herds are opened by the fleet's operator, who has its own url",
    "set_runner": "what runs on the fleet's machines its operator says, who has its own url",
}
"""What an agent can do and the API does not offer, with what to do instead."""

_STAYS = {
    "probe": "a probe counts on its own machine; run `tocsin probe` beside the agent instead",
    "runner": ELSEWHERE["set_runner"],
}
"""Parameters that cannot cross a line, with what to do instead."""

WAITS = frozenset({"ask", "ask_wait", "wait"})
"""Operations that may last: each call of theirs is bounded and may answer that it is pending."""

UNSEEN = frozenset({"look", "why", "probe", "report_wake"})
"""Operations that are no sign of a process: whoever calls them does not become present."""


def _settings_of(value: Any) -> Any:
    """Settings as a settings file has them: `{"reply_timeout": "20m"}`."""
    known = isinstance(value, HerdSettings) or not isinstance(value, dict)
    return value if known else HerdSettings.model_validate(value, context=str)


def _plain_settings(settings: HerdSettings) -> dict[str, Any]:
    return {name: plain(each) for name, each in settings if name in settings.model_fields_set}


_Settings = Annotated[
    HerdSettings,
    BeforeValidator(_settings_of),
    PlainSerializer(_plain_settings),
    WithJsonSchema(
        {
            "type": "object",
            "additionalProperties": False,
            "properties": {
                name: {
                    "anyOf": [{"type": kind} for kind in ("string", "number", "boolean", "array")],
                    "description": field.description,
                }
                for name, field in HerdSettings.model_fields.items()
            },
        }
    ),
]


class ShownHerd(Model):
    """A herd's record: its state and settings, each with the layer it came from."""

    herd: str
    state: str
    under: str | None
    settings: _Settings
    sources: dict[str, str]


class ShownMail(Model):
    """Mail that was shown, and how much more there is."""

    envelopes: tuple[Envelope, ...]
    remaining: int


class ListedLetters(Model):
    """Dead letters, newest first, and how many more there are."""

    letters: tuple[DeadLetter, ...]
    remaining: int


class _Arguments(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, hide_input_in_errors=True)


@dataclass(frozen=True)
class Method:
    """One operation as one kind of agent has it."""

    name: str
    signature: inspect.Signature
    arguments: type[BaseModel]
    listed: str | None
    """The parameter that takes any number of values."""

    @property
    def required(self) -> list[str]:
        """The parameters that must be given."""
        return [name for name, each in self.arguments.model_fields.items() if each.is_required()]

    def bind(self, *args: Any, **kwargs: Any) -> dict[str, Any]:
        """The body of a call in Python, as it crosses: values that were left out stay out."""
        given = self.signature.bind(None, *args, **kwargs).arguments
        for name, instead in _STAYS.items():
            if given.get(name) is not None:
                raise InvalidInput(self.name, f"{name} cannot be given over HTTP: {instead}")
        names = self.arguments.model_fields
        return {name: _crossing(value) for name, value in given.items() if name in names}

    def read(self, body: bytes) -> tuple[list[Any], dict[str, Any]]:
        """The arguments of a body; what is wrong with it is said in words."""
        try:
            read = self.arguments.model_validate_json(body or b"{}")
        except ValidationError as failure:
            found = failure.errors(include_url=False, include_context=False, include_input=False)
            error = next((each for each in found if each["type"] == "extra_forbidden"), found[0])
        else:
            given = {name: getattr(read, name) for name in read.model_fields_set}
            return list(given.pop(self.listed, ())) if self.listed else [], given
        name, known = ".".join(map(str, error["loc"])), list(self.arguments.model_fields)
        detail = f"{name}: {error['msg']}" if name else f"the body: {error['msg']}"
        if error["type"] == "extra_forbidden":
            near = difflib.get_close_matches(name, known, 1)
            meant = f", did you mean {near[0]}" if near else ""
            detail = f"there is no {name[:80]!r} here{meant}; there is {', '.join(known) or 'none'}"
            if name in _STAYS:
                detail = f"{name} cannot be given over HTTP: {_STAYS[name]}"
        elif error["type"] == "missing":
            detail = f"{name} is missing; it is needed"
        raise InvalidInput(self.name, detail)


@dataclass(frozen=True)
class Operation:
    """One operation: who has it, what it takes, what it answers."""

    name: str
    parent: Method | None
    child: Method | None
    answers: Any
    text: str

    @property
    def widest(self) -> Method:
        """The method with the most parameters: a child's is the same, or has fewer."""
        found = self.parent or self.child
        assert found is not None
        return found

    @property
    def summary(self) -> str:
        """What it does, in a sentence."""
        return self.text.partition("\n\n")[0].replace("\n", " ")

    @cached_property
    def adapter(self) -> TypeAdapter[Any]:
        """How its answer is written and read."""
        return TypeAdapter(_PAGES.get(self.answers, self.answers))

    def method_of(self, *, parent: bool) -> Method:
        """The method of a parent or child; whoever has none is refused."""
        found = self.parent if parent else self.child
        if found is None:
            whose = "the parent of a herd" if self.child is None else "a child, of its own tasks"
            raise Forbidden(self.name, f"{self.name} is for {whose}")
        return found

    def write(self, value: Any) -> Any:
        """An answer as JSON has it."""
        if isinstance(value, Inbox):
            value = ShownMail(envelopes=tuple(value), remaining=value.remaining)
        elif isinstance(value, DeadLetters):
            value = ListedLetters(letters=tuple(value), remaining=value.remaining)
        elif isinstance(value, HerdRecord):
            value = ShownHerd(**vars(value) | {"settings": HerdSettings(**dict(value.settings))})
        return self.adapter.dump_python(value, mode="json")

    def read(self, value: Any) -> Any:
        """The answer of what JSON had."""
        found = self.adapter.validate_json(json.dumps(value))
        if isinstance(found, ShownMail):
            return Inbox(found.envelopes, found.remaining)
        if isinstance(found, ListedLetters):
            return DeadLetters(found.letters, found.remaining)
        if isinstance(found, ShownHerd):
            return HerdRecord(**dict(found))
        return found


_PAGES: Mapping[Any, Any] = {
    Inbox: ShownMail,
    DeadLetters: ListedLetters,
    HerdRecord: ShownHerd,
}


def _crossing(value: Any) -> Any:
    """A value as JSON has it; an envelope or task is named by its id."""
    if isinstance(value, Envelope):
        return value.message_id
    if isinstance(value, Task):
        return value.id
    if isinstance(value, tuple | list):
        return [_crossing(each) for each in value]
    if isinstance(value, HerdSettings):
        return _plain_settings(value)
    return to_jsonable_python(value)


def _type(hint: Any) -> Any:
    """The type of a parameter on the wire."""
    if hint is HerdSettings:
        return _Settings
    if hint is timedelta:  # a number is of seconds
        return Annotated[timedelta, Field(strict=False)]
    if get_origin(hint) is Sequence:
        return list[_type(get_args(hint)[0])]  # type: ignore[misc]
    if get_origin(hint) not in (Union, types.UnionType):
        return hint
    kinds = list(get_args(hint))
    if str in kinds:  # an id or a word may stand for the thing, and does
        words = [each for each in kinds if isinstance(each, type) and issubclass(each, StrEnum)]
        kinds = [each for each in kinds if each is type(None) or each is str]
        if words:
            schema = {"type": "string", "enum": [str(each) for each in words[0]]}
            kinds = [
                Annotated[str, WithJsonSchema(schema)] if each is str else each for each in kinds
            ]
    return Union[tuple(_type(each) for each in kinds)]  # noqa: UP007 - of a list


def _method(function: Callable[..., Any]) -> Method:
    hints, name = get_type_hints(function, include_extras=True), function.__name__
    signature = inspect.signature(function)
    fields: dict[str, Any] = {}
    listed = None
    for each in list(signature.parameters.values())[1:]:
        if each.name in _STAYS:
            continue
        kind, default = _type(hints[each.name]), each.default
        if each.kind is inspect.Parameter.VAR_POSITIONAL:
            listed, kind = each.name, list[kind]  # type: ignore[valid-type]
        fields[each.name] = (kind, ... if default is inspect.Parameter.empty else default)
    model = "".join(part.title() for part in name.split("_")) + "Arguments"
    return Method(name, signature, create_model(model, __base__=_Arguments, **fields), listed)


def _public(kind: type[AsyncAgent]) -> dict[str, Callable[..., Any]]:
    found = inspect.getmembers(kind, inspect.iscoroutinefunction)
    return {
        name: each for name, each in found if not name.startswith("_") and name not in ELSEWHERE
    }


def _table() -> dict[str, Operation]:
    parents, children = _public(AsyncParent), _public(AsyncChild)
    return {
        name: Operation(
            name,
            _method(parents[name]) if name in parents else None,
            _method(children[name]) if name in children else None,
            get_type_hints(found)["return"],
            inspect.getdoc(found) or "",
        )
        for name, found in sorted((children | parents).items())
    }


OPERATIONS = _table()
"""Every operation by its name."""
