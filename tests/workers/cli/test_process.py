"""The installed program as a process: exit codes, streams, secrets, a person at a terminal."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from typer.main import get_command
from typer.testing import CliRunner

from tocsin.workers.cli.app import app

SECRET = "p%40ss-word"
NOWHERE = f"redis://user:{SECRET}@127.0.0.1:1/0"


def run(cli, *args, **variables):
    """One command as a process, to its end."""
    with cli.start(*args, variables=variables, stdin=subprocess.DEVNULL) as process:
        out, err = process.communicate(timeout=60)
    return process.returncode, out, err


def test_the_console_script(cli):
    """The console script is installed and says its version."""
    script = shutil.which("tocsin", path=str(Path(sys.executable).parent))
    assert script is not None
    done = subprocess.run([script, "--version"], capture_output=True, text=True, check=True)
    assert done.stdout.startswith("tocsin ")


@pytest.mark.parametrize(
    ("args", "code"),
    [
        (["seat", "list"], 0),
        (["settings"], 0),
        (["inbox"], 1),
        (["nonsense"], 2),
        (["task"], 2),
        (["task", "list", "--nope"], 2),
        (["task", "delegate"], 2),
        (["task", "list", "--limit", "many"], 2),
        (["herd", "list", "--url", "redis://127.0.0.1:1/0"], 69),
        (["herd", "list", "--url", "redis://nowhere.invalid/0"], 69),
        (["herd", "list", "--url", "localhost"], 1),
        (["herd", "list", "--url", "http://127.0.0.1:1"], 1),
        (["herd", "list", "--fleet", "My Fleet"], 1),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else str(value),
)
def test_exit_codes(cli, args, code):
    """0 well, 1 refused, 2 usage, 69 the server cannot be reached; errors are on stderr."""
    done = cli.run(*args)
    assert done.exit_code == code, done.output
    assert "Traceback" not in done.output
    assert bool(done.stdout) is (code == 0 or args == ["task"])


def test_exit_codes_of_a_process(cli):
    """A process ends with the same codes, and keeps errors on stderr."""
    assert run(cli, "seat", "list")[0] == 0
    code, out, err = run(cli, "inbox")
    assert (code, out, err[:7]) == (1, "", "error: ")
    assert run(cli, "task", "delegate")[0] == 2
    code, out, err = run(cli, "herd", "list", TOCSIN_URL=NOWHERE)
    assert (code, out) == (69, "") and "redis://user:***@127.0.0.1:1/0" in err


@pytest.mark.parametrize("as_json", [False, True], ids=["people", "json"])
def test_a_password_appears_nowhere(cli, as_json):
    """Case 31: the password of a url is in no output of a failure, nor in the seat file."""
    flag = ["--json"] if as_json else []
    for args in (["herd", "list"], ["herd", "open", "h"], ["doctor"], ["inbox"], ["settings"]):
        done = cli.run(*args, *flag, TOCSIN_URL=NOWHERE)
        assert SECRET not in done.output and "p@ss-word" not in done.output
    if cli.seats_file.exists():
        assert SECRET not in cli.seats_file.read_text()


def test_a_token_is_never_an_argument(cli):
    """No command takes a token as an argument or option."""

    def names(command):
        found = [option for each in command.params for option in each.opts]
        for child in getattr(command, "commands", {}).values():
            found += names(child)
        return found

    options = set(names(get_command(app)))
    assert {option for option in options if "token" in option} == {"--print-token"}


def test_a_token_is_asked_for(cli):
    """Case 31: at a terminal the token of a seat is asked for, and not shown while it is typed."""
    cli.staff("scout")
    token = cli.token("release-42/scout")
    cli.good("seat", "forget", "release-42/scout")
    terminal = cli.at_terminal("seat", "add", "release-42/scout")
    terminal.expect("Token of release-42/scout")
    terminal.type(token)
    assert terminal.end() == 0
    assert token not in terminal.screen
    assert cli.token("release-42/scout") == token


def test_a_person_is_asked_before_a_herd_is_closed(cli):
    """At a terminal closing asks; no is no, and --yes does not ask."""
    cli.staff()
    terminal = cli.at_terminal("herd", "close", "release-42")
    terminal.expect("Close herd release-42")
    terminal.type("n")
    assert terminal.end() == 1
    assert cli.json("herd", "show")["state"] == "open"
    assert cli.at_terminal("herd", "close", "release-42", "--yes").end() == 0
    assert cli.json("herd", "show")["state"] == "closed"


def test_an_ascii_terminal(cli):
    """A terminal that knows only ASCII gets escapes instead of an error."""
    cli.staff("scout")
    task = cli.working(text="wörld")
    code, out, err = run(cli, "task", "show", task, PYTHONIOENCODING="ascii")
    assert (code, err) == (0, "")
    assert "w\\xf6rld" in out


def test_two_registrations_at_once(cli):
    """Seats stored by processes at the same moment are all kept."""
    cli.staff()
    names = [f"child-{number}" for number in range(6)]
    running = [cli.start("agent", "register", name) for name in names]
    for process in running:
        process.communicate(timeout=60)
        assert process.returncode == 0
    assert sorted(seat["agent"] for seat in cli.json("seat", "list")) == sorted([*names, "parent"])


def test_completion(cli):
    """The shell offers seats, agents, tasks and settings; offline, and to strangers, nothing."""
    cli.staff("scout", "planner")
    task, question = cli.waiting()

    def offers(*typed, **variables):
        request = {
            "_TOCSIN_COMPLETE": "complete_bash",
            "COMP_WORDS": " ".join(["tocsin", *typed]),
            "COMP_CWORD": str(len(typed)),
        }
        env = cli.variables | request | variables
        done = CliRunner().invoke(app, [], env=env, prog_name="tocsin")
        assert done.stderr == ""
        return done.stdout.split()

    assert offers("task", "show", "task_") == [task]
    assert offers("reply", "msg_") == [question]
    assert offers("message", "p") == ["parent", "planner"]
    assert offers("seat", "use", "release-42/s") == ["release-42/scout"]
    assert offers("settings", "get", "reply") == ["reply_timeout"]
    assert offers("task", "show", "task_", TOCSIN_DIR=str(cli.home / "none")) == []
    assert offers("task", "show", "task_", TOCSIN_URL="redis://127.0.0.1:1/0") == []
