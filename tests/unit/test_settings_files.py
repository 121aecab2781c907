"""The layers of settings: which one wins, what each refuses, how the files are written."""

from __future__ import annotations

import os
import re
from datetime import timedelta
from itertools import count
from pathlib import Path

import pytest

from tocsin.broker.errors import InvalidInput
from tocsin.broker.runners import CommandRunner
from tocsin.broker.settings import ConnectionSettings, HerdSettings, NotifySettings
from tocsin.broker.settings_files import (
    project_file,
    resolve,
    resolve_connection,
    resolve_notify,
    resolve_runner,
    unset_setting,
    user_file,
    write_setting,
)


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home of its own with a project in it, which is the working directory."""
    for variable in [name for name in os.environ if name.startswith(("TOCSIN_", "XDG_"))]:
        monkeypatch.delenv(variable)
    folder = tmp_path / "home"
    (folder / "project" / ".git").mkdir(parents=True)
    monkeypatch.setenv("HOME", str(folder))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(folder / "config"))
    monkeypatch.chdir(folder / "project")
    return folder


@pytest.fixture
def user(home: Path) -> Path:
    """The user file, in a folder that is there."""
    path = home / "config" / "tocsin" / "config.toml"
    path.parent.mkdir(parents=True)
    return path


@pytest.fixture
def project(home: Path) -> Path:
    """The project file."""
    return home / "project" / "tocsin.toml"


def refused(**where: object) -> str:
    """The detail of the refusal to resolve."""
    with pytest.raises(InvalidInput) as caught:
        resolve(**where)  # type: ignore[arg-type]
    assert caught.value.__cause__ is None
    assert len(caught.value.detail) < 600
    return caught.value.detail


# ------------------------------------------------------------------------ who wins


def test_without_any_layer_all_is_default():
    """Nothing set anywhere gives the defaults, and says so."""
    resolved = resolve()
    assert resolved.settings == HerdSettings()
    assert list(resolved.sources) == list(HerdSettings.model_fields)
    assert {resolved.origin(name) for name in resolved.sources} == {"default"}
    assert dict(resolved.files) == {}
    with pytest.raises(TypeError):
        resolved.sources["lease"] = "user"  # type: ignore[index]


def test_each_layer_beats_the_ones_below(user, project, monkeypatch):
    """Defaults < user file < project file < environment < argument, each read when asked."""
    user.write_text("[herd]\nlabel_limit = 1\nbody_limit = 1\ninbox_limit = 1\nmax_attempts = 1\n")
    project.write_text("[herd]\nbody_limit = 2\ninbox_limit = 2\nmax_attempts = 2\n")
    monkeypatch.setenv("TOCSIN_INBOX_LIMIT", "3")
    monkeypatch.setenv("TOCSIN_MAX_ATTEMPTS", "3")

    resolved = resolve(HerdSettings(max_attempts=5))

    found = {
        name: (getattr(resolved.settings, name), resolved.origin(name)) for name in resolved.sources
    }
    assert found["journal_limit"] == (10_000, "default")
    assert found["label_limit"] == (1, f"user file {user}")
    assert found["body_limit"] == (2, f"project file {project}")
    assert found["inbox_limit"] == (3, "TOCSIN_INBOX_LIMIT")
    assert found["max_attempts"] == (5, "argument")  # given with its default: an opinion
    assert dict(resolved.files) == {"user": user, "project": project}
    assert resolve(HerdSettings(inbox_limit=9)).settings.max_attempts == 3


def test_layers_given_by_the_caller(home, project):
    """`cwd` and `environ` stand in for those of the process."""
    project.write_text("[herd]\nlease = 1\n")
    environ = {"TOCSIN_GRACE": "2s", "XDG_CONFIG_HOME": str(home), "HOME": str(home)}
    resolved = resolve(cwd=home, environ=environ)
    assert resolved.settings == HerdSettings(grace=timedelta(seconds=2))


def test_zero_is_a_value(project):
    """A threshold of 0 turns reminders off in its layer; an empty variable is 'unset'."""
    project.write_text("[herd]\nstale_wait_threshold = 0\n")
    resolved = resolve(environ={**os.environ, "TOCSIN_STALE_WAIT_THRESHOLD": ""})
    assert resolved.settings.reminders_off
    assert resolved.sources["stale_wait_threshold"] == "project"


def test_connection_layers(user, project, monkeypatch):
    """Where the fleet is comes from the same files, at their top level."""
    assert resolve_connection().settings == ConnectionSettings()
    user.write_text('url = "redis://u/0"\nfleet = "mine"\n[herd]\nlease = "1m"\n')
    project.write_text('fleet = "ours"\n')
    resolved = resolve_connection()
    assert (resolved.settings.url, resolved.settings.fleet) == ("redis://u/0", "ours")
    origins = {"url": "user", "fleet": "project", "rq_url": "default", "partitions": "default"}
    assert resolved.sources == origins
    monkeypatch.setenv("TOCSIN_FLEET", "theirs")
    assert resolve_connection().settings.fleet == "theirs"
    assert resolve_connection(ConnectionSettings(fleet="given")).settings.fleet == "given"
    assert resolve().settings.lease == timedelta(minutes=1)


def test_partitions_come_from_the_layers_or_are_none(user, monkeypatch):
    """A number of partitions is a whole one within bounds, in files and variables; else none."""
    assert resolve_connection().settings.partitions is None
    user.write_text("partitions = 64\n")
    assert resolve_connection().settings.partitions == 64
    monkeypatch.setenv("TOCSIN_PARTITIONS", "8")
    assert resolve_connection().settings.partitions == 8
    for wrong in ("0", "1025", "2.5", "many"):
        monkeypatch.setenv("TOCSIN_PARTITIONS", wrong)
        with pytest.raises(InvalidInput) as refusal:
            resolve_connection()
        assert f"TOCSIN_PARTITIONS is '{wrong}'" in refusal.value.detail
        assert "a whole number from 1 to 1024" in refusal.value.detail


def test_the_argument_must_be_settings():
    """What is no `HerdSettings` is refused by its type, a bad one (`model_copy`) by its value."""
    for given in ({"lease": 1}, "x", ConnectionSettings(), HerdSettings):
        assert refused(given=given).startswith("settings must be HerdSettings, not ")
    copy = HerdSettings().model_copy(update={"max_attempts": -1})
    assert refused(given=copy).startswith("max_attempts is -1")


# ------------------------------------------------------------------------ finding the files


def test_user_file_follows_the_given_environment(tmp_path, home, monkeypatch):
    """`XDG_CONFIG_HOME` decides; a relative or absent one leaves it to the platform."""
    assert user_file({"XDG_CONFIG_HOME": str(tmp_path)}) == tmp_path / "tocsin" / "config.toml"
    monkeypatch.delenv("XDG_CONFIG_HOME")
    for environ in ({}, {"XDG_CONFIG_HOME": ""}, {"XDG_CONFIG_HOME": "relative"}):
        assert user_file(environ).is_relative_to(home)
        assert user_file(environ).name == "config.toml"


def test_the_nearest_project_file_is_found(home, project, tmp_path):
    """The search goes up from the working directory and ends with a repository or the home."""
    inner = home / "project" / "a" / "b"
    inner.mkdir(parents=True)
    (home / "tocsin.toml").touch()
    (tmp_path / "tocsin.toml").touch()
    assert project_file(inner) is None
    project.touch()
    assert project_file(inner) == project
    (inner.parent / "tocsin.toml").touch()
    assert project_file(str(inner)) == inner.parent / "tocsin.toml"
    (home / "worktree").mkdir()
    assert project_file(home / "worktree") == home / "tocsin.toml"
    (home / "worktree" / ".git").write_text("gitdir: elsewhere")
    assert project_file(home / "worktree") is None
    (home / "tocsin.toml").unlink()
    (home / "plain").mkdir()
    (tmp_path / "link").symlink_to(home)
    assert project_file(home / "plain", {"HOME": str(tmp_path / "link")}) is None
    assert project_file(home / "plain", {"HOME": "/nowhere"}) == tmp_path / "tocsin.toml"


def test_a_removed_working_directory_has_no_project(home, monkeypatch):
    """A process whose working directory is gone still resolves its other layers."""
    gone = home / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    assert resolve().settings == HerdSettings()
    with pytest.raises(InvalidInput, match=r"tocsin.toml cannot be written: No such file"):
        write_setting("project", "lease", "1m")


# ------------------------------------------------------------------------ values from outside


def test_values_in_text(project, monkeypatch):
    """In text a duration is seconds or has units, a threshold is minutes or `off`."""
    project.write_text(
        '[herd]\nreply_timeout = 90\nlease = 0.5\ngrace = "1h30m"\naway_after = "9"\n'
    )
    found = [getattr(resolve().settings, name) for name in ("reply_timeout", "lease", "grace")]
    assert [each.total_seconds() for each in found] == [90, 0.5, 5400]
    assert resolve().settings.away_after == timedelta(seconds=9)
    for text, minutes in {"off": 0, "0": 0, "-1": -1, "2.5": 2.5, "30": 30}.items():
        project.write_text(f'[herd]\nstale_wait_threshold = "{text}"\n')
        assert resolve().settings.stale_wait_threshold == minutes
        monkeypatch.setenv("TOCSIN_STALE_WAIT_THRESHOLD", text)
        assert resolve(cwd="/").settings.stale_wait_threshold == minutes
        monkeypatch.delenv("TOCSIN_STALE_WAIT_THRESHOLD")


BAD = """
reply_timeout = true
reply_timeout = nan
reply_timeout = -5
reply_timeout = "soon"
reply_timeout = "10 minutes"  # 10m
reply_timeout = "\u0665m"
reply_timeout = [1]
reply_timeout = { minutes = 1 }
reply_timeout = 2026-01-01
lease = 0  # 100ms
herd_retention = "400d"  # 366d
stale_wait_threshold = true
stale_wait_threshold = nan
stale_wait_threshold = -inf
stale_wait_threshold = 1e9  # 527040
stale_wait_threshold = "Off"
stale_wait_threshold = "5 "
stale_wait_threshold = "5m"
max_attempts = true
max_attempts = 2.5
max_attempts = 0  # 1
max_attempts = -7  # 1
max_attempts = 99999999999999999999  # 1000
max_attempts = "2000"  # 1000
inbox_limit = "2_000"
inbox_limit = "\u0663"
"""


@pytest.mark.parametrize(
    "line", [*BAD.split("\n")[1:-1], f'lease = "{"9" * 5000}"  # 366d'], ids=count()
)
def test_bad_values_in_files(project, line):
    """A bad value is refused with file, key, rule, and the nearest right value if there is one."""
    project.write_text(f"[herd]\n{line}\n")
    detail = refused()
    assert detail.startswith(f"{line.partition(' =')[0]} in [herd] of {project} is ")
    assert re.search(r", but must be (a |seconds)", detail)
    nearest = line.partition("# ")[2]
    assert detail.partition("; did you mean ")[2] == (f"{nearest}?" if nearest else "")


IN_VARIABLES = [("REPLY_TIMEOUT", text) for text in ("soon", "-1", "\udcff", "5 days", "P1D")]
IN_VARIABLES += [("STALE_WAIT_THRESHOLD", text) for text in ("nan", "True", "null")]
IN_VARIABLES += [("MAX_ATTEMPTS", text) for text in ("1.0", "\u0663", "9" * 5000, "1_0", " 1")]


@pytest.mark.parametrize(("name", "text"), IN_VARIABLES, ids=count())
def test_bad_values_in_the_environment(monkeypatch, name, text):
    """A bad value is refused with its variable, even where an argument would beat it."""
    monkeypatch.setenv(f"TOCSIN_{name}", text)
    given = HerdSettings(reply_timeout=timedelta(1), stale_wait_threshold=1, max_attempts=1)
    assert refused(given=given).startswith(f"TOCSIN_{name} is ")


def test_a_bad_value_below_a_good_one_is_still_refused(user, project):
    """A broken user file is told at once, not on the day the project file goes; but not to those
    who only look for the fleet."""
    user.write_text("[herd]\nlease = false\n")
    project.write_text("[herd]\nlease = 30\n")
    assert f"lease in [herd] of {user} is False" in refused()
    assert resolve_connection().settings == ConnectionSettings()


def test_a_bad_url_hides_its_password(project, monkeypatch):
    """A refused url is shown without its password wherever it came from."""
    url = "reds://ann:hunter2@h/0"
    project.write_text(f'url = "{url}"\n')
    for place in (f"url in {project}", "TOCSIN_URL"):
        with pytest.raises(InvalidInput) as caught:
            resolve_connection()
        assert caught.value.detail.startswith(f"{place} is 'reds://ann:***@h/0', but must be a url")
        project.unlink(missing_ok=True)
        monkeypatch.setenv("TOCSIN_URL", url)


# ------------------------------------------------------------------------ unknown names

ABOVE = "unknown setting {} in {{path}}; did you mean {}?"
INSIDE = "unknown setting {} in [herd] of {{path}}; did you mean {}?"
UNKNOWN = [
    ("[herd]\nreply_timout = 5", INSIDE.format("'reply_timout'", "reply_timeout in [herd]")),
    ('[herd]\nurl = "redis://h"', INSIDE.format("'url'", "url at the top level")),
    ("reply_timout = 5", ABOVE.format("'reply_timout'", "reply_timeout in [herd]")),
    ("lease = 5", ABOVE.format("'lease'", "lease in [herd]")),
    ("[hird]", ABOVE.format("'hird'", "[herd]")),
    ('flete = "x"', ABOVE.format("'flete'", "fleet at the top level")),
    ("[zzz]", "unknown setting 'zzz' in {path}; known are url at the top level, fleet"),
    ("herd = 5", "HerdSettings in [herd] of {path} cannot be made from 5"),
    ("[[herd]]\nlease = 5", "HerdSettings in [herd] of {path} cannot be made from a list"),
]


@pytest.mark.parametrize(("content", "detail"), UNKNOWN)
def test_unknown_keys(project, content, detail):
    """An unknown or misplaced key is refused with file, key and the nearest right one."""
    project.write_text(content)
    with pytest.raises(InvalidInput) as caught:
        resolve_connection()
    assert caught.value.detail.startswith(detail.format(path=project))
    with pytest.raises(InvalidInput, match=re.escape(caught.value.detail)):
        resolve()


OTHERS = "SEAT HERD AGENT TOKEN DIR RQ_URL TASK LOG LOG_FORMAT LOG_LEVEL DATA "
OTHERS += "PORT HOST SERVER DEBUG SPEED"
MISSPELT = {"REPLY_TIMOUT": "REPLY_TIMEOUT", "STALE_WAIT_TRESHOLD": "STALE_WAIT_THRESHOLD"}
MISSPELT |= {"MAX_TASKS": "MAX_OPEN_TASKS", "URLS": "URL", "FLEAT": "FLEET"}


def test_misspelt_variables(monkeypatch):
    """A variable that is nearly a setting's is refused; those of other parts are left alone."""
    for name in (*OTHERS.split(), ""):
        monkeypatch.setenv(f"TOCSIN_{name}", "whatever")
    assert resolve().settings == HerdSettings()
    for wrong, right in MISSPELT.items():
        said = f"unknown setting 'TOCSIN_{wrong}'; did you mean TOCSIN_{right}?"
        monkeypatch.setenv(f"TOCSIN_{wrong}", "5")
        assert refused() == said
        with pytest.raises(InvalidInput, match=re.escape(said)):
            resolve_connection()
        monkeypatch.delenv(f"TOCSIN_{wrong}")


