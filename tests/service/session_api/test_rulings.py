"""What the document leaves open, point by point."""

from __future__ import annotations

import re
from functools import partial
from pathlib import Path

import msgspec
import pytest

from genlock import __version__
from genlock.core.model import Process
from genlock.core.reasons import ClaimReason, ReleaseAnswer, RenewReason, SubmitReason
from genlock.engine.processes import boot, host, namespace
from genlock.service.compose import Choices
from genlock.service.session_api.health import ClaimConfig
from genlock.service.session_api.messages import CODES, STATUSES, Code
from genlock.service.session_api.routes import ROUTES
from genlock.testing.concurrency import overlapped, together
from genlock.wire.headers import pack_process
from genlock.wire.problems import REASONS
from tests.servers.service import serving as serving_all
from tests.service.session_api.served import Served, serving


def claim(api: Served, task: str, session: str, **more: object) -> tuple[int, dict[str, object]]:
    status, answer = api.post(f"/api/tasks/{task}/claim", {"sessionId": session, **more})
    return status, answer.get("claim", answer)


def test_every_reason_has_its_code_and_every_code_its_status() -> None:
    reasons = {*ClaimReason, *RenewReason, *ReleaseAnswer, *SubmitReason}
    assert set(CODES) == reasons
    assert {reason for reason in reasons if CODES[reason] is None} == {
        ClaimReason.GRANTED,
        RenewReason.RENEWED,
        ReleaseAnswer.RELEASED,
        SubmitReason.ACCEPTED,
        SubmitReason.CONVERGENCE_ESCALATED,
    }
    assert all(REASONS[reason] == 200 for reason in reasons if CODES[reason] is None)
    assert set(STATUSES) == set(Code)


TABLE = re.compile(r"^\| `(\w+)` \| (\d+) \| (.*)\|$", re.MULTILINE)


def test_the_page_for_users_has_the_same_table_and_every_endpoint() -> None:
    page = (Path(__file__).parents[3] / "docs" / "how-to" / "session-claims.md").read_text("utf-8")
    found = {
        code: (int(status), set(re.findall(r"`(\w+)`", reasons)))
        for code, status, reasons in TABLE.findall(page)
    }
    wanted = {
        code.value: (STATUSES[code], {str(reason) for reason, to in CODES.items() if to is code})
        for code in Code
    }
    assert found == wanted
    for route in ROUTES:
        name = ":sessionId" if route.path.startswith("sessions/") else ":taskId"
        assert f"`{route.method} /api/{route.path.replace('{name}', name)}`" in page
    for key, value in msgspec.to_builtins(ClaimConfig()).items():
        assert f"`{key}` {value}" in page.replace("\n", " ")


# Claims


def test_a_repeated_claim_says_that_the_session_held_the_task_already(quick: Served) -> None:
    quick.add("task")
    first, again = (quick.post("/api/tasks/task/claim", {"sessionId": "s"})[1] for _ in range(2))
    assert "alreadyHeld" not in first
    assert (again["success"], again["alreadyHeld"], again["claim"]["generation"]) == (True, True, 1)


def test_a_claim_without_a_ttl_lasts_half_an_hour(quick: Served) -> None:
    quick.add("task")
    assert claim(quick, "task", "s")[1]["expiresAt"] == "2025-12-28T12:30:00Z"


def test_a_ttl_is_brought_within_the_settings_and_the_tenant_s_limits(quick: Served) -> None:
    granted = {
        1: "12:01:00",
        60_000: "12:01:00",
        90_500.5: "12:01:30",
        3_600_000: "13:00:00",
        7_200_000: "13:00:00",
        1e15: "13:00:00",
    }
    for number, (ttl, expires) in enumerate(granted.items()):
        quick.add(f"task-{number}")
        assert (
            claim(quick, f"task-{number}", "s", ttlMs=ttl)[1]["expiresAt"]
            == f"2025-12-28T{expires}Z"
        )


def test_without_limits_of_the_tenant_the_settings_are_the_bounds() -> None:
    choices = Choices(claim_config=ClaimConfig(default_ttl=5_000, min_ttl=2_000, max_ttl=9_000))
    with serving("memory://", choices=choices, profile="local") as api:
        api.add("one", "two", "three")
        assert claim(api, "one", "s")[1]["expiresAt"] == "2025-12-28T12:00:05Z"
        assert claim(api, "two", "s", ttlMs=1)[1]["expiresAt"] == "2025-12-28T12:00:02Z"
        assert claim(api, "three", "s", ttlMs=60_000)[1]["expiresAt"] == "2025-12-28T12:00:09Z"


