"""The background threads of a broker: what an interruption at a bad moment leaves of them."""

from __future__ import annotations

import threading

import pytest

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
