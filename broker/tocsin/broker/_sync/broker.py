# Generated from _async/broker.py by `make generate`; edit that file.

"""The way in: a fleet on a server, its herds, and the instances of agents this process runs."""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import replace
from types import TracebackType
from typing import Self, TypeVar

from tocsin.broker import agents, herds, keys, ties, turns, versions
from tocsin.broker._sync.agent import Agent
from tocsin.broker._sync.child import Child
from tocsin.broker._sync.claimed import ClaimedTurn
from tocsin.broker._sync.link import Link
from tocsin.broker._sync.parent import Parent
from tocsin.broker.bells import Bells
from tocsin.broker.caller import Caller, Fleet
from tocsin.broker.clock import Clock, ManualClock, ScaledClock
from tocsin.broker.connections import Server
from tocsin.broker.errors import (
    AgentClosed,
    BrokerError,
    InvalidInput,
    Unauthorized,
    Unavailable,
    UnknownHerd,
)
from tocsin.broker.ids import PARENT, hash_token, make_id, make_token
from tocsin.broker.leases import Leases
from tocsin.broker.masking import shown
from tocsin.broker.pulse import LoopHealth
from tocsin.broker.scripts import Call
from tocsin.broker.settings import HerdSettings
from tocsin.broker.settings_files import resolve
from tocsin.broker.signals import Settable
from tocsin.broker.ties import HerdTree, Listed
from tocsin.broker.validation import check_count, check_id, check_name, check_token

T = TypeVar("T")

log = logging.getLogger("tocsin.broker")


