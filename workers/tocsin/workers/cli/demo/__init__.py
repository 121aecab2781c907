"""`tocsin demo`: the main job, lived by three agents on a throwaway server, in fast time.

Read `story.py` first: it is what the agents do, and an example of how agents use Tocsin. The rest
is theatre: `player` runs one of them in its process, `stage` starts and ends the processes,
`performance` follows what happens, `promises` judges it, `timeline` shows it.
"""

from tocsin.workers.cli.demo.command import app

__all__ = ["app"]