def test_the_tenant_s_minimum_applies_to_ttls_below_it() -> None:
    choices = Choices(claim_config=ClaimConfig(default_ttl=5_000, min_ttl=1_000))
    with serving("memory://", choices=choices) as api:
        api.add("task")
        assert claim(api, "task", "s")[1]["expiresAt"] == "2025-12-28T12:00:30Z"


def test_a_ttl_that_is_no_length_of_time_is_refused_and_nothing_is_claimed(quick: Served) -> None:
    quick.add("task")
    lengths: tuple[object, ...] = (0, -1, "soon", [], {}, True)
    for ttl in lengths:
        status, answer = quick.post("/api/tasks/task/claim", {"sessionId": "s", "ttlMs": ttl})
        assert (status, answer["error"]) == (400, "BAD_ARGUMENT")
        assert "ttlMs" in answer["message"]
    assert quick.get("/api/tasks/claims/stats")[1]["total"] == 0


def test_a_granted_claim_registers_its_session(api: Served) -> None:
    api.add("task")
    assert api.get("/api/sessions/s/current-task")[1]["error"] == "SESSION_NOT_FOUND"
    claim(api, "task", "s")
    assert api.get("/api/sessions/s/current-task")[0] == 200


def test_a_claim_of_one_s_own_task_extends_it_at_the_same_generation(api: Served) -> None:
    api.add("task")
    claim(api, "task", "s")
    api.clock.advance(600)
    again = claim(api, "task", "s")[1]
    assert (again["claimedAt"], again["expiresAt"], again["generation"]) == (
        "2025-12-28T12:00:00Z",
        "2025-12-28T12:40:00Z",
        1,
    )


def test_a_session_s_claim_is_its_own_whatever_agent_made_it(api: Served) -> None:
    api.add("task")
    api.do(lambda fleet: fleet.claim_task(task_id="task", session_id="s", agent_id="alice"))
    api.clock.advance(10)
    assert claim(api, "task", "s")[1]["expiresAt"] == "2025-12-28T12:30:10Z"
    assert api.post("/api/tasks/task/release", {"sessionId": "s", "reason": "completed"})[0] == 200


def test_after_an_expired_claim_the_next_has_a_higher_generation(api: Served) -> None:
    api.add("task")
    claim(api, "task", "s")
    api.clock.advance(1800)
    assert claim(api, "task", "t")[1]["generation"] == 2


# Release


def test_released_as_completed_the_task_is_completed_with_an_empty_result(api: Served) -> None:
    api.add("task")
    claim(api, "task", "s")
    api.post("/api/tasks/task/release", {"sessionId": "s", "reason": "completed"})
    state = api.do(lambda fleet: fleet.get_task_state(task_id="task"))
    assert state.state == "COMPLETED"
    assert state.result is not None
    assert state.result.result_data == {}


def test_completed_twice_by_its_holder_is_answered_alike(api: Served) -> None:
    api.add("task")
    claim(api, "task", "s")
    api.clock.advance(60)
    first = api.post("/api/tasks/task/release", {"sessionId": "s", "reason": "completed"})
    api.clock.advance(60)
    assert api.post("/api/tasks/task/release", {"sessionId": "s", "reason": "completed"}) == first
    assert first[1]["released"]["claimDuration"] == 60_000


def test_any_other_reason_is_a_release(quick: Served) -> None:
    quick.add("task")
    reasons = {"paused": "VOLUNTARY", "error": "ERROR", "failed": "ERROR", "expired": "VOLUNTARY"}
    for reason in reasons:
        claim(quick, "task", "s")
        assert (
            quick.post("/api/tasks/task/release", {"sessionId": "s", "reason": reason})[1][
                "released"
            ]["reason"]
            == reason
        )
        assert quick.do(lambda fleet: fleet.get_task_state(task_id="task")).state == "PENDING"
    history = quick.do(lambda fleet: fleet.get_claim_history(task_id="task"))
    assert [entry.release_reason for entry in history] == list(reasons.values())
    assert [entry.stated_reason for entry in history] == list(reasons)


