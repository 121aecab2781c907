"""What is known of each coding agent's command line: a profile, one module each.

`command` knows nothing of its program; the others know how it runs one turn without a terminal,
goes on with a session, writes its transcript, says that it failed, and is told of our tools.
"""

from tocsin.workers.child.profiles.claude_code import CLAUDE_CODE
from tocsin.workers.child.profiles.codex import CODEX
from tocsin.workers.child.profiles.command import COMMAND
from tocsin.workers.child.profiles.opencode import OPENCODE
from tocsin.workers.child.profiles.pi import PI
from tocsin.workers.child.profiles.profile import Profile

PROFILES: dict[str, Profile] = {
    profile.name: profile for profile in (CLAUDE_CODE, CODEX, OPENCODE, PI, COMMAND)
}
"""The profiles by name."""

__all__ = ["PROFILES", "Profile"]
