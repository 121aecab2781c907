"""The one error of the embedded server, outside the broker's tree: no broker is there yet."""

from __future__ import annotations


class EmbeddedServerError(RuntimeError):
    """The embedded server cannot be had; the message says why and what to do."""
