"""Mail from the command line: messages, questions and answers, the inbox, signs of work."""

from __future__ import annotations

import json

import pytest

SCOUT = ("--seat", "release-42/scout")
PLANNER = ("--seat", "release-42/planner")


def test_a_message(cli):
    """A message arrives as it was sent, is shown as often as one likes, and is gone once acked."""
    cli.staff("scout")
    sent = cli.json("message", "scout", "Hallo\n[bold]wörld[/bold]", "--thread", "t-1", "--steer")
    assert sent == {
        "message_id": sent["message_id"],
        "duplicate": False,
        "superseded": False,
        "late": False,
    }
    for _ in range(2):
        mail = cli.json("inbox", *SCOUT)
        assert mail["remaining"] == 0
        (envelope,) = mail["envelopes"]
        assert (envelope["sender"], envelope["kind"]) == ("parent", "message")
        assert envelope["body"] == "Hallo\n[bold]wörld[/bold]"
        assert (envelope["thread_id"], envelope["delivery"]) == ("t-1", "steer")
        assert (envelope["attempts"], envelope["created_at"][-1]) == (0, "Z")
    assert cli.json("ack", sent["message_id"], *SCOUT) == {"acked": 1}
    assert cli.json("inbox", *SCOUT)["envelopes"] == []
    assert cli.json("receipt", sent["message_id"])["state"] == "handled"


def test_send_is_message(cli):
    """`send` is `message`, and a body comes from stdin with `-`."""
    cli.staff("scout")
    cli.good("send", "scout", "-", typed="a\nb\n")
    assert cli.json("inbox", *SCOUT)["envelopes"][0]["body"] == "a\nb"


def test_a_key_sends_once(cli):
    """The same key from two runs is one message, and the second says so."""
    cli.staff("scout")
    first = cli.json("message", "scout", "x", "--key", "k")
    again = cli.json("message", "scout", "x", "--key", "k")
    assert (again["message_id"], again["duplicate"]) == (first["message_id"], True)
    assert len(cli.json("inbox", *SCOUT)["envelopes"]) == 1


def test_waiting_for_room(cli):
    """`--wait` waits for the recipient to read, and is refused when the time is over."""
    cli.good("herd", "open", "release-42", TOCSIN_INBOX_LIMIT="1")
    cli.good("agent", "register", "scout")
    first = cli.json("message", "scout", "1")["message_id"]
    refused = cli.refused("message", "scout", "2", "--wait", "100ms")
    assert refused["code"] == "queue_full" and "it waited 0.1 s" in refused["detail"]

    waiting = cli.start("message", "scout", "2", "--wait", "1m", "--json")
    cli.good("inbox", *SCOUT)
    cli.good("ack", first, *SCOUT)
    said, _ = waiting.communicate(timeout=50)

    assert waiting.returncode == 0
    (mail,) = cli.json("inbox", *SCOUT)["envelopes"]
    assert mail["message_id"] == json.loads(said)["message_id"]


def test_a_question_and_its_answer(cli):
    """A question has its task wait, and its answer lets it run again."""
    cli.staff("scout", "planner")
    task, question = cli.waiting()
    assert cli.json("task", "show", task)["open_requests"] == [question]
    assert cli.json("receipt", question)["request"] == "open"
    cli.good("reply", question, "Exponential", *PLANNER)
    assert cli.json("task", "show", task)["state"] == "running"
    reply = cli.json("inbox", *SCOUT)["envelopes"][-1]
    assert (reply["kind"], reply["sender"], reply["body"], reply["reply_to"]) == (
        "reply",
        "planner",
        "Exponential",
        question,
    )


def test_answering_as_operator(cli):
    """`--as-operator` answers as the parent, whatever seat is current or given."""
    cli.staff("scout", "planner")
    _, question = cli.waiting()
    cli.good("seat", "use", "release-42/scout")
    assert cli.refused("reply", question, "own")["code"] == "forbidden"
    cli.good("reply", question, "Exponential", "--as-operator")
    assert cli.json("receipt", question)["answered_by"] == "parent"


def test_an_operator_needs_the_parents_seat(cli):
    """Without the parent's seat on this machine nobody is the operator."""
    cli.staff("scout", "planner")
    _, question = cli.waiting()
    cli.good("seat", "forget", "release-42/parent")
    error = cli.refused("reply", question, "x", "--as-operator", *SCOUT)
    assert "release-42/parent" in error["detail"]


def test_a_late_answer(cli):
    """An answer to a question that was given up is delivered, marked late."""
    cli.staff("scout", "planner")
    task, question = cli.waiting()
    assert cli.json("cancel-request", question, *SCOUT)["request"] == "cancelled"
    assert cli.json("task", "show", task)["state"] == "running"
    result = cli.good("reply", question, "Exponential", *PLANNER)
    assert "late" in result.stdout
    assert "[quiet, late]" in cli.good("inbox", *SCOUT).stdout


def test_helping_a_wait_along(cli):
    """The parent reminds the recipient, and sends the question to another."""
    cli.staff("scout", "planner", "architect")
    _, question = cli.waiting()
    cli.good("remind", question)
    assert "Which backoff?" in cli.json("inbox", *PLANNER)["envelopes"][-1]["body"]
    assert cli.json("reroute", question, "architect")["recipient"] == "architect"
    mail = cli.json("inbox", "--seat", "release-42/architect")["envelopes"]
    assert [envelope["message_id"] for envelope in mail] == [question]