# ------------------------------------------------------------------------ broken files

BROKEN = [b"[herd\n", b"lease = \n", b"[herd]\nlease = 1\nlease = 2\n", b"[herd]\nlease = '\xff'\n"]
BROKEN += [b"[herd]\nmax_attempts = " + b"9" * 5000, b"x = " + b"[" * 100_000]


@pytest.mark.parametrize("content", BROKEN, ids=count())
def test_files_that_cannot_be_understood(user, content):
    """A broken file is refused by its path and the reason, in place of being passed over."""
    user.write_bytes(content)
    assert refused().startswith(f"{user} cannot be read: as TOML: ")
    user.unlink()
    user.mkdir()
    assert refused() == f"{user} cannot be read: Is a directory"


def test_files_without_opinions(project):
    """An empty file and one with comments only are fine."""
    for content in ("", "# nothing\n", "[herd]\n", "[herd]\r\n"):
        project.write_text(content, newline="")
        assert resolve().settings == HerdSettings()
        assert resolve().files == {"project": project}


# ------------------------------------------------------------------------ writing


def test_written_settings_are_read_back(home, project):
    """What was written is what the next call resolves, from the layer it was written to."""
    assert write_setting("user", "lease", "90s") == home / "config" / "tocsin" / "config.toml"
    write_setting("user", "url", "redis://h:1/0")
    assert write_setting("project", "stale_wait_threshold", "off") == project
    write_setting("project", "reply_timeout", timedelta(minutes=90))
    write_setting("project", "max_attempts", "3")
    inner = home / "project" / "inner"
    inner.mkdir()
    assert write_setting("project", "grace", 2.5, cwd=inner) == project  # not a new one below it
    resolved = resolve()
    assert resolved.settings.lease == timedelta(seconds=90)
    assert resolved.sources["lease"] == "user"
    assert resolve_connection().settings.url == "redis://h:1/0"
    assert project.read_text() == (
        '[herd]\nstale_wait_threshold = 0\nreply_timeout = "1h30m"\nmax_attempts = 3\n'
        'grace = "2s500ms"\n'
    )


