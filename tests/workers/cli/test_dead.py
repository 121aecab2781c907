"""`tocsin dead` and `tocsin message hand-back`: what an operator does with mail that is stuck."""

from __future__ import annotations

import pytest

from tocsin.broker import Broker

SCOUT = ("--seat", "release-42/scout")


@pytest.fixture
def failing(cli):
    """Makes dead letters of scout's unread mail, by a handler that raises as often as it may."""
    cli.staff("scout", "planner")

    def fail(*bodies: str, error: str = "ValueError: [bold]no[/bold]") -> list[str]:
        sent = [cli.json("message", "scout", body)["message_id"] for body in bodies]
        with Broker.connect(cli.url, fleet=cli.fleet) as broker:
            scout = broker.join("release-42", "scout", cli.token("release-42/scout"))
            while turn := scout.receive():
                turn.nack(error=error)
        return sent

    return fail


def test_dead_letters_are_listed_and_shown(cli, failing):
    """By herd, newest first, with reason, error, attempts and times; looking changes nothing."""
    one, two = failing("number one"), failing("number two")
    for _ in range(3):
        listed = cli.json("dead", "list", "release-42")
    assert listed["remaining"] == 0
    assert [each["message_id"] for each in listed["dead_letters"]] == [*two, *one]
    letter = cli.json("dead", "show", *one)
    assert (letter["body"], letter["attempts"], letter["obstacle"]) == ("number one", 5, None)
    assert (letter["kind"], letter["sender"], letter["recipient"]) == ("message", "parent", "scout")
    assert letter["error"] == "ValueError: [bold]no[/bold]" and letter["error"] in letter["reason"]
    assert letter["accepted_at"] and letter["taken_at"] and letter["died_at"]

    shown = cli.good("dead", "show", *one).stdout
    assert "│ number one" in shown and "│ ValueError: [bold]no[/bold]" in shown
    table = cli.good("dead", "list")
    assert one[0] in table.stdout and "failed 5 times" in table.stdout
    assert "tocsin dead show" in table.stderr


def test_dead_letters_of_two_herds(cli, failing):
    """Each herd's are its own: of the one that is named, or the one whose parent asks."""
    (here,) = failing("of this herd")
    cli.good("herd", "open", "other")
    cli.good("agent", "register", "scout", "--seat", "other/parent")
    there = cli.json("message", "scout", "of the other", "--seat", "other/parent")["message_id"]
    with Broker.connect(cli.url, fleet=cli.fleet) as broker:
        scout = broker.join("other", "scout", cli.token("other/scout"))
        while turn := scout.receive():
            turn.nack(error="no")

    def listed(*args: str) -> list[str]:
        return [each["message_id"] for each in cli.json("dead", "list", *args)["dead_letters"]]

    assert listed("release-42") == listed("--seat", "release-42/parent") == [here]
    assert listed("other") == listed("--seat", "other/parent") == [there]
    assert cli.refused("dead", "show", here, "--seat", "other/parent")["code"] == "unknown_message"


def test_a_herd_without_dead_letters(cli):
    """An empty list says so."""
    cli.staff()
    assert "No dead letters." in cli.good("dead", "list").stdout
    assert cli.json("dead", "list") == {"dead_letters": [], "remaining": 0}


def test_a_list_that_was_cut(cli, failing):
    """Case 11: it says how much is left, and how to go on."""
    sent = failing(*(f"number {number}" for number in range(5)))
    page = cli.json("dead", "list", "--limit", "2")
    assert (len(page["dead_letters"]), page["remaining"]) == (2, 3)
    last = page["dead_letters"][-1]["message_id"]
    note = cli.good("dead", "list", "--limit", "2").stderr
    assert f"3 older ones; go on with --before {last}" in note
    rest = cli.json("dead", "list", "--before", last)
    listed = [each["message_id"] for each in (*page["dead_letters"], *rest["dead_letters"])]
    assert sorted(listed) == sorted(sent) and rest["remaining"] == 0


def test_a_replay(cli, failing):
    """The same messages, their attempts forgotten."""
    sent = failing("one", "two")
    replayed = cli.json("dead", "replay", *sent)
    assert [each["message_id"] for each in replayed] == sent
    mail = cli.json("inbox", *SCOUT)["envelopes"]
    assert [(each["message_id"], each["attempts"]) for each in mail] == [(each, 0) for each in sent]
    assert cli.json("dead", "list")["dead_letters"] == []


def test_a_replayed_question(cli, failing):
    """A note says that its wait stays closed."""
    cli.good("message", "scout", "Which?", "--expects-reply")
    failing()
    (letter,) = cli.json("dead", "list")["dead_letters"]
    done = cli.good("dead", "replay", letter["message_id"])
    assert f"replayed {letter['message_id']} to scout" in done.stdout
    assert "late mail" in done.stderr


def test_a_dead_task_envelope(cli, failing):
    """It is not replayed; the refusal names the command that goes on with its task."""
    task = cli.json("task", "delegate", "scout", "Find how auth works")["id"]
    failing()
    (letter,) = cli.json("dead", "list")["dead_letters"]
    refusal = cli.refused("dead", "replay", letter["message_id"])
    assert refusal["code"] == "wrong_state" and "tocsin task retry" in refusal["detail"]
    assert "cannot be replayed" in cli.good("dead", "show", letter["message_id"]).stdout
    assert cli.json("task", "show", task)["state"] == "failed"
    cli.good("task", "retry", task)


def test_a_drop(cli, failing):
    """Off the list for good."""
    sent = failing("one", "two")
    assert cli.json("dead", "drop", *sent) == [
        {"message_id": message, "dropped": True} for message in sent
    ]
    assert cli.json("dead", "list")["dead_letters"] == []
    assert cli.refused("dead", "replay", sent[0])["code"] == "wrong_state"
    assert f"dropped {sent[0]}" in cli.good("dead", "drop", sent[0]).stdout


def test_dead_letters_are_for_parents(cli, failing):
    """A child's seat is refused, and what is no dead letter is named as what it is."""
    (sent,) = failing("one")
    for args in (["list"], ["show", sent], ["replay", sent], ["drop", sent]):
        assert cli.refused("dead", *args, *SCOUT)["code"] == "forbidden"
    assert cli.refused("dead", "show", "msg_nope")["code"] == "unknown_message"
    assert cli.refused("dead", "show", "task_1")["code"] == "invalid_input"
    assert cli.refused("dead", "list", "--limit", "0")["code"] == "invalid_input"


def test_mail_of_a_stuck_process(cli):
    """`hand-back` takes it from its holder for any other of that agent; parent only."""
    cli.staff("scout")
    sent = cli.json("message", "scout", "one")["message_id"]
    assert cli.refused("message", "hand-back", sent)["code"] == "wrong_state"
    with Broker.connect(cli.url, fleet=cli.fleet) as broker:
        scout = broker.join("release-42", "scout", cli.token("release-42/scout"))
        turn = scout.receive()
        assert cli.json("inbox", *SCOUT)["envelopes"] == []
        assert cli.refused("message", "hand-back", sent, *SCOUT)["code"] == "forbidden"
        back = cli.json("message", "hand-back", sent)
        assert back == {"message_id": sent, "held_by": scout.instance, "withdrawn": False}
        turn.ack()
        assert turn.fenced == (sent,)
        assert [each["attempts"] for each in cli.json("inbox", *SCOUT)["envelopes"]] == [0]
        scout.receive()
        assert scout.instance in cli.good("message", "hand-back", sent).stdout
