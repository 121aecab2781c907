"""The layers of settings: defaults < user file < project file < environment < argument.

A settings file is TOML: herd settings in its table `[herd]`, all others at its top level. The
user's also holds runners that children may be given by name, each in a table `[runners.<name>]`. A
project file may come from somebody else: it says neither what is run nor which private address is
reached.

- The user file is `config.toml` in the platform's folder for the settings of `tocsin`, under
  `XDG_CONFIG_HOME` where that is set.
- The project file is `tocsin.toml` in the working directory or the nearest folder above it. The
  search ends with the first folder that holds `.git`, and with the home directory.
- A variable is `TOCSIN_` and the setting's name; an empty one counts as not set.

Files and variables are read when a function is called, never at import. What is not understood is
refused with `InvalidInput`, which names the file and key, or the variable, and the nearest right
one; nothing is guessed and nothing is skipped, except variables of other parts of Tocsin.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, MutableMapping
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from tempfile import NamedTemporaryFile
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Generic, Literal, TypeVar, get_args

from platformdirs import user_config_path
from pydantic_settings import (
    BaseSettings,
    EnvSettingsSource,
    SettingsConfigDict,
    TomlConfigSettingsSource,
)

from tocsin.broker.errors import InvalidInput
from tocsin.broker.masking import shown
from tocsin.broker.runners import Runner, read_runner
from tocsin.broker.settings import (
    ENV_NAMES,
    OPERATION,
    ConnectionSettings,
    HerdSettings,
    NotifySettings,
    SettingsModel,
    Where,
    model_of,
    parse_setting,
    plain,
    unknown_setting,
)

if TYPE_CHECKING:
    from tomlkit import TOMLDocument

Source = Literal["default", "user", "project", "environment", "argument"]
"""A layer, weakest first."""

_LAYERS = get_args(Source)

FileLayer = Literal["user", "project"]
"""A layer that is a file, and so can be written."""

PROJECT_FILE = "tocsin.toml"
_TABLE = "herd"
_RUNNERS = "runners"
_NEVER_OF_A_PROJECT = frozenset({"notify_command", "notify_private", _RUNNERS})
_PREFIX = "TOCSIN_"
_ALIKE = 0.75
"""How alike a variable must be to a setting to be refused as a misspelling of it. The variables of
other programs that begin alike are passed over."""

Model = TypeVar("Model", bound=SettingsModel)
Folder = Path | str | None
Environ = Mapping[str, str] | None


class _Layered(HerdSettings, ConnectionSettings, NotifySettings, BaseSettings):
    """What the sources of pydantic-settings look for: each reads one layer, as it is written.

    Never made. The models judge each layer, knowing where it was found.
    """

    # Not strict: with it the source of variables would convert, by rules of its own.
    model_config = SettingsConfigDict(
        env_prefix=_PREFIX, case_sensitive=True, strict=False, enable_decoding=False
    )


@dataclass(frozen=True)
class Resolved(Generic[Model]):
    """Settings with the layer that each value came from, and the files that were read."""

    settings: Model
    sources: Mapping[str, Source]
    files: Mapping[FileLayer, Path]

    def origin(self, name: str) -> str:
        """Where a value came from, for people: `default`, a file, a variable, or `argument`."""
        source = self.sources[name]
        if source == "user" or source == "project":
            return f"{source} file {self.files[source]}"
        return ENV_NAMES[name] if source == "environment" else source


def resolve(
    given: HerdSettings | None = None, *, cwd: Folder = None, environ: Environ = None
) -> Resolved[HerdSettings]:
    """The settings of a herd that is opened here and now; only fields given in `given` count.

    `cwd` and `environ` stand in for the working directory and environment of this process.
    """
    return _resolve(HerdSettings, given, cwd, environ)


def resolve_connection(
    given: ConnectionSettings | None = None, *, cwd: Folder = None, environ: Environ = None
) -> Resolved[ConnectionSettings]:
    """Where the fleet is, by the same layers."""
    return _resolve(ConnectionSettings, given, cwd, environ)


def resolve_notify(
    given: NotifySettings | None = None, *, cwd: Folder = None, environ: Environ = None
) -> Resolved[NotifySettings]:
    """How schedulers started here tell a human, by the same layers.

    A command and a url exclude each other: the stronger layer's counts, and two of one layer are
    refused.
    """
    found = _resolve(NotifySettings, given, cwd, environ)
    if not (found.settings.notify_command and found.settings.notify_url):
        return found
    names = sorted(
        ("notify_command", "notify_url"), key=lambda name: _LAYERS.index(found.sources[name])
    )
    weaker, stronger = names
    if found.sources[weaker] == found.sources[stronger]:
        raise InvalidInput(
            OPERATION,
            f"notify_command and notify_url are both set ({found.origin(stronger)}); unset one",
        )
    default = NotifySettings.model_fields[weaker].default
    return Resolved(
        found.settings.model_copy(update={weaker: default}),
        MappingProxyType({**found.sources, weaker: "default"}),
        found.files,
    )


def _resolve(
    model: type[Model], given: Model | None, cwd: Folder, environ: Environ
) -> Resolved[Model]:
    if given is not None and not isinstance(given, model):
        raise InvalidInput(OPERATION, f"settings must be {model.__name__}, not {shown(given)}")
    layers: dict[Source, Model] = {}
    files: dict[FileLayer, Path] = {}
    paths: dict[FileLayer, Path | None]
    paths = {"user": user_file(environ), "project": project_file(cwd, environ)}
    for layer, path in paths.items():
        if path is not None and (document := _read(path)) is not None:
            files[layer] = path
            layers[layer] = _from_file(model, path, document)
            if layer == "project":
                _keep_out(layers[layer].model_fields_set, path)
    layers["environment"] = _from_environment(model, os.environ if environ is None else environ)
    if given is not None:
        layers["argument"] = given
    sources: dict[str, Source] = dict.fromkeys(model.model_fields, "default")
    values: dict[str, Any] = {}
    for source, found in layers.items():
        values |= {name: getattr(found, name) for name in found.model_fields_set}
        sources |= dict.fromkeys(found.model_fields_set, source)
    return Resolved(model(**values), MappingProxyType(sources), MappingProxyType(files))


def resolve_runner(
    name: str, *, over: Mapping[str, Any] | None = None, environ: Environ = None
) -> Runner:
    """The runner that the user's settings file defines under this name, with fields put over it."""
    if project := project_file(environ=environ):
        _keep_out((_read(project) or {}).keys() & {_RUNNERS}, project)
    path = user_file(environ)
    table = (_read(path) or {}).get(_RUNNERS, {})
    known = table if isinstance(table, dict) else {}
    if name in known:
        try:
            fields = known[name]
            return read_runner({**fields, **(over or {})} if isinstance(fields, dict) else fields)
        except InvalidInput as refusal:
            detail = f"[{_RUNNERS}.{name}] of {path}: {refusal.detail}"
            raise InvalidInput("register", detail) from None
    there = f"there are {', '.join(map(shown, sorted(known)))}" if known else "there are none yet"
    raise InvalidInput(
        "register",
        f"the operator has defined no runner {shown(name)}; {there}, and another is a table "
        f"[{_RUNNERS}.<name>] in {path}",
    )