BEFORE = """\
# Our fleet.
fleet = "ours"  # shared

[herd]
# Builds are slow here.
reply_timeout = "40m"  # was 20m
max_attempts = 2
"""


def test_comments_stay(project):
    """Writing changes one value; comments, order and other values stay as they were."""
    project.write_text(BEFORE)
    write_setting("project", "reply_timeout", "1h")
    assert project.read_text() == BEFORE.replace('"40m"', '"1h"')
    write_setting("project", "url", "redis://h")
    assert resolve_connection().settings.url == "redis://h"
    assert resolve().settings.max_attempts == 2
    assert unset_setting("project", "url") == project
    assert unset_setting("project", "max_attempts") == project
    assert "# Builds are slow here." in project.read_text()
    assert resolve().sources["max_attempts"] == "default"


@pytest.mark.parametrize("content", ["herd.lease = 5\n", "herd = { lease = 5 }\n", "[herd]\r\n"])
def test_other_shapes_of_the_table(project, content):
    """Dotted keys, an inline table and foreign line ends are written in place."""
    project.write_bytes(content.encode())
    write_setting("project", "lease", "7s")
    write_setting("project", "grace", "8s")
    write_setting("project", "fleet", "acme")
    settings = resolve().settings
    assert (settings.lease, settings.grace) == (timedelta(seconds=7), timedelta(seconds=8))
    assert resolve_connection().settings.fleet == "acme"


