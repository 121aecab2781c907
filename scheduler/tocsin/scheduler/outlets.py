"""Outlets: how alerts leave for a human. Each try ends within the time-out of the settings."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Any

from tocsin.broker.alerts import redact
from tocsin.broker.errors import Unavailable
from tocsin.broker.settings import NotifySettings


class AsyncOutlet:
    """Where alerts go by the settings, which name a command or a url."""

    def __init__(self, settings: NotifySettings) -> None:
        if settings.notify_command:
            from tocsin.scheduler.command import Command

            self._tell = Command(settings).tell
        else:
            from tocsin.scheduler.webhook import Webhook  # slow to import, and rarely needed

            self._tell = Webhook(settings).tell

    async def tell(self, alerts: Iterable[dict[str, Any]]) -> list[str | None]:
        """Tells alerts side by side; for each the reason if that failed, else None."""
        return await asyncio.gather(*map(self._try, alerts))

    async def _try(self, alert: dict[str, Any]) -> str | None:
        try:
            await self._tell(alert)
        except Unavailable as failure:
            return redact(failure.detail)
        return None


class Outlet(AsyncOutlet):
    """The same for a thread, in an event loop that lasts as long as it takes."""

    def tell(self, alerts: Iterable[dict[str, Any]]) -> list[str | None]:  # type: ignore[override]
        """Tells alerts side by side; for each the reason if that failed, else None."""
        return asyncio.run(super().tell(alerts))
