"""The command line of whoever has only a server's address: it does and says the same.

The tests are those of the command line at the fleet's own url; what differs by design is left out
and tested in `test_remote`.
"""

from __future__ import annotations

from types import ModuleType

from _pytest.fixtures import FixtureFunctionDefinition

from tests.workers.cli import (
    test_ask,
    test_dead,
    test_herds_and_agents,
    test_mail,
    test_plan,
    test_receipts,
    test_tasks,
)

_OPERATORS = "herds are opened and listed by the operator"
_LONG = "several processes that wait; the others show as much from afar"
OTHERWISE = {
    "test_an_answer_that_comes_after_the_end": _LONG,
    "test_a_target_at_work_at_the_ceiling": _LONG,
    "test_following_a_herd_that_is_closed_ends": _LONG,
    "test_following_the_journal": _LONG,
    "test_interrupting": _LONG,
    "test_waiting_for_room": _LONG,
    "test_a_probe": _LONG,
    "test_a_probe_of_a_directory_that_is_not_there": _LONG,
    "test_a_herd_from_open_to_closed": _OPERATORS,
    "test_a_herd_that_cannot_be": _OPERATORS,
    "test_a_herd_under_an_agent_whose_seat_is_here": _OPERATORS,
    "test_the_number_of_partitions_is_that_of_the_first_use": _OPERATORS,
    "test_an_orphan_is_marked_wherever_herds_are_listed": _OPERATORS,
    "test_its_lease_is_renewed_while_it_blocks": "the server's instances wait, and renew theirs",
    "test_asking_with_a_probe": "a probe counts beside the agent, with `tocsin probe`",
    "test_coming_back_with_a_probe": "a probe counts beside the agent, with `tocsin probe`",
    "test_what_is_refused": "what the methods refuse, `test_remote` and `test_api` look at",
    "test_a_deadline_that_is_none": "text of durations is read by the command line itself",
    "test_showing_a_message": "the instances are the server's, and named so",
}
"""Tests that are left out, each with the reason."""


def _taken_over(module: ModuleType) -> dict[str, object]:
    short = module.__name__.rpartition(".")[2].removeprefix("test_")
    return {
        f"test_{short}_{name.removeprefix('test_')}": found
        for name, found in vars(module).items()
        if name.startswith("test_") and name not in OTHERWISE
    } | {
        name: found
        for name, found in vars(module).items()
        if isinstance(found, FixtureFunctionDefinition)
    }


for _module in (
    test_ask,
    test_dead,
    test_herds_and_agents,
    test_mail,
    test_plan,
    test_receipts,
    test_tasks,
):
    globals().update(_taken_over(_module))
