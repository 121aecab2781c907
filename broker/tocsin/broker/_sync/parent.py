# Generated from _async/parent.py by `make generate`; edit that file.

"""What a parent can do besides."""

from __future__ import annotations

import time
from datetime import datetime, timedelta

from tocsin.broker import agents, dead, herds, plans, requests, tasks, turns
from tocsin.broker._sync.agent import Agent
from tocsin.broker.bells import SLOW_POLL
from tocsin.broker.dead import DeadLetter, DeadLetters, HandedBack, Replayed
from tocsin.broker.envelopes import (
    Delegated,
    Envelope,
    JournalEntry,
    ReturnWhen,
    Seat,
    Sent,
    Settlement,
    Task,
    Wake,
)
from tocsin.broker.herds import HerdRecord
from tocsin.broker.ids import make_token
from tocsin.broker.plans import Plan
from tocsin.broker.runners import CallableRunner, CommandRunner
from tocsin.broker.schedules import Missed
from tocsin.broker.settings import HerdSettings
from tocsin.broker.signals import Signal
from tocsin.broker.states import TaskState
from tocsin.broker.validation import check_choice, check_timeout


class Parent(Agent):
    """One instance of the agent that owns a herd."""

    def register(
        self,
        agent: str,
        *,
        role: str | None = None,
        label: str | None = None,
        exist_ok: bool = False,
        runner: CommandRunner | CallableRunner | None = None,
    ) -> Seat:
        """Registers a child and returns its token, which is not stored and not shown again.

        A closed name starts a new generation. With `exist_ok` an open one is left as it is, and
        `.token` is None.

        A child with a `runner` needs no process of its own: mail that wakes it makes a turn due,
        which a worker runs. With `exist_ok` one that is given takes the place of
        the one there.
        """
        token = make_token()
        return self._run(agents.register(self.caller, agent, token, role, label, exist_ok, runner))

    def set_runner(self, agent: str, runner: CommandRunner | CallableRunner | None) -> None:
        """Gives a child a runner, another one, or none: then it needs a process of its own."""
        self._run(turns.employ(self.caller, agent, runner))

    def rotate(self, agent: str) -> Seat:
        """Gives an agent (or the parent itself) a new token; the old one stops at once."""
        return self._run(agents.rotate(self.caller, agent, make_token()))

    def close(self, agent: str, *, reason: str | None = None) -> None:
        """Closes a child: its tasks are cancelled, who waits on it is told, its mail is dead."""
        while not self._run(agents.close(self.caller, agent, reason)):
            pass

    def close_herd(self) -> None:
        """Closes every agent, then the herd. Its records stay readable for `herd_retention`."""
        while not self._run(herds.close_herd(self.caller)):
            pass

    def herd_record(self) -> HerdRecord:
        """The herd's state and settings, each with the layer it came from."""
        return self._run(herds.read_herd(self.caller))

    def set_settings(self, settings: HerdSettings, *, source: str = "argument") -> HerdRecord:
        """Changes the given settings, live: waits that are open already follow at once."""
        return self._run(herds.set_settings(self.caller, settings, source))

    def delegate(
        self,
        agent: str,
        description: str,
        *,
        deadline: timedelta | datetime | None = None,
        watch: bool = False,
        queue: bool = False,
        continues: str | None = None,
        key: str | None = None,
    ) -> Delegated:
        """Gives a child a task, which ends by its `done`, a cancel, a failure or its deadline.

        `deadline`: from now, or an aware moment; default the herd's `task_deadline`. `watch`: its
        settlement wakes this parent. `queue`: if the child holds its tasks already (`agent_busy`),
        wait for a slot. `continues`: an ended task whose description, open question and late
        answer this one carries. The same `key` delegates once. `.wakeable` is False where nothing
        can wake the child: then the task waits until it looks.
        """
        return self._run(
            tasks.delegate(
                self.caller,
                agent,
                description,
                deadline=deadline,
                watch=watch,
                queue=queue,
                continues=continues,
                key=key,
            )
        )

    def plan(
        self,
        agent: str,
        description: str,
        *,
        cron: str | None = None,
        at: datetime | None = None,
        every: timedelta | None = None,
        tz: str | None = None,
        missed: Missed | str = Missed.ONCE,
        deadline: timedelta | None = None,
        watch: bool = False,
        queue: bool = True,
        key: str | None = None,
    ) -> Plan:
        """Has a child given a task at planned times, each of them once.

        One of: `cron`, five fields in the zone `tz` (default UTC), of which a set time of day runs
        once on each local day, also where clocks are changed; `at`, one moment, naive only with a
        `tz`; `every`, a minute or more, counted from now without drift. `missed`: what becomes of
        times at which no scheduler ran: `once` (one task makes up for all), `skip`, or `all` (the
        newest 100). `deadline`, `watch` and `queue` are those of each task; without `queue` a time
        at which the child is busy is skipped. A plan pauses when its child is closed. The same
        `key` plans once.
        """
        return self._run(
            plans.add(
                self.caller,
                agent,
                description,
                cron=cron,
                at=at,
                every=every,
                tz=tz,
                missed=missed,
                deadline=deadline,
                watch=watch,
                queue=queue,
                key=key,
            )
        )

    def plans(self) -> list[Plan]:
        """The herd's plans that are active or paused, oldest first."""
        return self._run(plans.listing(self.caller))

    def plan_record(self, plan: str) -> Plan:
        """One plan with its next runs, also one that has ended or was removed lately."""
        return (self._run(plans.listing(self.caller, plan)))[0]

    def pause_plan(self, plan: str) -> Plan:
        """Pauses a plan: its times pass unused."""
        return self._run(plans.pause(self.caller, plan))

    def resume_plan(self, plan: str) -> Plan:
        """Has a paused plan go on from now. What passed meanwhile is not made up for.

        If its child was closed and its name used anew, it goes on with the new one.
        """
        return self._run(plans.resume(self.caller, plan))

    def run_plan(self, plan: str, *, key: str | None = None) -> Task:
        """Has a plan give its task now, beside its times; also while it is paused."""
        return self._run(plans.run_now(self.caller, plan, key))

    def remove_plan(self, plan: str) -> Plan:
        """Removes a plan for good. Tasks that it gave stay as they are."""
        return self._run(plans.remove(self.caller, plan))

    def watch(self, *task_ids: str, wake: Wake | str = Wake.EACH) -> list[Settlement]:
        """Returns those already settled, in the order given; the settlement of the others wakes.

        `each` of them, or `all`: only the last.
        """
        return self._run(tasks.watch(self.caller, task_ids, wake))

    def wait(
        self,
        *task_ids: str,
        timeout: timedelta | float | None = None,
        return_when: ReturnWhen | str = ReturnWhen.ALL,
    ) -> list[Settlement]:
        """Blocks until all of the tasks, or the first, have settled; their settlements in order.

        At `timeout` (a `timedelta` or seconds; None: without end) it returns those that have
        settled by then, and touches nothing. Any of the parent's processes may wait.
        """
        seconds = check_timeout("wait", "timeout", timeout)
        enough = check_choice("wait", "return_when", return_when, ReturnWhen)
        ends = None if seconds is None else time.monotonic() + seconds
        signal = Signal()
        with self.broker.hear(self.bell, "settled", signal):
            while True:
                signal.clear()
                found = self._run(tasks.named(self.caller, task_ids, "wait"))
                settled = [task.settlement for task in found if task.settlement is not None]
                if len(settled) == len(found) or (settled and enough is ReturnWhen.FIRST):
                    return settled
                left = SLOW_POLL if ends is None else ends - time.monotonic()
                if left <= 0:
                    return settled
                signal.wait(min(left, SLOW_POLL))

    def cancel(self, task: str, *, reason: str | None = None) -> Settlement:
        """Cancels a task, and tells its child with a steer notice. A settled one stays as it is."""
        return self._run(tasks.cancel(self.caller, task, reason))

    def remind(self, message: Envelope | str) -> Sent:
        """Wakes the recipient of an open request with a message that quotes the question."""
        return self._run(requests.remind(self.caller, message))

    def reroute(self, message: Envelope | str, agent: str) -> None:
        """Sends an open request to another agent: same request, episode and deadline.

        What the first recipient holds of it is taken back; the first answer from either counts.
        """
        self._run(requests.reroute(self.caller, message, agent))

    def hand_back(self, message: Envelope | str) -> HandedBack:
        """Takes mail from the instance that has taken it and is stuck, for any other to take.

        For an operator: a live instance keeps what it took, however slow it is. One atomic step;
        no attempt is counted, and the old holder's ack is fenced. What it did with it stays done.
        """
        return self._run(dead.hand_back(self.caller, message))

    def dead_letters(self, *, before: str | None = None, limit: int = 100) -> DeadLetters:
        """The herd's dead letters without their text, newest first; `.remaining` says how many
        more there are. `before` goes on behind one that was listed."""
        return self._run(dead.listing(self.caller, before, limit))

    def dead_letter(self, message: Envelope | str) -> DeadLetter:
        """One dead letter, with what it says."""
        return self._run(dead.show(self.caller, message))

    def replay(self, message: Envelope | str) -> Replayed:
        """Makes a dead letter mail again: the same id, its attempts forgotten; it wakes if it did.

        What its death ended stays ended. A task's envelope is refused (`wrong_state`): its task has
        failed; delegate another with `continues=`. A question's wait is not opened again: its
        answer comes as late mail. Refused too where the recipient, the asker or the task is gone.
        """
        return self._run(dead.replay(self.caller, message))

    def drop(self, message: Envelope | str) -> None:
        """Takes a dead letter off the list for good. Others go after `dead_retention`."""
        self._run(dead.drop(self.caller, message))

    def task(self, task: str) -> Task:
        """One task, as it stands."""
        return (self._run(tasks.named(self.caller, [task])))[0]

    def tasks(self, state: TaskState | str | None = None, *, limit: int = 1000) -> list[Task]:
        """The newest tasks, of one state or of all."""
        return self._run(tasks.listing(self.caller, state, limit))

    def journal(self, *, after: str | None = None, limit: int = 100) -> list[JournalEntry]:
        """The newest lines of the herd's history, or those after entry `after`; oldest first."""
        return self._run(herds.journal(self.caller, after, limit))
