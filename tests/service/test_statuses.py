"""Every reason and every error over HTTP: its status, its problem, and a small story that leads to
it."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from enum import StrEnum
from typing import Any

import httpx2
import pytest
from starlette.routing import Router

import genlock
from genlock import errors as e
from genlock.coordinator import AsyncCoordinator
from genlock.core.commands import Caller, TakeIds
from genlock.core.ids import LAST_ROOT
from genlock.core.keys import COUNTER, Key
from genlock.core.reasons import (
    ClaimReason,
    ProgressReason,
    ReleaseAnswer,
    RenewReason,
    ReviewReason,
    SubmitReason,
)
from genlock.service.app import App
from genlock.service.auth.permissions import Grant
from genlock.service.compose import nothing_here
from genlock.service.context import ServiceContext
from genlock.stores.memory import MemoryStore
from genlock.testing.clock import ManualClock
from genlock.wire.operations import OBSERVER
from genlock.wire.problems import KINDS
from tests.engine.gated_store import GatedStore
from tests.logs import PLANTED, watch
from tests.servers.service import Service, authenticator, serving

T = "A-001-core"
LEASE = 60


class Place:
    """A tenant of a test's own on the service, and who works there."""

    def __init__(self, tenant: str, clock: ManualClock, service: Service) -> None:
        self.client = service.client(f"/v1/{tenant}/p/")
        self.tenant, self.clock, self.service = tenant, clock, service

    def post(
        self, path: str, headers: dict[str, str] | None = None, **body: Any
    ) -> httpx2.Response:
        return self.client.post(path, json=body, headers=headers)

    def get(self, path: str, **query: Any) -> httpx2.Response:
        return self.client.get(path, params=query)

    def add(self, *tasks: Any) -> None:
        self.post("tasks", tasks=list(tasks) or [T]).raise_for_status()

    def limit(self, **limits: Any) -> None:
        self.client.patch("policy", json={"limits": limits}).raise_for_status()

    def claim(
        self, session: str = "s1", task: str = T, agent: str = "", **more: Any
    ) -> httpx2.Response:
        body = {
            "session_id": session,
            "agent_id": agent or f"agent-{session}",
            "lease_duration_seconds": LEASE,
            **more,
        }
        return self.post(f"tasks/{task}/claim", **body)

    def claimed(self, session: str = "s1", task: str = T) -> int:
        return int(self.claim(session, task).raise_for_status().json()["claim"]["generation"])

    def report(self, session: str = "s1", generation: int = 1) -> httpx2.Response:
        return self.post(
            f"tasks/{T}/progress", session_id=session, generation=generation, fraction=0.5
        )

    def renew(self, session: str = "s1", generation: int = 1) -> httpx2.Response:
        return self.post(f"tasks/{T}/renew", session_id=session, expected_generation=generation)

    def release(self, session: str = "s1", generation: int = 1, **more: Any) -> httpx2.Response:
        return self.post(
            f"tasks/{T}/release", session_id=session, expected_generation=generation, **more
        )

    def submit(
        self, session: str = "s1", generation: int = 1, data: Any = PLANTED, **more: Any
    ) -> httpx2.Response:
        return self.post(
            f"tasks/{T}/submit", session_id=session, generation=generation, result_data=data, **more
        )


Story = Callable[[Place], httpx2.Response]


# Claims


def granted(at: Place) -> httpx2.Response:
    at.add()
    return at.claim()


def nothing_ready(at: Place) -> httpx2.Response:
    return at.post("claim-next", session_id="s1", agent_id="alice")


def denied_completed(at: Place) -> httpx2.Response:
    accepted(at)
    return at.claim("s2")


def denied_held(at: Place) -> httpx2.Response:
    at.add()
    at.post(f"tasks/{T}/hold", reason="not yet").raise_for_status()
    return at.claim()


def denied_role(at: Place) -> httpx2.Response:
    at.post("tasks", tasks=[{"id": T, "roles": ["architect"]}]).raise_for_status()
    return at.claim()


