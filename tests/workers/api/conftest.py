"""The JSON API of one test: a server on loopback in a thread of its own, and who comes to it."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from typer.testing import Result

from tests.waiting import TIMEOUT
from tests.workers.cli.conftest import Cli
from tests.workers.mcp.desk import served
from tocsin.broker import AsyncBroker
from tocsin.workers.mcp.web import WebOptions, application


@contextmanager
def standing(
    url: str, fleet: str, certificate: Path | None = None, **options: Any
) -> Iterator[str]:
    """The address of a server, for tests that are no coroutines."""
    ready, ending = threading.Event(), threading.Event()
    found: list[str] = []

    async def serve() -> None:
        async with AsyncBroker.connect(url, fleet=fleet) as broker:
            settings = WebOptions(**{"burst": 10_000, "rate": 10_000} | options)
            async with served(application(broker, settings), certificate) as base:
                found.append(base)
                ready.set()
                await asyncio.to_thread(ending.wait)

    thread = threading.Thread(target=asyncio.run, args=(serve(),), name="api")
    thread.start()
    try:
        assert ready.wait(TIMEOUT), "the server did not listen"
        yield found[0]
    finally:
        ending.set()
        thread.join(TIMEOUT)


class FarCli(Cli):
    """A machine that has only the server's address: herds are opened by the operator's url, and
    their seats carried over, as a person would."""

    def __init__(self, home: Path, url: str, fleet: str, address: str) -> None:
        super().__init__(home, url, fleet)
        self.address = address
        self.operators = self.variables | {"TOCSIN_DIR": str(home / "operator")}
        self.variables = self.variables | {"TOCSIN_URL": address}
        self.home = home

    def run(self, *args: str, typed: str | bytes | None = None, **variables: str) -> Result:
        """One command; to open a herd the operator's, and then its seat is added here."""
        if args[:2] != ("herd", "open"):
            return super().run(*args, typed=typed, **variables)
        opened = super().run(*args, typed=typed, **self.operators | variables)
        if opened.exit_code == 0:
            seat = f"{args[2]}/parent"
            file = json.loads((self.home / "operator" / "seats.json").read_text())
            token = file["places"][0]["seats"][seat]["token"]
            self.good("seat", "add", seat, "--use", typed=f"{token}\n")
        return opened


@pytest.fixture
def address(url: str, fleet_name: str) -> Iterator[str]:
    """The address of a server of the test's fleet."""
    with standing(url, fleet_name) as base:
        yield base


@pytest.fixture
def cli(
    tmp_path: Path, url: str, fleet_name: str, address: str, monkeypatch: pytest.MonkeyPatch
) -> FarCli:
    """A machine with nothing on it yet, which reaches the fleet through a server alone."""
    (tmp_path / ".git").mkdir()
    monkeypatch.chdir(tmp_path)
    return FarCli(tmp_path, url, fleet_name, address)