def test_a_card_tells_a_release_for_an_error_from_any_other(quick: Served) -> None:
    quick.add("task")
    for reason in ("paused: lunch", "error", "failed: no compiler"):
        quick.post("/api/tasks/task/claim", {"sessionId": "s"})
        quick.post("/api/tasks/task/release", {"sessionId": "s", "reason": reason})
    (card,) = quick.get("/api/sessions/summary")[1]["sessions"]
    assert [
        (entry["releaseReason"], entry["canonicalReason"]) for entry in card["claimHistory"]
    ] == [
        ("paused: lunch", "voluntary"),
        ("error", "error"),
        ("failed: no compiler", "error"),
    ]


def test_a_release_without_a_reason_is_a_release(quick: Served) -> None:
    quick.add("task")
    claim(quick, "task", "s")
    assert (
        quick.post("/api/tasks/task/release", {"sessionId": "s"})[1]["released"]["reason"]
        == "released"
    )


# Refusals, each by its code


def refusal(answer: tuple[int, dict[str, object]]) -> tuple[object, ...]:
    status, body = answer
    assert body["success"] is False
    assert body["message"]
    return status, body["error"], body.get("reason")


def test_an_unknown_task_is_task_not_found(api: Served) -> None:
    for path in ("claim", "release", "claim/heartbeat"):
        assert refusal(api.post(f"/api/tasks/nowhere/{path}", {"sessionId": "s"})) == (
            404,
            "TASK_NOT_FOUND",
            None,
        )
        assert refusal(api.post(f"/api/tasks/no%20id/{path}", {"sessionId": "s"})) == (
            404,
            "TASK_NOT_FOUND",
            None,
        )


def test_an_unknown_session_is_session_not_found_on_session_routes_only(api: Served) -> None:
    api.add("task")
    assert refusal(api.get("/api/sessions/stranger/current-task")) == (
        404,
        "SESSION_NOT_FOUND",
        None,
    )
    assert refusal(api.get("/api/sessions/no%09name/current-task")) == (
        404,
        "SESSION_NOT_FOUND",
        None,
    )
    assert refusal(api.post("/api/sessions/stranger/heartbeat")) == (404, "SESSION_NOT_FOUND", None)
    claim(api, "task", "s")
    for path in ("release", "claim/heartbeat"):
        assert refusal(api.post(f"/api/tasks/task/{path}", {"sessionId": "stranger"})) == (
            403,
            "NOT_CLAIM_OWNER",
            "SESSION_MISMATCH",
        )
    completed = {"sessionId": "stranger", "reason": "completed"}
    assert refusal(api.post("/api/tasks/task/release", completed)) == (
        403,
        "NOT_CLAIM_OWNER",
        "SESSION_MISMATCH",
    )


def test_what_nobody_holds_is_task_not_claimed(api: Served) -> None:
    api.add("task")
    for path, body in (
        ("release", {}),
        ("release", {"reason": "completed"}),
        ("claim/heartbeat", {}),
    ):
        assert refusal(api.post(f"/api/tasks/task/{path}", {"sessionId": "s", **body})) == (
            404,
            "TASK_NOT_CLAIMED",
            "NO_CLAIM",
        )


def test_what_is_done_blocked_held_or_reserved_is_task_not_claimable(api: Served) -> None:
    api.add("done", "held", "reserved", {"id": "blocked", "depends_on": ["held"]})
    claim(api, "done", "s")
    api.post("/api/tasks/done/release", {"sessionId": "s", "reason": "completed"})
    api.do(lambda fleet: fleet.hold_task(task_id="held", reason="not now"))
    api.do(lambda fleet: fleet.assign_task(task_id="reserved", agent_id="bob"))
    for task, reason in (
        ("done", "DENIED_COMPLETED"),
        ("held", "DENIED_HELD"),
        ("blocked", "DENIED_BLOCKED"),
        ("reserved", "DENIED_ASSIGNED"),
    ):
        assert refusal(api.post(f"/api/tasks/{task}/claim", {"sessionId": "s"})) == (
            400,
            "TASK_NOT_CLAIMABLE",
            reason,
        )
    stranger = {"sessionId": "t", "reason": "completed"}
    assert refusal(api.post("/api/tasks/done/release", stranger)) == (
        404,
        "TASK_NOT_CLAIMED",
        "TASK_ALREADY_COMPLETED",
    )


def test_a_parent_with_unfinished_children_is_not_to_be_completed(quick: Served) -> None:
    quick.add("parent")
    claim(quick, "parent", "s")
    quick.do(
        lambda fleet: fleet.spawn_subtasks(
            task_id="parent",
            generation=1,
            subtasks=["a part"],
            keep=True,
            session_id="s",
            agent_id="s",
        )
    )
    answer = quick.post("/api/tasks/parent/release", {"sessionId": "s", "reason": "completed"})
    assert refusal(answer) == (400, "TASK_NOT_CLAIMABLE", "CHILDREN_UNFINISHED")