def test_bad_writes_change_nothing(project):
    """A refused write names the rule, or a file that is none, and leaves the file as it was."""
    wrong: list[tuple[str, object, str]] = [
        ("leese", "5s", "unknown setting 'leese'; did you mean lease?"),
        ("lease", "0", "lease is '0', but must be"),
        ("lease", True, "lease is True, but must be"),
        ("max_attempts", timedelta(1), "max_attempts is datetime.timedelta"),
        ("fleet", "My Fleet", "fleet is 'My Fleet', but must be"),
    ]
    cases = [(BEFORE, *case) for case in wrong]
    cases += [(content, "lease", "1m", str(project)) for content in ("[herd", "herd = 5\n")]
    for content, name, value, detail in cases:
        project.write_text(content)
        with pytest.raises(InvalidInput, match=re.escape(detail)):
            write_setting("project", name, value)
        assert project.read_text() == content
    with pytest.raises(InvalidInput, match="layer 'default' is no file; use 'user' or 'project'"):
        write_setting("default", "lease", "5s")  # type: ignore[arg-type]


def test_a_broken_value_can_be_mended(project):
    """Writing judges only what it writes, so that one can mend a file that is refused."""
    project.write_text("[herd]\nlease = false\ngrce = 5\n")
    refused()
    write_setting("project", "lease", "1m")
    assert unset_setting("project", "grce") == project
    assert resolve().settings.lease == timedelta(minutes=1)


