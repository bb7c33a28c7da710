"""The real Claude Code and Codex, from npm, without a login: what `genlock setup` writes is
understood, the server connects, and the hooks fire. Run by `make nightly`."""

from __future__ import annotations

import fcntl
import json
import platform
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.console import environment
from tests.mcp.server import make_project

ROOT = Path(__file__).parents[2]
INSTALLED = ROOT / ".servers" / "agents"
CLAUDE = (
    "@anthropic-ai/claude-code-linux-x64@2.1.327",
    "@anthropic-ai/claude-code-linux-x64/claude",
)
CODEX = ("@openai/codex@0.169.0", ".bin/codex")

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(900),
    pytest.mark.skipif(shutil.which("npm") is None, reason="there is no npm"),
    pytest.mark.skipif(
        (sys.platform, platform.machine()) != ("linux", "x86_64"),
        reason="the packages are those of Linux on x86-64",
    ),
]


class Client:
    """A client's command in a project of its own, with a home of its own."""

    def __init__(self, package: tuple[str, str], folder: Path) -> None:
        self.program = install(*package)
        self.home, self.project = folder / "home", folder / "project"
        self.home.mkdir()
        self.project.mkdir()
        make_project(self.project, "A-001-first")
        commands = folder / "bin"
        commands.mkdir()
        genlock = commands / "genlock"
        genlock.write_text(f'#!/bin/sh\nexec {sys.executable} -m genlock.cli "$@"\n')
        genlock.chmod(0o755)
        path = f"{commands}:{environment()['PATH']}"
        more = {"DISABLE_AUTOUPDATER": "1", "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1"}
        self._env = environment(
            {"HOME": str(self.home), "PATH": path, "GENLOCK_SESSION": None, **more}
        )

    def run(self, *arguments: str) -> str:
        """What a call of the client prints."""
        return self._run(str(self.program), *arguments)

    def genlock(self, *arguments: str) -> str:
        return self._run("genlock", *arguments)

    def _run(self, *command: str) -> str:
        ended = subprocess.run(
            command,
            cwd=self.project,
            env=self._env,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        assert ended.returncode == 0, ended.stdout + ended.stderr
        return ended.stdout


def install(package: str, program: str) -> Path:
    """Installs an npm package once; skips where it cannot be had."""
    folder = INSTALLED / package.replace("/", "_")
    found = folder / "node_modules" / program
    folder.mkdir(parents=True, exist_ok=True)
    with open(folder / ".lock", "w", encoding="utf-8") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # another process of the run may be at it
        if found.exists():
            return found
        command = ["npm", "install", "--no-save", "--prefix", str(folder), package]
        ended = subprocess.run(command, capture_output=True, text=True, timeout=800, check=False)
        if not found.exists():
            pytest.skip(f"npm cannot install {package}: {ended.stderr[-300:]}")
    return found


@pytest.fixture
def claude(tmp_path: Path) -> Client:
    return Client(CLAUDE, tmp_path)


@pytest.fixture
def codex(tmp_path: Path) -> Client:
    return Client(CODEX, tmp_path)


def test_claude_code_connects_to_the_server_that_setup_registers(claude: Client) -> None:
    claude.genlock("setup", "claude")
    assert "Pending approval" in claude.run("mcp", "get", "genlock")
    settings = claude.home / ".claude.json"
    known = json.loads(settings.read_text()) if settings.exists() else {}
    approved = {"hasTrustDialogAccepted": True, "enabledMcpjsonServers": ["genlock"]}
    known["projects"] = {str(claude.project): approved}
    settings.write_text(json.dumps(known))
    told = claude.run("mcp", "get", "genlock")
    assert "Connected" in told
    assert "Timeout: 120000ms" in told
    assert "Connected" in claude.run("mcp", "list")


def test_claude_code_runs_the_hooks_that_setup_registers(claude: Client) -> None:
    claude.genlock("setup", "claude")
    claude.run("--init-only")
    (written,) = (claude.home / ".claude" / "session-env").rglob("*.sh")
    session = written.parent.name
    assert written.read_text() == f"export GENLOCK_SESSION={session}\n"


def test_claude_code_finds_nothing_wrong_with_the_plugin(claude: Client) -> None:
    told = claude.run("plugin", "validate", "--strict", str(ROOT / "integrations" / "claude-code"))
    assert "Validation passed" in told


def test_codex_reads_the_server_that_setup_registers(codex: Client) -> None:
    codex.genlock("setup", "codex")
    settings = codex.home / ".codex" / "config.toml"
    settings.parent.mkdir()
    settings.write_text(f'[projects."{codex.project}"]\ntrust_level = "trusted"\n')
    told = codex.run("mcp", "get", "genlock")
    for line in ("enabled: true", "command: genlock", "args: mcp", "tool_timeout_sec: 120"):
        assert line in told
    assert "default_tools_approval_mode: approve" in told