def test_a_heartbeat_after_the_lease_is_claim_expired_and_the_result_still_counts(
    api: Served,
) -> None:
    api.add("task")
    claim(api, "task", "s")
    api.clock.advance(1800)
    assert refusal(api.post("/api/tasks/task/claim/heartbeat", {"sessionId": "s"})) == (
        410,
        "CLAIM_EXPIRED",
        "ALREADY_EXPIRED",
    )
    assert api.post("/api/tasks/claims/cleanup")[1]["count"] == 1
    assert refusal(api.post("/api/tasks/task/claim/heartbeat", {"sessionId": "s"})) == (
        410,
        "CLAIM_EXPIRED",
        "ALREADY_EXPIRED",
    )
    assert api.post("/api/tasks/task/release", {"sessionId": "s", "reason": "completed"})[0] == 200


def test_a_generation_that_is_sent_is_checked(api: Served) -> None:
    api.add("task")
    claim(api, "task", "s")
    api.clock.advance(1800)
    assert claim(api, "task", "s")[1]["generation"] == 2
    old, new = {"sessionId": "s", "generation": 1}, {"sessionId": "s", "generation": 3}
    completed = {"reason": "completed"}
    heartbeat, release = "/api/tasks/task/claim/heartbeat", "/api/tasks/task/release"
    assert refusal(api.post(heartbeat, old)) == (403, "NOT_CLAIM_OWNER", "GENERATION_MISMATCH")
    assert refusal(api.post(release, old)) == (403, "NOT_CLAIM_OWNER", "GENERATION_MISMATCH")
    assert refusal(api.post(release, old | completed)) == (
        403,
        "NOT_CLAIM_OWNER",
        "STALE_GENERATION",
    )
    assert refusal(api.post(release, new | completed)) == (
        403,
        "NOT_CLAIM_OWNER",
        "FUTURE_GENERATION",
    )
    assert api.post(release, {"sessionId": "s", "generation": 2} | completed)[0] == 200


def test_a_claim_by_an_ended_session_is_session_ended(api: Served) -> None:
    api.add("one", "two")
    claim(api, "one", "s")
    api.do(lambda fleet: fleet.end_session(session_id="s"))
    assert refusal(api.post("/api/tasks/two/claim", {"sessionId": "s"})) == (
        409,
        "SESSION_ENDED",
        None,
    )
    assert refusal(api.post("/api/sessions/s/heartbeat")) == (409, "SESSION_ENDED", None)


def test_over_a_limit_of_the_tenant_is_limit_reached_and_names_it(quick: Served) -> None:
    quick.add("one", "two")
    quick.do(lambda fleet: fleet.set_policy(limits={"max_concurrent_claims": 1}))
    claim(quick, "one", "s")
    answer = quick.post("/api/tasks/two/claim", {"sessionId": "s"})
    assert refusal(answer) == (429, "LIMIT_REACHED", "DENIED_LIMIT")
    assert "max_concurrent_claims = 1" in answer[1]["message"]


def test_a_body_that_is_none_is_refused_in_sc_s_shape(quick: Served) -> None:
    quick.add("task")
    sessions = [b'{"sessionId": 5}', b'{"sessionId": ""}', b'{"sessionId": "a/b"}']
    for body in (b"", b"{}", b"[]", b"{", b"\xff", b"[" * 9000, *sessions):
        response = quick.http.post(
            "/api/tasks/task/claim", content=body, headers={"content-type": "application/json"}
        )
        assert refusal((response.status_code, response.json())) == (400, "BAD_ARGUMENT", None)


def test_other_mistakes_are_refused_in_sc_s_shape_too(quick: Served) -> None:
    quick.add("task")
    text = quick.http.post(
        "/api/tasks/task/claim", content=b"{}", headers={"content-type": "text/plain"}
    )
    assert refusal((text.status_code, text.json())) == (415, "KIND_REFUSED", None)
    large = quick.http.post("/api/tasks/task/claim", json={"sessionId": "s" * 70_000})
    assert refusal((large.status_code, large.json())) == (413, "OVER_LIMIT", None)
    method = quick.http.get("/api/tasks/task/claim")
    assert refusal((method.status_code, method.json())) == (405, "METHOD_REFUSED", None)
    assert method.headers["allow"] == "POST"
    assert refusal(quick.get("/api/tasks/in-flight?includeExpired=perhaps")) == (
        400,
        "BAD_ARGUMENT",
        None,
    )


