"""The process that fires Tocsin's timers: stale waits, deadlines, leases, retention."""

from tocsin.scheduler._async.scheduler import AsyncScheduler
from tocsin.scheduler._sync.scheduler import Scheduler

__all__ = ["AsyncScheduler", "Scheduler"]
