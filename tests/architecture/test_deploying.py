"""How it is deployed, held against the code: `compose.yaml`, `Dockerfile`, `docs/operations.md`.

No engine runs here to try the first two.
"""

from __future__ import annotations

import re
import shlex
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import redis
import typer
import yaml

from tocsin.broker.embedded import EmbeddedServer
from tocsin.broker.runners import CommandRunner
from tocsin.broker.settings import ConnectionSettings
from tocsin.workers.cli.app import app
from tocsin.workers.cli.worker import QUEUE

ROOT = Path(__file__).parents[2]


class Unambiguous(yaml.SafeLoader):  # type: ignore[misc]  # it ships no types
    """Refuses what is said twice, of which a plain loader keeps the last without a word."""


def _once(loader: Unambiguous, node: yaml.MappingNode) -> dict[Any, Any]:
    names = [key.value for key, _ in node.value]
    assert len(names) == len(set(names)), f"said twice, one of {names}"
    loader.flatten_mapping(node)
    return dict(loader.construct_pairs(node, deep=True))


Unambiguous.add_constructor(yaml.resolver.BaseResolver.DEFAULT_MAPPING_TAG, _once)

COMPOSE: dict[str, Any] = yaml.load((ROOT / "compose.yaml").read_text(), Unambiguous)
SERVICES: dict[str, dict[str, Any]] = COMPOSE["services"]
OURS = {name: service for name, service in SERVICES.items() if service["image"] == "tocsin"}

# What the Compose specification has at these places; it refuses other words.
TOP = {"name", "services", "volumes"}
SERVICE = {
    "build", "image", "command", "environment", "depends_on", "deploy", "init", "read_only",
    "cap_drop", "security_opt", "restart", "volumes", "ports", "healthcheck", "stop_grace_period",
    "tmpfs",
}  # fmt: skip
HEALTHCHECK = {"test", "interval", "timeout", "retries", "start_period", "disable"}
DURATION = re.compile(r"(\d+(h|m|s|ms))+")

VARIABLES = {f"TOCSIN_{name.upper()}" for name in ConnectionSettings.model_fields}

OPERATIONS = (ROOT / "docs" / "operations.md").read_text()

DOCKERFILE = (ROOT / "Dockerfile").read_text().replace("\\\n", " ")
STAGES = [each.strip() for each in re.split(r"^(?=FROM )", DOCKERFILE, flags=re.MULTILINE)[1:]]


def lines(stage: str, word: str) -> list[str]:
    """What stands behind an instruction of a stage, as often as it is there."""
    return [line.removeprefix(word).strip() for line in stage.split("\n") if line.startswith(word)]


def words(text: str) -> list[str]:
    """A command in the form that needs no shell."""
    found: list[str] = yaml.safe_load(text)
    assert isinstance(found, list)
    return found


def parses(command: list[str]) -> None:
    """The command line knows the command and all its options, with values of their kinds."""
    known = typer.main.get_command(app)
    context = typer.Context(known)
    while isinstance(known, typer.core.TyperGroup):
        name, *command = command
        assert name in known.commands, f"there is no command {name}"
        known = known.commands[name]
    known.make_context("tocsin", command, parent=context, resilient_parsing=False)


def test_compose_says_only_what_the_specification_has() -> None:
    """No misspelt key, no service or volume that is not there, every time with its unit."""
    assert {key for key in COMPOSE if not key.startswith("x-")} <= TOP
    for name, service in SERVICES.items():
        assert service.keys() <= SERVICE, name
        assert service.get("depends_on", {}).keys() <= SERVICES.keys()
        for needed, how in service.get("depends_on", {}).items():
            assert how == {"condition": "service_healthy"}
            assert SERVICES[needed]["healthcheck"]["test"][0] == "CMD"
        health = service.get("healthcheck", {})
        assert health.keys() <= HEALTHCHECK
        times = [health[key] for key in ("interval", "timeout", "start_period") if key in health]
        for time in [*times, service.get("stop_grace_period", "1s")]:
            assert DURATION.fullmatch(time)
        for volume in service.get("volumes", []):
            assert volume.partition(":")[0] in COMPOSE["volumes"]
        assert all(isinstance(text, str) for text in service.get("environment", {}).values())
        assert service["restart"] == "unless-stopped"


def test_the_server_forgets_nothing_and_is_open_to_this_machine_alone() -> None:
    """An append-only file on a volume, no eviction, sized as the embedded one, loopback only."""
    server = SERVICES["valkey"]
    options = dict(zip(server["command"][1::2], server["command"][2::2], strict=True))
    assert options["--appendonly"] == "yes" and options["--appendfsync"] == "everysec"
    embedded = EmbeddedServer(durable=False)._server_options(1, Path("/"))
    sized = {"--maxmemory-policy", "--hash-max-listpack-value", "--stream-node-max-bytes"}
    kept = dict(zip(embedded[::2], embedded[1::2], strict=True))
    assert {name: options.get(name) for name in sized} == {name: kept[name] for name in sized}
    assert server["volumes"] == ["valkey:/data"]
    assert all(port.startswith("127.0.0.1:") for port in server["ports"])


