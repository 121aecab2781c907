"""The life of a task, as the table has it."""

from __future__ import annotations

import pytest

from tocsin.broker.states import MOVES, OPEN, RETURN_CODES, TaskState

TERMINAL = set(TaskState) - OPEN


def test_there_are_eight_states_three_of_them_open():
    """Their words are what the wire and the command line show."""
    words = "created running waiting completed blocked failed cancelled timed_out"
    assert [str(state) for state in TaskState] == words.split()
    assert {str(state) for state in OPEN} == {"created", "running", "waiting"}


@pytest.mark.parametrize("state", TaskState)
def test_terminal_is_the_opposite_of_open(state):
    """And nothing leads out of a terminal state."""
    assert state.terminal == (state not in OPEN)
    if state.terminal:
        assert not [move for move in MOVES if state in move.sources]


def test_an_event_stands_in_one_row():
    """What happens decides where a task goes; nobody chooses."""
    events = [move.event for move in MOVES]
    assert len(events) == len(set(events))


def test_every_state_can_be_reached_and_every_open_one_left():
    """No dead ends but the terminal ones, and none that is there for nothing."""
    assert {move.target for move in MOVES} == set(TaskState) - {TaskState.CREATED}
    assert {source for move in MOVES for source in move.sources} == OPEN


def test_every_open_task_can_always_be_ended_by_its_parent_and_by_time():
    """Also when its child never says a word."""
    assert {m.event: m.sources for m in MOVES}["cancelled"] == OPEN
    assert {m.event: m.sources for m in MOVES}["expired"] == OPEN


def test_only_a_wait_is_ended_by_a_reply_deadline():
    """And it leads to `blocked`, never anywhere else."""
    move = next(move for move in MOVES if move.event == "unanswered")
    assert set(move.sources) == {TaskState.WAITING}
    assert move.target == TaskState.BLOCKED


def test_every_terminal_state_has_its_own_return_code():
    """As shells and supervisors know them; 0 is success and nothing else is."""
    assert RETURN_CODES.keys() == TERMINAL
    assert len(set(RETURN_CODES.values())) == len(TERMINAL)
    assert {str(state): code for state, code in RETURN_CODES.items()} == {
        "completed": 0,
        "failed": 1,
        "blocked": 2,
        "timed_out": 124,
        "cancelled": 130,
    }


def test_every_row_says_who_moves():
    """For the reader of the chart."""
    assert all(move.mover for move in MOVES)
