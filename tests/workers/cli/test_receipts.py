"""How far mail got and what hangs on what, from the command line: `message show` and `why`."""

from __future__ import annotations

from tocsin.broker import Broker
from tocsin.scheduler import Scheduler

SCOUT = ("--seat", "release-42/scout")
PLANNER = ("--seat", "release-42/planner")
OTHER = ("--seat", "release-42/other")


def test_showing_a_message(cli):
    """Each step that it took has its time; with --json exactly what `receipt()` returns."""
    cli.staff("scout")
    sent = cli.json("message", "scout", "Read me.")["message_id"]
    shown = cli.json("message", "show", sent)
    assert shown == cli.json("receipt", sent)
    assert (shown["state"], shown["wakes"], shown["not_tried"]) == ("accepted", True, None)
    assert [(each["path"], each["reached"]) for each in shown["wake"]] == [("bell", 0)]

    cli.good("inbox", *SCOUT)
    cli.good("ack", sent, *SCOUT)
    lines = cli.good("message", "show", sent).stdout.splitlines()
    for name in ("accepted", "bell rung", "shown", "handled"):
        assert any(line.startswith(f"{name}  ") for line in lines), (name, lines)
    assert any("nobody heard it" in line for line in lines)
    assert sum("by inst_cli_" in line for line in lines) == 2


def test_tries_to_wake_a_session(cli):
    """`message show` and `why` tell of each; the roster and `delegate` of who cannot be woken."""
    cli.staff("scout")
    assert "unwakeable" in cli.good("agent", "list").stdout
    assert "Nothing can wake scout now" in " ".join(
        cli.good("task", "delegate", "scout", "Look").stdout.split()
    )
    sent = cli.json("message", "scout", "Read me.")["message_id"]
    with Broker.connect(cli.url, fleet=cli.fleet) as broker:
        scout = broker.join("release-42", "scout", cli.token("release-42/scout"))
        scout.report_session("pi", "s-1", "idle", ["prompt", "tmux"])
        scout.report_wake("prompt", False, [sent], "connection refused")
        scout.report_wake("tmux", True, [sent])
        text = " ".join(cli.good("message", "show", sent).stdout.split())
        assert "failed: connection refused" in text and "not confirmed" in text
        text = " ".join(cli.good("why", sent).stdout.split())
        assert "tmux tried" in text and "which nothing confirmed" in text

        scout.inbox()
        lines = cli.good("message", "show", sent).stdout.splitlines()
        assert any(line.startswith("tmux tried  ") and "confirmed" in line for line in lines)
        assert "unwakeable" not in cli.good("agent", "show", "scout").stdout
        assert "pi s-1: idle" in cli.good("agent", "show", "scout").stdout
        task = cli.json("task", "delegate", "scout", "And this", "--queue")
        assert (task["wakeable"], task["wake_path"]) == (True, "tmux")


def test_showing_mail_that_died_or_was_taken_back(cli):
    """When and why it ended, and what failed on it."""
    cli.staff("scout", "planner")
    dead = cli.json("message", "scout", "Read me.")["message_id"]
    with Broker.connect(cli.url, fleet=cli.fleet) as broker:
        scout = broker.join("release-42", "scout", cli.token("release-42/scout"))
        while turn := scout.receive():
            turn.nack(error="no disk")
    _, question = cli.waiting()
    cli.good("cancel-request", question)

    shown = cli.json("message", "show", dead)
    assert shown["state"] == "dead" and shown["ended_at"] and shown["attempts"] == 5
    text = cli.good("message", "show", dead).stdout
    lines = [line for line in text.splitlines() if line.startswith("dead  ")]
    assert len(lines) == 1 and shown["ended_at"][:10] in lines[0]
    assert "failed 5 times, last: no disk" in text
    text = cli.good("message", "show", question).stdout
    assert any(line.startswith("withdrawn  ") for line in text.splitlines()), text


def test_showing_quiet_mail(cli):
    """What wakes nobody says so, and why."""
    cli.staff("scout")
    task = cli.working()
    cli.good("task", "done", task, *SCOUT)
    settled = cli.json("inbox")["envelopes"][0]["message_id"]
    text = cli.good("message", "show", settled).stdout
    assert "not rung" in text and "its task is not watched" in text


