"""One table of keys, told in Python and in Lua, and read back."""

from __future__ import annotations

import re

import pytest
import redis

from tocsin.broker import keys, scripts
from tocsin.broker.ids import make_id
from tocsin.broker.validation import check_name

NAMES = {
    "herd": "release-42",
    "agent": "scout_1",
    "task": make_id("task"),
    "message": make_id("msg"),
    "watch": make_id("watch"),
    "episode": "7",
    "plan": make_id("plan"),
    "lane": "gpu/acme",
}
FIELD = re.compile(r"\{(\w+)\}")


def example(kind: str) -> str:
    """The key of `kind` with the names above, in partition 3 of fleet `acme`."""
    fields = FIELD.findall(keys.KEYS[kind].template)
    return keys.below(keys.partition("acme", 3), kind, **{name: NAMES[name] for name in fields})


@pytest.mark.parametrize("kind", keys.KEYS)
def test_python_and_lua_build_the_same_key(kind, url):
    """The generated include, run on a real server, gives what `below` gives."""
    fields = [name for name in FIELD.findall(keys.KEYS[kind].template) if name != "herd"]
    arguments = ", ".join(f"ARGV[{n}]" for n in range(2, len(fields) + 2))
    call = f"key.{kind}({arguments})"
    source = f"local args = {{ herd = ARGV[1] }}\n{keys.lua(call)}\nreturn {call}"
    values = [NAMES["herd"], *(NAMES[name] for name in fields)]
    with redis.Redis.from_url(url, decode_responses=True) as client:
        answer = client.eval(f"#!lua\n{source}", 1, keys.partition("acme", 3), *values)
    assert answer == example(kind)


def test_python_and_lua_name_the_same_channels(url):
    """The doorbell of the fleet and the bell of an agent."""
    include = f"local args = {{ herd = 'h' }}\n{keys.lua('')}"
    source = f"#!lua\n{include}\nreturn {{ doorbell, bell('a'), fleet }}"
    with redis.Redis.from_url(url, decode_responses=True) as client:
        answer = client.eval(source, 1, keys.partition("acme", 15))
    assert answer == [keys.doorbell("acme"), keys.bell("acme", "h", "a"), "acme"]


@pytest.mark.parametrize("kind", keys.KEYS)
def test_a_key_tells_its_kind(kind):
    """`kind_of` is the inverse of `below`."""
    assert keys.kind_of(example(kind)) == kind


def test_the_keys_above_partitions_tell_theirs():
    """The fleet's record, its schedulers, a partition's clock."""
    assert keys.kind_of(keys.fleet("acme")) == "fleet"
    assert keys.kind_of(keys.schedulers("acme")) == "schedulers"
    assert keys.kind_of(keys.slots("acme")) == "slots"
    assert keys.kind_of(keys.slots("acme", "queue/gpu")) == "slots"
    assert keys.kind_of(keys.partition("acme", 0)) == "partition"


@pytest.mark.parametrize(
    "key",
    ["", "tocsin", "other:{acme:3}:timers", "tocsin:{acme:3}:unknown", "tocsin:{acme}:timers"]
    + ["tocsin:{acme:x}", "tocsin:{acme:3}:h:a:b:c:d", "tocsin:{acme:3}:timers:more", "x" * 100]
    + ["tocsin:{acme:3}:slots", "tocsin:{acme}:slotsmore", "tocsin:{acme}:schedulers:more"],
)
def test_a_stranger_has_no_kind(key):
    """Tests for leaked keys rest on this."""
    assert keys.kind_of(key) is None


def test_no_two_kinds_can_meet_in_one_key():
    """Whatever the names are: each example is of one kind alone."""
    patterns = {k: re.compile(FIELD.sub("[^:]+", spec.template)) for k, spec in keys.KEYS.items()}
    for kind, spec in keys.KEYS.items():
        text = spec.template.format(**NAMES)
        assert [k for k, pattern in patterns.items() if pattern.fullmatch(text)] == [kind]


@pytest.mark.parametrize("kind", keys.KEYS)
def test_every_key_has_its_partitions_hash_tag(kind):
    """So that one script may touch them together on a Cluster: the slot of both is the same."""
    partition = keys.partition("acme", 3)
    tags = {re.findall(r"\{([^}]*)\}", key)[0] for key in (partition, example(kind))}
    assert tags == {"acme:3"}


def test_the_table_says_what_it_must():
    """A type that exists, an owner, an end, what is in it; templates name known fields."""
    for kind, spec in keys.KEYS.items():
        assert spec.type in {"string", "hash", "zset", "set", "stream"}, kind
        assert spec.owner and spec.ends and spec.holds, kind
        assert set(FIELD.findall(spec.template)) <= NAMES.keys(), kind


def test_a_herd_stays_in_its_partition():
    """A function of name and number alone; spread over all of them."""
    assert keys.partition_of("release-42", 16) == keys.partition_of("release-42", 16)
    assert keys.partition_of("123456789", 2**16) == 0x31C3  # the check value of CRC-16/XMODEM
    spread = [0] * 16
    for number in range(16_000):
        spread[keys.partition_of(f"herd-{number}", 16)] += 1
    assert min(spread) > 800 and max(spread) < 1_200


def test_the_include_holds_only_what_a_script_uses():
    """A script is not made longer by keys it does not touch."""
    assert "function key.task(task)" in keys.lua("key.task(id)")
    assert "function key.herd(" not in keys.lua("key.task(id)")
    for name in scripts.names():
        source = scripts.load(name).source
        for kind in re.findall(r"function key\.(\w+)\(", source):
            assert len(re.findall(rf"\bkey\.{kind}\(", source)) > 1, f"{name} does not use {kind}"


def test_fleets_cannot_reach_into_one_another():
    """A name holds no character with a meaning in a key."""
    for char in "{}:*?[]":
        with pytest.raises(Exception, match="is not a name"):
            check_name("op", "fleet", f"a{char}b")
