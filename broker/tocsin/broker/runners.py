"""How the turns of a child are run that needs no process of its own.

A runner is given to `register` and kept with the agent, as JSON. The broker reads of it when a turn
is due and what becomes of one that failed; the worker that runs a turn reads the rest. The broker
starts nothing and knows no program.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Annotated, Any, Literal, Self

from annotated_types import Ge, Le, Len
from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ModelWrapValidatorHandler,
    ValidationError,
    ValidationInfo,
    model_validator,
)

from tocsin.broker.durations import MILLISECOND, Duration, read_duration, show_duration
from tocsin.broker.errors import InvalidInput
from tocsin.broker.masking import shown
from tocsin.broker.validation import NAME, check_text

_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,127}")
_DOTTED = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_]\w*(\.[A-Za-z_]\w*)*")
_MOST = 256


def _text(value: str) -> str:
    try:
        return check_text("register", "it", value)
    except InvalidInput as refusal:
        raise ValueError(refusal.detail) from None


def _variable(name: str) -> str:
    if not _VARIABLE.fullmatch(name):
        raise ValueError("is no name of an environment variable")
    if name.startswith("TOCSIN_"):
        raise ValueError("has a name beginning with TOCSIN_, which the worker sets for each turn")
    return name


def _pattern(text: str) -> str:
    try:
        re.compile(text)
    except re.error as error:
        raise ValueError(f"is no regular expression: {error}") from None
    return text


def _dotted(text: str) -> str:
    if not _DOTTED.fullmatch(text):
        raise ValueError('must name a function as "package.module:function"')
    return text


def _absolute(path: str) -> str:
    if not path.startswith(("/", "~/")):
        raise ValueError('must be an absolute path, or begin with "~/"; workers start anywhere')
    return path


def _from_list(value: object) -> object:
    return tuple(value) if isinstance(value, list) else value


Word = Annotated[str, Field(max_length=4_096), AfterValidator(_text)]
Words = Annotated[tuple[Word, ...], Len(0, _MOST), BeforeValidator(_from_list)]
Name = Annotated[str, Field(pattern=f"^{NAME.pattern}$")]
Variable = Annotated[str, AfterValidator(_variable)]
Path = Annotated[str, Field(max_length=4_096), AfterValidator(_text), AfterValidator(_absolute)]
Pattern = Annotated[str, Field(max_length=500), AfterValidator(_text), AfterValidator(_pattern)]
Patterns = Annotated[tuple[Pattern, ...], Len(0, 50), BeforeValidator(_from_list)]
Tick = Annotated[Duration, Ge(100 * MILLISECOND)]


class _Runner(BaseModel):
    """What all runners have: where their turns queue, and what becomes of one that failed."""

    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        strict=True,
        hide_input_in_errors=True,
        use_attribute_docstrings=True,
    )

    queue: Name = "tocsin"
    """The RQ queue that its turns are put into: which workers run them"""
    account: Name | None = None
    """The provider account that it uses; those of one account share its limits and its pauses"""
    turn_timeout: Tick = timedelta(hours=1)
    """A turn that lasts longer is ended, and has failed"""
    stop_grace: Duration = timedelta(seconds=10)
    """After the polite word to stop, so long until it is made to"""
    wake_batch: Duration = timedelta(seconds=5)
    """A turn is due this long after the first mail that wakes, with all that came meanwhile"""
    claim_within: Tick = timedelta(minutes=5)
    """A turn that was launched and that nobody began by then is launched again"""
    max_nudges: Annotated[int, Ge(0), Le(100)] = 2
    """Turns that end well but leave the task open, with nothing to wait for, are followed by this
    many more"""
    max_turns: Annotated[int, Ge(1), Le(1_000_000)] = 100
    """Turns that one task may take; the next fails it"""
    retries: Annotated[int, Ge(0), Le(100)] = 2
    """A turn that failed is tried again this often, then its task has failed"""
    backoff: Duration = timedelta(seconds=10)
    """The pause before the first of these, doubled with each"""
    limit_pause: Tick = timedelta(minutes=15)
    """The pause after a usage limit that did not say when it ends"""

    @model_validator(mode="wrap")
    @classmethod
    def _refuse_in_words(
        cls, data: Any, handler: ModelWrapValidatorHandler[Self], info: ValidationInfo
    ) -> Self:
        try:
            return handler(data)
        except ValidationError as failure:
            error = failure.errors(include_url=False, include_input=False)[0]
        # Raised outside the handler: the pydantic error holds the input, which may be a secret.
        raise InvalidInput("register", _in_words(cls, error))


class CommandRunner(_Runner):
    """A program that runs one turn and ends. It is started without a shell.

    What it is told of its mail, and how it goes on with its session, its `profile` knows.
    """

    kind: Literal["command"] = "command"
    command: Annotated[Words, Len(1, _MOST)]
    """The program and its arguments"""
    profile: Name = "command"
    """What kind of program it is: claude-code, codex, opencode, pi, or any command"""
    cwd: Path | None = None
    """The directory that it is started in; None: one of the worker's"""
    env: Annotated[dict[Variable, Annotated[str, Field(max_length=32_768)]], Len(0, _MOST)] = {}
    """Variables that it gets. They are stored with the agent: pass secrets by name (`pass_env`)"""
    pass_env: Annotated[tuple[Variable, ...], Len(0, _MOST), BeforeValidator(_from_list)] = ()
    """Names of variables of its worker that it gets too; others it does not see"""
    resume: Words = ()
    """Words put behind the command from the second turn on; {session} stands for its session.
    Empty: as the profile does it"""
    transcripts: Path | None = None
    """The directory whose *.jsonl files grow while it works. None: where the profile has them"""
    limit_patterns: Patterns = ()
    """Regular expressions that, found in what it prints last, say that a usage limit is reached"""
    error_patterns: Patterns = ()
    """The same for an error of its provider, which fails the turn whatever its exit code"""
    on_exit: Literal["open", "complete"] = "open"
    """What a clean end without `done` means for its task: it stays open, or it is completed, with
    what was printed last as its summary"""

    def __init__(self, command: Sequence[str] | None = None, /, **fields: Any) -> None:
        if command is not None:
            fields["command"] = tuple(command) if not isinstance(command, str) else command
        super().__init__(**fields)

    @property
    def named(self) -> str:
        """What it runs, in a word or two for people."""
        return f"{self.profile}: {self.command[0]}"


