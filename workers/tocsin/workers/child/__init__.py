"""Children that others run: what watches and runs the turns of agents without a process."""

from tocsin.workers.child.probe import TranscriptProbe
from tocsin.workers.child.turn import Turn

__all__ = ["TranscriptProbe", "Turn"]
