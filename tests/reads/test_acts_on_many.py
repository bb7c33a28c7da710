"""One act on many tasks: by filter or by name, tried first, each decided by itself."""

from __future__ import annotations

from typing import Any

import pytest

import genlock
from genlock.core.dashboard import ActsResult
from genlock.errors import BadArgument, NotAllowed
from genlock.testing.clock import ManualClock
from tests.engine.gated_store import complete, granted, submit


def states(fleet: genlock.Coordinator) -> dict[str, str]:
    return {row.id: row.state.value for row in fleet.list_tasks().tasks}


def told(result: ActsResult) -> list[tuple[str, str | None, str | None, int | None]]:
    return [
        (outcome.task_id, outcome.verdict or outcome.error, outcome.state, outcome.generation)
        for outcome in result.outcomes
    ]


@pytest.fixture
def plan(fleet: genlock.Coordinator) -> genlock.Coordinator:
    fleet.add_tasks(
        tasks=[
            {"id": "free", "tags": ["x"]},
            {"id": "mine", "tags": ["x"]},
            {"id": "done", "tags": ["x"]},
            {"id": "held", "tags": ["x"]},
            "other",
        ]
    )
    granted(fleet, "mine", "alice")
    complete(fleet, "done")
    fleet.hold_task(task_id="held", reason="before")
    return fleet


@pytest.mark.parametrize(
    ("act", "more", "outcomes"),
    [
        (
            "hold",
            {"reason": "stop"},
            [
                ("done", "NOT_ALLOWED", None, None),
                ("free", "DONE", "HELD", 0),
                ("held", "DONE", "HELD", 0),
                ("mine", "DONE", "HELD", 1),
            ],
        ),
        (
            "reopen",
            {},
            [
                ("done", "NOT_ALLOWED", None, None),
                ("free", "UNCHANGED", "PENDING", 0),
                ("held", "DONE", "PENDING", 0),
                ("mine", "UNCHANGED", "IN_PROGRESS", 1),
            ],
        ),
        (
            "release",
            {},
            [
                ("done", "UNCHANGED", "COMPLETED", 1),
                ("free", "UNCHANGED", "PENDING", 0),
                ("held", "UNCHANGED", "HELD", 0),
                ("mine", "LIVE_CLAIM", None, None),
            ],
        ),
        (
            "release",
            {"take_over": True},
            [
                ("done", "UNCHANGED", "COMPLETED", 1),
                ("free", "UNCHANGED", "PENDING", 0),
                ("held", "UNCHANGED", "HELD", 0),
                ("mine", "DONE", "PENDING", 2),
            ],
        ),
        (
            "reset",
            {},
            [
                ("done", "DONE", "PENDING", 2),
                ("free", "DONE", "PENDING", 1),
                ("held", "DONE", "PENDING", 1),
                ("mine", "LIVE_CLAIM", None, None),
            ],
        ),
        (
            "cancel",
            {"take_over": True, "reason": "no longer wanted"},
            [
                ("done", "NOT_ALLOWED", None, None),
                ("free", "DONE", "CANCELLED", 1),
                ("held", "DONE", "CANCELLED", 1),
                ("mine", "DONE", "CANCELLED", 2),
            ],
        ),
    ],
)
def test_an_act_is_tried_without_effect_and_then_does_what_was_said(
    plan: genlock.Coordinator,
    act: str,
    more: dict[str, Any],
    outcomes: list[tuple[str, str | None, str | None, int | None]],
) -> None:
    before, end = states(plan), plan.read_events(tail=True).cursor
    tried = plan.batch_act(act=act, tag="x", **more)
    assert told(tried) == outcomes
    assert (tried.dry_run, tried.matched) == (True, 4)
    assert (states(plan), plan.read_events(tail=True).cursor) == (before, end)

    done = plan.batch_act(act=act, tag="x", dry_run=False, **more)
    assert told(done) == told(tried)
    assert (done.done, done.unchanged, done.refused) == (
        tried.done,
        tried.unchanged,
        tried.refused,
    )
    after = states(plan)
    assert after["other"] == "PENDING"
    assert [
        (name, state, after[name]) for name, _, state, _ in told(done) if state is not None
    ] == [(name, state, state) for name, _, state, _ in told(done) if state is not None]


def test_the_outcome_says_whose_claim_is_taken_and_the_zombie_is_refused(
    plan: genlock.Coordinator,
) -> None:
    (tried,) = plan.batch_act(act="release", session_id="s-alice", take_over=True).outcomes
    assert tried.superseded is not None
    assert (tried.superseded.agent, tried.generation) == ("alice", 2)
    plan.batch_act(act="release", session_id="s-alice", take_over=True, dry_run=False)
    late = submit(plan, "mine", "alice", 1)
    assert (late.accepted, late.reason) == (False, "STALE_GENERATION")


def test_only_tasks_that_are_named_and_match_are_acted_on(plan: genlock.Coordinator) -> None:
    done = plan.batch_act(
        act="hold",
        task_ids=["free", "mine", "nowhere", "free"],
        states="PENDING",
        dry_run=False,
    )
    assert [outcome.task_id for outcome in done.outcomes] == ["free"]
    assert done.others == ("mine", "nowhere")
    assert states(plan)["mine"] == "IN_PROGRESS"


def test_an_act_on_every_task_of_a_project_is_refused(plan: genlock.Coordinator) -> None:
    with pytest.raises(BadArgument, match="give task_ids, or a filter"):
        plan.batch_act(act="cancel", dry_run=False)


def test_an_act_on_more_tasks_than_the_limit_does_nothing(plan: genlock.Coordinator) -> None:
    before = states(plan)
    tried = plan.batch_act(act="cancel", tag="x", limit=2)
    assert (tried.matched, len(tried.outcomes)) == (4, 2)
    with pytest.raises(NotAllowed, match="4 tasks match, more than the limit of 2"):
        plan.batch_act(act="cancel", tag="x", limit=2, dry_run=False)
    assert states(plan) == before


def test_an_act_under_the_same_operation_id_is_answered_as_before(
    plan: genlock.Coordinator,
) -> None:
    names = ["free", "mine"]
    asked: dict[str, Any] = {
        "act": "cancel",
        "task_ids": names,
        "take_over": True,
        "dry_run": False,
        "operation_id": "op-1",
    }
    first, again = plan.batch_act(**asked), plan.batch_act(**asked)
    assert told(first) == told(again)
    assert again.outcomes[1].superseded == first.outcomes[1].superseded is not None


def test_many_tasks_are_acted_on_some_hundreds_at_a_time(fleet: genlock.Coordinator) -> None:
    names = [f"t-{number:03}" for number in range(600)]
    fleet.add_tasks(tasks=names)
    tried = fleet.batch_act(act="hold", text="t-", reason="night")
    assert tried.done == len(names)
    assert fleet.batch_act(act="hold", text="t-", reason="night", dry_run=False).done == len(names)
    assert fleet.list_tasks().counts == {"HELD": len(names)}


def test_an_overdue_claim_is_released_without_taking_over(
    plan: genlock.Coordinator, clock: ManualClock
) -> None:
    clock.advance(301)
    (outcome,) = plan.batch_act(act="release", agent_id="alice", dry_run=False).outcomes
    assert (outcome.verdict, outcome.state) == ("DONE", "PENDING")
