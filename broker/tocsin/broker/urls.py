"""What the url of a fleet's server says: one server, a Cluster, or who knows the primary. No I/O.

    redis://user:password@host:port/0                              also rediss:// and unix://
    redis+cluster://user:password@host:port,host:port              some of its nodes
    redis+sentinel://user:password@master@host:port,host:port/0    Sentinels, and what they watch

`rediss+cluster` and `rediss+sentinel` are the same over TLS. Options behind `?` are those of
redis-py and hold for every connection; `sentinel_username` and `sentinel_password` are what the
Sentinels ask for, if anything.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple
from urllib.parse import parse_qsl, quote, unquote, urlencode, urlsplit

FORMS = (
    "redis://user:password@host:port/0 (or rediss://, unix://, redis+cluster://host:port,host:port,"
    " redis+sentinel://master@host:port,host:port/0)"
)
"""How a url may be written, for refusals."""

_SEVERAL = re.compile(
    r"(rediss?)\+(cluster|sentinel)://(?:([^/?#]*)@)?([^@/?#]+)(?:/([0-9]*))?(?:\?([!-~]*))?"
)
_SERVER = re.compile(r"(\[[0-9a-fA-F:.]+\]|[A-Za-z0-9._-]+)(?::([0-9]{1,5}))?")
_SENTINEL_OPTIONS = ("sentinel_username", "sentinel_password")


class Shape(StrEnum):
    """How many servers hold a fleet, and who says which."""

    SINGLE = "single"
    CLUSTER = "cluster"
    SENTINEL = "sentinel"


class Node(NamedTuple):
    """One server."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


@dataclass(frozen=True)
class Place:
    """Where a fleet is. A url of one server is kept as it was written, for redis-py to read."""

    shape: Shape
    url: str
    nodes: tuple[Node, ...] = ()
    """Whom to ask where the fleet is: nodes of a Cluster, or Sentinels."""
    master: str = ""
    """What the Sentinels call the primary."""
    scheme: str = "redis"
    user: str = ""
    """User and password as the url has them."""
    database: str = "0"
    options: tuple[tuple[str, str], ...] = ()

    def __repr__(self) -> str:
        return f"Place({self.shape}, {self.name})"

    @property
    def name(self) -> str:
        """It without secrets and options."""
        nodes = ",".join(sorted(map(str, self.nodes)))
        master = f"{self.master}@" if self.master else ""
        end = f"/{self.database}" if self.shape is Shape.SENTINEL else ""
        return f"{self.scheme}+{self.shape}://{master}{nodes}{end}"

    @property
    def secrets(self) -> set[str]:
        """What of the url nobody should see, as it is written there."""
        user = self.user
        options = self.options
        if self.shape is Shape.SINGLE:
            place, _, query = self.url.partition("?")
            user = place.rpartition("@")[0].partition("://")[2]
            options = tuple(each.partition("=")[::2] for each in query.split("&"))
        given = {value for name, value in options if "password" in name}
        return (given | {user.partition(":")[2]}) - {""}

    def url_of(self, node: Node) -> str:
        """The url of one server that holds a part of the fleet, or all of it."""
        if self.shape is Shape.SINGLE:
            return self.url
        options = [each for each in self.options if each[0] not in _SENTINEL_OPTIONS]
        return self._url(self.user, node, self.database, options)

    def url_of_sentinel(self, node: Node) -> str:
        """The url of a Sentinel, which has users and passwords of its own."""
        given = dict(self.options)
        user, password = (quote(given.get(name, ""), safe="") for name in _SENTINEL_OPTIONS)
        options = [each for each in self.options if each[0] not in (*_SENTINEL_OPTIONS, "db")]
        return self._url(f"{user}:{password}" if user or password else "", node, "0", options)

    def _url(self, user: str, node: Node, database: str, options: list[tuple[str, str]]) -> str:
        query = f"?{urlencode(options)}" if options else ""
        return f"{self.scheme}://{user}{'@' if user else ''}{node}/{database}{query}"


def parse(url: str) -> Place:
    """What a url says. Of one for a single server only redis-py knows whether it will do.

    Raises `ValueError`, with a text that quotes nothing.
    """
    if not re.match(r"rediss?\+", url):
        return Place(Shape.SINGLE, url)
    found = _SEVERAL.fullmatch(url)
    if found is None:
        raise ValueError("not a url of several servers")
    scheme, kind, user, servers, database, query = found.groups()
    shape, master = Shape(kind), ""
    port = 6379 if shape is Shape.CLUSTER else 26379
    if shape is Shape.SENTINEL:
        user, _, master = (user or "").rpartition("@")
        if not re.fullmatch(r"[A-Za-z0-9._-]+", unquote(master)):
            raise ValueError("no name of a primary")
    elif database not in (None, "", "0"):
        raise ValueError("a Cluster has database 0 only")
    return Place(
        shape,
        url,
        tuple(_node(each, port) for each in servers.split(",")),
        unquote(master),
        scheme,
        user or "",
        database or "0",
        tuple(parse_qsl(query or "", keep_blank_values=True)),
    )


def _node(text: str, default: int) -> Node:
    found = _SERVER.fullmatch(text)
    port = int(found[2] or default) if found else 0
    if found is None or not 0 < port < 65_536:
        raise ValueError("not host:port")
    return Node(found[1].strip("[]"), port)


def check(url: str) -> str:
    """`url` if a fleet can be there, else `ValueError`: what a setting may say."""
    if not re.fullmatch(r"(rediss?(\+(cluster|sentinel))?|unix)://[!-~]{1,2048}", url):
        raise ValueError("not where a fleet can be")
    if parse(url).shape is Shape.SINGLE:
        parts = urlsplit(url)  # like `port`, it raises ValueError
        if not (parts.path if parts.scheme == "unix" else parts.hostname and parts.port != 0):
            raise ValueError("no place")
    return url