@pytest.mark.parametrize(
    "path", ["/api/status", "/api/events", "/api/nothing-of-the-kind", "/api/tasks/t/claim"]
)
def test_what_is_refused_at_the_door_is_refused_in_sc_s_shape(path: str) -> None:
    with serving_all(choices=Choices(keys=True)) as service:
        asked = [
            ({}, 401, "KEY_REFUSED"),
            ({"host": "elsewhere"}, 421, "HOST_REFUSED"),
            ({"genlock-protocol": "99"}, 426, "SERVICE_MISMATCH"),
            ({"origin": "http://elsewhere"}, 403, "ACCESS_REFUSED"),
        ]
        for headers, status, code in asked:
            answer = service.http.get(path, headers=headers)
            assert refusal((answer.status_code, answer.json())) == (status, code, None)
            assert answer.headers["content-type"] == "application/json"
            assert set(answer.json()) == {"success", "error", "message"}
        assert (
            service.http.get("/v1/default/default/policy").headers["content-type"]
            == "application/problem+json"
        )


def test_a_path_that_is_none_and_a_rate_that_is_over_are_refused_in_sc_s_shape() -> None:
    with serving_all(choices=Choices(requests_a_second=1)) as service:
        answer = service.http.get("/api/nothing-of-the-kind")
        assert refusal((answer.status_code, answer.json())) == (404, "ROUTE_NOT_FOUND", None)
        late = next(
            answer
            for _ in range(10)
            if (answer := service.http.get("/api/status")).status_code != 200
        )
        assert refusal((late.status_code, late.json())) == (429, "TOO_MANY_REQUESTS", None)
        assert late.headers["retry-after"] == "1"


# Looking


def test_expired_claims_are_listed_when_asked_for_and_one_session_s_alone(api: Served) -> None:
    api.add("one", "two", "three")
    claim(api, "one", "s", ttlMs=60_000)
    claim(api, "two", "s")
    claim(api, "three", "t")
    api.clock.advance(60)

    def listed(query: str) -> list[str]:
        return [
            f"{one['taskId']} {one['claim']['healthStatus']}"
            for one in api.get(f"/api/tasks/in-flight?{query}")[1]["inFlight"]
        ]

    assert listed("") == ["three healthy", "two healthy"]
    assert listed("includeExpired=true") == ["one expired", "three healthy", "two healthy"]
    assert listed("sessionId=s") == ["two healthy"]
    assert listed("sessionId=s&includeExpired=1") == ["one expired", "two healthy"]
    assert listed("sessionId=nobody") == []


def test_an_expired_claim_stays_listed_until_somebody_takes_over(api: Served) -> None:
    api.add("one", "two")
    claim(api, "one", "s", ttlMs=60_000)
    claim(api, "two", "gone")
    api.clock.advance(60)
    assert api.post("/api/tasks/claims/cleanup")[1]["count"] == 1

    def listed(query: str) -> list[str]:
        return [
            f"{one['taskId']} {one['claim']['sessionId']} {one['claim']['healthStatus']}"
            for one in api.get(f"/api/tasks/in-flight?{query}")[1]["inFlight"]
        ]

    assert listed("") == ["two gone healthy"]
    assert listed("includeExpired=true") == ["one s expired", "two gone healthy"]
    assert listed("includeExpired=true&sessionId=gone") == ["two gone healthy"]
    claim(api, "one", "t")
    assert listed("includeExpired=true") == ["two gone healthy", "one t healthy"]


def test_every_claim_that_is_shown_says_when_its_holder_was_last_heard_of(api: Served) -> None:
    api.add("task")
    assert claim(api, "task", "s")[1]["lastHeartbeat"] == "2025-12-28T12:00:00Z"
    api.clock.advance(60)
    beaten = api.post("/api/tasks/task/claim/heartbeat", {"sessionId": "s"})[1]["claim"]
    assert beaten["lastHeartbeat"] == "2025-12-28T12:01:00Z"
    api.clock.advance(60)
    heard = [
        claim(api, "task", "t")[1],
        api.get("/api/tasks/in-flight")[1]["inFlight"][0]["claim"],
        api.get("/api/sessions/s/current-task")[1]["currentTask"]["claim"],
    ]
    assert [one["lastHeartbeat"] for one in heard] == ["2025-12-28T12:01:00Z"] * 3
    assert claim(api, "task", "s")[1]["lastHeartbeat"] == "2025-12-28T12:02:00Z"


