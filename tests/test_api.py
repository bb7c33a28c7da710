"""The coordinator as its callers see it: every operation by its name, and what each of them gives
back."""

from __future__ import annotations

import asyncio
import inspect
import os
import re
import threading
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

import genlock
from genlock import AsyncCoordinator, Coordinator
from genlock.core.results import (
    ClaimHistory,
    ClaimRef,
    ClaimResult,
    FeedEvent,
    Progress,
    ReleaseResult,
    RenewalResult,
    SessionMemory,
    SubmissionResult,
    TaskClaim,
    TaskLogEntry,
    TaskResult,
    TaskState,
)
from genlock.errors import (
    BadArgument,
    ClaimDenied,
    CursorLost,
    LiveClaim,
    NotAllowed,
    ResultNotFound,
    SessionEnded,
    SessionNotFound,
    TaskNotFound,
)
from genlock.testing.clock import ManualClock
from tests.servers.service import serving

GC = {
    "claim_task": {
        "tenant_id",
        "project_id",
        "task_id",
        "agent_id",
        "session_id",
        "lease_duration_seconds",
    },
    "renew_lease": {"tenant_id", "project_id", "task_id", "session_id", "expected_generation"},
    "release_claim": {
        "tenant_id",
        "project_id",
        "task_id",
        "session_id",
        "expected_generation",
        "reason",
    },
    "submit_result": {
        "tenant_id",
        "project_id",
        "task_id",
        "session_id",
        "generation",
        "result_data",
    },
    "get_task_state": {"tenant_id", "project_id", "task_id"},
    "get_claim_history": {"tenant_id", "project_id", "task_id"},
    "get_active_claims_for_session": {"tenant_id", "session_id"},
}
"""GC 5.1, with its parameters."""

OPERATIONS = {
    *GC,
    "add_tasks",
    "adopt_result",
    "assign_task",
    "batch_claim",
    "batch_get_states",
    "batch_renew",
    "batch_submit",
    "blocked",
    "cancel_task",
    "claim_next",
    "close",
    "discard_result",
    "edit_task",
    "end_session",
    "explain",
    "force_release",
    "get_lineage",
    "get_policy",
    "get_session_memory",
    "heartbeat_session",
    "hold_task",
    "import_plan",
    "list_agents",
    "get_session",
    "list_expired_claims",
    "list_refused_results",
    "list_sessions",
    "next_id",
    "read_events",
    "ready",
    "register_session",
    "reopen_task",
    "reset_task",
    "set_policy",
    "spawn_subtasks",
    "sweep",
    "track_progress",
    "watch",
}

FIELDS: dict[type, str] = {
    TaskClaim: """id tenant_id project_id task_id track sequence agent_id generation session_id claimed_at lease_seconds expires_at state
        work_product_ref metadata agent_role""",
    ClaimResult: "success claim reason current_holder holder",
    RenewalResult: "success new_expiry reason",
    ReleaseResult: "success reason generation",
    SubmissionResult: "accepted reason current_generation work_lost kept",
    ClaimHistory: """id tenant_id project_id task_id track sequence generation session_id agent_id acquired_at released_at release_reason
        result_accepted result_rejected work_product_ref""",
    TaskResult: """id tenant_id project_id task_id track sequence generation session_id agent_id work_product_ref result_data submitted_at
        accepted rejection_reason""",
    SessionMemory: """session_id tenant_id project_id user_id created_at last_activity task_log active_claims completed_tasks
        track_assignments track_progress""",
    TaskLogEntry: (
        "timestamp event task_id track sequence generation agent_id outcome "
        "work_product_ref details"
    ),
    TaskState: "task state generation claim unmet_dependencies result refused_results",
}
"""The documents' names; records may have more."""

PLAN = """
# Project Plan Example
project: ecommerce-rebuild
tracks:
  A:
    - id: A-001-core-framework
      description: "Initialize core application framework"
      depends_on: []

    - id: A-002-di-container
      description: "Setup dependency injection container"
      depends_on: [A-001-core-framework]

    - id: A-003-event-bus
      description: "Implement event bus for async communication"
      depends_on: [A-002-di-container]

  B:
    - id: B-001-schema-design
      description: "Design database schema"
      depends_on: []

    - id: B-002-entity-models
      description: "Create entity models from schema"
      depends_on: [B-001-schema-design, A-001-core-framework] # Cross-track!

    - id: B-003-repositories
      description: "Implement repository pattern"
      depends_on: [B-002-entity-models, A-002-di-container] # Cross-track!
"""
"""GC 3.7."""

LARGE = {"text": "x" * 5_000_000, "more": ["ü", None, 1.5]}


def at(hour: int, minute: int, second: int = 0) -> datetime:
    return datetime(2026, 1, 4, hour, minute, second, tzinfo=UTC)


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture(params=["memory", "sqlite", "http"])
def fleet(
    request: pytest.FixtureRequest, clock: ManualClock, tmp_path: Path
) -> Iterator[Coordinator]:
    if request.param == "http":
        with (
            serving("memory://", clock) as service,
            genlock.connect(service.url, session_id="s1", agent_id="alice", user_id="ann") as fleet,
        ):
            yield fleet
        return
    url = "memory://" if request.param == "memory" else f"sqlite://{tmp_path}/genlock.db"
    with genlock.connect(
        url, create=True, clock=clock, session_id="s1", agent_id="alice", user_id="ann"
    ) as fleet:
        yield fleet


def granted(answer: ClaimResult) -> TaskClaim:
    assert answer.claim is not None, answer
    return answer.claim


# Names


def keywords(kind: type, name: str) -> dict[str, inspect.Parameter]:
    parameters = dict(inspect.signature(getattr(kind, name)).parameters)
    parameters.pop("self", None)
    return parameters


@pytest.mark.parametrize("name", sorted(OPERATIONS))
def test_an_operation_has_the_same_keyword_only_parameters_in_both_worlds(name: str) -> None:
    plain, awaited = keywords(Coordinator, name), keywords(AsyncCoordinator, name)
    assert plain == awaited
    assert {parameter.kind for parameter in plain.values()} <= {inspect.Parameter.KEYWORD_ONLY}
    assert GC.get(name, set()) <= set(plain)


def test_both_worlds_have_the_same_operations_and_each_is_described() -> None:
    public = [
        {name for name in vars(kind) if not name.startswith("_")}
        for kind in (Coordinator, AsyncCoordinator)
    ]
    assert public[0] == public[1] >= OPERATIONS
    assert [
        name
        for kind in (Coordinator, AsyncCoordinator)
        for name in public[0]
        if not inspect.getdoc(getattr(kind, name))
    ] == []


