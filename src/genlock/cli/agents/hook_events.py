"""The events that agents' clients send to hooks on stdin, and the form of the answers."""

from __future__ import annotations

import json
import os
import shlex
from collections.abc import Mapping
from enum import StrEnum
from typing import Any, Final, NamedTuple

from genlock.safe_text import safe_line


class Kind(StrEnum):
    """The kind of an event, independent of the client's name for it."""

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
"""Clients that accept plain text at the start of a session."""


class HookEvent(NamedTuple):
    """One call of a hook."""

    kind: Kind
    session: str | None
    folder: str | None
    """The project's folder, if the hook runs elsewhere."""
    is_repeated: bool
    """Has a hook already kept the agent from stopping?"""
    reason: str


def read_event(data: bytes, event: str = "") -> HookEvent:
    """Parses the event in this JSON; invalid JSON counts as an irrelevant event."""
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
    """Returns the output that makes the client show this text to the model."""
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
    """Exports the session to the commands that Claude Code's agent will run, so that they share it
    with the MCP server."""
    path = os.environ.get("CLAUDE_ENV_FILE")
    if path and "GENLOCK_SESSION" not in os.environ:
        with open(path, "a", encoding="utf-8") as file:
            file.write(f"export GENLOCK_SESSION={shlex.quote(session)}\n")
