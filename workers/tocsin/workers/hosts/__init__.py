"""Programs in which agents run: what Tocsin puts into them, and how an agent lives in a session.

A host runs a hook at moments of a session (`hook.sh`, `sessions`); `answering` says what mail is
handed over then. Between turns it runs nothing, so a listener of each session (`listening`) hears
of mail, keeps the session's files (`doorbell`), and tries what may wake the host (`waking`). What a
host calls its events, and how it wants its answers, is in a module of its own; in hosts without
hooks an extension of ours starts the listener and does what it says (`extensions`).

`connecting` puts into a host's files what that needs, and the MCP server (`servers`); `documents`
changes such a file, `files` notes what was put where, and takes it out; `round_trip` tries it.
"""
