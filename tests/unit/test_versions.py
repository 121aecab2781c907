"""Versions side by side: which may serve a fleet together, which should restart."""

from __future__ import annotations

import pytest

from tocsin.broker import AsyncBroker, errors, keys, versions
from tocsin.broker.versions import MINE, SCHEMA, Build


def test_the_newest_is_the_highest_version_and_what_is_none_is_the_oldest():
    """As package versions are ordered; this process counts too."""
    builds = [Build("999.0", 1), Build("1000.0rc1", 1), Build("unknown", 0), Build("odd!", 1)]
    assert versions.newest(builds).version == "1000.0rc1"
    assert versions.newest([Build("unknown", 0)]) == MINE


def test_what_should_restart():
    """Whatever is older than the newest, or than the fleet's schema."""
    newest = Build("2.10", 2)
    assert Build("2.9", 2).outdated(newest, 2)
    assert Build("2.10", 1).outdated(newest, 2)
    assert Build.parse("").outdated(newest, 0)
    assert not newest.outdated(newest, 2)
    assert not newest.outdated(newest, 1), "a fleet that is still to be upgraded"


def test_what_an_instance_notes_is_read_as_it_was():
    """Also what another version noted."""
    assert Build.parse(str(MINE)) == MINE
    assert Build.parse("3.0.dev1") == Build("3.0.dev1", 0)


@pytest.mark.parametrize(
    ("schema", "says"),
    [(SCHEMA + 1, "upgrade Tocsin here"), (SCHEMA - 1, "use a version that knows schema")],
    ids=["newer", "older"],
)
async def test_a_process_of_another_schema_is_refused_and_does_nothing(
    broker, url, fleet_name, schema, says
):
    """It is told whether it or the fleet is behind; another version of one schema is welcome."""
    await broker.fleet()
    await broker.link.command("test", "HSET", keys.fleet(fleet_name), "schema", schema)
    async with AsyncBroker.connect(url, fleet=fleet_name) as other:
        with pytest.raises(errors.InvalidInput, match=says):
            await other.open_herd("h")
    await broker.link.command("test", "HSET", keys.fleet(fleet_name), "schema", SCHEMA)
    assert await broker.herds() == []
