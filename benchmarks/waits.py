"""The cost of a reminder grows with the reminders due, not with the waits that are open."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

from benchmarks import bare
from benchmarks.fleets import Herd, open_herds, open_waits
from benchmarks.measuring import Options, Place, medians, place, show, times
from tocsin.scheduler import Scheduler

HERDS = 1_000
DUE = 100
"""Waits due in each tick, each in a herd of its own."""

MINUTE = timedelta(minutes=1)


def _fill(here: Place, herds: list[Herd], runs: int, count: int) -> float:
    """Opens the waits, `DUE` of them for each run a minute before the rest; bytes of each."""
    before = here.used_memory()
    for run in range(runs):
        open_waits(here.broker, herds[run * DUE : (run + 1) * DUE])
        here.clock.advance(MINUTE)
    share, more = divmod(count, len(herds))

    def fill(number: int) -> None:
        opened = 1 if number < runs * DUE else 0
        open_waits(here.broker, [herds[number]] * (share + (number < more) - opened))

    with ThreadPoolExecutor(2) as pool:  # one makes calls while the server runs the other's
        list(pool.map(fill, range(len(herds))))
    return (here.used_memory() - before) / count


def _fill_bare(here: Place, count: int) -> None:
    for start in range(0, count, 10_000):
        here.plain.zadd(
            "bare:waiting", {f"task_bare{n}": n for n in range(start, min(start + 10_000, count))}
        )


def _row(options: Options, count: int) -> list[str]:
    runs = min(options.runs, 5)  # with one threshold of 5 minutes, groups a minute apart
    with place() as here:
        herds = open_herds(here.broker, HERDS, -(-count // HERDS))
        started = time.perf_counter()
        each = _fill(here, herds, runs, count)
        opened = time.perf_counter() - started
        _fill_bare(here, count)
        here.clock.advance(MINUTE * (5 - runs))
        scheduler, fire = (
            Scheduler(here.broker, repair_every=None),
            here.plain.register_script(bare.FIRE),
        )
        fired = []

        def tick() -> None:
            fired.append(scheduler.tick().get("reminders", 0))

        def bare_tick() -> None:
            fire(keys=["bare:waiting", "bare:inbox"], args=[count])

        def idle() -> None:
            scheduler.tick()
            here.clock.advance(MINUTE)

        took = medians(runs, {"bare": bare_tick, "ours": tick, "idle": idle})
        assert fired == [DUE] * runs, fired
        return [
            f"{count:,}",
            f"{took['ours'] * 1000:.1f} ms",
            f"{took['bare'] * 1000:.2f} ms",
            times(took["ours"], took["bare"]),
            f"{took['idle'] * 1000:.2f} ms",
            f"{each:,.0f}",
            f"{opened:.0f} s",
        ]


def run(options: Options) -> None:
    """Ticks with 100 due among 1,000, 100,000 and 1,000,000 open waits."""
    show(
        options.console,
        f"waits: a tick with {DUE} due, over {HERDS:,} herds (bare: one script, one sorted set)",
        ["open waits", "tick", "bare", "ratio", "none due", "bytes each", "opened in"],
        [_row(options, count) for count in options.waits],
    )
