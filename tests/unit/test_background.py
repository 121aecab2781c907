"""The background threads of a broker: interrupted at a bad moment, and met by errors."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator
from datetime import timedelta

import pytest

from tests.fleets import bodies, token_of
from tests.waiting import wait_until
from tocsin.broker import Broker, HerdSettings, processes
from tocsin.broker.bells import Bells
from tocsin.broker.caller import Caller, Fleet
from tocsin.broker.connections import Server
from tocsin.broker.leases import Leases
from tocsin.broker.pulse import PATIENCE
from tocsin.broker.signals import Signal
from tocsin.scheduler._async.report import REPORT_EVERY

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
    leases = Leases(NOWHERE, Bells(NOWHERE))
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

        def fails(*arguments: object, **named: object) -> object:
            if not raised.is_set():
                raised.set()
                raise ZeroDivisionError("nobody expected this")
            return works(*arguments, **named)

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


RENEWS_OFTEN = HerdSettings(lease_renewal=timedelta(milliseconds=100))

WAYS = ["hangs", "fails", "ends"]
"""In which a loop stops turning."""

DIES = "ignore::pytest.PytestUnhandledThreadExceptionWarning"


class Stopped:
    """A loop that stops in one of the `WAYS`, until it is mended."""

    def __init__(self, way: str) -> None:
        self.way = way
        self.mended = threading.Event()

    def stand(self) -> None:
        """What comes before its step."""
        if not self.mended.is_set():
            if self.way == "fails":
                raise ZeroDivisionError("it is broken")
            if self.way == "ends":
                raise SystemExit
            self.mended.wait()


Stop = Callable[[type, str, str], Stopped]


@pytest.fixture
def stop(monkeypatch) -> Iterator[Stop]:
    """Stops a kind of loop at a method, in a way; its patience is short."""
    every: list[Stopped] = []

    def stop(kind: type, method: str, way: str) -> Stopped:
        stopped, works = Stopped(way), getattr(kind, method)
        every.append(stopped)

        def step(*arguments: object, **named: object) -> object:
            stopped.stand()
            return works(*arguments, **named)

        monkeypatch.setattr(kind, "patience", 1.5)
        monkeypatch.setattr(kind, method, step)
        return stopped

    yield stop
    for each in every:
        each.mended.set()


def _trouble(broker: Broker, loop: str) -> str | None:
    return {each.loop: each.trouble for each in broker.health()}.get(loop)


@pytest.mark.filterwarnings(DIES)
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(
    ("kind", "method"), [(Bells, "_listen"), (Leases, "_await_due")], ids=["bells", "leases"]
)
def test_health_fails_while_a_loop_has_stopped(url, fleet_name, stop, kind, method, way):
    """Case 32: whichever way it stopped; it names the loop and how, and is well when that is."""
    stopped = stop(kind, method, way)
    with Broker.connect(url, fleet=fleet_name) as broker:
        assert broker.health() == []
        parent = broker.open_herd("h", settings=RENEWS_OFTEN)
        other = "leases" if kind is Bells else "bells"
        with broker.hear("channel", "mail", Signal()):
            said = {"hangs": "it hangs", "fails": "fails: it is broken", "ends": "has ended"}[way]
            wait_until(lambda: said in str(_trouble(broker, kind.name)), "it to show")
            assert _trouble(broker, other) == ""
            stopped.mended.set()
            if way == "ends":  # whoever needs it next starts it
                broker._leases.hold(parent.caller, 0.1)
                broker._bells._start()
            wait_until(lambda: _trouble(broker, kind.name) == "", "it to be well")
    assert broker.health() == []


@pytest.mark.filterwarnings(DIES)
@pytest.mark.parametrize("way", WAYS)
def test_an_instance_says_which_loop_of_its_process_has_stopped(url, fleet_name, stop, way):
    """Case 32: at once with a renewal of its lease, so that it is known from outside."""
    stopped = stop(Bells, "_listen", way)
    with Broker.connect(url, fleet=fleet_name) as broker:
        parent = broker.open_herd("h")  # renewed every 7 s
        page = processes.instances(broker.fleet(), "h")
        with broker.hear("channel", "mail", Signal()):
            trouble = wait_until(lambda: broker.run(page).instances[0].trouble, "it to be told")
            assert trouble.startswith("bells has ")
            stopped.mended.set()
            broker._bells._start()
            wait_until(lambda: not broker.run(page).instances[0].trouble, "that it is well")
        assert parent.roster()[0].present


def test_by_default_what_stops_shows_from_outside_within_ten_seconds():
    """Case 32: a loop that stops just after it said that all is well, with a second to look."""
    within = timedelta(seconds=9)
    assert HerdSettings().renews_every + processes.OVERDUE <= within
    assert timedelta(seconds=PATIENCE + REPORT_EVERY) <= within
    assert within >= processes.SILENT


@pytest.mark.filterwarnings(DIES)
@pytest.mark.parametrize("way", WAYS)
def test_an_instance_that_does_not_renew_its_lease_shows(url, fleet_name, stop, monkeypatch, way):
    """Case 32: soon after it should have; a call of a process that ends with it is no instance."""
    monkeypatch.setattr(processes, "OVERDUE", timedelta(seconds=0.5))
    with Broker.connect(url, fleet=fleet_name) as broker:
        stop(Leases, "_await_due", way)
        parent = broker.open_herd("h", settings=RENEWS_OFTEN)
        scout = parent.register("scout")
        broker.join("h", "scout", token_of(scout), instance="inst_0123456789abcdef0123456789")
        page = processes.instances(broker.fleet(), "h")
        trouble = wait_until(lambda: broker.run(page).instances[0].trouble, "it to show")
        assert trouble.startswith("has not renewed its lease for")
        assert "should every 0.1" in trouble
        assert [each.trouble for each in broker.run(page).instances[1:]] == [""]
