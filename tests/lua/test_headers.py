"""A script's header is its contract; what is written below it keeps to it."""

from __future__ import annotations

import re

import pytest

from tests.lua import sources
from tocsin.broker import errors, keys, scripts

NAMES = scripts.names()
FIELDS = ["keys", "args", "answers", "moves", "memory", "include"]
OPTIONAL = {"memory", "include"}
AGENTS = ("clock", "herd", "agent", "token", "instance")
"""What every call of an agent's passes (`Caller.call`), whether this script reads it or not."""

each_script = pytest.mark.parametrize("name", NAMES)


@each_script
def test_a_header_says_what_it_does_and_states_each_field_once_in_order(name):
    """Summary, keys, args, answers, moves; then memory and include where they apply."""
    top = sources.text_of(name).split("\n\n")[0]
    found = [field for field, _ in sources.HEADER.findall(top)]
    assert found == [f for f in FIELDS if f in found or f not in OPTIONAL]
    assert scripts.load(name).summary.endswith(".")
    assert all(line.startswith("-- ") for line in top.split("\n"))
    assert scripts.load(name).key in {"partition", "fleet", "schedulers"}
    assert scripts.load(name).memory in {"", "allow-oom"}


@each_script
def test_arguments_are_named_once_and_the_callers_come_first(name):
    """Scripts below a partition begin with clock and herd, those of agents with who calls."""
    args = scripts.load(name).args
    assert len(args) == len(set(args))
    if scripts.load(name).key == "partition":
        assert args[:2] == AGENTS[:2]
        assert "agent" not in args or args[:5] == AGENTS


@each_script
def test_a_script_reads_what_it_is_given_and_nothing_else(name):
    """No argument without a use, and no `args.x` that the header does not name."""
    script, reach = scripts.load(name), sources.reach(name)
    read = set(re.findall(r"\bargs\.(\w+)", sources.without_text(reach.code)))
    given = set(script.args)
    assert given - read - set(AGENTS) == set()
    # `finish` names the agent in the journal of refusals that only a proof of identity raises.
    allowed = {"agent"} if "seat.prove" not in reach.functions else set()
    assert read - given - allowed == set()


@each_script
def test_every_answer_begins_with_a_word_of_the_header_and_each_word_is_an_answer(name):
    """What the body returns and what `answers` lists are the same words."""
    shared = [
        each.code for each in sources.reach(name).functions.values() if ".answer" in each.name
    ]
    body = "\n".join([sources.code_of(name), *shared])
    returned: set[str] = set()
    for first in re.findall(r"\breturn \{ (.+)", body):
        choice = re.match(r".*? and '(\w+)' or '(\w+)'", first)
        plain = re.match(r"'(\w+)'", first)
        returned |= set(choice.groups() if choice else plain.groups() if plain else ())
    for line in re.findall(r"^ *local [\w, ]*\banswer\b.*", body, re.MULTILINE):
        returned |= set(re.findall(r"\{ '(\w+)'", line))
    assert returned == set(scripts.load(name).answers)
    assert "refused" not in returned


def test_every_refusal_has_a_code_of_the_tree():
    """`refuse(code, ...)` takes a literal, and each is one of `errors.CODES`."""
    seen = set()
    names = NAMES + [f"include/{name}" for name in sources.include_names()]
    for name in names:
        for code in re.findall(r"\brefuse\(([^,)]+)", sources.code_of(name)):
            if code != "code":  # its definition
                assert re.fullmatch(r"'\w+'", code), f"{name}.lua: refuse({code}"
                seen.add(code.strip("'"))
    assert seen <= errors.CODES.keys()
    assert {"unauthorized", "forbidden", "wrong_state", "pending_requests"} <= seen


@each_script
def test_every_refusal_says_more_than_a_code(name):
    """A refusal has a sentence: at least one argument behind the code."""
    for rest in re.findall(r"\brefuse\('\w+'(.)", sources.code_of(name)):
        assert rest == ","


@each_script
def test_every_include_is_there_and_used_and_nothing_is_missing(name):
    """Each function that can run is provided by an include, each include provides one that can."""
    included, reach = sources.includes_of(name), sources.reach(name)
    assert set(included) <= set(sources.include_names())
    assert len(included) == len(set(included))
    assert {found.file for found in reach.functions.values()} >= set(included) - {"base"}
    # `commit` asks first whether timers are there.
    assert reach.missing <= ({"timer.commit"} if "timer" not in included else set())


@each_script
def test_every_key_a_script_builds_is_of_the_table(name):
    """`key.x(...)` is a kind of `keys.KEYS`, called with as many names as its template has."""
    for kind, arguments in re.findall(r"\bkey\.(\w+)\(([^()]*)\)", sources.reach(name).code):
        fields = set(re.findall(r"\{(\w+)\}", keys.KEYS[kind].template)) - {"herd"}
        assert len([one for one in arguments.split(",") if one.strip()]) == len(fields), kind


def test_every_kind_of_key_is_touched_by_some_script():
    """No row of the table is left from something that is gone."""
    used = {
        kind for name in NAMES for kind in re.findall(r"\bkey\.(\w+)\(", scripts.load(name).source)
    }
    assert used == set(keys.KEYS)


def test_every_function_of_the_includes_can_run():
    """No shared piece without a script that reaches it."""
    reached = {name for script in NAMES for name in sources.reach(script).functions}
    assert reached == set(sources.all_functions())


@pytest.mark.parametrize("name", NAMES + [f"include/{name}" for name in sources.include_names()])
def test_a_script_calls_no_command_that_walks_the_key_space(name):
    """KEYS, SCAN, FLUSH and RANDOMKEY have no place in a script, as a command or as a word."""
    code = sources.code_of(name)
    words = set(re.findall(r"'([A-Z]{3,})'", code))
    assert not words & {"KEYS", "SCAN", "RANDOMKEY", "FLUSHDB", "FLUSHALL"}
    commands = re.findall(r"\bredis\.p?call\(\s*([\w']+)", code)
    assert {command for command in commands if not command.startswith("'")} <= {"unpack"}
    if not name.startswith("include/") and scripts.load(name).key == "partition":
        assert "KEYS[" not in code, "keys come from the generated include"


@pytest.mark.parametrize("file", sources.include_names())
def test_an_include_is_written_as_its_reader_expects(file):
    """Functions begin and end at the first column, so that `sources` sees each whole."""
    code = sources.code_of(f"include/{file}")
    lines = re.findall(r"^(?:local )?function .*", code, re.MULTILINE)
    assert len(lines) == len(sources.functions(file))
    for found in sources.functions(file).values():
        assert found.code.rstrip().endswith("end")
        assert len(re.findall(r"^(?:local )?function ", found.code, re.MULTILINE)) <= 1
