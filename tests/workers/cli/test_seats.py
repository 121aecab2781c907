"""Seats: tokens on this machine. Who may read them, whom a command speaks for, how they change."""

from __future__ import annotations

import json
import stat

import pytest

from tocsin.broker.settings import ConnectionSettings
from tocsin.workers.credentials import Credentials, StoredSeat, server_of


def mode(path) -> str:
    return oct(stat.S_IMODE(path.stat().st_mode))


def test_opening_stores_the_parent(cli):
    """Opening a herd stores its parent's token as the current seat, and shows it to nobody."""
    result = cli.good("herd", "open", "release-42")
    assert cli.json("seat", "list") == [
        {"herd": "release-42", "agent": "parent", "generation": 1, "current": True}
    ]
    assert cli.token("release-42/parent").startswith("tok_")
    assert "tok_" not in result.output


def test_only_the_owner_can_read(cli):
    """The seat file is for its owner only, and so is its folder; a change keeps it so."""
    cli.staff("scout")
    assert (mode(cli.seats_file), mode(cli.seats_file.parent)) == ("0o600", "0o700")
    assert sorted(path.name for path in cli.seats_file.parent.iterdir()) == [
        "seats.json",
        "seats.lock",
    ]


@pytest.mark.parametrize("open_to", [0o640, 0o604, 0o620, 0o666])
def test_a_file_open_to_others_is_refused(cli, open_to):
    """Tokens that others can use are not used: the refusal names the file and what to run."""
    cli.staff()
    cli.seats_file.chmod(open_to)
    error = cli.refused("roster")
    assert error["code"] == "invalid_input"
    assert f"chmod 600 {cli.seats_file}" in error["detail"]
    assert mode(cli.seats_file) == oct(open_to)


@pytest.mark.parametrize(
    "content",
    ["", "{", "[]", '{"places": 5}', '{"places": [{"server": "x"}]}', '{"more": 1}', "\xff"],
    ids=["empty", "broken", "list", "type", "missing", "unknown", "latin-1"],
)
def test_a_spoilt_file_is_refused(cli, content):
    """A seat file that cannot be understood is named, kept as it is, and none of it is shown."""
    cli.seats_file.parent.mkdir(mode=0o700)
    cli.seats_file.write_bytes(content.encode("latin-1"))
    cli.seats_file.chmod(0o600)
    for command in (["seat", "list"], ["herd", "open", "h"]):
        assert str(cli.seats_file) in cli.refused(*command)["detail"]
    assert cli.seats_file.read_bytes() == content.encode("latin-1")
    assert cli.json("herd", "list") == []


def test_a_folder_that_cannot_be_written_is_found_before_a_herd_is_opened(cli):
    """No herd is opened whose token could then not be kept."""
    cli.seats_file.parent.write_text("a file where the folder should be")
    assert "cannot be written" in cli.refused("herd", "open", "release-42")["detail"]
    assert cli.json("herd", "list") == []


def test_a_seat_is_offered_to_its_own_server_and_fleet_only(cli):
    """A token never goes to another server or fleet than the one it was made for."""
    cli.staff()
    assert (
        "not on this machine"
        in cli.refused("roster", "--fleet", f"{cli.fleet}-2", "--seat", "release-42/parent")[
            "detail"
        ]
    )
    assert cli.json("seat", "list", "--fleet", f"{cli.fleet}-2") == []


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("redis://localhost", "redis://127.0.0.1:6379/0"),
        ("redis://user:secret@Host:6379", "redis://host/0"),
        ("redis://[::1]:7000/3", "redis://localhost:7000?db=3"),
        ("unix:///run/redis.sock", "unix:///run/redis.sock?db=0"),
        ("https://broker.example/base/", "https://broker.example:443/base"),
        ("redis+cluster://user:secret@a:1,b", "redis+cluster://b:6379,a:1/0"),
        ("redis+sentinel://u:secret@m@a:1", "redis+sentinel://m@a:1/0?sentinel_password=secret"),
    ],
)
def test_one_server_has_one_name(one, other):
    """The ways to write one address are one server, and no secret is part of its name."""
    assert server_of(one) == server_of(other)
    assert "secret" not in server_of(one)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("redis://h/0", "redis://h/1"),
        ("redis://h:1", "redis://h:2"),
        ("redis://h", "rediss://h"),
        ("redis+sentinel://m@h", "redis+sentinel://n@h"),
        ("redis+sentinel://m@h/0", "redis+sentinel://m@h/1"),
        ("redis+cluster://h", "redis://h"),
        ("http://h/a", "http://h/b"),
    ],
)
def test_other_servers_have_other_names(one, other):
    """What differs in host, port, database, scheme or path is another server."""
    assert server_of(one) != server_of(other)


