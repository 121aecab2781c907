"""Any program: nothing is known of it but what the runner says.

It reads its prompt on standard input, or the files that `TOCSIN_PROMPT_FILE` and
`TOCSIN_TURN_FILE` name. Its session is what it writes into the file that `TOCSIN_SESSION_FILE`
names; the runner's `resume` says how it is handed back.
"""

from __future__ import annotations

from tocsin.workers.child.profiles.profile import PROVIDER_ERRORS, Profile, patterns

COMMAND = Profile(
    name="command",
    limits=patterns(r"usage[ _]limit (was |has been )?reached", r"hit your (\S+ ){0,3}limit"),
    errors=PROVIDER_ERRORS,
)
