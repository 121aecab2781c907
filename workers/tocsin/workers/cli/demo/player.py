"""One process of the demo: an agent with its seat, the scheduler, or a worker that runs turns.

    python -m tocsin.workers.cli.demo.player scout

Where the fleet is and which seat it has, the environment says (`TOCSIN_URL`, `TOCSIN_FLEET`,
`TOCSIN_HERD`, `TOCSIN_AGENT`, `TOCSIN_TOKEN`). Its standard input is its life line: when the other
end goes, however that comes about, it goes too. What it does it prints, a JSON object a line.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import signal
import sys
import threading
from collections.abc import Callable
from datetime import timedelta
from typing import Any, TextIO

from tocsin.broker import AsyncBroker
from tocsin.broker.clock import to_ms
from tocsin.scheduler import AsyncScheduler
from tocsin.workers.cli.demo.pace import Pace, pace_of
from tocsin.workers.cli.demo.story import ROLES
from tocsin.workers.cli.serving import serve
from tocsin.workers.cli.worker import QUEUE

SCHEDULER = "scheduler"
WORKERS = ("worker-1", "worker-2")

LAST_SECONDS = 8.0
"""How long a process may take to end once its life line is gone."""


def printer(pace: Pace, stream: TextIO = sys.stdout) -> Any:
    """`tell` of the story: prints what an agent does, with the fleet's time."""

    def tell(what: str, text: str, task: str | None = None, **facts: Any) -> None:
        line = {"at": to_ms(pace.now()), "what": what, "text": text, "task": task, "facts": facts}
        stream.write(json.dumps(line, default=str) + "\n")
        stream.flush()

    return tell


def hold_life_line(end: Callable[[], object]) -> None:
    """Calls `end` when standard input ends, and ends the process soon after, come what may."""

    def watch() -> None:
        while os.read(0, 1024):
            pass
        end()
        threading.Event().wait(LAST_SECONDS)
        os._exit(1)

    threading.Thread(target=watch, name="life-line", daemon=True).start()


async def play(role: str) -> None:
    """Plays one role until its part is over, its herd is closed or its life line is gone."""
    task = asyncio.current_task()
    loop = asyncio.get_running_loop()
    assert task is not None
    hold_life_line(lambda: loop.is_closed() or loop.call_soon_threadsafe(task.cancel))
    loop.add_signal_handler(signal.SIGTERM, task.cancel)
    environ = os.environ
    async with AsyncBroker.connect(environ["TOCSIN_URL"], fleet=environ["TOCSIN_FLEET"]) as broker:
        if role == SCHEDULER:
            await serve(AsyncScheduler(broker, rq_url=environ.get("TOCSIN_RQ_URL")))
            return
        seat = (environ["TOCSIN_HERD"], environ["TOCSIN_AGENT"], environ["TOCSIN_TOKEN"])
        me = await broker.join(*seat)
        pace = await pace_of(broker)
        await ROLES[role](me, pace, printer(pace))


def work(role: str) -> None:
    """Runs turns of the children until its life line is gone."""
    from tocsin.workers.child import worker

    hold_life_line(lambda: os.kill(os.getpid(), signal.SIGTERM))
    worker.serve(
        os.environ["TOCSIN_RQ_URL"], [QUEUE], name=role, grace=timedelta(seconds=LAST_SECONDS / 4)
    )


def main() -> None:
    """Plays the role that is named in the first argument."""
    logging.basicConfig(level=logging.WARNING, format="%(name)s: %(message)s")
    role = sys.argv[1]
    try:
        if role in WORKERS:
            work(role)
        else:
            asyncio.run(play(role))
    except asyncio.CancelledError:
        sys.exit(128 + signal.SIGTERM)


if __name__ == "__main__":
    main()