@pytest.mark.parametrize("kind", FIELDS, ids=lambda kind: kind.__name__)
def test_a_record_has_the_documents_field_names(kind: Any) -> None:
    assert set(FIELDS[kind].split()) <= set(kind.__struct_fields__)


# Claiming


def test_a_granted_claim_says_all_about_itself(fleet: Coordinator) -> None:
    fleet.add_tasks(tasks=["B-003-repositories"])
    answer = fleet.claim_task(
        task_id="B-003-repositories",
        lease_duration_seconds=60,
        agent_role="backend",
        metadata={"model": "m"},
    )
    claim = granted(answer)
    assert (answer.success, answer.reason, answer.task_id) == (
        True,
        "GRANTED",
        "B-003-repositories",
    )
    assert answer.task is not None
    assert answer.task.id == "B-003-repositories"
    assert (claim.tenant_id, claim.project_id, claim.track, claim.sequence) == (
        "default",
        "default",
        "B",
        3,
    )
    assert (claim.agent_id, claim.session_id, claim.generation, claim.state) == (
        "alice",
        "s1",
        1,
        "ACTIVE",
    )
    assert (claim.claimed_at, claim.lease_seconds, claim.expires_at) == (at(6, 0), 60.0, at(6, 1))
    assert (claim.agent_role, claim.metadata) == ("backend", {"model": "m"})
    assert fleet.get_active_claims_for_session() == (claim,)
    assert fleet.get_active_claims_for_session(session_id="s2") == ()


def test_a_denial_says_who_holds_the_task(fleet: Coordinator, clock: ManualClock) -> None:
    fleet.add_tasks(tasks=["task"])
    fleet.claim_task(task_id="task")
    clock.advance(10)
    answer = fleet.claim_task(task_id="task", session_id="s2", agent_id="bob")
    assert (answer.success, answer.reason, answer.claim, answer.current_holder) == (
        False,
        "DENIED_ACTIVE_CLAIM",
        None,
        "alice",
    )
    holder = answer.holder
    assert holder is not None
    assert (holder.agent, holder.session, holder.user, holder.looks_alive) == (
        "alice",
        "s1",
        "ann",
        True,
    )
    assert (holder.claimed_at, holder.expires_at) == (at(6, 0), at(6, 5))


def test_claims_of_a_session_are_listed_across_the_projects_of_its_tenant(
    fleet: Coordinator,
) -> None:
    for project, tenant in (("apollo", "acme"), ("gemini", "acme"), ("apollo", "umbrella")):
        fleet.add_tasks(tasks=["task"], project_id=project, tenant_id=tenant)
        fleet.claim_task(task_id="task", project_id=project, tenant_id=tenant)
    claims = fleet.get_active_claims_for_session(tenant_id="acme")
    assert [(claim.tenant_id, claim.project_id) for claim in claims] == [
        ("acme", "apollo"),
        ("acme", "gemini"),
    ]


# States


def test_the_state_of_a_task_has_all_that_is_known_of_it(
    fleet: Coordinator, clock: ManualClock
) -> None:
    fleet.add_tasks(
        tasks=[
            {"id": "A-001-first", "title": "First"},
            {"id": "A-002-second", "depends_on": ["A-001-first"]},
        ]
    )
    state = fleet.get_task_state(task_id="A-002-second")
    assert (state.state, state.generation, state.claim, state.holder, state.result) == (
        "BLOCKED",
        0,
        None,
        None,
        None,
    )
    assert (state.unmet_dependencies, state.refused_results, state.created_at) == (
        ("A-001-first",),
        0,
        at(6, 0),
    )
    claim = granted(fleet.claim_task(task_id="A-001-first"))
    state = fleet.get_task_state(task_id="A-001-first")
    assert (state.state, state.generation, state.claim) == ("IN_PROGRESS", 1, claim)
    assert state.holder is not None
    assert state.holder.looks_alive
    assert state.task.title == "First"
    clock.advance(60)
    fleet.submit_result(task_id="A-001-first", generation=1, result_data={"a": 1})
    fleet.submit_result(task_id="A-001-first", generation=0, result_data={"b": 2})
    state = fleet.get_task_state(task_id="A-001-first")
    assert (
        state.state,
        state.generation,
        state.claim,
        state.refused_results,
        state.updated_at,
    ) == ("COMPLETED", 1, None, 1, at(6, 1))
    result = state.result
    assert result is not None
    assert (result.task_id, result.generation, result.session_id, result.agent_id) == (
        "A-001-first",
        1,
        "s1",
        "alice",
    )
    assert (result.result_data, result.submitted_at, result.accepted, result.rejection_reason) == (
        {"a": 1},
        at(6, 1),
        True,
        None,
    )
    assert fleet.get_task_state(task_id="A-002-second").unmet_dependencies == ()
    fleet.hold_task(task_id="A-002-second", reason="a question")
    assert fleet.get_task_state(task_id="A-002-second").hold_reason == "a question"
    with pytest.raises(TaskNotFound, match="nobody-knows-it"):
        fleet.get_task_state(task_id="nobody-knows-it")


def test_ready_and_blocked_and_explain_tell_the_same_story(fleet: Coordinator) -> None:
    fleet.add_tasks(
        tasks=[
            "A-001-first",
            {"id": "A-002-second", "depends_on": ["A-001-first"]},
            {"id": "B-001-other", "priority": "critical"},
        ]
    )
    assert [line.task.id for line in fleet.ready()] == ["B-001-other", "A-001-first"]
    assert [line.task.id for line in fleet.ready(tracks="A")] == ["A-001-first"]
    assert [line.task.id for line in fleet.ready(limit=1)] == ["B-001-other"]
    assert [(line.task.id, line.blocked_by) for line in fleet.blocked()] == [
        ("A-002-second", ("A-001-first",))
    ]
    told = fleet.explain(task_id="A-002-second")
    assert (told.ready, told.reason, told.waits_for) == (False, "DENIED_BLOCKED", ("A-001-first",))
    assert told.because == ("waits for A-001-first",)
    assert told.try_next == (("genlock", "claim", "A-001-first"),)
    assert fleet.explain(task_id="A-001-first").ready
    fleet.add_tasks(tasks=[{"id": "late", "not_before": "2999-01-01T00:00:00Z"}])
    early = fleet.explain(task_id="late")
    assert (early.because, early.try_next) == (
        ("opens not before 2999-01-01T00:00:00Z",),
        (("genlock", "edit", "late", "--set", "not_before=null"),),
    )
    assert fleet.get_task_state(task_id="A-001-first").generation == 0, (
        "a look has changed something"
    )


# Memory, lineage, progress


