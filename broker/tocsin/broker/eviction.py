"""What a server does when its memory is full: keep everything, or drop tasks, mail and timers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def danger(info: Mapping[str, Any]) -> str:
    """A warning of the eviction policy that `INFO` tells; empty where nothing is dropped."""
    policy = str(info.get("maxmemory_policy", "unknown"))
    if policy == "noeviction":
        return ""
    consequence = (
        "it drops tasks, mail and timers when its memory is full"
        if info.get("maxmemory")
        else "it will drop tasks, mail and timers as soon as maxmemory is set"
    )
    return (
        f"THE SERVER MAY LOSE YOUR DATA: its maxmemory-policy is {policy}, so {consequence}; run "
        "`CONFIG SET maxmemory-policy noeviction`, and set it in the server's configuration"
    )
