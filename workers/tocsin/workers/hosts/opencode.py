"""OpenCode: a plugin of ours that starts its listener and hands over what the listener says.

Facts: opencode.ai/docs ("Plugins", "SDK"), and the types in `@opencode-ai/plugin` and
`@opencode-ai/sdk` 1.18.

- Plugins are single files in `.opencode/plugins` of a project and `~/.config/opencode/plugins` of a
  user; one process loads each once, for all its sessions. `event` hears of all of them.
- `session.status` tells `busy`, `retry` and `idle`; a session that a tool started has a `parentID`.
- `session.promptAsync` adds a message and answers at once. A session that works takes it up when
  the present step is over; one that is idle begins. Tried with 1.18.33, whose first start in a
  folder with plugins brings a package of its own from npm, and hangs for minutes without a network.
"""

from __future__ import annotations

from tocsin.workers.hosts.extensions import Extension
from tocsin.workers.hosts.servers import OPENCODE_FOLDER

NAME = "opencode"

EXTENSION = Extension(
    source="opencode.ts",
    project=".opencode/plugins",
    user=lambda environ: OPENCODE_FOLDER(environ) / "opencode" / "plugins",
)
