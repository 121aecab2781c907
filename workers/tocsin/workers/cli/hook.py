"""`tocsin hook`: what the hosts of agents run at the moments of a session."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tocsin.broker import Child, Parent
from tocsin.broker.errors import BrokerError, InvalidInput
from tocsin.workers.cli.session import SeatName, Session, command
from tocsin.workers.hosts.servers import Scope

if TYPE_CHECKING:
    from tocsin.workers.hosts.doorbell import Handed, SessionFiles
    from tocsin.workers.hosts.events import HookedHost

app = typer.Typer(
    name="hook",
    no_args_is_help=True,
    help="Hooks of the programs that run agents: mail at each turn, waking between them.",
)

HOOKED = ("claude-code", "codex", "generic")
"""Hosts that run hooks."""

EXTENDED = {"pi": ("send-user-message",), "opencode": ("prompt",)}
"""Hosts with an extension of ours, which is told what to wake them with; and how it does."""


Folder = Annotated[Path | None, typer.Option(hidden=True)]


def host_named(name: str) -> HookedHost:
    """The module that knows a host which runs hooks."""
    from tocsin.workers.hosts import claude_code, codex, generic

    hosts: dict[str, HookedHost] = {each.NAME: each for each in (claude_code, codex, generic)}
    return hosts[name]


def seat_of(session: Session) -> SeatName:
    """Whose session it is. The seat chosen with `seat use` would be that of every session."""
    seat = session.named_seat()
    if seat is None:
        given = os.environ.get("TOCSIN_SEAT")
        raise InvalidInput(
            "hook",
            "no seat is named: start the host with TOCSIN_SEAT=herd/agent, or install its hooks "
            f"with --seat herd/agent (TOCSIN_SEAT is {repr(given) if given else 'not set'})",
        )
    return seat


class Place:
    """What the commands of a session share: its agent, and where its files are."""

    def __init__(self, session: Session, name: str, folder: Path | None) -> None:
        from tocsin.workers.hosts.doorbell import Handed, sessions_folder

        self.session = session
        self.name = name
        self.seat = seat_of(session)
        self.folder = folder or sessions_folder()
        known = session.credentials
        self.handed: Handed = Handed(self.folder, known.server, known.fleet, str(self.seat))

    @contextmanager
    def joined(self) -> Iterator[Parent | Child]:
        """The agent, for one call."""
        try:
            yield self.session.agent()
        finally:
            self.session.close()

    def again(self) -> Iterator[Parent | Child]:
        """The agent as an instance that stays, found anew: a token may have been rotated."""
        session = self.session.anew()
        try:
            yield session.staying()
        finally:
            session.close()

    def listen_command(self, files: SessionFiles) -> Sequence[str]:
        """What listens for a session in the background."""
        from tocsin.workers.hosts.sessions import PROGRAM

        words = ("hook", self.name, "listen", "--session", files.session, "--wakes")
        # Else its variables are handed on, which may hold the token, too.
        seat = ("--seat", str(self.seat)) if self.session.is_seated_by_option else ()
        return (*PROGRAM, *words, *seat, "--folder", str(self.folder))


def _answer(session: Session, name: str, moment: str | None, folder: Path | None) -> str:
    from tocsin.workers.hosts.events import NAMES, Moment, read
    from tocsin.workers.hosts.sessions import Visit

    if moment and moment not in (*NAMES, Moment.WAIT):
        known = ", ".join(NAMES)
        raise InvalidInput("hook", f"there is no moment {moment!r}; there are {known}")
    event = read(sys.stdin.read(), Moment(moment) if moment else None)
    if event is None:
        raise InvalidInput("hook", "stdin holds no event with a session_id and a known moment")
    place = Place(session, name, folder)
    visit = Visit(host_named(name), event, place.folder, str(place.seat), place.listen_command)
    if event.moment is Moment.END:
        visit.end()
        return ""
    if event.moment is Moment.WAIT:  # who waits found nobody that listens
        visit.resume()
        return ""
    if visit.is_silent():
        raise InvalidInput("hook", "this session speaks for nobody: a sub-agent's, or a nested one")
    visit.see_listener()
    answer = visit.answer(place.joined, place.handed)
    return "" if answer is None else json.dumps(answer)


def _add_run(group: typer.Typer, name: str) -> None:
    @command(group, "run", example=f"tocsin hook {name} run stop < event.json", seat=True)
    def run(
        session: Session,
        moment: Annotated[
            str | None,
            typer.Argument(help="start, prompt, tool, stop or end; else as the event names it."),
        ] = None,
        folder: Folder = None,
        debug: Annotated[
            bool, typer.Option("--debug", help="Say on stderr what is wrong.")
        ] = False,
    ) -> None:
        """Answer one event, which is JSON on stdin, as the host wants it.

        Whatever is wrong, it ends well within a few seconds, and says nothing
        then: no host and no turn may suffer from it.
        """
        from tocsin.workers.hosts.sessions import DEADLINE, end_after

        end_after(DEADLINE)
        try:
            text = _answer(session, name, moment, folder)
        except Exception as error:
            if debug:
                detail = error.detail if isinstance(error, BrokerError) else repr(error)
                typer.echo(session.out.mask(detail), err=True)
            return
        typer.echo(text, nl=bool(text))


def _add_listen(group: typer.Typer, name: str) -> None:
    @command(group, "listen", example=f"tocsin hook {name} listen --session 0199...", seat=True)
    def listen(
        session: Session,
        session_id: Annotated[
            str, typer.Option("--session", metavar="ID", help="The host's session.")
        ],
        detach: Annotated[
            bool, typer.Option("--detach", help="Go on in the background, and wake the host.")
        ] = False,
        wakes: Annotated[bool, typer.Option("--wakes", hidden=True)] = False,
        folder: Folder = None,
    ) -> None:
        """Listen for one session: presence, its doorbell, and waking its host.

        Started by an extension of a host, it prints a line of JSON when there
        is something to say to the host, is told on stdin what the host does,
        and ends with it.
        """
        from tocsin.workers import lineage
        from tocsin.workers.hosts.doorbell import SessionFiles
        from tocsin.workers.hosts.listening import Listener
        from tocsin.workers.hosts.listening import listen as serve
        from tocsin.workers.hosts.sessions import keep_record, start_listener

        place = Place(session, name, folder)
        files = SessionFiles(place.folder, name, session_id)
        if not files.record:
            if wakes:  # the session that it was started for has ended
                return
            host = lineage.host_of(lineage.ancestors())
            keep_record(files, str(place.seat), lineage.Process.of(host))
        if detach:
            start_listener(place.listen_command(files))
            return
        paths = EXTENDED[name] if name in EXTENDED else host_named(name).CHAIN
        listener = Listener(
            name,
            paths,
            files,
            place.handed,
            contextmanager(place.again),
            say=None if wakes else _say,
        )
        serve(listener, reads_stdin=not wakes)


def _say(event: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(event) + "\n")
    sys.stdout.flush()


def _variables(session: Session) -> dict[str, str]:
    seat = session.named_seat()
    return {} if seat is None else {"TOCSIN_SEAT": str(seat)}


def _hooks(session: Session, name: str) -> dict[str, Any]:
    from tocsin.workers.hosts.doorbell import sessions_folder
    from tocsin.workers.hosts.sessions import command as hook_command

    return host_named(name).hooks(hook_command(name, sessions_folder(), _variables(session)))


def _add_print(group: typer.Typer, name: str) -> None:
    @command(group, "print", example=f"tocsin hook {name} print", seat=True)
    def show(session: Session) -> None:
        """Print what belongs into the host's settings, to be put there by hand.

        With --seat, or TOCSIN_SEAT, its sessions speak for that agent alone.
        """
        settings = _hooks(session, name)
        session.out.result(settings, json.dumps(settings, indent=2))


def _add_install(group: typer.Typer, name: str) -> None:
    @command(group, "install", example=f"tocsin hook {name} install", seat=True)
    def install(
        session: Session,
        scope: Annotated[
            Scope, typer.Option(help="Whose settings: the user's, or the working directory's.")
        ] = Scope.USER,
        undo: Annotated[bool, typer.Option("--undo", help="Take out what was put in.")] = False,
    ) -> None:
        """Put the hooks into the host's settings, beside what is there.

        Sessions that the host is started for with TOCSIN_SEAT=herd/agent have
        them from then on, all others do not notice. With --seat, or while
        TOCSIN_SEAT is set, they are for that agent alone. Repeat it to renew them.
        """
        from tocsin.workers.hosts.documents import changes_of
        from tocsin.workers.hosts.files import Files

        path = host_named(name).settings_path(scope, Path.cwd())
        part = f"{name} hooks"
        if undo:
            left = Files().undo(path, part)
            told = (
                f"No hooks of Tocsin are in {path}."
                if left is None
                else f"Took them out of {path}."
            )
            session.out.result({"path": path, "undone": left is not None, "left": left or []}, told)
            for place in left or ():
                session.out.warn(f"{place} in {path} was changed since, and is left")
            return
        changed = Files().put(path, part, changes_of(_hooks(session, name)))
        session.out.result(
            {"path": path, "changed": changed},
            f"The hooks are in {path}. They hold from the next session on.",
        )
        if name == "codex":
            session.out.note("Codex runs no hook that you have not trusted: see /hooks in it.")


for _name in HOOKED:
    _group = typer.Typer(name=_name, no_args_is_help=True, help=f"Hooks of {_name}.")
    _add_run(_group, _name)
    _add_listen(_group, _name)
    _add_print(_group, _name)
    _add_install(_group, _name)
    app.add_typer(_group)

for _name in EXTENDED:
    _group = typer.Typer(name=_name, no_args_is_help=True, help=f"The listener of {_name}.")
    _add_listen(_group, _name)
    app.add_typer(_group)
