"""Where `TOCSIN_URL` leads: to the fleet itself, or to a server of Tocsin that works for agents."""

from __future__ import annotations

import ipaddress
from urllib.parse import urlsplit

from tocsin.broker.errors import Forbidden, InvalidInput

_OPERATION = "connect"


def is_remote(url: str) -> bool:
    """Whether a url is that of a server of Tocsin, and not of the fleet's own."""
    return url.startswith(("http://", "https://"))


def check_address(url: str) -> str:
    """The address of a server, below which its API is; one that would give tokens away is not."""
    parts = urlsplit(url)
    if parts.username is not None or parts.query or parts.fragment:
        raise InvalidInput(
            _OPERATION,
            "the url of a Tocsin server holds no user, password or query; the token of your seat "
            "is what lets you in: `tocsin seat add herd/agent` stores it",
        )
    if parts.scheme == "http" and not _is_loopback(parts.hostname or ""):
        raise InvalidInput(
            _OPERATION,
            "http:// to another machine would show your token to whoever listens; use https://, or "
            "a tunnel to loopback",
        )
    path = parts.path.rstrip("/").removesuffix("/mcp")
    return f"{parts.scheme}://{parts.netloc}{path}"


def _is_loopback(host: str) -> bool:
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def operators_own(what: str) -> Forbidden:
    """The refusal of what works on the fleet itself."""
    return Forbidden(
        what,
        "this is its operator's, and needs the fleet's own url; run it where TOCSIN_URL is that of "
        "its Redis (redis://...), or ask whoever runs the fleet",
    )
