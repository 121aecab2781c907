"""Hooks in the settings of hosts: put in beside what is there, and taken out again."""

from __future__ import annotations

import json
import shlex
import subprocess
from typing import Any

import pytest

from tests.workers.cli.conftest import cli  # noqa: F401 - a fixture

THEIRS: dict[str, Any] = {
    "model": "x",
    "hooks": {"Stop": [{"hooks": [{"type": "command", "command": "theirs"}]}]},
}


@pytest.mark.parametrize(
    ("host", "scope", "path"),
    [
        ("claude-code", "user", ".claude/settings.json"),
        ("claude-code", "project", ".claude/settings.local.json"),
        ("codex", "user", ".codex/hooks.json"),
        ("codex", "project", ".codex/hooks.json"),
    ],
)
def test_hooks_go_in_beside_others_and_out_again(cli, host, scope, path):  # noqa: F811
    """What is there stays; installed twice it is there once; undone the file is as it was."""
    file = cli.home / path
    file.parent.mkdir()
    file.write_text(json.dumps(THEIRS))
    cli.variables["CODEX_HOME"] = str(cli.home / ".codex")
    for changed in (True, False):
        assert cli.json("hook", host, "install", "--scope", scope)["changed"] is changed
    found = json.loads(file.read_text())
    assert found["model"] == "x" and found["hooks"]["Stop"][0] == THEIRS["hooks"]["Stop"][0]
    ours = cli.json("hook", host, "print")["hooks"]
    assert all(entry in found["hooks"][event] for event in ours for entry in ours[event])
    assert len(found["hooks"]["Stop"]) == 2
    assert cli.json("hook", host, "install", "--undo", "--scope", scope)["undone"]
    assert json.loads(file.read_text()) == THEIRS
    assert not cli.json("hook", host, "install", "--undo", "--scope", scope)["undone"]


def test_a_seat_is_in_the_command_if_it_is_named(cli):  # noqa: F811
    """With --seat a host needs no variable: what it runs names the agent, and no token."""
    bare = cli.json("hook", "generic", "print")["hooks"]["stop"]
    named = cli.json("hook", "generic", "print", "--seat", "release-42/scout")["hooks"]["stop"]
    assert "release-42" not in bare
    assert shlex.split(named)[:2] == ["/usr/bin/env", "TOCSIN_SEAT=release-42/scout"]
    assert shlex.split(named)[2:] == shlex.split(bare)


def test_only_the_user_knows_a_generic_hosts_settings(cli):  # noqa: F811
    """Nothing is put anywhere; the refusal says what to do."""
    assert "generic print" in cli.refused("hook", "generic", "install")["detail"]


def test_commands_stand_the_shell(cli, tmp_path):  # noqa: F811
    """A folder with spaces and quotes in its name does no harm to what a host's shell runs."""
    cli.variables["XDG_STATE_HOME"] = str(tmp_path / "it's a $HOME")
    command = cli.json("hook", "claude-code", "print")["hooks"]["PostToolUse"][0]["hooks"][0]
    done = subprocess.run(
        ["/bin/sh", "-c", command["command"]],
        input='{"session_id":"s"}', capture_output=True, text=True, timeout=30, check=False,
        env={"TOCSIN_SEAT": ""},
    )  # fmt: skip
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