def test_unset_of_what_is_not_there(project, user):
    """Nothing to remove is no error and writes no file; an unknown name is one."""
    assert unset_setting("project", "lease") is None
    assert unset_setting("user", "url") is None
    assert not project.exists()
    project.write_text(BEFORE)
    for name in ("herd", "leese"):
        with pytest.raises(InvalidInput, match="unknown setting"):
            unset_setting("project", name)
    assert project.read_text() == BEFORE


def test_files_keep_their_mode_and_place(home, user):
    """A new user file may hold a password and is its owner's alone; an old one, or what a link to
    a folder of dotfiles points to, keeps its mode."""
    assert write_setting("user", "url", "redis://:pw@h").stat().st_mode & 0o777 == 0o600
    assert write_setting("project", "lease", "1m").stat().st_mode & 0o777 == 0o644
    real = user.rename(home / "dotfiles.toml")
    real.chmod(0o640)
    user.symlink_to(real)
    write_setting("user", "fleet", "acme")
    assert user.is_symlink()
    assert real.stat().st_mode & 0o777 == 0o640
    assert real.read_text() == 'url = "redis://:pw@h"\nfleet = "acme"\n'


def test_a_failed_write_leaves_the_old_file(project, monkeypatch):
    """When the file cannot be replaced the old one stays whole, and nothing is left beside it."""
    project.write_text(BEFORE)

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "replace", full)
    with pytest.raises(InvalidInput, match="cannot be written: No space left on device"):
        write_setting("project", "lease", "1m")
    assert project.read_text() == BEFORE
    assert {path.name for path in project.parent.iterdir()} == {".git", project.name}


