"""Every key of Tocsin, built here and nowhere else.

All keys of a herd carry the hash tag of its partition, `{fleet:number}`, so that one script may
touch them together on a Cluster. Scripts get the partition's key as `KEYS[1]` and derive the rest
with the include that `lua` generates from the same table; ARCHITECTURE.md shows that table.
"""

from __future__ import annotations

import binascii
import re
from typing import NamedTuple

PREFIX = "tocsin"


class Key(NamedTuple):
    """One kind of key: the template of what follows the partition's key, and whose it is."""

    template: str
    type: str
    owner: str
    ends: str
    holds: str


KEYS: dict[str, Key] = {
    "timers": Key("timers", "zset", "partition", "empty", "herd -> its earliest due time"),
    "herds": Key("herds", "zset", "partition", "empty", "herd -> when it was opened"),
    "alerts": Key("alerts", "zset", "partition", "told", "alert for a human -> its next try"),
    "alerted": Key("alerted", "hash", "partition", "told", "what each of them says, its tries"),
    "forwards": Key(
        "forwards",
        "zset",
        "partition",
        "empty",
        "herd/other herd -> when its mail is forwarded next",
    ),
    "planned": Key(
        "planned", "zset", "partition", "empty", "herd/plan -> when it is looked at next"
    ),
    "lanes": Key("lanes", "zset", "partition", "empty", "queue/account that turns wait for"),
    "launches": Key(
        "launches:{lane}", "zset", "partition", "empty", "herd/agent -> its turn among others"
    ),
    "freed": Key("freed", "zset", "partition", "empty", "turn whose slot is to be given back"),
    "herd": Key("h:{herd}", "hash", "herd", "herd_retention", "state, settings, sequence number"),
    "due": Key("h:{herd}:due", "zset", "herd", "herd_retention", "timer -> when it fires"),
    "waiting": Key("h:{herd}:waiting", "zset", "herd", "empty", "task -> waiting_since"),
    "episodes": Key("h:{herd}:episodes", "hash", "herd", "empty", "waiting task -> its episode"),
    "reminded": Key(
        "h:{herd}:reminded:{task}:{episode}", "string", "task", "the episode", "the one reminder"
    ),
    "tasks": Key("h:{herd}:tasks", "zset", "herd", "empty", "task -> when it was created"),
    "task": Key("h:{herd}:t:{task}", "hash", "herd", "task_retention", "the task"),
    "questions": Key(
        "h:{herd}:t:{task}:questions", "zset", "task", "settlement", "open request -> opened at"
    ),
    "agents": Key("h:{herd}:agents", "zset", "herd", "herd_retention", "agent -> registered at"),
    "agent": Key("h:{herd}:a:{agent}", "hash", "herd", "task_retention", "the agent"),
    "instances": Key(
        "h:{herd}:a:{agent}:instances", "zset", "agent", "close", "instance -> end of its lease"
    ),
    "inbox": Key("h:{herd}:a:{agent}:inbox", "stream", "agent", "close", "mail for the next turn"),
    "steer": Key("h:{herd}:a:{agent}:steer", "stream", "agent", "close", "mail that overtakes"),
    "waking": Key(
        "h:{herd}:a:{agent}:waking", "zset", "agent", "close", "unread mail that wakes -> sequence"
    ),
    "delayed": Key(
        "h:{herd}:a:{agent}:delayed", "zset", "agent", "close", "mail given back for later -> when"
    ),
    "workload": Key(
        "h:{herd}:a:{agent}:workload", "zset", "agent", "close", "open task -> created at"
    ),
    "queue": Key(
        "h:{herd}:a:{agent}:queue", "zset", "agent", "close", "task waiting for a slot -> created"
    ),
    "asked": Key(
        "h:{herd}:a:{agent}:asked", "zset", "agent", "close", "open request waiting on it"
    ),
    "asking": Key("h:{herd}:a:{agent}:asking", "zset", "agent", "close", "open request it made"),
    "exchanges": Key(
        "h:{herd}:a:{agent}:exchanges",
        "hash",
        "agent",
        "close",
        "since when counted; of a pair its turns and what they answer; what one wrote the other",
    ),
    "leads": Key(
        "h:{herd}:a:{agent}:leads",
        "hash",
        "agent",
        "close",
        "herd under it -> when it last claimed to be, the task it serves",
    ),
    "message": Key(
        "h:{herd}:m:{message}",
        "hash",
        "herd",
        "receipt_retention",
        "envelope, receipt and, of a request, what became of it",
    ),
    "attending": Key(
        "h:{herd}:m:{message}:attending",
        "zset",
        "ask",
        "its last call",
        "waiting call -> until when it counts",
    ),
    "answers": Key(
        "h:{herd}:a:{agent}:answers",
        "zset",
        "agent",
        "close",
        "ask of which somebody waits to hear",
    ),
    "dead": Key("h:{herd}:dead", "zset", "herd", "empty", "dead letter -> when it died"),
    "outbox": Key("h:{herd}:outbox", "zset", "herd", "empty", "what is forwarded to other herds"),
    "arrivals": Key(
        "h:{herd}:arrivals",
        "hash",
        "herd",
        "herd_retention",
        "other herd -> how far its mail was judged, and as what",
    ),
    "plans": Key("h:{herd}:plans", "zset", "herd", "empty", "plan -> when it was made"),
    "plan": Key("h:{herd}:p:{plan}", "hash", "herd", "task_retention", "the plan"),
    "turning": Key(
        "h:{herd}:turning", "zset", "herd", "empty", "agent whose turn was launched, or runs"
    ),
    "held": Key(
        "h:{herd}:held", "zset", "herd", "empty", "agent whose turn is due when another has ended"
    ),
    "watch": Key("h:{herd}:w:{watch}", "set", "herd", "empty", "tasks still open of a watch"),
    "journal": Key("h:{herd}:journal", "stream", "herd", "herd_retention", "every transition"),
}
"""Kinds of keys below a partition's key. `ends` names the event or setting that removes one."""

