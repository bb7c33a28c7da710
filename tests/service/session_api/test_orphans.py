"""Orphans: `stats`, `cleanup`, the sweep and the next claimer agree on whose holder is lost."""

from __future__ import annotations

import pytest

from genlock.service.compose import Choices
from genlock.service.session_api.health import ClaimConfig
from tests.service.session_api.served import Served, serving


def claim(api: Served, task: str, session: str) -> tuple[int, dict[str, object]]:
    return api.post(f"/api/tasks/{task}/claim", {"sessionId": session})


def orphans(api: Served) -> int:
    counted: int = api.get("/api/tasks/claims/stats")[1]["byHealth"]["orphaned"]
    return counted


def cleaned(api: Served) -> list[tuple[str, str]]:
    answer = api.post("/api/tasks/claims/cleanup")[1]
    return [(one["taskId"], one["reason"]) for one in answer["cleaned"]]


def lost(api: Served, task: str) -> dict[str, object]:
    """The event by which the task's holder was found lost."""
    feed = api.do(lambda fleet: fleet.read_events(limit=1000))
    (event,) = (
        found.event
        for found in feed.events
        if (found.id, found.event_type) == (task, "CLAIM_ORPHANED")
    )
    return dict(event)


def test_cleanup_releases_what_stats_call_orphaned_with_the_evidence(api: Served) -> None:
    api.add("task")
    claim(api, "task", "silent")
    api.clock.advance(600)
    assert (orphans(api), cleaned(api)) == (0, [])
    api.clock.advance(1)
    assert (orphans(api), cleaned(api)) == (1, [("task", "session_silent")])

    assert (orphans(api), cleaned(api)) == (0, [])
    event = lost(api, "task")
    assert (event["cause"], event["last_heard"]) == ("SESSION_SILENT", "2025-12-28T12:00:00Z")
    history = api.do(lambda fleet: fleet.get_claim_history(task_id="task"))
    assert [entry.release_reason for entry in history] == ["ORPHANED"]


def test_the_next_claimer_takes_over_from_a_silent_session(api: Served) -> None:
    api.add("task")
    claim(api, "task", "silent")
    api.clock.advance(601)
    status, answer = claim(api, "task", "next")
    assert (status, answer["claim"]["generation"]) == (200, 2)  # type: ignore[index]
    assert lost(api, "task")["holder_session_id"] == "silent"


def test_whoever_asks_for_a_next_task_gets_that_of_a_silent_session(api: Served) -> None:
    api.add("task")
    claim(api, "task", "silent")
    api.clock.advance(601)
    granted = api.do(lambda fleet: fleet.claim_next(session_id="next", agent_id="bob"))
    assert (granted.success, granted.task_id) == (True, "task")


def test_a_sweep_counts_the_claims_of_a_silent_session(api: Served) -> None:
    api.add("task")
    claim(api, "task", "silent")
    api.clock.advance(601)
    state = api.do(lambda fleet: fleet.get_task_state(task_id="task"))
    assert state.holder is not None
    assert not state.holder.looks_alive
    assert api.do(lambda fleet: fleet.sweep()).orphaned == 1


@pytest.mark.parametrize("sign", ["heartbeat", "claim", "renewal", "submission", "progress"])
def test_whatever_a_session_does_shows_that_it_lives(api: Served, sign: str) -> None:
    api.add("task", "other", "third")
    claim(api, "task", "s")
    claim(api, "other", "s")
    api.clock.advance(500)
    match sign:
        case "heartbeat":
            api.post("/api/sessions/s/heartbeat")
        case "claim":
            claim(api, "third", "s")
        case "renewal":
            api.post("/api/tasks/other/claim/heartbeat", {"sessionId": "s"})
        case "submission":
            api.post("/api/tasks/other/release", {"sessionId": "s", "reason": "completed"})
        case _:
            api.do(
                lambda fleet: fleet.report_progress(
                    task_id="other", session_id="s", generation=1, fraction=0.5
                )
            )
    api.clock.advance(500)
    assert (orphans(api), cleaned(api)) == (0, [])
    assert claim(api, "task", "next")[0] == 409
    api.clock.advance(101)
    assert "task" in dict(cleaned(api))


def test_silence_never_takes_a_live_lease_from_a_session_of_another_interface(
    api: Served,
) -> None:
    api.add("task")
    api.do(
        lambda fleet: fleet.claim_task(
            task_id="task", session_id="quiet", agent_id="ann", lease_duration_seconds=3600
        )
    )
    api.clock.advance(3599)
    assert (orphans(api), cleaned(api)) == (0, [])
    assert claim(api, "task", "next")[0] == 409


def test_a_session_that_registers_elsewhere_afterwards_goes_by_its_lease(api: Served) -> None:
    api.add("task")
    claim(api, "task", "s")
    api.do(lambda fleet: fleet.register_session(session_id="s"))
    api.clock.advance(1799)
    assert (orphans(api), cleaned(api)) == (0, [])


def test_a_renewal_is_a_sign_of_life_however_late_it_comes(api: Served) -> None:
    api.add("task")
    claim(api, "task", "s")
    api.clock.advance(1799)
    assert api.post("/api/tasks/task/claim/heartbeat", {"sessionId": "s"})[0] == 200
    assert cleaned(api) == []


def test_the_orphan_threshold_is_a_setting() -> None:
    settings = Choices(claim_config=ClaimConfig(orphan_threshold=90_000))
    with serving("memory://", choices=settings) as api:
        api.add("task")
        claim(api, "task", "silent")
        api.clock.advance(90)
        assert cleaned(api) == []
        api.clock.advance(1)
        assert cleaned(api) == [("task", "session_silent")]
