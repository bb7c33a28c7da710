"""The agents that `genlock work` supports: how each is started, and how to parse its output.

This module contains everything specific to one agent. A reader gets one JSON line of its agent's
stdout, and records its meaning in the transcript. It ignores unknown lines, because agents keep
adding new ones.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

from genlock.worker.agents.transcript import Transcript, Trouble

Event = Mapping[str, Any]
Reader = Callable[[Event, Transcript], None]

INHERITED: Final = (
    "CLAUDECODE",
    "CLAUDE_CODE_ENTRYPOINT",
    "CLAUDE_CODE_SESSION_ID",
    "CLAUDE_CODE_SSE_PORT",
    "CLAUDE_ENV_FILE",
    "CLAUDE_PID",
    "CODEX_THREAD_ID",
    "GEMINI_SESSION_ID",
    "OPENCODE",
    "OPENCODE_PID",
)
"""Variables that an agent passes to its tools. An agent started from there is a separate session,
so it must not inherit them."""

_PERMISSIONS: Final = (
    "set up the account with which the agents are to work, then start `genlock work` again"
)


def _at(event: object, *path: str) -> Any:
    """Returns the value at this path; None if the event has another shape."""
    for key in path:
        event = event.get(key) if isinstance(event, Mapping) else None
    return event


def _parts(event: Event) -> list[Event]:
    """Returns the parts of a message, in the format of the Anthropic API."""
    content = _at(event, "message", "content")
    if isinstance(content, str):
        return [{"type": "text", "text": content}]
    return [part for part in content if isinstance(part, Mapping)] if content else []


def _call(name: object, given: object) -> str:
    """Describes a tool call: the tool and its most telling argument."""
    found = given if isinstance(given, Mapping) else {}
    names = ("command", "file_path", "path", "pattern", "query", "url", "description")
    told = next((found[each] for each in names if isinstance(found.get(each), str)), "")
    return f"{name}: {told}" if told else str(name)


def read_claude(event: Event, seen: Transcript) -> None:
    """`claude -p --output-format stream-json --verbose`, and Cursor, whose lines are alike."""
    seen.agent_session = event.get("session_id") or seen.agent_session
    match event.get("type"), event.get("subtype"):
        case "assistant", _:
            seen.count_message(_at(event, "message", "id"))
            for part in _parts(event):
                if part.get("type") == "tool_use":
                    seen.do(_call(part.get("name"), part.get("input")))
                elif part.get("type") == "text":
                    seen.do(part.get("text", ""))
            if event.get("error"):
                seen.error = str(event["error"])
        case "system", "api_retry":
            of = f"{event.get('attempt')}/{event.get('max_retries')}"
            seen.do(f"tries again after {event.get('error')} ({of})")
        case "rate_limit_event", _:
            _read_claude_limit(_at(event, "rate_limit_info"), seen)
        case "tool_call", "started":  # Cursor's
            for name, call in (_at(event, "tool_call") or {}).items():
                seen.do(_call(name.removesuffix("ToolCall"), _at(call, "args")))
        case "result", _:
            _read_claude_result(event, seen)
        case _:
            pass


def _read_claude_limit(info: object, seen: Transcript) -> None:
    if _at(info, "status") == "rejected":
        seen.trouble = Trouble.LIMIT
        resets = _at(info, "resetsAt")
        seen.resets_at = float(resets) if isinstance(resets, (int, float)) else None


_USED_UP: Final = {
    "error_max_turns": "it had used up its turns",
    "error_max_budget_usd": "it had used up its budget",
}


def _read_claude_result(event: Event, seen: Transcript) -> None:
    seen.finished = True
    seen.spend(event.get("total_cost_usd"))
    if isinstance(turns := event.get("num_turns"), int):
        seen.turns = turns
    structured = event.get("structured_output")
    seen.answer = event.get("result") if structured is None else structured
    subtype = event.get("subtype", "success")
    if subtype in _USED_UP:
        seen.failed, seen.trouble, seen.error = True, Trouble.CUT_OFF, _USED_UP[subtype]
    elif event.get("is_error") or subtype != "success":
        told = event.get("result") or event.get("errors") or seen.error or subtype
        seen.fail(told, event.get("api_error_status"))


def read_codex(event: Event, seen: Transcript) -> None:
    """`codex exec --json`."""
    kind, item = event.get("type"), event.get("item")
    if kind == "thread.started":
        seen.agent_session = str(event.get("thread_id", ""))
    elif kind in ("item.started", "item.completed") and isinstance(item, Mapping):
        _read_codex_item(item, seen, completed=kind == "item.completed")
    elif kind == "turn.completed":
        seen.finished, seen.failed = True, False
    elif kind == "turn.failed":
        seen.finished = True
        seen.fail(_at(event, "error", "message") or seen.error, _at(event, "error", "status"))
    elif kind == "error":
        # The agent may retry: only a failed turn is a failure.
        seen.error = str(event.get("message", ""))
        seen.do(seen.error)


def _read_codex_item(item: Event, seen: Transcript, *, completed: bool) -> None:
    match item.get("type"):
        case "agent_message" if completed:
            seen.answer = item.get("text")
            seen.count_message(item.get("id"))
            seen.do(item.get("text", ""))
        case "command_execution":
            seen.do(item.get("command", ""))
        case "file_change":
            changes = item.get("changes") or []
            seen.do("edits " + ", ".join(str(_at(each, "path")) for each in changes))
        case "mcp_tool_call":
            seen.do(f"{item.get('server')}.{item.get('tool')}")
        case _:
            pass


def read_gemini(event: Event, seen: Transcript) -> None:
    """`gemini -o stream-json`."""
    match event.get("type"):
        case "init":
            seen.agent_session = str(event.get("session_id", ""))
        case "message" if event.get("role") == "assistant":
            text = str(event.get("content", ""))
            part_of_one = event.get("delta") and isinstance(seen.answer, str)
            seen.turns += 0 if part_of_one else 1
            seen.answer = seen.answer + text if part_of_one else text
            seen.do(seen.answer[-120:])
        case "tool_use":
            seen.answer = None  # the earlier text was not the final answer
            seen.do(_call(event.get("tool_name"), event.get("parameters")))
        case "error":
            seen.error = str(event.get("message", ""))
        case "result":
            seen.finished = True
            if event.get("status") != "success":
                seen.fail(_at(event, "error", "message") or seen.error)
        case _:
            pass


def read_opencode(event: Event, seen: Transcript) -> None:
    """`opencode run --format json`."""
    seen.agent_session = event.get("sessionID") or seen.agent_session
    part = event.get("part")
    match event.get("type"):
        case "text":
            seen.answer = _at(part, "text")
            seen.do(_at(part, "text") or "")
        case "tool_use":
            seen.do(_at(part, "state", "title") or _call(_at(part, "tool"), None))
        case "step_finish":
            seen.turns += 1
            seen.spend((seen.cost_usd or 0.0) + (_at(part, "cost") or 0.0))
        case "error":
            error = event.get("error")
            seen.fail(_at(error, "data", "message") or error, _at(error, "data", "statusCode"))
        case _:
            pass


def read_messages(event: Event, seen: Transcript) -> None:
    """One message per line, as gptme writes them."""
    if event.get("role") == "assistant" and isinstance(event.get("content"), str):
        seen.turns += 1
        seen.answer = event["content"]
        seen.do(event["content"])


def read_nothing(event: Event, seen: Transcript) -> None:
    """Plain text: the last output is the result."""


class AgentClient(NamedTuple):
    """One kind of agent."""

    name: str
    argv: tuple[str, ...] = ()
    """The command that starts it, with fields of the template."""
    prompt: tuple[str, ...] = ()
    """The arguments that pass the prompt, at the end of the command line; empty: on stdin."""
    read: Reader = read_nothing
    says_its_end: bool = False
    """Does its format end with a final line, whose absence means a failure?"""
    in_worktree: tuple[str, ...] = ()
    """The arguments that let it commit in a worktree, if it could not otherwise."""
    max_turns: tuple[str, ...] = ()
    max_cost: tuple[str, ...] = ()
    exit_codes: Mapping[int, Trouble] = {}
    login: str = _PERMISSIONS
    """Advice for an agent that lacks permission to work."""


CLIENTS: Final = {
    client.name: client
    for client in (
        AgentClient(
            "claude",
            (
                "claude", "-p", "--output-format", "stream-json", "--verbose",
                "--permission-mode", "acceptEdits", "--session-id", "{session}",
            ),
            read=read_claude,
            says_its_end=True,
            in_worktree=("--allowedTools", "Bash(git add:*),Bash(git commit:*)"),
            max_turns=("--max-turns", "{max_turns}"),
            max_cost=("--max-budget-usd", "{max_cost}"),
            login="start `claude` once and type /login, or set ANTHROPIC_API_KEY",
        ),
        AgentClient(
            "codex",
            (
                "codex", "exec", "--json", "--skip-git-repo-check",
                "--sandbox", "workspace-write",
            ),
            prompt=("-",),
            in_worktree=("-c", "sandbox_workspace_write.writable_roots={git_folders}"),
            read=read_codex,
            says_its_end=True,
            login="type: codex login",
        ),
        AgentClient(
            "cursor",
            ("cursor-agent", "-p", "--force", "--approve-mcps", "--output-format", "stream-json"),
            prompt=("{prompt}",),
            read=read_claude,
            says_its_end=True,
            login="type: cursor-agent login",
        ),
        AgentClient(
            "gemini",
            (
                "gemini", "-o", "stream-json", "--approval-mode", "yolo", "--skip-trust",
                "--session-id", "{session}",
            ),
            prompt=("-p", "{prompt}"),
            read=read_gemini,
            says_its_end=True,
            exit_codes={41: Trouble.NOT_ALLOWED, 53: Trouble.CUT_OFF},
            login="start `gemini` once and sign in, or set GEMINI_API_KEY",
        ),
        AgentClient(
            "opencode",
            ("opencode", "run", "--format", "json", "--auto"),
            prompt=("{prompt}",),
            read=read_opencode,
            login="type: opencode auth login",
        ),
        AgentClient(
            "gptme",
            ("gptme", "-n", "--output-format", "json", "--name", "{session}"),
            prompt=("{prompt}",),
            read=read_messages,
        ),
        AgentClient("aider", ("aider", "--yes-always", "--message-file", "{prompt_file}")),
        AgentClient(
            "goose",
            ("goose", "run", "--no-session", "-i", "{prompt_file}"),
            max_turns=("--max-turns", "{max_turns}"),
            login="type: goose configure",
        ),
    )
}  # fmt: skip
"""The agents by name."""

OTHER: Final = AgentClient("command")
"""Any other command: its last JSON line, or otherwise its last output, is the result."""