def test_a_card_keeps_the_type_of_its_agent_and_counts_tasks(api: Served) -> None:
    api.add("one", "two", "three", "four")
    api.do(lambda fleet: fleet.cancel_task(task_id="four"))
    for task in ("one", "two"):
        claim(api, task, "s", agentType="autonomous")
        api.post(f"/api/tasks/{task}/release", {"sessionId": "s", "reason": "completed"})
    claim(api, "three", "t", agentType="cli")
    cards = {card["sessionId"]: card for card in api.get("/api/sessions/summary")[1]["sessions"]}
    wanted = ("agentType", "currentTaskId", "tasksCompleted", "tasksTotal")
    assert [cards["s"][name] for name in wanted] == ["autonomous", None, 2, 3]
    assert [cards["t"][name] for name in wanted] == ["cli", "three", 0, 3]


def test_a_session_that_holds_nothing_has_no_current_task_and_of_several_the_last(
    api: Served,
) -> None:
    api.add("one", "two")
    claim(api, "one", "s")
    api.clock.advance(1)
    claim(api, "two", "s", ttlMs=60_000)
    assert api.get("/api/sessions/s/current-task")[1]["currentTask"]["taskId"] == "two"
    api.clock.advance(60)
    assert api.get("/api/sessions/s/current-task")[1]["currentTask"]["taskId"] == "one"
    api.clock.advance(1800)
    assert api.get("/api/sessions/s/current-task") == (200, {"sessionId": "s", "currentTask": None})


def test_cleanup_says_what_it_found_and_the_second_time_nothing(api: Served) -> None:
    api.add("late", "orphan", "fine")
    claim(api, "late", "s", ttlMs=60_000)
    api.do(lambda fleet: fleet.register_session(session_id="dead", process=_gone()))
    claim(api, "orphan", "dead")
    claim(api, "fine", "t")
    api.clock.advance(60)
    status, answer = api.post("/api/tasks/claims/cleanup")
    assert (status, answer["success"], answer["count"]) == (200, True, 2)
    assert sorted(answer["cleaned"], key=lambda one: one["taskId"]) == [
        {"taskId": "late", "sessionId": "s", "reason": "expired"},
        {"taskId": "orphan", "sessionId": "dead", "reason": "session_dead"},
    ]
    assert api.post("/api/tasks/claims/cleanup") == (
        200,
        {"success": True, "cleaned": [], "count": 0},
    )


def test_a_claim_here_is_not_lost_with_a_process_that_registered_the_session_elsewhere(
    api: Served,
) -> None:
    """Whoever claims here sends no process: it may be another one of the same session."""
    api.add("mine")
    registered = api.http.post(
        "/v1/default/default/sessions",
        headers={"genlock-session": "s", "genlock-process": pack_process(_gone())},
        json={},
    )
    assert registered.json()["pid"] == 2**22 + 1
    claim(api, "mine", "s")

    rival = api.do(
        lambda fleet: fleet.claim_task(task_id="mine", session_id="other", agent_id="bob")
    )
    assert rival.reason == "DENIED_ACTIVE_CLAIM"


def _gone() -> Process:
    return Process(host(), boot(), 2**22 + 1, 1, namespace())


def test_stats_count_by_session_and_health(api: Served) -> None:
    none = {"healthy": 0, "warning": 0, "expiring": 0, "stale": 0, "expired": 0, "orphaned": 0}
    assert api.get("/api/tasks/claims/stats") == (
        200,
        {"total": 0, "bySession": {}, "byHealth": none, "oldestMs": None},
    )
    api.add("one", "two", "three")
    claim(api, "one", "s", ttlMs=60_000)
    claim(api, "two", "s")
    api.clock.advance(90)
    claim(api, "three", "t")
    assert api.get("/api/tasks/claims/stats") == (
        200,
        {
            "total": 3,
            "bySession": {"s": 2, "t": 1},
            "byHealth": none | {"healthy": 2, "expired": 1},
            "oldestMs": 90_000,
        },
    )