def user_file(environ: Environ = None) -> Path:
    """The path of the user's settings file, whether or not it exists."""
    folder = Path((os.environ if environ is None else environ).get("XDG_CONFIG_HOME", ""))
    if folder.is_absolute():
        return folder / "tocsin" / "config.toml"
    return user_config_path("tocsin", appauthor=False) / "config.toml"


def project_file(cwd: Folder = None, environ: Environ = None) -> Path | None:
    """The path of the project's settings file, or None where there is none."""
    environ = os.environ if environ is None else environ
    home = environ.get("HOME") or environ.get("USERPROFILE")
    try:
        start = Path(cwd or "").resolve()
    except FileNotFoundError:  # the working directory was removed
        return None
    for folder in (start, *start.parents):
        # Not Path.exists: it raises where one may not look.
        if os.path.exists(folder / PROJECT_FILE):  # noqa: PTH110
            return folder / PROJECT_FILE
        if (home and folder == Path(home).resolve()) or os.path.exists(folder / ".git"):  # noqa: PTH110
            break
    return None


def _read(path: Path) -> dict[str, Any] | None:
    """What the file says; None if there is no such file."""
    try:
        with path.open("rb"):  # refuses what the source would pass over: a folder, say
            return TomlConfigSettingsSource(_Layered, path)()
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (OSError, ValueError, RecursionError) as failure:
        reason = failure.strerror if isinstance(failure, OSError) else f"as TOML: {failure}"
        raise InvalidInput(OPERATION, f"{path} cannot be read: {reason}") from None


def _keep_out(names: Iterable[str], path: object) -> None:
    """Refuses what a project file may not set."""
    for name in sorted(_NEVER_OF_A_PROJECT.intersection(names)):
        besides = f", by {ENV_NAMES[name]}, or as an argument" if name in ENV_NAMES else ""
        raise InvalidInput(
            OPERATION,
            f"{name} in {path} is not read, because a project may come from somebody else; set it "
            f"in your own settings file{besides}",
        )


