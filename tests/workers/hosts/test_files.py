"""What Tocsin puts into files of hosts, and takes out again."""

from __future__ import annotations

import json
import tomllib

import pytest

from tocsin.broker.errors import InvalidInput
from tocsin.workers.hosts.documents import Add, Document, Put, as_text, changes_of
from tocsin.workers.hosts.files import Files

TOML = """\
# what I think
model = "big"  # the best

[mcp_servers.other]
command = "npx"
args = [
  "-y",  # yes
]
"""

SERVER = [Put(("mcp_servers", "tocsin"), {"command": "/bin/tocsin", "env": {"TOCSIN_SEAT": "a/b"}})]
HOOK = {"hooks": [{"type": "command", "command": "/bin/tocsin hook run"}]}


@pytest.fixture
def files(tmp_path):
    return Files(tmp_path / "notes")


def dumped(value, indent=2):
    return json.dumps(value, indent=indent) + "\n"


def test_toml_keeps_its_comments(files, tmp_path):
    """What is put in stands beside the rest; taken out, the file is what it was to the byte."""
    path = tmp_path / "config.toml"
    path.write_text(TOML)
    path.chmod(0o640)
    assert files.put(path, "mcp", SERVER)
    assert "# the best" in path.read_text() and '"-y",  # yes' in path.read_text()
    assert tomllib.loads(path.read_text())["mcp_servers"]["tocsin"] == SERVER[0].value
    assert path.stat().st_mode & 0o777 == 0o640
    assert files.undo(path, "mcp") == []
    assert path.read_text() == TOML


def test_json_of_any_layout_comes_back_to_the_byte(files, tmp_path):
    """As long as nobody else changed the file, undo restores even its layout."""
    path = tmp_path / "settings.json"
    path.write_text(text := '{"a": [1, 2],\n "b": {}}')
    files.put(path, "mcp", SERVER)
    files.put(path, "hooks", changes_of({"hooks": {"Stop": [HOOK]}}))
    files.put(path, "hooks", changes_of({"hooks": {"Stop": [HOOK, HOOK]}}))
    files.undo(path, "hooks")
    files.undo(path, "mcp")
    assert path.read_text() == text


@pytest.mark.parametrize("indent", [2, 4, "\t"])
def test_json_keeps_its_order_and_indentation(files, tmp_path, indent):
    """Lists get our items beside others', and lose just those."""
    text = dumped({"z": 1, "hooks": {"Stop": [{"hooks": []}]}, "a": "ü"}, indent)
    path = tmp_path / "settings.json"
    path.write_text(text)
    changes = changes_of({"hooks": {"Stop": [HOOK], "SessionStart": [HOOK]}})
    assert files.put(path, "hooks", changes)
    found = json.loads(path.read_text())
    assert list(found) == ["z", "hooks", "a"]
    assert found["hooks"] == {"Stop": [{"hooks": []}, HOOK], "SessionStart": [HOOK]}
    assert files.undo(path, "hooks") == []
    assert path.read_text() == text


@pytest.mark.parametrize("name", ["settings.json", "config.toml"])
def test_a_second_time_changes_nothing(files, tmp_path, name):
    """The same changes leave the file alone; others take the place of the first."""
    path = tmp_path / name
    assert files.put(path, "mcp", SERVER)
    text = path.read_text()
    assert not files.put(path, "mcp", SERVER)
    assert path.read_text() == text
    other = [Put(("mcp_servers", "renamed"), {"command": "/opt/tocsin"})]
    assert files.put(path, "mcp", other)
    assert path.read_text() == as_text(path, other)
    assert files.undo(path, "mcp") == []
    assert not path.exists()
    assert files.undo(path, "mcp") is None


def test_what_was_there_comes_back(files, tmp_path):
    """A value that was replaced is put back, also after being replaced twice."""
    path = tmp_path / "mcp.json"
    path.write_text(dumped({"mcpServers": {"tocsin": {"command": "old"}}}))
    for command in ("new", "newer"):
        files.put(path, "mcp", [Put(("mcpServers", "tocsin"), {"command": command})])
    assert json.loads(path.read_text()) == {"mcpServers": {"tocsin": {"command": "newer"}}}
    assert files.undo(path, "mcp") == []
    assert json.loads(path.read_text()) == {"mcpServers": {"tocsin": {"command": "old"}}}


def test_what_somebody_changed_since_is_left(files, tmp_path):
    """A value that is not as it was put is nobody's to remove, and is named."""
    path = tmp_path / "mcp.json"
    files.put(path, "mcp", [Put(("mcpServers", "tocsin"), {"command": "ours"}), Add(("l",), 1)])
    path.write_text(dumped({"mcpServers": {"tocsin": {"command": "theirs"}}, "l": [1, 2]}))
    assert files.undo(path, "mcp") == ["mcpServers.tocsin"]
    found = json.loads(path.read_text())
    assert found == {"mcpServers": {"tocsin": {"command": "theirs"}}, "l": [2]}


