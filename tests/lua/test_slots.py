"""Every key of every `redis.call` is of the partition: read off the source, whether it runs or not.

A single server does not check that, and no story reaches each branch; `test_story.py` looks at what
runs, `tests/acceptance/test_cluster.py` runs it on a Cluster.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest

from tests.lua import sources
from tocsin.broker import scripts

FILES = [*scripts.names(), *(f"include/{name}" for name in sources.include_names())]

OF_THE_PARTITION = re.compile(
    r"key\.\w+\(|mail\.stream\(|KEYS\[\](?: \.\. (?:\w+|''))*$|partition$"
)
"""What is derived from the declared key: by the generated functions, or it is that key, or that key
with something behind it."""

NO_KEY = {"'TIME'", "'PUBLISH'"}
KEY_AT = {"'XGROUP'": 2, "'XINFO'": 2, "'XREADGROUP'": -2}
ALL_KEYS = {"'DEL'", "'EXISTS'"}

_FUNCTION = re.compile(
    r"^(?:local )?function ([\w.]+)\(([^)]*)\)(?:[^\n]*\bend$|.*?^end$)", re.MULTILINE | re.DOTALL
)


def arguments(code: str, start: int) -> list[str]:
    """The arguments of a call whose bracket opens before `start`."""
    depth, quote, found = 0, "", [""]
    for char in code[start:]:
        if quote:
            quote = "" if char == quote else quote
        elif char in "'\"":
            quote = char
        elif char in "([{":
            depth += 1
        elif char in ")]}":
            if depth == 0:
                break
            depth -= 1
        elif char == "," and depth == 0:
            found.append("")
            continue
        found[-1] += char
    return [each.strip() for each in found]


def keys_named(call: list[str]) -> list[str]:
    """The expressions of a call's keys."""
    if call[0] in NO_KEY:
        return []
    return call[1:] if call[0] in ALL_KEYS else [call[KEY_AT.get(call[0], 1)]]


def outline(expression: str) -> str:
    """An expression without what stands in its brackets."""
    assert set(re.findall(r"KEYS\[(\w+)\]", expression)) <= {"1"}, "one key is declared"
    before, expression = "", sources.without_text(expression).strip()
    while before != expression:
        before = expression
        expression = re.sub(r"\([^()]+\)", "()", expression)
        expression = re.sub(r"\[[^][]+\]", "[]", expression)
    return expression


def is_of_the_partition(expression: str, file: str, at: int) -> bool:
    """Whether it is a key of the partition wherever it was bound: here, or by who calls."""
    if held := re.fullmatch(r"\{(.*)\}", expression, re.DOTALL):
        values = [each.partition(" = ")[2] or each for each in arguments(held[1] + ")", 0)]
        return all(is_of_the_partition(each, file, at) for each in values if each)
    expression = outline(expression)
    choices = [each.rpartition(" and ")[2] for each in expression.split(" or ")]
    if len(choices) > 1:
        return all(is_of_the_partition(each, file, at) for each in choices)
    code = sources.code_of(file)
    if OF_THE_PARTITION.match(expression):
        return True
    if table := re.match(r"(\w+)\[", expression):
        held = re.search(rf"local {table[1]} = \{{([^}}]*)\}}", code)
        return held is not None and set(re.findall(r"= (\w+)\.", held[1])) == {"key"}
    around = next((f for f in _FUNCTION.finditer(code) if f.start() <= at < f.end()), None)
    if not expression.isidentifier():
        return False
    bound = bound_to(expression, code[around.start() if around else 0 : at])
    if bound:
        return all(is_of_the_partition(each, file, at) for each in bound)
    parameters = [each.strip() for each in around[2].split(",")] if around else []
    if around is None or expression not in parameters:
        return False
    calls = list(calls_of(around[1], file))
    place = parameters.index(expression)
    return bool(calls) and all(
        is_of_the_partition(given[place], where, there) for where, there, given in calls
    )


def bound_to(name: str, code: str) -> list[str]:
    """What a name was bound to last: the value of a local, or all that a loop goes through."""
    found: list[tuple[int, list[str]]] = []
    for each in re.finditer(r"local ([\w, ]+) = ([^\n]+)", code):
        names = each[1].split(", ")
        if name in names:
            found.append((each.start(), [arguments(each[2] + ")", 0)[names.index(name)]]))
    loops = re.finditer(rf"for _, {name} in ipairs\(\{{ ([^}}]+) \}}\)", code)
    found += [(each.start(), arguments(each[1] + ")", 0)) for each in loops]
    tables = re.finditer(rf"for \w+, {name} in pairs\((\w+)\)", code)
    found += [(each.start(), [each[1]]) for each in tables]
    return max(found)[1] if found else []


def calls_of(function: str, home: str) -> Iterator[tuple[str, int, list[str]]]:
    """Where a function is called: its file, the place in it, the arguments."""
    everywhere = "." in function or home == "include/base"
    for file in FILES if everywhere else [home]:
        code = sources.code_of(file)
        for found in re.finditer(rf"(?<![\w.]){re.escape(function)}\(", code):
            if not code[: found.start()].endswith("function "):
                yield file, found.start(), arguments(code, found.end())


READ_BY_HAND = {
    ("slots_take", "set[1]"): "`counts` puts `KEYS[1] .. ':slots...'` there, and nothing else",
}
"""What this cannot follow, and why it is right all the same."""


@pytest.mark.parametrize("file", FILES)
def test_every_key_that_a_script_can_touch_is_derived_from_the_one_it_declares(file):
    """Each `redis.call` of it, in branches that nothing runs, too; commands are named in words."""
    code = sources.code_of(file)
    for found in re.finditer(r"redis\.p?call\(", code):
        call = arguments(code, found.end())
        assert re.fullmatch(r"'[A-Z]+'", call[0]), f"{file}: {call}"
        for key in keys_named(call):
            known = (file, key) in READ_BY_HAND or is_of_the_partition(key, file, found.start())
            assert known, f"{file}: {call} touches {key}"


def test_a_key_that_was_made_by_hand_is_found():
    """The check fails where it should: a text, a name nobody bound, a field of a record."""
    for expression in ("'tocsin:{f:1}:h:other'", "nobody_bound_this", "m.inbox", "key .. ':x'"):
        assert not is_of_the_partition(expression, "include/mail", 10_000)