def test_session_memory_is_as_in_the_document(tmp_path: Path) -> None:
    """GC 3.5, to the letter."""
    clock = ManualClock(start=at(5, 50))
    url = f"sqlite://{tmp_path}/genlock.db"
    place: dict[str, Any] = {"tenant_id": "acme-corp", "project_id": "ecommerce-rebuild"}
    alice = "sess-alice-20260104-001"
    plan = {"A": 8, "B": 7, "C": 8, "D": 6}
    with (
        genlock.connect(
            url,
            create=True,
            clock=clock,
            session_id=alice,
            agent_id="agent-beta",
            user_id="alice@acme.com",
            **place,
        ) as fleet,
        genlock.connect(
            url,
            create=True,
            clock=clock,
            session_id="sess-bob",
            agent_id="agent-alpha",
            user_id="bob@acme.com",
            **place,
        ) as other,
    ):
        names = {("B", 1): "schema-design", ("B", 2): "entity-models", ("B", 3): "repositories"}
        tasks = [
            f"{track}-{number:03}-{names.get((track, number), 'task')}"
            for track, count in plan.items()
            for number in range(1, count + 1)
        ]
        fleet.add_tasks(tasks=tasks)
        for task in tasks[:3]:
            granted(other.claim_task(task_id=task, lease_duration_seconds=3600))
        fleet.claim_task(task_id="B-001-schema-design")
        fleet.submit_result(task_id="B-001-schema-design", generation=1)
        clock.set(600)
        granted(fleet.claim_task(task_id="B-002-entity-models", lease_duration_seconds=3600))
        clock.set(600 + 15 * 60)
        fleet.submit_result(
            task_id="B-002-entity-models",
            generation=1,
            work_product_ref="wp-b002-gen1-abc123",
            result_data={"m": 1},
        )
        clock.set(600 + 16 * 60)
        granted(fleet.claim_task(task_id="B-003-repositories"))
        memory = fleet.get_session_memory()
    assert (memory.session_id, memory.tenant_id, memory.project_id) == (
        alice,
        "acme-corp",
        "ecommerce-rebuild",
    )
    assert (memory.user_id, memory.created_at, memory.last_activity) == (
        "alice@acme.com",
        at(5, 50),
        at(6, 16),
    )
    log = [
        (
            e.timestamp,
            e.event,
            e.task_id,
            e.track,
            e.sequence,
            e.generation,
            e.agent_id,
            e.outcome,
            e.work_product_ref,
        )
        for e in memory.task_log
    ]
    assert log[-3:] == [
        (at(6, 0), "CLAIM_ACQUIRED", "B-002-entity-models", "B", 2, 1, "agent-beta", None, None),
        (
            at(6, 15),
            "RESULT_SUBMITTED",
            "B-002-entity-models",
            "B",
            2,
            1,
            "agent-beta",
            "ACCEPTED",
            memory.task_log[-2].work_product_ref,
        ),
        (at(6, 16), "CLAIM_ACQUIRED", "B-003-repositories", "B", 3, 1, "agent-beta", None, None),
    ]
    assert memory.task_log[-2].details["reference"] == "wp-b002-gen1-abc123"
    assert len(log) == 5, "others' doings are in the log"
    assert memory.active_claims == (ClaimRef("B-003-repositories", 1, at(6, 21)),)
    assert memory.completed_tasks == ("B-001-schema-design", "B-002-entity-models")
    assert memory.track_assignments == {"B": "agent-beta"}
    assert memory.track_progress == {
        "A": Progress(completed=0, in_progress=3, pending=5),
        "B": Progress(completed=2, in_progress=1, pending=4),
        "C": Progress(completed=0, in_progress=0, pending=8),
        "D": Progress(completed=0, in_progress=0, pending=6),
    }


def test_the_log_of_a_session_has_all_five_words(fleet: Coordinator, clock: ManualClock) -> None:
    fleet.add_tasks(tasks=["lost", "released"])
    fleet.claim_task(task_id="lost", lease_duration_seconds=30)
    fleet.renew_lease(task_id="lost", expected_generation=1)
    fleet.claim_task(task_id="released")
    fleet.release_claim(task_id="released", expected_generation=1)
    clock.advance(31)
    fleet.claim_task(task_id="lost", session_id="s2", agent_id="bob")
    fleet.submit_result(task_id="lost", generation=1, result_data={"late": True})
    log = [
        (entry.event, entry.task_id, entry.generation, entry.outcome)
        for entry in fleet.get_session_memory().task_log
    ]
    assert log == [
        ("CLAIM_ACQUIRED", "lost", 1, None),
        ("LEASE_RENEWED", "lost", 1, None),
        ("CLAIM_ACQUIRED", "released", 1, None),
        ("CLAIM_RELEASED", "released", 1, None),
        ("CLAIM_LOST", "lost", 1, None),
        ("RESULT_SUBMITTED", "lost", 1, "REJECTED"),
    ]
    assert fleet.get_session_memory().completed_tasks == ()
    with pytest.raises(SessionNotFound, match="nobody"):
        fleet.get_session_memory(session_id="nobody")


def test_lineage_is_as_in_the_document(tmp_path: Path, clock: ManualClock) -> None:
    """GC 9.2, to the letter."""
    url = f"sqlite://{tmp_path}/genlock.db"
    place: dict[str, Any] = {"project_id": "proj-123"}
    with (
        genlock.connect(
            url,
            create=True,
            clock=clock,
            session_id="sess-001",
            agent_id="agent-A",
            user_id="Alice",
            **place,
        ) as first,
        genlock.connect(
            url,
            create=True,
            clock=clock,
            session_id="sess-002",
            agent_id="agent-B",
            user_id="Bob",
            **place,
        ) as second,
        genlock.connect(
            url,
            create=True,
            clock=clock,
            session_id="sess-003",
            agent_id="agent-C",
            user_id="Alice",
            **place,
        ) as third,
    ):
        first.add_tasks(tasks=["task-456"])
        granted(first.claim_task(task_id="task-456", lease_duration_seconds=5 * 60))
        clock.set(6 * 60)
        granted(second.claim_task(task_id="task-456", lease_duration_seconds=2 * 60))
        clock.set(9 * 60)
        granted(third.claim_task(task_id="task-456"))
        clock.set(15 * 60)
        assert third.submit_result(
            task_id="task-456", generation=3, result_data={"by": "C"}
        ).accepted
        clock.set(18 * 60)
        assert (
            second.submit_result(task_id="task-456", generation=2, result_data={"by": "B"}).reason
            == "STALE_GENERATION"
        )
        clock.set(20 * 60)
        assert (
            first.submit_result(task_id="task-456", generation=1, result_data={"by": "A"}).reason
            == "STALE_GENERATION"
        )
        lineage = first.get_lineage(task_id="task-456")
        assert first.get_claim_history(task_id="task-456") == lineage.generations
    assert lineage.task_id == "task-456"
    table = [
        (
            g.generation,
            g.session_id,
            g.agent_id,
            g.user_id,
            g.acquired_at,
            g.released_at,
            g.release_reason,
        )
        for g in lineage.generations
    ]
    assert table == [
        (1, "sess-001", "agent-A", "Alice", at(6, 0), at(6, 5), "EXPIRED"),
        (2, "sess-002", "agent-B", "Bob", at(6, 6), at(6, 8), "EXPIRED"),
        (3, "sess-003", "agent-C", "Alice", at(6, 9), at(6, 15), "COMPLETED"),
    ]
    assert [(g.result_accepted, g.result_rejected) for g in lineage.generations] == [
        (False, True),
        (False, True),
        (True, False),
    ]
    refused = sorted(
        (r.session_id, r.agent_id, r.submitted_at, r.generation, r.rejection_reason, r.accepted)
        for r in lineage.refused
    )
    assert refused == [
        ("sess-001", "agent-A", at(6, 20), 1, "STALE_GENERATION", False),
        ("sess-002", "agent-B", at(6, 18), 2, "STALE_GENERATION", False),
    ]


