"""Herds under herds: who may open one, and the tree they make. Operation -> `Call`; no I/O."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tocsin.broker.caller import Caller, Fleet
from tocsin.broker.errors import InvalidInput
from tocsin.broker.masking import shown
from tocsin.broker.scripts import Call, call
from tocsin.broker.validation import check_id, split_address


@dataclass(frozen=True)
class Leader:
    """The agent that a herd is opened under, proven: `fields` go into that herd's record."""

    fields: Mapping[str, str]


@dataclass(frozen=True)
class Listed:
    """A herd as its partition lists it, with what it says of where it is under."""

    herd: str
    state: str
    tasks: int
    under: str
    opened: str
    generation: str
    task: str
    tie: str
    reason: str


@dataclass(frozen=True)
class HerdTree:
    """A herd, and the herds under it."""

    herd: str
    state: str
    tasks: int
    """How many tasks it keeps."""
    under: str | None
    """The agent that leads it, as `herd/agent`."""
    task: str | None
    """The one task of that agent that it serves; None: whatever that agent does."""
    tie: str | None
    """How it stands with the herd above: `claimed` (not confirmed yet), `tied`, `closing` (the one
    above was closed, so it will be), `orphaned` (the one above is gone). None without one above."""
    reason: str | None
    """Why it is closing or orphaned."""
    herds: tuple[HerdTree, ...]

    def walk(self) -> Iterator[HerdTree]:
        """This herd, then all under it, from the top down."""
        yield self
        for herd in self.herds:
            yield from herd.walk()


def check_under(under: object, herd: str) -> tuple[str, str]:
    """Herd and agent of `herd/agent`."""
    address = split_address(under)
    if address is None:
        raise InvalidInput("open_herd", f"under is {shown(under)}, but must be herd/agent")
    if address[0] == herd:
        raise InvalidInput("open_herd", f"under: herd '{herd}' cannot be under itself")
    return address


def prove(caller: Caller, leader: str, task: object, under: str) -> Call[Leader]:
    """The caller proves that a herd `under` may be opened under `leader`, an agent of its herd.

    From here on it counts as one of those that the agent leads; if it is never opened, until repair
    or the next who wants to open one finds that out.
    """

    def read(answer: list[Any]) -> Leader:
        opened, generation, levels = answer[1:]
        return Leader(
            {
                "under": f"{caller.herd}/{leader}",
                "under_opened": opened,
                "under_generation": generation,
                "under_task": named,
                "levels": str(levels),
                "tie": "claimed",
            }
        )

    named = "" if task is None else check_id("open_herd", "task", task, "task")
    return caller.call("tie_prove", "open_herd", read, leader=leader, task=named, under=under)


def read_listed(row: list[Any]) -> Listed:
    """A herd of `herd_list`."""
    name, state, tasks, facts = row
    return Listed(name, state, int(tasks), *(each or "" for each in facts))


def read_verdicts(fleet: Fleet, over: str, listed: Sequence[Listed]) -> Call[list[list[str]]]:
    """How the herd `over` stands, at this moment, to herds that claim to be under it."""
    claims = [
        {
            "agent": each.under.partition("/")[2],
            "generation": each.generation,
            "opened": each.opened,
            "task": each.task,
        }
        for each in listed
    ]
    return call(
        "tie_read",
        lambda answer: answer[1:],
        operation="tree",
        key=fleet.partition(over),
        clock=fleet.clock_argument,
        herd=over,
        claims=json.dumps(claims),
    )


def by_over(listed: Sequence[Listed]) -> dict[str, list[Listed]]:
    """The herds that claim to be under another, by that other."""
    claiming: dict[str, list[Listed]] = defaultdict(list)
    for each in listed:
        if each.under:
            claiming[each.under.partition("/")[0]].append(each)
    return claiming


def make_tree(listed: Sequence[Listed], verdicts: Mapping[str, Sequence[str]]) -> list[HerdTree]:
    """The trees of all herds, by name; orphans are tops of their own. `verdicts`: by herd."""
    below: dict[str, list[Listed]] = defaultdict(list)
    tops: list[Listed] = []
    names = {each.herd for each in listed}
    for each in sorted(listed, key=lambda one: (one.under, one.herd)):
        over = each.under.partition("/")[0]
        orphaned = verdicts.get(each.herd, ("",))[0] == "orphaned"
        if each.under and not orphaned and over in names:
            below[over].append(each)
        else:
            tops.append(each)

    def grow(each: Listed) -> HerdTree:
        how, reason = verdicts.get(each.herd, ("", ""))[:2]
        tie = each.tie if how == "tied" else how
        if each.state == "closed" and how in ("closed", "orphaned"):
            tie = "tied"  # as it should be: what is above it was closed, or even forgotten since
        elif how == "closed":
            tie = "closing"
        if tie == each.tie == "orphaned":
            reason = reason or each.reason
        return HerdTree(
            herd=each.herd,
            state=each.state,
            tasks=each.tasks,
            under=each.under or None,
            task=each.task or None,
            tie=tie or None,
            reason=(reason if tie in ("closing", "orphaned") else None) or None,
            herds=tuple(grow(one) for one in below[each.herd]),
        )

    return [grow(each) for each in sorted(tops, key=lambda one: one.herd)]
