"""The documents are true: their generated parts are current, what they name is there."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest
import typer.main

from tests.architecture import generated
from tests.lua import sources
from tocsin.broker import errors
from tocsin.workers.cli.app import app

PROJECT = generated.PROJECT
ARCHITECTURE = (PROJECT / "ARCHITECTURE.md").read_text("utf-8")
README = (PROJECT / "README.md").read_text("utf-8")
DOCUMENTS = sorted(
    str(path.relative_to(PROJECT)) for path in [*PROJECT.glob("*.md"), *PROJECT.glob("docs/*.md")]
)


@pytest.mark.parametrize("path", generated.DOCUMENTS, ids=lambda path: path.name)
def test_the_generated_parts_are_current(path):
    """Otherwise: `make generate`."""
    text = path.read_text("utf-8")
    assert text == generated.current(text), f"{path.name} is not current: run `make generate`"


def test_every_part_stands_in_a_document():
    """No table is generated for nobody."""
    found = [name for text in (ARCHITECTURE, README) for name in generated.parts_of(text)]
    assert sorted(found) == sorted(generated.PARTS)


def test_the_timers_of_the_table_are_those_the_scripts_set():
    """Each with the number that orders it, and each with a duty that fires it."""
    names = [*sources.include_names()]
    code = "\n".join(sources.code_of(f"include/{name}") for name in names)
    code += sources.code_of("task_delegate")
    found = set(re.findall(r"\btimer\.set\('(\d:\w+)", code))
    told = {":".join(one.split(":")[:2]) for each in generated.TIMERS for one in each.split(", ")}
    assert told == found
    duties = set(re.findall(r"^  (\w+) = function", sources.code_of("herd_visit"), re.MULTILINE))
    assert {one.split(":")[1] for one in told} == duties
    comment = sources.text_of("include/timer")
    for each in told:
        assert each in comment, f"include/timer.lua does not explain {each}"


def test_every_invariant_names_tests_that_are_there():
    """`tests/...py::name` in ARCHITECTURE.md is a function of that file."""
    named = re.findall(r"`(tests/[\w/]+\.py)(?:::(\w+))?`", ARCHITECTURE)
    assert len(named) > 10
    for file, function in named:
        path = PROJECT / file
        assert path.is_file(), f"{file} is not there"
        if function:
            tree = ast.parse(path.read_text("utf-8"))
            names = {
                n.name
                for n in ast.walk(tree)
                if isinstance(n, ast.FunctionDef | ast.AsyncFunctionDef)
            }
            assert function in names, f"{file} has no {function}"


@pytest.mark.parametrize("name", DOCUMENTS)
def test_every_file_that_a_document_names_is_there(name):
    """Links, and code spans that look like a path of this repository."""
    text = (PROJECT / name).read_text("utf-8")
    for link in re.findall(r"\]\(([^)#:\s]+)(?:#[^)]*)?\)", text):
        assert ((PROJECT / name).parent / link).exists(), f"{name} links to {link}"
    roots = "broker|scheduler|workers|tests|benchmarks|examples|docs"
    for span in re.findall(rf"`((?:{roots})/[\w./-]*)`", text):
        assert (PROJECT / span).exists(), f"{name} names {span}"


def commands() -> set[str]:
    """Every command of the command line, with its group."""
    found = set()
    todo: list[tuple[tuple[str, ...], Any]] = [((), typer.main.get_command(app))]
    while todo:
        path, command = todo.pop()
        found.add(" ".join(path))
        todo += [((*path, name), sub) for name, sub in getattr(command, "commands", {}).items()]
    return found - {""}


@pytest.mark.parametrize("name", DOCUMENTS)
def test_every_command_that_a_document_names_is_there(name):
    """`tocsin herd open ...`, in code spans and code blocks."""
    text = (PROJECT / name).read_text("utf-8")
    known = commands()
    for line in re.findall(r"(?:`|^ *(?:\$ )?)tocsin ([a-z][a-z -]*)", text, re.MULTILINE):
        words = [word for word in line.split() if not word.startswith("-")]
        assert words[0] in known, f"{name}: there is no `tocsin {words[0]}`"
        if any(each.startswith(f"{words[0]} ") for each in known) and len(words) > 1:
            assert " ".join(words[:2]) in known, (
                f"{name}: there is no `tocsin {' '.join(words[:2])}`"
            )


def test_every_make_target_that_a_document_names_is_there():
    """`make demo` and the rest."""
    targets = set(
        re.findall(r"^([a-z]+):", (PROJECT / "Makefile").read_text("utf-8"), re.MULTILINE)
    )
    for name in DOCUMENTS:
        for target in re.findall(r"`make ([a-z]+)", (PROJECT / name).read_text("utf-8")):
            assert target in targets, f"{name}: there is no `make {target}`"


def blocks(text: str, language: str) -> list[str]:
    """The code blocks of a document in one language."""
    return re.findall(rf"```{language}\n(.*?)```", text, re.DOTALL)


def run(path: Path, url: str, *arguments: str) -> str:
    """What a program prints that is run as a person would, with the server's address."""
    done = subprocess.run(
        [sys.executable, str(path), url, *arguments],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        cwd=path.parent,
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    return done.stdout


def test_the_example_of_the_readme_runs_as_shown(tmp_path, url):
    """Twenty lines, run as a program of its own; it prints what the README says it prints."""
    [program] = blocks(README, "python")
    assert len([line for line in program.split("\n") if line.strip()]) <= 22
    assert "redis://127.0.0.1:6379/0" in program
    path = tmp_path / "example.py"
    path.write_text(program.replace("redis://127.0.0.1:6379/0", url), "utf-8")
    [said] = blocks(README, "text")[:1]
    assert run(path, url) == said


@pytest.mark.parametrize("path", sorted((PROJECT / "examples").glob("*.py")), ids=lambda p: p.name)
def test_an_example_runs(path, url, fleet_name):
    """With the server's address and a fleet of its own; its docstring shows what it prints."""
    said = run(path, url, fleet_name)
    docstring = ast.get_docstring(ast.parse(path.read_text("utf-8"))) or ""
    shown = textwrap.dedent(docstring.split("It prints:")[1])
    assert said.strip() == shown.strip()


def test_the_readme_names_every_exit_code_and_the_architecture_every_layer():
    """Few, and stable."""
    for code in ("0", "1", "2", "69"):
        assert re.search(rf"^\| {code} \|", README, re.MULTILINE), code
    assert errors.CODES.keys() <= set(re.findall(r"`(\w+)`", README))
    assert "## Stale-wait reminders" in README or "### Stale-wait reminders" in README
