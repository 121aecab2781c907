"""Programs in which agents run: what Tocsin puts into them, and how an agent lives in a session.

A host runs a hook at moments of a session (`hook.sh`, `sessions`); `answering` says what mail is
handed over then. Between turns it runs nothing, so a listener of each session (`listening`) hears
of mail, keeps the session's files (`doorbell`), and tries what may wake the host (`waking`). What a
host calls its events, and how it wants its answers, is in a module of its own.
"""
