"""A program that stands for a coding agent's command line: it reads its turn, acts, and exits.

    python scripted_agent.py FOLDER [--resume SESSION]

Of a task it asks planner and ends; when the answer starts its next turn, with its session, it
settles the task. A question it answers. In FOLDER it notes each turn that it began. A task's
description may make it misbehave: `die` kills it whenever it is run; `hang` has it wait until
somebody ends it, the first time, and be done the next; `wait` until FOLDER has a file `go`.
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path
from typing import Any

from tocsin.broker import Broker, Child
from tocsin.broker.settings import ConnectionSettings
from tocsin.workers.credentials import Credentials


def note(folder: Path, name: str, *words: object) -> None:
    """Adds a line to a file, in one piece."""
    with (folder / name).open("a") as file:
        file.write(" ".join(map(str, words)) + "\n")


def begin(me: Child, task: dict[str, Any], folder: Path) -> None:
    """Misbehaves, or asks."""
    body = task["body"]
    if "die" in body:
        os.kill(os.getpid(), 9)
    if "wait" in body:
        note(folder, "pids", os.getpid())
        while not (folder / "go").exists():
            time.sleep(0.01)
        me.done(task["task_id"], "completed")
        return
    if "hang" in body:
        mark = folder / f"hung-{task['task_id']}"
        if not mark.exists():
            mark.touch()
            note(folder, "pids", os.getpid())
            time.sleep(600)
        me.done(task["task_id"], "completed")
        return
    me.message(
        "planner",
        f"Where do I start with {body}?",
        task=task["task_id"],
        expects_reply=True,
        key=f"ask-{task['task_id']}",  # a turn that is tried again asks the same question
    )


def main() -> None:
    """One turn."""
    environ, folder = os.environ, Path(sys.argv[1])
    turn = json.loads(Path(environ["TOCSIN_TURN_FILE"]).read_text())
    session = sys.argv[3] if sys.argv[2:3] == ["--resume"] else f"session-of-{turn['agent']}"
    Path(environ["TOCSIN_SESSION_FILE"]).write_text(session)
    note(folder, "turns", turn["agent"], turn["turn"], turn["reason"], " ".join(sys.argv[2:]))
    place = ConnectionSettings(url=environ["TOCSIN_URL"], fleet=environ["TOCSIN_FLEET"])
    seat = Credentials(place).get(f"{turn['herd']}/{turn['agent']}")
    assert seat is not None
    with Broker.connect(place.url, fleet=place.fleet) as broker:
        me = broker.join(turn["herd"], turn["agent"], seat.token, instance="inst_" + "a" * 20)
        assert isinstance(me, Child)
        for mail in turn["mail"]:
            if mail["kind"] == "task":
                begin(me, mail, folder)
            elif mail["kind"] == "request":
                me.reply(mail["message_id"], "At the README.")
            elif mail["kind"] == "reply":
                me.done(mail["task_id"], "completed", summary=f"Started: {mail['body']}")


if __name__ == "__main__":
    main()
