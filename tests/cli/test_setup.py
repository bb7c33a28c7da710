"""Registering Genlock with agents' clients: nothing of the user's is lost, and all of ours can be
taken out again."""

from __future__ import annotations

import json
import os
import pwd
import tomllib
from pathlib import Path

import pytest

from genlock.cli.agents import files, jsonc
from genlock.cli.agents.clients import CLAUDE_HOOKS, CLAUDE_SERVER, CLIENTS
from genlock.errors import BadArgument, NotAllowed
from tests.cli.console import run

AGENTS = ["claude", "codex", "cursor", "gemini", "gptme", "opencode"]


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))


@pytest.fixture
def root(tmp_path: Path) -> Path:
    folder = tmp_path / "project"
    folder.mkdir()
    return folder


def set_up(agent: str, root: Path) -> list[str]:
    changes = files.planned(CLIENTS[agent], root)
    files.apply(changes)
    return [change.file.name for change in changes]


def take_out(agent: str, root: Path) -> None:
    files.apply(files.planned(CLIENTS[agent], root, remove=True), remove=True)


def contents(root: Path) -> dict[str, bytes]:
    found = sorted(path for path in root.rglob("*") if path.is_file())
    return {str(path.relative_to(root)): path.read_bytes() for path in found}


EXISTING = {
    "plain": {
        ".mcp.json": '{\n  "mcpServers": {\n    "other": {"command": "x"}\n  }\n}\n',
        ".claude/settings.json": '{"permissions": {"allow": ["Bash(ls)"]}, "hooks": {"Stop": [{"hooks": [{"type": "command", "command": "./mine.sh"}]}]}}',
        "CLAUDE.md": "# Ours\n\nBe kind.\n",
        "AGENTS.md": "no line end",
        "GEMINI.md": "\n\n",
        ".codex/config.toml": '# mine\nmodel = "gpt"\n[mcp_servers.other]\ncommand = "x"\n',
        ".cursor/mcp.json": '{"mcpServers":{"o":{}}}',
        ".cursor/hooks.json": '{"version": 1, "hooks": {"stop": [{"command": "x"}]}}',
        ".gemini/settings.json": '// mine\n{\n    "theme": "x", // nice\n}\n',
        "gptme.toml": 'files = ["a.md"] # mine\n\n[prompt]\nx = 1',
        "opencode.json": '{"$schema": "https://opencode.ai/config.json"}',
    },
    "empty": {
        ".mcp.json": "{}",
        ".claude/settings.json": '{"hooks": {}}\n',
        "CLAUDE.md": "",
        "AGENTS.md": "\n",
        ".codex/config.toml": "\n",
        ".cursor/mcp.json": '{"mcpServers": {}}',
        ".cursor/hooks.json": '{"version": 1, "hooks": {}}',
        ".gemini/settings.json": "{\n}\n",
        "gptme.toml": "",
        "opencode.json": '{"mcp": {}}',
    },
    "none": {},
}


EXISTING["windows"] = {name: text.replace("\n", "\r\n") for name, text in EXISTING["plain"].items()}


def lay_out(root: Path, existing: dict[str, str]) -> None:
    for name, text in existing.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text.encode())


@pytest.mark.parametrize("existing", EXISTING)
@pytest.mark.parametrize("agent", AGENTS)
def test_removal_restores_every_file_to_the_byte(agent: str, existing: str, root: Path) -> None:
    lay_out(root, EXISTING[existing])
    before = contents(root)
    assert set_up(agent, root)
    assert contents(root) != before
    take_out(agent, root)
    assert contents(root) == before
    if not before:
        assert list(root.iterdir()) == []


@pytest.mark.parametrize("agent", list(CLIENTS))
def test_lines_end_as_those_of_the_file_do(agent: str, root: Path) -> None:
    lay_out(root, EXISTING["windows"])
    set_up(agent, root)
    for name, data in contents(root).items():
        if "\n" in EXISTING["windows"].get(name, ""):
            assert data.count(b"\n") == data.count(b"\r\n"), name


@pytest.mark.parametrize("agent", AGENTS)
def test_setting_up_again_changes_nothing(agent: str, root: Path) -> None:
    lay_out(root, EXISTING["plain"])
    set_up(agent, root)
    assert set_up(agent, root) == []


@pytest.mark.parametrize("agent", AGENTS)
def test_what_the_user_has_written_is_still_there(agent: str, root: Path) -> None:
    lay_out(root, EXISTING["plain"])
    set_up(agent, root)
    for name, text in EXISTING["plain"].items():
        after = (root / name).read_text()
        if name.endswith(".json"):
            for key, value in jsonc.parse(text).value.items():
                assert jsonc.parse(after).value[key] == value or isinstance(value, dict)
        else:
            assert text.strip() in after
    assert "// nice" in (root / ".gemini/settings.json").read_text()


