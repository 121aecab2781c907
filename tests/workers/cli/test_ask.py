"""`tocsin ask`, `ask-wait` and `probe`: on the line from a terminal."""

from __future__ import annotations

import json
import signal
import subprocess
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from tests.waiting import wait_until
from tests.workers.cli.conftest import Cli
from tocsin.broker import Broker, HerdSettings, Parent

SCOUT = ("--seat", "release-42/scout")
PLANNER = ("--seat", "release-42/planner")
ASK = ("ask", "planner", "Which backoff?", *SCOUT)


class Asker:
    """A command that blocks, as a process of its own."""

    def __init__(self, cli: Cli, *args: str) -> None:
        self._process = cli.start(*args, stdin=subprocess.DEVNULL)

    def interrupt(self, number: int) -> None:
        self._process.send_signal(number)

    @property
    def ended(self) -> bool:
        return self._process.poll() is not None

    def end(self) -> tuple[int, str, str]:
        """Its exit code, stdout and stderr."""
        out, err = self._process.communicate(timeout=60)
        return self._process.returncode, out, err

    def document(self, code: int = 0) -> Any:
        """The one JSON document of a command that ends with this code."""
        ended, out, err = self.end()
        assert (ended, err) == (code, ""), f"{ended}: {out} {err}"
        return json.loads(out)

    def __enter__(self) -> Asker:
        return self

    def __exit__(self, *exc: object) -> None:
        self._process.kill()
        self._process.communicate()


def asked(cli: Cli, agent: tuple[str, ...] = PLANNER) -> str:
    """The question that an agent has been asked."""
    found = wait_until(
        lambda: [
            each for each in cli.json("inbox", *agent)["envelopes"] if each["kind"] == "request"
        ],
        "the question",
        timeout=30,
    )
    return str(found[0]["message_id"])


@pytest.fixture
def parent(cli: Cli) -> Iterator[Parent]:
    """The parent of a staffed herd, from a process beside the command line."""
    cli.staff("scout", "planner")
    with Broker.connect(cli.url, fleet=cli.fleet) as broker:
        joined = broker.join("release-42", "parent", cli.token("release-42/parent"))
        assert isinstance(joined, Parent)
        yield joined


def test_an_answer(cli):
    """It blocks until the answer is there, and prints it, exact with --json; nothing is mailed."""
    cli.staff("scout", "planner")
    task = cli.working()
    with Asker(cli, *ASK, "--task", task, "--window", "10m", "--ceiling", "4h", "--json") as asker:
        question = asked(cli)
        assert cli.json("task", "show", task)["open_requests"] == [question]
        sent = cli.json("reply", question, "Exponential, [bold]base 2 s", *PLANNER)
        reply = asker.document()
    assert list(reply) == [
        "message_id", "request_id", "sender", "body", "data", "late", "created_at", "waited",
        "extensions",
    ]  # fmt: skip
    assert (reply["message_id"], reply["request_id"]) == (sent["message_id"], question)
    assert (reply["sender"], reply["body"]) == ("planner", "Exponential, [bold]base 2 s")
    assert (reply["late"], reply["extensions"], reply["data"]) == (False, 0, {})
    assert cli.json("task", "show", task)["state"] == "running"
    kinds = [each["kind"] for each in cli.json("inbox", *SCOUT)["envelopes"]]
    assert "reply" not in kinds


def test_an_answer_for_people(cli):
    """Who answered, after how long, and the text behind a bar."""
    cli.staff("scout", "planner")
    with Asker(cli, *ASK) as asker:
        question = asked(cli)
        cli.good("reply", question, "Exponential", *PLANNER)
        code, out, err = asker.end()
    assert code == 0
    assert "reply from planner" in out and "Exponential" in out and question in out
    assert f"Waiting for planner, question {question}; Ctrl-C leaves it open." in err


def test_silence(cli):
    """Exit code 1 with the code, the reason and the id to come back with; no scheduler runs."""
    cli.staff("scout", "planner")
    with Asker(cli, *ASK, "--window", "100ms", "--json") as asker:
        error = asker.document(code=1)["error"]
    fields = ["code", "operation", "detail", "retryable", "message_id", "limit", "reason"]
    assert list(error) == fields and error["limit"] == "window"
    assert (error["code"], error["operation"], error["retryable"]) == ("no_reply", "ask", True)
    assert error["reason"] == "away" and "window of 100ms" in error["detail"]
    assert error["message_id"] == asked(cli)
    with Asker(cli, *ASK, "--window", "100ms") as asker:
        code, out, err = asker.end()
    assert (code, out) == (1, "") and "[no_reply]" in err
    assert f"{cli.fleet}" not in err


def test_a_target_at_work_at_the_ceiling(cli, parent):
    """Exit code 1 with another code: not to be retried."""
    with Asker(cli, *ASK, "--ceiling", "3s", "--window", "3s", "--json") as asker:
        asked(cli)
        cli.good("progress", "at it", *PLANNER)
        error = asker.document(code=1)["error"]
    assert (error["code"], error["retryable"]) == ("ceiling_active", False)
    assert "still working" in error["detail"]


