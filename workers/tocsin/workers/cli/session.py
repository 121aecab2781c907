"""What every command has in common: its options, the fleet, the seat, an open broker.

    @command(app, "show", example="tocsin task show task_...", seat=True)
    def show(session: Session, task: str) -> None:
        found = session.parent().task(task)
        session.out.result(found, ...)

`command` adds `--url`, `--fleet` and `--json`, with `seat=True` also `--seat`; it opens a `Session`
for the call, closes it afterwards, and turns errors into exit codes.

A seat is the first of these that is given: `--seat herd/agent`; `TOCSIN_SEAT`, or `TOCSIN_HERD` and
`TOCSIN_AGENT`; the seat chosen with `tocsin seat use`. Its token is `TOCSIN_TOKEN` where variables
name the seat and that one is set too, else what the seat file holds. It is never an argument.
"""

from __future__ import annotations

import hashlib
import inspect
import os
import platform
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime
from functools import cached_property
from typing import TYPE_CHECKING, Annotated, Any, Concatenate, NamedTuple, ParamSpec

import typer

from tocsin.broker import Broker, Child, Parent, ScaledClock
from tocsin.broker.caller import Caller
from tocsin.broker.clock import read_time
from tocsin.broker.errors import Forbidden, HerdClosed, InvalidInput, Unauthorized
from tocsin.broker.ids import PARENT, hash_token
from tocsin.broker.settings import ConnectionSettings
from tocsin.broker.settings_files import Resolved, resolve_connection
from tocsin.broker.validation import check_name, check_token
from tocsin.workers.addresses import is_remote, operators_own
from tocsin.workers.cli.complete import complete_seat
from tocsin.workers.cli.output import Output, guard
from tocsin.workers.credentials import Credentials, StoredSeat

if TYPE_CHECKING:
    from tocsin.workers.remote import Remote

P = ParamSpec("P")

_PANEL = "Options of every command"
_OPERATION = "seat"


class SeatName(NamedTuple):
    """An agent of a herd, as `herd/agent` names it."""

    herd: str
    agent: str

    def __str__(self) -> str:
        return f"{self.herd}/{self.agent}"


def read_seat(text: str, where: str = "seat") -> SeatName:
    """The seat that `herd/agent` names; anything else is refused, naming `where` it stood."""
    herd, slash, agent = text.partition("/")
    if not slash:
        raise InvalidInput(_OPERATION, f"{where} {text[:80]!r} is not a seat: write herd/agent")
    return SeatName(
        check_name(_OPERATION, f"herd of {where}", herd),
        check_name(_OPERATION, f"agent of {where}", agent),
    )