# ------------------------------------------------------------------------ how a human is told


def test_layers_of_telling_a_human(user, project, monkeypatch):
    """The same layers, at the top level of the files."""
    assert resolve_notify().settings.target is None
    user.write_text(
        'notify_command = ["notify-send", "Tocsin"]\nnotify_preview = 10\nfleet = "f"\n'
    )
    project.write_text('notify_events = ["failed"]\nnotify_preview = 20\n')
    resolved = resolve_notify()
    assert resolved.settings.notify_command == ("notify-send", "Tocsin")
    assert (resolved.settings.notify_events, resolved.settings.notify_preview) == (("failed",), 20)
    monkeypatch.setenv("TOCSIN_NOTIFY_COMMAND", "other 'two words'")
    monkeypatch.setenv("TOCSIN_NOTIFY_PRIVATE", "true")
    monkeypatch.setenv("TOCSIN_NOTIFY_EVENTS", "blocked,failed")
    found = resolve_notify().settings
    assert found.notify_command == ("other", "two words")
    assert found.notify_private and found.notify_events == ("blocked", "failed")
    assert resolve_connection().settings.fleet == "f"
    assert resolve().settings == HerdSettings()


def test_the_stronger_of_command_and_url_counts(user, monkeypatch):
    """Two of one layer are refused."""
    user.write_text('notify_command = ["x"]\n')
    monkeypatch.setenv("TOCSIN_NOTIFY_URL", "https://hooks.example/x")
    found = resolve_notify()
    assert found.settings.target == "https://hooks.example/***"
    assert found.sources["notify_command"] == "default"
    given = resolve_notify(NotifySettings(notify_command=("y",)))
    assert given.settings.target == "command y"
    user.write_text('notify_command = ["x"]\nnotify_url = "https://hooks.example/x"\n')
    monkeypatch.delenv("TOCSIN_NOTIFY_URL")
    with pytest.raises(InvalidInput, match=r"both set \(user file .*unset one"):
        resolve_notify()


