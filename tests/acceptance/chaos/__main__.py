"""`python -m tests.acceptance.chaos`: one run; see the README beside it."""

from __future__ import annotations

import argparse
import json
import random
import shutil
import sys
import tempfile
from pathlib import Path

from rich.console import Console

from tests.acceptance.chaos.driver import Driver
from tests.acceptance.chaos.grounds import GROUNDS
from tests.acceptance.chaos.proof import judge
from tests.acceptance.chaos.report import figures, show


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.acceptance.chaos", description=__doc__)
    parser.add_argument("--seconds", type=float, default=60.0, help="how long things break")
    parser.add_argument("--seed", type=int, help="what decides; one of its own if not given")
    parser.add_argument("--on", choices=GROUNDS, default="server", help="where the fleet is")
    parser.add_argument("--json", action="store_true", help="the figures for machines")
    parser.add_argument("--keep", type=Path, metavar="FOLDER", help="keep all logs there")
    given = parser.parse_args()
    seed = random.randrange(1_000_000) if given.seed is None else given.seed
    folder = given.keep or Path(tempfile.mkdtemp(prefix="tocsin-chaos-"))
    folder.mkdir(parents=True, exist_ok=True)
    console = Console(stderr=given.json)
    where = f"on a {given.on}, with seed {seed} for {given.seconds:g} s"
    console.print(f"chaos {where}, logs in {folder}")

    history = Driver(seed, given.seconds, folder.resolve(), given.on).run()
    (folder / "journal.json").write_text("\n".join(map(json.dumps, history.journal)), "utf-8")
    said = {"on": given.on} | figures(seed, given.seconds, history, judge(history))
    if given.json:
        sys.stdout.write(json.dumps(said, indent=1) + "\n")
    else:
        show(console, said)
    if not said["violations"] and given.keep is None:
        shutil.rmtree(folder)
    return 1 if said["violations"] else 0


if __name__ == "__main__":
    sys.exit(main())
