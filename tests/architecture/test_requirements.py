"""The list of promises and the tests that prove them agree, both ways."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.requirements import PROMISES

TESTS = Path(__file__).parents[1]


def _claims(path: Path) -> Iterator[tuple[str, str]]:
    """(promise, test) of each `proves(...)` in a file of tests."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            decorators = node.decorator_list
            where = f"{path.relative_to(TESTS)}::{node.name}"
        elif isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "pytestmark":
            decorators, where = [node.value], str(path.relative_to(TESTS))
        else:
            continue
        for decorator in decorators:
            for call in ast.walk(decorator):
                if isinstance(call, ast.Call) and ast.unparse(call.func).endswith("proves"):
                    for argument in call.args:
                        yield ast.literal_eval(argument), where


CLAIMS = [claim for path in sorted(TESTS.rglob("test_*.py")) for claim in _claims(path)]


@pytest.mark.parametrize("promise", [name for name, said in PROMISES.items() if said.later is None])
def test_each_promise_has_a_test(promise):
    """Every promise of what is built is proven by at least one test."""
    assert [test for claimed, test in CLAIMS if claimed == promise], PROMISES[promise].text


def test_each_claim_is_a_promise():
    """No test claims to prove what is not promised."""
    assert {promise for promise, _ in CLAIMS} <= set(PROMISES)


def test_what_comes_later_says_with_what():
    """A promise without its part built yet names that part."""
    assert {said.later for said in PROMISES.values()} <= {None, "delivery"}
