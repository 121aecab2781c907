"""`tocsin settings`: where each value comes from, and setting it in files and in open herds."""

from __future__ import annotations

import pytest

from tocsin.broker.settings import ENV_NAMES


def one(cli, name, **variables):
    """One row of the list."""
    rows = cli.json("settings", "list", **variables)
    return next(row for row in rows if row["name"] == name)


def test_every_setting_with_its_layer(cli):
    """The list has every setting once, with its value and where that came from."""
    rows = cli.json("settings")
    assert [row["name"] for row in rows] == list(ENV_NAMES)
    assert {row["source"] for row in rows if row["name"] not in ("url", "fleet")} == {"default"}
    assert rows == cli.json("settings", "list")
    table = cli.good("settings").stdout
    assert all(name in table for name in ENV_NAMES)


def test_layers(cli):
    """User file, project file and environment overlay one another in this order."""
    cli.good("settings", "set", "reply_timeout", "10m", "--user")
    assert one(cli, "reply_timeout")["origin"] == f"user file {cli.home}/config/tocsin/config.toml"
    cli.good("settings", "set", "reply_timeout", "11m", "--project")
    row = one(cli, "reply_timeout")
    assert (row["value"], row["source"]) == ("11m", "project")
    row = one(cli, "reply_timeout", TOCSIN_REPLY_TIMEOUT="12m")
    assert (row["value"], row["origin"]) == ("12m", "TOCSIN_REPLY_TIMEOUT")
    cli.good("settings", "unset", "reply_timeout", "--project")
    cli.good("settings", "unset", "reply_timeout")
    row = one(cli, "reply_timeout")
    assert (row["value"], row["source"]) == ("20m", "default")
    assert not cli.json("settings", "unset", "reply_timeout")["removed"]


def test_a_stronger_layer_is_told(cli):
    """Who sets what a stronger layer overrules is warned of that."""
    result = cli.good("settings", "set", "grace", "1m", TOCSIN_GRACE="2m")
    assert "TOCSIN_GRACE is stronger and says 2m" in result.stderr


def test_one_value(cli):
    """`get` prints the value alone on stdout, and on stderr where it is from."""
    result = cli.good("settings", "get", "stale_wait_threshold", TOCSIN_STALE_WAIT_THRESHOLD="-3")
    assert (result.stdout, result.stderr) == ("off\n", "from TOCSIN_STALE_WAIT_THRESHOLD\n")
    assert cli.json("settings", "get", "stale_wait_threshold")["value"] == 5


def test_setting_an_open_herd(cli):
    """`--herd` changes the record of an open herd, whatever seat is current, and no file."""
    cli.staff("scout")
    cli.good("seat", "use", "release-42/scout")
    done = cli.json("settings", "set", "stale_wait_threshold", "off", "--herd", "release-42")
    assert (done["value"], done["source"], done["herd"]) == (0, "argument", "release-42")
    row = cli.json("settings", "get", "stale_wait_threshold", "--herd", "release-42")
    assert row == {"name": "stale_wait_threshold", "value": 0, "source": "argument"}
    rows = {row["name"]: row for row in cli.json("settings", "--herd", "release-42")}
    assert rows["stale_wait_threshold"]["shown"] == "off"
    assert rows["lease"]["source"] == "default"
    assert one(cli, "stale_wait_threshold")["value"] == 5
    assert "off" in cli.good("settings", "list", "--herd", "release-42").stdout


@pytest.mark.parametrize(
    ("args", "says"),
    [
        (["set", "reply_timeot", "5m"], "did you mean reply_timeout?"),
        (["set", "reply_timeout", "5 minutes"], "did you mean 5m?"),
        (["set", "max_attempts", "0"], "whole number from 1 to"),
        (["set", "max_attempts", "2.5"], "whole number"),
        (["set", "stale_wait_threshold", "nan"], "finite"),
        (["set", "url", "localhost"], "url"),
        (["set", "fleet", "My Fleet"], "fleet"),
        (["set", "fleet", "x", "--herd", "release-42"], "no herd has it"),
        (["set", "grace", "1m", "--herd", "nowhere"], "not on this machine"),
        (["get", "nonsense"], "unknown setting"),
        (["get", "url", "--herd", "release-42"], "no herd has it"),
        (["unset", "nonsense"], "unknown setting"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else None,
)
def test_what_is_refused(cli, args, says):
    """An unknown setting or a bad value is refused with the nearest right one, writing nothing."""
    cli.staff()
    error = cli.refused("settings", *args)
    assert error["code"] == "invalid_input"
    assert says in error["detail"]
    assert not (cli.home / "config").exists()


@pytest.mark.parametrize(
    "args",
    [
        ["set", "grace", "1m", "--user", "--project"],
        ["set", "grace", "1m", "--project", "--herd", "h"],
        ["set", "grace"],
        ["set", "stale_wait_threshold"],
        ["menu"],
        ["--json", "list"],
    ],
    ids=" ".join,
)
def test_usage(cli, args):
    """Two places, no value, and a menu without a terminal are mistakes of usage."""
    assert cli.run("settings", *args).exit_code == 2


def test_the_menu(cli):
    """At a terminal the threshold is chosen from the offered ones; a wrong number asks again."""
    terminal = cli.at_terminal("settings", "menu")
    terminal.expect("(now)")
    terminal.expect("Which")
    terminal.type("9")
    terminal.expect("1 to 7, please.")
    terminal.type("5")
    assert terminal.end() == 0
    assert one(cli, "stale_wait_threshold")["value"] == 10


def test_setting_without_a_value(cli):
    """`settings set stale_wait_threshold` without a value is the menu, for an open herd too."""
    cli.staff()
    terminal = cli.at_terminal("settings", "set", "stale_wait_threshold", "--herd", "release-42")
    terminal.expect("Which")
    terminal.type("1")
    assert terminal.end() == 0
    name = "stale_wait_threshold"
    assert cli.json("settings", "get", name, "--herd", "release-42")["value"] == 0


def test_a_misspelt_variable(cli):
    """A misspelt variable is refused with the right one, in every command; ours are none."""
    error = cli.refused("settings", TOCSIN_REPLY_TIMEOT="5m")
    assert "TOCSIN_REPLY_TIMEOUT" in error["detail"]
    ours = {f"TOCSIN_{name}": "" for name in ("SEAT", "HERD", "AGENT", "TOKEN", "DIR")}
    cli.good("settings", **ours)


def test_a_url_with_a_password(cli):
    """Case 31: a url is stored as it is and shown without its password."""
    secret = "redis://user:p%40ss@127.0.0.1:6379/0"
    result = cli.good("settings", "set", "url", secret, TOCSIN_URL="")
    result_json = cli.good("settings", "--json", TOCSIN_URL="")
    got = cli.good("settings", "get", "url", TOCSIN_URL="")
    assert secret in (cli.home / "config" / "tocsin" / "config.toml").read_text()
    for each in (result, result_json, got):
        assert "p%40ss" not in each.output and "p@ss" not in each.output
    assert got.stdout == "redis://user:***@127.0.0.1:6379/0\n"
