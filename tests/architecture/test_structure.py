"""The shape of the repository: layers, sizes, names, docstrings."""

from __future__ import annotations

import ast
import sys
from pathlib import Path

import pytest

PROJECT = Path(__file__).resolve().parents[2]
ROOTS = ("broker", "scheduler", "workers")
SHIPPED = sorted(path for root in ROOTS for path in (PROJECT / root / "tocsin").rglob("*.py"))
OURS = sorted(
    [*SHIPPED, PROJECT / "broker/generate_sync.py"]
    + [
        path
        for root in ("tests", "benchmarks", "examples")
        for path in (PROJECT / root).rglob("*.py")
    ]
)
LUA = sorted((PROJECT / "broker/tocsin/broker/lua").rglob("*.lua"))


def named(path: Path) -> str:
    """A file as a test's name shows it."""
    return str(path.relative_to(PROJECT))


def imported(path: Path) -> set[str]:
    """The top-level names of all modules that a file imports, wherever in it."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found.add(node.module)
    return found


@pytest.mark.parametrize("root", ROOTS)
def test_the_three_roots_make_one_namespace(root):
    """No `__init__.py` in a `tocsin` folder, or only one of the roots could be imported."""
    folder = PROJECT / root / "tocsin"
    assert not (folder / "__init__.py").exists()
    assert [path.name for path in folder.iterdir() if path.name != "__pycache__"] == [root]
    assert (folder / root / "py.typed").is_file()
    assert (folder / root / "__init__.py").is_file()


def test_redis_is_spoken_in_the_broker_only():
    """Whoever else needs a connection is handed one."""
    speakers = {
        path.relative_to(PROJECT).parts[0]
        for path in SHIPPED
        if any(name.split(".")[0] in ("redis", "fakeredis", "valkey") for name in imported(path))
    }
    assert speakers == {"broker"}


def test_the_layers_look_down_only():
    """broker knows nobody, scheduler knows the broker, the command line knows both."""
    for path in SHIPPED:
        root = path.relative_to(PROJECT).parts[0]
        ours = {name.split(".")[1] for name in imported(path) if name.startswith("tocsin.")}
        allowed = {"broker": {"broker"}, "scheduler": {"broker", "scheduler"}}
        assert ours <= allowed.get(root, set(ROOTS)), named(path)


def test_the_pure_files_do_no_io():
    """States, keys, rendering, validation and what makes calls import nothing that could."""
    folder = PROJECT / "broker/tocsin/broker"
    pure = "states keys envelopes records rendering framing causes validation ids caller"
    pure += " masking herds agents tasks requests asks inbox dead why timers alerts repairs"
    for name in pure.split():
        heavy = imported(folder / f"{name}.py") & {"redis", "socket", "asyncio", "threading", "os"}
        assert not heavy, f"{name}.py imports {heavy}"


def test_the_broker_knows_nothing_of_directories():
    """What an agent's work is watched in is the runner's business: the library has files in hand
    only where its settings are read and where a server is embedded."""
    of_files = {"pathlib", "glob", "shutil", "tempfile", "fnmatch", "os.path"}
    folder = PROJECT / "broker/tocsin/broker"
    for path in folder.rglob("*.py"):
        if path.name == "settings_files.py" or path.parent.name == "embedded":
            continue
        assert not imported(path) & of_files, named(path)
        words = {
            node.id
            for node in ast.walk(ast.parse(path.read_text("utf-8")))
            if isinstance(node, ast.Name)
        }
        assert "open" not in words, f"{named(path)} opens files"


@pytest.mark.parametrize("path", OURS, ids=named)
def test_a_python_file_is_not_too_long(path):
    """500 lines; longer is two things in one file. Tests grow by cases, which read alike: 900."""
    limit = 900 if path.is_relative_to(PROJECT / "tests") else 500
    assert len(path.read_text("utf-8").splitlines()) <= limit


@pytest.mark.parametrize("path", LUA, ids=named)
def test_a_lua_file_is_not_too_long(path):
    """80 lines for a script, which is one transition; 240 for an include, which is one subject."""
    limit = 240 if path.parent.name == "include" else 80
    assert len(path.read_text("utf-8").splitlines()) <= limit


Definition = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef


def public(body: list[ast.stmt]) -> list[Definition]:
    """The public functions and classes of a module, and the public methods of those classes."""
    found: list[Definition] = []
    for node in body:
        if isinstance(node, Definition) and not node.name.startswith("_"):
            found.append(node)
            found += public(node.body) if isinstance(node, ast.ClassDef) else []
    return found


@pytest.mark.parametrize("path", SHIPPED, ids=named)
def test_what_is_public_says_what_it_promises(path):
    """A docstring on the module and on every public function, class and method."""
    tree = ast.parse(path.read_text("utf-8"))
    assert ast.get_docstring(tree) or not tree.body, "the module"
    for node in public(tree.body):
        assert ast.get_docstring(node), f"line {node.lineno}: {node.name}"


@pytest.mark.parametrize("path", SHIPPED, ids=named)
def test_a_public_docstring_speaks_of_the_project_alone(path):
    """No path of a machine, no tool around it."""
    text = path.read_text("utf-8")
    for word in ("/home/", "/root/", "/work/", "/Users/", "C:\\Users"):
        assert word not in text


def test_no_module_hides_one_of_the_standard_library():
    """Inside the namespace a name may repeat; a top-level package or a test may not."""
    top = [PROJECT / root for root in (*ROOTS, "tests", "benchmarks", "examples")]
    for folder in top:
        for path in folder.glob("*.py"):
            assert path.stem not in sys.stdlib_module_names, named(path)
        assert folder.name not in sys.stdlib_module_names


def test_no_module_is_named_for_having_no_subject():
    """`utils`, `common`, `helpers`, `manager`: what is in it has a better name."""
    vague = {"utils", "util", "common", "helpers", "helper", "manager", "misc"}
    assert not [named(path) for path in OURS if path.stem in vague]


def test_the_sync_client_is_generated():
    """Every file of `_sync` says so and has its twin in `_async`."""
    for root in ("broker", "scheduler"):
        for path in (PROJECT / root / "tocsin" / root / "_sync").glob("*.py"):
            assert path.read_text("utf-8").startswith("# Generated from _async/"), named(path)
            assert (path.parent.parent / "_async" / path.name).is_file()
