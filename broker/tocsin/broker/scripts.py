"""The Lua scripts: found, put together from their includes, and called by name.

A script's header states its contract, and this module holds callers to it:

    -- What it does, in a sentence.
    -- keys: partition            what KEYS[1] is: partition, fleet or schedulers
    -- args: clock herd agent     the names of ARGV, which the script reads as args.<name>
    -- answers: sent | duplicate  the first word of each answer (`refused` goes without saying)
    -- moves: asked               events of states.MOVES it can carry out
    -- memory: allow-oom          works when the server's memory is full
    -- include: seat mail         pieces of include/ it is built from, besides base

`python -m tocsin.broker.scripts NAME` prints a script as the server gets it.
"""

from __future__ import annotations

import hashlib
import re
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache, cached_property
from importlib.resources import files
from typing import Any, Generic, TypeVar

from tocsin.broker import keys
from tocsin.broker.settings import HerdSettings, to_record

T = TypeVar("T")

_HEADER = re.compile(r"^-- (keys|args|answers|moves|memory|include): (.+)$", re.MULTILINE)
_HERD_FIELD = re.compile(r"\bherd\.([a-z_]+)")


@dataclass(frozen=True)
class Script:
    """One transition, ready to run."""

    name: str
    summary: str
    key: str
    args: tuple[str, ...]
    answers: tuple[str, ...]
    moves: frozenset[str]
    memory: str
    body: str
    source: str
    """The whole text without the `#!lua` line, which fakeredis does not know."""

    @cached_property
    def text(self) -> str:
        """The script as a server gets it."""
        return f"#!lua{' flags=' + self.memory if self.memory else ''}\n{self.source}"

    @cached_property
    def sha(self) -> str:
        """SHA-1 of `text`."""
        return _sha(self.text)

    @cached_property
    def plain_sha(self) -> str:
        """SHA-1 of `source`."""
        return _sha(self.source)


@dataclass(frozen=True)
class Call(Generic[T]):
    """One operation, ready to be sent: a script, its arguments, and how to read its answer.

    `read` gets the whole answer, decoded to text; a refusal never reaches it.
    """

    operation: str
    script: Script
    key: str
    args: tuple[str, ...]
    read: Callable[[list[Any]], T]


def _sha(text: str) -> str:
    return hashlib.sha1(text.encode(), usedforsecurity=False).hexdigest()


def _lua(name: str) -> str:
    return (files("tocsin.broker") / "lua" / f"{name}.lua").read_text("utf-8")


def names() -> list[str]:
    """The names of all scripts."""
    found = (files("tocsin.broker") / "lua").iterdir()
    return sorted(entry.name.removesuffix(".lua") for entry in found if entry.name.endswith(".lua"))


def _assemble(header: Mapping[str, str], body: str) -> str:
    named = ", ".join(f"{name} = ARGV[{n}]" for n, name in enumerate(header["args"].split(), 1))
    args = f"local args = {{ {named} }}"
    if header["keys"] != "partition":
        return f"{args}\n{body}"
    names = header.get("include", "").split()
    includes = [
        f"setmetatable({name}, unused)[1] = function()\n{_lua(f'include/{name}')}end"
        for name in names
    ]
    main = f"return finish(function()\n{body}\nend)"
    code = "\n".join([_lua("include/base"), *includes, main])
    used = sorted(set(_HERD_FIELD.findall(code)))
    fields = ", ".join(f"'{name}'" for name in used)
    defaults = to_record(HerdSettings())
    given = ", ".join(f"{name} = '{defaults[name]}'" for name in used if name in defaults)
    herd = f"local herd_fields, herd_defaults = {{ {fields} }}, {{ {given} }}"
    return "\n".join([args, herd, keys.lua(code), code])


@cache
def load(name: str) -> Script:
    """The script of this name; each is read and put together once in a process."""
    text = _lua(name)
    header = dict(_HEADER.findall(text))
    summary = text.split("\n-- keys:")[0].removeprefix("-- ").replace("\n-- ", " ")
    return Script(
        name=name,
        summary=summary,
        key=header["keys"],
        args=tuple(header["args"].split()),
        answers=tuple(part.split()[0] for part in header["answers"].split("|")),
        moves=frozenset(header["moves"].split()) - {"none"},
        memory=header.get("memory", ""),
        body=text,
        source=_assemble(header, text),
    )


def call(
    name: str,
    read: Callable[[list[Any]], T],
    /,
    *,
    operation: str,
    key: str,
    **args: str | int,
) -> Call[T]:
    """A `Call` of the script, whose arguments must be exactly those its header names."""
    script = load(name)
    if args.keys() != set(script.args):
        difference = sorted(args.keys() ^ set(script.args))
        raise TypeError(f"{name}.lua takes {' '.join(script.args)}; it differs in {difference}")
    return Call(operation, script, key, tuple(str(args[field]) for field in script.args), read)


if __name__ == "__main__":
    sys.stdout.write(load(sys.argv[1]).text)
