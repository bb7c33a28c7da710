"""Examples of requests and answers for the most common operations. A test sends them."""

from __future__ import annotations

from typing import Any, Final

TASK: Final = "A-001-core-framework"
SESSION: Final = "session-1"

REQUESTS: Final[dict[str, Any]] = {
    "add_tasks": {
        "tasks": [
            {"id": TASK, "title": "The framework"},
            {"id": "A-002-plugins", "depends_on": [TASK]},
            "write-the-news",
        ]
    },
    "register_session": {"session_id": SESSION, "agent_type": "worker"},
    "claim_task": {"session_id": SESSION, "agent_id": "alice", "lease_duration_seconds": 300},
    "claim_next": {"session_id": SESSION, "agent_id": "alice", "wait_seconds": 0},
    "renew_lease": {"session_id": SESSION, "generation": 1},
    "report_progress": {
        "session_id": SESSION,
        "generation": 1,
        "fraction": 0.4,
        "note": "the tests pass",
        "cost": {"usd": 0.12},
    },
    "submit_result": {"session_id": SESSION, "generation": 1, "result_data": {"summary": "done"}},
    "release_claim": {"session_id": SESSION, "generation": 1, "reason": "VOLUNTARY"},
    "spawn_subtasks": {
        "session_id": SESSION,
        "generation": 1,
        "subtasks": ["read", "write"],
        "mode": "parallel",
    },
    "batch_claim": {
        "session_id": SESSION,
        "agent_id": "alice",
        "task_ids": [TASK, "write-the-news"],
    },
    "batch_renew": {"session_id": SESSION, "generations": {TASK: 1}},
    "batch_submit": {
        "session_id": SESSION,
        "results": [{"task_id": TASK, "generation": 1, "result_data": {"summary": "done"}}],
    },
    "batch_get_states": {"task_ids": [TASK]},
    "next_id": {"count": 1},
    "edit_task": {"changes": {"title": "The framework, again"}},
    "import_plan": {"source": "tasks:\n  - id: write-the-news\n"},
    "diff_plan": {"source": "tasks:\n  - id: write-the-news\n"},
    "check_plan": {"source": "tasks:\n  - id: write-the-news\n"},
    "assign_task": {"agent_id": "bob", "hours": 4},
    "hold_task": {"reason": "the design is not settled"},
    "approve_review": {"generation": 2, "digest": "9f0c11ab2d3e"},
    "reject_review": {
        "generation": 2,
        "digest": "9f0c11ab2d3e",
        "feedback": "the limits are not checked",
    },
    "settle_promotion": {"generation": 2, "digest": "9f0c11ab2d3e" + "0" * 52},
    "report_evaluation": {
        "session_id": SESSION,
        "generation": 2,
        "digest": "9f0c11ab2d3e",
        "evaluator": "unit_tests",
        "passed": True,
    },
    "cancel_task": {"reason": "not needed any more"},
    "reset_task": {"cascade": False},
    "set_policy": {"policy": {"expired": "grace", "grace_seconds": 60}},
}

CLAIMED: Final = {
    "success": True,
    "reason": "GRANTED",
    "task_id": TASK,
    "claim": {
        "id": "clm-4f1d2a",
        "tenant_id": "default",
        "project_id": "default",
        "task_id": TASK,
        "track": "A",
        "sequence": 1,
        "agent_id": "alice",
        "generation": 1,
        "session_id": SESSION,
        "claimed_at": "2026-01-04T06:00:00Z",
        "lease_seconds": 300.0,
        "expires_at": "2026-01-04T06:05:00Z",
        "state": "ACTIVE",
    },
}

DENIED: Final = {
    "type": "urn:genlock:denied-active-claim",
    "title": "The task is held by another session or agent",
    "status": 409,
    "detail": "",
    "message": f"{TASK} is held by alice (session {SESSION}), lease until 2026-01-04T06:05:00Z",
    "try_next": [["genlock", "explain", TASK], ["genlock", "next"]],
    "success": False,
    "reason": "DENIED_ACTIVE_CLAIM",
    "task_id": TASK,
    "current_holder": "alice",
    "holder": {
        "agent": "alice",
        "session": SESSION,
        "user": "",
        "claimed_at": "2026-01-04T06:00:00Z",
        "expires_at": "2026-01-04T06:05:00Z",
        "looks_alive": True,
    },
}

ANSWERS: Final[dict[tuple[str, str], Any]] = {
    ("claim_task", "200"): CLAIMED,
    ("claim_task", "409"): DENIED,
    ("claim_next", "200"): CLAIMED,
    ("renew_lease", "200"): {
        "success": True,
        "reason": "RENEWED",
        "generation": 1,
        "new_expiry": "2026-01-04T06:10:00Z",
    },
    ("submit_result", "200"): {"accepted": True, "reason": "ACCEPTED", "current_generation": 1},
    ("release_claim", "200"): {"success": True, "reason": "RELEASED", "generation": 1},
}
