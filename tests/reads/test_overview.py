"""The overview: counts, what needs a person and why, rates, sessions, what is next, refusals."""

from __future__ import annotations

import subprocess
import sys
from datetime import timedelta
from pathlib import Path
from typing import Any

import genlock
from genlock.core.dashboard import Need
from genlock.messages import REVIEW_CAUSES
from genlock.testing.clock import ManualClock
from tests.engine.gated_store import Home, complete, granted, submit
from tests.engine.test_cycles import closed_cycle
from tests.eventually import eventually


def need(fleet: genlock.Coordinator, task: str) -> Need:
    (found,) = (need for need in fleet.get_overview().needs if need.task_id == task)
    return found


def test_an_empty_project_has_an_overview(fleet: genlock.Coordinator) -> None:
    found = fleet.get_overview()
    assert (found.total, found.states, found.tracks, found.needs) == (0, {}, (), ())
    assert (found.sessions, found.next_up, found.refusals) == ((), (), ())
    assert (found.tenant_id, found.project_id) == ("default", "default")


def test_an_overview_counts_by_state_and_track_and_says_who_is_where(
    fleet: genlock.Coordinator,
) -> None:
    fleet.add_tasks(
        tasks=[
            {"id": "A-001-x", "track": "A"},
            {"id": "A-002-x", "track": "A", "depends_on": ["A-001-x"]},
            {"id": "B-001-x", "track": "B"},
            "free",
        ]
    )
    granted(fleet, "A-001-x", "alice")
    complete(fleet, "B-001-x", "bob")

    found = fleet.get_overview()
    assert (found.total, found.claims) == (4, 1)
    assert found.states == {"PENDING": 1, "BLOCKED": 1, "IN_PROGRESS": 1, "COMPLETED": 1}
    assert [(line.track, line.purpose, line.total, line.agents) for line in found.tracks] == [
        ("A", "", 2, ("alice",)),
        ("B", "", 1, ()),
        ("", "", 1, ()),
    ]
    assert [line.id for line in found.next_up] == ["free"]


def test_what_needs_a_person_comes_with_a_reason_and_what_to_do(
    fleet: genlock.Coordinator, clock: ManualClock
) -> None:
    fleet.set_policy(policy={"expired": "human"})
    fleet.add_tasks(
        tasks=[
            "held",
            "overdue",
            "refused",
            {"id": "text", "waiting_for": "the legal department"},
            "fine",
        ]
    )
    fleet.hold_task(task_id="held", reason="wrong specification")
    granted(fleet, "refused", "carol")
    fleet.force_release(task_id="refused", take_over=True)
    clock.advance(10)
    submit(fleet, "refused", "carol", 1, "x" * 100)
    granted(fleet, "overdue", "bob", lease=60)
    clock.advance(61)

    found = fleet.get_overview()
    assert [(line.kind, line.task_id, line.why, line.acts) for line in found.needs] == [
        (
            "OVERDUE",
            "overdue",
            "its lease ended at 2026-01-04T06:01:10Z; a person decides",
            ("release", "hold"),
        ),
        ("HELD", "held", "held: wrong specification", ("reopen",)),
        (
            "REFUSED_RESULT",
            "refused",
            "refused has moved on to generation 2: an earlier one no longer counts",
            ("adopt", "discard"),
        ),
        ("WAITS_FOR_PERSON", "text", "it waits for the legal department", ("edit",)),
    ]
    assert found.needs_counts == {
        "OVERDUE": 1,
        "HELD": 1,
        "REFUSED_RESULT": 1,
        "WAITS_FOR_PERSON": 1,
    }
    assert need(fleet, "held").command == ("genlock", "reopen", "held")
    refused = need(fleet, "refused")
    assert (refused.generation, refused.size, refused.agent_id) == (1, 102, "carol")
    assert refused.refused_id == fleet.list_refused_results()[0].id
    assert [line.kind for line in fleet.get_overview(limit=1).needs] == ["OVERDUE"]