def _from_file(model: type[Model], path: Path, document: dict[str, Any]) -> Model:
    """The settings of `model` in a file. Of the other model the keys are checked, not the values:
    a bad value in a herd's policy does not keep anybody from finding the fleet."""
    document.pop(_RUNNERS, None)
    herd, ours = document.pop(_TABLE, {}), {}
    for name in NotifySettings.model_fields.keys() & document.keys():
        ours[name] = document.pop(name)
    tables: dict[type[SettingsModel], tuple[Any, Where]] = {
        HerdSettings: (herd, lambda name: f"{name} in [{_TABLE}] of {path}"),
        ConnectionSettings: (document, lambda name: f"{name} in {path}"),
        NotifySettings: (ours, lambda name: f"{name} in {path}"),
    }
    for other, (table, where) in tables.items():
        known = other.model_fields if isinstance(table, dict) else {}
        other.model_validate(
            {key: None for key in table if key not in known} if known else table, context=where
        )
    table, where = tables[model]
    return model.model_validate(table, context=where)


def _from_environment(model: type[Model], environ: Mapping[str, str]) -> Model:
    """The settings of `model` in the environment; a misspelt variable is refused."""
    words = {variable.removeprefix(_PREFIX): variable for variable in ENV_NAMES.values()}
    for variable in sorted(environ):
        name = variable.removeprefix(_PREFIX)
        if name not in (variable, *words) and get_close_matches(name[:64], words, 1, _ALIKE):
            raise unknown_setting(shown(variable), name, words)
    source = EnvSettingsSource(_Layered, case_sensitive=False)
    source.env_vars = {variable.lower(): text for variable, text in environ.items() if text}
    values = {name: text for name, text in source().items() if name in model.model_fields}
    return model.model_validate(values, context=ENV_NAMES.__getitem__)


def write_setting(
    layer: FileLayer, name: str, value: object, *, cwd: Folder = None, environ: Environ = None
) -> Path:
    """Writes one setting to a settings file and returns its path; nothing else in it changes.

    `value` is as in a file (`"10m"`, `90`, `"off"`) or typed (`timedelta`), and is checked first.
    The file is replaced in one step, so that a reader sees the old or the new one; comments stay.
    A project without a file gets one in `cwd`. Other values in the file are not judged, so that
    a broken one can be mended. A file that cannot be parsed or written raises `InvalidInput`.
    """
    plain_value = plain(parse_setting(name, value))
    path, document = _open_to_write(layer, cwd, environ)
    if layer == "project":
        _keep_out([name], path)
    table = document.setdefault(_TABLE, {}) if model_of(name) is HerdSettings else document
    if not isinstance(table, MutableMapping):
        raise InvalidInput(OPERATION, f"{_TABLE} in {path} must be a table: [{_TABLE}]")
    table[name] = plain_value
    return _replace(path, document, 0o600 if layer == "user" else 0o644)


def unset_setting(
    layer: FileLayer, name: str, *, cwd: Folder = None, environ: Environ = None
) -> Path | None:
    """Removes one setting from a settings file and returns its path; None if it is not there.

    An unknown name may be removed where a file has it, which mends that file; else it is refused.
    """
    path, document = _open_to_write(layer, cwd, environ)
    for table in (document.get(_TABLE), document):
        if isinstance(table, MutableMapping) and name in table and name not in (_TABLE, _RUNNERS):
            del table[name]
            return _replace(path, document, 0o600)
    model_of(name)
    return None


def _open_to_write(layer: FileLayer, cwd: Folder, environ: Environ) -> tuple[Path, TOMLDocument]:
    """The path of a layer's file, and the file with its comments, or an empty document."""
    import tomlkit  # here, because most processes only read settings

    if layer not in ("user", "project"):
        raise InvalidInput(OPERATION, f"layer {shown(layer)} is no file; use 'user' or 'project'")
    found = user_file(environ) if layer == "user" else project_file(cwd, environ)
    path = found or Path(cwd or "", PROJECT_FILE)
    return path, tomlkit.document() if _read(path) is None else tomlkit.parse(path.read_bytes())


def _replace(path: Path, document: TOMLDocument, mode: int) -> Path:
    """Replaces the file in one step and returns its path; an old one keeps its own mode."""
    temporary = None
    try:
        target = path.resolve()  # a link into a folder of dotfiles stays a link
        target.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        with NamedTemporaryFile(dir=target.parent, prefix=".tocsin-", delete=False) as file:
            temporary = Path(file.name)
            file.write(document.as_string().encode())
        temporary.chmod(target.stat().st_mode & 0o777 if target.exists() else mode)
        temporary.replace(target)
        return path.absolute()
    except OSError as failure:
        if temporary is not None:
            temporary.unlink(missing_ok=True)
        raise InvalidInput(OPERATION, f"{path} cannot be written: {failure.strerror}") from None
