"""A parent delegates a task, its child asks another child, and the result comes back.

    $ tocsin up                                # in one terminal: a server and a scheduler
    $ python examples/delegate.py redis://...  # in another, with the address that `up` printed

Run with a server's address, and a fleet if you like. It prints:

    parent: delegated "Find how auth retries work"
    scout: asks planner "Which backoff?"
    planner: answers "Exponential, base 2 s"
    scout: done
    parent: completed with "Retries back off: Exponential, base 2 s"
"""

from __future__ import annotations

import asyncio
import sys
from uuid import uuid4

from tocsin.broker import AsyncBroker, AsyncChild, AsyncParent


async def scout(me: AsyncChild) -> None:
    """Asks before it answers. Its turn ends meanwhile; the reply starts the next one."""
    async for turn in me.turns():
        async with turn:  # acks when the block ends well, gives the mail back when it raises
            for mail in turn:
                if mail.kind == "task":
                    print('scout: asks planner "Which backoff?"')
                    await me.message(
                        "planner", "Which backoff?", task=mail.task_id, expects_reply=True
                    )
                elif mail.kind == "reply" and mail.task_id:
                    print("scout: done")
                    await me.done(mail.task_id, summary=f"Retries back off: {mail.body}")


async def planner(me: AsyncChild) -> None:
    """Answers whatever it is asked."""
    async for turn in me.turns():
        async with turn:
            for mail in turn:
                if mail.expects_reply:
                    print('planner: answers "Exponential, base 2 s"')
                    await me.reply(mail, "Exponential, base 2 s")


async def lead(me: AsyncParent) -> None:
    """Delegates, sleeps until the settlement wakes it, and closes the herd."""
    print('parent: delegated "Find how auth retries work"')
    await me.delegate("scout", "Find how auth retries work", watch=True)
    turn = await me.next_turn(timeout=30)
    assert turn is not None, "nobody settled the task"
    async with turn:
        settled = turn[0].data
        print(f'parent: {settled["status"]} with "{settled["summary"]}"')
    await me.close_herd()  # which ends the turns of its children


async def main(url: str, fleet: str) -> None:
    """All three in one process; usually each has its own."""
    herd = f"release-{uuid4().hex[:8]}"  # a name that is free
    async with AsyncBroker.connect(url, fleet=fleet) as broker:
        parent = await broker.open_herd(herd)
        async with asyncio.TaskGroup() as running:
            for serve in (scout, planner):
                seat = await parent.register(serve.__name__)
                child = await broker.join(herd, seat.agent, str(seat.token))
                assert isinstance(child, AsyncChild)
                running.create_task(serve(child))
            running.create_task(lead(parent))


if __name__ == "__main__":
    given = sys.argv[1:]
    asyncio.run(
        main(
            given[0] if given else "redis://127.0.0.1:6379/0", given[1] if given[1:] else "default"
        )
    )
