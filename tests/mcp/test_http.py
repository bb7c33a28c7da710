"""`/mcp` on the service: who may do what by which key, both eras by their headers, and what is no
message."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import httpx2
import pytest

from genlock.service.compose import Choices
from tests.eventually import eventually
from tests.mcp.messages import ERAS, message
from tests.servers.service import Service, serving

MODERN = {"mcp-protocol-version": "2026-07-28", "mcp-method": "tools/call", "mcp-name": "claim"}
JSON = {"content-type": "application/json"}


class Mcp:
    """A service whose requests need keys, with two tasks in the project `web` of `acme`."""

    def __init__(self, service: Service) -> None:
        self.service = service
        self.keys: dict[str, str] = {}
        tasks = [{"id": "A-001-first", "title": "First"}, {"id": "A-002-second"}]
        for project in ("web", "other"):
            self._do("add_tasks", tasks=tasks, project_id=project)
        for role in ("observer", "agent", "operator"):
            self._make_key(role, role)
        self._make_key("bound", "agent", session_id="s-own")

    def _do(self, operation: str, **arguments: Any) -> Any:
        call = getattr(self.service.coordinator, operation)
        return self.service.do(call(tenant_id="acme", **arguments))

    def _make_key(self, name: str, role: str, **more: Any) -> None:
        made = self._do("create_key", name=name, role=role, projects="web", **more)
        self.keys[name] = made.text

    def post(
        self, data: bytes, key: str | None = "agent", query: str = "", **headers: str
    ) -> httpx2.Response:
        """The answer to a body."""
        sent = JSON | {name.replace("_", "-"): value for name, value in headers.items()}
        if key is not None:
            sent["authorization"] = f"Bearer {self.keys.get(key, key)}"
        return self.service.http.post(f"/mcp{query}", content=data, headers=sent)

    def call(self, tool: str, key: str = "agent", query: str = "", **arguments: Any) -> Any:
        """A tool's result for this key."""
        data = message("tools/call", name=tool, arguments=arguments)
        answer = self.post(data, key, query)
        assert answer.status_code == 200, answer.text
        return answer.json()["result"]

    def reason(self, tool: str, key: str = "agent", **arguments: Any) -> str:
        facts: dict[str, str] = self.call(tool, key, **arguments)["_meta"]["genlock/facts"]
        return facts["reason"]

    def claim_of(self, task: str) -> Any:
        return self._do("get_task_state", task_id=task, project_id="web").claim


@pytest.fixture
def mcp() -> Iterator[Mcp]:
    with serving(choices=Choices(keys=True)) as service:
        yield Mcp(service)


@pytest.mark.parametrize("key", [None, "glk_wrong", "garbage"])
def test_a_request_without_a_good_key_is_refused(mcp: Mcp, key: str | None) -> None:
    answer = mcp.post(message("tools/list"), key)
    assert answer.status_code == 401
    assert answer.headers["www-authenticate"] == 'Bearer realm="genlock"'


WORKER = {"task": "A-001-first", "generation": 1}
ALLOWED: list[tuple[str, dict[str, Any], list[str]]] = [
    ("claim", {}, ["agent", "operator"]),
    ("claim", {"task": "A-001-first"}, ["agent", "operator"]),
    ("submit", WORKER, ["agent", "operator"]),
    ("release", WORKER, ["agent", "operator"]),
    ("progress", WORKER, ["agent", "operator"]),
    ("spawn", {**WORKER, "subtasks": ["x"]}, ["agent", "operator"]),
    ("add", {"id": "A-009-new", "title": "New"}, ["operator"]),
    ("show", {"task": "A-001-first"}, ["observer", "agent", "operator"]),
    ("list", {}, ["observer", "agent", "operator"]),
    ("list", {"what": "working"}, ["observer", "agent", "operator"]),
]


@pytest.mark.parametrize("role", ["observer", "agent", "operator"])
@pytest.mark.parametrize(("tool", "arguments", "roles"), ALLOWED)
def test_a_tool_needs_the_role_of_its_operations(
    mcp: Mcp, tool: str, arguments: dict[str, Any], roles: list[str], role: str
) -> None:
    result = mcp.call(tool, role, **arguments)
    facts = result.get("_meta", {}).get("genlock/facts", {})
    assert (facts.get("reason") == "ROLE_REFUSED") is (role not in roles)
    if role not in roles:
        assert result["isError"] is True
        assert f"this key has the role {role}" in result["content"][0]["text"]