def denied_assigned(at: Place) -> httpx2.Response:
    at.add()
    at.post(f"tasks/{T}/assign", agent_id="bob").raise_for_status()
    return at.claim()


def denied_active_claim(at: Place) -> httpx2.Response:
    granted(at)
    return at.claim("s2")


def denied_blocked(at: Place) -> httpx2.Response:
    at.add("other", {"id": T, "depends_on": ["other"]})
    return at.claim()


def denied_limit(at: Place) -> httpx2.Response:
    at.add()
    at.limit(max_lease_duration_seconds=30)
    return at.claim()


# Renewals


def renewed(at: Place) -> httpx2.Response:
    granted(at)
    return at.renew()


def renewed_at_another_generation(at: Place) -> httpx2.Response:
    granted(at)
    return at.renew(generation=2)


def renewed_without_claim(at: Place) -> httpx2.Response:
    released(at)
    return at.renew()


def renewed_by_another(at: Place) -> httpx2.Response:
    granted(at)
    return at.renew("s2")


def already_expired(at: Place) -> httpx2.Response:
    granted(at)
    at.clock.advance(LEASE + 1)
    return at.renew()


# Reports of progress


def reported(at: Place) -> httpx2.Response:
    granted(at)
    return at.report()


def reported_at_another_generation(at: Place) -> httpx2.Response:
    granted(at)
    return at.report(generation=2)


def reported_without_claim(at: Place) -> httpx2.Response:
    released(at)
    return at.report()


def reported_by_another(at: Place) -> httpx2.Response:
    granted(at)
    return at.report("s2")


def reported_too_late(at: Place) -> httpx2.Response:
    granted(at)
    at.clock.advance(LEASE + 1)
    return at.report()


# Releases


def released(at: Place) -> httpx2.Response:
    granted(at)
    return at.release()


def released_at_another_generation(at: Place) -> httpx2.Response:
    granted(at)
    return at.release(generation=2)


def released_without_claim(at: Place) -> httpx2.Response:
    at.add()
    return at.release(generation=0)


def released_by_another(at: Place) -> httpx2.Response:
    granted(at)
    return at.release("s2")


# Submissions


def accepted(at: Place) -> httpx2.Response:
    granted(at)
    return at.submit()


def stale_generation(at: Place) -> httpx2.Response:
    granted(at)
    at.clock.advance(LEASE + 1)
    assert at.claimed("s2") == 2
    return at.submit()


def future_generation(at: Place) -> httpx2.Response:
    granted(at)
    return at.submit(generation=2)


def task_already_completed(at: Place) -> httpx2.Response:
    accepted(at)
    return at.submit(data="something else")


def submitted_without_claim(at: Place) -> httpx2.Response:
    released(at)
    return at.submit()


def submitted_by_another(at: Place) -> httpx2.Response:
    granted(at)
    return at.submit("s2")


def children_unfinished(at: Place) -> httpx2.Response:
    granted(at)
    at.post(
        f"tasks/{T}/spawn", session_id="s1", generation=1, subtasks=["one"], keep=True
    ).raise_for_status()
    return at.submit()


# Reviews


def escalated(at: Place) -> httpx2.Response:
    at.post("tasks", tasks=[{"id": T, "human_required": True}]).raise_for_status()
    at.claimed()
    return at.submit()


def _decided(at: Place, act: str, generation: int = 1, **more: Any) -> httpx2.Response:
    digest = at.client.get(f"tasks/{T}/review").raise_for_status().json()["digest"]
    return at.post(f"tasks/{T}/{act}", generation=generation, digest=digest, **more)


def approved(at: Place) -> httpx2.Response:
    escalated(at)
    return _decided(at, "approve")


def rejected(at: Place) -> httpx2.Response:
    escalated(at)
    return _decided(at, "reject", feedback=PLANTED)


