"""Agents that speak MCP join a herd here: Claude Code, Codex, pi and others, over stdio or HTTP.

`toolbox` makes tools of functions; `mail`, `work` and `asking` are the tools; `library` is what can
be read: resources, the prompt. `server` puts them together for either transport: `stdio` serves one
agent, `web` many, behind a `gate`. Nothing a call needs is kept here: it is all in the broker.
"""
