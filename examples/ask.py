"""One agent asks another, in a process of its own, and stays on the line until it answers.

    $ tocsin up                           # in one terminal: a server and a scheduler
    $ python examples/ask.py redis://...  # in another, with the address that `up` printed

Run with a server's address, and a fleet if you like. It prints:

    scout: asks planner "Which backoff?" and waits, at most 3s of silence
    planner: thinks for longer than that, and shows that it does
    planner: answers
    scout: has "Exponential, base 2 s"; it waited on while planner worked
    scout: asks planner "And the cap?"
    planner: has gone home
    scout: gives up on it: no_reply, read_but_silent; the question stays open
    scout: finds the answer in its mail later: "60 s" (late)
"""

from __future__ import annotations

import multiprocessing
import sys
import time
from datetime import timedelta
from uuid import uuid4

from tocsin.broker import Broker, Child
from tocsin.broker.errors import NoReply

WINDOW = timedelta(seconds=3)


def planner(url: str, fleet: str, herd: str, token: str) -> None:
    """Takes longer to think than its asker bears silence; then does not answer in time at all."""
    with Broker.connect(url, fleet=fleet) as broker:
        me = broker.join(herd, "planner", token)
        me.message("scout", "I am here")
        first = me.next_turn()
        assert first is not None
        with first:
            print("planner: thinks for longer than that, and shows that it does", flush=True)
            for part in range(6):
                time.sleep(WINDOW.total_seconds() / 4)  # the model at work
                me.progress("weighing backoffs", fraction=part / 6)
            print("planner: answers", flush=True)
            me.reply(first[0], "Exponential, base 2 s")
        second = me.next_turn()
        assert second is not None
        with second:
            print("planner: has gone home", flush=True)
            asker = me.next_turn()  # until somebody writes
            assert asker is not None
            with asker:
                me.reply(second[0], "60 s")


def scout(me: Child) -> None:
    """Asks, waits, and goes on when nobody answers."""
    here = me.next_turn()
    assert here is not None
    here.ack()
    print(f'scout: asks planner "Which backoff?" and waits, at most {WINDOW.seconds}s of silence')
    reply = me.ask("planner", "Which backoff?", window=WINDOW)
    assert reply.waited > WINDOW
    print(f'scout: has "{reply.body}"; it waited on while planner worked')

    print('scout: asks planner "And the cap?"', flush=True)
    try:
        me.ask("planner", "And the cap?", window=WINDOW)
    except NoReply as silence:
        print(f"scout: gives up on it: {silence.code}, {silence.reason}; the question stays open")
        me.message("planner", "Still there?")
    turn = me.next_turn(timeout=10)
    assert turn is not None
    with turn:
        late = " (late)" if turn[0].late else ""
        print(f'scout: finds the answer in its mail later: "{turn[0].body}"{late}')


def main(url: str, fleet: str) -> None:
    """A herd with two children: scout here, planner in a process of its own."""
    herd = f"release-{uuid4().hex[:8]}"  # a name that is free
    with Broker.connect(url, fleet=fleet) as broker:
        parent = broker.open_herd(herd)
        tokens = {name: str(parent.register(name).token) for name in ("scout", "planner")}
        spawn = multiprocessing.get_context("spawn")
        args = (url, fleet, herd, tokens["planner"])
        other = spawn.Process(target=planner, args=args, daemon=True)
        other.start()
        me = broker.join(herd, "scout", tokens["scout"])
        assert isinstance(me, Child)
        scout(me)
        other.join()
        parent.close_herd()


if __name__ == "__main__":
    sys.stdout.reconfigure(line_buffering=True)  # type: ignore[union-attr]  # two processes print
    given = sys.argv[1:]
    main(given[0] if given else "redis://127.0.0.1:6379/0", given[1] if given[1:] else "default")