@pytest.mark.parametrize("ended", ["no_reply", "ceiling_active"])
def test_an_answer_that_comes_after_the_end(cli, parent, ended):
    """Case 26: it is mail, marked late, shown as such; and coming back to the ask prints it."""
    limits = {"no_reply": ["--window", "100ms"], "ceiling_active": ["--ceiling", "3s"]}[ended]
    with Asker(cli, *ASK, *limits, "--json") as asker:
        question = asked(cli)
        if ended == "ceiling_active":
            cli.good("progress", "at it", *PLANNER)
        assert asker.document(code=1)["error"]["code"] == ended
    sent = cli.json("reply", question, "Exponential", *PLANNER)

    (late,) = cli.json("inbox", *SCOUT)["envelopes"]
    assert (late["message_id"], late["reply_to"]) == (sent["message_id"], question)
    assert (late["kind"], late["late"], late["body"]) == ("reply", True, "Exponential")
    assert "late" in cli.good("inbox", *SCOUT).stdout
    lines = cli.json("herd", "journal")
    assert any(line["fields"].get("late") for line in lines if line["event"] == "accepted")

    answer = cli.json("ask-wait", question, *SCOUT)
    assert (answer["body"], answer["late"], answer["request_id"]) == ("Exponential", True, question)
    assert cli.json("inbox", *SCOUT)["envelopes"] == []
    assert cli.json("receipt", question)["request"] == ended


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_interrupting(cli, number):
    """The question stays answerable, and what is printed is how to come back to it."""
    cli.staff("scout", "planner")
    with Asker(cli, *ASK) as asker:
        question = asked(cli)
        asker.interrupt(number)
        code, out, err = asker.end()
    assert (code, out) == (130, "")
    assert f"tocsin ask-wait {question}" in err and "Traceback" not in err
    assert cli.json("receipt", question)["request"] == "open"
    assert cli.run("ask-wait", question, "--timeout", "0", *SCOUT).exit_code == 1

    cli.good("reply", question, "Exponential", *PLANNER)

    assert [each["body"] for each in cli.json("inbox", *SCOUT)["envelopes"]] == ["Exponential"]
    assert cli.json("ask-wait", question, *SCOUT)["body"] == "Exponential"
    assert cli.json("inbox", *SCOUT)["envelopes"] == []


def test_interrupting_for_programs(cli):
    """With --json the id is in the one document."""
    cli.staff("scout", "planner")
    with Asker(cli, *ASK, "--json") as asker:
        question = asked(cli)
        asker.interrupt(signal.SIGINT)
        assert asker.document(code=130) == {"message_id": question, "request": "open"}


def test_coming_back(cli):
    """`ask-wait` blocks, too; while the ask is open its timeout is exit code 1."""
    cli.staff("scout", "planner")
    with Asker(cli, *ASK, "--key", "k") as asker:
        question = asked(cli)
        done = cli.run("ask-wait", question, "--timeout", "50ms", "--json", *SCOUT)
        assert done.exit_code == 1
        assert json.loads(done.stdout) == {"message_id": question, "request": "open"}
        with Asker(cli, "ask-wait", question, "--json", *SCOUT) as second:
            with Asker(cli, *ASK, "--key", "k", "--json") as third:
                cli.good("reply", question, "Exponential", *PLANNER)
                for each in (second, third):
                    assert each.document()["body"] == "Exponential"
            assert asker.end()[0] == 0
    assert cli.json("inbox", *SCOUT)["envelopes"] == []
    assert cli.refused("ask-wait", question, *PLANNER)["code"] == "forbidden"
    assert cli.refused("ask-wait", "task_1", *SCOUT)["code"] == "invalid_input"


def test_its_lease_is_renewed_while_it_blocks(cli):
    """It is present for as long as it waits, many leases long, and leaves when it ends."""
    cli.staff("scout", "planner")
    with Broker.connect(cli.url, fleet=cli.fleet) as broker:
        parent = broker.join("release-42", "parent", cli.token("release-42/parent"))
        assert isinstance(parent, Parent)
        short = timedelta(milliseconds=300)
        parent.set_settings(HerdSettings(lease=short, grace=short))

        def instances() -> tuple[str, ...]:
            return {info.agent: info.instances for info in parent.roster()}["scout"]

        with Asker(cli, *ASK, "--json") as asker:
            question = asked(cli)
            (instance,) = wait_until(
                lambda: [each for each in instances() if "cli" not in each], "its instance"
            )
            key = f"{parent.caller.fleet.partition('release-42')}:h:release-42:a:scout:instances"

            def lease() -> float:
                return float(broker.link.command("test", "ZSCORE", key, instance))

            first = lease()
            wait_until(lambda: lease() > first + 3 * 300, "its lease to be renewed")
            parent.reply(question, "Exponential")
            assert asker.document()["body"] == "Exponential"
        assert instance not in instances()


