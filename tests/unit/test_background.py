"""The background threads of a broker: interrupted at a bad moment, and met by errors."""

from __future__ import annotations

import logging
import threading
from datetime import timedelta

import pytest

from tests.fleets import bodies, token_of
from tests.waiting import wait_until
from tocsin.broker import Broker, HerdSettings
from tocsin.broker.bells import Bells
from tocsin.broker.caller import Caller, Fleet
from tocsin.broker.connections import Server
from tocsin.broker.leases import Leases
from tocsin.broker.signals import Signal

NOWHERE = Server("redis://127.0.0.1:1/0")


@pytest.fixture
def _interrupted_start(monkeypatch):
    """Ctrl-C comes while a thread is being started."""

    def start(thread: threading.Thread) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(threading.Thread, "start", start)


@pytest.mark.usefixtures("_interrupted_start")
def test_bells_close_after_an_interrupted_start():
    """An interruption while the bells' thread starts is what comes out, and closing works."""
    bells = Bells(NOWHERE)
    with pytest.raises(KeyboardInterrupt), bells.hear("channel", "mail", Signal()):
        pass
    bells.close()


@pytest.mark.usefixtures("_interrupted_start")
def test_leases_close_after_an_interrupted_start():
    """An interruption while the leases' thread starts is what comes out, and closing works."""
    leases = Leases(NOWHERE)
    caller = Caller(Fleet("f", 1, None), "h", "a", "token", "inst_1")
    with pytest.raises(KeyboardInterrupt):
        leases.hold(caller, 30.0)
    leases.close()


@pytest.fixture
def raising_once(monkeypatch, caplog):
    """Puts an error nobody expects into a step of a thread, once; says whether it was raised."""
    caplog.set_level(logging.INFO, "tocsin")

    def put(kind: type, method: str) -> threading.Event:
        raised, works = threading.Event(), getattr(kind, method)

        def fails(*arguments: object) -> object:
            if not raised.is_set():
                raised.set()
                raise ZeroDivisionError("nobody expected this")
            return works(*arguments)

        monkeypatch.setattr(kind, method, fails)
        return raised

    return put


def _told(caplog) -> list[str]:
    return [record.message for record in caplog.records if record.exc_info]


def test_bells_ring_on_after_an_error(url, fleet_name, raising_once, monkeypatch, caplog):
    """Case 32: an exception in the bells' thread is told, and the next bell is heard."""
    monkeypatch.setattr("tocsin.broker._sync.agent.SLOW_POLL", 3600.0)
    with Broker.connect(url, fleet=fleet_name) as broker:
        parent = broker.open_herd("h")
        scout = broker.join("h", "scout", token_of(parent.register("scout")))
        assert scout.next_turn(timeout=0.1) is None
        raised = raising_once(Bells, "_take")
        sending = threading.Thread(target=parent.message, args=("scout", "one"))
        sending.start()
        assert bodies(scout.next_turn(timeout=10)) == ["one"]
        sending.join()
        wait_until(raised.is_set, "the error")
        scout.receive().ack()
        later = threading.Timer(0.2, parent.message, ("scout", "two"))
        later.start()
        assert "two" in bodies(scout.next_turn(timeout=10))
        later.join()
    assert len(_told(caplog)) == 1 and "the bell line is down" in _told(caplog)[0]


@pytest.mark.parametrize("method", ["_await_due", "_put_off"])
def test_leases_are_renewed_after_an_error(
    url, fleet_name, raising_once, monkeypatch, caplog, method
):
    """Case 32: an exception in the leases' thread is told, and no lease runs out."""
    settings = HerdSettings(
        lease=timedelta(seconds=2),
        lease_renewal=timedelta(milliseconds=100),
        grace=timedelta(seconds=0.1),
    )
    with Broker.connect(url, fleet=fleet_name) as broker:
        raised = raising_once(Leases, method)
        parent = broker.open_herd("h", settings=settings)
        wait_until(raised.is_set, "the error")
        renewed, put_off = threading.Event(), Leases._put_off

        def put_off_and_tell(self: Leases, caller: Caller, seconds: float) -> None:
            put_off(self, caller, seconds)
            renewed.set()

        monkeypatch.setattr(Leases, "_put_off", put_off_and_tell)
        wait_until(renewed.is_set, "the next renewal")
        assert parent.roster()[0].present
    assert _told(caplog) == ["leases are not renewed: nobody expected this"]
