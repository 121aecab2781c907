"""Waiting in tests: on a described condition, bounded, never for a fixed time."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import NoReturn, TypeVar, overload

import pytest

T = TypeVar("T")

TIMEOUT = 10.0
LOOK_AGAIN = 0.005


def wait_until(condition: Callable[[], T], what: str, timeout: float = TIMEOUT) -> T:
    """Return the first true value of `condition`; fail the test after `timeout` seconds.

    `what` ends the sentence "waited for ..." in the failure: "the reminder to arrive".
    """
    until = time.monotonic() + timeout
    while not (value := condition()):
        if time.monotonic() > until:
            _give_up(what, timeout, value)
        time.sleep(LOOK_AGAIN)
    return value


@overload
async def wait_until_async(
    condition: Callable[[], Awaitable[T]], what: str, timeout: float = TIMEOUT
) -> T: ...


@overload
async def wait_until_async(
    condition: Callable[[], T], what: str, timeout: float = TIMEOUT
) -> T: ...


async def wait_until_async(
    condition: Callable[[], T | Awaitable[T]], what: str, timeout: float = TIMEOUT
) -> T:
    """Do as `wait_until` without blocking the loop; `condition` may be a coroutine function."""
    until = time.monotonic() + timeout
    while True:
        found = condition()
        value: T = await found if isinstance(found, Awaitable) else found
        if value:
            return value
        if time.monotonic() > until:
            _give_up(what, timeout, value)
        await asyncio.sleep(LOOK_AGAIN)


def _give_up(what: str, timeout: float, last: object) -> NoReturn:
    pytest.fail(f"waited {timeout:g} s for {what}; the last look gave {last!r}", pytrace=True)
