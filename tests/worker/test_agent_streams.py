"""What each agent writes, line by line, and what that means. The lines are written after the
agents' documentation."""

from __future__ import annotations

import json
from contextlib import suppress
from typing import Any

import pytest

from genlock.cli.commands.work import _agent as agent_of
from genlock.errors import BadArgument
from genlock.worker.agents.catalog import CLIENTS, OTHER
from genlock.worker.agents.outcome import Outcome, Stop, judge, result_of
from genlock.worker.agents.template import PromptTooLong, Template
from genlock.worker.agents.transcript import Transcript, Trouble, trouble_of
from genlock.worker.warded import Ended

CLAUDE = """
{"type":"system","subtype":"init","session_id":"c-1","tools":["Bash"],"mcp_servers":[]}
{"type":"assistant","session_id":"c-1","message":{"id":"m1","content":[{"type":"text","text":"I look first."}]}}
{"type":"assistant","session_id":"c-1","message":{"id":"m1","content":[{"type":"tool_use","name":"Bash","input":{"command":"make test"}}]}}
{"type":"user","session_id":"c-1","message":{"content":[{"type":"tool_result","content":"ok"}]}}
{"type":"system","subtype":"api_retry","attempt":1,"max_retries":10,"error":"overloaded"}
{"type":"rate_limit_event","rate_limit_info":{"status":"allowed_warning","resetsAt":1900000000}}
{"type":"assistant","session_id":"c-1","message":{"id":"m2","content":[{"type":"text","text":"Done."}]}}
{"type":"result","subtype":"success","is_error":false,"result":"Done.","num_turns":2,"total_cost_usd":0.31,"session_id":"c-1"}
"""
CODEX = """
{"type":"thread.started","thread_id":"x-1"}
{"type":"turn.started"}
{"type":"error","message":"Reconnecting... 1/5"}
{"type":"item.started","item":{"id":"i0","type":"command_execution","command":"make test","status":"in_progress"}}
{"type":"item.completed","item":{"id":"i1","type":"reasoning","text":"hm"}}
{"type":"item.completed","item":{"id":"i2","type":"file_change","changes":[{"path":"app.py","kind":"update"}]}}
{"type":"item.completed","item":{"id":"i3","type":"agent_message","text":"Done."}}
{"type":"turn.completed","usage":{"input_tokens":1,"output_tokens":1}}
"""
CURSOR = """
{"type":"system","subtype":"init","session_id":"u-1"}
{"type":"tool_call","subtype":"started","session_id":"u-1","tool_call":{"shellToolCall":{"args":{"command":"make test"}}}}
{"type":"assistant","session_id":"u-1","message":{"role":"assistant","content":[{"type":"text","text":"Done."}]}}
{"type":"result","subtype":"success","is_error":false,"result":"Done.","session_id":"u-1","duration_ms":5}
"""
GEMINI = """
{"type":"init","session_id":"g-1","model":"m"}
{"type":"message","role":"user","content":"the prompt"}
{"type":"message","role":"assistant","content":"I look first.","delta":true}
{"type":"tool_use","tool_name":"run_shell_command","tool_id":"t","parameters":{"command":"make test"}}
{"type":"tool_result","tool_id":"t","status":"success"}
{"type":"message","role":"assistant","content":"Do","delta":true}
{"type":"message","role":"assistant","content":"ne.","delta":true}
{"type":"result","status":"success","stats":{"total_tokens":1}}
"""
OPENCODE = """
{"type":"step_start","sessionID":"o-1","part":{"type":"step-start"}}
{"type":"tool_use","sessionID":"o-1","part":{"tool":"bash","state":{"status":"completed","title":"make test","input":{}}}}
{"type":"step_finish","sessionID":"o-1","part":{"reason":"tool-calls","cost":0.1,"tokens":{}}}
{"type":"text","sessionID":"o-1","part":{"type":"text","text":"Done."}}
{"type":"step_finish","sessionID":"o-1","part":{"reason":"stop","cost":0.2,"tokens":{}}}
"""
GPTME = """
{"role":"user","content":"the prompt"}
{"role":"assistant","content":"I look first."}
{"role":"assistant","content":"Done."}
"""