def test_put_anew_over_a_change_still_goes_altogether(files, tmp_path):
    """Somebody's change to our value is replaced the next time, and not what undo restores."""
    path = tmp_path / "mcp.json"
    change = [Put(("mcpServers", "tocsin"), {"command": "ours"})]
    files.put(path, "mcp", change)
    path.write_text(dumped({"mcpServers": {"tocsin": {"command": "theirs"}}}))
    files.put(path, "mcp", change)
    assert files.undo(path, "mcp") == []
    assert not path.exists()


def test_parts_of_one_file_are_apart(files, tmp_path):
    """Each part goes by itself; the last one takes a file along that was made for it."""
    path = tmp_path / "settings.json"
    files.put(path, "mcp", SERVER)
    files.put(path, "hooks", changes_of({"hooks": {"Stop": [HOOK]}}))
    assert files.parts() == [(path, "mcp"), (path, "hooks")]
    files.undo(path, "mcp")
    assert json.loads(path.read_text()) == {"hooks": {"Stop": [HOOK]}}
    files.undo(path, "hooks")
    assert not path.exists() and files.parts() == []


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("a.json", '{"a": 1, // why\n}'),
        ("a.json", '{"a": 1,}'),
        ("a.json", '{"a": 1, "a": 2}'),
        ("a.json", '{"a": 1e400}'),
        ("a.json", "[]"),
        ("a.json", '{"mcp_servers": 5}'),
        ("a.toml", "a = "),
        ("a.toml", "mcp_servers = 5"),
    ],
)
def test_a_file_that_cannot_be_changed_safely_stays(files, tmp_path, name, text):
    """Comments in JSON, broken texts, other shapes: refused, untouched, nothing noted."""
    path = tmp_path / name
    path.write_text(text)
    with pytest.raises(InvalidInput) as refused:
        files.put(path, "mcp", SERVER)
    assert f"{path} is left as it is" in refused.value.detail
    assert path.read_text() == text and files.parts() == []


def test_what_to_add_by_hand_is_told(files, tmp_path):
    """Whoever's file cannot be changed reads what to put into it."""
    path = tmp_path / "opencode.jsonc"
    path.write_text('{\n  // mine\n  "model": "x"\n}\n')
    with pytest.raises(InvalidInput) as refused:
        files.put(path, "mcp", SERVER)
    assert refused.value.detail.endswith(as_text(path, SERVER))


def test_a_link_stays_a_link(files, tmp_path):
    """A settings file that is a link into a folder of dotfiles is changed where it lies."""
    (tmp_path / "dotfiles").mkdir()
    real, link = tmp_path / "dotfiles/config.toml", tmp_path / "config.toml"
    real.write_text(TOML)
    link.symlink_to(real)
    files.put(link, "mcp", SERVER)
    assert link.is_symlink() and "tocsin" in real.read_text()


def test_files_of_our_own(files, tmp_path):
    """They are laid, renewed and removed; somebody else's, or a changed one, is never."""
    path = tmp_path / "extensions/tocsin.ts"
    assert files.lay(path, "extension", "one") and not files.lay(path, "extension", "one")
    assert files.lay(path, "extension", "two") and path.read_text() == "two"
    path.write_text("mine")
    with pytest.raises(InvalidInput):
        files.lay(path, "extension", "three")
    assert files.undo(path, "extension") == ["tocsin.ts"]
    assert path.read_text() == "mine"
    path.write_text("two")
    assert files.lay(path, "extension", "two") is False
    assert files.undo(path, "extension") == [] and not path.exists()


def test_notes_are_their_owner_s(files, tmp_path):
    """They may hold what was secret in a file: nobody else reads them."""
    files.put(tmp_path / "a.json", "mcp", SERVER)
    assert (tmp_path / "notes/hosts.json").stat().st_mode & 0o777 == 0o600
    assert (tmp_path / "a.json").stat().st_mode & 0o777 == 0o600


def test_half_of_a_pair_stays_what_it_is(files, tmp_path):
    """JavaScript writes a cut emoji as one escape, which no UTF-8 can hold."""
    path = tmp_path / "claude.json"
    path.write_text(text := '{"history": "cut \\ud83d"}')
    assert files.put(path, "mcp", SERVER)
    assert json.loads(path.read_text())["history"] == "cut \ud83d"
    assert files.put(path, "mcp", SERVER) is False
    path.write_text(path.read_text().replace("cut", "torn"))
    assert files.undo(path, "mcp") == []
    assert json.loads(path.read_text()) == {"history": "torn \ud83d"}
    path.write_text(text)
    files.put(path, "mcp", SERVER)
    files.undo(path, "mcp")
    assert path.read_text() == text


def test_a_note_outlives_whatever_fails(files, tmp_path, monkeypatch):
    """What is in a file can still be taken out when taking it out, or renewing it, fell over."""
    path = tmp_path / "settings.json"
    path.write_text(text := '{"theirs": 1}')
    files.put(path, "mcp", SERVER)
    with monkeypatch.context() as patched:
        patched.setattr(Document, "write", interrupted)
        with pytest.raises(KeyboardInterrupt):
            files.undo(path, "mcp")
    assert files.undo(path, "mcp") == []
    assert path.read_text() == text


def interrupted(document: Document) -> bool:
    """Ctrl-C at this moment."""
    raise KeyboardInterrupt
