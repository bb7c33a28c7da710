"""Every field of a record survives every event that does not mean to change it, also a field that
is added tomorrow."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any, get_args

import msgspec
import pytest

from genlock.core import events as e
from genlock.core.agent_roles import AgentRoles
from genlock.core.key_roles import Role
from genlock.core.keys import (
    ACCESS,
    COUNTER,
    FEATURE,
    KEY,
    PROJECT,
    PROMOTION,
    REFUSED,
    SESSION,
    SETTLED,
    TASK,
    TENANT,
)
from genlock.core.model import (
    AccessRecord,
    Act,
    Actor,
    Claim,
    CounterRecord,
    FeatureRecord,
    Feedback,
    Hold,
    KeyRecord,
    KnownState,
    Manifest,
    Process,
    Product,
    ProgressLog,
    ProgressNote,
    ProjectRecord,
    PromotionRecord,
    Record,
    RefusedRecord,
    Released,
    Result,
    Review,
    SessionRecord,
    SettledRecord,
    Task,
    TaskRecord,
    TenantRecord,
)
from genlock.core.policy import PROFILES, Order, Policy, TenantLimits
from genlock.core.reasons import (
    ClaimState,
    PromotionState,
    RefusedState,
    ReleaseReason,
    ReviewCause,
    SpawnMode,
    Status,
    Waiting,
)
from genlock.core.rules import evolve

NOW = datetime(2026, 1, 4, 6, 0, tzinfo=UTC)
LATER = NOW + timedelta(hours=1)

MANIFEST = Manifest("alice", 1, (Product("a", "0" * 64, 1),))

TASK_RECORD = TaskRecord(
    task=Task(id="T", title="a task", assigned_to="alice", assigned_at=NOW),
    state=Status.HELD,
    created_at=NOW,
    updated_at=NOW,
    order=Order.LEAF_FIRST,
    generation=7,
    granted=True,
    grants=3,
    failures=2,
    claim=Claim(
        "c",
        "s1",
        "alice",
        7,
        NOW,
        NOW,
        LATER,
        60.0,
        5.0,
        ClaimState.ACTIVE,
        "ann",
        "coder",
        "op",
        4,
        NOW,
        {"a": 1},
    ),
    released=Released(6, "s0", ReleaseReason.ERROR, "op-0"),
    result=Result("r", 5, "s0", "bob", "wp", "d", 1, NOW),
    dependencies={"D": KnownState(3, Status.COMPLETED)},
    children={"C": KnownState(2, Status.COMPLETED), "E": KnownState(2, Status.PENDING)},
    spawning=(Task(id="F"), Task(id="G")),
    spawn_mode=SpawnMode.SEQUENTIAL,
    hold=Hold("why", NOW, LATER),
    backlog=True,
    early=True,
    inputs_changed=("D",),
    assigned_until=LATER,
    act=Act("op-a", "s1", "TASK_HELD"),
    acts=(Act("op-b", "s1", "TASK_HELD"),),
    fan_in_due=True,
    opened=True,
    spawning_backlog=("G",),
    waiting=Waiting.TEXT,
    progress=ProgressLog(
        7, NOW, 0.5, {"usd": 1.0}, {"usd": 2.0}, (ProgressNote(NOW, 7, "a", "n"),)
    ),
    review=Review(
        Result("r", 7, "s1", "alice", "wp", "d", 1, NOW), (ReviewCause.HUMAN_REQUIRED,), "coder"
    ),
    feedback=Feedback(NOW, 6, "bea", "d", "too short", "T/6/s0/d"),
)

RECORDS: dict[str, Record] = {
    TASK: TASK_RECORD,
    SESSION: SessionRecord(
        "s1",
        NOW,
        NOW,
        "ann",
        "coder",
        Process("laptop", "boot", 7, 100, "4026531836"),
        NOW,
        LATER,
        {"a": 1},
        True,
        600.0,
    ),
    REFUSED: RefusedRecord(
        "T",
        1,
        "s1",
        "alice",
        "d",
        "STALE_GENERATION",
        2,
        "wp",
        3,
        NOW,
        NOW,
        msgspec.Raw(b"1"),
        True,
        RefusedState.ADOPTED,
        "p",
        "s3://T",
        MANIFEST,
    ),
    PROJECT: ProjectRecord(
        "shop", NOW, NOW, Policy(), {"A": "first"}, 4, AgentRoles({"coder": ("code",)})
    ),
    TENANT: TenantRecord("acme", NOW, NOW, "local", PROFILES["local"]),
    PROMOTION: PromotionRecord(
        "T", 1, MANIFEST, NOW, NOW, PromotionState.FAILED, "no such draft", ("a",)
    ),
    COUNTER: CounterRecord("global", 9, NOW, 3),
    ACCESS: AccessRecord("host/1", NOW, {"T": 3}),
    SETTLED: SettledRecord("c1", NOW),
    FEATURE: FeatureRecord("AUTH", NOW, {"C": 3}, {"G": 2, "T": 5}, 7, True),
    KEY: KeyRecord(
        "k",
        "ci",
        "acme",
        "*",
        Role.AGENT,
        "d",
        NOW,
        "ann",
        NOW,
        "s1",
        LATER,
        LATER,
        "d0",
        LATER,
        ("coder",),
    ),
}

CHANGES: dict[type, tuple[str, str]] = {
    e.TaskEdited: (TASK, "task dependencies early backlog waiting spawn_mode act acts"),
    e.TaskReordered: (TASK, "order"),
    e.TaskDue: (TASK, "early"),
    e.ClaimAcquired: (
        TASK,
        "state generation granted grants claim hold backlog inputs_changed fan_in_due",
    ),
    e.LeaseRenewed: (TASK, "claim"),
    e.ProgressReported: (TASK, "progress"),
    e.ClaimReleased: (TASK, "claim released failures"),
    e.ClaimExpired: (TASK, "claim failures"),
    e.ClaimOrphaned: (TASK, "claim failures"),
    e.ClaimStale: (TASK, "claim"),
    e.ExternalChange: (TASK, ""),
    e.ClaimSuperseded: (TASK, "claim released failures generation granted act acts"),
    e.TaskAssigned: (TASK, "task assigned_until act acts"),
    e.AssignmentLapsed: (TASK, "task assigned_until"),
    e.ResultAccepted: (
        TASK,
        "state claim released result hold failures act acts review feedback",
    ),
    e.ConvergenceEscalated: (TASK, "state claim released failures review act acts"),
    e.EvaluationReported: (TASK, "review"),
    e.ReviewRejected: (TASK, "state generation granted review feedback fan_in_due"),
    e.TaskReset: (
        TASK,
        (
            "state claim released result hold failures grants inputs_changed fan_in_due generation "
            "granted act acts feedback"
        ),
    ),
    e.TaskCancelled: (
        TASK,
        (
            "state claim released hold generation granted spawning spawning_backlog fan_in_due act "
            "acts"
        ),
    ),
    e.TaskHeld: (TASK, "hold act acts"),
    e.TaskReopened: (TASK, "state hold backlog failures grants act acts"),
    e.DependencyMet: (TASK, "dependencies task waiting"),
    e.DependencyCancelled: (TASK, "dependencies"),
    e.DependencyReopened: (TASK, "dependencies inputs_changed"),
    e.ChildAdded: (TASK, "children spawning spawning_backlog fan_in_due"),
    e.ChildFinished: (TASK, "children spawning spawning_backlog fan_in_due"),
    e.ChildReopened: (TASK, "children spawning spawning_backlog fan_in_due inputs_changed"),
    e.ChildIdTaken: (TASK, "children spawning spawning_backlog spawn_mode fan_in_due"),
    e.ChildrenAnnounced: (TASK, "children spawning spawning_backlog fan_in_due"),
    e.SubtasksSpawned: (TASK, "task children spawning spawn_mode claim released failures act acts"),
    e.ResultAdopted: (REFUSED, "state"),
    e.ResultDiscarded: (REFUSED, "state data payload payload_id"),
    e.PromotionFailed: (PROMOTION, "state reason"),
    e.PromotionCompleted: (PROMOTION, "state reason superseded"),
    e.SessionRegistered: (
        SESSION,
        "user agent_type process heartbeat_at ended_at metadata implied orphan_seconds",
    ),
    e.SessionHeartbeat: (SESSION, "heartbeat_at metadata"),
    e.SessionEndedEvent: (SESSION, "ended_at"),
    e.IdsTaken: (COUNTER, "value epoch"),
    e.ProjectChanged: (PROJECT, "policy tracks agent_roles"),
    e.EpochRaised: (PROJECT, "epoch"),
    e.TenantChanged: (TENANT, "profile limits"),
    e.ClaimDenied: (ACCESS, "denials"),
    e.Settled: (SETTLED, "cursor"),
    e.FeatureCounted: (FEATURE, "unfinished finished"),
    e.KeyRotated: (KEY, "digest expires_at previous previous_until"),
    e.KeyRevoked: (KEY, "revoked_at previous previous_until"),
}
"""What each event means to change in a record that exists, besides the time of its last event."""

FIRST = {e.TaskAdded, e.ResultRejected, e.PromotionRequested, e.KeyCreated}
"""These begin a record and never meet one."""

GIVEN: dict[str, Any] = {
    "timestamp": LATER,
    "tenant_id": "acme",
    "project_id": "shop",
    "task": Task(id="T", title="another"),
    "operation": "op-new",
    "actor": Actor(user_id="bea"),
    "session_id": "s1",
    "task_id": "T",
    "generation": 8,
    "others": {"C": KnownState(9, Status.PENDING), "G": KnownState(9, Status.PENDING)},
    "children": (Task(id="H"),),
    "backlog": (),
    "tracks": {"B": "second"},
    "prefix": "global",
    "feature": "AUTH",
    "tenant": "acme",
    "access_id": "host/1",
    "key_id": "k",
    "causes": (ReviewCause.OUTSIDE_ROLE,),
}


def event_of(kind: type) -> e.Event:
    """An event with every required field filled in."""
    values: dict[str, Any] = {}
    for field in msgspec.structs.fields(kind):
        if field.required or field.name in GIVEN:
            values[field.name] = GIVEN[field.name] if field.name in GIVEN else _example(field.type)
    if kind is not e.ChildrenAnnounced and "backlog" in values:
        values["backlog"] = True
    event: e.Event = kind(**values)
    return event


def _example(kind: Any) -> Any:
    kind = next((each for each in get_args(kind) if each is not type(None)), kind)
    examples = {
        datetime: LATER,
        float: 60.0,
        int: 8,
        str: "text",
        bool: True,
        Policy: Policy(),
        TenantLimits: PROFILES["default"],
    }
    return examples[kind] if kind in examples else next(iter(kind))


@pytest.mark.parametrize("kind", CHANGES, ids=lambda kind: kind.__name__)
def test_fields_that_an_event_does_not_mean_to_change_survive_it(kind: type) -> None:
    record_kind, names = CHANGES[kind]
    before = RECORDS[record_kind]

    after = evolve(record_kind, before, event_of(kind))

    changed = {
        name for name in before.__struct_fields__ if getattr(before, name) != getattr(after, name)
    }
    assert changed - {"updated_at"} <= set(names.split())


@pytest.mark.parametrize("kind", RECORDS)
def test_every_field_of_these_records_differs_from_its_default(kind: str) -> None:
    """Else a field that an event resets to its default would seem to have survived."""
    for field in msgspec.structs.fields(type(RECORDS[kind])):
        value = getattr(RECORDS[kind], field.name)
        assert field.required or value not in (field.default, _default(field)), (
            f"give {field.name} a value here"
        )


def _default(field: Any) -> Any:
    return None if field.default_factory is msgspec.NODEFAULT else field.default_factory()


def test_the_table_has_every_event() -> None:
    assert {*CHANGES, *FIRST} == set(get_args(e.Event))
