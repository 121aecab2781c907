"""Tasks from the command line: delegated, watched, waited for, settled, tried again."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta

import pytest


def test_a_task_from_delegate_to_done(cli):
    """A task is created, runs once its child has seen it, and its summary reaches the parent."""
    cli.staff("scout")
    task = cli.json("task", "delegate", "scout", "Find how auth works", "--deadline", "20m")
    assert (task["state"], task["agent"], task["watched"]) == ("created", "scout", False)
    lasts = datetime.fromisoformat(task["deadline"]) - datetime.fromisoformat(task["created_at"])
    assert lasts == timedelta(minutes=20)
    assert cli.json("inbox", "--seat", "release-42/scout")["envelopes"][0]["kind"] == "task"
    assert cli.json("task", "show", task["id"])["state"] == "running"
    ended = cli.json(
        "task", "done", task["id"], "--summary", "It is JWT", "--seat", "release-42/scout"
    )
    assert (ended["status"], ended["return_code"], ended["summary"]) == (
        "completed",
        0,
        "It is JWT",
    )
    assert cli.json("task", "show", task["id"])["settlement"] == ended
    assert [mail["kind"] for mail in cli.json("inbox")["envelopes"]] == ["task_settled"]


def test_a_task_as_people_see_it(cli):
    """A task is shown with local times, their zone and age, its words behind a bar."""
    cli.staff("scout")
    task = cli.working(text="Find how auth works\nstate  completed")
    with cli.start("task", "show", task) as showing:
        shown, _ = showing.communicate(timeout=30)
    assert "state     running" in shown
    assert "│ Find how auth works\n│ state  completed\n" in shown
    assert " CET (" in shown or " CEST (" in shown


def test_texts_from_stdin(cli):
    """`-` reads a description from stdin, as UTF-8 and without its last line end."""
    cli.staff("scout")
    task = cli.json("task", "delegate", "scout", "-", typed="Zwei Zeilen:\nüber alles\n")
    assert task["description"] == "Zwei Zeilen:\nüber alles"
    error = cli.refused("task", "delegate", "scout", "-", typed=b"\xff\xfe")
    assert "not UTF-8" in error["detail"]


@pytest.mark.parametrize(
    ("deadline", "says"),
    [
        ("soon", "deadline is 'soon'"),
        ("2030-01-01T00:00:00", "no time zone"),
        ("-5m", "deadline is '-5m'"),
        ("0", "more than 0"),
        ("400d", "deadline is"),
        ("2001-01-01T00:00:00+09:00", "in the past"),
        ("nan", "deadline is 'nan'"),
    ],
)
def test_a_deadline_that_is_none(cli, deadline, says):
    """Case 23: a deadline without a zone, in the past or out of bounds is refused."""
    cli.staff("scout")
    error = cli.refused("task", "delegate", "scout", "x", f"--deadline={deadline}")
    assert error["code"] == "invalid_input"
    assert says in error["detail"]
    assert cli.json("task", "list") == []


def test_a_deadline_with_a_zone(cli):
    """Case 23: a moment with its zone is that moment, wherever the command runs."""
    cli.staff("scout")
    moment = (datetime.now(UTC) + timedelta(days=1)).replace(microsecond=0)
    written = f"{moment + timedelta(hours=9):%Y-%m-%dT%H:%M:%S}+09:00"
    task = cli.json("task", "delegate", "scout", "x", "--deadline", written)
    assert datetime.fromisoformat(task["deadline"]) == moment


def test_a_key_delegates_once(cli):
    """The same key from two runs of the command is one task; other content is refused."""
    cli.staff("scout")
    first, again = (
        cli.json("task", "delegate", "scout", "x", "--key", "nightly")["id"] for _ in range(2)
    )
    assert first == again
    error = cli.refused("task", "delegate", "scout", "y", "--key", "nightly")
    assert error["code"] == "duplicate_conflict"


def test_a_busy_child(cli):
    """A child with a task is busy, which may pass; with --queue the next waits for its slot."""
    cli.staff("scout")
    cli.working()
    error = cli.refused("task", "delegate", "scout", "more")
    assert (error["code"], error["retryable"]) == ("agent_busy", True)
    assert cli.json("task", "delegate", "scout", "more", "--queue")["state"] == "created"
    assert "+1 queued" in cli.good("roster").stdout


def test_lists(cli):
    """The parent sees all tasks, a child its own; both by state."""
    cli.staff("scout", "planner")
    one, two = cli.working("scout"), cli.working("planner")
    cli.good("task", "done", one, "failed", "--error", "no", "--seat", "release-42/scout")
    assert [task["id"] for task in cli.json("task", "list")] == [two, one]
    assert [task["id"] for task in cli.json("task", "list", "--limit", "1")] == [two]
    assert [task["id"] for task in cli.json("task", "list", "--state", "failed")] == [one]
    for state, expected in (("failed", [one]), ("running", [])):
        own = cli.json("task", "list", "--state", state, "--seat", "release-42/scout")
        assert [task["id"] for task in own] == expected
    assert cli.run("task", "list", "--state", "gone").exit_code == 2


def test_waiting_for_what_has_settled(cli):
    """`wait` returns settlements in the order asked for, whatever way they ended."""
    cli.staff("scout", "planner")
    one, two = cli.working("scout"), cli.working("planner")
    cli.good("task", "done", two, "blocked", "--error", "no key", "--seat", "release-42/planner")
    cli.good("task", "cancel", one)
    waited = cli.json("task", "wait", two, one)
    assert [each["status"] for each in waited["settled"]] == ["blocked", "cancelled"]
    assert (waited["unsettled"], waited["timed_out"]) == ([], False)


def test_waiting_in_vain(cli):
    """At its timeout `wait` says what has not settled, ends with 1, and touches nothing."""
    cli.staff("scout", "planner")
    one, two = cli.working("scout"), cli.working("planner")
    cli.good("task", "done", one, "--seat", "release-42/scout")
    result = cli.run("task", "wait", one, two, "--timeout", "0", "--json")
    waited = json.loads(result.stdout)
    assert result.exit_code == 1
    assert ([each["task_id"] for each in waited["settled"]], waited["unsettled"]) == ([one], [two])
    assert waited["timed_out"]
    assert cli.json("task", "show", two)["state"] == "running"
    assert not cli.json("task", "wait", one, two, "--first")["timed_out"]
    assert cli.refused("task", "wait", one, "--timeout", "soon")["code"] == "invalid_input"


def test_waiting_until_it_settles(cli):
    """`wait` blocks until another process settles the task."""
    cli.staff("scout")
    task = cli.working()
    with cli.start("task", "wait", task, "--json") as waiting:
        cli.good("task", "done", task, "--summary", "ok", "--seat", "release-42/scout")
        out, errors = waiting.communicate(timeout=30)
    assert (waiting.returncode, errors) == (0, "")
    assert json.loads(out)["settled"][0]["summary"] == "ok"


def test_watching(cli):
    """`watch` shows what was and what comes, live, and ends with how the task was settled."""
    cli.staff("scout", "planner")
    task, question = cli.waiting()
    with cli.start("task", "watch", task, "--json") as watching:
        assert watching.stdout is not None
        lines = [json.loads(watching.stdout.readline())]
        while lines[-1]["event"] != "waiting":
            lines.append(json.loads(watching.stdout.readline()))
        cli.good("reply", question, "Exponential", "--seat", "release-42/planner")
        cli.good("task", "done", task, "--summary", "ok", "--seat", "release-42/scout")
        rest, errors = watching.communicate(timeout=30)
    lines += [json.loads(line) for line in rest.splitlines()]
    assert (watching.returncode, errors) == (0, "")
    assert [line["event"] for line in lines[:-1] if line["event"] in ("delegated", "waiting")] == [
        "delegated",
        "waiting",
    ]
    assert {"request_answered", "completed"} <= {line["event"] for line in lines[:-1]}
    assert all(line["fields"].get("task") == task for line in lines[:-1])
    assert lines[-1]["settled"][0]["summary"] == "ok"


def test_watching_the_herd(cli):
    """Without a task `watch` follows all that are open; with none it says so."""
    cli.staff("scout")
    assert cli.json("task", "watch") == {"settled": []}
    task = cli.working()
    with cli.start("task", "watch") as watching:
        assert watching.stdout is not None
        assert "delegated" in watching.stdout.readline()
        cli.good("task", "cancel", task, "--reason", "enough")
        out, _ = watching.communicate(timeout=30)
    assert watching.returncode == 0
    assert "ended  cancelled" in out and "│ enough" in out


def test_the_first_word_counts(cli):
    """A second `done` or a cancel after it changes nothing, and says what stands."""
    cli.staff("scout")
    task = cli.working()
    seat = ("--seat", "release-42/scout")
    cli.good("task", "done", task, "completed", "--summary", "first", *seat)
    again = cli.good("task", "done", task, "failed", "--error", "second", *seat)
    assert "stays completed" in again.stderr and "│ first" in again.stdout
    assert cli.json("task", "cancel", task)["status"] == "completed"


def test_a_waiting_task_is_not_done(cli):
    """A task that waits is completed only with a reason, which cancels its questions."""
    cli.staff("scout", "planner")
    task, question = cli.waiting()
    seat = ("--seat", "release-42/scout")
    assert cli.refused("task", "done", task, *seat)["code"] == "pending_requests"
    ended = cli.json("task", "done", task, "--override-reason", "guessed", *seat)
    assert ended["status"] == "completed"
    assert cli.json("receipt", question)["request"] == "settled"


def test_retrying(cli):
    """`retry` is a new task of the same description that carries what stopped the first."""
    cli.staff("scout", "planner")
    task, _ = cli.waiting()
    assert cli.refused("task", "retry", task)["code"] == "wrong_state"
    cli.good("task", "cancel", task)
    again = cli.json("task", "retry", task, "--agent", "planner")
    assert (again["continues"], again["agent"]) == (task, "planner")
    assert again["description"] == "Find how auth works"
    mail = cli.json("inbox", "--seat", "release-42/planner")["envelopes"]
    body = next(each["body"] for each in mail if each["task_id"] == again["id"])
    assert "Which backoff?" in body


@pytest.mark.parametrize(
    ("args", "code"),
    [
        (["show", "task_nope"], "unknown_task"),
        (["show", "msg_1"], "invalid_input"),
        (["show", "nonsense"], "invalid_input"),
        (["cancel", "task_nope"], "unknown_task"),
        (["retry", "task_nope"], "unknown_task"),
        (["wait", "task_nope"], "unknown_task"),
        (["watch", "task_nope"], "unknown_task"),
        (["delegate", "nobody", "x"], "unknown_agent"),
        (["delegate", "parent", "x"], "invalid_input"),
        (["delegate", "scout", ""], "invalid_input"),
        (["delegate", "scout", "bell \x07"], "invalid_input"),
        (["delegate", "scout", "half \udce4"], "invalid_input"),
        (["delegate", "scout", "x" * 50_001], "too_large"),
        (["delegate", "scout", "x", "--continues", "task_nope"], "unknown_task"),
        (["done", "task_nope"], "forbidden"),
    ],
)
def test_what_is_refused(cli, args, code):
    """Bad input is refused with its code, and makes no task."""
    cli.staff("scout")
    assert cli.refused("task", *args)["code"] == code
    assert cli.json("task", "list") == []


def test_a_child_reaches_its_own_tasks_only(cli):
    """Case 29: a child sees and settles no task of another."""
    cli.staff("scout", "planner")
    task = cli.working("planner")
    for command in (["show"], ["done"], ["cancel"], ["watch"]):
        error = cli.refused("task", *command, task, "--seat", "release-42/scout")
        assert error["code"] == "forbidden"
    assert cli.json("task", "show", task)["state"] == "running"