class Broker:
    """A fleet, seen from one process. Use it as a context manager, or `close()` it.

    Nothing is sent before the first call. Instances that this process started leave when it is
    closed, handing back what they hold. A process that was forked may use a broker that nobody
    used before the fork; any other is refused there, with its agents, and stays its parent's.
    """

    def __init__(
        self,
        server: Server,
        fleet: str,
        clock: Clock | None = None,
        partitions: int | None = None,
        durability: str | None = None,
    ) -> None:
        self.server = server
        self.name = check_name("connect", "fleet", fleet)
        """The name of the fleet."""
        if clock is not None and not isinstance(clock, ManualClock | ScaledClock):
            raise InvalidInput("connect", "clock must be a ManualClock, a ScaledClock or None")
        self._clock = clock
        self._wanted = (
            None
            if partitions is None
            else check_count("connect", "partitions", partitions, keys.MOST_PARTITIONS)
        )
        if durability not in (None, "replicated"):
            raise InvalidInput(
                "connect", f'durability must be "replicated" or None, not {shown(durability)}'
            )
        self._replicated = durability is not None
        self._fleet: Fleet | None = None
        self._link: Link | None = None
        self._bells = Bells(server)
        self._leases = Leases(server, self._bells)
        self._agents: set[Agent] = set()
        self.closed = False
        """Whether it was closed; what still waited then ends."""
        self._pid: int | None = None

    @classmethod
    def connect(
        cls,
        url: str = "redis://127.0.0.1:6379/0",
        *,
        fleet: str = "default",
        clock: Clock | None = None,
        partitions: int | None = None,
        durability: str | None = None,
    ) -> Self:
        """A broker of the fleet at `url`: of a server, or of a Cluster, or what Sentinels watch.

        `clock`: a `ManualClock` for tests; a `ScaledClock` for a new fleet; None follows the
        fleet. `partitions` is fixed when a fleet is first used (16 unless given); a broker that
        asks for another number is refused. With `durability="replicated"` every call waits until a
        replica has what it wrote, and is `Unavailable` if none says so in 2 s: it may be repeated
        with its `key`, since whether it lasts is unknown. That costs a round trip to the replica,
        and narrows what a failover can undo to a replica that had not confirmed being promoted.
        """
        if not isinstance(url, str):
            raise InvalidInput("connect", f"url must be text, not {type(url).__name__}")
        return cls(Server(url), fleet, clock, partitions, durability)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    @property
    def link(self) -> Link:
        """The connection that calls run on."""
        self._check_process()
        if self.closed:
            raise InvalidInput("connect", "this broker was closed; make a new one")
        if self._link is None:
            self._link = Link(self.server, replicated=self._replicated)
        return self._link

    def _check_process(self) -> None:
        """Refuses a child process what was in use before the fork.

        Its connections would be read by two, its locks may be held for ever, and its threads, which
        hear bells and renew leases, are not there.
        """
        self._pid = self._pid or os.getpid()
        if self._pid != os.getpid():
            raise InvalidInput(
                "connect",
                f"this broker was in use in process {self._pid} before a fork; make a new one in "
                "the child process, and join your agents with it",
            )

    def fleet(self) -> Fleet:
        """What the fleet agreed on at its first use."""
        return self.agree() if self._fleet is None else self._fleet

    def agree(self) -> Fleet:
        """What the fleet agreed on, asked anew.

        Where its record is gone, with all that the server held, it is made as this broker knows it;
        where another was quicker to make it, that one's holds from here on.
        """
        known, clock = self._fleet, self._clock
        if clock is None and known is not None:
            clock = known.clock
        factor = clock.factor if isinstance(clock, ScaledClock) else None
        partitions = self._wanted or (known.partitions if known else keys.PARTITIONS)
        record = self.link.run(herds.open_fleet(keys.fleet(self.name), partitions, factor))
        if self._wanted not in (None, record.partitions):
            raise InvalidInput(
                "connect",
                f"fleet {self.name} has {record.partitions} partitions, fixed at its first "
                f"use; connect without a number (partitions, TOCSIN_PARTITIONS) or with that one, "
                f"not {self._wanted}",
            )
        if refusal := versions.refusal(self.name, record.schema):
            raise InvalidInput("connect", refusal)
        if isinstance(self._clock, ScaledClock) and record.factor != factor:
            raise InvalidInput(
                "connect",
                f"fleet {self.name} does not run at {factor} times the server's time; a scaled "
                "clock is fixed at a fleet's first use, so take another fleet name",
            )
        clock = self._clock
        if record.factor is not None and not isinstance(clock, ManualClock):
            clock = ScaledClock(record.factor, record.base)
        self._fleet = Fleet(self.name, record.partitions, clock)
        return self._fleet

    def run(self, call: Call[T]) -> T:
        """The result of a call."""
        return self.link.run(call)

    def _caller(self, herd: object, agent: str, token: str, operation: str) -> Caller:
        name = check_name(operation, "herd", herd)
        return Caller(self.fleet(), name, agent, hash_token(token), make_id("inst"))

    def open_herd(
        self,
        herd: str,
        *,
        settings: HerdSettings | None = None,
        under: str | None = None,
        token: str | None = None,
        under_token: str | None = None,
        task: str | None = None,
    ) -> Parent:
        """Opens a new herd, or with its token reopens one; starts an instance of its parent.

        Fields of `settings` that are not given take the layers (default, user file, project file,
        environment) of this process. Reopening changes only the given ones. `.token` of the result
        proves the parent to other processes; it is not stored.

        `under` is the agent (`herd/agent`) that leads the new herd, which closes when that agent or
        its herd does, and whose open tasks are cancelled when one of that agent's is that it had
        begun: any, or only `task` if one is named. That agent or the parent of its herd must be
        joined on this broker, or prove itself by its token, `under_token`. Where it was opened a
        herd stays; to reopen it needs its own token alone.
        """
        given = settings if settings is not None else HerdSettings()
        resolved = resolve(given)
        secret = make_token() if token is None else check_token("open_herd", token)
        if token is None:
            self.agree()  # a herd must not be made where nobody else looks for it
        caller = self._caller(herd, PARENT, secret, "open_herd")
        place: Mapping[str, str] | None = None
        if under is not None:
            over, leader = ties.check_under(under, caller.herd)
            if token is None:
                prover = self._prover(over, leader, under_token)
                place = (self.run(ties.prove(prover, leader, task, caller.herd))).fields
            else:
                place = {"under": under}
        call = herds.open_herd(caller, resolved, given, reopening=token is not None, under=place)
        record = self.run(call)
        parent = Parent(self, caller, secret)
        self._start(parent, record.settings)
        return parent

    def _prover(self, herd: str, agent: str, token: str | None) -> Caller:
        """Who may say that a herd is opened under this agent: itself, or its parent."""
        if token is not None:
            return self._caller(herd, agent, check_token("open_herd", token), "open_herd")
        here = [each.caller for each in self._agents if each.herd == herd]
        known = [each for each in here if each.is_parent] or [
            each for each in here if each.agent == agent
        ]
        if not known:
            raise Unauthorized(
                "open_herd",
                f"only agent {herd}/{agent} or its parent may open a herd under it, and this "
                "broker joined neither; join one, or give the token of one as under_token",
            )
        return max(known, key=lambda each: each.generation)

    def join(
        self, herd: str, agent: str, token: str, *, instance: str | None = None
    ) -> Parent | Child:
        """Starts an instance of an agent in this process; its lease is renewed from here on.

        With an `instance` id the call is stateless instead: that instance's lease is taken up once
        and runs out by itself, as suits a command that ends before it does.
        """
        name = check_name("join", "agent", agent)
        secret = check_token("join", token)
        caller = self._caller(herd, name, secret, "join")
        if instance is not None:
            caller = replace(caller, instance=check_id("join", "instance", instance, "inst"))
        joined = self.run(agents.join(caller, renewed=instance is None))
        caller = replace(caller, generation=joined.generation)
        kind = Parent if caller.is_parent else Child
        started = kind(self, caller, secret)
        if instance is None:
            self._start(started, joined.herd.settings)
        return started

    def claim_turn(self, herd: str, agent: str, number: int) -> ClaimedTurn | None:
        """Begins a turn of a child that has a runner, for whoever runs it; for the operator.

        None if the turn is not to be run, or not by this caller: another has it, it has ended, or
        nothing is left to do in it. Of any number of callers one gets it.
        """
        name, child, count = turns.check_turn("claim_turn", herd, agent, number)
        token = make_token()
        caller = self._caller(name, child, token, "claim_turn")
        claimed = self.run(turns.claim(caller, count))
        if claimed is None:
            return None
        caller = replace(caller, generation=claimed.generation)
        started = Child(self, caller, token)
        self._start(started, claimed.herd.settings)
        return ClaimedTurn(started, count, claimed)

    def turn_slots(self) -> list[turns.SlotCount]:
        """How many turns run or are launched, and may be, of the fleet, its queues and accounts."""
        return self.run(turns.read_slots(self.fleet()))

    def limit_turns(self, scope: str, limit: int | None) -> None:
        """Sets how many turns at once there may be: of the `fleet`, of `queue/<name>` or of
        `account/<name>`. None: as many as by default."""
        self.run(turns.limit_slots(self.fleet(), scope, limit))

    def _start(self, agent: Agent, settings: HerdSettings) -> None:
        self._agents.add(agent)
        if not isinstance(agent.caller.fleet.clock, ManualClock):
            self._leases.hold(agent.caller, settings.renews_every.total_seconds())

    def forget(self, agent: Agent) -> None:
        """Stops renewing an instance's lease."""
        self._check_process()
        self._agents.discard(agent)
        self._leases.drop(agent.caller)

    def hear(self, channel: str, topic: str, waiter: Settable) -> AbstractContextManager[None]:
        """While inside, what rings on the channel for this topic sets the waiter."""
        self._check_process()
        return self._bells.hear(channel, topic, waiter)

    def health(self) -> list[LoopHealth]:
        """How the background loops of this broker get on, as far as they are needed; asks nobody.

        `bells` hears what wakes waiting calls, `leases` keeps this process's instances alive. One
        that takes no step for 5 s, fails for so long, or has ended, says so in its `trouble`.
        """
        found = [self._bells.health(), self._leases.health()]
        return [each for each in found if each is not None]

    def herds(self) -> list[tuple[str, str, int]]:
        """The fleet's herds, for its operator: name, state, how many tasks each keeps."""
        return sorted((each.herd, each.state, each.tasks) for each in self._listed())

    def tree(self) -> list[HerdTree]:
        """The fleet's herds with those under them, for its operator, by name.

        Each says how it stands with the agent above it, as that is at this moment. Orphans, whose
        agent above is gone, are at the top, and so are herds that are under nobody.
        """
        listed, fleet = self._listed(), self.fleet()
        claiming = ties.by_over(listed)
        answers = self.link.run_many(
            [ties.read_verdicts(fleet, over, some) for over, some in claiming.items()]
        )
        verdicts: dict[str, list[str]] = {}
        for some, said in zip(claiming.values(), answers, strict=True):
            if isinstance(said, BrokerError):
                raise said
            verdicts |= {each.herd: how for each, how in zip(some, said, strict=True)}
        return ties.make_tree(listed, verdicts)

    def _listed(self) -> list[Listed]:
        fleet = self.fleet()
        partitions = [keys.partition(fleet.name, number) for number in range(fleet.partitions)]
        found: list[Listed] = []
        for page in self.link.run_many([herds.list_herds(fleet, key) for key in partitions]):
            if isinstance(page, BrokerError):
                raise page
            found += page
        return found

    def close(self) -> None:
        """Ends this process's instances, handing back what they hold, and the connections."""
        if self._pid not in (None, os.getpid()):
            return  # all of it is the parent process's
        link, self.closed = self._link, True  # a call made meanwhile would bring back what left
        for agent in list(self._agents):
            self.forget(agent)
            try:
                while link is not None and not link.run(agents.leave(agent.caller)):
                    pass
            except (UnknownHerd, AgentClosed, Unauthorized):
                log.debug("%s had ended already", agent)
            except Unavailable as error:
                log.info("leases run out instead of being given up: %s", error.detail)
                break
            except BrokerError as error:
                log.info("%s could not leave, its lease runs out instead: %s", agent, error.detail)
        self._bells.close()
        self._leases.close()
        if self._link is not None:
            self._link.close()
            self._link = None