def test_a_result_in_review_needs_a_person_and_its_row_says_whose_it_is(
    fleet: genlock.Coordinator,
) -> None:
    fleet.add_tasks(tasks=[{"id": "a", "human_required": True}])
    granted(fleet, "a", "alice")
    submit(fleet, "a", "alice", 1, "x" * 10)

    (found,) = fleet.get_overview().needs
    assert (found.kind, found.state, found.generation) == ("IN_REVIEW", "IN_REVIEW", 1)
    assert found.why == f"its result waits for a review: {REVIEW_CAUSES['HUMAN_REQUIRED']}"
    assert (found.agent_id, found.size, found.acts) == ("alice", 12, ("approve", "reject"))
    assert found.command == ("genlock", "review", "show", "a")
    (row,) = fleet.list_tasks(states="IN_REVIEW").tasks
    assert row.review is not None
    assert (row.review.agent_id, row.review.causes) == ("alice", ("HUMAN_REQUIRED",))
    fleet.reject_review(task_id="a", generation=1, digest=row.review.digest, feedback="too short")
    (row,) = fleet.list_tasks().tasks
    assert (row.state, row.review, row.feedback) == ("PENDING", None, "too short")


def test_a_task_in_the_backlog_needs_a_person_if_others_wait_for_it(
    fleet: genlock.Coordinator,
) -> None:
    fleet.import_plan(
        source={
            "tasks": [
                {"id": "wanted", "state": "BACKLOG"},
                {"id": "idea", "state": "BACKLOG"},
                {"id": "a", "depends_on": ["wanted"]},
            ]
        }
    )
    (found,) = fleet.get_overview().needs
    assert (found.kind, found.task_id, found.waited_for_by) == ("IN_BACKLOG", "wanted", 1)
    assert (found.why, found.acts) == ("in the backlog, and others wait for it", ("reopen",))
    fleet.set_policy(policy={"offer_backlog": True})
    assert fleet.get_overview().needs == ()


def test_a_refused_result_is_shown_until_it_is_settled_and_then_as_settled(
    fleet: genlock.Coordinator, clock: ManualClock
) -> None:
    fleet.add_tasks(tasks=["a", "b"])
    for task in ("a", "b"):
        granted(fleet, task, "alice")
        fleet.force_release(task_id=task, take_over=True)
        clock.advance(1)
        submit(fleet, task, "alice", 1)

    found = fleet.get_overview()
    assert [(line.task_id, line.state, line.reason) for line in found.refusals] == [
        ("b", "KEPT", "STALE_GENERATION"),
        ("a", "KEPT", "STALE_GENERATION"),
    ]
    line = found.refusals[0]
    assert (line.agent_id, line.session_id, line.generation, line.current_generation) == (
        "alice",
        "s-alice",
        1,
        2,
    )
    assert (found.refused_results, found.sessions[0].refused_results) == (2, 2)
    fleet.discard_result(task_id="a", refused_id=found.refusals[1].refused_id)
    fleet.adopt_result(task_id="b", refused_id=found.refusals[0].refused_id, session_id="boss")

    found = fleet.get_overview()
    assert [line.state for line in found.refusals] == ["ADOPTED", "DISCARDED"]
    assert (found.refused_results, found.needs) == (0, ())


def test_rates_are_per_minute_and_say_since_when_they_are_known(
    fleet: genlock.Coordinator, clock: ManualClock
) -> None:
    fleet.add_tasks(tasks=[f"t-{number}" for number in range(6)])
    for number in range(6):
        complete(fleet, f"t-{number}", "alice")
        clock.advance(30)

    rates = fleet.get_overview().rates
    assert [(minute.claims, minute.completions) for minute in rates.minutes[-4:]] == [
        (2, 2),
        (2, 2),
        (2, 2),
        (0, 0),
    ]
    # Of the last five minutes the present one has just begun.
    assert (rates.claims, rates.completions, rates.seconds) == (1.5, 1.5, 240.0)
    assert rates.since == clock.now() - timedelta(minutes=14)
    clock.advance(3600)
    assert fleet.get_overview().rates.claims == 0