@pytest.mark.parametrize("agent", AGENTS)
def test_what_the_user_adds_later_survives_the_removal(agent: str, root: Path) -> None:
    set_up(agent, root)
    for file in CLIENTS[agent].files:
        path = root / file.name
        text = path.read_text()
        if path.suffix == ".json":
            path.write_text(jsonc.put_in(text, ("mine",), 1))
        elif path.suffix == ".js":
            path.write_text(text + "// mine\n")
        else:
            path.write_text(text + "\n# mine\n")
    take_out(agent, root)
    for file in CLIENTS[agent].files:
        text = (root / file.name).read_text()
        assert "mine" in text
        assert "genlock" not in text or file.name.endswith(".js")


def test_claude_code_is_given_the_server_and_the_hooks(root: Path) -> None:
    set_up("claude", root)
    servers = json.loads((root / ".mcp.json").read_text())["mcpServers"]
    assert servers["genlock"] == {
        "type": "stdio",
        "command": "genlock",
        "args": ["mcp"],
        "env": {},
        "alwaysLoad": True,
        "timeout": 120000,
    }
    hooks = json.loads((root / ".claude/settings.json").read_text())["hooks"]
    call = {"type": "command", "command": "genlock", "args": ["hook", "claude"], "timeout": 5}
    assert hooks == {
        "SessionStart": [{"matcher": "startup|resume|clear|compact|fork", "hooks": [call]}],
        "PostToolUse": [{"hooks": [{**call, "async": True}]}],
        "Stop": [{"hooks": [call]}],
        "SessionEnd": [{"hooks": [call]}],
    }


def test_codex_is_given_a_server_that_it_approves(root: Path) -> None:
    set_up("codex", root)
    found = tomllib.loads((root / ".codex/config.toml").read_text())
    server = found["mcp_servers"]["genlock"]
    assert (server["command"], server["args"]) == ("genlock", ["mcp"])
    assert server["default_tools_approval_mode"] == "approve"
    assert server["required"] is True
    assert "GENLOCK_URL" in server["env_vars"]
    assert set(found["hooks"]) == {"SessionStart", "PostToolUse", "Stop", "SessionEnd"}
    assert found["hooks"]["PostToolUse"][0]["hooks"][0]["async"] is True


def test_cursor_is_given_only_events_that_it_knows(root: Path) -> None:
    """One unknown event voids the whole file, silently."""
    set_up("cursor", root)
    found = json.loads((root / ".cursor/hooks.json").read_text())
    assert found["version"] == 1
    assert set(found["hooks"]) == {"sessionStart", "postToolUse", "sessionEnd"}


def test_gptme_and_opencode_and_gemini_are_given_a_server(root: Path) -> None:
    for agent in ("gptme", "opencode", "gemini"):
        set_up(agent, root)
    gptme = tomllib.loads((root / "gptme.toml").read_text())
    assert gptme["mcp"]["enabled"] is True
    assert gptme["mcp"]["servers"][0]["command"] == "genlock"
    assert gptme["context_cmd"] == "genlock prime"
    opencode = json.loads((root / "opencode.json").read_text())
    assert opencode["mcp"]["genlock"]["command"] == ["genlock", "mcp"]
    gemini = json.loads((root / ".gemini/settings.json").read_text())
    assert gemini["mcpServers"]["genlock"]["timeout"] == 120000
    assert gemini["hooks"]["AfterTool"][0]["hooks"][0]["timeout"] == 5000


def test_an_older_registration_is_replaced(root: Path) -> None:
    lay_out(
        root,
        {
            ".mcp.json": '{"mcpServers": {"genlock": {"command": "old"}, "other": {}}}',
            ".claude/settings.json": '{"hooks": {"Stop": [{"hooks": [{"type": "command", "command": "genlock hook claude"}]}, {"hooks": [{"type": "command", "command": "mine"}]}]}}',
        },
    )
    set_up("claude", root)
    found = json.loads((root / ".mcp.json").read_text())["mcpServers"]
    assert found == {"genlock": CLAUDE_SERVER, "other": {}}
    stop = json.loads((root / ".claude/settings.json").read_text())["hooks"]["Stop"]
    assert stop == [{"hooks": [{"type": "command", "command": "mine"}]}, CLAUDE_HOOKS["Stop"]]


BROKEN = [
    ("claude", ".mcp.json", '{"mcpServers": ', "a value is expected"),
    ("claude", ".claude/settings.json", '{"hooks": []}', "hooks is no object"),
    ("claude", ".mcp.json", "[]", "the file is no object"),
    ("codex", ".codex/config.toml", "model = ", "it is no TOML"),
    (
        "codex",
        ".codex/config.toml",
        '[mcp_servers.genlock]\ncommand = "x"',
        "a server genlock already",
    ),
    ("codex", ".codex/config.toml", "hooks = 1", "does not fit what is there"),
    ("gptme", "gptme.toml", "[mcp]\nenabled = false\n", "without `enabled = true`"),
    ("opencode", "opencode.json", "{'mcp': {}}", "a key in quotes"),
]