def test_progress_counts_every_task_once_by_its_track(fleet: Coordinator) -> None:
    assert fleet.track_progress() == {}
    fleet.add_tasks(
        tasks=[
            "A-001-a",
            {"id": "A-002-b", "depends_on": ["A-001-a"]},
            "A-003-c",
            {"id": "B-001-d", "state": "backlog"},
            "slug",
            "held",
        ]
    )
    fleet.claim_task(task_id="A-003-c")
    fleet.submit_result(task_id="A-003-c", generation=1)
    fleet.claim_task(task_id="slug")
    fleet.hold_task(task_id="held")
    assert fleet.track_progress() == {
        "": Progress(in_progress=1, other=1),
        "A": Progress(completed=1, pending=1, blocked=1),
        "B": Progress(pending=1),
    }


def test_agents_are_listed_with_what_they_hold(fleet: Coordinator) -> None:
    fleet.add_tasks(tasks=["a", "b", "c", "d"])
    for task in ("a", "c"):
        fleet.claim_task(task_id=task)
    fleet.claim_task(task_id="b", session_id="s2", agent_id="bob")
    fleet.claim_task(task_id="d", session_id="s3", agent_id="carol")
    fleet.submit_result(task_id="d", generation=1, session_id="s3")
    # Held is not taken away: alice is at work on it still.
    fleet.hold_task(task_id="a")
    listed = [
        (agent.agent_id, agent.session_id, agent.status, agent.tasks)
        for agent in fleet.list_agents()
    ]
    assert listed[:2] == [("alice", "s1", "working", ("a", "c")), ("bob", "s2", "working", ("b",))]


def test_sessions_begin_live_and_end(fleet: Coordinator, clock: ManualClock) -> None:
    info = fleet.register_session(
        session_id="s2", user_id="bob", agent_type="robot", metadata={"model": "m"}
    )
    assert (info.session_id, info.user_id, info.agent_type, info.metadata) == (
        "s2",
        "bob",
        "robot",
        {"model": "m"},
    )
    assert (info.active, info.created_at, info.ended_at, info.process_gone) == (
        True,
        at(6, 0),
        None,
        False,
    )
    clock.advance(60)
    info = fleet.heartbeat_session(session_id="s2", metadata={"phase": "tests"})
    assert (info.last_activity, info.metadata) == (at(6, 1), {"model": "m", "phase": "tests"})
    fleet.add_tasks(tasks=["a", "b", "done"])
    for task in ("a", "b", "done"):
        fleet.claim_task(task_id=task, session_id="s2", agent_id="bob")
    fleet.submit_result(task_id="done", generation=1, session_id="s2")
    (listed,) = fleet.list_sessions()
    assert [(claim.task_id, claim.generation) for claim in listed.claims] == [("a", 1), ("b", 1)]
    ended = fleet.end_session(session_id="s2")
    assert (ended.session_id, ended.released) == ("s2", ("a", "b"))
    assert fleet.list_sessions() == ()
    (gone,) = fleet.list_sessions(include_ended=True)
    assert (gone.active, gone.ended_at, gone.claims) == (False, at(6, 1), ())
    assert {line.task.id for line in fleet.ready()} == {"a", "b"}
    for call in (
        lambda: fleet.claim_task(task_id="a", session_id="s2", agent_id="bob"),
        lambda: fleet.heartbeat_session(session_id="s2"),
        lambda: fleet.register_session(session_id="s2"),
    ):
        with pytest.raises(SessionEnded, match="s2"):
            call()
    assert fleet.end_session(session_id="s2").released == (), "ending twice is not an error"
    with pytest.raises(SessionNotFound, match="nobody"):
        fleet.end_session(session_id="nobody")


def test_a_silent_session_no_longer_counts_as_active(
    fleet: Coordinator, clock: ManualClock
) -> None:
    fleet.register_session()
    clock.advance(599)
    assert [info.active for info in fleet.list_sessions()] == [True]
    clock.advance(2)
    assert [info.active for info in fleet.list_sessions()] == [False]
    fleet.heartbeat_session()
    assert [info.active for info in fleet.list_sessions()] == [True]


# The feed


def test_the_feed_is_read_page_by_page_and_none_is_missed_or_seen_twice(fleet: Coordinator) -> None:
    fleet.add_tasks(tasks=[f"task-{number}" for number in range(23)])
    whole = fleet.read_events(limit=1000)
    assert not whole.more
    pages: list[FeedEvent] = []
    cursor, more = None, True
    while more:
        page = fleet.read_events(after=cursor, limit=5)
        assert len(page.events) <= 5
        pages += page.events
        cursor, more = page.cursor, page.more
    assert [event.event for event in pages] == [event.event for event in whole.events]
    assert [event.position for event in pages] == list(range(1, len(pages) + 1))
    nothing = fleet.read_events(after=cursor)
    assert (nothing.events, nothing.more) == ((), False)
    tail = fleet.read_events(tail=True)
    assert tail.events == ()
    fleet.claim_task(task_id="task-7")
    for start in (tail.cursor, nothing.cursor):
        assert [event.event_type for event in fleet.read_events(after=start).events] == [
            "CLAIM_ACQUIRED",
            "SESSION_REGISTERED",
        ]
    mine = fleet.read_events(task_id="task-7").events
    assert [(event.kind, event.id, event.event_type) for event in mine] == [
        ("task", "task-7", "TASK_ADDED"),
        ("task", "task-7", "CLAIM_ACQUIRED"),
    ]
    acquired = mine[1].event
    wanted = {
        "timestamp": "2026-01-04T06:00:00Z",
        "tenant_id": "default",
        "generation": 1,
        "session_id": "s1",
        "agent_id": "alice",
    }
    assert acquired.items() >= wanted.items()
    assert acquired["actor"]["user_id"] == "ann"


