"""`tocsin connect`: an agent of a host joins by one command, and leaves by one."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path
from typing import Any

import pytest

from tests.workers.cli.conftest import Cli
from tocsin.workers.hosts.servers import SERVERS, Scope

HOSTS = list(SERVERS)


@pytest.fixture
def machine(cli: Cli) -> Cli:
    """A herd, and none of the hosts installed."""
    cli.staff("scout", "planner")
    cli.variables |= {
        "PATH": str(cli.home / "bin"),
        "CLAUDE_CONFIG_DIR": "",
        "CODEX_HOME": "",
        "PI_CODING_AGENT_DIR": "",
    }
    return cli


def everything(folder: Path) -> dict[str, bytes]:
    """All files below a folder, but for what Tocsin keeps itself."""
    found = [path for path in folder.rglob("*") if path.is_file()]
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in found
        if path.relative_to(folder).parts[0] not in ("seats", ".git")
    }


def empty(folder: Path) -> set[Path]:
    """Folders with nothing in them."""
    return {each for each in folder.rglob("*") if each.is_dir() and not any(each.iterdir())}


def entry(cli: Cli, host: str, scope: str = "project") -> Any:
    """Our entry, as the host would read it."""
    servers = SERVERS[host]
    path = servers.path(Scope(scope), cli.home, cli.variables)
    text = path.read_text()
    return (tomllib if path.suffix == ".toml" else json).loads(text)[servers.key]["tocsin"]


def connect(cli: Cli, host: str, *words: str, seat: str = "release-42/scout"):
    return cli.json("connect", host, "--seat", seat, *words)


def quickly(cli: Cli, host: str, *words: str, seat: str = "release-42/scout"):
    return connect(cli, host, "--no-check", *words, seat=seat)


@pytest.mark.parametrize("scope", ["project", "user"])
@pytest.mark.parametrize("host", HOSTS)
def test_a_host_is_connected_and_put_back(machine, host, scope):
    """What is written names the seat and no token; --undo leaves no trace of it."""
    before, bare = everything(machine.home), empty(machine.home)
    told = quickly(machine, host, "--scope", scope)
    written = {str(Path(path).relative_to(machine.home)) for path in told["files"]}
    assert everything(machine.home).keys() - before.keys() == written
    variables = entry(machine, host, scope)[SERVERS[host].variables]
    assert variables["TOCSIN_SEAT"] == "release-42/scout"
    assert variables["TOCSIN_FLEET"] == machine.fleet and variables["TOCSIN_URL"] == machine.url
    token = machine.token("release-42/scout").encode()
    assert not any(token in text for text in everything(machine.home).values())
    undone = machine.json("connect", host, "--scope", scope, "--undo")
    assert sorted(undone["files"]) == sorted(told["files"]) and undone["left"] == []
    assert everything(machine.home) == before and empty(machine.home) == bare
    assert machine.json("connect", host, "--scope", scope, "--undo")["files"] == []


@pytest.mark.parametrize("host", HOSTS)
def test_what_was_written_is_tried(machine, host):
    """The server starts with the variables of the barest host, and its tools work."""
    told = connect(machine, host)
    assert [check["ok"] for check in told["checks"]] == [True, None]
    assert "9 tools, herd release-42" in told["checks"][0]["told"]
    assert "not tried" in told["checks"][1]["told"]


@pytest.mark.parametrize("host", HOSTS)
def test_print_writes_nothing(machine, host):
    """It shows each file with what would be in it."""
    before = everything(machine.home)
    shown = machine.json("connect", host, "--seat", "release-42/scout", "--print")
    assert everything(machine.home) == before
    told = quickly(machine, host)
    assert list(shown) == told["files"]
    assert all(Path(path).read_text() == text for path, text in shown.items())


def test_again_changes_nothing_also_after_a_rotation(machine):
    """Entries have no token: what was connected stays so, whatever the token is."""
    quickly(machine, "codex")
    before = everything(machine.home)
    machine.good("seat", "rotate", "release-42/scout")
    told = connect(machine, "codex")
    assert told["checks"][0]["ok"] and everything(machine.home) == before


def test_one_place_has_one_seat(machine):
    """A second agent takes another folder, or replaces the first on purpose."""
    quickly(machine, "claude-code")
    error = machine.refused("connect", "claude-code", "--seat", "release-42/planner")
    assert "is there for seat release-42/scout of fleet" in error["detail"]
    assert "--replace" in error["detail"]
    assert entry(machine, "claude-code")["env"]["TOCSIN_SEAT"] == "release-42/scout"
    quickly(machine, "claude-code", "--replace", seat="release-42/planner")
    assert entry(machine, "claude-code")["env"]["TOCSIN_SEAT"] == "release-42/planner"
    machine.good("connect", "claude-code", "--undo")
    assert not (machine.home / ".mcp.json").exists()


def test_a_seat_of_another_fleet_is_another_seat(machine):
    """Herds of two fleets may bear one name; one does not slip into the place of the other."""
    quickly(machine, "pi")
    other = {"TOCSIN_FLEET": f"{machine.fleet}-2"}
    machine.good("herd", "open", "release-42", **other)
    machine.good("agent", "register", "scout", **other)
    error = machine.refused("connect", "pi", "--seat", "release-42/scout", **other)
    assert f"of fleet {machine.fleet}," in error["detail"]
    machine.good("agent", "close", "scout", "--yes", **other)
    machine.good("herd", "close", "release-42", "--yes", **other)


def test_a_seat_that_is_not_here_is_refused_first(machine):
    """Nothing is written for a seat whose token this machine does not have."""
    before = everything(machine.home)
    error = machine.refused("connect", "pi", "--seat", "release-42/nobody")
    assert "tocsin seat add" in error["detail"] and everything(machine.home) == before


def test_a_broken_file_is_left_as_it_is(machine):
    """Of two files, the second broken, neither is changed."""
    (machine.home / ".pi/extensions").mkdir(parents=True)
    (machine.home / ".pi/extensions/tocsin.ts").write_text("mine")
    (machine.home / ".pi/mcp.json").write_text('{"mcpServers": {}}')
    before = everything(machine.home)
    assert "tocsin.ts" in machine.refused("connect", "pi", "--seat", "release-42/scout")["detail"]
    assert everything(machine.home) == before
    (machine.home / ".mcp.json").write_text("{// mine\n}")
    error = machine.refused("connect", "claude-code", "--seat", "release-42/scout")
    assert '"TOCSIN_SEAT": "release-42/scout"' in error["detail"]


def test_what_cannot_be_renewed_stays_connected(machine):
    """A second time, with one file changed by somebody: nothing is taken out of the other."""
    quickly(machine, "opencode")
    (machine.home / ".opencode/plugins/tocsin.ts").write_text("mine")
    before = everything(machine.home)
    machine.refused("connect", "opencode", "--no-check", "--seat", "release-42/scout")
    assert everything(machine.home) == before
    machine.good("connect", "opencode", "--undo")
    assert not (machine.home / "opencode.json").exists()


def test_a_password_stays_out_of_files_of_hosts(machine):
    """A url with a password is in the user's own settings file, or nowhere (case 31)."""
    secret = machine.url.replace("redis://", "redis://:pass%40word@")
    before = everything(machine.home)
    error = machine.refused("connect", "pi", "--seat", "release-42/scout", TOCSIN_URL=secret)
    assert "config.toml" in error["detail"] and "pass" not in error["detail"].split("password")[0]
    assert everything(machine.home) == before
    settings = machine.home / "config/tocsin/config.toml"
    settings.parent.mkdir(parents=True)
    settings.write_text(f'url = "{machine.url}"\nfleet = "{machine.fleet}"\n')
    quickly(machine, "pi")
    assert set(entry(machine, "pi")["env"]) == {"TOCSIN_SEAT", "TOCSIN_DIR", "XDG_CONFIG_HOME"}