class CallableRunner(_Runner):
    """A function in Python, `package.module:function`, which the worker imports and calls."""

    kind: Literal["callable"] = "callable"
    function: Annotated[str, Field(max_length=500), AfterValidator(_dotted)]
    """Its name; it is given the turn"""

    def __init__(self, function: str | None = None, /, **fields: Any) -> None:
        if function is not None:
            fields["function"] = function
        super().__init__(**fields)

    @property
    def named(self) -> str:
        """What it runs, for people."""
        return f"callable: {self.function}"


Runner = CommandRunner | CallableRunner

_KINDS: Mapping[str, type[CommandRunner | CallableRunner]] = {
    "command": CommandRunner,
    "callable": CallableRunner,
}


def _in_words(model: type[BaseModel], error: Any) -> str:
    """What pydantic's error says: which field, what is wrong with it, what there is."""
    place = ".".join(str(part) for part in error["loc"])
    field = model.model_fields.get(str(error["loc"][0])) if error["loc"] else None
    if error["type"] == "extra_forbidden":
        return f"runner has no field {place[:64]!r}; it has {', '.join(model.model_fields)}"
    if error["type"] == "missing":
        return f"runner needs {place}: {(field.description or '') if field else ''}".rstrip(": ")
    if error["type"] == "value_error":
        said = str(error["ctx"]["error"])
        return f"runner.{place} {said.removeprefix('it ')}"
    about = f" ({field.description})" if field and field.description else ""
    if error["type"] == "duration":
        return f"runner.{place} must be a timedelta, in text such as 90s or 10m{about}"
    said = error["msg"][0].lower() + error["msg"][1:]
    return f"runner.{place or 'fields'} is not valid: {said}{about}"


def read_runner(fields: object) -> Runner:
    """The runner that a JSON object means, as in a file: durations are text (`10m`) or seconds."""
    if not isinstance(fields, Mapping):
        raise InvalidInput("register", f"a runner is a JSON object, not {shown(fields)}")
    kind = fields.get("kind", "callable" if "function" in fields else "command")
    if kind not in _KINDS:
        known = ", ".join(_KINDS)
        raise InvalidInput("register", f"runner.kind is {shown(kind)}; there are {known}")
    return _make(_KINDS[kind], fields)


def _make(model: type[CommandRunner | CallableRunner], fields: Mapping[str, Any]) -> Runner:
    """The runner whose durations may be text."""
    typed = {
        str(name): _duration(value) if name in _durations(model) else value
        for name, value in fields.items()
    }
    return model(**typed)


def _duration(value: object) -> object:
    found = read_duration(value)
    return value if found is None else found


def _durations(model: type[BaseModel]) -> set[str]:
    return {name for name, field in model.model_fields.items() if field.annotation is timedelta}


def check_runner(runner: object) -> str:
    """A runner as it is stored; None is empty."""
    if runner is None:
        return ""
    if not isinstance(runner, CommandRunner | CallableRunner):
        raise InvalidInput(
            "register", f"runner must be a CommandRunner or a CallableRunner, not {shown(runner)}"
        )
    return to_json(runner)


def to_json(runner: Runner) -> str:
    """A runner as its agent's record has it: durations are whole milliseconds, for scripts."""
    fields = {
        name: value // MILLISECOND if isinstance(value, timedelta) else value
        for name, value in runner
    }
    return json.dumps(fields, ensure_ascii=False, separators=(",", ":"))


def from_json(text: str) -> Runner:
    """The runner of an agent's record. What a newer version added is passed over."""
    fields = json.loads(text)
    model = _KINDS[fields["kind"]]
    durations = _durations(model)
    known = {
        name: value * MILLISECOND if name in durations else value
        for name, value in fields.items()
        if name in model.model_fields
    }
    return model(**known)


def to_file(runner: Runner) -> dict[str, Any]:
    """A runner as a file has it, with what is not as it is by default."""
    return {"kind": runner.kind} | {
        name: show_duration(value) if isinstance(value, timedelta) else value
        for name, value in runner
        if name in runner.model_fields_set
    }
