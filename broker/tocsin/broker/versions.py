"""Versions of Tocsin that serve one fleet side by side, and which processes should restart.

The rule: a process brings its own scripts, so what must agree is the layout of what is stored,
which the fleet's record names (`schema`). Processes of one schema may run in any mixture of
versions: each leaves alone what it does not know, and does without what an older one did not write.
A process whose schema is not the fleet's is refused when it connects, and does nothing.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from importlib.metadata import version
from typing import Self

from packaging.version import InvalidVersion, Version

SCHEMA = 1
"""Version of the layout of keys and records; stored in the fleet's record."""


@dataclass(frozen=True)
class Build:
    """What a process runs: a version of Tocsin, and the schema that version writes."""

    version: str
    schema: int

    def __str__(self) -> str:
        """As an instance notes it."""
        return f"{self.version} {self.schema}"

    @classmethod
    def parse(cls, text: str) -> Self:
        """What an instance noted; one that noted nothing is older than any that did."""
        name, _, schema = text.partition(" ")
        return cls(name or "unknown", int(schema) if schema.isdigit() else 0)

    @property
    def order(self) -> Version:
        """By which builds are compared; what is no version comes first."""
        try:
            return Version(self.version)
        except InvalidVersion:
            return Version("0.dev0")

    def outdated(self, newest: Build, schema: int) -> bool:
        """Whether a process of this build should restart after an upgrade."""
        return self.order < newest.order or self.schema < schema


MINE = Build(version("tocsin"), SCHEMA)
"""What this process runs."""


def newest(builds: Iterable[Build]) -> Build:
    """The newest of some builds and this process's own."""
    return max([MINE, *builds], key=lambda build: build.order)


def refusal(fleet: str, schema: int) -> str:
    """Why this process cannot serve a fleet of that schema; empty if it can."""
    if schema == SCHEMA:
        return ""
    what = f"fleet {fleet} has schema {schema}, and Tocsin {MINE.version} knows {SCHEMA}"
    if schema > SCHEMA:
        return f"{what}; upgrade Tocsin here and start this process again"
    return f"{what}; use a version that knows schema {schema}"