_FIELD = re.compile(r"\{(\w+)\}")

PARTITIONS = 16
"""Partitions of a new fleet, unless told otherwise."""

MOST_PARTITIONS = 1_024
"""A scheduler looks at each partition in each of its rounds, so more would cost without end."""


def partition_of(herd: str, partitions: int) -> int:
    """The partition that holds a herd: CRC-16 (XMODEM) of its name, modulo their number."""
    return binascii.crc_hqx(herd.encode(), 0) % partitions


def partition(fleet: str, number: int) -> str:
    """Hash: the partition's clock. Also `KEYS[1]` of each script, and what its keys start with."""
    return f"{PREFIX}:{{{fleet}:{number}}}"


def below(partition_key: str, kind: str, **names: str) -> str:
    """The key of one `kind` of `KEYS` below a partition's key."""
    return f"{partition_key}:{KEYS[kind].template.format(**names)}"


def fleet(fleet_name: str) -> str:
    """Hash: schema version, number of partitions, base and factor of a scaled clock."""
    return f"{PREFIX}:{{{fleet_name}}}"


def schedulers(fleet_name: str) -> str:
    """Hash: scheduler -> what it last reported (JSON)."""
    return f"{PREFIX}:{{{fleet_name}}}:schedulers"


def slots(fleet_name: str, scope: str = "") -> str:
    """Sorted set: turn -> until when it has a slot; of the fleet, or of `queue/x`, `account/x`."""
    return f"{PREFIX}:{{{fleet_name}}}:slots" + (f":{scope}" if scope else "")


def doorbell(fleet_name: str) -> str:
    """Channel: rung when a partition's earliest timer moved forward."""
    return f"{PREFIX}:{{{fleet_name}}}:doorbell"


def bell(fleet_name: str, herd: str, agent: str) -> str:
    """Channel: rung when mail that wakes an agent arrived, or a task of its herd settled."""
    return f"{PREFIX}:{{{fleet_name}}}:bell:{herd}:{agent}"


_NAMES = {
    kind: re.compile(_FIELD.sub(r"(?P<\1>[^:]+)", spec.template)) for kind, spec in KEYS.items()
}
_KIND = re.compile(
    rf"{PREFIX}:\{{[a-z0-9_-]+:\d+\}}:(?:%s)"
    % "|".join(f"(?P<{kind}>{_FIELD.sub('[^:]+', spec.template)})" for kind, spec in KEYS.items())
)


def parse(key: str) -> tuple[str, dict[str, str]] | None:
    """Which kind of `KEYS` a key is of, and the names in it; None for any other."""
    found = _KIND.fullmatch(key)
    kind = found.lastgroup if found else None
    if found is None or kind is None:
        return None
    names = _NAMES[kind].fullmatch(found[kind])
    return kind, names.groupdict() if names else {}


def kind_of(key: str) -> str | None:
    """Which kind of `KEYS` a key is of; `partition`, `fleet`, `schedulers`, `slots`; or None."""
    if parsed := parse(key):
        return parsed[0]
    found = re.fullmatch(
        rf"{PREFIX}:\{{([a-z0-9_-]+)(:\d+)?\}}(?::(schedulers|slots(?=$|:))(:[^:]+)?)?", key
    )
    if found is None or (found[2] and found[3]) or (found[4] and found[3] != "slots"):
        return None
    return found[3] or ("partition" if found[2] else "fleet")


def of_fleet(fleet_name: str) -> str:
    """The pattern of all keys below the partitions of a fleet, for a walk over the server."""
    return f"{PREFIX}:{{{fleet_name}:*"


def _lua_function(kind: str) -> str:
    """`function key.task(task) return ...`; the herd is the script's own, in `args.herd`."""
    template = KEYS[kind].template
    names = [name for name in _FIELD.findall(template) if name != "herd"]
    text = "partition .. ':" + _FIELD.sub(r"' .. \1 .. '", template) + "'"
    text = (
        text.replace(" .. ''", "").replace(" herd ", " args.herd ").replace(" herd", " args.herd")
    )
    return f"function key.{kind}({', '.join(names)}) return {text} end"


def lua(script: str) -> str:
    """The Lua include `keys`, with the functions that `script` uses.

    `key.task(task)` and so on build keys below `KEYS[1]` for the herd in `args.herd`;
    `bell(agent)` and `doorbell` are channels.
    """
    used = set(re.findall(r"\bkey\.(\w+)\(", script))
    return "\n".join(
        [
            "local partition = KEYS[1]",
            f"local fleet = string.match(partition, '^{PREFIX}:{{(.*):%d+}}$')",
            f"local doorbell = '{PREFIX}:{{' .. fleet .. '}}:doorbell'",
            "local function bell(agent)",
            f"  return '{PREFIX}:{{' .. fleet .. '}}:bell:' .. args.herd .. ':' .. agent",
            "end",
            "local key = {}",
            *(_lua_function(kind) for kind in KEYS if kind in used),
        ]
    )
