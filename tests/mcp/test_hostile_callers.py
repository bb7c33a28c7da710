"""Callers of `/mcp` who want what is not theirs: another tenant's plan, another
agent's claim, a generation that was never granted."""

from __future__ import annotations

from typing import Any

import pytest

from genlock.service.compose import Choices
from tests.mcp.messages import message
from tests.mcp.test_http import Mcp
from tests.servers.service import serving

FENCE: dict[str, Any] = {"task": "A-001-first", "generation": 1}
CALLS: list[tuple[str, dict[str, Any]]] = [
    ("claim", {}),
    ("claim", {"task": "A-001-first"}),
    ("submit", FENCE),
    ("release", FENCE),
    ("progress", FENCE),
    ("spawn", {**FENCE, "subtasks": ["x"]}),
    ("add", {"id": "A-009-new", "title": "New"}),
    ("show", {"task": "A-001-first"}),
    ("list", {"what": "working"}),
]


def test_a_key_of_another_tenant_reaches_nothing_by_any_tool_or_address() -> None:
    with serving(choices=Choices(keys=True)) as service:
        mcp = Mcp(service)
        stranger = service.do(
            service.coordinator.create_key(
                tenant_id="rival", name="stranger", role="operator", projects="*"
            )
        )
        mcp.keys["stranger"] = stranger.text
        before = mcp._do("read_events", project_id="web").events
        for tool, arguments in CALLS:
            data = message("tools/call", name=tool, arguments=arguments)
            named = mcp.post(data, "stranger", "?tenant=acme&project=web", genlock_session="s-own")
            assert named.status_code == 404, tool
            own = mcp.post(data, "stranger", "?project=web", genlock_session="s-own")
            assert "First" not in named.text + own.text, tool
        for query in ("?tenant=acme&tenant=rival&project=web", "?project=web&tenant=acme"):
            data = message("resources/read", uri="genlock://task/A-001-first")
            assert "First" not in mcp.post(data, "stranger", query).text
        assert mcp._do("read_events", project_id="web").events == before


@pytest.mark.parametrize("tool", ["submit", "release", "progress", "spawn"])
def test_no_generation_but_the_one_that_was_granted_does_anything(tool: str) -> None:
    with serving(choices=Choices(keys=True)) as service:
        mcp = Mcp(service)
        assert mcp.reason("claim", "agent", task="A-001-first") == "GRANTED"
        mcp._do("force_release", task_id="A-001-first", take_over=True, project_id="web")
        assert mcp.reason("claim", "agent", task="A-001-first") == "GRANTED"
        held = mcp.claim_of("A-001-first")
        more: dict[str, Any] = {"subtasks": ["x"]} if tool == "spawn" else {}
        wrong: list[Any] = [-1, 0, 1, 3, 2**31, 2**63, 10**30, 2.5, "1", "02x", True, None, [2]]
        for generation in wrong:
            data = message(
                "tools/call",
                name=tool,
                arguments={"task": "A-001-first", "generation": generation, **more},
            )
            answer = mcp.post(data)
            assert answer.status_code == 200
            result = answer.json()["result"]
            assert result["isError"] is True, generation
        assert held.generation == 2
        assert mcp.claim_of("A-001-first") == held
