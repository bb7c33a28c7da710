"""The agents' clients as data: which files of a project register Genlock, and their content.

The formats are those of Claude Code 2.1, Codex 0.169, Cursor (CLI of 2026-09), Gemini CLI 0.61,
gptme 0.35 and opencode 1.18.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

BEGIN, END = "genlock:begin", "genlock:end"
"""Comments around our part of a text file."""

_SECONDS: Final = 5
_CALL_SECONDS: Final = 120
"""The limit for a tool call, which waits for a task for at most 45 seconds."""


class Member(NamedTuple):
    """A member of an object in a JSON file."""

    path: tuple[str, ...]
    value: Any


class Item(NamedTuple):
    """An item of an array in a JSON file."""

    path: tuple[str, ...]
    value: Any


class JsonFile(NamedTuple):
    """A JSON file that other tools write, too."""

    name: str
    edits: tuple[Member | Item, ...]


class TomlFile(NamedTuple):
    """A TOML file that other tools write, too. `head` is inserted before its first table, `tail` at
    its end; a part whose key exists already is left out."""

    name: str
    head: tuple[tuple[str, str], ...]
    tail: tuple[tuple[str, str], ...]


class Instructions(NamedTuple):
    """A file of instructions for models, to which we add a block."""

    name: str


class OwnFile(NamedTuple):
    """A file that is ours alone."""

    name: str
    text: str


File = JsonFile | TomlFile | Instructions | OwnFile


class Client(NamedTuple):
    """An agent's client."""

    name: str
    title: str
    files: tuple[File, ...]
    then: str
    """The user's next step."""


def _claude_hook(**more: Any) -> dict[str, Any]:
    call = {"type": "command", "command": "genlock", "args": ["hook", "claude"]}
    return {"hooks": [{**call, "timeout": _SECONDS, **more}]}


CLAUDE_SERVER: Final[dict[str, Any]] = {
    "type": "stdio",
    "command": "genlock",
    "args": ["mcp"],
    "env": {},
    "alwaysLoad": True,
    "timeout": _CALL_SECONDS * 1000,
}
CLAUDE_HOOKS: Final[dict[str, Any]] = {
    "SessionStart": {"matcher": "startup|resume|clear|compact|fork", **_claude_hook()},
    "PostToolUse": _claude_hook(**{"async": True}),
    "Stop": _claude_hook(),
    "SessionEnd": _claude_hook(),
}

_CLAUDE = Client(
    "claude",
    "Claude Code",
    (
        JsonFile(".mcp.json", (Member(("mcpServers", "genlock"), CLAUDE_SERVER),)),
        JsonFile(
            ".claude/settings.json",
            tuple(Item(("hooks", event), hook) for event, hook in CLAUDE_HOOKS.items()),
        ),
        Instructions("CLAUDE.md"),
    ),
    "start `claude` here and approve the server genlock; /mcp shows it",
)


def _codex_hook(event: str, seconds: int, more: str = "") -> str:
    return (
        f"[[hooks.{event}]]\n[[hooks.{event}.hooks]]\n"
        f'type = "command"\ncommand = "genlock hook codex"\ntimeout = {seconds}\n{more}'
    )


_CODEX_SERVER = f"""\
[mcp_servers.genlock]
command = "genlock"
args = ["mcp"]
env_vars = [
  "GENLOCK_URL", "GENLOCK_TENANT", "GENLOCK_PROJECT", "GENLOCK_SESSION", "GENLOCK_AGENT",
  "GENLOCK_ROLE",
]
default_tools_approval_mode = "approve"
tool_timeout_sec = {_CALL_SECONDS}
required = true
"""

_CODEX = Client(
    "codex",
    "Codex",
    (
        TomlFile(
            ".codex/config.toml",
            (),
            (
                ("mcp_servers.genlock", _CODEX_SERVER),
                ("", _codex_hook("SessionStart", _SECONDS)),
                ("", _codex_hook("PostToolUse", _SECONDS, "async = true\n")),
                ("", _codex_hook("Stop", _SECONDS)),
                ("", _codex_hook("SessionEnd", 3)),
            ),
        ),
        Instructions("AGENTS.md"),
    ),
    "start `codex` here, trust the project, and trust the hooks in /hooks",
)