class Session:
    """One run of a command: its output, where its fleet is, who it speaks for."""

    def __init__(
        self, out: Output, url: str | None = None, fleet: str | None = None, seat: str | None = None
    ) -> None:
        self.out = out
        given = (("url", url), ("fleet", fleet))
        self._given: dict[str, Any] = {name: value for name, value in given if value}
        self._given_seat = seat
        self._broker: Broker | None = None
        self._lines: list[Remote] = []
        self._joined: Parent | Child | None = None

    @cached_property
    def connection(self) -> Resolved[ConnectionSettings]:
        """Where the fleet is, and from which layer that comes."""
        resolved = resolve_connection(ConnectionSettings(**self._given))
        self.out.hide(resolved.settings.url)
        self.out.hide(resolved.settings.queues_url)
        return resolved

    @cached_property
    def credentials(self) -> Credentials:
        """The seats of this fleet on this machine."""
        return Credentials(self.connection.settings)

    @property
    def is_remote(self) -> bool:
        """Whether the url leads to a server of Tocsin, through which agents work, and no more."""
        return is_remote(self.connection.settings.url)

    def place(self, operation: str) -> ConnectionSettings:
        """Where the fleet itself is; who has only the address of a server of Tocsin is refused."""
        if self.is_remote:
            raise operators_own(operation)
        return self.connection.settings

    @property
    def broker(self) -> Broker:
        """The broker of the fleet, connected at its first use and closed with the session."""
        place = self.place(_OPERATION)
        if self._broker is None:
            self._broker = Broker.connect(place.url, fleet=place.fleet, partitions=place.partitions)
        return self._broker

    def anew(self) -> Session:
        """A session like this one that has found and connected nothing yet."""
        return Session(self.out, seat=self._given_seat, **self._given)

    def close(self) -> None:
        """Closes the connections."""
        for line in self._lines:
            line.close()
        if self._broker is not None:
            self._broker.close()

    def now(self) -> datetime:
        """The fleet's time: the server's, or what its scaled clock makes of it."""
        if self._lines:
            return self._lines[-1].now()
        server = read_time(self.broker.link.command("now", "TIME"))
        clock = self.broker.fleet().clock
        return clock.at(server) if isinstance(clock, ScaledClock) else server

    def seat(self) -> SeatName:
        """Whom this command speaks for."""
        return self._find_seat()[0]

    def agent(self) -> Parent | Child:
        """The agent of the seat; this call holds one lease that is not renewed."""
        if self._joined is None:
            self._joined = self._join(*self._find_seat())
        return self._joined

    def staying(self) -> Parent | Child:
        """The agent of the seat for a command that blocks: an instance of its own, whose lease is
        renewed until the session is closed. In a closed herd there is nothing to renew."""
        if self.is_remote:
            return self.agent()  # each call that waits is an instance there, for as long as it does
        self._joined = self._join(*self._find_seat(), stays=True)
        return self._joined

    def parent(self, herd: str | None = None) -> Parent:
        """The parent of the seat's herd, or of `herd` by its seat on this machine."""
        if herd is not None:
            self.sit(SeatName(check_name(_OPERATION, "herd", herd), PARENT))
        joined = self.agent()
        if not isinstance(joined, Parent):
            raise Forbidden(
                _OPERATION,
                f"this is for the parent of a herd, and seat {joined.herd}/{joined.agent} is a "
                f"child's; use --seat {joined.herd}/parent if that is yours",
            )
        return joined

    def sit(self, name: SeatName) -> Parent | Child:
        """Speaks for this agent from here on, by a token of this machine."""
        self._joined = self._join(name, self._token_of_environment(name))
        return self._joined

    def has(self, name: SeatName) -> bool:
        """Whether a token of this agent is at hand."""
        return bool(self._token_of_environment(name) or self.credentials.get(str(name)))

    def _token_of_environment(self, name: SeatName) -> str | None:
        seat, token = self._find_seat(required=False)
        return token if seat == name else None

    def operator(self) -> Parent:
        """The parent of the seat's herd by its seat on this machine, whatever seat is given."""
        return self.parent(self.seat().herd)

    def child(self) -> Child:
        """The child of the seat."""
        joined = self.agent()
        if not isinstance(joined, Child):
            raise Forbidden(
                _OPERATION,
                f"this is for the child that owns the task, and seat {joined.herd}/parent is the "
                "parent's; use --seat herd/agent",
            )
        return joined

    def keep(self, name: SeatName, seat: StoredSeat, *, use: bool = False) -> None:
        """Stores a new token; if that fails it is shown, once, because it exists nowhere else."""
        try:
            self.credentials.put(str(name), seat, use=use)
        except InvalidInput:
            self.show_token(name, seat.token)
            raise

    def show_token(self, name: SeatName, token: str) -> None:
        """Prints a token on stderr, for whoever asked for it or must keep it now."""
        typer.echo(f"token of {name}: {token}", err=True)

    @property
    def is_seated_by_option(self) -> bool:
        """Whether `--seat` says whose command it is, and so no token of a variable counts."""
        return bool(self._given_seat)

    def named_seat(self) -> SeatName | None:
        """The seat that an option or a variable names; not the one chosen with `seat use`."""
        if self._given_seat:
            return read_seat(self._given_seat, "--seat")
        return _seat_of_environment()

    def _find_seat(self, *, required: bool = True) -> tuple[SeatName, str | None]:
        """The seat, and its token if a variable holds it."""
        if self._given_seat:
            return read_seat(self._given_seat, "--seat"), None
        by_variable = _seat_of_environment()
        if by_variable:
            return by_variable, os.environ.get("TOCSIN_TOKEN") or None
        current = self.credentials.current
        if current:
            return read_seat(current, f"seat in {self.credentials.path}"), None
        if not required:
            return SeatName("", ""), None
        raise InvalidInput(
            _OPERATION,
            f"no seat is chosen for fleet {self.connection.settings.fleet} at "
            f"{self.credentials.server}: open a herd (`tocsin herd open NAME`), or choose one with "
            "--seat herd/agent, TOCSIN_SEAT=herd/agent or `tocsin seat use herd/agent`",
        )

    def looking(self) -> Parent | Child:
        """The agent of the seat without joining: for looking only, it counts as no presence."""
        name, token = self._find_seat()
        proof = self._stored(name, token).token
        if self.is_remote:
            return self._remote(name, proof, unseen=True).join()
        return _kind(name)(self.broker, self._caller(name, proof), proof)

    def _remote(self, name: SeatName, token: str, *, unseen: bool = False) -> Remote:
        from tocsin.workers.remote import Remote  # slow to import

        line = Remote(self.connection.settings.url, name.herd, name.agent, token, unseen=unseen)
        self._lines.append(line)
        return line

    def proofs(self) -> tuple[SeatName, tuple[str, ...]]:
        """The seat and its tokens, without a call; of two, a rotation left one of them in force."""
        name, token = self._find_seat()
        stored = self._stored(name, token)
        return name, (stored.token, *([stored.former] if stored.former else []))

    def _caller(self, name: SeatName, token: str) -> Caller:
        return Caller(self.broker.fleet(), *name, hash_token(token), self._instance(name))

    def _stored(self, name: SeatName, token: str | None) -> StoredSeat:
        stored = StoredSeat(token=token) if token else self.credentials.get(str(name))
        if stored is None:
            raise InvalidInput(_OPERATION, self.credentials.unknown(str(name)))
        return stored

    def _join(self, name: SeatName, token: str | None, *, stays: bool = False) -> Parent | Child:
        stored = self._stored(name, token)
        try:
            return self.join(name, stored.token, stays=stays)
        except Unauthorized:
            if stored.former is None:
                raise
            return self.join(name, stored.former, stays=stays)

    def join(self, name: SeatName, token: str, *, stays: bool = False) -> Parent | Child:
        """Joins as this agent for one call, or as an instance of its own that stays.

        A closed herd cannot be joined, but still be read.
        """
        check_token(_OPERATION, token)
        if self.is_remote:
            return self._far(name, token)
        instance = None if stays else self._instance(name)
        try:
            return self.broker.join(name.herd, name.agent, token, instance=instance)
        except HerdClosed:
            return _kind(name)(self.broker, self._caller(name, token), token)

    def _far(self, name: SeatName, token: str) -> Parent | Child:
        joined, place = self._remote(name, token).join(), self.connection
        fleet = joined.caller.fleet.name
        if place.sources["fleet"] != "default" and place.settings.fleet != fleet:
            raise InvalidInput(
                _OPERATION,
                f"{self.credentials.server} serves fleet {fleet}, not {place.settings.fleet}; "
                "leave TOCSIN_FLEET and --fleet out",
            )
        return joined

    def _instance(self, name: SeatName) -> str:
        """The same id for each call of this user on this machine in this seat."""
        whose = (platform.node(), str(os.getuid()), self.credentials.server, self.credentials.fleet)
        text = "\x00".join((*whose, str(name)))
        return f"inst_cli_{hashlib.sha256(text.encode()).hexdigest()[:24]}"


