"""The key-leak check: no key outlives its owner.

After a test each key of its fleet must be of a kind that `keys.KEYS` lists. Then the check closes
what the test left open, as each herd's own parent would, lets every timer come due, and looks for
keys that are still there. Only what belongs to the fleet itself may be.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import redis

from tests.topologies import operator
from tocsin.broker import Broker, ManualClock, herds, keys
from tocsin.broker.caller import Caller
from tocsin.broker.clock import from_ms
from tocsin.broker.ids import PARENT, make_id
from tocsin.broker.records import decode
from tocsin.scheduler import Scheduler

OF_THE_FLEET = {"fleet", "partition", "schedulers"}
_MOST_ROUNDS = 50


def fleet_keys(client: redis.Redis, fleet: str) -> list[str]:
    """Every key of a fleet."""
    found = client.scan_iter(match=f"{keys.PREFIX}:{{{fleet}[:}}]*", count=1000)
    return sorted(decode(key) for key in found)


def herd_keys(url: str, fleet: str, herd: str | None = None) -> list[str]:
    """The keys that belong to herds of a fleet, or to one of them; for a test to look at."""
    with operator(url) as client:
        left = [key for key in fleet_keys(client, fleet) if keys.kind_of(key) not in OF_THE_FLEET]
    return [key for key in left if herd is None or f":h:{herd}" in key]


def assert_nothing_outlives_its_owner(url: str, fleet: str) -> None:
    """Closes the fleet's herds, outlives all they left, and fails if something stays."""
    with operator(url) as client:
        present = fleet_keys(client, fleet)
        strangers = [key for key in present if keys.kind_of(key) is None]
        assert not strangers, f"keys of no kind that keys.KEYS lists: {strangers}"
        if not present:
            return
        _close_and_outlive(url, client, fleet)
        left = fleet_keys(client, fleet)
        leaked = [key for key in left if keys.kind_of(key) not in OF_THE_FLEET]
        assert not leaked, f"{len(leaked)} keys outlived their owner: {leaked[:20]}"
        for key in left:
            client.execute_command("DEL", key)  # `delete` makes a pipeline on a Cluster


def _close_and_outlive(url: str, client: redis.Redis, fleet: str) -> None:
    clock = ManualClock(from_ms(max(_latest_timer(client, fleet), 0)))
    with Broker.connect(url, fleet=fleet, clock=clock) as broker:
        record = broker.fleet()
        for herd, _state, _tasks in broker.herds():
            agent = keys.below(record.partition(herd), "agent", herd=herd, agent=PARENT)
            token = client.hget(agent, "token")
            assert isinstance(token, str), f"herd {herd} has no parent any more"
            caller = Caller(record, herd, PARENT, token, make_id("inst"))
            for _ in range(_MOST_ROUNDS * 1000):
                if broker.run(herds.close_herd(caller)):
                    break
        for _ in range(_MOST_ROUNDS):
            latest = _latest_timer(client, fleet)
            if latest < 0:
                break
            clock.advance(max(from_ms(latest) - clock.now(), timedelta(0)))
            Scheduler(broker).tick()


def _latest_timer(client: redis.Redis, fleet: str) -> int:
    """When the last timer of the fleet's herds is due; -1 if there is none."""
    latest = -1
    for key in fleet_keys(client, fleet):
        if keys.kind_of(key) == "due":
            last: Any = client.zrange(key, -1, -1, withscores=True)
            latest = max([latest, *(int(score) for _, score in last)])
    return latest
