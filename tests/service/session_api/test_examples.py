"""SC's examples, request by request: what the document shows is what is answered, and `generation`
with it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from genlock import token_files
from genlock.service.auth.browser_sessions import LocalToken
from genlock.service.compose import Choices
from tests.service.process import header_in
from tests.service.session_api.served import Served, serving

TASK = "hierarchy-phase4-metrics"
METRICS = {
    "id": TASK,
    "title": "Phase 4: Delegation Metrics",
    "phase": "implementation",
    "priority": "medium",
}


@pytest.fixture(params=["with the header file", "trusting local users"])
def api(url: str, request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Served]:
    """Each request as it stands in the document, and with the header of the file that a service on
    loopback writes."""
    if request.param == "trusting local users":
        with serving(url) as served:
            yield served
        return
    token = LocalToken()
    written = token_files.write("http://127.0.0.1:8420", token.text, [tmp_path / "state"])
    with serving(url, choices=Choices(token=token)) as served:
        status, answer = served.get("/api/status")
        assert (status, answer["success"]) == (401, False), "without the header"
        served.http.headers.update(header_in(written.header))
        yield served


def test_a_claim_is_granted_as_in_the_document(api: Served) -> None:
    api.add(METRICS)
    asked = {"sessionId": "session-abc-123", "ttlMs": 1800000, "agentType": "autonomous"}
    assert api.post(f"/api/tasks/{TASK}/claim", asked) == (
        200,
        {
            "success": True,
            "claim": {
                "taskId": "hierarchy-phase4-metrics",
                "sessionId": "session-abc-123",
                "claimedAt": "2025-12-28T12:00:00Z",
                "expiresAt": "2025-12-28T12:30:00Z",
                "lastHeartbeat": "2025-12-28T12:00:00Z",
                "generation": 1,
            },
        },
    )


def test_a_claim_of_what_another_session_has_is_refused_as_in_the_document(api: Served) -> None:
    api.clock.advance(-900)
    api.add(METRICS)
    api.post(f"/api/tasks/{TASK}/claim", {"sessionId": "session-xyz-789"})
    api.clock.advance(600)
    api.post("/api/sessions/session-xyz-789/heartbeat")  # that the session lives extends no claim
    api.clock.advance(300)
    assert api.post(f"/api/tasks/{TASK}/claim", {"sessionId": "session-abc-123"}) == (
        409,
        {
            "success": False,
            "error": "TASK_ALREADY_CLAIMED",
            "message": "The task is held by another session or agent",
            "reason": "DENIED_ACTIVE_CLAIM",
            "claim": {
                "sessionId": "session-xyz-789",
                "claimedAt": "2025-12-28T11:45:00Z",
                "remainingMs": 900000,
                "lastHeartbeat": "2025-12-28T11:45:00Z",
            },
        },
    )


def test_a_release_is_answered_as_in_the_document(api: Served) -> None:
    api.add(METRICS)
    api.post(f"/api/tasks/{TASK}/claim", {"sessionId": "session-abc-123"})
    api.clock.advance(1800)
    assert api.post(
        f"/api/tasks/{TASK}/release", {"sessionId": "session-abc-123", "reason": "completed"}
    ) == (
        200,
        {
            "success": True,
            "released": {
                "taskId": "hierarchy-phase4-metrics",
                "reason": "completed",
                "claimDuration": 1800000,
            },
        },
    )


def test_a_heartbeat_is_answered_as_in_the_document(api: Served) -> None:
    api.add(METRICS)
    api.post(f"/api/tasks/{TASK}/claim", {"sessionId": "session-abc-123"})
    asked = {"sessionId": "session-abc-123", "extendMs": 1800000}
    for _ in range(2):
        api.clock.advance(900)
        assert api.post(f"/api/tasks/{TASK}/claim/heartbeat", asked)[0] == 200
    assert api.post(f"/api/tasks/{TASK}/claim/heartbeat", asked) == (
        200,
        {
            "success": True,
            "claim": {
                "expiresAt": "2025-12-28T13:00:00Z",
                "lastHeartbeat": "2025-12-28T12:30:00Z",
                "heartbeatCount": 3,
            },
        },
    )


def test_what_is_in_flight_is_listed_as_in_the_document(api: Served) -> None:
    api.add(METRICS, "second", "third")
    api.post(
        f"/api/tasks/{TASK}/claim", {"sessionId": "session-abc-123", "agentType": "autonomous"}
    )
    api.post("/api/tasks/second/claim", {"sessionId": "session-abc-123", "agentType": "cli"})
    api.post("/api/tasks/third/claim", {"sessionId": "session-xyz-789"})
    status, answer = api.get("/api/tasks/in-flight")
    assert status == 200
    assert answer["inFlight"][0] == {
        "taskId": "hierarchy-phase4-metrics",
        "task": {
            "title": "Phase 4: Delegation Metrics",
            "phase": "implementation",
            "priority": "medium",
        },
        "claim": {
            "sessionId": "session-abc-123",
            "claimedAt": "2025-12-28T12:00:00Z",
            "expiresAt": "2025-12-28T12:30:00Z",
            "lastHeartbeat": "2025-12-28T12:00:00Z",
            "agentType": "autonomous",
            "healthStatus": "healthy",
            "generation": 1,
        },
    }
    assert answer["summary"] == {
        "total": 3,
        "bySession": {"session-abc-123": 2, "session-xyz-789": 1},
    }
    assert "agentType" not in answer["inFlight"][2]["claim"]


def test_a_session_s_current_task_is_told_as_in_the_document(api: Served) -> None:
    api.add(METRICS)
    api.post(f"/api/tasks/{TASK}/claim", {"sessionId": "session-abc-123"})
    api.clock.advance(1200)
    api.post("/api/sessions/session-abc-123/heartbeat")
    api.clock.advance(600 - 240)
    assert api.get("/api/sessions/session-abc-123/current-task") == (
        200,
        {
            "sessionId": "session-abc-123",
            "currentTask": {
                "taskId": "hierarchy-phase4-metrics",
                "title": "Phase 4: Delegation Metrics",
                "claim": {
                    "claimedAt": "2025-12-28T12:00:00Z",
                    "lastHeartbeat": "2025-12-28T12:00:00Z",
                    "remainingMs": 240000,
                },
            },
        },
    )


def test_a_session_s_history_is_told_as_in_the_document(api: Served) -> None:
    api.clock.advance(-7200)
    api.add("hierarchy-phase3-auto-delegation", METRICS)
    claim = {"sessionId": "session-abc-123", "agentType": "autonomous", "ttlMs": 3600000}
    api.post("/api/tasks/hierarchy-phase3-auto-delegation/claim", claim)
    api.clock.advance(3599)
    api.post(
        "/api/tasks/hierarchy-phase3-auto-delegation/claim/heartbeat",
        {"sessionId": "session-abc-123"},
    )
    api.clock.advance(2701)
    api.post(
        "/api/tasks/hierarchy-phase3-auto-delegation/release",
        {"sessionId": "session-abc-123", "reason": "completed"},
    )
    api.clock.advance(900)
    api.post(f"/api/tasks/{TASK}/claim", claim)
    assert api.get("/api/sessions/summary") == (
        200,
        {
            "sessions": [
                {
                    "sessionId": "session-abc-123",
                    "active": True,
                    "lastActivity": "2025-12-28T12:00:00Z",
                    "currentTaskId": "hierarchy-phase4-metrics",
                    "currentTaskClaimedAt": "2025-12-28T12:00:00Z",
                    "claimHistory": [
                        {
                            "taskId": "hierarchy-phase3-auto-delegation",
                            "claimedAt": "2025-12-28T10:00:00Z",
                            "releasedAt": "2025-12-28T11:45:00Z",
                            "releaseReason": "completed",
                            "duration": 6300000,
                        }
                    ],
                    "tasksCompleted": 1,
                    "tasksTotal": 2,
                    "agentType": "autonomous",
                }
            ],
            "total": 1,
        },
    )
