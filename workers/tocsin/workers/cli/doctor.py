"""`tocsin doctor`: whether the server and the fleet are fit, and what to do where they are not."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import cache, partial
from typing import Annotated, Any

import typer
from rich.text import Text

from tocsin.broker import keys
from tocsin.broker.clock import read_time
from tocsin.broker.errors import BrokerError
from tocsin.broker.eviction import danger
from tocsin.broker.urls import Node
from tocsin.scheduler import Scheduler
from tocsin.workers.cli.blocks import Rows, span
from tocsin.workers.cli.findings import Finding, Health
from tocsin.workers.cli.output import REFUSED
from tocsin.workers.cli.processes import Processes
from tocsin.workers.cli.session import Session, command
from tocsin.workers.cli.turn import check_turns

app = typer.Typer()

OLDEST = {"redis": (7, 0), "valkey": (7, 2)}
"""The oldest version of each kind of server that will do."""

SKEW = timedelta(seconds=2)
"""How far this machine's clock may be off before it is worth a word."""

NEARLY_FULL = 0.9


_MARKS = {
    Health.GOOD: Text("✓ good", style="green"),
    Health.WARNING: Text("! warning", style="bold yellow"),
    Health.BROKEN: Text("✗ broken", style="bold red"),
}


Info = Mapping[str, Any]
"""What the server says of itself."""


@command(app, "doctor", example="tocsin doctor --url redis://redis.example:6379/0")
def doctor(
    session: Session,
    repair: Annotated[
        bool,
        typer.Option("--repair", help="Mend what does not agree with the records it belongs to."),
    ] = False,
) -> None:
    """Check the server, the schedulers, the clocks and the fleet; exit code 1 if one is broken.

    Lists all schedulers, with load and lag, and all instances, each with its
    version, and names those a loop of which has stopped, and those that should
    restart after an upgrade.
    Compares all records with their indexes and timers. Needs no seat, and changes nothing unless
    told to --repair, which may be done at any time beside whatever else runs.
    """
    found = Processes(session.broker)
    servers: dict[Node, Info] = session.broker.link.command_each("doctor", "INFO")
    snapshots = cache(partial(_snapshots, session))
    findings = [
        replace(each, check=f"{each.check} {node}") if len(servers) > 1 else each
        for node, info in servers.items()
        for each in (
            *_server(info),
            *_eviction(info),
            *_memory(info),
            *_persistence(info, node, snapshots),
        )
    ]
    findings += [
        *_asking(session, "clock", _clock),
        *_asking(session, "fleet", partial(_fleet, found=found)),
        *_asking(session, "schedulers", lambda _: found.check_schedulers()),
        *_asking(session, "lag", lambda _: found.check_lag()),
        *_asking(session, "turns", partial(_turns, found=found)),
        *_asking(session, "instances", lambda _: found.check_instances()),
        *_asking(session, "versions", lambda _: found.check_versions()),
        *_asking(session, "herds", partial(_herds, found=found)),
        *_asking(session, "records", partial(_records, found=found, repair=repair)),
    ]
    broken = any(finding.health is Health.BROKEN for finding in findings)
    session.out.result(
        {
            "healthy": not broken,
            "findings": findings,
            "schedulers": found.schedulers,
            "instances": found.instances,
        },
        *found.tables(),
        Rows(
            ("check", "health", "what was found"),
            [(each.check, _MARKS[each.health], each.detail) for each in findings],
            whole=("check", "health"),
        ),
    )
    for each in findings:
        if each.check.startswith("eviction") and each.health is not Health.GOOD:
            session.out.warn(each.detail)
    if broken:
        raise typer.Exit(REFUSED)


def _asking(
    session: Session, check: str, look: Callable[[Session], Iterator[Finding]]
) -> Iterator[Finding]:
    """A check that asks the server more; what it refuses is a finding as well."""
    try:
        yield from look(session)
    except BrokerError as error:
        yield Finding(check, Health.BROKEN, error.detail)


def _version(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in text.split(".")[:2] if part.isdigit())


def _server(info: Info) -> Iterator[Finding]:
    kind = "valkey" if "valkey_version" in info else "redis"
    version = str(info.get(f"{kind}_version", "0"))
    mode = info.get("redis_mode") or info.get("server_mode") or "standalone"
    if _version(version) < OLDEST[kind]:
        least = ".".join(map(str, OLDEST[kind]))
        detail = f"{kind} {version} is too old; Tocsin needs {kind} {least} or newer"
        yield Finding("server", Health.BROKEN, detail)
    elif info.get("role", "master") != "master":
        detail = f"{kind} {version} is a replica, which takes no writes; use its primary"
        yield Finding("server", Health.BROKEN, detail)
    else:
        yield Finding("server", Health.GOOD, f"{kind} {version}, {mode}")


def _eviction(info: Info) -> Iterator[Finding]:
    if warning := danger(info):
        health = Health.BROKEN if info.get("maxmemory") else Health.WARNING
        yield Finding("eviction", health, warning)
    else:
        yield Finding("eviction", Health.GOOD, "noeviction: nothing is dropped when memory is full")


