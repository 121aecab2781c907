"""The probe of an asker: what it counts, beside the call that waits."""

from __future__ import annotations

import threading

from tocsin.broker.probing import Watch


def test_a_count_that_comes_too_late_is_taken_by_the_next_look():
    """And where that look has a newer one in time, the newer."""
    allowed, totals = threading.Event(), iter((1, 2, 3))

    def probe() -> dict[str, int]:
        assert allowed.wait(10)
        return {"transcript": next(totals)}

    watch, done = Watch(probe), threading.Event()
    watch.start(done)
    assert watch.totals() == "{}"
    allowed.set()
    assert done.wait(10)
    done.clear()
    watch.start(done)
    assert done.wait(10)
    assert watch.totals() == '{"transcript": 2}'
    assert watch.totals() == "{}"
