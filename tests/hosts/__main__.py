"""`make test-hosts`: pi, a real host, joins by `tocsin connect pi`, and is woken 100 times.

It runs as its users run it, from npm; only its model is a script on loopback, and nothing else is
within its reach. Needs npm; Node itself comes as a package. What it installs is in `.node/hosts`.
"""

from __future__ import annotations

import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from tests.hosts.model import Heard, Model, Use, ids, serving
from tests.hosts.rpc import Pi
from tests.node import install
from tocsin.broker import Broker, Parent, TaskState
from tocsin.broker.embedded import EmbeddedServer

HERE = Path(__file__).resolve().parent
FOLDER = HERE.parents[1] / ".node/hosts"
TOCSIN = str(Path(sys.executable).with_name("tocsin"))

WAKES = int(os.environ.get("WAKES", "100"))
LONGEST = 60.0

T = TypeVar("T")


def until(found: Callable[[], T], what: str, pi: Pi | None = None) -> T:
    """The first true value, within a minute."""
    end = time.monotonic() + LONGEST
    while not (value := found()):
        if time.monotonic() > end:
            last = "" if pi is None else f"\npi said: {list(pi.said)[-5:]}\n{list(pi.errors)}"
            raise TimeoutError(f"waited {LONGEST:g} s for {what}{last}")
        time.sleep(0.01)
    return value


class Agent:
    """What the model of scout does: it reads its mail whenever it is told of some, and obeys."""

    def __init__(self, gate: Path) -> None:
        self._gate = gate

    def __call__(self, heard: list[Heard], tools: set[str]) -> Use | str:
        last = heard[-1]
        if last.role == "user":
            return Use("mcp__tocsin__inbox")
        if last.role != "tool":
            raise ValueError(f"a conversation ends with {last.role}")
        text = last.text
        if "Validation failed" in text or "MCP error" in text:
            raise ValueError(text)
        if re.search(r"^task msg_", text, re.MULTILINE):
            return Use("mcp__tocsin__ask", {"to": "parent", "body": "Which backoff?"} | _task(text))
        if "Exponential" in text:
            asked = next(each.text for each in reversed(heard) if ids("task", each.text))
            return Use(
                "mcp__tocsin__done",
                {"outcome": "completed", "summary": "Exponential backoff"} | _task(asked),
            )
        if "pending" in text:
            return Use("mcp__tocsin__ask_wait", {"ask_id": ids("msg", text)[0]})
        if "be busy" in text and "message msg_" in text:
            wait = f"until [ -e {self._gate} ]; do sleep 0.05; done; echo the gate is open"
            return Use("bash", {"command": wait})
        if "the gate is open" in text:
            busy = next(each.text for each in reversed(heard) if "message msg_" in each.text)
            return Use("mcp__tocsin__ack", {"messages": ids("msg", busy)})
        if "message msg_" in text or "notice msg_" in text:
            return Use("mcp__tocsin__ack", {"messages": ids("msg", text)})
        return "Done."


def _task(text: str) -> dict[str, str]:
    return {"task": ids("task", text)[0]}


def environment(home: Path, url: str) -> dict[str, str]:
    """All that pi is given: a proxy that lets nothing through stands for the network."""
    return {
        "PATH": f"{FOLDER / 'node_modules/.bin'}:/usr/bin:/bin",
        "HOME": str(home),
        "PI_CODING_AGENT_DIR": str(home / "pi"),
        "PI_OFFLINE": "1",
        "PI_TELEMETRY": "0",
        "PI_SKIP_VERSION_CHECK": "1",
        "HTTP_PROXY": url,
        "HTTPS_PROXY": url,
        "NO_PROXY": "127.0.0.1,localhost",
    }


