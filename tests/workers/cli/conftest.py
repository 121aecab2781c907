"""The command line of one test: its own folders, its own fleet, a person who types."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from tests.workers.cli.terminal import Terminal
from tocsin.workers.cli.app import app

PROGRAM = (sys.executable, "-m", "tocsin.workers.cli.app")


class Cli:
    """Runs `tocsin` in this process, or as a process of its own, with one machine's folders."""

    def __init__(self, home: Path, url: str, fleet: str) -> None:
        self.home = home
        self.url = url
        self.fleet = fleet
        self.seats_file = home / "seats" / "seats.json"
        self.variables: dict[str, str] = {
            "TOCSIN_URL": url,
            "TOCSIN_FLEET": fleet,
            "TOCSIN_DIR": str(home / "seats"),
            "XDG_CONFIG_HOME": str(home / "config"),
            "HOME": str(home),
            "TZ": "Europe/Berlin",
        }

    def run(self, *args: str, typed: str | bytes | None = None, **variables: str) -> Result:
        """One command; `typed` is its stdin, and `variables` are set for it only."""
        return CliRunner().invoke(
            app, [str(each) for each in args], input=typed, env=self.variables | variables
        )

    def good(self, *args: str, **how: Any) -> Result:
        """One command that must end well."""
        result = self.run(*args, **how)
        assert result.exit_code == 0, f"{args}: {result.output}"
        return result

    def json(self, *args: str, **how: Any) -> Any:
        """The one JSON document that a command which ends well prints."""
        return json.loads(self.good(*args, "--json", **how).stdout)

    def refused(self, *args: str, **how: Any) -> dict[str, Any]:
        """The error that a refused command prints as JSON, and nothing beside it."""
        result = self.run(*args, "--json", **how)
        assert result.exit_code == 1, f"{args}: {result.exit_code} {result.output}"
        document = json.loads(result.stdout)
        assert list(document) == ["error"]
        assert list(document["error"]) == ["code", "operation", "detail", "retryable"]
        error: dict[str, Any] = document["error"]
        return error

    def start(self, *args: str, **how: Any) -> subprocess.Popen[str]:
        """The same as a process of its own."""
        return subprocess.Popen(
            [*PROGRAM, *args],
            env=os.environ | self.variables | how.pop("variables", {}),
            cwd=self.home,
            stdout=how.pop("stdout", subprocess.PIPE),
            stderr=how.pop("stderr", subprocess.PIPE),
            text=True,
            **how,
        )

    def at_terminal(self, *args: str) -> Terminal:
        """The same at a terminal, where a person sits."""
        width = {"COLUMNS": "100", "TERM": "xterm-256color"}
        env = os.environ | self.variables | width
        return Terminal([*PROGRAM, *args], env=env, cwd=self.home)

    def token(self, seat: str) -> str:
        """The token that the seat file holds."""
        places = json.loads(self.seats_file.read_text())["places"]
        return str(next(each["seats"][seat]["token"] for each in places if seat in each["seats"]))

    def staff(self, *children: str, herd: str = "release-42") -> None:
        """A herd with children, whose seats are all on this machine; the parent's is current."""
        self.good("herd", "open", herd)
        for child in children:
            self.good("agent", "register", child)

    def working(self, child: str = "scout", text: str = "Find how auth works") -> str:
        """A task that the child has seen and so begun."""
        task: str = self.json("task", "delegate", child, text)["id"]
        self.good("inbox", "--seat", f"release-42/{child}")
        return task

    def waiting(self) -> tuple[str, str]:
        """A task of scout that waits for planner's answer, and the id of the question."""
        task = self.working()
        sent = self.json(
            "message", "planner", "Which backoff?", "--task", task, "--expects-reply",
            "--seat", "release-42/scout",
        )  # fmt: skip
        return task, sent["message_id"]


@pytest.fixture
def cli(tmp_path: Path, url: str, fleet_name: str, monkeypatch: pytest.MonkeyPatch) -> Cli:
    """A machine with nothing on it yet, in front of a fleet that nobody has used."""
    (tmp_path / ".git").mkdir()  # the search for a project file ends here
    monkeypatch.chdir(tmp_path)
    return Cli(tmp_path, url, fleet_name)
