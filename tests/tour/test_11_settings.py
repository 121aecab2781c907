"""Settings: of a herd, from layers, kept in its record, changed live."""

from __future__ import annotations

from datetime import timedelta

from tests.requirements import proves
from tocsin.broker import HerdSettings


async def test_a_herd_knows_where_each_setting_came_from(broker, monkeypatch):
    """What was not given comes from the layers of the process that opens the herd."""
    monkeypatch.setenv("TOCSIN_REPLY_TIMEOUT", "10m")

    parent = await broker.open_herd("h", settings=HerdSettings(stale_wait_threshold=2))

    record = await parent.herd_record()
    assert record.settings.stale_wait_threshold == 2
    assert record.settings.reply_timeout == timedelta(minutes=10)
    assert record.sources["stale_wait_threshold"] == "argument"
    assert record.sources["reply_timeout"] == "environment"
    assert record.sources["task_deadline"] == "default"


@proves("P1")
async def test_a_new_threshold_holds_for_waits_that_are_open(herd):
    """A threshold is changed live: the wait that has lasted three minutes is stale at two."""
    await herd.waiting()
    await herd.later(minutes=3)

    await herd.parent.set_settings(HerdSettings(stale_wait_threshold=2))

    assert await herd.scheduler.tick() == {"reminders": 1}
