"""Plans from the command line: made, listed, shown, run, paused, removed; and as documented."""

from __future__ import annotations

import re
import shlex
from datetime import datetime, timedelta
from pathlib import Path

import pytest

from tests.architecture.generated import PROJECT


def add(cli, *options: str) -> str:
    plan: str = cli.json("plan", "add", *options, "scout", "Audit the logs")["id"]
    return plan


def test_a_plan_from_add_to_remove(cli):
    """Each command tells how the plan then stands."""
    cli.staff("scout")
    made = cli.json(
        "plan", "add", "--cron", "0 2 * * 1-5", "--tz", "Europe/Paris", "scout", "Audit the logs"
    )
    assert (made["agent"], made["cron"], made["tz"]) == ("scout", "0 2 * * 1-5", "Europe/Paris")
    assert (made["state"], made["missed"], made["queue"]) == ("active", "once", True)
    runs = [datetime.fromisoformat(each) for each in made["next_runs"]]
    assert {(run.hour, run.minute) for run in runs} == {(2, 0)} and len(runs) == 5
    assert {run.utcoffset() for run in runs} <= {timedelta(hours=1), timedelta(hours=2)}
    plan = made["id"]
    assert [each["id"] for each in cli.json("plan", "list")] == [plan]
    task = cli.json("plan", "run-now", plan, "--key", "k")["id"]
    assert cli.json("plan", "run-now", plan, "--key", "k")["id"] == task
    assert cli.json("plan", "pause", plan)["state"] == "paused"
    assert cli.json("plan", "resume", plan)["state"] == "active"
    assert cli.json("plan", "show", plan)["last_task"] == task
    assert cli.json("plan", "remove", plan)["state"] == "removed"
    assert cli.json("plan", "list") == []


def test_a_plan_as_people_see_it(cli):
    """With its next runs in its zone, and the words of its task behind a bar."""
    cli.staff("scout")
    assert "No plans." in cli.good("plan", "list").output
    plan = add(cli, "--cron", "30 6 * * *", "--tz", "Asia/Kolkata")
    shown = cli.good("plan", "show", plan).output
    assert re.search(r"next +\d{4}-\d\d-\d\d 06:30:00 IST\n", shown)
    assert "│ Audit the logs" in shown
    assert "cron 30 6 * * * Asia/Kolkata" in cli.good("plan", "list").output


def test_a_plan_that_waits_for_a_closed_child(cli):
    """The list says why it gives nothing."""
    cli.staff("scout")
    add(cli, "--every", "1d")
    cli.good("agent", "close", "scout")
    assert "'scout' was closed" in cli.good("plan", "list").output


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ((), "give one of cron, at and every"),
        (("--cron", "0 2 * *"), "must have five fields"),
        (("--cron", "0 2 * * *", "--tz", "Paris"), "is no time zone"),
        (("--at", "soon"), "is no moment such as"),
        (("--at", "20m"), "use --every"),
        (("--at", "2099-01-01T09:00"), "no time zone"),
        (("--at", "2001-01-01T09:00Z"), "in the past"),
        (("--every", "1s"), "from 1 minute"),
    ],
)
def test_what_is_refused(cli, options, says):
    """Naming the option and what would do."""
    cli.staff("scout")
    error = cli.refused("plan", "add", *options, "scout", "Audit the logs")
    assert error["code"] == "invalid_input" and says in error["detail"]


def test_the_documented_commands(cli):
    """Every command of docs/plans.md works as it stands there."""
    cli.staff("scout")
    text = Path(PROJECT, "docs", "plans.md").read_text("utf-8")
    [block] = re.findall(r"```console\n(.*?)```", text, re.DOTALL)
    lines = [shlex.split(line.removeprefix("$ tocsin ")) for line in block.splitlines()]
    assert len(lines) == 9
    plan = ""
    for words in lines:
        said = cli.json(*(plan if word == "PLAN" else word for word in words))
        if words[:2] == ["plan", "add"]:
            plan = said["id"]
    assert [each["state"] for each in cli.json("plan", "list")] == ["active", "active"]
