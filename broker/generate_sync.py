"""Writes the sync client from the async one, so that the two can never drift apart.

Every `_async/*.py` below `ROOTS` becomes a `_sync/*.py` beside it. Run by `make generate`; with
`--check` nothing is written, and files that are not current are named (exit code 1).

Names come first, in code and text alike: `NAMES`, then every other `AsyncX` as `X`. Then
`async` and `await` go (unasync for the code, `PROSE` for docstrings and comments), and ruff sorts
imports, drops those left unused and formats.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
from pathlib import Path

import unasync

HERE = Path(__file__).resolve().parent
PROJECT = HERE.parent
ROOTS = (HERE / "tocsin/broker", PROJECT / "scheduler/tocsin/scheduler")

# Whole names, wherever they stand. `AsyncX` needs no line: it loses its prefix.
NAMES = {
    "_async": "_sync",
    "connect_async": "connect",
    "__aenter__": "__enter__",
    "__aexit__": "__exit__",
    "__aiter__": "__iter__",
    "__anext__": "__next__",
    "aclose": "close",
    "aclosing": "closing",
    "in_thread": "at_once",
    "undisturbed": "uninterrupted",
    "together": "in_threads",
    "aiter": "iter",
    "anext": "next",
    "AbstractAsyncContextManager": "AbstractContextManager",
    "asynccontextmanager": "contextmanager",
    "enter_async_context": "enter_context",
    "push_async_callback": "callback",
    "StopAsyncIteration": "StopIteration",
}

# Longer pieces of code, in this order.
PHRASES = {
    "redis.asyncio": "redis",
    "import asyncio": "import threading\nimport time",
    "asyncio.sleep(": "time.sleep(",
    "asyncio.Lock(": "threading.Lock(",
    "asyncio.Event(": "threading.Event(",
}

# Ways of speaking, in docstrings and comments.
PROSE = {
    r"\basync (?=(?:with|for|def)\b)": "",
    r"\bawait (?=[\w(\[])": "",
    r"\b([Aa])n async\b": r"\1 sync",
    r"\b([Aa])n asynchronous\b": r"\1 synchronous",
    r"\basync (?=client|iterator|generator|context|twin|function|face|surface|code)": "sync ",
    r"\basynchronous\b": "synchronous",
    r"\bAsynchronous\b": "Synchronous",
    r"\b[Cc]oroutine function\b": "function",
}

# Types that say "awaited": their last argument is what is left of them.
AWAITED = re.compile(r"\b(?:Awaitable|Coroutine)\[")

HEADER = "# Generated from _async/{name} by `make generate`; edit that file.\n\n"
# Import order, imports and type-checking blocks left without use.
RUFF_FIX = ("check", "--quiet", "--fix", "--select", "I,F401,TC005")


def rename(source: str) -> str:
    """Return `source` with all async names and phrases replaced, `async`/`await` untouched."""
    for old, new in PHRASES.items():
        source = re.sub(rf"\b{re.escape(old)}", new, source)
    for old, new in NAMES.items():
        source = re.sub(rf"(?<!\w){re.escape(old)}(?!\w)", new, source)
    source = re.sub(r"\bAsync(?=[A-Z])", "", source)
    return unwrap_awaited(source)


def unwrap_awaited(source: str) -> str:
    """Return `source` with `Awaitable[X]` as `X` and `Coroutine[A, B, X]` as `X`."""
    while found := AWAITED.search(source):
        depth, start = 0, found.end()
        for at in range(found.end(), len(source)):
            char = source[at]
            if char == "," and depth == 0 and found.group().startswith("Coroutine"):
                start = at + 1
            elif char in "[(":
                depth += 1
            elif char in "])" and depth:
                depth -= 1
            elif char == "]":
                inner = source[start:at].strip().rstrip(",")
                source = source[: found.start()] + inner + source[at + 1 :]
                break
        else:
            raise ValueError(f"unclosed {found.group()!r}")
    return source


def respeak(source: str) -> str:
    """Return `source` with what docstrings and comments say of async said of sync."""
    for pattern, new in PROSE.items():
        source = re.sub(pattern, new, source)
    return source


def ruff(*arguments: str, source: str, path: Path) -> str:
    """Return what ruff makes of `source`, taken as the content of `path`."""
    command = [sys.executable, "-m", "ruff", *arguments, "--stdin-filename", str(path), "-"]
    done = subprocess.run(
        command, input=source, capture_output=True, text=True, cwd=PROJECT, check=False
    )
    if done.returncode and not done.stdout:
        raise RuntimeError(f"ruff {arguments[0]} failed on {path}:\n{done.stderr}")
    return done.stdout


def generate(source_path: Path, target_path: Path) -> str:
    """Return the sync twin of `source_path` as it belongs into `target_path`."""
    with tempfile.TemporaryDirectory() as scratch:
        staged = Path(scratch, "_async", source_path.name)
        staged.parent.mkdir()
        staged.write_text(rename(source_path.read_text("utf-8")), "utf-8")
        unasync.unasync_files([str(staged)], [unasync.Rule("/_async/", "/_sync/")])
        text = Path(scratch, "_sync", source_path.name).read_text("utf-8")
    text = HEADER.format(name=source_path.name) + respeak(text)
    text = ruff(*RUFF_FIX, source=text, path=target_path)
    return ruff("format", "--quiet", source=text, path=target_path)


def plan() -> dict[Path, str | None]:
    """Return the content each `_sync` file must have; None where a file must not exist."""
    wanted: dict[Path, str | None] = {}
    for root in ROOTS:
        for leftover in (root / "_sync").glob("*.py"):
            wanted[leftover] = None
        for source_path in sorted((root / "_async").glob("*.py")):
            target_path = root / "_sync" / source_path.name
            wanted[target_path] = generate(source_path, target_path)
    return wanted


def main(arguments: list[str]) -> int:
    """Write the sync client, or with `--check` compare it. Return the exit code."""
    if unknown := set(arguments) - {"--check"}:
        print(f"unknown option {' '.join(sorted(unknown))}; there is only --check", file=sys.stderr)
        return 2
    stale = 0
    for path, text in plan().items():
        current = path.read_text("utf-8") if path.exists() else None
        if current == text:
            continue
        stale += 1
        shown = path.relative_to(PROJECT)
        if "--check" in arguments:
            print(f"{shown} is not current: run `make generate`", file=sys.stderr)
        elif text is None:
            path.unlink()
            print(f"removed {shown}")
        else:
            path.parent.mkdir(exist_ok=True)
            path.write_text(text, "utf-8")
            print(f"wrote {shown}")
    return 1 if stale and "--check" in arguments else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
