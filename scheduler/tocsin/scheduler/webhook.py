"""A webhook: alerts as JSON by POST, to an address that was checked."""

from __future__ import annotations

import asyncio
import base64
import ipaddress
import json
import socket
from collections.abc import Iterable
from importlib.metadata import version
from typing import Any
from urllib.parse import unquote, urlsplit

import httpcore2

from tocsin.broker.errors import Unavailable
from tocsin.broker.masking import origin
from tocsin.broker.settings import NotifySettings

_NAT64 = ipaddress.ip_network("64:ff9b::/96")


class Webhook:
    """Posts alerts; a status of 2xx says that one arrived. Redirects are not followed.

    Proxies of the environment are not used: they would look the name up themselves.
    """

    def __init__(self, settings: NotifySettings) -> None:
        assert settings.notify_url is not None
        self._url = settings.notify_url
        self._within = settings.notify_timeout.total_seconds()
        self._network = _Checked(settings.notify_private)
        self._tls = httpcore2.default_ssl_context()

    async def tell(self, alert: dict[str, Any]) -> None:
        """Posts one alert; `Unavailable` if it did not arrive within the time-out."""
        shown = origin(self._url)
        try:
            async with asyncio.timeout(self._within):
                status = await self._post(alert)
        except TimeoutError:
            raise Unavailable("notify", f"{shown} did not answer in time") from None
        except (
            httpcore2.NetworkError, httpcore2.ProtocolError, OSError, ValueError
        ) as error:  # fmt: skip
            reason = str(error) or type(error).__name__
            raise Unavailable("notify", f"{shown} could not be reached: {reason}") from None
        if not 200 <= status < 300:
            raise Unavailable("notify", f"{shown} answered {status}")

    async def _post(self, alert: dict[str, Any]) -> int:
        parts = urlsplit(self._url)
        login, _, host = parts.netloc.rpartition("@")
        headers = {
            "Host": host,
            "Content-Type": "application/json",
            "Idempotency-Key": str(alert["id"]),
            "User-Agent": f"tocsin/{version('tocsin')}",
        }
        if login:
            headers["Authorization"] = f"Basic {base64.b64encode(unquote(login).encode()).decode()}"
        async with (
            httpcore2.AsyncConnectionPool(self._tls, network_backend=self._network) as pool,
            pool.stream(
                "POST",
                self._url.partition("#")[0],
                headers=list(headers.items()),
                content=json.dumps(alert).encode(),
            ) as response,
        ):
            return response.status  # whatever its body is


class _Checked(httpcore2.AsyncNetworkBackend):
    """Looks a name up, checks all it leads to, and connects to that.

    A name that leads elsewhere a moment later gains nothing, and certificates are held to the name.
    """

    def __init__(self, private: bool) -> None:
        self._private = private
        self._inner = httpcore2.AnyIOBackend()

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[httpcore2.SOCKET_OPTION] | None = None,
    ) -> httpcore2.AsyncNetworkStream:
        """A connection to the first address that answers."""
        failure: Exception = OSError(f"{host} leads nowhere")
        for address in await self._addresses(host, port):
            try:
                return await self._inner.connect_tcp(
                    address, port, timeout, local_address, socket_options
                )
            except httpcore2.ConnectError as error:
                failure = error
        raise failure

    async def _addresses(self, host: str, port: int) -> list[str]:
        found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
        addresses = list(dict.fromkeys(str(place[0]) for *_, place in found))
        private = [address for address in addresses if not is_public(address)]
        if private and not self._private:
            raise Unavailable(
                "notify",
                f"{host} leads to the private address {private[0]}; set notify_private if that is "
                "meant",
            )
        return addresses


def is_public(address: str) -> bool:
    """Whether an address is one of the public internet, also where it holds another within it."""
    known = ipaddress.ip_address(address)
    if isinstance(known, ipaddress.IPv6Address):
        inner = known.ipv4_mapped or known.sixtofour
        if known in _NAT64:
            inner = ipaddress.IPv4Address(int(known) & 0xFFFFFFFF)
        if inner is not None:
            return is_public(str(inner))
        if known.is_site_local:
            return False
    return known.is_global and not (known.is_multicast or known.is_reserved)