def transcript(client: str, lines: str) -> Transcript:
    """What a client's lines say."""
    seen = Transcript()
    for line in lines.split("\n"):
        if line:
            CLIENTS[client].read(json.loads(line), seen)
    return seen


def verdict(client: str, *events: dict[str, Any], code: int = 0, stop: Stop | None = None) -> Any:
    """The verdict on an agent that wrote these lines."""
    seen = transcript(client, "\n".join(map(json.dumps, events)))
    return judge(CLIENTS[client], seen, Ended(code, ""), stop, has_result=False)


@pytest.mark.parametrize(
    ("client", "lines", "session", "turns", "cost", "activity"),
    [
        ("claude", CLAUDE, "c-1", 2, 0.31, "Done."),
        ("codex", CODEX, "x-1", 1, None, "Done."),
        ("cursor", CURSOR, "u-1", 0, None, "Done."),
        ("gemini", GEMINI, "g-1", 2, None, "Done."),
        ("opencode", OPENCODE, "o-1", 2, pytest.approx(0.3), "Done."),
        ("gptme", GPTME, "", 2, None, "Done."),
    ],
)
def test_a_session_that_ends_well(
    client: str, lines: str, session: str, turns: int, cost: float | None, activity: str
) -> None:
    seen = transcript(client, lines)
    assert result_of(seen) == "Done."
    assert (seen.agent_session, seen.turns, seen.cost_usd) == (session, turns, cost)
    assert seen.activity == activity
    assert judge(CLIENTS[client], seen, Ended(0, ""), None, has_result=False).outcome is None


@pytest.mark.parametrize(
    ("client", "lines", "activity"),
    [
        ("claude", CLAUDE.split("\n")[3], "Bash: make test"),
        ("claude", CLAUDE.split("\n")[5], "tries again after overloaded (1/10)"),
        ("codex", CODEX.split("\n")[4], "make test"),
        ("codex", CODEX.split("\n")[6], "edits app.py"),
        ("cursor", CURSOR.split("\n")[2], "shell: make test"),
        ("gemini", GEMINI.split("\n")[4], "run_shell_command: make test"),
        ("opencode", OPENCODE.split("\n")[2], "make test"),
    ],
)
def test_the_last_tool_is_shown(client: str, lines: str, activity: str) -> None:
    assert transcript(client, lines).activity == activity


RESULT = {"type": "result", "subtype": "success", "is_error": True, "num_turns": 1}


@pytest.mark.parametrize(
    ("client", "events", "code", "outcome"),
    [
        ("claude", [{**RESULT, "result": "x"}], 0, "failed"),
        ("claude", [{**RESULT, "is_error": False, "result": "x"}], 1, "failed"),
        ("claude", [{**RESULT, "subtype": "error_during_execution"}], 1, "failed"),
        ("claude", [{**RESULT, "subtype": "error_max_turns"}], 1, "cut_off"),
        ("claude", [{**RESULT, "subtype": "error_max_budget_usd"}], 1, "cut_off"),
        ("claude", [{**RESULT, "result": "Overloaded", "api_error_status": 529}], 0, "limit_reached"),
        ("claude", [{**RESULT, "result": "You've hit your weekly limit"}], 1, "limit_reached"),
        ("claude", [{**RESULT, "result": "x", "api_error_status": 401}], 1, "not_allowed"),
        ("claude", [{**RESULT, "result": "Credit balance is too low"}], 1, "not_allowed"),
        (
            "claude",
            [{"type": "assistant", "error": "billing_error", "message": {}}, {**RESULT, "result": ""}],
            1,
            "not_allowed",
        ),
        ("codex", [{"type": "turn.failed", "error": {"message": "the model refused"}}], 1, "failed"),
        (
            "codex",
            [{"type": "turn.failed", "error": {"message": "You've hit your usage limit."}}],
            1,
            "limit_reached",
        ),
        (
            "codex",
            [
                {"type": "error", "message": "unexpected status 401 Unauthorized"},
                {"type": "turn.failed", "error": {}},
            ],
            1,
            "not_allowed",
        ),
        ("codex", [{"type": "turn.started"}], 0, "failed"),
        (
            "gemini",
            [{"type": "result", "status": "error", "error": {"message": "quota was exceeded"}}],
            1,
            "limit_reached",
        ),
        ("gemini", [], 53, "cut_off"),
        ("gemini", [], 41, "not_allowed"),
        ("gemini", [], 42, "failed"),
        (
            "opencode",
            [{"type": "error", "error": {"name": "APIError", "data": {"message": "m", "statusCode": 429}}}],
            0,
            "limit_reached",
        ),
        ("cursor", [{**RESULT, "result": "x"}], 0, "failed"),
    ],
)  # fmt: skip
def test_every_way_to_fail(
    client: str, events: list[dict[str, Any]], code: int, outcome: str
) -> None:
    assert verdict(client, *events, code=code).outcome == outcome