def test_a_key_acts_for_its_own_session_alone(mcp: Mcp) -> None:
    assert mcp.reason("claim", "bound") == "GRANTED"
    assert mcp.claim_of("A-001-first").session_id == "s-own"
    data = message("tools/call", name="claim", arguments={})
    facts = mcp.post(data, "agent", genlock_session="s-own").json()["result"]["_meta"]
    assert facts["genlock/facts"]["reason"] == "ROLE_REFUSED"


def test_agents_are_told_apart_by_their_keys(mcp: Mcp) -> None:
    assert mcp.reason("claim", "agent") == "GRANTED"
    assert mcp.reason("claim", "agent") == "ALREADY_HELD"
    assert mcp.reason("claim", "operator") == "GRANTED"
    assert mcp.claim_of("A-001-first").agent_id == "agent"
    assert mcp.claim_of("A-001-first").session_id.startswith("key-")


def test_no_other_agents_key_acts_for_the_session_of_a_key(mcp: Mcp) -> None:
    """The session that a key is by itself can be read by everybody who looks who works on what."""
    mcp._make_key("rival", "agent")
    assert mcp.reason("claim", "agent") == "GRANTED"
    held = mcp.claim_of("A-001-first")
    task = {"task": "A-001-first", "generation": held.generation}
    for tool in ("submit", "progress", "release"):
        data = message("tools/call", name=tool, arguments=task)
        answer = mcp.post(data, "rival", genlock_session=held.session_id).json()["result"]
        assert answer["_meta"]["genlock/facts"]["reason"] == "ROLE_REFUSED", tool
    over_http = mcp.service.http.post(
        "/v1/acme/web/tasks/A-001-first/submit",
        json={"generation": held.generation, "session_id": held.session_id},
        headers={"authorization": f"Bearer {mcp.keys['rival']}"},
    )
    assert (over_http.status_code, over_http.json()["code"]) == (403, "ROLE_REFUSED")
    assert mcp.claim_of("A-001-first") == held
    assert mcp.reason("submit", "agent", **task) == "ACCEPTED"


def test_a_header_names_the_session(mcp: Mcp) -> None:
    data = message("tools/call", name="claim", arguments={})
    mcp.post(data, genlock_session="mine", genlock_agent="ada")
    claim = mcp.claim_of("A-001-first")
    assert (claim.session_id, claim.agent_id) == ("mine", "ada")


def test_without_a_session_a_claim_says_how_to_name_one_and_reads_need_none() -> None:
    with serving() as service:
        service.do(service.coordinator.add_tasks(tasks=["A-001-first"]))

        def call(tool: str) -> Any:
            data = message("tools/call", name=tool, arguments={})
            return service.http.post("/mcp", content=data, headers=JSON).json()["result"]

        refused = call("claim")
        assert refused["isError"] is True
        assert "header genlock-session" in refused["content"][0]["text"]
        assert call("list")["isError"] is False


def test_the_project_is_the_keys_own_or_named_in_the_address(mcp: Mcp) -> None:
    assert "First" in mcp.call("show", task="A-001-first")["content"][0]["text"]
    answer = mcp.post(message("tools/list"), query="?project=other")
    assert (answer.status_code, answer.json()["code"]) == (404, "ROUTE_NOT_FOUND")
    assert mcp.post(message("tools/list"), query="?tenant=acme&project=web").status_code == 200
    assert mcp.post(message("tools/list"), query="?tenant=globex").status_code == 404
    answer = mcp.post(message("tools/list"), query="?projekt=web")
    assert (answer.status_code, "not 'projekt'" in answer.text) == (400, True)


@pytest.mark.parametrize("method", ["GET", "DELETE", "PUT"])
def test_only_post_is_taken(mcp: Mcp, method: str) -> None:
    headers = {"authorization": f"Bearer {mcp.keys['agent']}", "accept": "text/event-stream"}
    answer = mcp.service.http.request(method, "/mcp", headers=headers)
    assert (answer.status_code, answer.headers["allow"]) == (405, "POST")


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"origin": "https://evil.example"}, 403),
        ({"origin": "null"}, 403),
        ({"host": "evil.example"}, 421),
        ({"content-type": "text/plain"}, 415),
    ],
)
def test_pages_of_other_sites_and_other_hosts_are_refused(
    mcp: Mcp, headers: dict[str, str], status: int
) -> None:
    sent = JSON | {"authorization": f"Bearer {mcp.keys['agent']}"} | headers
    data = message("tools/call", name="claim", arguments={})
    assert mcp.service.http.post("/mcp", content=data, headers=sent).status_code == status
    assert mcp.claim_of("A-001-first") is None