def test_a_cursor_of_another_store_is_lost(fleet: Coordinator) -> None:
    fleet.add_tasks(tasks=["task"])
    with genlock.connect("memory://") as other:
        other.add_tasks(tasks=["task"])
        with pytest.raises(CursorLost):
            fleet.read_events(after=other.read_events().cursor)
    with pytest.raises(CursorLost):
        fleet.read_events(after=fleet.read_events().cursor, project_id="another")


def test_watch_gives_what_comes_and_ends_when_nothing_has_come_for_long(fleet: Coordinator) -> None:
    fleet.add_tasks(tasks=["task"])
    cursor = fleet.read_events().cursor
    watching = fleet.watch(after=cursor, timeout_seconds=30)
    seen: list[str] = []
    first = threading.Event()

    def watch() -> None:
        for event in watching:
            seen.append(event.event_type)
            first.set()
            if event.event_type == "RESULT_ACCEPTED":
                return

    watcher = threading.Thread(target=watch, daemon=True)
    watcher.start()
    fleet.claim_task(task_id="task")
    assert first.wait(30), "the first event did not come while the watch was on"
    fleet.submit_result(task_id="task", generation=1)
    watcher.join(30)
    assert not watcher.is_alive()
    assert seen == ["CLAIM_ACQUIRED", "SESSION_REGISTERED", "RESULT_ACCEPTED"]
    assert list(fleet.watch(timeout_seconds=0.01)) == [], "from now on, nothing has happened"
    assert [event.event_type for event in fleet.watch(after=cursor, timeout_seconds=0.01)] == seen


# Planning


def ids(*names: str) -> tuple[str, ...]:
    return names


def test_a_plan_is_imported_once_and_changed_by_what_differs(fleet: Coordinator) -> None:
    everything = ids(
        "A-001-core-framework",
        "A-002-di-container",
        "A-003-event-bus",
        "B-001-schema-design",
        "B-002-entity-models",
        "B-003-repositories",
    )
    result = fleet.import_plan(source=PLAN)
    assert (result.added, result.changed, result.unchanged, result.gone) == (everything, (), (), ())
    assert [line.task.id for line in fleet.ready()] == [
        "A-001-core-framework",
        "B-001-schema-design",
    ]
    task = fleet.get_task_state(task_id="B-003-repositories").task
    assert (task.track, task.sequence, task.description) == ("B", 3, "Implement repository pattern")
    assert task.depends_on == ("B-002-entity-models", "A-002-di-container")
    granted(fleet.claim_task(task_id="A-001-core-framework"))
    before = fleet.read_events(tail=True).cursor

    again = fleet.import_plan(source=PLAN)
    assert (again.added, again.changed, again.unchanged, again.gone) == ((), (), everything, ())
    assert fleet.read_events(after=before).events == (), (
        "importing the same plan has written something"
    )

    without = (
        PLAN[: PLAN.index("    - id: B-003")].replace("Design database schema", "Design the schema")
        + "    - id: B-004-views\n"
    )
    diff = fleet.import_plan(source=without)
    assert (diff.added, diff.changed, diff.gone) == (
        ids("B-004-views"),
        ids("B-001-schema-design"),
        ids("B-003-repositories"),
    )
    assert diff.unchanged == tuple(
        name for name in everything if name not in ("B-001-schema-design", "B-003-repositories")
    )
    assert diff.cancelled == ()
    assert (
        fleet.get_task_state(task_id="B-001-schema-design").task.description == "Design the schema"
    )
    assert fleet.get_task_state(task_id="B-003-repositories").state == "BLOCKED", (
        "gone is not cancelled"
    )
    running = fleet.get_task_state(task_id="A-001-core-framework")
    assert (running.generation, running.state) == (1, "IN_PROGRESS"), (
        "an import has touched a claim"
    )

    pruned = fleet.import_plan(source=without, prune=True)
    assert (pruned.gone, pruned.cancelled) == (ids("B-003-repositories"), ids("B-003-repositories"))
    assert fleet.get_task_state(task_id="B-003-repositories").state == "CANCELLED"
    assert fleet.import_plan(source=without, prune=True).gone == ()


def test_tasks_are_added_and_edited_by_field(fleet: Coordinator) -> None:
    results = fleet.add_tasks(tasks=["a", {"id": "b", "depends_on": ["a"], "colour": "blue"}])
    assert [(result.verdict, result.task_id, result.state) for result in results] == [
        ("DONE", "a", "PENDING"),
        ("DONE", "b", "BLOCKED"),
    ]
    assert fleet.get_task_state(task_id="b").task.metadata == {"colour": "blue"}
    assert [result.verdict for result in fleet.add_tasks(tasks=["a"])] == ["UNCHANGED"]
    with pytest.raises(NotAllowed, match="exists already"):
        fleet.add_tasks(tasks=[{"id": "a", "title": "another"}])
    edited = fleet.edit_task(task_id="b", changes={"title": "B", "depends_on": []})
    assert (edited.verdict, edited.state, edited.changed) == (
        "DONE",
        "PENDING",
        ("depends_on", "title"),
    )
    assert fleet.edit_task(task_id="b", changes={"title": "B"}).verdict == "UNCHANGED"


def test_next_ids_are_counted_at_the_root_and_below_each_parent(fleet: Coordinator) -> None:
    assert [fleet.next_id(), fleet.next_id()] == ["0001", "0002"]
    assert fleet.next_id(count=3) == ("0003", "0004", "0005")
    assert fleet.next_id(parent="0001") == "0001_t1"
    assert fleet.next_id(parent="0001_t1") == "0001_t1.1"
    assert fleet.next_id(parent="A-001-core", count=2) == ("A-001-core::1", "A-001-core::2")
    fleet.add_tasks(tasks=["0006"])
    assert fleet.next_id() == "0007", "an id that is in use was given out"
    assert fleet.next_id(project_id="another") == "0001"


# Results


def test_a_large_result_is_accepted_and_read_back(fleet: Coordinator) -> None:
    fleet.add_tasks(tasks=["task"])
    fleet.claim_task(task_id="task")
    assert fleet.submit_result(task_id="task", generation=1, result_data=LARGE).accepted
    result = fleet.get_task_state(task_id="task").result
    assert result is not None
    assert (result.payload, result.result_data) == (True, None)
    assert result.size > 5_000_000
    assert fleet.read_result(task_id="task") == LARGE
    assert fleet.read_result(task_id="task", digest=result.digest) == LARGE
    assert fleet.submit_result(task_id="task", generation=1, result_data=LARGE).accepted, (
        "the same again is accepted again"
    )
    with pytest.raises(ResultNotFound):
        fleet.read_result(task_id="task", digest="0" * 64)