def test_a_limit_that_was_waited_out_is_no_failure() -> None:
    rejected = {"type": "rate_limit_event", "rate_limit_info": {"status": "rejected"}}
    assert verdict("claude", rejected, {**RESULT, "is_error": False}).outcome is None


def test_a_limit_says_when_it_ends() -> None:
    info = {"status": "rejected", "resetsAt": 1_900_000_000}
    seen = transcript("claude", json.dumps({"type": "rate_limit_event", "rate_limit_info": info}))
    assert (seen.trouble, seen.resets_at) == (Trouble.LIMIT, 1_900_000_000.0)


@pytest.mark.parametrize(
    ("stop", "finished", "outcome"),
    [
        (Stop.LINGERED, True, None),
        (Stop.IDLE, False, Outcome.HUNG),
        (Stop.TIMEOUT, False, Outcome.CUT_OFF),
        (Stop.TIMEOUT, True, None),
        (Stop.TURNS, False, Outcome.CUT_OFF),
        (Stop.COST, False, Outcome.CUT_OFF),
        (Stop.SIGNAL, False, Outcome.INTERRUPTED),
        (Stop.SIGNAL, True, Outcome.INTERRUPTED),
    ],
)
def test_an_agent_that_was_ended(stop: Stop, finished: bool, outcome: Outcome | None) -> None:
    events = [{**RESULT, "is_error": False}] if finished else []
    assert verdict("claude", *events, code=-15, stop=stop).outcome == outcome


@pytest.mark.parametrize("client", list(CLIENTS))
def test_no_line_of_any_shape_breaks_a_reader(client: str) -> None:
    shapes: list[Any] = [None, 1, "x", [], {}, [1], {"a": 1}]
    kinds = ["assistant", "result", "item.completed", "message", "error", "tool_use", "tool_call"]
    for kind in [*kinds, "rate_limit_event", "step_finish", "text", "turn.failed"]:
        for shape in shapes:
            keys = ("message", "item", "part", "error", "tool_call", "rate_limit_info", "content")
            event = {"type": kind, "role": "assistant", **dict.fromkeys(keys, shape)}
            for subtype in (None, "started"):
                seen = Transcript()
                with suppress(TypeError, ValueError, AttributeError, KeyError):  # that is logged
                    CLIENTS[client].read({**event, "subtype": subtype}, seen)


def test_text_that_speaks_of_a_limit_or_of_keys_is_understood() -> None:
    assert trouble_of("litellm.RateLimitError: too many") is Trouble.LIMIT
    assert trouble_of("HTTP status 529") is Trouble.LIMIT
    assert trouble_of("error code: 401") is Trouble.NOT_ALLOWED
    assert trouble_of("invalid x-api-key") is Trouble.NOT_ALLOWED
    assert trouble_of("429 files were changed, and line 401 fails") is None


# The result, where the agent names none


def test_the_last_json_line_then_the_last_words_are_the_result() -> None:
    seen = Transcript()
    seen.output = b"x" * 100_000 + b"the end\n"
    assert result_of(seen) == "x" * (4096 - 8) + "the end"
    seen.last_json = {"n": 1}
    assert result_of(seen) == {"n": 1}
    seen.answer = "the answer"
    assert result_of(seen) == "the answer"


# Command lines

VALUES = {
    "prompt": "Do it", "prompt_file": "/t/prompt", "task": "A-1", "generation": "3", "session": "uuid",
    "worktree": "/w", "branch": "b", "result": "/t/result", "log": "/l", "max_turns": "9", "max_cost": "1.50", "git_folders": '["/g"]',
}  # fmt: skip


