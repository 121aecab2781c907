"""Herds and agents: opened, looked at, closed; what is refused, and what is printed of it."""

from __future__ import annotations

import json
import signal

import pytest
from typer.main import get_command

from tocsin.broker import Broker, keys
from tocsin.workers.cli.app import app


def test_a_herd_from_open_to_closed(cli):
    """A herd is opened, listed, shown with its agents and settings, and closed."""
    opened = cli.json("herd", "open", "release-42", "--set", "reply_timeout=10m")
    assert (opened["herd"], opened["state"], opened["token"]) == ("release-42", "open", None)
    assert opened["settings"]["reply_timeout"] == "10m"
    assert opened["settings"]["stale_wait_threshold"] == 5
    assert (opened["sources"]["reply_timeout"], opened["sources"]["lease"]) == (
        "argument",
        "default",
    )
    assert cli.json("herd", "list") == [{"herd": "release-42", "state": "open", "tasks": 0}]
    assert [agent["agent"] for agent in cli.json("herd", "show")["agents"]] == ["parent"]
    assert cli.json("herd", "close", "release-42") == {"herd": "release-42", "state": "closed"}


def test_a_closed_herd_is_still_read(cli):
    """The records of a closed herd stay readable with its parent's seat; nothing else goes on."""
    cli.staff("scout")
    task = cli.working()
    cli.good("herd", "close", "release-42")
    assert cli.json("herd", "show")["state"] == "closed"
    assert cli.json("task", "show", task)["state"] == "cancelled"
    assert cli.json("herd", "journal")[-1]["event"] == "closed"
    assert cli.json("task", "wait", task)["settled"][0]["status"] == "cancelled"
    assert cli.refused("message", "scout", "x")["code"] == "herd_closed"
    assert cli.refused("agent", "register", "x")["code"] == "herd_closed"
    assert [seat["agent"] for seat in cli.json("seat", "list")] == ["parent"]


def test_settings_of_this_machine_are_the_herds(cli):
    """A herd that is opened takes the settings of the environment, and says so."""
    opened = cli.json("herd", "open", "release-42", TOCSIN_STALE_WAIT_THRESHOLD="15")
    assert opened["settings"]["stale_wait_threshold"] == 15
    assert opened["sources"]["stale_wait_threshold"] == "environment"


def test_the_number_of_partitions_is_that_of_the_first_use(cli):
    """`TOCSIN_PARTITIONS` holds for a new fleet; another number later is refused, none follows."""
    cli.good("herd", "open", "release-42", TOCSIN_PARTITIONS="64")
    refusal = cli.refused("herd", "list", TOCSIN_PARTITIONS="8")
    assert refusal["code"] == "invalid_input"
    assert "has 64 partitions" in refusal["detail"] and "TOCSIN_PARTITIONS" in refusal["detail"]
    assert cli.json("herd", "list") == cli.json("herd", "list", TOCSIN_PARTITIONS="64")


def test_reopening(cli):
    """Opening again with the seat on this machine reopens, changing only what is given."""
    cli.good("herd", "open", "release-42", "--set", "reply_timeout=10m")
    token = cli.token("release-42/parent")
    again = cli.json("herd", "open", "release-42", "--set", "grace=1m")
    assert (again["settings"]["reply_timeout"], again["settings"]["grace"]) == ("10m", "1m")
    assert cli.token("release-42/parent") == token


def test_somebody_elses_herd(cli):
    """A herd that others opened is refused, on a machine without its parent's seat."""
    cli.good("herd", "open", "release-42")
    elsewhere = {"TOCSIN_DIR": str(cli.home / "other")}
    assert cli.refused("herd", "open", "release-42", **elsewhere)["code"] == "herd_exists"
    assert cli.refused("herd", "close", "release-42", **elsewhere)["code"] == "invalid_input"
    assert cli.json("seat", "list", **elsewhere) == []


@pytest.mark.parametrize(
    ("args", "says"),
    [
        (["Release"], "is not a name"),
        (["a/b"], "is not a name"),
        ([""], "is not a name"),
        (["h", "--set", "reply_timeout"], "is not NAME=VALUE"),
        (["h", "--set", "reply_timeot=5m"], "did you mean reply_timeout?"),
        (["h", "--set", "reply_timeout=soon"], "reply_timeout is 'soon'"),
        (["h", "--set", "url=redis://h"], "no herd has it"),
    ],
)
def test_a_herd_that_cannot_be(cli, args, says):
    """A name or setting that breaks its rule is named, and no herd is opened."""
    error = cli.refused("herd", "open", *args)
    assert error["code"] == "invalid_input"
    assert says in error["detail"]
    assert cli.json("herd", "list") == []