@pytest.mark.parametrize("data", [{"late": True}, LARGE], ids=["small", "large"])
def test_a_refused_result_is_kept_and_can_be_adopted(
    fleet: Coordinator, clock: ManualClock, data: Any
) -> None:
    fleet.add_tasks(tasks=["task", {"id": "after", "depends_on": ["task"]}])
    fleet.claim_task(task_id="task", lease_duration_seconds=30)
    clock.advance(31)
    fleet.claim_task(task_id="task", session_id="s2", agent_id="bob")
    answer = fleet.submit_result(task_id="task", generation=1, result_data=data)
    assert (answer.accepted, answer.reason, answer.current_generation) == (
        False,
        "STALE_GENERATION",
        2,
    )
    assert (answer.work_lost, answer.kept) == (True, True)
    (kept,) = fleet.list_refused_results(task_id="task")
    assert (kept.id, kept.state, kept.payload, kept.generation) == (
        answer.refused_id,
        "KEPT",
        data is LARGE,
        1,
    )
    assert kept.result_data == (None if data is LARGE else data)
    assert fleet.read_result(task_id="task", digest=kept.digest) == data
    adopted = fleet.adopt_result(task_id="task", refused_id=kept.id, session_id="s2", generation=2)
    assert (adopted.accepted, adopted.work_product_ref) == (True, kept.work_product_ref)
    assert fleet.read_result(task_id="task") == data
    result = fleet.get_task_state(task_id="task").result
    assert result is not None
    assert (result.generation, result.session_id) == (2, "s2")
    assert (result.adopted_generation, result.adopted_session, result.work_product_ref) == (
        1,
        "s1",
        kept.work_product_ref,
    )
    assert fleet.list_refused_results() == ()
    assert [refused.state for refused in fleet.list_refused_results(include_settled=True)] == [
        "ADOPTED"
    ]
    assert fleet.get_task_state(task_id="after").state == "PENDING"
    with pytest.raises(NotAllowed, match="adopted"):
        fleet.discard_result(task_id="task", refused_id=kept.id)


@pytest.mark.parametrize("data", [{"late": True}, LARGE], ids=["small", "large"])
def test_a_discarded_result_is_gone_but_not_forgotten(fleet: Coordinator, data: Any) -> None:
    fleet.add_tasks(tasks=["task"])
    answer = fleet.submit_result(task_id="task", generation=1, result_data=data)
    assert (answer.reason, answer.kept) == ("FUTURE_GENERATION", True)
    assert answer.refused_id is not None
    (kept,) = fleet.list_refused_results()
    fleet.discard_result(task_id="task", refused_id=answer.refused_id)
    assert fleet.list_refused_results() == ()
    (gone,) = fleet.list_refused_results(include_settled=True)
    assert (gone.id, gone.state, gone.result_data, gone.digest) == (
        kept.id,
        "DISCARDED",
        None,
        kept.digest,
    )
    with pytest.raises(ResultNotFound):
        fleet.read_result(task_id="task", digest=kept.digest)
    with pytest.raises(NotAllowed, match="discarded"):
        fleet.adopt_result(task_id="task", refused_id=answer.refused_id)


def test_payload_bytes_that_another_result_shares_survive_a_discard(fleet: Coordinator) -> None:
    fleet.add_tasks(tasks=["task"])
    refused = fleet.submit_result(task_id="task", generation=7, result_data=LARGE)
    assert refused.refused_id is not None
    fleet.claim_task(task_id="task")
    assert fleet.submit_result(task_id="task", generation=1, result_data=LARGE).accepted
    fleet.discard_result(task_id="task", refused_id=refused.refused_id)
    assert fleet.read_result(task_id="task") == LARGE


def test_an_operator_adopts_at_a_new_generation(fleet: Coordinator) -> None:
    fleet.add_tasks(tasks=["task"])
    fleet.claim_task(task_id="task")
    refused = fleet.submit_result(
        task_id="task", generation=0, session_id="s0", result_data={"early": True}
    )
    assert refused.refused_id is not None
    with pytest.raises(LiveClaim, match="held by alice"):
        fleet.adopt_result(task_id="task", refused_id=refused.refused_id)
    with pytest.raises(NotAllowed, match="refused to this very session"):
        fleet.adopt_result(
            task_id="task", refused_id=refused.refused_id, session_id="s0", take_over=True
        )
    with pytest.raises(BadArgument, match="for operators"):
        fleet.adopt_result(
            task_id="task", refused_id=refused.refused_id, generation=1, take_over=True
        )
    adopted = fleet.adopt_result(task_id="task", refused_id=refused.refused_id, take_over=True)
    assert adopted.accepted
    assert adopted.current_generation > 1
    assert (
        fleet.submit_result(task_id="task", generation=1, result_data={"mine": 1}).reason
        == "STALE_GENERATION"
    )
    assert fleet.read_result(task_id="task") == {"early": True}


def test_work_products_are_named_after_task_and_generation(fleet: Coordinator) -> None:
    """GC 3.6."""
    fleet.add_tasks(tasks=["B-003-repositories", "mine"])
    fleet.claim_task(task_id="B-003-repositories")
    fleet.force_release(task_id="B-003-repositories", take_over=True)
    generation = granted(fleet.claim_task(task_id="B-003-repositories")).generation
    answer = fleet.submit_result(
        task_id="B-003-repositories", generation=generation, result_data={"a": 1}
    )
    assert answer.work_product_ref is not None
    assert re.fullmatch(r"wp-B-003-repositories-gen2-[0-9a-f]{6}", answer.work_product_ref)
    assert (
        fleet.submit_result(
            task_id="B-003-repositories", generation=2, result_data={"a": 1}
        ).work_product_ref
        == answer.work_product_ref
    )
    history = fleet.get_claim_history(task_id="B-003-repositories")
    assert [entry.work_product_ref for entry in history] == [None, answer.work_product_ref]
    fleet.claim_task(task_id="mine")
    answer = fleet.submit_result(task_id="mine", generation=1, work_product_ref="s3://bucket/mine")
    assert re.fullmatch(r"wp-mine-gen1-[0-9a-f]{6}", answer.work_product_ref or "")


COMMIT = "git:" + "1f" * 20