def test_a_message_goes_to_an_agent_of_any_name(cli):
    """`message AGENT TEXT` sends; to one named like a command of the group `message send` does."""
    cli.staff("scout", "show")
    for command in (["message"], ["message", "send"], ["message", "--steer"]):
        cli.good(*command, "scout", "Read me.")
    assert len(cli.json("inbox", *SCOUT)["envelopes"]) == 3
    cli.good("message", "send", "show", "Read me.")
    assert len(cli.json("inbox", "--seat", "release-42/show")["envelopes"]) == 1


def test_why_a_task_waits(cli):
    """A line for each cause, and at the end what to do; `--json` has the same as typed links."""
    cli.staff("scout", "planner")
    task, question = cli.waiting()
    lines = cli.good("why", task).stdout.splitlines()
    assert lines[0].startswith(f"{task} of scout") and "waits since" in lines[0]
    assert [line[:2] for line in lines[1:]] == ["<-"] * (len(lines) - 2) + ["->"]
    assert f"`tocsin remind {question}`" in lines[-1]

    found = cli.json("why", task)
    assert [link["kind"] for link in found["links"]] == ["task", "message", "agent", "timer"]
    assert (found["about"], found["cut"]) == (task, False)
    assert found["todo"][:2] == [
        {"what": "start a process of planner", "command": None},
        {"what": "remind", "command": f"tocsin remind {question}"},
    ]


def test_every_command_that_why_names_is_there(cli):
    """What it says to do can be done as it stands, with the words in capitals filled in."""
    cli.staff("scout", "planner", "other")
    task, question = cli.waiting()
    commands = [step["command"] for step in cli.json("why", task)["todo"] if step["command"]]
    for command in commands:
        words = command.replace("AGENT", "other").replace("TEXT", "Exponential").split()
        result = cli.run(*words[1:])
        assert result.exit_code == 0 or "no longer open" in result.output, (command, result.output)
    assert len(commands) == 4
    assert cli.json("message", "show", question)["request"] == "answered"


def test_why_is_for_those_concerned_and_counts_as_no_presence(cli):
    """Case 29: a child asks about its own; who looks is not taken for a running process."""
    cli.staff("scout", "planner", "other")
    task, question = cli.waiting()
    for about in (task, question):
        assert cli.refused("why", about, *OTHER)["code"] == "forbidden"
    link = cli.json("why", "other", *OTHER)["links"][0]
    assert (link["present"], link["away_since"]) == (False, None)
    assert cli.refused("why", "msg_nope")["code"] == "unknown_message"
    assert cli.json("why", question, *PLANNER)["todo"][0]["what"] == "answer"


def test_a_message_to_another_herd(cli):
    """The same command; what became of it is in its receipt, and in the journals of both herds."""
    cli.good("herd", "open", "other", "--set", "accepts_from=release-*")
    cli.staff()
    parent = ("--seat", "release-42/parent")
    sent = cli.json("message", "other/parent", "Hello.", *parent)["message_id"]
    assert "outbox" in cli.good("why", sent, *parent).stdout
    with Broker.connect(cli.url, fleet=cli.fleet) as broker:
        assert Scheduler(broker).tick()["forwarded"] == 1
        text = cli.good("message", "show", sent, *parent).stdout
        assert "forwarded" in text and "woken in its own herd" in text
        (mail,) = cli.json("inbox", "--seat", "other/parent")["envelopes"]
        assert (mail["sender"], mail["body"]) == ("release-42/parent", "Hello.")
        cli.good("ack", sent, "--seat", "other/parent")
        Scheduler(broker).tick()
    assert cli.json("message", "show", sent, *parent)["state"] == "handled"
    assert "forwarded" in cli.good("herd", "journal", *parent).stdout
    refused = cli.refused("message", "other/parent", "Which?", "--expects-reply", *parent)
    assert refused["code"] == "invalid_input" and "plain messages only" in refused["detail"]
    assert cli.json("settings", "get", "accepts_from", "--herd", "other")["value"] == ["release-*"]
    assert "none" in cli.good("settings", "get", "accepts_from", "--herd", "release-42").stdout
