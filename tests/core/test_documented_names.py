"""The names that the documents promise are there, by name: literal lists from GC 4.2.1 and from the
rulings."""

from __future__ import annotations

import pytest
from msgspec import Struct

from genlock.core import events, results
from genlock.core.model import Actor, Task

PROMISED: dict[type[Struct], str] = {
    # GC 4.2.1; `generation` is the integer, and TaskGeneration's fields sit beside it (design,
    # section 4).
    results.TaskClaim: """
        id tenant_id project_id task_id track sequence agent_id generation state work_product_ref metadata
        session_id claimed_at lease_seconds expires_at agent_role
    """,
    results.ClaimHistory: """
        id tenant_id project_id task_id track sequence generation session_id agent_id acquired_at released_at release_reason
        result_accepted work_product_ref result_rejected
    """,
    results.TaskResult: """
        id tenant_id project_id task_id track sequence generation session_id agent_id work_product_ref result_data submitted_at
        accepted rejection_reason
    """,
    results.SessionMemory: """
        session_id tenant_id project_id user_id created_at last_activity task_log active_claims completed_tasks track_assignments
        track_progress
    """,
    results.TaskLogEntry: """
        timestamp event task_id track sequence generation agent_id outcome work_product_ref details
    """,
    # GC 5.1.
    results.ClaimResult: "success claim reason current_holder holder",
    results.RenewalResult: "success new_expiry reason",
    results.SubmissionResult: "accepted reason current_generation work_lost kept",
    # The rulings.
    results.ReleaseResult: "success reason generation",
    results.TaskState: "task state generation claim unmet_dependencies result refused_results",
    results.Holder: "agent session user claimed_at expires_at looks_alive",
    results.ClaimRef: "task_id generation expires_at",
    results.Progress: "completed in_progress pending",
    Task: """
        id title description phase priority tags track sequence feature edge parent depth depends_on modules repo roles human_required
        estimate_seconds lease_seconds parallelizable isolation worktree_path coordination_mode assigned_to assigned_at waiting_for
        not_before spawned_from lock_timeout_hours metadata
    """,
    # GC 8.2.
    events.ClaimAcquired: """
        timestamp tenant_id project_id task_id generation session_id agent_id previous_generation previous_state
        lease_duration_seconds metadata actor
    """,
    events.ResultRejected: """
        timestamp tenant_id project_id task_id submitted_generation current_generation rejection_reason session_id agent_id work_lost
        metadata actor
    """,
}


@pytest.mark.parametrize("record", PROMISED, ids=lambda record: record.__name__)
def test_every_promised_field_is_there_by_name(record: type[Struct]) -> None:
    assert set(PROMISED[record].split()) <= set(record.__struct_fields__)


def test_a_task_has_the_fields_of_the_rulings_and_no_others() -> None:
    assert list(Task.__struct_fields__) == PROMISED[Task].split()


def test_every_event_says_who_was_behind_it() -> None:
    assert {"user_id", "client_ip", "host", "role"} == set(Actor.__struct_fields__)
    for kind in events.Occurrence.__subclasses__():
        assert "actor" in kind.__struct_fields__


@pytest.mark.parametrize(
    "name",
    [
        "CLAIM_ACQUIRED",
        "CLAIM_DENIED",
        "CLAIM_RELEASED",
        "CLAIM_EXPIRED",
        "CLAIM_STALE",
        "CLAIM_ORPHANED",
        "CLAIM_SUPERSEDED",
        "LEASE_RENEWED",
        "RESULT_ACCEPTED",
        "RESULT_REJECTED",
    ],
)
def test_events_have_the_names_of_the_rulings_on_the_wire(name: str) -> None:
    assert name in {str(kind.__struct_config__.tag) for kind in _kinds(events.Occurrence)}


def _kinds(kind: type[events.Occurrence]) -> list[type[events.Occurrence]]:
    return [kind, *(below for sub in kind.__subclasses__() for below in _kinds(sub))]
