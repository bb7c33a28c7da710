"""The dispatcher: a message in, a reply or work to do out, in both eras of the protocol."""

from __future__ import annotations

import json
from typing import Any

import pytest

from genlock.mcp import guide, protocol, tools
from genlock.mcp.answer import Answer
from tests.mcp.messages import ENVELOPE, ERAS, error, handled, message, result


@pytest.mark.parametrize("version", ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"])
def test_a_handshake_is_answered_with_the_version_that_was_asked_for(version: str) -> None:
    answer = result("initialize", protocolVersion=version, capabilities={}, clientInfo={})
    assert answer["protocolVersion"] == version
    assert answer["capabilities"] == {"tools": {}, "resources": {}, "prompts": {}}
    assert answer["serverInfo"]["name"] == "genlock"


@pytest.mark.parametrize("version", ["2026-07-28", "1999-01-01", None, 5])
def test_a_handshake_for_an_unknown_version_is_offered_the_newest(version: Any) -> None:
    assert result("initialize", protocolVersion=version)["protocolVersion"] == "2025-11-25"


def test_a_handshake_tells_the_name_of_the_client() -> None:
    data = message("initialize", clientInfo={"name": "claude-code", "version": "2"})
    found = protocol.handle(data)
    assert isinstance(found, protocol.Initialized)
    assert found.client == "claude-code"


def test_discovery_names_the_modern_versions_and_says_how_long_to_keep_the_answer() -> None:
    answer = result("server/discover", "modern")
    assert answer["supportedVersions"] == ["2026-07-28"]
    assert answer["resultType"] == "complete"
    assert answer["cacheScope"] == "private"
    assert answer["ttlMs"] == 3_600_000
    assert answer["_meta"]["io.modelcontextprotocol/serverInfo"]["name"] == "genlock"


@pytest.mark.parametrize("era", ERAS)
def test_lists_are_the_same_in_both_eras(era: str) -> None:
    assert [tool["name"] for tool in result("tools/list", era)["tools"]] == [
        "claim",
        "submit",
        "release",
        "progress",
        "spawn",
        "add",
        "show",
        "list",
    ]
    assert [one["uri"] for one in result("resources/list", era)["resources"]] == ["genlock://plan"]
    (template,) = result("resources/templates/list", era)["resourceTemplates"]
    assert template["uriTemplate"] == "genlock://task/{id}"
    (prompt,) = result("prompts/list", era)["prompts"]
    assert prompt["name"] == "work"


def test_only_modern_answers_have_a_result_type() -> None:
    assert "resultType" not in result("tools/list")
    assert "_meta" not in result("tools/list")
    assert result("tools/list", "modern")["resultType"] == "complete"


@pytest.mark.parametrize("era", ERAS)
def test_the_prompt_teaches_the_loop(era: str) -> None:
    (said,) = result("prompts/get", era, name="work", arguments={"track": "A"})["messages"]
    assert said["role"] == "user"
    assert "track='A'" in said["content"]["text"]
    for tool in ("claim", "submit", "release", "spawn"):
        assert (
            f"Call {tool}" in said["content"]["text"] or f"call {tool}" in said["content"]["text"]
        )


def test_ping_is_of_the_first_era_only() -> None:
    assert result("ping") == {}
    assert error(message("ping", "modern")) == (1, -32601)


@pytest.mark.parametrize("era", ERAS)
def test_a_call_becomes_work_with_checked_arguments(era: str) -> None:
    work = handled(
        message("tools/call", era, name="submit", arguments={"task": "A", "generation": "2"})
    )
    assert work.asked == tools.Submit(task="A", generation=2)
    reply = json.loads(work.reply(Answer("done", facts={"reason": "ACCEPTED"})).body)["result"]
    assert reply["content"] == [{"type": "text", "text": "done"}]
    assert reply["isError"] is False
    assert reply["_meta"]["genlock/facts"] == {"reason": "ACCEPTED"}


@pytest.mark.parametrize(
    ("name", "arguments", "told"),
    [
        ("submit", {"task": "A"}, "generation"),
        ("submit", {"task": "A", "generation": 0}, ">= 1"),
        ("submit", {"task": "A", "generation": "x"}, "int"),
        ("claim", {"tsak": "A"}, "tsak"),
        ("claim", {"wait_seconds": 46}, "<= 45"),
        ("spawn", {"task": "A", "generation": 1, "subtasks": []}, "length >= 1"),
        ("list", {"what": "everything"}, "everything"),
        ("add", {"id": "A"}, "title"),
    ],
)
def test_wrong_arguments_are_an_error_that_names_them_and_what_the_tool_takes(
    name: str, arguments: dict[str, Any], told: str
) -> None:
    answer = result("tools/call", name=name, arguments=arguments)
    assert answer["isError"] is True
    text = answer["content"][0]["text"]
    assert text.startswith("BAD_ARGUMENT: ")
    assert told in text
    assert f"{name} takes {tools.TOOLS[name].__struct_fields__[0]}" in text


@pytest.mark.parametrize(
    ("method", "params"),
    [
        ("tools/call", {"name": "nope"}),
        ("tools/call", {}),
        ("tools/call", {"name": ["claim"]}),
        ("tools/call", {"name": "claim", "arguments": "next"}),
        ("resources/read", {"uri": "genlock://nope"}),
        ("resources/read", {"uri": "genlock://task/"}),
        ("resources/read", {"uri": "file:///etc/passwd"}),
        ("resources/read", {}),
        ("prompts/get", {"name": "nope"}),
    ],
)
@pytest.mark.parametrize("era", ERAS)
def test_what_does_not_exist_is_an_error_of_the_parameters(
    era: str, method: str, params: dict[str, Any]
) -> None:
    assert error(message(method, era, **params)) == (1, -32602)


@pytest.mark.parametrize(
    "method", ["foo", "sampling/createMessage", "subscriptions/listen", "logging/setLevel", ""]
)
@pytest.mark.parametrize("era", ERAS)
def test_an_unknown_method_is_said_to_be_unknown(era: str, method: str) -> None:
    assert error(message(method, era)) == (1, -32601)


@pytest.mark.parametrize(
    ("data", "number", "code"),
    [
        (b"", None, -32700),
        (b"{", None, -32700),
        (b"garbage", None, -32700),
        (b"\xff\xfe", None, -32700),
        (b"[" * 100_000, None, -32700),
        (b"[]", None, -32600),
        (b'[{"jsonrpc":"2.0","id":1,"method":"ping"}]', None, -32600),
        (b"1", None, -32600),
        (b'{"id":7}', 7, -32600),
        (b'{"jsonrpc":"1.0","id":7,"method":"ping"}', 7, -32600),
        (b'{"jsonrpc":"2.0","id":7,"method":5}', 7, -32600),
        (b'{"jsonrpc":"2.0","id":7,"result":{}}', 7, -32600),
        (b'{"jsonrpc":"2.0","id":null,"method":"ping"}', None, -32600),
        (b'{"jsonrpc":"2.0","id":1.5,"method":"ping"}', None, -32600),
        (b'{"jsonrpc":"2.0","id":true,"method":"ping"}', None, -32600),
        (b'{"jsonrpc":"2.0","id":{},"method":"ping"}', None, -32600),
        (b'{"jsonrpc":"2.0","id":7,"method":"ping","params":[]}', 7, -32602),
        (b'{"jsonrpc":"2.0","id":"x","method":"ping","params":null}', "x", -32602),
    ],
)
def test_a_message_of_a_wrong_form_is_answered_with_its_error(
    data: bytes, number: Any, code: int
) -> None:
    assert error(data) == (number, code)


def test_a_notification_is_never_answered() -> None:
    for method in ("notifications/initialized", "notifications/progress", "whatever"):
        assert handled(json.dumps({"jsonrpc": "2.0", "method": method}).encode()) is None


@pytest.mark.parametrize("number", [5, "five"])
def test_a_cancelled_request_is_named(number: int | str) -> None:
    params = {"requestId": number, "reason": "no longer wanted"}
    data = {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": params}
    assert handled(json.dumps(data).encode()) == protocol.Cancelled(number)


@pytest.mark.parametrize("params", [{}, {"requestId": None}, {"requestId": []}])
def test_a_cancellation_of_nothing_is_ignored(params: dict[str, Any]) -> None:
    data = {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": params}
    assert handled(json.dumps(data).encode()) is None


def test_a_modern_request_without_capabilities_is_refused() -> None:
    meta = {"io.modelcontextprotocol/protocolVersion": "2026-07-28"}
    data = {"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {"_meta": meta}}
    assert error(json.dumps(data).encode()) == (1, -32602)


def test_a_modern_request_of_an_unknown_version_is_told_the_supported_ones() -> None:
    meta = ENVELOPE | {"io.modelcontextprotocol/protocolVersion": "2027-01-01"}
    data = {"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {"_meta": meta}}
    said = handled(json.dumps(data).encode())["error"]
    assert said["code"] == -32022
    assert said["data"] == {"supported": ["2026-07-28"], "requested": "2027-01-01"}


def test_the_tools_cost_a_conversation_less_than_two_thousand_tokens() -> None:
    shown = json.dumps(result("tools/list")["tools"], separators=(",", ":"))
    assert len(shown) / 4 < 2000
    assert len(tools.TOOLS) <= 8


@pytest.mark.parametrize("tool", tools.listed(), ids=lambda tool: tool["name"])
def test_every_tool_says_that_it_destroys_nothing_and_may_be_repeated(tool: dict[str, Any]) -> None:
    assert tool["annotations"] == {
        "readOnlyHint": tool["name"] in ("show", "list"),
        "destructiveHint": False,
        "idempotentHint": True,
        "openWorldHint": False,
    }


@pytest.mark.parametrize("tool", tools.listed(), ids=lambda tool: tool["name"])
def test_a_schema_stands_alone_and_every_argument_of_it_has_a_type(tool: dict[str, Any]) -> None:
    shown = json.dumps(tool)
    assert "$ref" not in shown
    assert '"null"' not in shown
    for name, schema in tool["inputSchema"]["properties"].items():
        assert "type" in schema or name == "result"


def test_the_instructions_are_not_cut_by_clients() -> None:
    assert len(guide.INSTRUCTIONS) <= 2000


def test_invisible_characters_of_an_answer_are_escaped() -> None:
    work = handled(message("tools/call", name="show", arguments={"task": "A"}))
    body = work.reply(Answer("a\u202eb\U000e0041")).body
    assert b"\\u202e" in body
    assert json.loads(body)["result"]["content"][0]["text"] == "a\u202eb\U000e0041"