def _memory(info: Info) -> Iterator[Finding]:
    used, most = int(info.get("used_memory", 0)), int(info.get("maxmemory", 0))
    megabytes = f"{used / 1_048_576:.1f} MB used"
    if not most:
        yield Finding("memory", Health.GOOD, f"{megabytes}, no limit set")
        return
    detail = f"{megabytes} of {most / 1_048_576:.1f} MB"
    if used >= most:
        yield Finding("memory", Health.BROKEN, f"{detail}: new work is refused; raise maxmemory")
    elif used >= most * NEARLY_FULL:
        yield Finding("memory", Health.WARNING, f"{detail}: when it is full, new work is refused")
    else:
        yield Finding("memory", Health.GOOD, detail)


def _persistence(
    info: Info, node: Node, snapshots: Callable[[], Mapping[Node, str]]
) -> Iterator[Finding]:
    if info.get("loading"):
        yield Finding("persistence", Health.WARNING, "the server is still loading its data")
    elif info.get("aof_enabled"):
        if info.get("aof_last_write_status", "ok") == "ok":
            yield Finding("persistence", Health.GOOD, "append-only file")
        else:
            detail = "the last write of the append-only file failed; see the server's log and disk"
            yield Finding("persistence", Health.BROKEN, detail)
    else:
        if snapshots().get(node) == "":
            kept = "nothing is kept: a restart of the server loses everything"
        else:
            kept = "snapshots only: a crash loses what was accepted since the last one"
        detail = f"{kept}; `CONFIG SET appendonly yes` keeps all"
        yield Finding("persistence", Health.WARNING, detail)


def _snapshots(session: Session) -> dict[Node, str]:
    """When each server makes snapshots; managed ones keep their configuration to themselves."""
    try:
        told = session.broker.link.command_each("doctor", "CONFIG GET", "save")
    except BrokerError:
        return {}
    return {node: answer["save"] for node, answer in told.items() if "save" in answer}


def _clock(session: Session) -> Iterator[Finding]:
    before = datetime.now(UTC)
    server = read_time(session.broker.link.command("doctor", "TIME"))
    after = datetime.now(UTC)
    off = server - (before + (after - before) / 2)
    direction = "behind" if off > timedelta(0) else "ahead of"
    if abs(off) > SKEW + (after - before) / 2:
        yield Finding(
            "clock",
            Health.WARNING,
            f"this machine is {span(off)} {direction} the server; timers run on the server's clock "
            "and are right, but times written here by hand would be off",
        )
    else:
        milliseconds = abs(off) / timedelta(milliseconds=1)
        detail = f"this machine is {milliseconds:.0f} ms {direction} the server"
        yield Finding("clock", Health.GOOD, detail)


def _fleet(session: Session, *, found: Processes) -> Iterator[Finding]:
    name = session.connection.settings.fleet
    key, fields = keys.fleet(name), ("partitions", "factor", "schema")
    record = session.broker.link.command("doctor", "HMGET", key, *fields, key=key)
    partitions, factor, schema = record
    if partitions is None:
        yield Finding("fleet", Health.GOOD, f"{name} is not used yet; the first command makes it")
        return
    session.broker.fleet()  # what refuses that is said here alone
    found.used = True
    speed = f", its clock runs {float(factor):g} times as fast as the server's" if factor else ""
    yield Finding("fleet", Health.GOOD, f"{name}: {partitions} partitions, schema {schema}{speed}")


def _herds(session: Session, *, found: Processes) -> Iterator[Finding]:
    """Herds under herds, and those whom nobody is above any more."""
    if not found.used:
        return
    tree = [each for top in session.broker.tree() for each in top.walk() if each.state != "closed"]
    apart = [each for each in tree if each.tie == "orphaned"]
    for each in apart[:_FEW]:
        detail = f"herd {each.herd} is an orphan: it was opened under {each.under}, but "
        detail += f"{each.reason}; close it when its own work is done"
        yield Finding("herds", Health.WARNING, detail)
    late = [each for each in tree if each.tie in ("claimed", "closing")]
    for each in late[:_FEW]:
        what = "not confirmed yet" if each.tie == "claimed" else f"open, though {each.reason}"
        detail = f"herd {each.herd} under {each.under} is {what}; a scheduler sees to that soon"
        yield Finding("herds", Health.WARNING, detail)
    if len(apart) > _FEW or len(late) > _FEW:
        yield Finding("herds", Health.WARNING, "and more of them; see `tocsin herd tree`")
    below = sum(each.under is not None for each in tree)
    if below and not apart and not late:
        yield Finding("herds", Health.GOOD, f"{below} of {len(tree)} herds are under others")


_FEW = 10


def _turns(session: Session, *, found: Processes) -> Iterator[Finding]:
    if found.used:
        yield from check_turns(session)


def _records(session: Session, *, found: Processes, repair: bool) -> Iterator[Finding]:
    if not found.used:
        return
    swept = Scheduler(session.broker).repair(mend=repair)
    wrong = ", ".join(f"{herd}: {n} of {what}" for (herd, what), n in sorted(swept.counts.items()))
    for each in swept.broken[:10]:
        detail = f"herd {each.herd}: {each.id} cannot be read and is left as it is: {each.why}"
        yield Finding("records", Health.BROKEN, detail)
    if not wrong:
        detail = f"{swept.compared} records agree with all that is derived from them"
        yield Finding("records", Health.GOOD, detail)
    elif repair:
        yield Finding("records", Health.GOOD, f"mended {wrong}; the herds' journals say what")
    else:
        detail = f"what is derived from records is wrong: {wrong}; run `tocsin doctor --repair`"
        yield Finding("records", Health.WARNING, detail)