def evaluated(at: Place) -> httpx2.Response:
    task = "FEATURE:code"
    rule = {"edges": {"code": {"evaluators": ["lint"]}}}
    at.client.patch("policy", json={"agent_roles": rule}).raise_for_status()
    at.post("tasks", tasks=[task]).raise_for_status()
    at.claim(task=task).raise_for_status()
    at.post(f"tasks/{task}/submit", session_id="s1", generation=1).raise_for_status()
    digest = at.client.get(f"tasks/{task}/review").json()["digest"]
    named = {"generation": 1, "digest": digest, "evaluator": "lint", "session_id": "ci"}
    return at.post(f"tasks/{task}/evaluate", passed=False, **named)


def stale_review(at: Place) -> httpx2.Response:
    escalated(at)
    return _decided(at, "approve", generation=2)


def four_eyes(at: Place) -> httpx2.Response:
    at.client.patch("policy", json={"policy": {"four_eyes": True}}).raise_for_status()
    escalated(at)
    return _decided(at, "approve")


def approved_with_children(at: Place) -> httpx2.Response:
    escalated(at)
    at.post("tasks", tasks=[f"{T}::1"]).raise_for_status()
    return _decided(at, "approve")


REASONS: dict[tuple[type[StrEnum], str], tuple[Story, int]] = {
    (ClaimReason, "GRANTED"): (granted, 200),
    (ClaimReason, "NOTHING_READY"): (nothing_ready, 200),
    (ClaimReason, "DENIED_COMPLETED"): (denied_completed, 409),
    (ClaimReason, "DENIED_HELD"): (denied_held, 409),
    (ClaimReason, "DENIED_ASSIGNED"): (denied_assigned, 409),
    (ClaimReason, "DENIED_ROLE"): (denied_role, 409),
    (ClaimReason, "DENIED_ACTIVE_CLAIM"): (denied_active_claim, 409),
    (ClaimReason, "DENIED_BLOCKED"): (denied_blocked, 409),
    (ClaimReason, "DENIED_LIMIT"): (denied_limit, 429),
    (RenewReason, "RENEWED"): (renewed, 200),
    (RenewReason, "GENERATION_MISMATCH"): (renewed_at_another_generation, 409),
    (RenewReason, "NO_CLAIM"): (renewed_without_claim, 409),
    (RenewReason, "SESSION_MISMATCH"): (renewed_by_another, 409),
    (RenewReason, "ALREADY_EXPIRED"): (already_expired, 409),
    (ProgressReason, "RECORDED"): (reported, 200),
    (ProgressReason, "GENERATION_MISMATCH"): (reported_at_another_generation, 409),
    (ProgressReason, "NO_CLAIM"): (reported_without_claim, 409),
    (ProgressReason, "SESSION_MISMATCH"): (reported_by_another, 409),
    (ProgressReason, "ALREADY_EXPIRED"): (reported_too_late, 409),
    (ReleaseAnswer, "RELEASED"): (released, 200),
    (ReleaseAnswer, "GENERATION_MISMATCH"): (released_at_another_generation, 409),
    (ReleaseAnswer, "NO_CLAIM"): (released_without_claim, 409),
    (ReleaseAnswer, "SESSION_MISMATCH"): (released_by_another, 409),
    (SubmitReason, "ACCEPTED"): (accepted, 200),
    (SubmitReason, "CONVERGENCE_ESCALATED"): (escalated, 200),
    (SubmitReason, "STALE_GENERATION"): (stale_generation, 409),
    (SubmitReason, "FUTURE_GENERATION"): (future_generation, 409),
    (SubmitReason, "TASK_ALREADY_COMPLETED"): (task_already_completed, 409),
    (SubmitReason, "NO_CLAIM"): (submitted_without_claim, 409),
    (SubmitReason, "SESSION_MISMATCH"): (submitted_by_another, 409),
    (SubmitReason, "CHILDREN_UNFINISHED"): (children_unfinished, 409),
    (ReviewReason, "APPROVED"): (approved, 200),
    (ReviewReason, "REJECTED"): (rejected, 200),
    (ReviewReason, "EVALUATED"): (evaluated, 200),
    (ReviewReason, "STALE_REVIEW"): (stale_review, 409),
    (ReviewReason, "FOUR_EYES"): (four_eyes, 409),
    (ReviewReason, "CHILDREN_UNFINISHED"): (approved_with_children, 409),
}


# Errors


