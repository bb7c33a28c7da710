"""GC 3.4: how many agents may work on a track, and in which order its tasks are granted."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import genlock
from genlock import Coordinator
from genlock.core.results import ClaimResult
from genlock.errors import BadArgument


@pytest.fixture(params=["memory", "sqlite"])
def fleet(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Coordinator]:
    url = "memory://" if request.param == "memory" else f"sqlite://{tmp_path}/genlock.db"
    with genlock.connect(url, create=True) as fleet:
        fleet.add_tasks(
            tasks=["A-001-a", "A-002-b", "A-003-c", "B-001-a", "B-002-b", "loose"],
        )
        yield fleet


def next_for(fleet: Coordinator, agent: str, **more: str) -> ClaimResult:
    return fleet.claim_next(session_id=f"s-{agent}", agent_id=agent, **more)


def claim(fleet: Coordinator, task: str, agent: str) -> ClaimResult:
    return fleet.claim_task(task_id=task, session_id=f"s-{agent}", agent_id=agent)


def test_by_default_several_agents_may_work_on_one_track(fleet: Coordinator) -> None:
    assert claim(fleet, "A-001-a", "ada").success
    assert claim(fleet, "A-003-c", "bob").success


def test_strict_tracks_keep_a_second_agent_off_a_track(fleet: Coordinator) -> None:
    fleet.set_policy(policy={"tracks": "strict"})
    assert claim(fleet, "A-001-a", "ada").success
    denied = claim(fleet, "A-002-b", "bob")
    assert (denied.reason, denied.limit) == ("DENIED_LIMIT", "agents_per_track")
    assert denied.detail == "over the limit agents_per_track = 1 of track A: ada works on it"
    # The same agent may take more of its track, and another one what has no track.
    assert claim(fleet, "A-002-b", "ada").success
    assert claim(fleet, "loose", "bob").success


def test_claim_next_offers_nothing_behind_the_wall_of_a_track(fleet: Coordinator) -> None:
    fleet.set_policy(policy={"tracks": "strict"})
    granted = [next_for(fleet, agent).task_id for agent in ("ada", "bob", "cleo", "dan")]
    assert granted == ["A-001-a", "B-001-a", "loose", None]
    fleet.submit_result(task_id="A-001-a", generation=1, session_id="s-ada")
    assert next_for(fleet, "dan").task_id == "A-002-b"


def test_agents_per_track_widens_all_tracks_and_agents_on_track_single_ones(
    fleet: Coordinator,
) -> None:
    fleet.set_policy(
        policy={"tracks": "strict", "agents_per_track": 2, "agents_on_track": {"B": 1}}
    )
    assert claim(fleet, "A-001-a", "ada").success
    assert claim(fleet, "A-002-b", "bob").success
    assert claim(fleet, "A-003-c", "cleo").limit == "agents_per_track"
    assert claim(fleet, "B-001-a", "cleo").success
    assert claim(fleet, "B-002-b", "dan").limit == "agents_per_track"


def test_an_agent_whose_claim_ended_no_longer_walls_its_track(fleet: Coordinator) -> None:
    fleet.set_policy(policy={"tracks": "strict"})
    claim(fleet, "A-001-a", "ada")
    fleet.release_claim(task_id="A-001-a", generation=1, session_id="s-ada")
    assert claim(fleet, "A-002-b", "bob").success


def test_many_requests_of_one_batch_are_granted_one_agent_a_track(fleet: Coordinator) -> None:
    fleet.set_policy(policy={"tracks": "strict"})
    answers = fleet.batch_claim(task_ids=["A-001-a", "A-002-b"], session_id="s-ada", agent_id="ada")
    assert [answer.success for answer in answers.values()] == [True, True]  # type: ignore[union-attr]
    answers = fleet.batch_claim(task_ids=["A-003-c", "B-001-a"], session_id="s-bob", agent_id="bob")
    assert [answer.success for answer in answers.values()] == [False, True]  # type: ignore[union-attr]


def test_an_enforced_order_grants_the_lowest_number_of_a_track_whatever_its_priority(
    fleet: Coordinator,
) -> None:
    fleet.edit_task(task_id="A-003-c", changes={"priority": "critical"})
    fleet.set_policy(policy={"track_order": "enforce"})
    denied = claim(fleet, "A-003-c", "ada")
    assert (denied.reason, denied.waits_for) == ("DENIED_BLOCKED", ("A-001-a",))
    order = []
    for _ in range(3):
        granted = next_for(fleet, "ada", tracks="A")
        assert granted.task_id is not None
        order.append(granted.task_id)
        assert next_for(fleet, "bob", tracks="A").task_id is None
        fleet.submit_result(
            task_id=granted.task_id, generation=granted.require().generation, session_id="s-ada"
        )
    assert order == ["A-001-a", "A-002-b", "A-003-c"]


def test_by_default_the_order_of_a_track_is_a_preference(fleet: Coordinator) -> None:
    fleet.edit_task(task_id="A-003-c", changes={"priority": "critical"})
    assert next_for(fleet, "ada", tracks="A").task_id == "A-003-c"


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"tracks": "open"}, "policy tracks is one of prefer, strict"),
        ({"agents_per_track": 0}, "1 is the least"),
        ({"agents_on_track": {"A": 0}}, "0 agents on track A are too few"),
        ({"agents_on_track": 3}, "whole numbers by track"),
        ({"track_order": "yes"}, "policy track_order is one of prefer, enforce"),
    ],
)
def test_a_policy_of_tracks_that_makes_no_sense_is_refused(
    fleet: Coordinator, changes: dict[str, object], message: str
) -> None:
    with pytest.raises(BadArgument, match=message):
        fleet.set_policy(policy=changes)