def tocsin(home: Path, server: str, *words: str) -> Any:
    """A command as a person types it."""
    env = environment(home, "http://127.0.0.1:9") | {"TOCSIN_URL": server, "TOCSIN_FLEET": "hosts"}
    done = subprocess.run(
        [TOCSIN, *words, "--json"], env=env, cwd=home, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, f"{words}: {done.stdout}{done.stderr}"
    return json.loads(done.stdout)


def connected(home: Path, server: str, url: str) -> None:
    """The host is set up: a model on loopback, and Tocsin by its own command."""
    (home / "pi").mkdir()
    model = {"baseUrl": f"{url}/v1", "apiKey": "none", "api": "openai-completions"}
    models = {"providers": {"script": model | {"models": [{"id": "scripted"}]}}}
    (home / "pi/models.json").write_text(json.dumps(models))
    told = tocsin(home, server, "connect", "pi", "--scope", "user", "--seat", "release-42/scout")
    for check in told["checks"]:
        print(f"connect: {check['what']}: {check['told']}")
    assert all(check["ok"] for check in told["checks"]), told


def wakes(parent: Parent, model: Model, pi: Pi) -> list[float]:
    """Message after message to an idle agent; each must reach its model, and be dealt with."""
    took = []
    for number in range(WAKES):
        until(lambda: pi.idle, "pi to be idle", pi)
        before, began = len(model.requests), time.monotonic()
        sent = parent.message("scout", f"number {number}")
        handled(parent, sent.message_id, pi)
        took.append(model.requests[before][-1].at - began)
    return took


def handled(parent: Parent, message: str, pi: Pi) -> None:
    """Waits until a message is acked."""
    until(lambda: parent.receipt(message).state == "handled", f"{message} to be acked", pi)


def follow_up(parent: Parent, pi: Pi, gate: Path) -> None:
    """What comes while it works waits for the end of the run, and then is taken up at once."""
    until(lambda: pi.idle, "pi to be idle", pi)
    first = parent.message("scout", "be busy")
    until(lambda: _uses(pi, "bash"), "pi to work", pi)
    run, second = pi.began, parent.message("scout", "and then this")
    until(lambda: _queued(pi, "followUp"), "the follow-up to be queued", pi)
    third = parent.message("scout", "look here first", delivery="steer")
    until(lambda: _queued(pi, "steering"), "the steering message to be queued", pi)
    gate.touch()
    for sent in (first, second, third):
        handled(parent, sent.message_id, pi)
    assert pi.began == run, "it came as a run of its own"


def _uses(pi: Pi, tool: str) -> bool:
    return any(
        each.get("type") == "tool_execution_start" and each.get("toolName") == tool
        for each in list(pi.said)
    )


def _queued(pi: Pi, queue: str) -> bool:
    return any(each.get("type") == "queue_update" and each.get(queue) for each in list(pi.said))


def task(parent: Parent, pi: Pi) -> str:
    """It takes a task, asks its parent, is answered, and finishes."""
    until(lambda: pi.idle, "pi to be idle", pi)
    handed = parent.delegate("scout", "Find how to retry")
    mail = parent.next_turn(timeout=LONGEST)
    assert mail is not None, "no question came"
    [question] = [each for each in mail if each.kind == "request"]
    assert question.body == "Which backoff?" and question.task_id == handed.id
    parent.reply(question, "Exponential")
    mail.ack()
    [settled] = parent.wait(handed.id, timeout=LONGEST)
    assert parent.task(handed.id).state is TaskState.COMPLETED
    return str(settled.summary)


def main() -> None:
    """The whole story."""
    pi_command = str(install(HERE / "package.json", FOLDER) / "pi")
    with (
        EmbeddedServer(durable=False) as server,
        tempfile.TemporaryDirectory(prefix="tocsin-hosts-") as folder,
    ):
        home = Path(folder)
        gate = home / "gate"
        model = Model(Agent(gate))
        tocsin(home, server.url, "herd", "open", "release-42")
        tocsin(home, server.url, "agent", "register", "scout")
        with serving(model) as url, Broker.connect(server.url, fleet="hosts") as broker:
            connected(home, server.url, url)
            seats = json.loads(next(home.rglob("seats.json")).read_text())["places"][0]["seats"]
            parent = broker.join("release-42", "parent", seats["release-42/parent"]["token"])
            assert isinstance(parent, Parent)
            words = [pi_command, "--mode", "rpc", "--provider", "script", "--model", "scripted"]
            pi = Pi(words, environment(home, url), home)
            try:
                pi.tell("get_state", id="up")
                until(lambda: pi.said, "pi to be up", pi)
                took = wakes(parent, model, pi)
                print(
                    f"pi: {len(took)} wakes, none lost, median {statistics.median(took) * 1000:.0f}"
                    f" ms, longest {max(took) * 1000:.0f} ms"
                )
                follow_up(parent, pi, gate)
                print("pi: a follow-up while it was busy was taken up in the same run")
                print(f"pi: asked, was answered, finished: {task(parent, pi)}")
                [scout] = [each for each in parent.roster() if each.agent == "scout"]
                assert scout.wake_path == "send-user-message", scout
            finally:
                print(f"pi: ended with {pi.close()}")
            assert not model.failures, model.failures
            assert not model.strangers, f"it looked for a network: {model.strangers}"
            assert not parent.dead_letters()


if __name__ == "__main__":
    main()
