"""Outlets: what a command and a webhook get, what they cannot do, and how each try ends."""

from __future__ import annotations

import asyncio
import json
import logging
import stat
import sys
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from tests.waiting import wait_until, wait_until_async
from tests.webhook import Webhook, webhook
from tests.workers.cli.long_running import gone
from tocsin.broker.alerts import redact
from tocsin.broker.settings import NotifySettings
from tocsin.scheduler import command
from tocsin.scheduler import webhook as posting
from tocsin.scheduler.outlets import AsyncOutlet, Outlet
from tocsin.scheduler.webhook import is_public

ALERT = {"id": "alert_1", "event": "failed", "text": "näh"}


@pytest.fixture
def hook() -> Iterator[Webhook]:
    with webhook() as hook:
        yield hook


async def tell(**settings: Any) -> str | None:
    """Why the alert was not told, or None."""
    [failure] = await AsyncOutlet(NotifySettings(**settings)).tell([ALERT])
    return failure


def program(folder: Path, source: str) -> tuple[str, ...]:
    """A command that runs this Python source."""
    path = folder / "told.py"
    path.write_text(f"#!{sys.executable}\n{source}")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return (str(path),)


# ------------------------------------------------------------------------ commands


async def test_a_command_gets_the_alert_and_no_shell_and_none_of_our_variables(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """JSON on its stdin, its words as they are, an environment without `TOCSIN_`."""
    monkeypatch.setenv("TOCSIN_TOKEN", "tok_hunter2")
    monkeypatch.setenv("tocsin_url", "redis://:hunter2@h/0")
    monkeypatch.setenv("OTHER", "kept")
    source = """
import json, os, sys
json.dump([json.load(sys.stdin), sys.argv[1:], dict(os.environ)], open(sys.argv[1], "w"))
"""
    words = (str(tmp_path / "said"), "$HOME; rm -rf *", "`id`")

    assert await tell(notify_command=(*program(tmp_path, source), *words)) is None

    alert, argv, environ = json.loads((tmp_path / "said").read_text())
    assert alert == ALERT and tuple(argv) == words
    assert environ["OTHER"] == "kept"
    assert "hunter2" not in json.dumps(environ)


async def test_a_command_that_does_not_read_what_it_is_told(tmp_path: Path) -> None:
    """Its exit code counts, and nothing else."""
    assert await tell(notify_command=program(tmp_path, "")) is None


async def test_a_command_that_fails_says_why(tmp_path: Path) -> None:
    """Its exit code and the beginning of its stderr are told, without secrets."""
    source = "import sys\nprint('no such channel, token=hunter2', file=sys.stderr)\nsys.exit(3)"
    failure = await tell(notify_command=program(tmp_path, source))
    assert failure is not None
    assert failure.endswith("told.py ended with 3: no such channel, token=***")


async def test_a_command_that_is_not_there() -> None:
    """That is a failed try like any other."""
    failure = await tell(notify_command=("/nowhere/at-all",))
    assert failure is not None and failure.startswith("/nowhere/at-all could not be started")


async def test_a_command_does_not_outlive_its_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """TERM, then KILL, to all of its group: also a child that hears no TERM."""
    monkeypatch.setattr(command, "TERM_GRACE", 0.1)
    source = f"""
import os, signal, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
child = os.fork()
with open({str(tmp_path / "pids")!r}, "a") as file:
    file.write(f"{{os.getpid()}} ")
time.sleep(600)
"""
    failure = await tell(
        notify_command=program(tmp_path, source), notify_timeout=timedelta(seconds=3)
    )
    assert failure is not None and failure.endswith("was not done in time and was ended")
    _ended(tmp_path, 2)


async def test_what_a_command_leaves_behind_is_ended_too(tmp_path: Path) -> None:
    """A command that is done leaves no process."""
    source = f"""
import os, time
child = os.fork()
if not child:
    time.sleep(600)
with open({str(tmp_path / "pids")!r}, "a") as file:
    file.write(f"{{child}} ")
"""
    assert await tell(notify_command=program(tmp_path, source)) is None
    _ended(tmp_path, 1)


async def test_a_command_is_ended_with_the_scheduler_that_ran_it(tmp_path: Path) -> None:
    """A try that is cancelled ends its command."""
    source = f"""
import os, time
with open({str(tmp_path / "pids")!r}, "a") as file:
    file.write(f"{{os.getpid()}} ")
time.sleep(600)
"""
    telling = asyncio.create_task(tell(notify_command=program(tmp_path, source)))
    pids = tmp_path / "pids"
    await wait_until_async(lambda: pids.exists() and pids.read_text(), "the command to run")
    telling.cancel()
    with pytest.raises(asyncio.CancelledError):
        await telling
    _ended(tmp_path, 1)


def _ended(folder: Path, count: int) -> None:
    pids = [int(pid) for pid in (folder / "pids").read_text().split()]
    assert len(pids) == count

    def dead(pid: int) -> bool:  # a zombie whose parent is gone waits for init
        stat_file = Path(f"/proc/{pid}/stat")
        return gone(pid) or (stat_file.exists() and " Z " in stat_file.read_text())

    wait_until(lambda: all(map(dead, pids)), f"processes {pids} to be gone")


def test_from_a_thread(tmp_path: Path) -> None:
    """The sync face runs commands as well."""
    good, bad = program(tmp_path, ""), ("/nowhere/at-all",)
    assert Outlet(NotifySettings(notify_command=good)).tell([ALERT, ALERT]) == [None, None]
    [failure] = Outlet(NotifySettings(notify_command=bad)).tell([ALERT])
    assert failure is not None


# ------------------------------------------------------------------------ webhooks


@pytest.mark.parametrize("status", [200, 204, 299])
async def test_a_webhook_that_takes_it(hook: Webhook, status: int) -> None:
    """2xx says that it arrived, whatever else the answer is."""
    hook.statuses = [status]
    assert await tell(notify_url=hook.url, notify_private=True) is None
    assert hook.alerts == [ALERT]


@pytest.mark.parametrize("status", [302, 307, 400, 404, 429, 500, 503])
async def test_a_webhook_that_does_not(hook: Webhook, status: int) -> None:
    """Anything else did not; a redirect is not followed; the secret in its path is not told."""
    hook.statuses = [status]
    failure = await tell(notify_url=hook.url, notify_private=True)
    assert failure == f"http://127.0.0.1:{hook.port}/*** answered {status}"
    assert len(hook.posts) == 1


async def test_a_webhook_that_is_not_there(hook: Webhook) -> None:
    """No connection, no such name: a failed try."""
    port, too_long = hook.port, f"https://{'a' * 70}/"
    for url in ("http://127.0.0.1:1/x", "http://no-such-name.invalid/x", too_long):
        failure = await tell(notify_url=url, notify_private=True)
        assert failure is not None and "could not be reached" in failure
    failure = await tell(notify_url=f"https://127.0.0.1:{port}/", notify_private=True)
    assert failure is not None and "could not be reached" in failure


async def test_a_user_and_password_of_the_url_are_sent_and_not_told(hook: Webhook) -> None:
    """They are the receiver's to check."""
    url = f"http://ann:hunter2@127.0.0.1:{hook.port}/x"
    assert await tell(notify_url=url, notify_private=True) is None
    assert hook.posts[0].headers["Authorization"].startswith("Basic ")
    hook.statuses = [401]
    failure = await tell(notify_url=url, notify_private=True)
    assert failure is not None and "hunter2" not in failure and "ann" not in failure


@pytest.mark.parametrize(
    "host", ["127.0.0.1", "localhost", "2130706433", "0x7f.1", "[::ffff:7f00:1]"]
)
async def test_a_private_address_is_refused_unless_allowed(hook: Webhook, host: str) -> None:
    """However it is written; nothing is sent there."""
    failure = await tell(notify_url=f"http://{host}:{hook.port}/")
    assert failure is not None and "private address" in failure and "notify_private" in failure
    assert hook.posts == []


async def test_a_name_that_changes_where_it_leads_gains_nothing(
    hook: Webhook, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The address that was checked is the one connected to: one look-up a try, under its name."""
    with webhook("127.0.0.2", hook.port) as meant:
        lookups: list[str] = []

        async def rebinding(_loop: object, host: str, port: int, **_: Any) -> list[Any]:
            lookups.append(host)
            address = "127.0.0.2" if len(lookups) == 1 else "127.0.0.1"
            return [(2, 1, 6, "", (address, port))]

        monkeypatch.setattr(type(asyncio.get_running_loop()), "getaddrinfo", rebinding)
        monkeypatch.setattr(posting, "is_public", lambda address: address == "127.0.0.2")
        url = f"http://hooks.example:{hook.port}/x"

        assert await tell(notify_url=url) is None
        assert [post.headers["Host"] for post in meant.posts] == [f"hooks.example:{hook.port}"]
        assert "127.0.0.1" in str(await tell(notify_url=url))
        assert len(meant.posts) == 1 and hook.posts == []
        assert lookups == ["hooks.example", "hooks.example"]


async def test_no_log_has_the_secrets_of_a_url(
    hook: Webhook, caplog: pytest.LogCaptureFixture
) -> None:
    """Not at any level, of whatever library."""
    caplog.set_level(logging.DEBUG)
    for status in (200, 500):
        hook.statuses = [status]
        url = f"http://ann:hunter2@127.0.0.1:{hook.port}/hunter2?k=hunter2"
        await tell(notify_url=url, notify_private=True)
    assert len(hook.posts) == 2
    assert "hunter2" not in caplog.text


async def test_proxies_of_the_environment_are_not_used(
    hook: Webhook, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A proxy would look the name up itself."""
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:1")
    assert await tell(notify_url=hook.url, notify_private=True) is None


@pytest.mark.parametrize(
    ("address", "public"),
    [
        ("93.184.216.34", True),
        ("2606:2800:220:1::1", True),
        ("127.0.0.1", False),
        ("10.1.2.3", False),
        ("100.64.0.1", False),
        ("169.254.169.254", False),
        ("0.0.0.0", False),
        ("224.0.0.1", False),
        ("255.255.255.255", False),
        ("::1", False),
        ("::", False),
        ("fe80::1%eth0", False),
        ("fc00::1", False),
        ("fec0::1", False),
        ("ff02::1", False),
        ("::ffff:10.0.0.1", False),
        ("::127.0.0.1", False),
        ("2002:7f00:1::", False),
        ("64:ff9b::10.0.0.1", False),
        ("64:ff9b::93.184.216.34", True),
    ],
)
def test_which_addresses_are_public(address: str, public: bool) -> None:
    """Loopback, link-local, private and reserved ones are not, in whatever clothes."""
    assert is_public(address) is public


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("token tok_abcDEF-123_x here", "token tok_*** here"),
        ("at https://u:hunter2@h/p?key=hunter2&db=1 now", "at https://u:***@h/p?key=***&db=1 now"),
        ("Authorization: Bearer abcdefghij", "Authorization: Bearer ***"),
        ('{"password": "hunter2"}', '{"password": ***}'),
        ('{"password": "hun ter2", "user": "u"}', '{"password": ***, "user": "u"}'),
        ("pwd=hunter2 passphrase: 'hun ter2'", "pwd=*** passphrase: ***"),
        ("with sk-proj-hunter2_x and ghp_hunter2", "with sk-*** and ghp_***"),
        ("a risk-free desk-top", "a risk-free desk-top"),
        ("SECRET_KEY=hunter2", "SECRET_KEY=***"),
        ("nothing here", "nothing here"),
    ],
)
def test_what_looks_like_a_secret_is_masked(text: str, told: str) -> None:
    """Tokens, passwords, secrets of urls; the rest stays readable."""
    assert redact(text) == told
