"""What an agent's client tells a hook on stdin, and the form in which it takes an answer."""

from __future__ import annotations

import json
import os
import shlex
from collections.abc import Mapping
from enum import StrEnum
from typing import Any, Final, NamedTuple

from genlock.safe_text import safe_line


class Kind(StrEnum):
    """What has happened, whatever the client calls it."""

    START = "start"
    TOOL = "tool"
    STOP = "stop"
    END = "end"
    OTHER = "other"


_KINDS: Final = {
    "sessionstart": Kind.START,
    "posttooluse": Kind.TOOL,
    "posttoolusefailure": Kind.TOOL,
    "aftertool": Kind.TOOL,
    "stop": Kind.STOP,
    "sessionend": Kind.END,
} | {kind.value: kind for kind in Kind}

_AS_CONTEXT: Final = ("claude", "codex")
"""Clients that take plain text at the start of a session."""


class HookEvent(NamedTuple):
    """One call of a hook."""

    kind: Kind
    session: str | None
    folder: str | None
    """The project's, if the hook is not run there."""
    is_repeated: bool
    """Has a hook already kept the agent from stopping?"""
    reason: str


def read_event(data: bytes, event: str = "") -> HookEvent:
    """The event in this JSON; what is no JSON is an event of no interest."""
    try:
        found = json.loads(data or b"{}")
    except (ValueError, RecursionError):
        found = {}
    given: Mapping[str, Any] = found if isinstance(found, dict) else {}
    name = event or str(given.get("hook_event_name", ""))
    roots = given.get("workspace_roots")
    folder = given.get("cwd") or (roots[0] if isinstance(roots, list) and roots else None)
    session = given.get("session_id") or given.get("conversation_id")
    return HookEvent(
        _KINDS.get(name.replace(".", "").lower(), Kind.OTHER),
        session if isinstance(session, str) else None,
        folder if isinstance(folder, str) else None,
        given.get("stop_hook_active") is True,
        safe_line(given.get("reason"))[:60],
    )


def context_answer(agent: str, text: str, session: str | None) -> str:
    """What to print so that the model reads this text."""
    if agent in _AS_CONTEXT:
        return f"{text}\n"
    if agent == "cursor":
        env = {} if session is None else {"GENLOCK_SESSION": session}
        return json.dumps({"additional_context": text, "env": env}) + "\n"
    if agent == "gemini":
        told = {"hookEventName": "SessionStart", "additionalContext": text}
        return json.dumps({"hookSpecificOutput": told}) + "\n"
    return ""


def export_session(session: str) -> None:
    """Names the session to the commands that Claude Code's agent will run: they belong to it, as
    the MCP server does."""
    path = os.environ.get("CLAUDE_ENV_FILE")
    if path and "GENLOCK_SESSION" not in os.environ:
        with open(path, "a", encoding="utf-8") as file:
            file.write(f"export GENLOCK_SESSION={shlex.quote(session)}\n")