@contextmanager
def peek(options: Mapping[str, Any]) -> Iterator[Parent | Child]:
    """A look at the fleet with a command's options, while the command is still being typed."""
    session = Session(Output(), options.get("url"), options.get("fleet"), options.get("seat"))
    try:
        yield session.looking()
    finally:
        session.close()


def _kind(name: SeatName) -> type[Parent] | type[Child]:
    return Parent if name.agent == PARENT else Child


def _variable(name: str) -> str | None:
    """What a variable holds. `${...}` is nothing: so do hosts pass on what is not set."""
    value = os.environ.get(name)
    return None if not value or value.startswith("${") else value


def _seat_of_environment() -> SeatName | None:
    one, herd, agent = (_variable(f"TOCSIN_{name}") for name in ("SEAT", "HERD", "AGENT"))
    if (herd is None) != (agent is None) and one is None:
        missing = "TOCSIN_AGENT" if agent is None else "TOCSIN_HERD"
        raise InvalidInput(_OPERATION, f"{missing} is not set; set both, or TOCSIN_SEAT=herd/agent")
    both = read_seat(f"{herd}/{agent}", "TOCSIN_HERD/TOCSIN_AGENT") if herd and agent else None
    seat = read_seat(one, "TOCSIN_SEAT") if one else None
    if seat and both and seat != both:
        raise InvalidInput(
            _OPERATION,
            f"TOCSIN_SEAT is {seat}, but TOCSIN_HERD and TOCSIN_AGENT say {both}; unset one",
        )
    return seat or both


