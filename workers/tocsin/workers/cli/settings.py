"""`tocsin settings`: each value with the layer it came from; set in a file, or live in a herd."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Annotated, Any

import typer
from rich.text import Text

from tocsin.broker import HerdSettings
from tocsin.broker.durations import show_duration
from tocsin.broker.errors import InvalidInput
from tocsin.broker.herds import HerdRecord
from tocsin.broker.settings import (
    ENV_NAMES,
    OFFERED_THRESHOLDS,
    OPERATION,
    ConnectionSettings,
    NotifySettings,
    describe,
    model_of,
    parse_setting,
    show_setting,
)
from tocsin.broker.settings_files import (
    FileLayer,
    resolve,
    resolve_connection,
    resolve_notify,
    unset_setting,
    write_setting,
)
from tocsin.workers.cli.blocks import Cell, Facts, Rows
from tocsin.workers.cli.complete import complete_setting
from tocsin.workers.cli.session import Session, command

THRESHOLD = "stale_wait_threshold"
_LOOKS: dict[Any, Callable[[], Any]] = {
    HerdSettings: resolve,
    ConnectionSettings: resolve_connection,
    NotifySettings: resolve_notify,
}
_SECRET = ("url", "notify_url", "notify_command")
"""Settings that may hold a secret, which are told as they are shown."""

_STRENGTH = ("default", "user", "project", "environment", "argument")

app = typer.Typer(
    name="settings", help="Settings: show them with their layers, set them, live too."
)

Name = Annotated[
    str,
    typer.Argument(
        metavar="NAME", help="As `tocsin settings list` shows.", autocompletion=complete_setting
    ),
]
UserFlag = Annotated[bool, typer.Option("--user", help="In your own settings file (the default).")]
ProjectFlag = Annotated[bool, typer.Option("--project", help="In this project's tocsin.toml.")]
HerdOption = Annotated[
    str | None,
    typer.Option(
        "--herd", metavar="HERD", show_default=False, help="The record of this open herd, live."
    ),
]


def plain_value(value: object) -> Any:
    """A value as JSON has it and `set` takes it: numbers, and durations as `20m`."""
    if isinstance(value, float) and value.is_integer():
        return int(value)
    return show_duration(value) if isinstance(value, timedelta) else value


def _told(name: str, value: Any) -> Any:
    """A value of a layer as JSON has it."""
    return show_setting(name, value) if name in _SECRET else plain_value(value)


def plain_settings(settings: HerdSettings) -> dict[str, Any]:
    """The settings of a herd, so."""
    return {name: plain_value(getattr(settings, name)) for name in HerdSettings.model_fields}


def given_settings(assignments: Sequence[str]) -> HerdSettings:
    """The settings that texts like `reply_timeout=10m` give."""
    values: dict[str, Any] = {}
    for assignment in assignments:
        name, mark, text = assignment.partition("=")
        if not mark:
            raise InvalidInput(OPERATION, f"{assignment[:80]!r} is not NAME=VALUE")
        values[name] = _herd_value(name, text)
    return HerdSettings(**values)


def _herd_value(name: str, text: str) -> Any:
    _need_herd_setting(name)
    return parse_setting(name, text)


def _need_herd_setting(name: str) -> None:
    if model_of(name) is not HerdSettings:
        raise InvalidInput(OPERATION, f"{name} is this machine's own; no herd has it")


def record_rows(record: HerdRecord) -> Rows:
    """The settings of a herd's record as a table."""
    rows = [
        (name, show_setting(name, getattr(record.settings, name)), record.sources.get(name, "-"))
        for name in HerdSettings.model_fields
    ]
    return Rows(("setting", "value", "from"), rows, whole=("setting",))


def _all(session: Session) -> list[dict[str, Any]]:
    found = []
    resolved = {model: look() for model, look in _LOOKS.items()}
    resolved[ConnectionSettings] = session.connection
    for row in describe():
        layers = resolved[model_of(row.name)]
        value = getattr(layers.settings, row.name)
        shown = show_setting(row.name, value)
        found.append(
            {
                "name": row.name,
                "value": _told(row.name, value),
                "shown": shown,
                "source": layers.sources[row.name],
                "origin": layers.origin(row.name),
                "default": row.default,
                "kind": row.kind,
                "variable": row.variable,
                "description": row.description,
            }
        )
    return found


def _list(session: Session, herd: str | None) -> None:
    if herd is not None:
        record = session.parent(herd).herd_record()
        names = HerdSettings.model_fields
        session.out.result(
            [
                {
                    "name": name,
                    "value": plain_value(getattr(record.settings, name)),
                    "shown": show_setting(name, getattr(record.settings, name)),
                    "source": record.sources.get(name),
                }
                for name in names
            ],
            record_rows(record),
        )
        return
    rows = _all(session)
    table: list[list[Cell]] = [
        [
            Text(row["name"], style="bold"),
            Text(row["shown"], style="" if row["source"] == "default" else "green"),
            row["origin"],
            Text(row["description"], style="dim"),
        ]
        for row in rows
    ]
    session.out.result(
        rows, Rows(("setting", "value", "from", "what it is"), table, whole=("setting",))
    )


@command(app, "list", example="tocsin settings --herd release-42", bare=True)
def list_settings(session: Session, herd: HerdOption = None) -> None:
    """Show every setting: its value here, and the layer it came from.

    Layers, weakest first: default, user file, project file, environment. A herd keeps what they
    said when it was opened; `--herd` shows that.
    """
    _list(session, herd)


