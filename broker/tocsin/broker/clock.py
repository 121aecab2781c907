"""What time it is: the server's, unless a test says otherwise.

Scripts read the server's clock once each. A clock given to a broker becomes the first argument of
every script instead: a `ManualClock` passes a number, a `ScaledClock` the point it started from
and its speed. Leases, graces and blocking reads always run on the server's unscaled time.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from tocsin.broker.errors import InvalidInput

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND = timedelta(milliseconds=1)


def to_ms(moment: datetime) -> int:
    """Milliseconds since 1970 of an aware datetime."""
    return (moment - _EPOCH) // _MILLISECOND


def from_ms(milliseconds: float | str) -> datetime:
    """The aware UTC datetime of milliseconds since 1970."""
    return _EPOCH + timedelta(milliseconds=int(float(milliseconds)))


def read_time(answer: Sequence[bytes | str | int]) -> datetime:
    """The server's time, of its answer to TIME: seconds and microseconds."""
    return _EPOCH + timedelta(seconds=int(answer[0]), microseconds=int(answer[1]))


class ManualClock:
    """A clock that moves only when told, shared by a broker and its scheduler in a test.

    Under it an instance lives until it closes or is lapsed, because leases are real time.
    """

    def __init__(self, start: datetime | None = None) -> None:
        given: object = datetime(2026, 1, 1, tzinfo=UTC) if start is None else start
        if not isinstance(given, datetime) or given.utcoffset() is None:
            raise InvalidInput("ManualClock", "start must be a datetime with a time zone")
        if given < _EPOCH:
            raise InvalidInput("ManualClock", "start must not be before 1970")
        self._now = to_ms(given)

    def now(self) -> datetime:
        """The moment this clock shows."""
        return from_ms(self._now)

    def advance(self, by: timedelta) -> None:
        """Moves the clock forward."""
        given: object = by
        if not isinstance(given, timedelta) or given < timedelta(0):
            raise InvalidInput("ManualClock.advance", "by must be a timedelta of 0 or more")
        self._now += given // _MILLISECOND

    @property
    def argument(self) -> str:
        """This clock as the first argument of a script."""
        return f"manual:{self._now}"


@dataclass(frozen=True)
class ScaledClock:
    """The server's clock run `factor` times fast, for demonstrations.

    The first broker to connect with one writes base and factor into the fleet's record; every
    later client of that fleet follows it without being told.
    """

    factor: float = 60.0
    base: int | None = None

    def __post_init__(self) -> None:
        factor: object = self.factor
        number = isinstance(factor, int | float) and not isinstance(factor, bool)
        if not number or not 0 < self.factor <= 1_000_000:
            raise InvalidInput("ScaledClock", "factor must be a number above 0, up to 1000000")

    @property
    def argument(self) -> str:
        """This clock as the first argument of a script; empty until the fleet fixed its base."""
        return "" if self.base is None else f"scaled:{self.base}:{self.factor!r}"

    def at(self, server: datetime) -> datetime:
        """What it shows when the server's clock shows this; until its base is fixed, the same."""
        if self.base is None:
            return server
        base = from_ms(self.base)
        return base + (server - base) * self.factor


Clock = ManualClock | ScaledClock
