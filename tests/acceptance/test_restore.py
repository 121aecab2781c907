"""A fleet that is restored from a copy of an earlier state: what comes again, what is gone."""

from __future__ import annotations

import shutil
from datetime import timedelta
from pathlib import Path

from tests.fleets import bodies, token_of
from tocsin.broker import Broker, HerdSettings, ManualClock, TaskState
from tocsin.broker.embedded import EmbeddedServer
from tocsin.scheduler import Scheduler

SETTINGS = HerdSettings(receipt_retention=timedelta(days=1))


def test_a_copy_of_a_running_server_is_whole_and_what_came_after_it_happens_again(
    tmp_path: Path,
) -> None:
    """Mail that was handled since comes again, what was sent since is gone until its sender repeats
    it, and a reminder that was read since is sent again; all of it is one consistent moment."""
    now, copy = ManualClock(), tmp_path / "copy"
    with (
        EmbeddedServer(tmp_path / "data") as server,
        Broker.connect(server.url, clock=now) as broker,
    ):
        parent = broker.open_herd("h", settings=SETTINGS)
        scout = broker.join("h", "scout", token_of(parent.register("scout")))
        task = parent.delegate("scout", "Find it")
        scout.receive().ack()
        scout.message("parent", "Which?", task=task.id, expects_reply=True)
        parent.message("scout", "before", key="before")

        shutil.copytree(tmp_path / "data" / "appendonlydir", copy / "appendonlydir")

        turn = scout.receive()
        assert bodies(turn) == ["before"]
        turn.ack()
        parent.message("scout", "after", key="after")
        now.advance(timedelta(minutes=6))
        assert Scheduler(broker).tick()["reminders"] == 1
        assert [mail.kind for mail in parent.receive()] == ["request", "reminder"]
        secret, seat = parent.token, scout.token
    with EmbeddedServer(copy) as server, Broker.connect(server.url, clock=now) as broker:
        parent = broker.open_herd("h", token=secret)
        scout = broker.join("h", "scout", seat)
        assert Scheduler(broker).repair(mend=False).findings == []
        assert parent.task(task.id).state is TaskState.WAITING
        turn = scout.receive()
        assert bodies(turn) == ["before"], "it is handled a second time"
        turn.ack()
        assert not parent.message("scout", "after", key="after").duplicate
        assert parent.message("scout", "before", key="before").duplicate
        assert bodies(scout.receive()) == ["after"]
        assert Scheduler(broker).tick()["reminders"] == 1
        assert [mail.kind for mail in parent.receive()] == ["request", "reminder"]
