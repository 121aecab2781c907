"""Whether what the broker answers and holds is what the model answers and holds."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tests.stateful.model import Model
from tests.stateful.records import UNREAD, Mail, Outcome, Settled
from tests.stateful.snapshot import Snapshot, must_equal
from tocsin.broker import Envelope, Reply, Settlement, Task, asks
from tocsin.broker.clock import to_ms

_CODES = {"completed": 0, "failed": 1, "blocked": 2, "timed_out": 124, "cancelled": 130}


def same_settlement(real: Settlement | None, expected: Settled | None) -> bool:
    """Whether both say the same of how a task ended."""
    if real is None or expected is None:
        return real is None and expected is None
    return (
        (real.task_id, real.agent, real.status) == (expected.task, expected.agent, expected.state)
        and (real.summary or "") == expected.summary
        and to_ms(real.completed_at) == expected.at
        and real.return_code == _CODES[expected.state]
        and real.ok == (expected.state == "completed")
        and (expected.error is None or (real.error or "") == expected.error)
    )


def compare_mail(model: Model, real: Sequence[Envelope], expected: Sequence[Mail]) -> None:
    """The same envelopes in the same order, each true at this moment."""
    must_equal(
        "mail",
        [
            (e.message_id, str(e.kind), e.sender, e.recipient, e.trigger_turn, str(e.delivery))
            + (e.task_id, e.reply_to, e.late, e.attempts)
            for e in real
        ],
        [
            (m.id, m.kind, m.sender, m.recipient, m.wakes, "steer" if m.steer else "follow_up")
            + (m.task, m.reply_to, m.late, m.attempts)
            for m in expected
        ],
    )
    for envelope, mail in zip(real, expected, strict=True):
        _compare_content(model, envelope, mail)


def compare_outcome(
    model: Model, ref: str, real: asks.Outcome, expected: Outcome, *, probes: bool
) -> None:
    """A call on the line is told what came of its ask, and while it is open how long that is."""
    request = model.mail[ref].request
    assert request is not None
    assert request.ask is not None
    if isinstance(real, asks.Pending):
        must_equal(ref, "pending", expected.how)
        ceiling = request.ask.ceiling_at
        ends = model.silent_at(model.mail[ref], probes=probes) or ceiling
        left = [max(0, at - model.now) / 1000 for at in (ends, ceiling)]
        must_equal(
            "its spans",
            [real.next, real.window, real.ceiling],
            [left[0], request.ask.window / 1000, left[1]],
        )
    elif isinstance(real, Reply):
        must_equal(ref, (real.request_id, real.message_id), (ref, expected.reply))
        must_equal("answer", (real.body, expected.how), (request.answer, "answered"))
    else:
        error = real.error
        found = error.code, "", getattr(error, "reason", ""), getattr(error, "limit", "")
        must_equal(ref, found, expected)


def _compare_content(model: Model, envelope: Envelope, mail: Mail) -> None:
    assert envelope.body, f"{mail.id} says nothing"
    data = envelope.data
    if mail.kind == "task_settled":
        found = data["task_id"], data["status"], data["summary"] or "", data["completed_at"]
        settled: Any = mail.content
        must_equal("news", found, (settled.task, settled.state, settled.summary, settled.at))
    elif mail.kind == "reminder":
        expected = _reminder(model, mail)
        must_equal("reminder", {name: data[name] for name in expected}, expected)
        recipient = model.mail[data["request"]].recipient
        waited_for = data["recipient"]["agent"], data["recipient"]["present"]
        must_equal("recipient", waited_for, (recipient, model.agents[recipient].live))
    elif mail.kind == "notice" and mail.content:
        names = ("how", "reason", "limit")
        must_equal("news", tuple(data.get(name, "") for name in names), mail.content)
    elif mail.body is not None:
        assert envelope.body.startswith(mail.body), envelope


def _reminder(model: Model, mail: Mail) -> dict[str, Any]:
    """What a reminder has to say now."""
    task = model.tasks[mail.task or ""]
    since, questions = model.waiting_since(task), model.questions(task)
    assert since is not None
    return {
        "task": task.id,
        "agent": task.agent,
        "description": task.description,
        "waiting_since": since,
        "elapsed_ms": model.now - since,
        "episode": task.episode,
        "request": questions[0],
        "question": model.mail[questions[0]].body,
        "other_requests": questions[1:],
        "threshold_minutes": model.settings.threshold,
    }


def compare_agents(model: Model, snapshot: Snapshot) -> None:
    """The same agents, generations and instances."""
    real = snapshot.all("agent")
    must_equal(
        "generations",
        {name: int(record["generation"]) for name, record in real.items()},
        {name: agent.generation for name, agent in model.agents.items()},
    )
    for name, agent in model.agents.items():
        must_equal(f"{name} is open", real[name]["state"] == "open", agent.open)
        instances = {instance for instance, _ in snapshot.one("instances", name)}
        must_equal(f"instances of {name}", instances, agent.instances)


def compare_tasks(model: Model, found: Sequence[Task]) -> None:
    """The same tasks, waits, open requests and settlements."""
    real = {task.id: task for task in found}
    must_equal("tasks", real.keys(), model.tasks.keys())
    for ref, task in model.tasks.items():
        mine = real[ref]
        since = mine.waiting_since and to_ms(mine.waiting_since)
        must_equal(
            ref,
            (mine.state, mine.episode, since, list(mine.open_requests), to_ms(mine.deadline)),
            (task.state, task.episode, model.waiting_since(task))
            + (model.questions(task), task.deadline),
        )
        assert same_settlement(mine.settlement, task.settled), f"{mine}, {task}"


def compare_inboxes(model: Model, snapshot: Snapshot) -> None:
    """The same mail in every inbox, and the same fate of everything else."""
    for name in model.agents:
        model.in_the_order_of(name, [mail["id"] for mail in snapshot.box(name)])
        must_equal(
            f"inbox of {name}",
            [
                (m["id"], m["kind"], m["state"], int(m["attempts"]), m["wakes"] == "1")
                for m in snapshot.box(name)
            ],
            [
                (m.id, m.kind, m.state, m.attempts, m.wakes)
                for m in model.in_order(name)
                if model.true(m)
            ],
        )
    for ref, mail in model.mail.items():
        record = snapshot.messages.get(ref, {})
        if mail.request is not None:
            found = record.get("request"), record.get("reply")
            must_equal(ref, found, (mail.request.state, mail.request.reply))
        elif mail.state not in UNREAD and mail.kind != "reminder":
            must_equal(ref, record.get("state"), mail.state)


def compare_timers(model: Model, snapshot: Snapshot) -> None:
    """Stale waits and absences are timed for the moment the model says."""
    due, names = dict(snapshot.one("due")), {5: "5:stale", 8: "8:away:"}
    timers = {names[t.rank] + t.name: t.due for t in model.timers() if t.rank in names}
    must_equal("timers", {name: at for name, at in due.items() if name[0] in "58"}, timers)
