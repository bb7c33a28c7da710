"""SC's stream: the claims of the project that /api acts on, in SC's words, and whatever is wrong in
SC's shape."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from genlock.service.compose import Choices
from tests.logs import build
from tests.servers.service import Service, serving
from tests.service.events.streaming import Client
from tests.service.pipeline import Pipeline, Request


@pytest.fixture(scope="module")
def service() -> Iterator[Service]:
    with serving(
        app=lambda fleet: build(fleet, Choices(api_tenant="acme", api_project="web"))
    ) as service:
        yield service


def port_of(service: Service) -> int:
    return int(service.url.rpartition(":")[2])


def test_what_is_claimed_and_released_under_api_comes_in_its_words(service: Service) -> None:
    pipeline = Pipeline(port_of(service))
    with Client(port_of(service), "/api/events") as client:
        assert (client.status, client.headers["content-type"]) == (
            200,
            "text/event-stream; charset=utf-8",
        )
        for place in ("acme/web", "default/default"):
            next(pipeline.ask([Request("POST", f"/v1/{place}/tasks", {"tasks": ["a-1", "a-2"]})]))
        elsewhere = Request(
            "POST", "/v1/default/default/tasks/a-1/claim", {"session_id": "s", "agent_id": "s"}
        )
        acts = [
            ("claim", {}),
            ("release", {"reason": "paused"}),
            ("claim", {}),
            ("release", {"reason": "completed"}),
        ]
        asked = [
            Request("POST", f"/api/tasks/a-2/{verb}", {"sessionId": "s", **more})
            for verb, more in acts
        ]
        assert [answer.status for answer in pipeline.ask([elsewhere, *asked])] == [200] * 5
        assert [event.data for event in client.take(4)] == [
            {"type": "task:claimed", "data": {"taskId": "a-2", "sessionId": "s"}},
            {
                "type": "task:released",
                "data": {"taskId": "a-2", "reason": "paused", "canonicalReason": "voluntary"},
            },
            {"type": "task:claimed", "data": {"taskId": "a-2", "sessionId": "s"}},
            {"type": "task:released", "data": {"taskId": "a-2", "reason": "completed"}},
        ]
        last = client.last
    with Client(port_of(service), "/api/events", last=last) as client:
        next(pipeline.ask([Request("POST", "/api/tasks/a-1/claim", {"sessionId": "s"})]))
        assert client.take(1)[0].data["data"]["taskId"] == "a-1"
    pipeline.close()


@pytest.mark.parametrize(
    ("method", "query", "status", "code"),
    [
        ("GET", "?after=nonsense", 400, "BAD_ARGUMENT"),
        ("GET", "?since=now", 400, "BAD_ARGUMENT"),
        ("GET", "?project=web", 400, "BAD_ARGUMENT"),
        ("GET", "?shape=odd", 400, "BAD_ARGUMENT"),
        ("POST", "", 405, "METHOD_REFUSED"),
    ],
)
def test_what_is_wrong_is_said_in_the_shape_of_all_of_api(
    service: Service, method: str, query: str, status: int, code: str
) -> None:
    with Client(port_of(service), f"/api/events{query}", method=method) as client:
        assert (client.status, client.headers["content-type"]) == (status, "application/json")
        answer = client.body()
        assert (answer["success"], answer["error"]) == (False, code)
        assert answer["message"]
