"""`docs/agents.md`: what it tells people to type works as it stands there."""

from __future__ import annotations

import json
import re
import shlex
import tomllib
from pathlib import Path

import pytest

from tocsin.workers.hosts.servers import SERVERS
from tocsin.workers.mcp.server import CHILD_TOOLS, PARENT_TOOLS

DOCUMENT = (Path(__file__).resolve().parents[3] / "docs/agents.md").read_text("utf-8")


def blocks(language):
    """The code blocks of one language."""
    return re.findall(rf"```{language}\n(.*?)```", DOCUMENT, re.DOTALL)


FROM_AFAR = [block for block in blocks("sh") if "TOCSIN_URL=https://" in block]
AT_HOME = [block for block in blocks("sh") if block not in FROM_AFAR]


def commands(*chosen):
    """The lines of these blocks with a command of ours, without remarks."""
    lines = "\n".join(chosen).replace("\\\n", " ").splitlines()
    return [shlex.split(line, comments=True) for line in lines if line.startswith("tocsin ")]


def test_the_way_to_two_agents_works(cli):
    """A herd, two agents and their seats, by the commands of the document."""
    run = [words[1:] for words in commands(*AT_HOME) if words[1] in ("herd", "agent", "seat")]
    assert len(run) == 4
    for words in run:
        cli.good(*words)
    seats = [f"{each['herd']}/{each['agent']}" for each in cli.json("seat", "list")]
    for name in re.findall(r'TOCSIN_SEAT"?\s*[:=]\s*"?([\w/-]+)', DOCUMENT):
        assert name in seats
    hosts = [words[1:] for words in commands(*AT_HOME) if words[1] == "connect"]
    assert {words[1] for words in hosts} == set(SERVERS)
    for words in hosts:
        cli.good(*words, "--no-check")
        written = re.findall(r"\| (`.*?) \| `", DOCUMENT)
    named = {name for row in written for name in re.findall(r"`([^`]+)`", row)}
    assert {
        str(each.relative_to(cli.home)) for each in cli.home.rglob("*") if each.is_file()
    } >= named
    cli.good("agent", "close", "scout", "--yes")
    cli.good("agent", "close", "planner", "--yes")
    cli.good("herd", "close", "release-42", "--yes")


@pytest.mark.parametrize("words", commands(*blocks("sh")), ids=" ".join)
def test_every_command_is_there(cli, words):
    """No command or option of the document is made up."""
    options = [word for word in words if word.startswith("--")]
    names = [word for word in words[1:3] if re.fullmatch("[a-z-]+", word)]
    group = names if words[1] in ("herd", "agent", "seat") else names[:1]
    shown = cli.good(*group, "--help", COLUMNS="200").output
    assert all(option in shown for option in options)


def test_configurations_can_be_read():
    """JSON is JSON, TOML is TOML, and both start what there is."""
    [config] = [json.loads(block) for block in blocks("json")]
    server = config["mcpServers"]["tocsin"]
    assert [server["command"], *server["args"]] == ["tocsin", "mcp"]
    assert all(tomllib.loads(block)["mcp_servers"]["tocsin"] for block in blocks("toml"))


def test_the_table_of_tools_is_whole():
    """Each tool stands in the table, with who has it."""
    rows = re.findall(r"^\| (`.*?) \| (yes)? ?\| (yes)? ?\|", DOCUMENT, re.MULTILINE)
    told = {
        name: (parent == "yes", child == "yes")
        for names, parent, child in rows
        for name in re.findall(r"`(\w+)`", names)
    }
    parent, child = PARENT_TOOLS.split(), CHILD_TOOLS.split()
    assert told == {name: (name in parent, name in child) for name in {*parent, *child}}
