"""Everything a fleet keeps on its server, read at once, and what must be true of it at any moment.

The model says what the records should be; this says that the indexes beside them agree with the
records, so that a wrong index is found when it goes wrong and not when it is next used.
"""

from __future__ import annotations

import re
from typing import Any

import redis

from tocsin.broker import keys

OPEN = {"created", "running", "waiting"}
UNREAD = {"accepted", "shown"}
_NAMES = {
    kind: re.compile(re.sub(r"\{(\w+)\}", r"(?P<\1>[^:]+)", spec.template))
    for kind, spec in keys.KEYS.items()
}
_READ: dict[str, Any] = {
    "hash": lambda pipe, key: pipe.hgetall(key),
    "zset": lambda pipe, key: pipe.zrange(key, 0, -1, withscores=True),
    "stream": lambda pipe, key: pipe.xrange(key),
    "string": lambda pipe, key: pipe.get(key),
    "set": lambda pipe, key: pipe.smembers(key),
}


def must_equal(what: str, found: Any, expected: Any) -> None:
    """Fails with both sides, outside test modules too."""
    assert found == expected, f"{what}:\n  found    {found}\n  expected {expected}"


class Snapshot:
    """The keys of one herd, by kind and by the names in them."""

    def __init__(self, client: redis.Redis, fleet: str, now: int) -> None:
        self.now = now
        self.names = [_plain(key) for key in client.keys(f"{keys.PREFIX}:{{{fleet}[:}}]*")]
        self._kinds: dict[str, dict[tuple[str, ...], Any]] = {kind: {} for kind in keys.KEYS}
        found = [(name, keys.kind_of(name)) for name in self.names]
        wanted = [(name, kind) for name, kind in found if kind in keys.KEYS and kind != "journal"]
        with client.pipeline(transaction=False) as pipe:
            for name, kind in wanted:
                _READ[keys.KEYS[kind].type](pipe, name)
            values = pipe.execute()
        for (name, kind), value in zip(wanted, values, strict=True):
            inner = name.split("}:", 1)[1] if "}:" in name else name
            match = _NAMES[kind].fullmatch(inner)
            assert match is not None
            names = tuple(text for field, text in match.groupdict().items() if field != "herd")
            self._kinds[kind][names] = _plain(value)

    def all(self, kind: str) -> dict[Any, Any]:
        """The values of a kind; by the one name in its keys, or by all of them."""
        found = self._kinds[kind]
        return {names[0] if len(names) == 1 else names: value for names, value in found.items()}

    def one(self, kind: str, *names: str) -> Any:
        """The value of one key; empty if it is not there."""
        return self._kinds[kind].get(names, {})

    @property
    def messages(self) -> dict[str, dict[str, str]]:
        """The records of all mail."""
        return self.all("message")

    @property
    def tasks(self) -> dict[str, dict[str, str]]:
        """The records of all tasks."""
        return self.all("task")

    def box(self, agent: str) -> list[dict[str, str]]:
        """What is in an agent's inbox, steer first, each with its `id`; over reminders left out."""
        entries = [
            (stream, entry, fields)
            for stream in ("steer", "inbox")
            for entry, fields in self.one(stream, agent) or []
        ]
        found = []
        for stream, entry, fields in entries:
            if "m" in fields:
                record = {"id": fields["m"], **self.messages[fields["m"]]}
            else:
                ref = f"msg_reminder_{fields['r'].split('_', 1)[1]}_{fields['e']}"
                fresh = {"kind": "reminder", "task": fields["r"], "episode": fields["e"]}
                fresh |= {"state": "accepted", "to": agent, "entry": entry, "attempts": "0"}
                record = {"id": ref, "wakes": "0", **(self.messages.get(ref) or fresh)}
            assert record["entry"] == entry, f"{record['id']} is in {stream} twice"
            assert record["to"] == agent
            if not self._over(record):
                found.append(record)
        return found

    def _over(self, record: dict[str, str]) -> bool:
        if record["kind"] != "reminder":
            return record["kind"] == "task" and record["task"] not in self.tasks
        task = self.tasks.get(record["task"], {})
        return task.get("state") != "waiting" or task["episode"] != record["episode"]

    # ---------------------------------------------------------------- what must be true

    def check(self) -> None:
        """The indexes agree with the records, and every record has somebody who will end it."""
        self._check_waits()
        self._check_requests()
        self._check_mail()
        self._check_slots()
        self._check_asks()
        self._check_timers()

    def _check_waits(self) -> None:
        waiting = {ref: task for ref, task in self.tasks.items() if task["state"] == "waiting"}
        reminded = {task for task, _ in self.all("reminded")}
        fresh = {ref: int(t["waiting_since"]) for ref, t in waiting.items() if ref not in reminded}
        must_equal("waits without a reminder", dict(self.one("waiting")), fresh)
        episodes = {ref: task["episode"] for ref, task in waiting.items()}
        must_equal("episodes", self.one("episodes"), episodes)
        for task, episode in self.all("reminded"):
            must_equal("the episode of a marker", waiting[task]["episode"], episode)

    def _check_requests(self) -> None:
        expected: dict[str, dict[str, dict[str, int]]] = {
            "asked": {},
            "asking": {},
            "questions": {},
        }
        for ref, record in self.messages.items():
            if record.get("request") == "open":
                owners = {"asked": record["to"], "asking": record["sender"]}
                if record["task"]:
                    owners["questions"] = record["task"]
                for kind, owner in owners.items():
                    expected[kind].setdefault(owner, {})[ref] = int(record["opened_at"])
        for kind, by_owner in expected.items():
            found = {owner: dict(requests) for owner, requests in self.all(kind).items()}
            must_equal(kind, found, by_owner)
        for ref, task in self.tasks.items():
            asked = expected["questions"].get(ref)
            assert bool(asked) == (task["state"] == "waiting"), f"{ref} is {task['state']}: {asked}"
            if asked:
                must_equal(f"{ref} waits since", int(task["waiting_since"]), min(asked.values()))

    def _check_mail(self) -> None:
        agents = self.all("agent")
        listed = {record["id"]: record for agent in agents for record in self.box(agent)}
        for kind in ("inbox", "steer", "waking", "instances"):
            assert all(agents[name]["state"] == "open" for name in self.all(kind)), kind
        for ref, record in self.messages.items():
            in_stream = record["state"] in {*UNREAD, "taken"}
            assert in_stream == (ref in listed) or self._over(record), f"{ref} {record}"
        for name in agents:
            waking = {
                ref
                for ref, record in listed.items()
                if record["to"] == name and record["state"] in UNREAD and record["wakes"] == "1"
            }
            must_equal(f"waking of {name}", {ref for ref, _ in self.one("waking", name)}, waking)
        dead = {ref for ref, record in self.messages.items() if record["state"] == "dead"}
        must_equal("dead letters", {ref for ref, _ in self.one("dead")}, dead)

    def _check_slots(self) -> None:
        for name in self.all("agent"):
            slots, queue = dict(self.one("workload", name)), dict(self.one("queue", name))
            mine = {
                ref
                for ref, task in self.tasks.items()
                if task["agent"] == name and task["state"] in OPEN
            }
            assert not slots.keys() & queue.keys()
            must_equal(f"slots and queue of {name}", slots.keys() | queue.keys(), mine)
            assert len(slots) == min(1, len(mine)), f"{name} has a free slot and a queue"

    def _check_asks(self) -> None:
        """What is kept for those on the line is listed where a lost process is looked for."""
        assert self.all("attending").keys() <= self.messages.keys()
        kept: dict[tuple[str, str], set[str]] = {}
        for ref, record in self.messages.items():
            reply = self.messages.get(record.get("reply", ""), {})
            if record.get("ask") and (record.get("untold") or reply.get("state") == "held"):
                kept.setdefault((record["sender"], record["sender_generation"]), set()).add(ref)
        for name, record in self.all("agent").items():
            listed = {ref for ref, _ in self.one("answers", name)}
            mine = kept.get((name, record["generation"]), set())
            assert record["state"] != "open" or mine <= listed, f"{mine} of {name}, {listed=}"

    def _check_timers(self) -> None:
        due = dict(self.one("due"))
        expected = {
            f"1:deadline:{ref}": int(task["deadline"])
            for ref, task in self.tasks.items()
            if task["state"] in OPEN
        }
        for ref, record in self.messages.items():
            if record.get("request") == "open" and int(record["deadline"]):
                expected[f"2:reply:{ref}"] = int(record["deadline"])
        deadlines = {name: at for name, at in due.items() if name[:2] in {"1:", "2:"}}
        must_equal("deadlines", deadlines, expected)
        delayed = {ref for ref, record in self.messages.items() if record["state"] == "delayed"}
        must_equal("deliveries", {name[10:] for name in due if name[:2] == "6:"}, delayed)
        for ref, record in self.messages.items():
            ended = record["state"] in {"handled", "withdrawn"} and record.get("request") != "open"
            assert not ended or f"9:forget:m:{ref}" in due, f"nothing will forget {ref} {record}"
        for ref, task in self.tasks.items():
            assert (f"9:forget:t:{ref}" in due) == (task["state"] not in OPEN), ref
        timers = dict(self.one("timers"))
        must_equal("timers", list(timers.values()), [min(due.values())] if due else [])

    def check_idle(self) -> None:
        """After a tick nothing is left that is due: a scheduler can sleep."""
        overdue = {name: at for name, at in self.one("due") if at <= self.now}
        assert not overdue, f"due and not fired: {overdue}"


def _plain(value: Any) -> Any:
    """The same with its bytes as text."""
    if isinstance(value, bytes):
        return value.decode()
    if isinstance(value, dict):
        return {_plain(name): _plain(item) for name, item in value.items()}
    if isinstance(value, list | tuple | set):
        return type(value)(_plain(item) for item in value)
    return value