@command(app, "get", example="tocsin settings get stale_wait_threshold")
def get_setting(session: Session, name: Name, herd: HerdOption = None) -> None:
    """Print one value, and on stderr where it came from."""
    if herd is not None:
        _need_herd_setting(name)
        record = session.parent(herd).herd_record()
        value, source = getattr(record.settings, name), record.sources.get(name, "-")
        shown = show_setting(name, value)
        session.out.result({"name": name, "value": plain_value(value), "source": source}, shown)
        session.out.note(f"from {source}, in herd {herd}")
        return
    model_of(name)
    row = next(row for row in _all(session) if row["name"] == name)
    session.out.result(row, str(row["shown"]))
    session.out.note(f"from {row['origin']}")


def _layer(user: bool, project: bool, herd: str | None) -> FileLayer:
    if user + project + (herd is not None) > 1:
        raise typer.BadParameter("give one of --user, --project and --herd")
    return "project" if project else "user"


def _menu(session: Session) -> str:
    """The threshold that a person chooses of the offered ones."""
    if not session.out.interactive:
        raise typer.BadParameter(f"a value is needed; at a terminal {THRESHOLD} has a menu")
    now = resolve().settings.stale_wait_threshold
    typer.echo("A wait this old reminds the parent, once:", err=True)
    for number, minutes in enumerate(OFFERED_THRESHOLDS, 1):
        shown = show_setting(THRESHOLD, minutes)
        mark = "  (now)" if show_setting(THRESHOLD, now) == shown else ""
        unit = "" if shown == "off" else " min"
        typer.echo(f"  {number}  {shown}{unit}{mark}", err=True)
    while True:
        answer = typer.prompt("Which", type=int, err=True)
        if 1 <= answer <= len(OFFERED_THRESHOLDS):
            return str(OFFERED_THRESHOLDS[answer - 1])
        typer.echo(f"1 to {len(OFFERED_THRESHOLDS)}, please.", err=True)


def _set(session: Session, name: str, text: str, layer: FileLayer, herd: str | None) -> None:
    if herd is not None:
        given = given_settings([f"{name}={text}"])
        record = session.parent(herd).set_settings(given, source="argument")
        value = getattr(record.settings, name)
        session.out.result(
            {"name": name, "value": plain_value(value), "source": "argument", "herd": herd},
            f"{name} is {show_setting(name, value)} in herd {herd}, from now on.",
        )
        return
    path = write_setting(layer, name, text)
    after = _resolved(session, name)
    shown = show_setting(name, parse_setting(name, text))
    session.out.result(
        {"name": name, "value": _told(name, after[0]), "source": after[1], "file": str(path)},
        f"{name} is {shown} in {path}.",
    )
    if _STRENGTH.index(after[1]) > _STRENGTH.index(layer):
        session.out.warn(f"{after[2]} is stronger and says {show_setting(name, after[0])}")
    if name in HerdSettings.model_fields:
        session.out.note("Herds that are open keep theirs; change one with --herd HERD.")


def _resolved(session: Session, name: str) -> tuple[Any, str, str]:
    """A value after a change, its layer, and where that is."""
    layers = _LOOKS[model_of(name)]()
    value = getattr(layers.settings, name)
    return value, layers.sources[name], layers.origin(name)


@command(app, "set", example="tocsin settings set reply_timeout 10m --herd release-42")
def set_setting(
    session: Session,
    name: Name,
    value: Annotated[
        str | None, typer.Argument(metavar="[VALUE]", show_default=False, help="`10m`, `5`, `off`")
    ] = None,
    user: UserFlag = False,
    project: ProjectFlag = False,
    herd: HerdOption = None,
) -> None:
    """Set a value: in your settings file, in the project's, or in the record of an open herd.

    In a herd it holds from now on, for waits that are open already too. A negative number stands
    after `--`, behind all options; `off` says the same for a threshold. Without a value,
    `stale_wait_threshold` offers a menu at a terminal.
    """
    layer = _layer(user, project, herd)
    model_of(name)
    if value is None:
        if name != THRESHOLD:
            raise typer.BadParameter(f"{name} needs a value")
        value = _menu(session)
    _set(session, name, value, layer, herd)


@command(app, "menu", example="tocsin settings menu --herd release-42")
def menu(
    session: Session,
    user: UserFlag = False,
    project: ProjectFlag = False,
    herd: HerdOption = None,
) -> None:
    """Choose the stale-wait threshold from the offered ones, at a terminal."""
    layer = _layer(user, project, herd)
    _set(session, THRESHOLD, _menu(session), layer, herd)


@command(app, "unset", example="tocsin settings unset reply_timeout --project")
def unset(
    session: Session,
    name: Name,
    user: UserFlag = False,
    project: ProjectFlag = False,
) -> None:
    """Remove a value from your settings file, or the project's; the weaker layers speak again."""
    layer = _layer(user, project, None)
    path = unset_setting(layer, name)
    known = name in ENV_NAMES
    value, source, origin = _resolved(session, name) if known else (None, None, None)
    session.out.result(
        {"name": name, "value": _told(name, value), "source": source, "removed": path is not None},
        Facts(
            [
                ("removed" if path else "was not set in", str(path or f"the {layer} file")),
                (name, f"{show_setting(name, value)}, from {origin}" if known else None),
            ]
        ),
    )
