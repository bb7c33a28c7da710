"""Who did it: the user that a session is registered for, and the agent of each claim."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import genlock
from genlock import Coordinator


@pytest.fixture
def fleet() -> Iterator[Coordinator]:
    with genlock.connect("memory://") as fleet:
        yield fleet


def test_a_sessions_registered_user_is_the_user_of_everything_it_does(fleet: Coordinator) -> None:
    fleet.register_session(session_id="s1", user_id="alice@example.com")
    fleet.add_tasks(tasks=["T", "U"])
    fleet.claim_task(task_id="T", session_id="s1", agent_id="ada")
    denied = fleet.claim_task(task_id="T", session_id="s2", agent_id="bob")
    assert denied.holder is not None
    assert denied.holder.user == "alice@example.com"
    fleet.renew_lease(task_id="T", expected_generation=1, session_id="s1")
    fleet.submit_result(task_id="T", generation=1, session_id="s1", result_data={"n": 1})
    fleet.claim_task(task_id="U", session_id="s1", agent_id="ada")
    fleet.release_claim(task_id="U", expected_generation=1, session_id="s1")
    fleet.heartbeat_session(session_id="s1")

    own = [
        event
        for event in fleet.read_events(limit=100).events
        if event.event.get("session_id") == "s1" and event.event_type != "TASK_ADDED"
    ]
    users = {event.event_type: event.event["actor"]["user_id"] for event in own}
    assert users == dict.fromkeys(
        (
            "SESSION_REGISTERED",
            "CLAIM_ACQUIRED",
            "LEASE_RENEWED",
            "RESULT_ACCEPTED",
            "CLAIM_RELEASED",
            "SESSION_HEARTBEAT",
        ),
        "alice@example.com",
    )
    assert [entry.user_id for entry in fleet.get_claim_history(task_id="T")] == [
        "alice@example.com"
    ]


def test_a_refused_result_names_user_and_agent_although_the_call_names_neither(
    fleet: Coordinator,
) -> None:
    fleet.register_session(session_id="s1", user_id="alice@example.com")
    fleet.add_tasks(tasks=["T"])
    fleet.claim_task(task_id="T", session_id="s1", agent_id="ada")
    fleet.force_release(task_id="T", take_over=True)
    fleet.claim_task(task_id="T", session_id="s2", agent_id="bob")
    late = fleet.submit_result(
        task_id="T", generation=1, session_id="s1", result_data={"late": True}
    )
    assert (late.accepted, late.kept) == (False, True)
    [rejected] = [
        event.event
        for event in fleet.read_events(limit=100).events
        if event.event_type == "RESULT_REJECTED"
    ]
    assert (rejected["agent_id"], rejected["actor"]["user_id"]) == ("ada", "alice@example.com")
    assert [each.agent_id for each in fleet.list_refused_results(task_id="T")] == ["ada"]


def test_an_operators_act_is_the_operators_own(fleet: Coordinator) -> None:
    fleet.register_session(session_id="s1", user_id="alice@example.com")
    fleet.add_tasks(tasks=["T"])
    fleet.claim_task(task_id="T", session_id="s1", agent_id="ada")
    fleet.force_release(task_id="T", take_over=True)
    [superseded] = [
        event.event
        for event in fleet.read_events(limit=100).events
        if event.event_type == "CLAIM_SUPERSEDED"
    ]
    assert superseded["actor"].get("user_id", "") != "alice@example.com"