@pytest.mark.parametrize("line", ['notify_command = ["x"]', "notify_private = true"])
def test_a_project_says_not_what_is_run_or_reached(project, line):
    """It may come from somebody else, or be written by an agent."""
    project.write_text(f"{line}\n")
    with pytest.raises(InvalidInput, match="a project may come from somebody else"):
        resolve_notify()
    assert resolve_connection().settings == ConnectionSettings()
    name = line.partition(" ")[0]
    with pytest.raises(InvalidInput, match="a project may come from somebody else"):
        write_setting("project", name, "true")
    assert unset_setting("project", name) == project
    assert resolve_notify().settings.target is None


def test_runners_by_name_are_the_users_alone(user, project):
    """Each is a table of the user's file; other settings are read as if they were not there."""
    with pytest.raises(InvalidInput, match=r"no runner 'coder'; there are none yet.*config\.toml"):
        resolve_runner("coder")
    user.write_text(
        'fleet = "acme"\n[runners.coder]\ncommand = ["claude"]\nturn_timeout = "10m"\n'
        '[runners.broken]\ncommand = "claude"\n[runners]\nworse = 3\n'
    )
    runner = resolve_runner("coder", over={"queue": "gpu"})
    assert runner == CommandRunner(["claude"], turn_timeout=timedelta(minutes=10), queue="gpu")
    assert resolve_connection().settings.fleet == "acme" and resolve().files == {"user": user}
    for name in ("broken", "worse"):
        with pytest.raises(InvalidInput, match=rf"\[runners\.{name}\] of {user}"):
            resolve_runner(name, over={"queue": "gpu"})
    with pytest.raises(InvalidInput, match="there are 'broken', 'coder', 'worse'"):
        resolve_runner("code")
    write_setting("user", "fleet", "other")
    assert resolve_runner("coder") == CommandRunner(["claude"], turn_timeout=timedelta(minutes=10))
    project.write_text('[runners.coder]\ncommand = ["rm"]\n')
    with pytest.raises(InvalidInput, match="a project may come from somebody else"):
        resolve_runner("coder")
    assert resolve_connection().settings.fleet == "other"


def test_writing_how_a_human_is_told(user):
    """Lists and switches are written as TOML has them, at the top level."""
    write_setting("user", "notify_command", "notify-send Tocsin")
    write_setting("user", "notify_private", "true")
    write_setting("user", "notify_events", "failed")
    assert user.read_text() == (
        'notify_command = ["notify-send", "Tocsin"]\nnotify_private = true\n'
        'notify_events = ["failed"]\n'
    )
    assert resolve_notify().settings.notify_private