@pytest.mark.parametrize(
    ("option", "value"),
    [("--window", "0"), ("--window", "8d"), ("--ceiling", "soon"), ("--ceiling", "-1")],
)
def test_limits_out_of_bounds(cli, option, value):
    """Refused with the option's name, and nothing asked."""
    cli.staff("scout", "planner")
    error = cli.refused(*ASK, option, value)
    assert error["code"] == "invalid_input" and option[2:] in error["detail"]
    assert cli.json("inbox", *PLANNER)["envelopes"] == []


def test_a_question_from_stdin(cli):
    """`-` reads it."""
    cli.staff("scout", "planner")
    done = cli.run("ask", "planner", "-", "--window", "50ms", *SCOUT, typed="a\nb\n")
    assert done.exit_code == 1
    assert cli.json("inbox", *PLANNER)["envelopes"][0]["body"] == "a\nb"


def test_asking_with_a_probe(cli, parent, tmp_path: Path):
    """The target says nothing, its transcript grows: it is not silent."""
    transcript = tmp_path / "run.jsonl"
    transcript.write_text("{}\n")
    how = ("--probe", str(tmp_path), "--window", "1500ms", "--ceiling", "4s", "--json")
    with Asker(cli, *ASK, *how) as asker:
        asked(cli)

        def works() -> bool:
            with transcript.open("a") as file:
                file.write("{}\n")
            return asker.ended

        wait_until(works, "the ceiling", timeout=30)
        assert asker.document(code=1)["error"]["code"] == "ceiling_active"


def test_coming_back_with_a_probe(cli, parent, tmp_path: Path):
    """What it sees grow counts as work of the target, as it does for `ask --probe`."""
    transcript = tmp_path / "run.jsonl"
    transcript.write_text("{}\n")
    with Asker(cli, *ASK, "--window", "30s") as asker:
        question = asked(cli)
        asker.interrupt(signal.SIGINT)
        asker.end()
    key = f"{parent.caller.fleet.partition('release-42')}:h:release-42:m:{question}"
    with Asker(cli, "ask-wait", question, "--probe", str(tmp_path), "--json", *SCOUT) as back:

        def counted() -> bool:
            with transcript.open("a") as file:
                file.write("{}\n")
            return bool(parent.broker.link.command("test", "HEXISTS", key, "probe_active_at"))

        wait_until(counted, "growth that counts", timeout=30)
        cli.good("reply", question, "Exponential", *PLANNER)
        assert back.document()["body"] == "Exponential"


# ------------------------------------------------------------------ probe


def worked(parent: Parent, agent: str) -> object:
    """When the agent last showed a sign of work."""
    return {info.agent: info.active_at for info in parent.roster()}[agent]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_probe(cli, parent, tmp_path: Path, number):
    """Growth of a transcript is a sign of its agent's work; it is no presence; ends with 0."""
    run = tmp_path / "run"
    how = ("probe", "--dir", str(run), "--every", "100ms", "--json", *PLANNER)
    with Asker(cli, *how) as probe:
        run.mkdir()
        transcript = run / "a.jsonl"

        def grows() -> object:
            with transcript.open("a") as file:
                file.write("{}\n")
            return worked(parent, "planner")

        first = wait_until(grows, "a sign of work", timeout=30)
        wait_until(lambda: grows() != first, "the next one")
        assert worked(parent, "scout") is None
        assert not {info.agent: info.present for info in parent.roster()}["planner"]
        probe.interrupt(number)
        assert probe.document() == {
            "seat": "release-42/planner",
            "directory": str(run),
            "every_s": 0.1,
        }


@pytest.mark.parametrize("there", [True, False])
def test_a_probe_of_a_directory_that_is_not_there(cli, parent, tmp_path: Path, there):
    """It may come yet, but a misspelt one would make a hard worker look silent: that is said."""
    run = tmp_path if there else tmp_path / "rnu"
    with Asker(cli, "probe", "--dir", str(run), "--every", "100ms", *PLANNER) as probe:
        wait_until(lambda: probes(cli, parent), "the first total", timeout=30)
        probe.interrupt(signal.SIGINT)
        _, _, err = probe.end()
    assert ("no directory" in err) != there


def test_a_probe_ends_with_its_agent(cli, parent, tmp_path: Path):
    """An agent that was closed is refused, and so is one that is not there."""
    how = ("probe", "--dir", str(tmp_path), "--every", "100ms", "--json", *PLANNER)
    with Asker(cli, *how) as probe:
        wait_until(lambda: probes(cli, parent), "the first total", timeout=30)
        parent.close("planner")
        code, out, _ = probe.end()
    assert code == 1
    assert json.loads(out.splitlines()[-1])["error"]["code"] == "agent_closed"


def probes(cli: Cli, parent: Parent) -> bool:
    """Whether a probe has published something for planner."""
    key = f"{parent.caller.fleet.partition('release-42')}:h:release-42:a:planner"
    return bool(parent.broker.link.command("test", "HEXISTS", key, "totals"))


@pytest.mark.parametrize("every", ["0", "99ms", "often"])
def test_how_often_a_probe_looks(cli, tmp_path, every):
    """Ten times a second at most."""
    cli.staff("scout", "planner")
    error = cli.refused("probe", "--dir", str(tmp_path), "--every", every, *PLANNER)
    assert error["code"] == "invalid_input" and "every" in error["detail"]