def test_a_session_that_has_submitted_something_is_not_silent_and_its_other_claims_are_no_orphans(
    api: Served,
) -> None:
    api.add("one", "two", "three")
    for task, session in (("one", "s"), ("two", "s"), ("three", "t")):
        claim(api, task, session)
    api.clock.advance(300)
    assert api.post("/api/tasks/one/release", {"sessionId": "s", "reason": "completed"})[0] == 200
    api.clock.advance(301)
    listed = api.get("/api/tasks/in-flight")[1]["inFlight"]
    assert {one["taskId"]: one["claim"]["healthStatus"] for one in listed} == {
        "two": "stale",
        "three": "orphaned",
    }
    found = api.get("/api/tasks/claims/stats")[1]["byHealth"]
    assert (found["stale"], found["orphaned"]) == (1, 1)
    api.clock.advance(300)
    assert api.get("/api/tasks/claims/stats")[1]["byHealth"]["orphaned"] == 2


def test_heartbeats_carry_how_a_session_is_doing_and_cards_leave_out_what_is_unknown(
    api: Served,
) -> None:
    api.add("task", "other")
    claim(api, "task", "s")
    claim(api, "other", "t")
    api.post(
        "/api/tasks/task/claim/heartbeat", {"sessionId": "s", "contextPercent": 67, "score": 92}
    )
    api.clock.advance(5)
    told = api.post("/api/sessions/s/heartbeat", {"phase": "IMPL", "score": 93.5})
    assert told == (
        200,
        {"success": True, "sessionId": "s", "lastActivity": "2025-12-28T12:00:05Z"},
    )
    cards = {card["sessionId"]: card for card in api.get("/api/sessions/summary")[1]["sessions"]}
    assert {name: cards["s"][name] for name in ("contextPercent", "score", "phase")} == {
        "contextPercent": 67,
        "score": 93.5,
        "phase": "IMPL",
    }
    assert not {"contextPercent", "score", "phase", "agentType"} & set(cards["t"])


def test_the_summary_has_the_last_ten_claims_and_how_each_ended(api: Served) -> None:
    api.add(*(f"task-{n}" for n in range(13)))
    for n in range(12):
        claim(api, f"task-{n}", "s", ttlMs=60_000)
        api.clock.advance(1)
        api.post(
            f"/api/tasks/task-{n}/release",
            {"sessionId": "s", "reason": "completed" if n % 2 else "paused"},
        )
        if n == 5:
            # What was read is not read again, and nothing is told twice.
            assert len(api.get("/api/sessions/summary")[1]["sessions"][0]["claimHistory"]) == 6
    claim(api, "task-12", "s", ttlMs=60_000)
    api.clock.advance(3600)
    api.post("/api/tasks/claims/cleanup")
    history = api.get("/api/sessions/summary")[1]["sessions"][0]["claimHistory"]
    assert [entry["taskId"] for entry in history] == [f"task-{n}" for n in range(3, 13)]
    assert [entry["releaseReason"] for entry in history[:2]] == ["completed", "paused"]
    assert [entry.get("canonicalReason") for entry in history[:2]] == [None, "voluntary"]
    assert (history[-1]["releaseReason"], history[-1]["duration"]) == ("expired", 60_000)
    assert {entry["duration"] for entry in history[:-1]} == {1000}


def test_a_late_result_turns_an_expired_claim_into_a_completed_one(quick: Served) -> None:
    quick.add("task")
    claim(quick, "task", "s", ttlMs=60_000)
    quick.clock.advance(90)
    quick.post("/api/tasks/claims/cleanup")
    assert [
        entry["releaseReason"]
        for entry in quick.get("/api/sessions/summary")[1]["sessions"][0]["claimHistory"]
    ] == ["expired"]
    quick.post("/api/tasks/task/release", {"sessionId": "s", "reason": "completed"})
    assert [
        entry["releaseReason"]
        for entry in quick.get("/api/sessions/summary")[1]["sessions"][0]["claimHistory"]
    ] == ["completed"]


def test_ended_sessions_are_not_in_the_summary_and_silent_ones_are_not_active(api: Served) -> None:
    api.add("one", "two")
    claim(api, "one", "ended")
    claim(api, "two", "silent")
    api.do(lambda fleet: fleet.end_session(session_id="ended"))
    api.clock.advance(600)
    assert [
        (card["sessionId"], card["active"])
        for card in api.get("/api/sessions/summary")[1]["sessions"]
    ] == [("silent", True)]
    api.clock.advance(1)
    assert [
        (card["sessionId"], card["active"])
        for card in api.get("/api/sessions/summary")[1]["sessions"]
    ] == [("silent", False)]