def test_the_seat_of_a_command(cli):
    """--seat comes before TOCSIN_SEAT, that before the current one; each names who speaks."""
    cli.staff("scout", "planner")
    speaks = {
        "parent": {},
        "scout": {"TOCSIN_SEAT": "release-42/scout"},
        "planner": {"TOCSIN_HERD": "release-42", "TOCSIN_AGENT": "planner"},
    }
    for agent, variables in speaks.items():
        assert cli.json("status", "idle", **variables)["agent"] == agent
    assert (
        cli.json("status", "idle", "--seat", "release-42/planner", TOCSIN_SEAT="release-42/scout")[
            "agent"
        ]
        == "planner"
    )


def test_a_seat_by_variables_alone(cli):
    """Herd, agent and token in variables are enough on a machine that keeps nothing."""
    cli.staff("scout")
    token = cli.token("release-42/scout")
    elsewhere = {"TOCSIN_DIR": str(cli.home / "other")}
    who = {"TOCSIN_HERD": "release-42", "TOCSIN_AGENT": "scout", "TOCSIN_TOKEN": token}
    assert cli.json("status", "idle", **elsewhere, **who)["agent"] == "scout"
    assert (
        cli.json("task", "list", **elsewhere, TOCSIN_SEAT="release-42/scout", TOCSIN_TOKEN=token)
        == []
    )
    assert not (cli.home / "other").exists()


@pytest.mark.parametrize(
    ("variables", "says"),
    [
        ({}, "no seat is chosen"),
        ({"TOCSIN_SEAT": "scout"}, "TOCSIN_SEAT 'scout' is not a seat: write herd/agent"),
        ({"TOCSIN_SEAT": "Release/scout"}, "herd of TOCSIN_SEAT 'Release' is not a name"),
        ({"TOCSIN_SEAT": "a/b/c"}, "agent of TOCSIN_SEAT 'b/c' is not a name"),
        ({"TOCSIN_HERD": "h"}, "TOCSIN_AGENT is not set"),
        ({"TOCSIN_AGENT": "scout"}, "TOCSIN_HERD is not set"),
        ({"TOCSIN_SEAT": "h/a", "TOCSIN_HERD": "h", "TOCSIN_AGENT": "b"}, "unset one"),
        ({"TOCSIN_SEAT": "h/a"}, "seat h/a of fleet"),
        ({"TOCSIN_SEAT": "h/a", "TOCSIN_TOKEN": "short"}, "token is not a token"),
    ],
)
def test_a_seat_that_is_none(cli, variables, says):
    """What names no seat, or two, is refused with what is wrong about it."""
    error = cli.refused("inbox", **variables)
    assert error["code"] == "invalid_input"
    assert says in error["detail"]


def test_a_wrong_token_is_not_shown(cli):
    """A token that proves nobody is refused as unauthorized, and appears nowhere."""
    cli.staff("scout")
    wrong = "tok_" + "w" * 43
    result = cli.run("inbox", TOCSIN_SEAT="release-42/scout", TOCSIN_TOKEN=wrong)
    assert result.exit_code == 1
    assert "[unauthorized]" in result.stderr
    assert wrong not in result.output


def test_adding_a_seat(cli):
    """A token from elsewhere comes by stdin, is proven first, and is then one of the seats."""
    cli.staff()
    token = cli.json("agent", "register", "scout", "--print-token")["token"]
    cli.good("seat", "forget", "release-42/scout")
    assert cli.json("seat", "add", "release-42/scout", "--use", typed=f"{token}\n")["current"]
    assert cli.json("status", "working")["agent"] == "scout"


def test_adding_a_wrong_token(cli):
    """A token that the server refuses is not stored; unchecked it is, for a server to come."""
    cli.staff("scout")
    wrong, good = "tok_" + "w" * 43, cli.token("release-42/scout")
    assert cli.refused("seat", "add", "release-42/scout", typed=wrong)["code"] == "unauthorized"
    assert cli.refused("seat", "add", "release-42/scout", typed="")["code"] == "invalid_input"
    assert cli.token("release-42/scout") == good
    cli.good("seat", "add", "release-42/scout", "--no-check", typed=wrong)
    assert cli.token("release-42/scout") == wrong