def test_the_page_of_the_service_itself_may_ask(mcp: Mcp) -> None:
    assert mcp.post(message("tools/list"), origin=mcp.service.url).status_code == 200


def modern(method: str, **params: Any) -> bytes:
    return message(method, "modern", **params)


CLAIM = modern("tools/call", name="claim", arguments={})


@pytest.mark.parametrize(
    ("data", "headers", "status", "code"),
    [
        (CLAIM, {"mcp-name": "list"}, 400, -32020),
        (CLAIM, {"mcp-method": "tools/list"}, 400, -32020),
        (CLAIM, {"mcp-protocol-version": "2027-01-01"}, 400, -32020),
        (CLAIM, {"mcp-name": "=?base64?!!?="}, 400, -32020),
        (message("tools/call", name="claim"), {}, 400, -32602),
        (modern("nope"), {"mcp-method": "nope"}, 404, -32601),
        (b"garbage", {}, 400, -32700),
        (b"[]", {}, 400, -32600),
        (b"", {}, 400, -32700),
    ],
)
def test_a_modern_request_whose_headers_or_form_are_wrong_is_refused(
    mcp: Mcp, data: bytes, headers: dict[str, str], status: int, code: int
) -> None:
    sent = {name.replace("-", "_"): value for name, value in (MODERN | headers).items()}
    answer = mcp.post(data, **sent)
    assert (answer.status_code, answer.json()["error"]["code"]) == (status, code)
    assert mcp.claim_of("A-001-first") is None


@pytest.mark.parametrize("name", ["claim", "=?base64?Y2xhaW0=?="])
def test_a_modern_request_whose_headers_are_right_is_answered(mcp: Mcp, name: str) -> None:
    sent = {key.replace("-", "_"): value for key, value in (MODERN | {"mcp-name": name}).items()}
    result = mcp.post(CLAIM, **sent).json()["result"]
    assert result["resultType"] == "complete"
    assert result["isError"] is False


def test_a_modern_body_without_the_headers_is_refused(mcp: Mcp) -> None:
    answer = mcp.post(CLAIM)
    assert answer.json()["error"]["code"] == -32020
    assert mcp.claim_of("A-001-first") is None


def test_an_unknown_method_of_the_first_era_is_answered_with_status_200(mcp: Mcp) -> None:
    """Older clients take 404 for the end of a session."""
    for data, status, code in (
        (b"garbage", 400, -32700),
        (message("resources/read"), 400, -32602),
        (message("nope"), 200, -32601),
    ):
        answer = mcp.post(data)
        assert (answer.status_code, answer.json()["error"]["code"]) == (status, code)


def test_a_notification_is_acknowledged_without_a_body(mcp: Mcp) -> None:
    data = json.dumps({"jsonrpc": "2.0", "method": "notifications/initialized"}).encode()
    answer = mcp.post(data)
    assert (answer.status_code, answer.content) == (202, b"")


def test_a_body_that_is_too_large_is_refused(mcp: Mcp) -> None:
    data = message("tools/call", name="submit", arguments={"result": "x" * (8 << 20)})
    assert mcp.post(data).status_code == 413


@pytest.mark.parametrize("era", ERAS)
def test_who_leaves_while_waiting_takes_no_task_along(mcp: Mcp, era: str) -> None:
    mcp.call("claim", "operator", task="A-001-first")
    mcp.call("claim", "bound", task="A-002-second")
    data = message("tools/call", era, name="claim", arguments={"wait_seconds": 45})
    headers = dict(MODERN) if era == "modern" else {}
    engine = mcp.service.coordinator.engine

    headers["authorization"] = f"Bearer {mcp.keys['agent']}"
    with mcp.service.client() as client, pytest.raises(httpx2.TimeoutException):
        client.post("/mcp", content=data, headers=JSON | headers, timeout=0.5)
    eventually(
        lambda: all(waiters == 0 for _, waiters in engine.depths().values()), "nobody to wait"
    )
    mcp.call("release", "operator", task="A-001-first", generation=1)
    assert mcp.claim_of("A-001-first") is None


def test_the_lease_is_the_agents_own_to_renew(mcp: Mcp) -> None:
    text = mcp.call("claim")["content"][0]["text"]
    assert "call progress at least every 100 s" in text
