"""Ids and tokens, and which text is one."""

from __future__ import annotations

import re
import time
from unittest import mock

import pytest

from tocsin.broker import ids
from tocsin.broker.validation import check_id, check_name, check_token


@pytest.mark.parametrize("prefix", ["task", "msg", "inst", "watch"])
def test_a_new_id_is_one_of_its_kind(prefix):
    """What is made passes the check it meets later, and is safe in a shell, a path and a job id."""
    made = ids.make_id(prefix)
    assert check_id("op", "field", made, prefix) == made
    assert re.fullmatch(r"[a-z]+_[0-9a-z]{25}", made)


def test_ids_differ_also_within_a_millisecond():
    """80 bits of chance follow the time."""
    with mock.patch.object(time, "time_ns", return_value=1_800_000_000_000_000_000):
        assert len({ids.make_id("msg") for _ in range(10_000)}) == 10_000


def test_ids_sort_by_the_time_they_were_made():
    """Text order is time order, across lengths of the number too."""
    moments = [1, 31, 32, 1_000, 1_023, 1_024, 1_700_000_000_000, 1_700_000_000_001, 32**9 - 1]
    made = []
    for moment in moments:
        with mock.patch.object(time, "time_ns", return_value=moment * 1_000_000):
            made.append(ids.make_id("task"))
    assert made == sorted(made)
    assert {len(one) for one in made} == {30}


def test_a_keyed_id_is_the_same_for_the_same_parts_only():
    """No two lists of parts run together into one."""
    assert ids.keyed_id("msg", "a", "b") == ids.keyed_id("msg", "a", "b")
    parts = [("a", "b"), ("ab",), ("a", "b", ""), ("", "ab"), ("b", "a"), ("A", "b")]
    assert len({ids.keyed_id("msg", *some) for some in parts}) == len(parts)
    assert check_id("op", "field", ids.keyed_id("msg", "ключ\n", "键"), "msg")


def test_a_keyed_id_is_never_a_made_one():
    """Their lengths differ, so a chance id cannot stand for somebody's key."""
    assert len(ids.keyed_id("msg", "a")) == len(ids.make_id("msg"))
    assert ids.keyed_id("msg", "a").startswith("msg_k")
    # A made id begins with k only from the year 22,000 or so on.
    with mock.patch.object(time, "time_ns", return_value=int(6e20)):
        assert not ids.make_id("msg").startswith("msg_k")


def test_a_token_has_256_random_bits_and_only_its_hash_is_ever_looked_at():
    """43 letters of chance behind the prefix; SHA-256 in hexadecimal."""
    tokens = {ids.make_token() for _ in range(100)}
    assert len(tokens) == 100
    for token in tokens:
        assert re.fullmatch(r"tok_[\w-]{43}", token, re.ASCII)
        assert check_token("op", token) == token
        assert re.fullmatch(r"[0-9a-f]{64}", ids.hash_token(token))
    assert ids.hash_token("a") == "ca978112ca1bbdcafac231b39a23dc4da786eff8147c4e72b9807785afee48bb"


def test_the_parents_name_is_a_name():
    """The reserved id follows the rule of the others."""
    assert check_name("op", "agent", ids.PARENT) == "parent"
