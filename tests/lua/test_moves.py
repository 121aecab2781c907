"""The scripts carry out the moves of the state table, all of them and no others."""

from __future__ import annotations

import re

import pytest

from tests.lua import sources
from tocsin.broker import scripts
from tocsin.broker.states import MOVES, OPEN, RETURN_CODES, TaskState

BY_FUNCTION = {"tasks.start": "taken", "tasks.wait": "asked", "tasks.resume": "released"}
"""Functions that move an open task, and the event they carry out."""

BY_SETTLING = {
    "'cancelled'": {"cancelled"},
    "'timed_out'": {"expired"},
    "'failed'": {"broke"},
    "'blocked'": {"unanswered"},
    "args.outcome": {"finished", "gave_up", "broke"},
}
"""The state that `tasks.settle` is given, and the events that means."""

BURIAL = re.compile(r"\bdead\.bury\((?:[^()]|\((?:[^()]|\([^()]*\))*\))*\)")

NEVER = frozenset(
    {
        # The task has settled by then, so closing its questions resumes nothing.
        ("tasks.settle", "requests.close"),
        # Only of a request without a task.
        ("requests.expire", "requests.close"),
    }
)


def silent_burials() -> set[tuple[str, str]]:
    """Who buries mail silently only (`true` as last argument): what hung on it has ended before."""
    found = set()
    for name, each in sources.all_functions().items():
        burials = BURIAL.findall(each.code)
        if burials and all(call.endswith(", true)") for call in burials):
            found.add((name, "dead.bury"))
    return found


def can_carry_out(name: str) -> set[str]:
    """The events a script can carry out, read off the functions it can reach."""
    reach = sources.reach(name, cut=NEVER | silent_burials())
    events = {BY_FUNCTION[each] for each in reach.functions if each in BY_FUNCTION}
    for state in re.findall(r"(?<!function )\btasks\.settle\([^,]+, ([^,]+),", reach.code):
        events |= BY_SETTLING[state]
    return events


@pytest.mark.parametrize("name", scripts.names())
def test_a_header_names_the_moves_that_its_script_can_carry_out(name):
    """No move is left out of a header, and none is there that the code cannot do."""
    assert scripts.load(name).moves == can_carry_out(name)


def test_the_scripts_and_the_table_have_the_same_moves():
    """Each event of the table has a script, and no script moves a task in a way of its own."""
    carried_out = frozenset().union(*(scripts.load(name).moves for name in scripts.names()))
    assert carried_out == {move.event for move in MOVES}


def test_only_the_task_include_writes_the_state_of_a_task():
    """`HSET key.task(..), 'state'` stands in include/tasks.lua and where a task is created."""
    writers = set()
    for name in scripts.names() + [f"include/{name}" for name in sources.include_names()]:
        code = sources.code_of(name)
        for call in re.findall(r"redis\.call\('HSET', key\.task\(.*?\)\n", code, re.DOTALL):
            if re.search(r"'state'", call):
                writers.add(name)
    assert writers == {"include/tasks", "include/delegation"}


def test_the_settlement_in_lua_has_the_return_codes_of_the_table():
    """One number per terminal state, the same on both sides."""
    [codes] = re.findall(r"\bcodes = \{(.*?)\}", sources.code_of("include/tasks"))
    found = dict(re.findall(r"(\w+) = (\d+)", codes))
    assert {TaskState(state): int(number) for state, number in found.items()} == RETURN_CODES


def test_open_means_the_same_in_lua():
    """`tasks.is_open` names exactly the states that are not terminal."""
    code = sources.functions("tasks")["tasks.is_open"].code
    assert {TaskState(state) for state in re.findall(r"== '(\w+)'", code)} == OPEN
