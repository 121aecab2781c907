"""`make test-hosts`: pi and OpenCode, real hosts, join by `tocsin connect` and are woken 100 times.

They run as their users run them, from npm; only their model is a script on loopback, and nothing
else is within their reach. Needs npm; Node itself comes as a package. What it installs is in
`.node/hosts`.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from types import ModuleType
from typing import Any

from tests.hosts import opencode, pi
from tests.hosts.model import Model, serving
from tests.hosts.story import Agent, follow_up, task, until, wakes
from tests.node import install
from tocsin.broker import Broker, Parent
from tocsin.broker.embedded import EmbeddedServer

HERE = Path(__file__).resolve().parent
FOLDER = HERE.parents[1] / ".node/hosts"
TOCSIN = str(Path(sys.executable).with_name("tocsin"))

WAKES = int(os.environ.get("WAKES", "100"))

HOSTS = {"pi": (pi, pi.Pi), "opencode": (opencode, opencode.OpenCode)}


def environment(home: Path, url: str) -> dict[str, str]:
    """All that a host is given: a proxy that lets nothing through stands for the network."""
    return {
        "PATH": f"{FOLDER / 'node_modules/.bin'}:/usr/bin:/bin",
        "HOME": str(home),
        "HTTP_PROXY": url,
        "HTTPS_PROXY": url,
        "NO_PROXY": "127.0.0.1,localhost",
        **pi.VARIABLES,
        **opencode.VARIABLES,
    }


def tocsin(home: Path, server: str, *words: str) -> Any:
    """A command as a person types it."""
    env = environment(home, "http://127.0.0.1:9") | {"TOCSIN_URL": server, "TOCSIN_FLEET": "hosts"}
    done = subprocess.run(
        [TOCSIN, *words, "--json"], env=env, cwd=home, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, f"{words}: {done.stdout}{done.stderr}"
    return json.loads(done.stdout)


def connected(name: str, home: Path, server: str) -> None:
    """The host is set up for the seat by the command for that, which tries it."""
    seat = ("--scope", "user", "--seat", "release-42/scout")
    for check in tocsin(home, server, "connect", name, *seat)["checks"]:
        print(f"{name}: {check['what']}: {check['told']}")
        assert check["ok"], check


def story(name: str, settings: ModuleType, start: Any) -> None:
    """The whole story of one host."""
    with (
        EmbeddedServer(durable=False) as server,
        tempfile.TemporaryDirectory(prefix="tocsin-hosts-") as folder,
    ):
        home = Path(folder)
        gate = home / "gate"
        model = Model(Agent(gate, settings.PREFIX))
        tocsin(home, server.url, "herd", "open", "release-42")
        tocsin(home, server.url, "agent", "register", "scout")
        with serving(model) as url, Broker.connect(server.url, fleet="hosts") as broker:
            settings.set_up(FOLDER, home, url)
            connected(name, home, server.url)
            seats = json.loads(next(home.rglob("seats.json")).read_text())["places"][0]["seats"]
            parent = broker.join("release-42", "parent", seats["release-42/parent"]["token"])
            assert isinstance(parent, Parent)
            host = start(environment(home, url), home)
            try:
                until(lambda: any(each.sessions for each in parent.roster()), "its session", host)
                took = wakes(parent, model, host, WAKES)
                print(
                    f"{name}: {len(took)} wakes, none lost, median "
                    f"{statistics.median(took) * 1000:.0f} ms, longest {max(took) * 1000:.0f} ms"
                )
                follow_up(parent, host, gate)
                print(f"{name}: what came while it was busy was taken up in the same run")
                print(f"{name}: asked, was answered, finished: {task(parent, host)}")
                [scout] = [each for each in parent.roster() if each.agent == "scout"]
                assert scout.wake_path == settings.PATH, scout
            finally:
                host.close()
            until(lambda: not any(each.sessions for each in parent.roster()), "its end")
            assert not model.failures, model.failures
            assert not model.strangers, f"it looked for a network: {model.strangers}"
            assert not parent.dead_letters()


def main() -> None:
    """All hosts, or those that are named."""
    install(HERE / "package.json", FOLDER)
    for name in sys.argv[1:] or HOSTS:
        story(name, *HOSTS[name])


if __name__ == "__main__":
    main()
