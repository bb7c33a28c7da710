"""The plugin folder for Claude Code says the same as `genlock setup claude`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import genlock
from genlock.cli.agents.clients import CLAUDE_HOOKS, CLAUDE_SERVER
from genlock.mcp.tools import TOOLS

PLUGIN = Path(__file__).parents[2] / "integrations" / "claude-code"


def read(name: str) -> Any:
    return json.loads((PLUGIN / name).read_text(encoding="utf-8"))


def test_the_plugin_has_the_hooks_and_the_server_that_setup_registers() -> None:
    assert read("hooks/hooks.json") == {
        "hooks": {event: [hook] for event, hook in CLAUDE_HOOKS.items()}
    }
    assert read(".mcp.json") == {"mcpServers": {"genlock": CLAUDE_SERVER}}


def test_the_plugin_has_the_version_of_genlock() -> None:
    about = read(".claude-plugin/plugin.json")
    assert (about["name"], about["version"]) == ("genlock", genlock.__version__)


def test_the_skill_may_use_every_tool_and_no_other() -> None:
    text = (PLUGIN / "skills/genlock/SKILL.md").read_text(encoding="utf-8")
    line = next(line for line in text.splitlines() if line.startswith("allowed-tools: "))
    allowed = line.removeprefix("allowed-tools: ").split(", ")
    assert allowed == [f"mcp__genlock__{tool}" for tool in TOOLS]