def line_of(name: str | None = None, **options: Any) -> tuple[list[str], bool]:
    """The command line of an agent, and whether its prompt comes on stdin."""
    given = {
        "command": None,
        "agent_args": "",
        "shell": False,
        "max_turns": None,
        "max_cost": None,
        "worktree": False,
    }
    _, template = agent_of({"client_name": name, **given, **options})
    return template.fill(VALUES), not template.takes_prompt


@pytest.mark.parametrize(
    ("name", "options", "line", "stdin"),
    [
        ("claude", {}, "claude -p --output-format stream-json --verbose --permission-mode acceptEdits --session-id uuid", True),
        ("claude", {"max_turns": 9, "max_cost": 1.5}, "claude -p --output-format stream-json --verbose --permission-mode acceptEdits --session-id uuid --max-turns 9 --max-budget-usd 1.50", True),
        ("claude", {"worktree": True}, "claude -p --output-format stream-json --verbose --permission-mode acceptEdits --session-id uuid --allowedTools Bash(git_add:*),Bash(git_commit:*)", True),
        ("codex", {}, "codex exec --json --skip-git-repo-check --sandbox workspace-write -", True),
        ("codex", {"agent_args": "-m gpt -c 'x={1}'"}, "codex exec --json --skip-git-repo-check --sandbox workspace-write -m gpt -c x={1} -", True),
        ("codex", {"worktree": True}, 'codex exec --json --skip-git-repo-check --sandbox workspace-write -c sandbox_workspace_write.writable_roots=["/g"] -', True),
        ("cursor", {}, "cursor-agent -p --force --approve-mcps --output-format stream-json Do_it", False),
        ("gemini", {}, "gemini -o stream-json --approval-mode yolo --skip-trust --session-id uuid -p Do_it", False),
        ("opencode", {}, "opencode run --format json --auto Do_it", False),
        ("gptme", {}, "gptme -n --output-format json --name uuid Do_it", False),
        ("aider", {}, "aider --yes-always --message-file /t/prompt", False),
        ("goose", {"max_turns": 9}, "goose run --no-session -i /t/prompt --max-turns 9", False),
    ],
)  # fmt: skip
def test_the_command_line_of_every_agent(
    name: str, options: dict[str, Any], line: str, stdin: bool
) -> None:
    words = [word.replace("Do_it", "Do it").replace("git_", "git ") for word in line.split()]
    assert line_of(name, **options) == (words, stdin)


def test_a_template_is_split_as_a_shell_does_and_filled_once() -> None:
    template = Template.parse("agent 'a b' {task}@{generation} {{task}} {prompt}")
    assert template.fill({**VALUES, "prompt": "{task} $(x)"}) == [
        "agent", "a b", "A-1@3", "{task}", "{task} $(x)",
    ]  # fmt: skip


def test_a_shell_gets_fields_as_single_words() -> None:
    template = Template.parse("agent {prompt} > {log}", shell=True)
    assert template.fill({**VALUES, "prompt": "it's; rm -rf"}) == [
        "sh", "-c", """agent 'it'"'"'s; rm -rf' > /l""",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("agent {promt}", r"no field \{promt\}; there are \{prompt\}, \{prompt_file\}"),
        ("agent {", "write {{ for the character itself"),
        ("agent }", "write }} for the character itself"),
        ("agent 'x", "cannot be split"),
        ("  ", "the command is empty"),
    ],
)
def test_a_template_that_cannot_be_is_refused(text: str, told: str) -> None:
    with pytest.raises(BadArgument, match=told):
        Template.parse(text)


def test_a_prompt_of_128_kib_is_no_argument_and_one_byte_less_is() -> None:
    template = Template.parse("agent {prompt}")
    assert template.fill({**VALUES, "prompt": "x" * 131_071})[1] == "x" * 131_071
    with pytest.raises(PromptTooLong, match=r"use \{prompt_file\} in place of \{prompt\}"):
        template.fill({**VALUES, "prompt": "x" * 131_072})


def test_any_other_command_has_a_reader_of_nothing() -> None:
    seen = Transcript()
    OTHER.read({"type": "result", "is_error": True}, seen)
    assert not seen.failed
