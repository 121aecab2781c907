"""One turn of a child of the demo: the program that a worker starts for it, and that ends with it.

    python -m tocsin.workers.cli.demo.turn FOLDER [--resume SESSION]

It stands for a coding agent's command line: it reads its turn, acts, keeps its notes as a session,
and exits. What it tells goes into a file of FOLDER, a JSON object a line.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

from tocsin.broker import AsyncBroker, AsyncChild, Envelope
from tocsin.broker.settings import ConnectionSettings
from tocsin.workers.cli.demo.pace import pace_of
from tocsin.workers.cli.demo.player import printer
from tocsin.workers.cli.demo.reading import Reading
from tocsin.workers.cli.demo.story import TURNS, Notes
from tocsin.workers.credentials import Credentials


def told_in(folder: Path, role: str) -> Path:
    """Where a role tells what it does."""
    return folder / f"{role}.jsonl"


async def play(turn: dict[str, Any], token: str, folder: Path, notes: Notes) -> None:
    """Plays one turn of a role."""
    mail = [Envelope.model_validate_json(json.dumps(each)) for each in turn["mail"]]
    url, fleet = os.environ["TOCSIN_URL"], os.environ["TOCSIN_FLEET"]
    async with AsyncBroker.connect(url, fleet=fleet) as broker:
        me = await broker.join(turn["herd"], turn["agent"], token)
        assert isinstance(me, AsyncChild)
        pace = await pace_of(broker)
        with told_in(folder, turn["agent"]).open("a") as lines:
            await TURNS[turn["agent"]](me, pace, printer(pace, lines), mail, notes)


def main(folder: Path, session: str | None) -> None:
    """Reads the turn and the notes of earlier ones, plays it, and keeps the notes."""
    turn = json.loads(Path(os.environ["TOCSIN_TURN_FILE"]).read_text())
    place = ConnectionSettings(url=os.environ["TOCSIN_URL"], fleet=os.environ["TOCSIN_FLEET"])
    seat = Credentials(place).get(f"{turn['herd']}/{turn['agent']}")
    assert seat is not None
    name = session or f"session-{turn['agent']}"
    kept = folder / name
    known = json.loads(kept.read_text()) if kept.exists() else {}
    notes = {task: Reading(**fields) for task, fields in known.items()}
    asyncio.run(play(turn, seat.token, folder, notes))
    kept.write_text(json.dumps({task: asdict(each) for task, each in notes.items()}))
    Path(os.environ["TOCSIN_SESSION_FILE"]).write_text(name)


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[3] if sys.argv[2:3] == ["--resume"] else None)