def _option(name: str, kind: Any, option: Any, default: Any) -> inspect.Parameter:
    return inspect.Parameter(
        name,
        inspect.Parameter.KEYWORD_ONLY,
        default=default,
        annotation=Annotated[kind, option],
    )


_SHARED = [
    _option(
        "url",
        str | None,
        typer.Option(
            "--url",
            metavar="URL",
            rich_help_panel=_PANEL,
            show_default=False,
            help="The server (else TOCSIN_URL, a settings file, redis://127.0.0.1:6379/0); also "
            "redis+cluster://host:port,... and redis+sentinel://master@host:port,.../0, or "
            "https://... of a `tocsin mcp --http`. A URL with a password belongs in the variable, "
            "where no process list shows it.",
        ),
        None,
    ),
    _option(
        "fleet",
        str | None,
        typer.Option(
            "--fleet",
            metavar="NAME",
            rich_help_panel=_PANEL,
            show_default=False,
            help="The fleet (else TOCSIN_FLEET, a settings file, 'default').",
        ),
        None,
    ),
    _option(
        "json",
        bool,
        typer.Option(
            "--json",
            rich_help_panel=_PANEL,
            help="Print one exact JSON document on stdout; of a stream, one a line.",
        ),
        False,
    ),
]
_SEAT = _option(
    "seat",
    str | None,
    typer.Option(
        "--seat",
        metavar="HERD/AGENT",
        rich_help_panel=_PANEL,
        show_default=False,
        autocompletion=complete_seat,
        help="Speak for this agent (else TOCSIN_SEAT, or what `tocsin seat use` chose).",
    ),
    None,
)


Run = Callable[Concatenate[Session, P], None]


def command(
    app: typer.Typer,
    name: str,
    *aliases: str,
    example: str,
    seat: bool = False,
    bare: bool = False,
    hidden: bool = False,
) -> Callable[[Run[P]], Run[P]]:
    """Registers a function as a command; its help is its docstring and the example.

    `aliases` work too, unlisted, as does the command itself where it is `hidden`. With `bare` the
    group itself does the same when no sub-command follows.
    """

    def register(run: Run[P]) -> Run[P]:
        own = list(inspect.signature(run, eval_str=True).parameters.values())[1:]
        own = [parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY) for parameter in own]
        parameters = [*own, *([_SEAT] if seat else []), *_SHARED]
        invoke = _shaped(_invocation(run, name), parameters, run.__doc__)
        epilog = f"Example: {example}"
        app.command(name, epilog=epilog, hidden=hidden)(invoke)
        for alias in aliases:
            app.command(alias, epilog=epilog, hidden=True)(invoke)
        if bare:
            callback = _shaped(_if_bare(invoke), [_CONTEXT, *parameters], app.info.help)
            app.callback(invoke_without_command=True)(callback)
        return run

    return register


_CONTEXT = inspect.Parameter("ctx", inspect.Parameter.KEYWORD_ONLY, annotation=typer.Context)


def _shaped(
    invoke: Callable[..., None], parameters: list[inspect.Parameter], help_text: str | None
) -> Callable[..., None]:
    """The function with the parameters and text from which typer makes a command."""
    invoke.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    invoke.__annotations__ = {each.name: each.annotation for each in parameters}
    invoke.__doc__ = help_text
    return invoke


def _if_bare(invoke: Callable[..., None]) -> Callable[..., None]:
    def callback(ctx: typer.Context, **values: Any) -> None:
        if ctx.invoked_subcommand is None:
            invoke(**values)
        elif any(values.values()):
            raise typer.BadParameter(f"options stand after the word {ctx.invoked_subcommand!r}")

    return callback


def _invocation(run: Callable[..., None], operation: str) -> Callable[..., None]:
    def invoke(
        url: str | None, fleet: str | None, json: bool, seat: str | None = None, **values: Any
    ) -> None:
        out = Output(as_json=json)
        with guard(out, operation):
            session = Session(out, url, fleet, seat)
            try:
                run(session, **values)
            finally:
                session.close()

    return invoke
