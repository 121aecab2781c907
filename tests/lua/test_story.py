"""What scripts do on a real server, seen from the server: every command of a whole story."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator
from typing import NamedTuple

import pytest
import redis

from tests.lua.story import Heard, listen, tell
from tocsin.broker import keys, scripts
from tocsin.broker.embedded import EmbeddedServer
from tocsin.broker.states import TaskState

END = "the story ends here"


class Seen(NamedTuple):
    """What the server saw: each run of a script with its key and commands; what was answered."""

    runs: list[tuple[str, str, list[list[str]]]]
    heard: Heard
    left: list[str]


@pytest.fixture(scope="module")
def seen() -> Iterator[Seen]:
    """The story, told once on a server of its own while MONITOR listens."""
    by_sha = {scripts.load(name).sha: name for name in scripts.names()}
    runs: list[tuple[str, str, list[list[str]]]] = []
    with EmbeddedServer(durable=False) as server, pytest.MonkeyPatch.context() as patch:
        client = redis.Redis.from_url(server.url, decode_responses=True)
        heard = listen(patch)
        for name in scripts.names():  # so that each run is of a script the server knows by its hash
            client.script_load(scripts.load(name).text)
        with client, client.monitor() as monitor:
            tell(server.url, "story")
            client.echo(END)
            for line in monitor.listen():
                words = line["command"].split(" ")
                if line["client_type"] == "lua":
                    runs[-1][2].append(words)
                elif words[0] == "EVALSHA" and words[1] in by_sha:
                    runs.append((by_sha[words[1]], words[3], []))
                elif END in line["command"]:
                    break
            left = sorted(client.scan_iter(count=1000))
        yield Seen(runs, heard, left)


def test_every_script_ran(seen):
    """The story leaves no script out, so what the tests below see is all there is."""
    assert {name for name, _, _ in seen.runs} == set(scripts.names())


@pytest.mark.parametrize("name", scripts.names())
def test_every_answer_of_a_header_is_given_in_reality(name, seen):
    """Each word of `answers` was heard, and no other but `refused`."""
    assert seen.heard[name] - {"refused"} == set(scripts.load(name).answers)


def test_every_key_is_in_the_slot_of_the_key_that_was_declared(seen):
    """Whatever a script touches carries the hash tag of its `KEYS[1]`, or a Cluster refuses it."""
    checked = 0
    for name, declared, commands in seen.runs:
        tag = re.match(r"tocsin:\{[^}]+\}", declared)
        assert tag is not None
        for command in commands:
            if command[0] in ("PUBLISH", "TIME"):
                continue
            named = [word for word in command if word.startswith("tocsin:{")]
            assert named, f"{name} runs {command} without a key"
            assert all(word == tag[0] or word.startswith(f"{tag[0]}:") for word in named), name
            checked += len(named)
    assert checked > 1_000


def test_every_key_is_of_the_table(seen):
    """No script makes a key that `keys` does not know."""
    kinds = defaultdict(set)
    for name, _, commands in seen.runs:
        for command in commands:
            for word in command:
                if word.startswith("tocsin:{") and command[0] != "PUBLISH":
                    kinds[keys.kind_of(word)].add(name)
    assert kinds.pop(None, None) is None
    assert set(kinds) == {*keys.KEYS, "partition", "fleet", "schedulers", "slots"}


def test_every_bell_is_a_channel_of_the_fleet(seen):
    """Scripts ring the doorbell of their fleet and the bells of agents, and nothing else."""
    channels = {c[1] for _, _, commands in seen.runs for c in commands if c[0] == "PUBLISH"}
    bells = {
        keys.bell("story", "release", agent)
        for agent in ("parent", "scout", "planner", "tester", "watcher", "coder")
    }
    bells |= {keys.bell("story", "other", "parent")}
    bells |= {keys.bell("story", "below", agent) for agent in ("parent", "worker")}
    assert channels == bells | {keys.doorbell("story")}


def test_time_is_read_once_a_run(seen):
    """`TIME` moves within a script, so a second look could contradict the first."""
    for name, _, commands in seen.runs:
        assert [c[0] for c in commands].count("TIME") <= 1, name


def test_no_script_walks_the_key_space(seen):
    """Also not through a command whose name a reader of the source would miss."""
    used = {command[0] for _, _, commands in seen.runs for command in commands}
    assert not used & {"KEYS", "SCAN", "RANDOMKEY", "DBSIZE", "FLUSHALL", "FLUSHDB"}


def test_nothing_is_left_of_a_closed_herd_after_its_retention(seen):
    """Only the fleet, its partitions' clocks and the schedulers outlive the herds."""
    assert {keys.kind_of(key) for key in seen.left} <= {"fleet", "partition", "schedulers"}


TOLD: dict[str, dict[str, set[str]]] = {
    "message": {
        "accepted": {"accepted"},
        "queued": {"accepted"},
        "delayed": {"returned"},
        "shown": {"shown"},
        "taken": {"taken"},
        "handled": {"handled"},
        "withdrawn": {"withdrawn"},
        "dead": {"dead"},
        "outgoing": {"accepted"},
        "forwarded": {"forwarded"},
        "refused": {"refused"},
    },
    "task": {"created": {"delegated"}, **{str(s): {str(s)} for s in TaskState if s != "created"}},
}
"""For each state of a record, the events of the journal that tell of it."""


def entered(command: list[str]) -> tuple[str, str, str] | None:
    """Kind, id and state of a record that a command puts into a state."""
    kind = keys.kind_of(command[1]) if command[0] == "HSET" else None
    if kind not in TOLD or "state" not in command:
        return None
    state = command[command.index("state") + 1]
    return kind, command[1].rpartition(":")[2], state


def test_every_state_that_mail_and_tasks_come_into_is_in_the_journal(seen):
    """Accepted, shown, taken, given back, handled, dead, taken back, settled: in the same step."""
    now: dict[str, str] = {}
    told = set()
    for name, _, commands in seen.runs:
        lines = [
            " ".join(command).replace("\\", "")
            for command in commands
            if command[0] == "XADD" and command[1].endswith(":journal")
        ]
        for command in commands:
            kind, record, state = entered(command) or ("", "", "")
            before, now[record] = now.get(record), state or now.get(record, "")
            if not kind or state in ("held", before):
                continue
            events = TOLD[kind][state]
            if state == "accepted" and "accepted_at" not in command:
                if before not in ("shown", "taken"):
                    continue  # it is there to be read now, as was told when it was accepted
                events = {"returned", "rerouted"}
            said = [line for line in lines if record in line]
            assert any(f'"event":"{event}"' in line for line in said for event in events), (
                f"{name} moves {record} from {before} to {state}: {lines}"
            )
            told.add((kind, state))
    wanted = {(kind, state) for kind, states in TOLD.items() for state in states}
    assert told == wanted