@pytest.mark.parametrize("data", ["small", LARGE], ids=["inline", "payload"])
def test_the_caller_s_reference_stands_beside_the_generated_one_wherever_a_result_goes(
    fleet: Coordinator, data: Any
) -> None:
    """Refused, adopted, escalated, rejected, adopted again and approved: it is never lost."""
    fleet.add_tasks(tasks=[{"id": "T", "human_required": True}])
    fleet.claim_task(task_id="T")
    fleet.force_release(task_id="T", take_over=True)
    generation = granted(fleet.claim_task(task_id="T", session_id="s2")).generation
    fleet.submit_result(task_id="T", generation=1, result_data=data, work_product_ref=COMMIT)
    (kept,) = fleet.list_refused_results()
    assert re.fullmatch(r"wp-T-gen1-[0-9a-f]{6}", kept.work_product_ref)
    assert kept.reference == COMMIT

    def adopt(generation: int) -> str:
        (refused,) = fleet.list_refused_results()
        fleet.adopt_result(
            task_id="T", refused_id=refused.id, session_id="s2", generation=generation
        )
        return fleet.get_review(task_id="T").digest

    digest = adopt(generation)
    waiting = fleet.get_review(task_id="T")
    assert (waiting.work_product_ref, waiting.reference) == (kept.work_product_ref, COMMIT)
    fleet.reject_review(task_id="T", generation=generation, digest=digest, feedback="no")
    assert [refused.reference for refused in fleet.list_refused_results()] == [COMMIT]
    generation = granted(fleet.claim_task(task_id="T", session_id="s2")).generation
    digest = adopt(generation)
    fleet.approve_review(task_id="T", generation=generation, digest=digest)
    result = fleet.get_task_state(task_id="T").result
    assert result is not None
    assert (result.work_product_ref, result.reference) == (kept.work_product_ref, COMMIT)
    last = fleet.get_claim_history(task_id="T")[-1]
    assert (last.work_product_ref, last.reference) == (kept.work_product_ref, COMMIT)


# Many at once


def test_batches_answer_for_each_task_and_for_those_that_do_not_exist(fleet: Coordinator) -> None:
    fleet.add_tasks(tasks=["a", "b", "c"])
    fleet.claim_task(task_id="b", session_id="s2", agent_id="bob")
    claims = fleet.batch_claim(task_ids=["a", "b", "nobody", "c", "a"])
    assert list(claims) == ["a", "b", "nobody", "c"]
    assert isinstance(claims["nobody"], TaskNotFound)
    assert [claims[task].reason for task in ("a", "b", "c")] == [  # type: ignore[union-attr]
        "GRANTED",
        "DENIED_ACTIVE_CLAIM",
        "GRANTED",
    ]
    renewals = fleet.batch_renew(generations={"a": 1, "b": 1, "c": 2, "nobody": 1})
    assert isinstance(renewals["nobody"], TaskNotFound)
    assert [renewals[task].reason for task in ("a", "b", "c")] == [  # type: ignore[union-attr]
        "RENEWED",
        "SESSION_MISMATCH",
        "GENERATION_MISMATCH",
    ]
    results = fleet.batch_submit(
        results=[
            {"task_id": "a", "generation": 1, "result_data": {"small": True}},
            {"task_id": "nobody", "generation": 1},
            {"task_id": "b", "generation": 1, "result_data": {"not": "mine"}},
            {"task_id": "c", "generation": 1, "result_data": LARGE, "work_product_ref": "mine"},
        ]
    )
    assert isinstance(results["nobody"], TaskNotFound)
    assert [results[task].reason for task in ("a", "b", "c")] == [  # type: ignore[union-attr]
        "ACCEPTED",
        "SESSION_MISMATCH",
        "ACCEPTED",
    ]
    assert fleet.read_result(task_id="c") == LARGE
    assert [refused.task_id for refused in fleet.list_refused_results()] == ["b"]
    states = fleet.batch_get_states(task_ids=["c", "nobody", "a"])
    assert {task: state.state for task, state in states.items()} == {
        "c": "COMPLETED",
        "a": "COMPLETED",
    }
    assert list(states) == ["c", "a"]
    assert fleet.batch_claim(task_ids=[]) == {}
    assert fleet.batch_renew(generations={}) == {}
    assert fleet.batch_submit(results=[]) == {}
    assert fleet.batch_get_states(task_ids=[]) == {}


def test_a_batch_that_names_a_task_twice_is_refused_before_anything_is_done(
    fleet: Coordinator,
) -> None:
    fleet.add_tasks(tasks=["a", "b"])
    fleet.batch_claim(task_ids=["a", "b"])
    results = [
        {"task_id": name, "generation": 1, "result_data": {"by": number}}
        for number, name in enumerate(["a", "b", "a"])
    ]
    with pytest.raises(BadArgument, match="'a' is there twice"):
        fleet.batch_submit(results=results)
    assert {
        task: state.state for task, state in fleet.batch_get_states(task_ids=["a", "b"]).items()
    } == dict.fromkeys("ab", "IN_PROGRESS")
    assert fleet.list_refused_results() == ()


def test_subtasks_with_large_results_complete_their_parent(fleet: Coordinator) -> None:
    fleet.add_tasks(tasks=["parent", {"id": "after", "depends_on": ["parent"]}])
    fleet.claim_task(task_id="parent")
    spawned = fleet.spawn_subtasks(
        task_id="parent",
        generation=1,
        subtasks=["one", {"title": "two"}, {"id": "named", "title": "three"}],
        mode="fan-out-fan-in",
    )
    assert (spawned.success, spawned.children) == (True, ("parent::1", "parent::2", "named"))
    state = fleet.get_task_state(task_id="parent")
    assert (state.state, state.claim, set(state.unfinished_children)) == (
        "BLOCKED",
        None,
        set(spawned.children),
    )
    references = {}
    for child in spawned.children:
        task = fleet.get_task_state(task_id=child).task
        assert (task.parent, task.depth, task.spawned_from) == ("parent", 1, "parent")
        generation = granted(fleet.claim_task(task_id=child)).generation
        answer = fleet.submit_result(
            task_id=child, generation=generation, result_data=LARGE | {"child": child}
        )
        references[child] = answer.work_product_ref
    parent = fleet.get_task_state(task_id="parent")
    assert parent.state == "COMPLETED"
    assert parent.result is not None
    assert (parent.result.session_id, parent.result.generation, parent.result.result_data) == (
        "genlock",
        2,
        references,
    )
    assert fleet.read_result(task_id="parent") == references
    assert fleet.read_result(task_id="parent::2")["child"] == "parent::2"
    assert fleet.get_task_state(task_id="after").state == "PENDING"


# Policy


