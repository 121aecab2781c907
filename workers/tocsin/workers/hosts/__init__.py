"""Programs that run an agent's model, and how an agent of Tocsin lives in one of their sessions.

A host calls a hook at moments of a session; `answering` says what mail is handed over then. Between
turns it calls nothing, so a listener of each session (`listening`) hears of mail, keeps the
session's doorbell (`doorbell`, `hook.sh`), and tries what may wake the host (`waking`). What a host
calls its events, and how it wants its answers, is in a module of its own.
"""