@pytest.mark.parametrize("name", OURS)
def test_a_service_of_ours_runs_a_command_that_there_is(name: str) -> None:
    """With options that it has, and variables that are read; without rights it does not need."""
    service = OURS[name]
    parses(service["command"])
    check = service.get("healthcheck", {}).get("test", ["CMD", "tocsin", "scheduler", "--health"])
    assert check[:2] == ["CMD", "tocsin"]
    parses(check[2:])
    assert service["environment"].keys() <= VARIABLES
    assert service["cap_drop"] == ["ALL"] and service["init"] is True
    assert "container_name" not in service, "it can be scaled"
    assert all(port.startswith("127.0.0.1:") for port in service.get("ports", []))


def test_the_worker_listens_to_the_queue_of_a_runner_that_names_none() -> None:
    """So that a turn of a child that was registered without more ado is run."""
    command = SERVICES["worker"]["command"]
    queues = [value for option, value in pairwise(command) if option in ("--queue", "-q")]
    assert (queues or [QUEUE]) == [CommandRunner.model_fields["queue"].default]


def test_two_schedulers_run() -> None:
    """So that one may die, or be replaced, and no timer waits for it."""
    assert SERVICES["scheduler"]["deploy"]["replicas"] == 2


def test_the_image_runs_as_nobody_in_particular_and_holds_no_tools_of_its_build() -> None:
    """Built in one stage, copied into the next, under a user that is not root."""
    build, image = STAGES
    assert image.startswith("FROM python:3.") and "slim" in image.split("\n")[0]
    assert re.search(r" AS build$", build.split("\n")[0])
    assert lines(image, "USER") == ["10001"], "by number, so that a cluster can see it is not root"
    assert [each.split()[0] for each in lines(image, "COPY")] == ["--from=build"]
    assert "pip" not in image and "apt-get" not in image and "ADD " not in DOCKERFILE
    assert not re.search(r"(?i)password|token|secret", DOCKERFILE)


def test_what_is_built_from_is_there_and_let_through() -> None:
    """Each file that is copied exists, and `.dockerignore` lets it into the build."""
    ignore = (ROOT / ".dockerignore").read_text().split()
    assert ignore[0] == "*"
    copied = [each for text in lines(STAGES[0], "COPY") for each in text.split()[:-1]]
    for name in copied:
        assert (ROOT / name).exists() and f"!{name}" in ignore, name


def test_the_image_runs_commands_that_there_are() -> None:
    """As its entry point, by default, and as its health check."""
    image = STAGES[-1]
    (entry,), (default,), (check,) = (
        lines(image, word) for word in ("ENTRYPOINT", "CMD", "HEALTHCHECK")
    )
    assert words(entry) == ["tocsin"]
    parses(words(default))
    options, _, command = check.partition("CMD")
    assert all(re.fullmatch(r"--[a-z-]+=\w+", each) for each in shlex.split(options))
    program, *rest = words(command)
    assert program == "tocsin"
    parses(rest)


def test_the_commands_of_the_operators_guide_are_understood() -> None:
    """Each `tocsin ...`, in a line of its own or among words, with its options."""
    found = re.findall(
        r"(?:`|^(?:TOCSIN_\w+=\S+ )?)tocsin ([a-z][^`\n#]*)", OPERATIONS, re.MULTILINE
    )
    assert len(found) > 8
    for command in found:
        parses(shlex.split(command))


def test_the_server_knows_what_the_operators_guide_tells_it() -> None:
    """Its settings by their names and values, and the commands that a backup takes."""
    rows = re.findall(r"^\| ((?:`[a-z-]+ [\w]+`(?:, )?)+) \|", OPERATIONS, re.MULTILINE)
    settings = [pair.split() for row in rows for pair in re.findall(r"`([^`]+)`", row)]
    assert {"appendonly", "maxmemory-policy", "stream-node-max-bytes"} <= {n for n, _ in settings}
    with EmbeddedServer(durable=False) as server, redis.Redis.from_url(server.url) as client:
        told = re.findall(r"^redis-cli -u \$TOCSIN_URL ([^#\n]+)", OPERATIONS, re.MULTILINE)
        assert len(told) == 3
        for command in told:
            assert client.execute_command(*command.split()), command
        for name, value in settings:
            assert client.config_set(name, value), name


def test_a_variable_of_the_operators_guide_is_read() -> None:
    """`TOCSIN_...`, wherever it stands."""
    assert set(re.findall(r"TOCSIN_[A-Z_]+", OPERATIONS)) <= VARIABLES