def test_a_session_that_handed_in_its_work_just_now_is_active(api: Served) -> None:
    api.add("task")
    claim(api, "task", "s", ttlMs=1_800_000)
    api.clock.advance(500)
    api.post("/api/tasks/task/release", {"sessionId": "s", "reason": "completed"})
    api.clock.advance(600)
    (card,) = api.get("/api/sessions/summary")[1]["sessions"]
    assert (card["active"], card["lastActivity"]) == (True, "2025-12-28T12:08:20Z")


# DDB's two


def test_status_shows_stale_claims_by_the_policy_s_threshold(api: Served) -> None:
    api.add("one", "two")
    claim(api, "one", "s", ttlMs=3_600_000)
    api.clock.advance(1800)
    assert api.get("/api/status") == (
        200,
        {
            "status": "healthy",
            "version": __version__,
            "tasks": {"in_progress": 1, "pending": 1},
            "claims": 1,
            "staleClaims": [],
        },
    )
    api.clock.advance(1)
    answer = api.get("/api/status")[1]
    assert answer["status"] == "degraded"
    assert answer["staleClaims"] == [
        {
            "taskId": "one",
            "sessionId": "s",
            "agentId": "s",
            "claimedAt": "2025-12-28T12:00:00Z",
            "lastActive": "2025-12-28T12:00:00Z",
            "silentMs": 1_801_000,
        }
    ]


def test_start_says_what_to_take_and_takes_nothing(api: Served) -> None:
    api.add(
        {"id": "A-001-first", "title": "First"},
        {"id": "A-002-second", "title": "Second"},
        {"id": "LOGIN:design_code"},
    )
    answer = api.post("/api/start", {"agentId": "alice", "tracks": ["A"]})
    assert answer == (
        200,
        {
            "agentId": "alice",
            "agentRole": "full_stack",
            "next": {"taskId": "A-001-first", "title": "First", "priority": "medium", "track": "A"},
            "alternatives": [
                {"taskId": "A-002-second", "title": "Second", "priority": "medium", "track": "A"}
            ],
            "warnings": [],
        },
    )
    assert api.post("/api/start", {"agentId": "alice", "tracks": ["A"]}) == answer
    everything = api.post("/api/start")[1]
    assert everything["agentId"] == "primary"
    offers = {offer["taskId"]: offer for offer in [everything["next"], *everything["alternatives"]]}
    assert (offers["LOGIN:design_code"]["feature"], offers["LOGIN:design_code"]["edge"]) == (
        "LOGIN",
        "design_code",
    )


def test_start_says_which_task_is_closest_to_done(api: Served) -> None:
    api.do(lambda fleet: fleet.set_policy(policy={"order": "closest-to-done"}))
    api.add({"id": "AUTH:code"}, {"id": "AUTH:test"}, {"id": "PAY:code"}, {"id": "B-001-help"})
    assert claim(api, "PAY:code", "s1")[0] == 200
    answer = api.post("/api/start", {"agentId": "bob"})[1]
    assert [answer["next"]["taskId"], *(each["taskId"] for each in answer["alternatives"])] == [
        "AUTH:code",
        "AUTH:test",
        "B-001-help",
    ]


def test_start_with_nothing_to_do_says_so(quick: Served) -> None:
    assert quick.post("/api/start")[1]["next"] is None


def test_another_tenant_and_project_may_be_named() -> None:
    with serving("memory://", choices=Choices(api_tenant="acme", api_project="web")) as api:
        api.do(
            lambda fleet: fleet.add_tasks(
                tasks=[{"id": "task"}], tenant_id="acme", project_id="web"
            )
        )
        assert claim(api, "task", "s")[0] == 200
        assert (
            api.do(
                lambda fleet: fleet.get_task_state(
                    task_id="task", tenant_id="acme", project_id="web"
                )
            ).state
            == "IN_PROGRESS"
        )


# At once


def test_of_twelve_sessions_that_claim_a_task_at_once_one_gets_it(api: Served) -> None:
    rounds = 5
    met = 0
    for number in range(rounds):
        task = f"task-{number}"
        api.add(task)
        told = together([partial(claim, api, task, f"session-{rival}") for rival in range(12)])
        winners = [one for one in told if one.answer[0] == 200]
        losers = [one for one in told if one.answer[0] == 409]
        assert (len(winners), len(losers)) == (1, 11)
        assert {one.answer[1]["sessionId"] for one in losers} == {winners[0].answer[1]["sessionId"]}
        met += overlapped(winners[0], losers)
    assert met >= rounds, "they were to meet"