def test_policy_and_limits_are_read_and_set_by_their_names(fleet: Coordinator) -> None:
    settings = fleet.get_policy()
    assert (settings.profile, settings.policy["order"], settings.policy["breaker_threshold"]) == (
        "local",
        "track",
        5,
    )
    assert settings.tracks["A"] == "Core Architecture"
    assert len(settings.tracks) == 9
    changed = fleet.set_policy(
        policy={"breaker_threshold": 2},
        tracks={"Q": "Quests"},
        profile="default",
        limits={"max_active_sessions": 7},
    )
    assert changed == fleet.get_policy()
    assert (changed.policy["breaker_threshold"], changed.policy["order"], changed.tracks) == (
        2,
        "track",
        {"Q": "Quests"},
    )
    assert (
        changed.profile,
        changed.limits["max_active_sessions"],
        changed.limits["max_concurrent_claims"],
    ) == ("default", 7, 100)
    with pytest.raises(BadArgument, match="nonsense"):
        fleet.set_policy(policy={"nonsense": 1})
    assert fleet.get_policy(project_id="another").policy["breaker_threshold"] == 5


# The other world


def test_the_same_operations_can_be_awaited(tmp_path: Path) -> None:
    clock = ManualClock()

    async def play() -> None:
        async with genlock.aio.connect(
            f"sqlite://{tmp_path}/genlock.db",
            create=True,
            clock=clock,
            session_id="s1",
            agent_id="alice",
        ) as fleet:
            assert (
                len(await fleet.add_tasks(tasks=[f"task-{number}" for number in range(50)])) == 50
            )
            answers = await asyncio.gather(*(fleet.claim_next() for _ in range(60)))
            won = [answer.task_id for answer in answers if answer.success]
            assert len(won) == len(set(won)) == 50
            assert {answer.reason for answer in answers if not answer.success} == {"NOTHING_READY"}
            done = await asyncio.gather(
                *(
                    fleet.submit_result(task_id=str(task), generation=1, result_data={"t": task})
                    for task in won
                )
            )
            assert all(answer.accepted for answer in done)
            assert await fleet.read_result(task_id="task-7") == {"t": "task-7"}
            with pytest.raises(TaskNotFound):
                await fleet.get_task_state(task_id="nobody")
            assert await fleet.next_id(count=2) == ("0001", "0002")

    asyncio.run(play())


def test_events_can_be_watched_in_an_event_loop_while_it_does_other_things(tmp_path: Path) -> None:
    async def play() -> list[str]:
        async with genlock.aio.connect(
            f"sqlite://{tmp_path}/genlock.db", create=True, session_id="s1", agent_id="alice"
        ) as fleet:
            await fleet.add_tasks(tasks=["task"])
            cursor = (await fleet.read_events(tail=True)).cursor
            seen: list[str] = []
            first = asyncio.Event()

            async def watch() -> None:
                async for event in fleet.watch(after=cursor, timeout_seconds=30):
                    seen.append(event.event_type)
                    first.set()
                    if event.event_type == "RESULT_ACCEPTED":
                        return

            watching = asyncio.create_task(watch())
            await fleet.claim_task(task_id="task")
            await asyncio.wait_for(first.wait(), 30)
            await fleet.submit_result(task_id="task", generation=1)
            await asyncio.wait_for(watching, 30)
            assert [event async for event in fleet.watch(timeout_seconds=0.01)] == []
            return seen

    assert asyncio.run(play()) == ["CLAIM_ACQUIRED", "SESSION_REGISTERED", "RESULT_ACCEPTED"]


def test_whoever_watches_in_an_event_loop_takes_no_thread_from_others_and_leaves_none_behind(
    tmp_path: Path,
) -> None:
    many = min(32, (os.cpu_count() or 1) + 4) + 1  # one more than the loop has threads

    async def play() -> None:
        async with genlock.aio.connect(f"sqlite://{tmp_path}/genlock.db", create=True) as fleet:
            await fleet.add_tasks(tasks=["task"])
            first = (await fleet.read_events(limit=1)).cursor
            watches = [fleet.watch(after=first) for _ in range(many)]
            for watch in watches:
                await anext(watch)
            watching = [asyncio.ensure_future(anext(watch)) for watch in watches]
            assert len(await asyncio.ensure_future(fleet.ready())) == 1
            for each in watching:
                each.cancel()
            await asyncio.wait(watching)
            _join_watchers()

    asyncio.run(asyncio.wait_for(play(), 30))


def _join_watchers() -> None:
    for thread in threading.enumerate():
        if thread.name.startswith("genlock-watch"):
            thread.join(10)
            assert not thread.is_alive(), "nobody watches any more"


def test_a_sweep_says_what_it_found(fleet: Coordinator, clock: ManualClock) -> None:
    fleet.add_tasks(tasks=["expired", "orphaned", "live"])
    fleet.claim_task(task_id="expired", lease_duration_seconds=30)
    fleet.claim_task(
        task_id="orphaned", session_id="s2", agent_id="bob", lease_duration_seconds=3600
    )
    fleet.claim_task(task_id="live", lease_duration_seconds=3600)
    clock.advance(31)
    swept = fleet.sweep()
    assert (swept.expired, swept.orphaned, swept.purged) == (1, 0, 0)
    assert fleet.get_task_state(task_id="expired").state == "PENDING"
    assert fleet.get_task_state(task_id="live").state == "IN_PROGRESS"
    assert fleet.sweep().expired == 0


@pytest.mark.parametrize("name", ["generation", "expected_generation"])
def test_a_renewal_and_a_release_take_the_generation_under_our_name_and_under_gcs(
    fleet: Coordinator, name: str
) -> None:
    fleet.add_tasks(tasks=["T"])
    fleet.claim_task(task_id="T")
    renewed: Any = fleet.renew_lease
    released: Any = fleet.release_claim
    assert renewed(task_id="T", **{name: 2}).reason == "GENERATION_MISMATCH"
    assert renewed(task_id="T", **{name: 1}).success
    assert released(task_id="T", **{name: 1}).success


def test_a_generation_is_needed_and_two_must_agree(fleet: Coordinator) -> None:
    fleet.add_tasks(tasks=["T"])
    fleet.claim_task(task_id="T")
    with pytest.raises(BadArgument, match="generation is missing"):
        fleet.renew_lease(task_id="T")
    with pytest.raises(BadArgument, match="mean the same, and are 1 and 2"):
        fleet.renew_lease(task_id="T", generation=1, expected_generation=2)
    assert fleet.renew_lease(task_id="T", generation=1, expected_generation=1).success


def test_a_claim_that_is_required_and_denied_raises_with_the_answer(fleet: Coordinator) -> None:
    fleet.add_tasks(tasks=["T"])
    assert fleet.claim_task(task_id="T").require().generation == 1
    denied = fleet.claim_task(task_id="T", session_id="other", agent_id="bob")
    with pytest.raises(ClaimDenied, match="'T' was not granted, DENIED_ACTIVE_CLAIM") as raised:
        denied.require()
    assert raised.value.result is denied
