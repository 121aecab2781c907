"""What the shell offers when Tab is pressed. Never fails, moves nothing, counts as no presence."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import typer

from tocsin.broker import Parent
from tocsin.broker.errors import BrokerError
from tocsin.broker.settings import ENV_NAMES, describe
from tocsin.workers.cli.blocks import brief
from tocsin.workers.cli.output import Output

Offer = tuple[str, str]
"""A value and a word about it."""

_MOST = 50


def _completion(
    find: Callable[[typer.Context], Iterable[Offer]],
) -> Callable[[typer.Context, str], list[Offer]]:
    def complete(ctx: typer.Context, incomplete: str) -> list[Offer]:
        try:
            return [offer for offer in find(ctx) if offer[0].startswith(incomplete)]
        except (BrokerError, OSError):
            return []

    return complete


def _seats(ctx: typer.Context) -> Iterable[Offer]:
    from tocsin.workers.cli.session import Session

    session = Session(Output(), ctx.params.get("url"), ctx.params.get("fleet"))
    return [(name, session.credentials.fleet) for name in session.credentials.seats()]


def _agents(ctx: typer.Context) -> Iterable[Offer]:
    from tocsin.workers.cli.session import peek

    with peek(ctx.params) as agent:
        found = agent.roster()
    return [(each.agent, each.role or each.state) for each in found]


def _tasks(ctx: typer.Context) -> Iterable[Offer]:
    from tocsin.workers.cli.session import peek

    with peek(ctx.params) as agent:
        found = agent.tasks(limit=_MOST) if isinstance(agent, Parent) else agent.tasks()
    return [(each.id, f"{each.agent}, {each.state}: {brief(each.description)}") for each in found]


def _plans(ctx: typer.Context) -> Iterable[Offer]:
    from tocsin.workers.cli.session import peek

    with peek(ctx.params) as agent:
        found = agent.plans() if isinstance(agent, Parent) else []
    return [(each.id, f"{each.agent}, {each.state}: {brief(each.description)}") for each in found]


def _requests(ctx: typer.Context) -> Iterable[Offer]:
    from tocsin.workers.cli.session import peek

    with peek(ctx.params) as agent:
        found = agent.roster()
    return [(request, f"waits for {each.agent}") for each in found for request in each.waited_on_by]


def _dead(ctx: typer.Context) -> Iterable[Offer]:
    from tocsin.workers.cli.session import peek

    with peek(ctx.params) as agent:
        found = agent.dead_letters(limit=_MOST) if isinstance(agent, Parent) else []
    return [(each.message_id, f"to {each.recipient}: {brief(each.reason)}") for each in found]


def _settings(ctx: typer.Context) -> Iterable[Offer]:
    rows = {row.name: row.description for row in describe()}
    return [(name, rows[name]) for name in ENV_NAMES]


complete_seat = _completion(_seats)
complete_agent = _completion(_agents)
complete_task = _completion(_tasks)
complete_plan = _completion(_plans)
complete_request = _completion(_requests)
complete_dead = _completion(_dead)
complete_setting = _completion(_settings)