def bad_argument(at: Place) -> httpx2.Response:
    return at.claim(task="not%20an%20id")


def result_too_large(at: Place) -> httpx2.Response:
    granted(at)
    at.limit(max_result_size_bytes=100)
    return at.submit(data="x" * 101)


def operation_mismatch(at: Place) -> httpx2.Response:
    at.add()
    at.claim(operation_id="once").raise_for_status()
    return at.claim(operation_id="once", lease_duration_seconds=LEASE + 1)


def plan_invalid(at: Place) -> httpx2.Response:
    return at.post(
        "plan",
        source={"tasks": [{"id": "a", "depends_on": ["b"]}, {"id": "b", "depends_on": ["a"]}]},
    )


def method_refused(at: Place) -> httpx2.Response:
    return at.client.delete(f"tasks/{T}")


def kind_refused(at: Place) -> httpx2.Response:
    return at.client.post(
        "next-id", content=b"count=1", headers={"content-type": "application/x-www-form-urlencoded"}
    )


def host_refused(at: Place) -> httpx2.Response:
    return at.client.get("ready", headers={"host": "rebound.example"})


def review_not_found(at: Place) -> httpx2.Response:
    at.add()
    return at.client.get(f"tasks/{T}/review")


def promotion_not_found(at: Place) -> httpx2.Response:
    at.add()
    body = {"generation": 1, "digest": "0" * 64}
    return at.client.post(f"tasks/{T}/promotion", json=body)


def task_not_found(at: Place) -> httpx2.Response:
    return at.claim()


def session_not_found(at: Place) -> httpx2.Response:
    return at.post("sessions/nobody/heartbeat")


def result_not_found(at: Place) -> httpx2.Response:
    at.add()
    return at.get(f"tasks/{T}/result")


def tenant_not_found(at: Place) -> httpx2.Response:
    return at.service.http.get("/v1/nobody/_/tenant")


def key_not_found(at: Place) -> httpx2.Response:
    return at.service.http.post(f"/v1/{at.tenant}/_/keys/abcdefgh2345/revoke")


def route_not_found(at: Place) -> httpx2.Response:
    return at.get("nowhere")


def not_allowed(at: Place) -> httpx2.Response:
    accepted(at)
    return at.post(f"tasks/{T}/hold")


def live_claim(at: Place) -> httpx2.Response:
    granted(at)
    return at.post(f"tasks/{T}/reset")


def task_exists(at: Place) -> httpx2.Response:
    at.add()
    return at.post("tasks", tasks=[{"id": T, "title": "something else"}])


def limit_reached(at: Place) -> httpx2.Response:
    at.post("sessions", session_id="s1").raise_for_status()
    at.limit(max_active_sessions=1)
    return at.post("sessions", session_id="s2")


def session_ended(at: Place) -> httpx2.Response:
    at.post("sessions", session_id="s1").raise_for_status()
    at.post("sessions/s1/end").raise_for_status()
    return at.post("sessions/s1/heartbeat")


def access_refused(at: Place) -> httpx2.Response:
    return at.client.get("ready", headers={"origin": "https://elsewhere.example"})


def key_refused(at: Place) -> httpx2.Response:
    with serving(app=_with_keys) as service:
        return service.http.get("/v1/t/p/ready")


def role_refused(at: Place) -> httpx2.Response:
    with serving(app=_with_keys) as service:
        return service.http.post("/v1/t/p/next-id", headers={"authorization": "Bearer looks-only"})


def _with_keys(coordinator: AsyncCoordinator) -> App:
    return App(
        ServiceContext(coordinator),
        authenticator({"looks-only": Grant("k1", "ann", role=OBSERVER)}),
        Router(default=nothing_here),
        watch,
    )


def service_mismatch(at: Place) -> httpx2.Response:
    return at.client.get("ready", headers={"genlock-protocol": "99 genlock/9.0"})


def cursor_lost(at: Place) -> httpx2.Response:
    with genlock.connect("memory://") as elsewhere:
        return at.get("events", after=elsewhere.read_events(tail=True).cursor)


