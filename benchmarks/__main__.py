"""`python -m benchmarks`: all of them, or those named; see `--help`.

Nothing here asserts a speed. Each figure stands beside that of a bare script, measured in the same
run by turns with ours; only the ratio of the two says anything on a machine that is not idle.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable

from rich.console import Console

from benchmarks import ask, fair, fire, mail, mcp, memory, scale, soak, turnaround, turns, waits
from benchmarks.measuring import Options

BENCHMARKS: dict[str, Callable[[Options], None]] = {
    "waits": waits.run,
    "fire": fire.run,
    "fair": fair.run,
    "scale": scale.run,
    "mail": mail.run,
    "turnaround": turnaround.run,
    "turns": turns.run,
    "ask": ask.run,
    "mcp": mcp.run,
    "memory": memory.run,
    "soak": soak.run,
}


def _counts(text: str) -> tuple[int, ...]:
    return tuple(int(part.replace("_", "")) for part in text.split(","))


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    names = ", ".join(BENCHMARKS)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"which to run: {names}")
    parser.add_argument("--runs", type=int, default=5, help="runs that a median is of")
    parser.add_argument(
        "--waits",
        type=_counts,
        default=(1_000, 100_000, 1_000_000),
        metavar="N,N",
        help="how many open waits; a million takes some minutes and 2 GB",
    )
    parser.add_argument(
        "--fired", type=int, default=20_000, help="due waits that `fire` fires in one run"
    )
    parser.add_argument(
        "--backlog", type=int, default=100_000, help="due waits of the one herd of `fair`"
    )
    parser.add_argument("--herds", type=int, default=1_000, help="herds of `scale`")
    parser.add_argument(
        "--agents", type=int, default=1_000, help="agents, each in a wait, of a herd of `scale`"
    )
    parser.add_argument("--due", type=int, default=10_000, help="waits that it makes due at once")
    parser.add_argument("--sweep", action="store_true", help="have it time a sweep of repair, too")
    given = parser.parse_args()
    unknown = [name for name in given.names if name not in BENCHMARKS]
    if unknown:
        parser.error(f"there is no benchmark {unknown[0]!r}; there are {names}")
    options = Options(
        given.runs,
        given.waits,
        given.fired,
        Console(),
        given.backlog,
        given.herds,
        given.agents,
        given.due,
        given.sweep,
    )
    for name in given.names or BENCHMARKS:
        BENCHMARKS[name](options)


if __name__ == "__main__":
    main()
