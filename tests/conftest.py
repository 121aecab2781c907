"""Private, real servers for each test worker; a fleet of its own for each test.

A server that cannot be started fails the tests: they are never skipped for it. After every test
that had a fleet, its herds are closed and outlived, and nothing of them may be left (`leftovers`).
"""

from __future__ import annotations

import os
import signal
import uuid
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.fleets import Herd, HerdMaker
from tests.leftovers import assert_nothing_outlives_its_owner
from tests.topologies import TOPOLOGIES, ClusterServers, SentinelServers
from tocsin.broker import AsyncBroker, Broker, ManualClock
from tocsin.broker.embedded import EmbeddedServer, binary
from tocsin.scheduler import AsyncScheduler, Scheduler

OF_REMINDERS = {f"P{number}" for number in range(1, 8)}

_PASSED = pytest.StashKey[bool]()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--on",
        choices=TOPOLOGIES,
        help="run tests of `url` there, and only there",
    )
    parser.addoption(
        "--server-binary",
        type=Path,
        help="start this server program, such as Redis 7.0's, not the one that Tocsin brings",
    )


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line(
        "markers", "proves(*ids): the promises of tests/requirements.py that the test proves"
    )
    if given := config.getoption("--server-binary"):
        binary._bundled_binary = given.resolve
    config.addinivalue_line("markers", "everywhere: runs on each topology")
    config.addinivalue_line("markers", "one_server: of one server alone, so `--on` leaves it out")
    config.addinivalue_line("markers", "long: takes most of a minute, so it starts before others")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """The tour, what proves a promise of reminders, and what says so, run wherever a fleet can be:
    on one server, on a Cluster, and on what Sentinels watch."""
    if "topology" in metafunc.fixturenames and not metafunc.config.getoption("--on"):
        marked = metafunc.definition.get_closest_marker("everywhere") is not None
        if marked or _is_of_the_tour(metafunc) or _is_about_reminders(metafunc):
            metafunc.parametrize("topology", TOPOLOGIES, indirect=True)


def _is_of_the_tour(metafunc: pytest.Metafunc) -> bool:
    return metafunc.definition.path.parent.name == "tour"


def _is_about_reminders(metafunc: pytest.Metafunc) -> bool:
    marks = metafunc.definition.iter_markers("proves")
    proven = {promise for mark in marks for promise in mark.args}
    parts = metafunc.definition.path.parent.name in ("broker", "scheduler")
    return parts and not proven.isdisjoint(OF_REMINDERS)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    items.sort(key=lambda item: item.get_closest_marker("long") is None)
    if config.getoption("--on") in ("cluster", "sentinel"):
        apart = [item for item in items if item.get_closest_marker("one_server")]
        config.hook.pytest_deselected(items=apart)
        items[:] = [item for item in items if item not in apart]


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]):
    report = yield
    if call.when == "call":
        item.stash[_PASSED] = report.passed
    return report


@pytest.fixture(scope="session", autouse=True)
def _ctrl_c_arrives() -> None:
    """In the processes of tests too, when a shell that runs this in the background ignores it."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="session", autouse=True)
def _own_settings(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """No setting of the person who runs the tests leaks in, by a file or a variable."""
    empty: Path = tmp_path_factory.mktemp("no-settings")
    with pytest.MonkeyPatch.context() as patch:
        for variable in [name for name in os.environ if name.startswith("TOCSIN_")]:
            patch.delenv(variable)
        patch.setenv("XDG_CONFIG_HOME", str(empty))
        yield


@pytest.fixture(scope="session")
def server() -> Iterator[EmbeddedServer]:
    """A real server on a free port that keeps nothing, shared by the tests of one worker.

    A test that kills, fills, flushes or reconfigures servers starts some of its own.
    """
    with EmbeddedServer(durable=False) as running:
        yield running


@pytest.fixture(scope="session")
def server_url(server: EmbeddedServer) -> str:
    """The address of the shared server, for fixtures that live as long as it."""
    return server.url


@pytest.fixture(scope="session")
def cluster() -> Iterator[ClusterServers]:
    """A Cluster of three primaries, shared like the server."""
    with TOPOLOGIES["cluster"]() as servers:
        yield servers


@pytest.fixture(scope="session")
def sentinel() -> Iterator[SentinelServers]:
    """A primary with a replica and three Sentinels, shared like the server."""
    with TOPOLOGIES["sentinel"]() as servers:
        yield servers


@pytest.fixture
def topology(request: pytest.FixtureRequest) -> str:
    """Where the test's fleet is: see `TOPOLOGIES`."""
    return str(getattr(request, "param", None) or request.config.getoption("--on") or "server")


@pytest.fixture
def url(request: pytest.FixtureRequest, topology: str) -> str:
    """The address of the shared servers; with `fleet_name` it is a clean database."""
    shared: Any = request.getfixturevalue(topology)
    assert shared.is_running(), (
        f"the shared {topology} is gone: an earlier test ended or blocked it"
    )
    return str(shared.url)


@pytest.fixture
def fleet_name() -> str:
    """A fleet that no other test has, so that nothing needs to be flushed between tests."""
    return f"t-{uuid.uuid4().hex[:16]}"


@pytest.fixture(autouse=True)
def _no_key_outlives_its_owner(request: pytest.FixtureRequest) -> Iterator[None]:
    """After a test that had a fleet: every key is of a known kind, and all of them end."""
    if "fleet_name" not in request.fixturenames:
        yield
        return
    url, fleet_name = request.getfixturevalue("url"), request.getfixturevalue("fleet_name")
    yield
    if request.node.stash.get(_PASSED, False):
        assert_nothing_outlives_its_owner(url, fleet_name)


@pytest.fixture
def clock() -> ManualClock:
    """The time of the fleet, which only the test moves."""
    return ManualClock()


@pytest.fixture
async def broker(url: str, fleet_name: str, clock: ManualClock) -> AsyncIterator[AsyncBroker]:
    """A broker of the test's fleet, under the test's clock."""
    async with AsyncBroker.connect(url, fleet=fleet_name, clock=clock) as broker:
        yield broker


@pytest.fixture
def scheduler(broker: AsyncBroker) -> AsyncScheduler:
    """A scheduler that runs when the test ticks it."""
    return AsyncScheduler(broker)


@pytest.fixture
def open_herd(broker: AsyncBroker, clock: ManualClock, scheduler: AsyncScheduler) -> HerdMaker:
    """Opens herds with children of the names wanted: `await open_herd("h", "scout")`."""
    return HerdMaker(broker, clock, scheduler)


@pytest.fixture
async def herd(open_herd: HerdMaker) -> Herd:
    """A herd with a parent and two children, scout and planner, each with a live instance."""
    return await open_herd("release-42", "scout", "planner")


@pytest.fixture
def sync_broker(url: str, fleet_name: str, clock: ManualClock) -> Iterator[Broker]:
    """A sync broker of the test's fleet, under the test's clock."""
    with Broker.connect(url, fleet=fleet_name, clock=clock) as broker:
        yield broker


@pytest.fixture
def sync_scheduler(sync_broker: Broker) -> Scheduler:
    """A sync scheduler that runs when the test ticks it."""
    return Scheduler(sync_broker)