def counter_exhausted(at: Place) -> httpx2.Response:
    # A thousand at a time would take a while.
    take = TakeIds(Key(at.tenant, "p", COUNTER, "global"), Caller("s1", ""), "global", LAST_ROOT)
    assert at.service.coordinator.engine.submit([take]).wait().only() == LAST_ROOT
    return at.post("next-id")


def closed(at: Place) -> httpx2.Response:
    with serving() as service:
        service.do(service.coordinator.close())
        return service.http.post("/v1/t/p/next-id")


def _broken(error: e.GenlockError) -> Story:
    """A store whose commits end so."""

    def fail() -> None:
        raise error

    def story(at: Place) -> httpx2.Response:
        store = GatedStore(MemoryStore())
        with serving(store, deadline_seconds=0.2) as service:
            store.on("commit", before=fail, times=1e9)
            return service.http.post("/v1/t/p/sessions", json={"session_id": "s1"})

    return story


def busy(at: Place) -> httpx2.Response:
    """Somebody else is faster, every time."""
    inner = MemoryStore()
    store = GatedStore(inner)
    titles = (f"title {number}" for number in itertools.count())
    with serving(store, deadline_seconds=0.2) as service, genlock.connect(inner) as other:
        other.add_tasks(tasks=[T])
        store.on(
            "commit",
            before=lambda: other.edit_task(task_id=T, changes={"title": next(titles)}),
            times=1e9,
        )
        return service.http.post(
            f"/v1/default/default/tasks/{T}/claim", json={"session_id": "s1", "agent_id": "a"}
        )


def over_limit(at: Place) -> httpx2.Response:
    return at.client.post(
        "next-id", content=b" " * (1 << 20) + b" {}", headers={"content-type": "application/json"}
    )


ERRORS: dict[str, tuple[Story, int]] = {
    "BAD_ARGUMENT": (bad_argument, 400),
    "RESULT_TOO_LARGE": (result_too_large, 413),
    "OPERATION_MISMATCH": (operation_mismatch, 422),
    "PLAN_INVALID": (plan_invalid, 422),
    "METHOD_REFUSED": (method_refused, 405),
    "KIND_REFUSED": (kind_refused, 415),
    "HOST_REFUSED": (host_refused, 421),
    "REVIEW_NOT_FOUND": (review_not_found, 404),
    "PROMOTION_NOT_FOUND": (promotion_not_found, 404),
    "TASK_NOT_FOUND": (task_not_found, 404),
    "SESSION_NOT_FOUND": (session_not_found, 404),
    "RESULT_NOT_FOUND": (result_not_found, 404),
    "TENANT_NOT_FOUND": (tenant_not_found, 404),
    "KEY_NOT_FOUND": (key_not_found, 404),
    "ROUTE_NOT_FOUND": (route_not_found, 404),
    "NOT_ALLOWED": (not_allowed, 409),
    "TASK_EXISTS": (task_exists, 409),
    "LIVE_CLAIM": (live_claim, 409),
    "LIMIT_REACHED": (limit_reached, 429),
    "SESSION_ENDED": (session_ended, 409),
    "ACCESS_REFUSED": (access_refused, 403),
    "KEY_REFUSED": (key_refused, 401),
    "ROLE_REFUSED": (role_refused, 403),
    "SERVICE_MISMATCH": (service_mismatch, 426),
    "CURSOR_LOST": (cursor_lost, 410),
    "COUNTER_EXHAUSTED": (counter_exhausted, 409),
    "BUSY": (busy, 503),
    "CLOSED": (closed, 503),
    "STORE_UNAVAILABLE": (_broken(e.StoreUnavailable("it is away")), 503),
    "STORE_FULL": (_broken(e.StoreFull("no room is left")), 507),
    "STORE_READ_ONLY": (_broken(e.StoreReadOnly("it can only be read")), 503),
    "STORE_CORRUPT": (_broken(e.StoreCorrupt("its bytes are not what was written")), 500),
    "OVER_LIMIT": (over_limit, 413),
}