def test_a_session_s_card_has_what_it_holds_and_has_done(
    fleet: genlock.Coordinator, clock: ManualClock
) -> None:
    fleet.register_session(session_id="s-alice", user_id="ann", agent_type="CLI")
    fleet.register_session(session_id="s-idle", agent_type="AUTO")
    fleet.add_tasks(tasks=["a", "b", "c"])
    complete(fleet, "c", "alice")
    granted(fleet, "a", "alice", lease=100)
    clock.advance(1)
    granted(fleet, "b", "alice", lease=50)
    fleet.report_progress(task_id="b", generation=1, fraction=0.5, session_id="s-alice")
    fleet.heartbeat_session(session_id="s-alice", metadata={"score": 92, "phase": "IMPL"})
    clock.advance(30)

    busy, idle = fleet.get_overview().sessions
    assert (busy.session_id, busy.user_id, busy.agent_type) == ("s-alice", "ann", "CLI")
    assert [(task.task_id, task.health, task.fraction) for task in busy.tasks] == [
        ("b", "STALE", 0.5),
        ("a", "WORKING", None),
    ]
    assert (busy.health, busy.tasks_held, busy.tasks_done) == ("STALE", 2, 1)
    assert (busy.score, busy.phase, busy.context_percent) == (92, "IMPL", None)
    assert busy.last_sign == clock.now() - timedelta(seconds=30)
    assert (idle.session_id, idle.tasks, idle.health) == ("s-idle", (), None)
    assert (busy.agent_id, idle.agent_id) == ("alice", "")
    fleet.release_claim(task_id="a", generation=1, session_id="s-alice")
    fleet.release_claim(task_id="b", generation=1, session_id="s-alice")
    named = {card.session_id: card.agent_id for card in fleet.get_overview().sessions}
    assert named == {"s-alice": "alice", "s-idle": ""}, "by its last result"
    fleet.heartbeat_session(session_id="s-idle", metadata={"agent": "bob"})
    named = {card.session_id: card.agent_id for card in fleet.get_overview().sessions}
    assert named == {"s-alice": "alice", "s-idle": "bob"}, "or by what its session says"
    assert fleet.get_overview().sessions_count == 2
    fleet.end_session(session_id="s-idle")
    assert [card.session_id for card in fleet.get_overview().sessions] == ["s-alice"]


_CLAIMER = """
import sys, time, genlock
fleet = genlock.connect(sys.argv[1], session_id="s-away", agent_id="away")
assert fleet.claim_task(task_id="a", lease_duration_seconds=3600).success
print("claimed", flush=True)
time.sleep(60)
"""


def test_a_holder_whose_process_was_killed_is_gone_and_its_task_needs_a_person(
    tmp_path: Path,
) -> None:
    url = f"sqlite:///{tmp_path}/genlock.db"
    with genlock.connect(url, create=True, session_id="op") as fleet:
        fleet.add_tasks(tasks=["a"])
        with subprocess.Popen(
            [sys.executable, "-c", _CLAIMER, url], stdout=subprocess.PIPE, text=True
        ) as claimer:
            assert claimer.stdout is not None
            assert claimer.stdout.readline() == "claimed\n"
            assert fleet.get_overview().needs == ()
            claimer.kill()
            claimer.wait()

        def lost() -> Any:
            return fleet.get_overview().needs

        (found,) = eventually(lost, "the killed process being found gone")
        assert (found.kind, found.task_id, found.agent_id) == ("LOST_HOLDER", "a", "away")
        assert found.why.startswith(f"process {claimer.pid} on ")
        assert found.why.endswith(" is gone")
        assert found.command == ("genlock", "unlock", "a")
        assert fleet.get_overview().sessions[0].process_gone


def test_a_claim_that_nobody_takes_over_needs_a_person_after_a_minute(
    fleet: genlock.Coordinator, clock: ManualClock
) -> None:
    fleet.add_tasks(tasks=["a"])
    granted(fleet, "a", "alice", lease=60)
    clock.advance(119)
    assert fleet.get_overview().needs == ()
    clock.advance(1)
    assert (need(fleet, "a").kind, need(fleet, "a").why) == (
        "NOT_TAKEN_OVER",
        "its lease ended at 2026-01-04T06:01:00Z; the next claim takes the task over",
    )
    granted(fleet, "a", "bob")
    assert fleet.get_overview().needs == ()


def test_tasks_that_wait_for_each_other_need_a_person(home: Home) -> None:
    fleet = closed_cycle(home, ("A", "B"))
    (found,) = fleet.get_overview().needs
    assert (found.kind, found.acts) == ("CYCLE", ("edit",))
    assert found.why in {f"these wait for each other: {way}" for way in ("A → B → A", "B → A → B")}
    fleet.edit_task(task_id="B", changes={"depends_on": []})
    assert fleet.get_overview().needs == ()