@pytest.mark.parametrize(("agent", "name", "text", "told"), BROKEN)
def test_a_file_that_cannot_be_edited_leaves_all_as_they_are(
    agent: str, name: str, text: str, told: str, root: Path
) -> None:
    lay_out(root, {name: text})
    with pytest.raises(BadArgument, match=told) as raised:
        set_up(agent, root)
    assert str(raised.value).startswith(f"{name}: ")
    assert contents(root) == {name: text.encode()}


def test_a_file_that_is_no_text_is_refused(root: Path) -> None:
    (root / "CLAUDE.md").write_bytes(b"\xff\xfe")
    with pytest.raises(BadArgument, match="no UTF-8"):
        set_up("claude", root)
    assert list(contents(root)) == ["CLAUDE.md"]


def test_a_read_only_file_is_left_alone_and_so_are_the_others(root: Path) -> None:
    lay_out(root, {"CLAUDE.md": "fixed\n"})
    (root / "CLAUDE.md").chmod(0o444)
    with pytest.raises(NotAllowed, match="read-only"):
        set_up("claude", root)
    assert contents(root) == {"CLAUDE.md": b"fixed\n"}


def test_a_link_is_not_followed(root: Path, tmp_path: Path) -> None:
    target = tmp_path / "secret.json"
    target.write_text("{}")
    (root / ".mcp.json").symlink_to(target)
    with pytest.raises(NotAllowed, match="is a link"):
        set_up("claude", root)
    assert target.read_text() == "{}"


@pytest.mark.parametrize(
    ("agent", "link"),
    [
        ("claude", ".claude"),
        ("codex", ".codex"),
        ("cursor", ".cursor"),
        ("gemini", ".gemini"),
        ("opencode", ".opencode"),
        ("opencode", ".opencode/plugins"),
    ],
)
def test_a_linked_folder_is_not_followed(agent: str, link: str, root: Path, tmp_path: Path) -> None:
    """A cloned repository may have one to the folder in which the user's own settings are."""
    outside = tmp_path / "home"
    lay_out(outside, {"settings.json": "{}", "hooks.json": "{}", "config.toml": ""})
    before = contents(outside)
    (root / link).parent.mkdir(exist_ok=True)
    (root / link).symlink_to(outside)
    with pytest.raises(NotAllowed, match=f"{link} is a link"):
        set_up(agent, root)
    with pytest.raises(NotAllowed, match=f"{link} is a link"):
        take_out(agent, root)
    assert contents(outside) == before
    assert contents(root) == {}


def test_nothing_is_written_through_a_link_in_the_place_of_an_unfinished_file(
    root: Path, tmp_path: Path
) -> None:
    target = tmp_path / "secret"
    target.write_text("mine")
    (root / f".CLAUDE.md.{os.getpid()}").symlink_to(target)
    set_up("claude", root)
    assert target.read_text() == "mine"
    assert not (root / "CLAUDE.md").is_symlink()


@pytest.mark.skipif(os.geteuid() != 0, reason="needs files of two users")
def test_a_project_of_another_user_is_not_set_up(root: Path) -> None:
    (root / ".git").mkdir()
    os.chown(root / ".git", pwd.getpwnam("nobody").pw_uid, -1)
    (root / "below").mkdir()
    error = run("setup", "claude", cwd=root / "below").error()
    assert error["code"] == "UNTRUSTED"
    assert error["message"].startswith(f"{root}/.git belongs to the user nobody")
    assert contents(root) == {}


def test_permissions_of_a_file_stay(root: Path) -> None:
    lay_out(root, {".mcp.json": "{}"})
    (root / ".mcp.json").chmod(0o600)
    set_up("claude", root)
    assert (root / ".mcp.json").stat().st_mode & 0o777 == 0o600


def test_shared_instructions_stay_until_the_last_client_is_removed(root: Path) -> None:
    set_up("codex", root)
    set_up("opencode", root)
    take_out("codex", root)
    assert "Work with Genlock" in (root / "AGENTS.md").read_text()
    take_out("opencode", root)
    assert contents(root) == {}


def test_the_instructions_have_less_than_thirty_lines(root: Path) -> None:
    set_up("claude", root)
    assert len((root / "CLAUDE.md").read_text().splitlines()) < 30


def test_the_command_sets_up_checks_prints_and_removes(root: Path) -> None:
    (root / ".genlock").mkdir()
    (root / "deep").mkdir()
    assert run("setup", "claude", "--check", cwd=root).code == 3
    printed = run("setup", "claude", "--print", cwd=root)
    assert (printed.code, "+++ .mcp.json" in printed.out) == (0, True)
    assert contents(root) == {}
    told = run("setup", "claude", cwd=root / "deep").json()
    assert [change["file"] for change in told["changed"]] == [
        ".mcp.json",
        ".claude/settings.json",
        "CLAUDE.md",
    ]
    assert told["changed"][0]["made"] is True
    assert "approve" in told["next"]
    assert run("setup", "claude", "--check", cwd=root).code == 0
    assert run("setup", "claude", "--remove", cwd=root).code == 0
    assert contents(root) == {}
    assert run("setup", "claude", "--print", "--remove", cwd=root).code == 2
    assert run("setup", "emacs", cwd=root).code == 2