NOT_REACHED = {
    "GENLOCK_ERROR": "the root of the tree; what nobody foresaw is said with its code, as a 500",
    "NOT_FOUND": "what is missing is always of some kind",
    "PRODUCT_NOT_FOUND": "raised by those who open the area; the service hands out no products",
    "CLAIM_DENIED": "raised by `require()` alone, from an answer",
    "SERVICE_ERROR": "raised by clients alone",
    "SERVICE_UNREACHABLE": "raised by clients alone",
    "TOO_MANY_REQUESTS": "comes from the limits on requests, and is tested with them",
    "STORE_ERROR": "what a store says is always of some kind",
    "STORE_MISSING": "the service does not start",
    "STORE_FOREIGN": "the service does not start",
    "STORE_OUTDATED": "the service does not start",
    "OUTCOME_UNKNOWN": "the engine finds out what happened, and answers that",
}


@pytest.fixture(scope="module")
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture(scope="module")
def service(clock: ManualClock) -> Iterator[Service]:
    with serving(clock=clock) as running:
        yield running


@pytest.fixture
def at(service: Service, clock: ManualClock, request: pytest.FixtureRequest) -> Iterator[Place]:
    place = Place(f"t{abs(hash(request.node.name)) % 10**12}", clock, service)
    yield place
    place.client.close()


def test_the_tables_name_every_reason_and_every_error() -> None:
    kinds = (ClaimReason, RenewReason, ProgressReason, ReleaseAnswer, SubmitReason, ReviewReason)
    assert set(REASONS) == {(kind, str(reason)) for kind in kinds for reason in kind}
    assert ERRORS.keys() | NOT_REACHED.keys() == KINDS.keys()
    assert not ERRORS.keys() & NOT_REACHED.keys()


@pytest.mark.parametrize("which", REASONS, ids=lambda which: f"{which[0].__name__}-{which[1]}")
def test_every_reason_is_answered_with_its_status(
    which: tuple[type[StrEnum], str], at: Place
) -> None:
    story, status = REASONS[which]
    answer = story(at)
    body = answer.json()
    assert (answer.status_code, body["reason"]) == (status, which[1])
    assert body.get("success", body.get("accepted")) is (
        status == 200 and which[1] != "NOTHING_READY"
    )
    if status == 200:
        assert answer.headers["content-type"] == "application/json"
        return
    assert answer.headers["content-type"] == "application/problem+json"
    assert body["type"] == "urn:genlock:" + which[1].lower().replace("_", "-")
    assert body["status"] == status
    assert body["title"][0].isupper()
    assert body["message"]
    assert all(command[0] == "genlock" for command in body["try_next"])
    assert body["try_next"], "a refusal says what to try next"
    assert answer.headers.get("retry-after") == ("1" if status == 429 else None)


@pytest.mark.parametrize("code", ERRORS)
def test_every_error_is_answered_with_its_status(code: str, at: Place) -> None:
    story, status = ERRORS[code]
    answer = story(at)
    body = answer.json()
    assert (answer.status_code, body.get("code"), body["status"]) == (status, code, status)
    assert answer.headers["content-type"] == "application/problem+json"
    assert body["type"] == "urn:genlock:" + code.lower().replace("_", "-")
    assert body["title"]
    assert body["detail"]
    assert body["request"] == answer.headers["x-request-id"]
    assert answer.headers.get("retry-after") == ("1" if status in (429, 503) else None)
    assert ("www-authenticate" in answer.headers) is (status == 401)
    assert ("allow" in answer.headers) is (status == 405)


def test_what_nobody_foresaw_is_a_500_that_names_its_request_and_says_nothing_else() -> None:
    def burst() -> None:
        raise RuntimeError("a secret of the house")

    store = GatedStore(MemoryStore())
    with serving(store) as service:
        store.on("find", before=burst)
        answer = service.http.get("/v1/t/p/blocked")
    assert answer.status_code == 500
    assert (answer.json()["code"], answer.json()["title"]) == (
        "GENLOCK_ERROR",
        "Something went wrong in the service",
    )
    assert answer.json()["request"] == answer.headers["x-request-id"]
    assert "secret" not in answer.text