def test_a_server_that_cannot_be_reached_is_told(machine):
    """The files stay, the command fails, and says what does not work."""
    result = machine.run(
        "connect", "codex", "--seat", "release-42/scout", "--json", "--url", "redis://127.0.0.1:1"
    )
    assert result.exit_code == 1
    assert "tocsin seat add" in json.loads(result.stdout)["error"]["detail"]


def test_the_host_itself_is_asked(machine):
    """Where the host is on the PATH it lists its servers, and ours must be among them."""
    program = machine.home / "bin/codex"
    program.parent.mkdir()
    program.write_text("#!/bin/sh\necho tocsin: enabled\n")
    program.chmod(0o755)
    assert connect(machine, "codex")["checks"][1]["told"] == "tocsin: enabled"
    for said, told in (
        ("nothing", "it does not name the server; does it trust this folder?"),
        ("tocsin\n  status: failed to start", "status: failed to start"),
        ("tocsin (disabled)", "tocsin (disabled)"),
    ):
        program.write_text(f"#!/bin/sh\necho '{said}'\n")
        result = machine.run("connect", "codex", "--seat", "release-42/scout", "--json")
        assert result.exit_code == 1
        assert json.loads(result.stdout)["checks"][1]["told"] == told


def test_of_a_list_only_our_own_line_counts(machine):
    """A host that lists all its servers may say of another one that it failed."""
    program = machine.home / "bin/pi"
    program.parent.mkdir()
    program.write_text(
        "#!/bin/sh\necho ✗ other: failed\nprintf '✓ tocsin \\033[90mconnected\\033[0m'\n"
    )
    program.chmod(0o755)
    assert connect(machine, "pi")["checks"][1]["told"] == "✓ tocsin connected"
    program.write_text("#!/bin/sh\necho ✗ tocsin\n")
    result = machine.run("connect", "pi", "--seat", "release-42/scout", "--json")
    assert result.exit_code == 1 and json.loads(result.stdout)["checks"][1]["ok"] is False


def test_generic_prints_what_any_host_needs(machine):
    """The form that most hosts share, tried, and nothing written."""
    before = everything(machine.home)
    told = machine.json("connect", "generic", "--seat", "release-42/scout")
    assert told["checks"][0]["ok"]
    server = told["server"]["mcpServers"]["tocsin"]
    assert server["env"]["TOCSIN_SEAT"] == "release-42/scout"
    assert Path(server["command"]).is_absolute() and server["args"] == ["mcp"]
    assert everything(machine.home) == before


@pytest.mark.parametrize(
    "unset", ["${TOCSIN_SEAT}", "$TOCSIN_SEAT", "${TOCSIN_SEAT:-}", "{env:TOCSIN_SEAT}"]
)
def test_a_reference_that_no_host_filled_in_is_not_set(machine, unset):
    """A host that hands on `${TOCSIN_SEAT}` as it stands has named no seat and no fleet."""
    machine.good("seat", "use", "release-42/scout")
    mail = machine.json("inbox", TOCSIN_SEAT=unset, TOCSIN_HERD="${TOCSIN_HERD}", TOCSIN_AGENT="")
    assert mail["remaining"] == 0
