"""Children with a runner on the command line: registered, shown, limited, and what doctor finds."""

from __future__ import annotations

import json

import pytest

from tests.topologies import free_port
from tests.turning import queue_of
from tocsin.broker import Broker, Ending, How, turns


@pytest.fixture
def herd(cli):
    """The herd release-42, opened."""
    cli.good("herd", "open", "release-42")
    return cli


@pytest.fixture
def operator(cli):
    """A broker of the same fleet."""
    with Broker.connect(cli.url, fleet=cli.fleet) as broker:
        yield broker


def test_a_runner_by_its_options_and_by_a_file(herd, tmp_path):
    """Words of a program, a function, or all fields as JSON, with options put over them."""
    herd.good("agent", "register", "coder", "--command", "claude -p 'be brief'", "--queue", "gpu")
    herd.good("agent", "register", "judge", "--callable", "agents.judge:work")
    file = tmp_path / "runner.json"
    file.write_text(json.dumps({"command": ["pi"], "turn_timeout": "10m", "queue": "cpu"}))
    herd.good("agent", "register", "other", "--runner", str(file), "--account", "acme")
    herd.good("agent", "register", "typed", "--runner", "-", typed=file.read_text())
    found = {each["agent"]: each["turns"] for each in herd.json("agent", "list")}
    assert found["parent"] is None
    assert (found["coder"]["runner"], found["coder"]["queue"]) == ("command: claude", "gpu")
    assert found["judge"]["runner"] == "callable: agents.judge:work"
    assert (found["other"]["queue"], found["other"]["account"]) == ("cpu", "acme")
    assert found["typed"]["runner"] == "command: pi"
    herd.good("agent", "register", "coder", "--exist-ok")
    assert herd.json("agent", "show", "coder")["turns"]["queue"] == "gpu"
    herd.good("agent", "register", "coder", "--exist-ok", "--command", "codex exec")
    assert herd.json("agent", "show", "coder")["turns"]["runner"] == "command: codex"


def test_a_runner_of_the_settings_file_is_given_changed_and_taken_away(herd):
    """By its name; options are put over it. Without one, the child needs a process again."""
    config = herd.home / "config" / "tocsin" / "config.toml"
    config.parent.mkdir(parents=True, exist_ok=True)
    config.write_text('[runners.coder]\ncommand = ["claude"]\nprofile = "claude-code"\n')
    herd.good("agent", "register", "scout", "--runner", "coder", "--queue", "gpu")
    turns = herd.json("agent", "show", "scout")["turns"]
    assert (turns["runner"], turns["queue"]) == ("claude-code: claude", "gpu")
    said = herd.good("agent", "runner", "scout", "--command", "codex exec").stdout
    assert "is run by command: codex" in said
    assert herd.json("agent", "show", "scout")["turns"]["queue"] == "tocsin"
    assert herd.json("agent", "runner", "scout", "--none")["runner"] is None
    assert herd.json("agent", "show", "scout")["turns"] is None
    for options in ([], ["--none", "--command", "codex"]):
        assert "give one of" in herd.refused("agent", "runner", "scout", *options)["detail"]
    unknown = herd.refused("agent", "runner", "scout", "--runner", "code")
    assert "there are 'coder'" in unknown["detail"]


@pytest.mark.parametrize(
    ("options", "word"),
    [
        (["--queue", "gpu"], "--command"),
        (["--command", "a", "--callable", "b:c"], "one of"),
        (["--command", "a 'b"], "cannot be parted"),
        (["--command", ""], "runner.command"),
        (["--callable", "b"], "package.module:function"),
        (["--runner", "/nowhere.json"], "/nowhere.json"),
        (["--command", "a", "--queue", "My Queue"], "runner.queue"),
    ],
)
def test_what_is_no_runner_is_refused_and_registers_nothing(herd, options, word):
    """With the option and the rule in the message."""
    refusal = herd.refused("agent", "register", "coder", *options)
    assert refusal["code"] == "invalid_input" and word in refusal["detail"]
    assert [each["agent"] for each in herd.json("agent", "list")] == ["parent"]


def test_an_agents_turns_and_what_they_came_to(herd, operator):
    """`agent show` has the state of the turn, and the counters that cost is seen by."""
    herd.good("agent", "register", "coder", "--command", "code", "--queue", herd.fleet)
    herd.good("message", "coder", "hello")
    assert "turn due" in herd.good("agent", "show", "coder").stdout
    turn = operator.claim_turn("release-42", "coder", 1)
    assert turn is not None and turn.child.receive()
    assert "turn running" in herd.good("agent", "list").stdout
    turn.end(Ending(kind=How.EXITED, exit_code=0))
    shown = herd.json("agent", "show", "coder")["turns"]
    assert (shown["state"], shown["ended"]) == ("none", "idle")
    assert (shown["wakes"], shown["turns"], shown["characters"]) == (1, 1, 5)
    assert herd.refused("agent", "show", "nobody")["code"] == "unknown_agent"


def test_limits_of_turns_at_once(herd):
    """Set, shown, and as they were by default; a scope that is none is refused."""
    assert [each["scope"] for each in herd.json("turn", "slots")] == ["fleet"]
    found = herd.json("turn", "limit", "queue/gpu", "4")
    assert [(each["scope"], each["limit"]) for each in found] == [("fleet", 200), ("queue/gpu", 4)]
    assert "queue/gpu" in herd.good("turn", "slots").stdout
    assert len(herd.json("turn", "limit", "queue/gpu", "default")) == 1
    for bad in (("gpu", "4"), ("queue/a b", "4"), ("fleet", "0"), ("fleet", "many")):
        assert herd.refused("turn", "limit", *bad)["code"] == "invalid_input"


def test_doctor_counts_turns_and_misses_workers(herd, operator):
    """What is launched, what is full, a queue that nobody serves, and RQ where it is away."""

    def found(check, **variables):
        result = json.loads(herd.run("doctor", "--json", **variables).stdout)["findings"]
        return "; ".join(each["detail"] for each in result if each["check"] == check)

    assert not found("turns")
    operator.limit_turns("account/acme", 1)
    turn = turns.DueTurn("release-42", "coder", 1, f"{herd.fleet}/acme", "mail", 1, 60_000, "")
    operator.run(turns.take_slots(operator.fleet(), [], [turn]))
    assert "0 due, 0 launched" in found("turns")
    assert "account/acme has all its 1" in found("turns")
    assert f"no worker of queue {herd.fleet} runs" in found("workers")
    port = free_port()
    away = found("workers", TOCSIN_RQ_URL=f"redis://127.0.0.1:{port}/0")
    assert "RQ" in away and str(port) in away
    operator.run(turns.take_slots(operator.fleet(), [turn.slot], []))


def test_the_scheduler_command_launches(herd):
    """`tocsin scheduler --once` puts what is due into its queue."""
    file = json.dumps({"command": ["code"], "wake_batch": 0, "queue": herd.fleet})
    herd.good("agent", "register", "coder", "--runner", "-", typed=file)
    herd.good("message", "coder", "hello")
    with queue_of(herd.url, herd.fleet) as queue:
        assert herd.json("scheduler", "--once", "--repair-every", "0")["turns_launched"] == 1
        assert len(queue.job_ids) == 1
