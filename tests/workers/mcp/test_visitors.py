"""Whose calls they are: a seat that changes while its process lives."""

from __future__ import annotations

import pytest

from tocsin.broker import errors
from tocsin.workers.mcp.visitors import Guest, Place, Resident, Seat


@pytest.fixture
def at(broker, url):
    """A place of the test's fleet, for these tokens of scout."""
    return lambda *tokens: Place(url, broker.name, Seat("release-42", "scout", tokens))


@pytest.fixture
async def resident(herd, at):
    """Scout, as its process finds it: by what is in `tokens`."""
    scout = _Scout(lambda: at(*scout.tokens))
    scout.tokens = [herd.scout.token]
    yield scout
    await scout.aclose()


class _Scout(Resident):
    tokens: list[str]


async def test_a_rotated_token_is_found_after_one_refusal(herd, resident):
    """The call with the old token is refused; the next reads the seat anew."""
    agent = await resident.agent()
    assert await resident.agent() is agent
    resident.tokens[:] = [(await herd.parent.rotate("scout")).token]
    with pytest.raises(errors.Unauthorized) as refused:
        await agent.inbox()
    await resident.refused(refused.value)
    assert list(await (await resident.agent()).inbox()) == []


async def test_of_two_tokens_the_one_in_force_is_used(herd, broker, at, resident):
    """A rotation that was cut off leaves two tokens, either of which may be valid."""
    resident.tokens.insert(0, "tok_" + "a" * 43)
    assert (await resident.agent()).token == herd.scout.token
    guest = Guest(broker, at("tok_" + "a" * 43, herd.scout.token).seat)
    assert (await guest.agent()).token == herd.scout.token


async def test_a_seat_that_is_not_there_yet_is_looked_for_at_each_call(herd, at):
    """A process may start before its seat is known; until then it has a child's tools."""
    known: list[str] = []

    def find():
        if not known:
            raise errors.InvalidInput("seat", "no seat is chosen")
        return at(*known)

    resident = Resident(find)
    assert resident.is_parent is False
    with pytest.raises(errors.InvalidInput):
        await resident.agent()
    known.append(herd.scout.token)
    assert (await resident.agent()).agent == "scout"
    await resident.aclose()


async def test_all_calls_of_a_guest_are_one_instance(herd, broker, at):
    """However many servers and calls: one instance, and one more for each call that waits."""
    seat = at(herd.scout.token).seat
    one, two = await Guest(broker, seat).agent(), await Guest(broker, seat).agent()
    assert one.instance == two.instance
    async with Guest(broker, seat).staying() as waiting:
        assert waiting.instance != one.instance
        [scout] = [each for each in await herd.parent.roster() if each.agent == "scout"]
        assert waiting.instance in scout.instances
    [scout] = [each for each in await herd.parent.roster() if each.agent == "scout"]
    assert waiting.instance not in scout.instances