def test_choosing_a_seat(cli):
    """`seat use` takes a seat that is here, and says so of one that is not."""
    cli.staff("scout")
    assert cli.json("seat", "use", "release-42/scout")["current"]
    assert cli.json("status", "idle")["agent"] == "scout"
    assert "not on this machine" in cli.refused("seat", "use", "release-42/planner")["detail"]


@pytest.mark.parametrize("by", ["release-42/parent", "release-42/scout"])
def test_rotating(cli, by):
    """A rotated token is stored, works, and the one before stops; the parent or itself may."""
    cli.staff("scout")
    if by == "release-42/scout":
        cli.good("seat", "use", by)
        cli.good("seat", "forget", "release-42/parent")
    old = cli.token("release-42/scout")
    result = cli.good("seat", "rotate", "release-42/scout")
    assert "tok_" not in result.output
    assert cli.token("release-42/scout") != old
    assert cli.json("status", "idle", "--seat", "release-42/scout")["agent"] == "scout"
    gone = cli.run("status", "idle", TOCSIN_SEAT="release-42/scout", TOCSIN_TOKEN=old)
    assert "[unauthorized]" in gone.stderr


def test_rotating_what_is_not_there(cli):
    """A rotation that is refused leaves the seats as they were."""
    cli.staff("scout")
    before = cli.seats_file.read_text()
    assert cli.refused("seat", "rotate", "release-42/nobody")["code"] == "unknown_agent"
    assert cli.seats_file.read_text() == before


def test_a_rotation_of_unknown_outcome_loses_no_seat(cli):
    """Where it is not known which token is in force, both are kept and the right one is used."""
    cli.staff("scout")
    token = cli.token("release-42/scout")
    place = Credentials(
        ConnectionSettings(url=cli.url, fleet=cli.fleet), folder=cli.seats_file.parent
    )
    place.put("release-42/scout", StoredSeat(token="tok_" + "n" * 43, former=token))
    assert cli.json("status", "idle", "--seat", "release-42/scout")["agent"] == "scout"


def test_revoking(cli):
    """A revoked token stops and its seat is gone; rotating lets somebody in again."""
    cli.staff("scout")
    old = cli.token("release-42/scout")
    assert cli.json("seat", "revoke", "release-42/scout")["revoked"]
    gone = cli.run("inbox", TOCSIN_SEAT="release-42/scout", TOCSIN_TOKEN=old)
    assert "[unauthorized]" in gone.stderr
    assert [seat["agent"] for seat in cli.json("seat", "list")] == ["parent"]
    cli.good("seat", "rotate", "release-42/scout")
    cli.good("inbox", "--seat", "release-42/scout")
    assert "rotate" in cli.refused("seat", "revoke", "release-42/parent")["detail"]


def test_forgetting(cli):
    """A forgotten seat is gone here, while its token stays in force."""
    cli.staff("scout")
    token = cli.token("release-42/scout")
    cli.good("seat", "forget", "release-42/scout")
    cli.good("inbox", TOCSIN_SEAT="release-42/scout", TOCSIN_TOKEN=token)
    assert cli.refused("seat", "forget", "release-42/scout")["code"] == "invalid_input"


def test_no_seat_shows_its_token(cli):
    """No list of seats shows a token, and neither does the name of a stored seat."""
    cli.staff("scout")
    assert "tok_" not in cli.good("seat", "list").output
    assert "tok_" not in cli.good("seat", "list", "--json").output
    assert "tok_" not in repr(StoredSeat(token=cli.token("release-42/scout")))


def test_seats_of_other_places_stay(cli):
    """A change of one fleet's seats leaves those of others as they are."""
    cli.staff("scout")
    cli.good("seat", "add", "h/a", "--no-check", "--fleet", f"{cli.fleet}-2", typed="t" * 20)
    cli.good("seat", "forget", "release-42/scout")
    places = json.loads(cli.seats_file.read_text())["places"]
    assert [sorted(place["seats"]) for place in places] == [["release-42/parent"], ["h/a"]]
