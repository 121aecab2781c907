"""pi: an extension of ours that starts its listener and hands over what the listener says.

Facts: earendil-works/pi, `packages/coding-agent/docs` (extensions.md, mcp.md, rpc.md, security.md).

- Extensions are single files in `extensions` of `~/.pi/agent` (`PI_CODING_AGENT_DIR`), and of `.pi`
  of a project once it is trusted.
- `sendUserMessage(text, {deliverAs})` starts a run when pi is idle. While it works, `steer` comes
  after the tool calls of the present turn, `followUp` when the run would end.
- `agent_settled` follows the last run; `agent_end` may be followed by another one.
- Tools come by its own MCP client, so that they look as those of any server do. Of an entry in a
  file `/mcp` and `pi mcp list` tell; of one that an extension registers only the former.
"""

from __future__ import annotations

from tocsin.workers.hosts.extensions import Extension
from tocsin.workers.hosts.servers import PI_FOLDER

NAME = "pi"

EXTENSION = Extension(
    source="pi.ts",
    project=".pi/extensions",
    user=lambda environ: PI_FOLDER(environ) / "extensions",
)
