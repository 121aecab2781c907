"""The Lua sources, read as text: what each script and function says, calls and reads.

Not a parser of Lua: it leans on how these files are written (a function of a file begins and ends
at the first column), and `test_headers.py` holds them to that.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

from tocsin.broker import scripts

FOLDER = files("tocsin.broker") / "lua"

HEADER = re.compile(r"^-- (\w[\w-]*): (.+)$", re.MULTILINE)
_COMMENT = re.compile(r"--[^\n]*")
_TEXT = re.compile(r"'(?:[^'\\\n]|\\.)*'|\"(?:[^\"\\\n]|\\.)*\"")
_FUNCTION = re.compile(
    r"^(?:local function (?P<local>\w+)|function (?P<field>\w+\.\w+))\b"
    r"(?:[^\n]*\bend$|.*?^end$)",
    re.MULTILINE | re.DOTALL,
)
_DOTTED = re.compile(r"\b(\w+)\.(\w+)\b")


def include_names() -> list[str]:
    """The names of all includes."""
    return sorted(entry.name.removesuffix(".lua") for entry in (FOLDER / "include").iterdir())


@cache
def text_of(name: str) -> str:
    """A script (`task_done`) or include (`include/tasks`) as it is written."""
    return (FOLDER / f"{name}.lua").read_text("utf-8")


@cache
def code_of(name: str) -> str:
    """The same without its comments."""
    return _COMMENT.sub("", text_of(name))


def without_text(code: str) -> str:
    """The code with what stands in quotes taken out."""
    return _TEXT.sub("''", code)


def header_of(name: str) -> dict[str, str]:
    """The `-- field: value` lines at the top of a script."""
    top = text_of(name).split("\n\n")[0]
    return dict(HEADER.findall(top))


@dataclass(frozen=True)
class Function:
    """A function of an include; `name` is `tasks.settle`, or `tasks:end_episode` of a local one."""

    name: str
    file: str
    code: str


@cache
def functions(file: str) -> dict[str, Function]:
    """The functions of an include, by name."""
    found = {}
    for match in _FUNCTION.finditer(code_of(f"include/{file}")):
        name = match["field"] or f"{file}:{match['local']}"
        found[name] = Function(name, file, match.group())
    return found


@cache
def top_level(file: str) -> str:
    """What an include does when it is loaded."""
    return _FUNCTION.sub("", code_of(f"include/{file}"))


def includes_of(name: str) -> list[str]:
    """The includes of a script, base first; none for one that works above the partitions."""
    if scripts.load(name).key != "partition":
        return []
    return ["base", *header_of(name).get("include", "").split()]


def modules() -> set[str]:
    """The tables that base makes for the includes to fill."""
    return {
        name.split(".")[0] for file in include_names() for name in functions(file) if "." in name
    }


def _named(code: str, file: str | None) -> Iterator[str]:
    bare = without_text(code)
    for module, field in _DOTTED.findall(bare):
        if module in modules():
            yield f"{module}.{field}"
    for word in set(re.findall(r"\b(\w+)\(", bare)):
        for owner in (file, "base"):
            if owner and f"{owner}:{word}" in functions(owner):
                yield f"{owner}:{word}"


def all_functions() -> dict[str, Function]:
    """Every function of every include."""
    return {name: found for file in include_names() for name, found in functions(file).items()}


@dataclass(frozen=True)
class Reach:
    """What a script can run: its own code, the includes' functions, and names nobody defines."""

    functions: dict[str, Function]
    missing: frozenset[str]
    code: str
    """All of it, with the code that its includes run when loaded."""


def reach(name: str, *, cut: frozenset[tuple[str, str]] = frozenset()) -> Reach:
    """What script `name` can run. `cut` are (caller, callee) pairs that never happen."""
    included = includes_of(name)
    known = {key: found for file in included for key, found in functions(file).items()}
    own = code_of(name)
    code = [own, *(top_level(file) for file in included)]
    todo = list(_named(own, None)) + [
        each for file in included for each in _named(top_level(file), file)
    ]
    if "base:finish" in known:
        todo.append("base:finish")
    found: dict[str, Function] = {}
    missing = set()
    while todo:
        each = todo.pop()
        if each in found or each in missing:
            continue
        if each not in known:
            missing.add(each)
            continue
        found[each] = known[each]
        code.append(known[each].code)
        callees = _named(known[each].code, known[each].file)
        todo += [callee for callee in callees if (each, callee) not in cut]
    return Reach(found, frozenset(missing), "\n".join(code))