def test_how_long_an_answer_may_take(cli):
    """--reply-within takes a span, and only of a question."""
    cli.staff("scout", "planner")
    ask = ("message", "planner", "x", "--reply-within")
    cli.good(*ask, "10m", "--expects-reply", *SCOUT)
    assert "expects_reply" in cli.refused(*ask, "10m", *SCOUT)["detail"]
    assert "reply_within is 'soon'" in cli.refused(*ask, "soon", "--expects-reply")["detail"]


def test_an_inbox_that_was_cut(cli):
    """Case 11: a list that was cut says so and how much is left; listing brings nothing nearer
    to the dead letters.
    """
    cli.staff("scout")
    for number in range(3):
        cli.good("message", "scout", f"number {number}")
    for _ in range(10):
        mail = cli.json("inbox", "--limit", "2", *SCOUT)
        assert [envelope["body"] for envelope in mail["envelopes"]] == ["number 0", "number 1"]
        assert {envelope["attempts"] for envelope in mail["envelopes"]} == {0}
        assert mail["remaining"] == 1
    assert "1 more" in cli.good("inbox", "--limit", "2", *SCOUT).stderr


def test_an_inbox_of_nobody(cli):
    """Case 11: the inbox of an unknown or closed agent is an error, never empty."""
    cli.staff("scout")
    token = cli.token("release-42/scout")
    who = {"TOCSIN_SEAT": "release-42/nobody", "TOCSIN_TOKEN": token}
    assert cli.refused("inbox", **who)["code"] == "unknown_agent"
    cli.good("agent", "close", "scout")
    who = {"TOCSIN_SEAT": "release-42/scout", "TOCSIN_TOKEN": token}
    assert cli.refused("inbox", **who)["code"] == "agent_closed"
    cli.good("agent", "register", "scout")
    assert cli.refused("inbox", **who)["code"] == "agent_closed"


def test_signs_of_work(cli):
    """Progress and status are seen in the roster."""
    cli.staff("scout")
    cli.good("progress", "120 of 300 tests", "--fraction", "0.4", *SCOUT)
    cli.good("status", "working", *SCOUT)
    scout = cli.json("roster")[1]
    assert (scout["progress"], scout["fraction"], scout["status"]) == (
        "120 of 300 tests",
        0.4,
        "working",
    )
    for fraction in ("1.5", "-0.1", "nan", "inf"):
        assert cli.refused("progress", "x", f"--fraction={fraction}")["code"] == "invalid_input"
    assert cli.run("progress", "x", "--fraction", "much").exit_code == 2
    assert cli.run("status", "asleep").exit_code == 2


@pytest.mark.parametrize(
    ("args", "code"),
    [
        (["message", "nobody", "x"], "unknown_agent"),
        (["message", "Scout", "x"], "invalid_input"),
        (["message", "scout", " "], "invalid_input"),
        (["message", "scout", "nul \x00"], "invalid_input"),
        (["message", "scout", "x" * 50_001], "too_large"),
        (["message", "scout", "x", "--task", "msg_1"], "invalid_input"),
        (["message", "scout", "x", "--task", "task_nope"], "unknown_task"),
        (["message", "parent", "x", "--expects-reply"], "invalid_input"),
        (["reply", "msg_nope", "x"], "unknown_message"),
        (["reply", "task_1", "x"], "invalid_input"),
        (["remind", "msg_nope"], "unknown_message"),
        (["reroute", "msg_nope", "scout"], "unknown_message"),
        (["cancel-request", "msg_nope"], "unknown_message"),
        (["ack", "msg_nope"], "unknown_message"),
        (["ack", "nonsense"], "invalid_input"),
        (["receipt", "msg_nope"], "unknown_message"),
        (["inbox", "--limit", "0"], "invalid_input"),
        (["inbox", "--limit", "1001"], "invalid_input"),
    ],
    ids=lambda value: " ".join(value)[:30] if isinstance(value, list) else value,
)
def test_what_is_refused(cli, args, code):
    """Bad input is refused with its code, and nothing is sent."""
    cli.staff("scout")
    assert cli.refused(*args)["code"] == code
    assert cli.json("inbox", *SCOUT)["envelopes"] == []


def test_nobody_acts_as_somebody_else(cli):
    """Case 29: with one child's seat, another's mail is neither answered nor acked nor read.

    What only a parent may do is refused here already; the rest is in the journal of the herd.
    """
    cli.staff("scout", "planner", "other")
    _, question = cli.waiting()
    other = ("--seat", "release-42/other")
    for command in (
        ["reply", question, "x"],
        ["ack", question],
        ["cancel-request", question],
        ["remind", question],
        ["reroute", question, "other"],
        ["receipt", question],
    ):
        assert cli.refused(*command, *other)["code"] == "forbidden", command
    assert cli.json("inbox", *other)["envelopes"] == []
    refusals = [each for each in cli.json("herd", "journal") if each["event"] == "refused"]
    assert len(refusals) == 4
