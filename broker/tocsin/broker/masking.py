"""What may be shown, logged or put in an error of a value that may hold a secret."""

from __future__ import annotations

import re
from datetime import timedelta

_TOKEN = re.compile(r"\btok_[A-Za-z0-9_-]{8,}")


def without_tokens(text: str) -> str:
    """`text` with the tokens of agents masked."""
    return _TOKEN.sub("tok_***", text)


def redacted(url: str) -> str:
    """`url` without its secrets: what may be shown, logged or put in an error.

    Passwords are masked even where the url is malformed (one with an unescaped `/`, `?` or `@`),
    so rather too much is masked than too little. Of the query only `db` and `protocol` are shown.
    """
    if not re.match(r"rediss?\+sentinel://[\w.-]+@[^@]*$", url):  # only the name of a primary
        url = re.sub(r"(?s)^([\w+]+://)?([^:@/?#]*:)?.*@", r"\1\2***@", url)
    return re.sub(r"([?&;](?!db=|protocol=)[^=&;]*=)[^&;]*", r"\1***", url)


def origin(url: str) -> str:
    """A webhook as it may be shown: its path and query are as secret as a password."""
    found = re.match(r"(\w+://)(?:.*@)?([^/?#@]*)(.?)", url, re.DOTALL)
    return f"{found[1]}{found[2]}{'/***' if found[3] else ''}" if found else "***"


def shown(value: object) -> str:
    """`value` as an error shows it: without passwords, at most about 80 printable characters."""
    if isinstance(value, int) and value.bit_length() > 128:
        return "a huge number"
    if not (value is None or isinstance(value, str | int | float | timedelta)):
        return f"a {type(value).__name__}"
    text = repr(redacted(value) if isinstance(value, str) else value)
    return text if len(text) <= 80 else f"{text[:80]}..."
