"""With keys on, a session is acted for by its own key or by an operator's; what a key does not see
is not there."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from genlock.core.key_roles import Role
from genlock.service.auth.permissions import Grant
from genlock.service.session_api.routes import ROUTES, ApiRoute
from tests.service.session_api.served import Served, serving

KEYS = {
    "own": Grant("1", "own", "default", "*", Role.AGENT, "s"),
    "other": Grant("2", "other", "default", "*", Role.AGENT, "t"),
    "unbound": Grant("3", "unbound", "default", "*", Role.AGENT),
    "observer": Grant("4", "observer", "default", "*", Role.OBSERVER),
    "operator": Grant("5", "operator", "default", "*", Role.OPERATOR),
    "foreign": Grant("6", "foreign", "acme", "*", Role.ADMIN),
    "elsewhere": Grant("7", "elsewhere", "default", "web-*", Role.ADMIN),
}


@pytest.fixture
def locked() -> Iterator[Served]:
    with serving("memory://", keys=KEYS) as served:
        served.add("task")
        yield served


@pytest.fixture(scope="module")
def shared() -> Iterator[Served]:
    """For what leaves no trace."""
    with serving("memory://", keys=KEYS) as served:
        served.add("task")
        yield served


VERBS = ("claim", "release", "claim/heartbeat")


@pytest.mark.parametrize("key", ["own", "operator"])
def test_a_session_s_own_key_and_an_operator_s_act_for_it(locked: Served, key: str) -> None:
    for verb in ("claim", "claim/heartbeat", "release"):
        assert locked.post(f"/api/tasks/task/{verb}", {"sessionId": "s"}, key)[0] == 200
    assert locked.post("/api/sessions/s/heartbeat", {}, key)[0] == 200


@pytest.mark.parametrize("key", ["other", "unbound"])
def test_any_other_agent_s_key_is_not_the_claim_s_owner(locked: Served, key: str) -> None:
    paths = [
        *(f"/api/tasks/{task}/{verb}" for verb in VERBS for task in ("task", "nowhere")),
        "/api/sessions/s/heartbeat",
    ]
    for path in paths:
        status, answer = locked.post(path, {"sessionId": "s"}, key)
        assert (status, answer["success"], answer["error"]) == (403, False, "NOT_CLAIM_OWNER")
    assert locked.get("/api/tasks/claims/stats", key)[1]["total"] == 0


@pytest.mark.parametrize("route", ROUTES, ids=lambda route: route.name)
def test_every_route_asks_for_its_role(shared: Served, route: ApiRoute) -> None:
    path = "/api/" + route.path.replace("{name}", "s" if "sessions/" in route.path else "task")
    shared.post("/api/tasks/task/claim", {"sessionId": "s"}, "own")
    for key in ("observer", "own", "operator"):
        may = KEYS[key].may(route.role)
        status, answer = (
            shared.get(path, key)
            if route.method == "GET"
            else shared.post(path, {"sessionId": "s"}, key)
        )
        if may:
            assert status == 200 or answer["error"] == "TASK_NOT_CLAIMED", answer
        else:
            assert (status, answer["error"]) == (403, "ROLE_REFUSED")
            assert route.role in answer["message"]


@pytest.mark.parametrize("key", ["foreign", "elsewhere"])
@pytest.mark.parametrize("route", ROUTES, ids=lambda route: route.name)
def test_a_project_that_a_key_does_not_see_is_not_there(
    shared: Served, route: ApiRoute, key: str
) -> None:
    answers = []
    for name in ("task", "nowhere"):
        path = "/api/" + route.path.replace("{name}", name)
        answers.append(
            shared.get(path, key)
            if route.method == "GET"
            else shared.post(path, {"sessionId": "s"}, key)
        )
    assert answers[0] == answers[1]
    assert (answers[0][0], answers[0][1]["success"], answers[0][1]["error"]) == (
        404,
        False,
        "ROUTE_NOT_FOUND",
    )


def test_without_a_key_nobody_is_let_in(locked: Served) -> None:
    assert locked.get("/api/tasks/in-flight")[0] == 401