def test_registering(cli):
    """A registered child is a seat of this machine; its token is shown only where asked for."""
    cli.staff()
    made = cli.good("agent", "register", "scout", "--role", "researcher", "--label", "Scout")
    assert "tok_" not in made.output
    shown = cli.json("agent", "register", "planner", "--print-token")
    assert shown == {
        "herd": "release-42",
        "agent": "planner",
        "generation": 1,
        "token": cli.token("release-42/planner"),
    }
    scout = cli.json("agent", "list")[1]
    assert (scout["agent"], scout["role"], scout["label"], scout["present"]) == (
        "scout",
        "researcher",
        "Scout",
        False,
    )


def test_registering_twice(cli):
    """A name is registered once; --exist-ok keeps it, with the token that is here."""
    cli.staff("scout")
    token = cli.token("release-42/scout")
    assert cli.refused("agent", "register", "scout")["code"] == "agent_exists"
    assert cli.json("agent", "register", "scout", "--exist-ok")["token"] is None
    assert cli.token("release-42/scout") == token


def test_only_the_parent_registers(cli):
    """A child's seat registers and closes nobody; who is there it may see."""
    cli.staff("scout")
    listed = cli.json("agent", "list", "--seat", "release-42/scout")
    assert [each["agent"] for each in listed] == ["parent", "scout"]
    for command in (["register", "x"], ["close", "scout"]):
        error = cli.refused("agent", *command, "--seat", "release-42/scout")
        assert error["code"] == "forbidden"


def test_closing_an_agent(cli):
    """A closed child is gone from the seats; its name is used anew as another generation."""
    cli.staff("scout")
    task = cli.working()
    assert cli.json("agent", "close", "scout", "--reason", "done") == {
        "herd": "release-42",
        "agent": "scout",
        "state": "closed",
    }
    assert cli.json("task", "show", task)["state"] == "cancelled"
    assert [seat["agent"] for seat in cli.json("seat", "list")] == ["parent"]
    assert cli.json("agent", "register", "scout")["generation"] == 2


def test_the_roster_is_the_list(cli):
    """`roster` is `agent list`, for people and as JSON."""
    cli.staff("scout", "planner")
    cli.waiting()
    names = [agent["agent"] for agent in cli.json("roster")]
    assert names == ["parent", "scout", "planner"]
    table = cli.good("roster").stdout
    assert "1 to answer" in table and "1 asked" in table
    assert cli.good("agent", "list").stdout.split()[:3] == table.split()[:3]


def test_the_journal(cli):
    """The journal has what happened, oldest first; `--after` goes on from an entry."""
    cli.staff("scout")
    entries = cli.json("herd", "journal")
    events = [entry["event"] for entry in entries]
    assert events[0] == "opened" and "registered" in events
    assert cli.json("herd", "journal", "--after", entries[-2]["id"]) == entries[-1:] + cli.json(
        "herd", "journal", "--after", entries[-1]["id"]
    )
    assert len(cli.json("herd", "journal", "--limit", "1")) == 1


@pytest.mark.parametrize("after", ["x", "5", "-", "1-2-3", "٣-0", "msg_1"])
def test_an_entry_that_is_none(cli, after):
    """What is no entry of a journal is the caller's mistake, not the server's absence."""
    cli.staff()
    error = cli.refused("herd", "journal", f"--after={after}")
    assert (error["code"], error["retryable"]) == ("invalid_input", False)


def test_following_the_journal(cli):
    """`--follow` prints entries as they are written and ends when the herd is closed."""
    cli.staff()
    with cli.start("herd", "journal", "--follow", "--json") as following:
        assert following.stdout is not None
        assert json.loads(following.stdout.readline())["event"] == "opened"
        cli.good("agent", "register", "scout")
        cli.good("herd", "close", "release-42")
        rest, errors = following.communicate(timeout=30)
    events = [json.loads(line)["event"] for line in rest.splitlines()]
    assert (following.returncode, errors) == (0, "")
    assert "registered" in events and events[-1] == "closed"


def test_following_a_herd_that_is_closed_ends(cli):
    """Its past is shown, also where that is cut or left out, and there is nothing to wait for."""
    cli.staff()
    cli.good("herd", "close", "release-42", "--yes")
    past = cli.json("herd", "journal")
    for after in ([], ["--after", past[-1]["id"]]):
        with cli.start("herd", "journal", "--follow", "--json", *after) as following:
            shown, errors = following.communicate(timeout=20)
        assert (following.returncode, errors) == (0, "")
        lines = [json.loads(line)["id"] for line in shown.splitlines()]
        assert lines == ([] if after else [entry["id"] for entry in past])


