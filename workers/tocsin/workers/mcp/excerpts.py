"""Long words in answers: cut so that a host shows all of an answer, and told how to read on.

Hosts cut or refuse a result above some length, each in its own way, and its end is lost: a mark of
a quotation, or the id to go on with. So an answer is made shorter here, where that can be said.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from tocsin.broker.errors import InvalidInput
from tocsin.broker.framing import quoted
from tocsin.workers.mcp.toolbox import Answer

LONGEST_RESULT = 19_500
"""Characters of a whole result as it is sent; hosts take 20,000."""

PREVIEWS = (1_500, 700, 300, 120, 40)
"""Characters of each text where an answer has several; the first that fits counts."""

PIECES = (8_000, 4_000, 2_000, 1_000)
"""The same, where an answer is about one text."""


def fitted(answers: Iterable[Answer]) -> Answer:
    """The first of these answers that is short enough, or else the last; none after it is made."""
    for answer in answers:
        size = len(answer.result().model_dump_json(by_alias=True, exclude_none=True))
        if size < LONGEST_RESULT:
            break
    return answer


def fewer(count: int) -> Iterator[tuple[int, int]]:
    """How many of so many rows an answer shows, and how many characters of each text in them: first
    less of each, then half of the rows, and so on."""
    for most in PREVIEWS:
        yield count, most
    while count > 1:
        count //= 2
        yield count, PREVIEWS[-1]


def excerpt(text: str, most: int, call: str, offset: int = 0) -> str:
    """A text of somebody else as far as it is shown, quoted; `call` reads on, given an offset."""
    end = min(offset + most, len(text))
    shown = quoted(text[offset:end])
    if end < len(text):
        shown += f"\nCut at {end} of {len(text)} characters; read on with {call}, offset={end})."
    return shown


def cut(facts: dict[str, Any], most: int, *names: str) -> dict[str, Any]:
    """The same facts with these texts cut; how long a text is that was cut stands beside it."""
    long = {name: len(facts[name]) for name in names if len(facts.get(name) or "") > most}
    if not long:
        return facts
    return facts | {name: facts[name][:most] for name in long} | {"characters": long}


def check_offset(operation: str, offset: int, text: str) -> None:
    """An offset from which there is something to read."""
    if offset and offset >= len(text):
        raise InvalidInput(
            operation, f"offset {offset} is past the end: it has {len(text)} characters"
        )


def piece(text: str, offset: int, most: int) -> dict[str, Any]:
    """One part of a long text as data, and where the next one begins."""
    end = min(offset + most, len(text))
    data = {"body": text[offset:end], "offset": offset, "characters": len(text)}
    return data | ({"next_offset": end} if end < len(text) else {})
