"""Firing a backlog of due waits, beside a script that only pops, marks and adds."""

from __future__ import annotations

from datetime import timedelta

from benchmarks import bare
from benchmarks.fleets import open_herds, open_waits
from benchmarks.measuring import Options, medians, place, show, times
from tocsin.scheduler import Scheduler

MINUTE = timedelta(minutes=1)


def _row(options: Options, count: int) -> list[str]:
    runs, each = min(options.runs, 3), options.fired // count
    with place() as here:
        herds = open_herds(here.broker, count, each * runs)
        for run in range(runs):
            open_waits(here.broker, (herd for herd in herds for _ in range(each)))
            members = {f"task_bare{n:019}": run for n in range(each * count)}
            here.plain.zadd(f"bare:waiting:{run}", members)
            here.clock.advance(MINUTE)
        here.clock.advance(MINUTE * (5 - runs))
        scheduler, fire = (
            Scheduler(here.broker, repair_every=None),
            here.plain.register_script(bare.FIRE),
        )
        fired, waiting = [], (f"bare:waiting:{run}" for run in range(runs))

        def ours() -> None:
            fired.append(scheduler.tick()["reminders"])

        def bare_by_100() -> None:
            keys = [next(waiting), "bare:inbox"]
            while fire(keys=keys, args=[runs]):
                pass
            here.clock.advance(MINUTE)

        took = medians(runs, {"ours": ours, "bare": bare_by_100})
        assert fired == [each * count] * runs, fired
        return [
            f"{count:,}",
            f"{took['ours'] * 1000:.0f} ms",
            f"{took['bare'] * 1000:.0f} ms",
            times(took["ours"], took["bare"]),
            f"{each * count / took['ours']:,.0f}",
        ]


def run(options: Options) -> None:
    """Fires 20,000 waits of 1, 20 and 1,000 herds."""
    show(
        options.console,
        f"fire: {options.fired:,} due waits (bare: ZREM + SET NX + XADD in one script, by 100)",
        ["herds", "ours", "bare", "ratio", "a second"],
        [_row(options, count) for count in (1, 20, 1_000)],
    )