def test_following_is_left_with_ctrl_c(cli):
    """Ctrl-C ends a follower with 130 and no traceback."""
    cli.staff()
    with cli.start("herd", "journal", "--follow") as following:
        assert following.stdout is not None
        assert "opened" in following.stdout.readline()
        following.send_signal(signal.SIGINT)
        _, errors = following.communicate(timeout=30)
    assert (following.returncode, errors) == (130, "")


def test_a_reader_that_has_seen_enough(cli):
    """A pipe that closes early, as of `head`, ends a command without a word."""
    cli.staff()
    with cli.start("herd", "journal", "--follow") as following:
        assert following.stdout is not None and following.stderr is not None
        following.stdout.readline()
        following.stdout.close()
        cli.good("agent", "register", "scout")
        following.wait(timeout=30)
        assert following.stderr.read() == ""


def test_help_has_an_example(cli):
    """Every command says what it does and shows an example."""

    def leaves(command, path):
        children = getattr(command, "commands", None)
        if not children:
            return [(path, command)]
        return [leaf for name, each in children.items() for leaf in leaves(each, [*path, name])]

    found = leaves(get_command(app), ["tocsin"])
    assert len(found) > 35
    for path, command in found:
        assert command.help, path
        assert "Example: tocsin" in (command.epilog or ""), path


def test_a_herd_under_an_agent_whose_seat_is_here(cli):
    """It is opened by the seat of that agent or its parent, and stands under it in the tree."""
    cli.staff("scout")
    opened = cli.json("herd", "open", "team", "--under", "release-42/scout")
    assert (opened["herd"], opened["under"]) == ("team", "release-42/scout")
    assert cli.refused("herd", "open", "team", "--under", "release-42/x")["code"] == "herd_exists"
    assert cli.refused("herd", "open", "more", "--under", "release-42")["code"] == "invalid_input"
    assert cli.refused("herd", "open", "more", "--under", "nobody/x")["code"] == "invalid_input"
    cli.good("scheduler", "--once")

    (top,) = cli.json("herd", "tree")
    (team,) = top["herds"]
    assert (top["herd"], top["under"], top["tie"]) == ("release-42", None, None)
    assert (team["herd"], team["under"], team["tie"]) == ("team", "release-42/scout", "tied")
    assert [each["herd"] for each in cli.json("herd", "tree", "team")] == ["team"]
    assert cli.refused("herd", "tree", "nope")["code"] == "unknown_herd"
    assert cli.json("herd", "list")[1] == {
        "herd": "team",
        "state": "open",
        "tasks": 0,
        "under": "release-42/scout",
        "tie": "tied",
    }
    assert cli.json("herd", "show", "team")["under"] == "release-42/scout"
    roster = cli.json("agent", "list", "--seat", "release-42/parent")
    assert {each["agent"]: each["herds"] for each in roster}["scout"] == ["team"]
    shown = cli.good("herd", "tree").output
    assert "release-42  open\n└── scout: team  open\n" in shown

    cli.good("herd", "close", "release-42")
    cli.good("scheduler", "--once")
    assert cli.json("herd", "tree")[0]["herds"][0]["state"] == "closed"


def test_an_orphan_is_marked_wherever_herds_are_listed(cli, url, fleet_name):
    """In the list, in the tree with the reason, and by the doctor."""
    cli.staff("scout")
    cli.good("herd", "open", "team", "--under", "release-42/scout")
    assert "not confirmed yet" in cli.good("herd", "list").output
    assert any("not confirmed" in each for each in found(cli))
    with Broker.connect(url, fleet=fleet_name) as broker:  # else the team would be closed with it
        home = broker.fleet().partition("release-42")
        led = keys.below(home, "leads", herd="release-42", agent="scout")
        assert broker.link.command("test", "DEL", led) == 1
    cli.good("agent", "close", "scout", "--seat", "release-42/parent")
    cli.good("agent", "register", "scout", "--seat", "release-42/parent")
    for _ in range(2):  # as before a scheduler told the orphan, so afterwards
        assert "orphan" in cli.good("herd", "list").output
        shown = cli.good("herd", "tree").output
        assert "team  open  orphan  was under release-42/scout (agent release-42/scout" in shown
        assert any("team is an orphan" in each for each in found(cli))
        cli.good("scheduler", "--once")
    notices = [each["body"] for each in cli.json("inbox", "--seat", "team/parent")["envelopes"]]
    assert any("stands alone now" in body for body in notices)


def found(cli) -> list[str]:
    """What the doctor says of herds."""
    findings = json.loads(cli.run("doctor", "--json").stdout)["findings"]
    return [each["detail"] for each in findings if each["check"] == "herds"]
