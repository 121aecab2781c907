"""The tree of refusals and failures."""

from __future__ import annotations

import pickle

import pytest

from tocsin.broker import errors

DESIGNED = """
invalid_input invalid_envelope unknown_herd unknown_agent unknown_task unknown_message
unknown_plan herd_exists agent_exists agent_closed herd_closed unauthorized forbidden agent_busy
wrong_state pending_requests queue_full too_large duplicate_conflict no_reply ceiling_active
request_cancelled loop_limit unavailable
"""


def test_the_codes_are_those_that_transports_map():
    """Stable words; a new one is a change of the surface."""
    assert set(errors.CODES) == set(DESIGNED.split())


@pytest.mark.parametrize("code", sorted(errors.CODES))
def test_each_code_has_a_class_of_its_own_below_one_root(code):
    """Named like its code, with a sentence about when it is raised."""
    kind = errors.CODES[code]
    assert issubclass(kind, errors.BrokerError)
    assert kind.code == code
    assert kind.__name__ == "".join(word.title() for word in code.split("_"))
    assert kind.__doc__


@pytest.mark.parametrize("code", sorted(errors.CODES))
def test_an_error_tells_operation_detail_and_code(code):
    """For people in one line, for programs in fields; also after a trip between processes."""
    error = errors.CODES[code]("delegate", "agent 'scout' is away; start it")
    assert str(error) == f"delegate: agent 'scout' is away; start it [{code}]"
    again = pickle.loads(pickle.dumps(error))
    for one in (error, again):
        assert (one.code, one.operation, one.detail) == (
            code,
            "delegate",
            "agent 'scout' is away; start it",
        )
    assert type(again) is type(error)


def test_only_what_may_succeed_without_any_change_is_retryable():
    """A reader that retries the others would never end."""
    retryable = {code for code, kind in errors.CODES.items() if kind.retryable}
    assert retryable == {"unavailable", "agent_busy", "queue_full", "no_reply"}


def test_silence_and_a_ceiling_are_told_apart():
    """One says try again, the other says do not."""
    assert errors.NoReply.retryable
    assert not errors.CeilingActive.retryable
    assert not issubclass(errors.CeilingActive, errors.NoReply)