_CURSOR = Client(
    "cursor",
    "Cursor",
    (
        JsonFile(
            ".cursor/mcp.json",
            (Member(("mcpServers", "genlock"), {"command": "genlock", "args": ["mcp"]}),),
        ),
        JsonFile(
            ".cursor/hooks.json",
            (
                Member(("version",), 1),
                *(
                    Item(("hooks", event), {"command": "genlock hook cursor", "timeout": _SECONDS})
                    for event in ("sessionStart", "postToolUse", "sessionEnd")
                ),
            ),
        ),
        Instructions("AGENTS.md"),
    ),
    "open the project in Cursor and enable the server genlock in its settings",
)


def _gemini_hook(**more: Any) -> dict[str, Any]:
    call = {"type": "command", "name": "genlock", "command": "genlock hook gemini"}
    return {**more, "hooks": [{**call, "timeout": _SECONDS * 1000}]}


_GEMINI = Client(
    "gemini",
    "Gemini CLI",
    (
        JsonFile(
            ".gemini/settings.json",
            (
                Member(
                    ("mcpServers", "genlock"),
                    {"command": "genlock", "args": ["mcp"], "timeout": _CALL_SECONDS * 1000},
                ),
                Item(("hooks", "SessionStart"), _gemini_hook()),
                Item(("hooks", "AfterTool"), _gemini_hook(matcher="*")),
                Item(("hooks", "SessionEnd"), _gemini_hook()),
            ),
        ),
        Instructions("GEMINI.md"),
    ),
    "start `gemini` here; the folder has to be trusted, or no server is started",
)

_GPTME_SERVER = """\
[[mcp.servers]]
name = "genlock"
enabled = true
command = "genlock"
args = ["mcp"]
"""

_GPTME = Client(
    "gptme",
    "gptme",
    (
        TomlFile(
            "gptme.toml",
            (("context_cmd", 'context_cmd = "genlock prime"\n'),),
            (
                ("mcp", "[mcp]\nenabled = true\nauto_start = true\n"),
                ("", _GPTME_SERVER),
            ),
        ),
        Instructions("AGENTS.md"),
    ),
    "start `gptme` here and answer y when it asks for the server genlock",
)

_OPENCODE_PLUGIN = """\
// Made by `genlock setup opencode`: tells Genlock what happens in a session.
export const Genlock = async ({ $, directory }) => {
  const tell = async (event, session) => {
    if (!session) return
    const told = JSON.stringify({ hook_event_name: event, session_id: session, cwd: directory })
    await $`genlock hook opencode < ${new Response(told)}`.cwd(directory).quiet().nothrow()
  }
  return {
    "tool.execute.after": async ({ sessionID }) => tell("tool", sessionID),
    event: async ({ event }) => {
      if (event.type === "session.deleted") await tell("end", event.properties.info?.id)
    },
  }
}
"""

_OPENCODE = Client(
    "opencode",
    "opencode",
    (
        JsonFile(
            "opencode.json",
            (
                Member(
                    ("mcp", "genlock"),
                    {
                        "type": "local",
                        "command": ["genlock", "mcp"],
                        "enabled": True,
                        "environment": {},
                    },
                ),
            ),
        ),
        OwnFile(".opencode/plugins/genlock.js", _OPENCODE_PLUGIN),
        Instructions("AGENTS.md"),
    ),
    "start `opencode` here",
)

CLIENTS: Final[dict[str, Client]] = {
    client.name: client for client in (_CLAUDE, _CODEX, _CURSOR, _GEMINI, _GPTME, _OPENCODE)
}

INSTRUCTIONS: Final = """\
## Work with Genlock

Several agents work on the plan of this project. Genlock sees to it that only one agent at a time \
has the right to a task, and that only its result counts.

- Before you work on a task, claim it: the tool `claim` of the MCP server genlock, or \
`genlock next`. The answer has the instructions and a generation.
- Work on that one task. The server renews your claim while you work; without it, run \
`genlock renew TASK -g GENERATION` every few minutes.
- When it is done: the tool `submit`, or `genlock submit TASK -g GENERATION --text RESULT`.
- If you cannot do it: the tool `release` with failed=true, or `genlock release --error`.
- If an answer says that your claim is lost, stop: another agent has the task.
- Never look a generation up. It comes from your own claim.
"""
