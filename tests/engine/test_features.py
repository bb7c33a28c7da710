"""The order closest-to-done. The scenario has its rules one after the other; here it meets crashes,
concurrency, lost counts and the other policies."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

import genlock
from genlock import Coordinator
from genlock.core import events as e
from genlock.core.codec import decode_record
from genlock.core.keys import FEATURE, Key
from genlock.core.model import FeatureRecord
from genlock.engine.replay_check import check
from genlock.errors import OutcomeUnknown, StoreUnavailable
from genlock.store import Query, Store
from tests.engine.gated_store import PLACE, Home, die, granted, next_for, raising, submit, writing

dies = pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")


@pytest.fixture
def fleet(tmp_path: Path) -> Iterator[Coordinator]:
    url = f"sqlite://{tmp_path / 'genlock.db'}"
    with genlock.connect(url, create=True, session_id="s1", agent_id="alice") as fleet:
        fleet.set_policy(policy={"order": "closest-to-done"})
        yield fleet


def counted(store: Store) -> dict[str, tuple[list[str], list[str]]]:
    """By feature: its unfinished and its finished tasks."""
    found = {}
    for stored in store.find(Query(*PLACE, kind=FEATURE)).records:
        record = decode_record(FEATURE, stored.body)
        assert isinstance(record, FeatureRecord)
        found[record.name] = sorted(record.unfinished), sorted(record.finished)
    return found


def finish(fleet: Coordinator, task: str) -> None:
    claim = fleet.claim_task(task_id=task, session_id="s9", agent_id="finisher").require()
    fleet.submit_result(task_id=task, generation=claim.generation, session_id="s9")


def next_task(fleet: Coordinator, agent: str, **more: Any) -> str | None:
    granted = fleet.claim_next(session_id=f"s-{agent}", agent_id=agent, **more)
    return granted.claim.task_id if granted.claim is not None else None


# What was cut off


@dies
def test_after_a_crash_before_a_feature_has_heard_a_recovery_counts_it(home: Home) -> None:
    store = home.gated()
    doomed = home.connect(store)
    doomed.set_policy(policy={"order": "closest-to-done"})
    doomed.add_tasks(tasks=["A:x", "A:y", "B:x", "B:y"])
    generation = granted(doomed, "B:x", "alice")
    store.on("commit", when=writing(e.FeatureCounted, "B"), before=die)
    with pytest.raises(OutcomeUnknown):
        submit(doomed, "B:x", "alice", generation)
    fleet, held = home.connect(), home.store()
    assert counted(held)["B"] == (["B:x", "B:y"], [])

    fleet.sweep()

    assert counted(held) == {"A": (["A:x", "A:y"], []), "B": (["B:y"], ["B:x"])}
    assert check(held) == []
    assert next_for(fleet, "bob").task_id == "B:y"


def test_what_is_ready_is_granted_although_no_feature_was_ever_counted(home: Home) -> None:
    store = home.gated()
    fleet = home.connect(store)
    fleet.set_policy(policy={"order": "closest-to-done"})
    failing = raising(StoreUnavailable("not now"))
    store.on("commit", when=writing(e.FeatureCounted), before=failing, times=1000)
    fleet.add_tasks(tasks=["A:x", "B:x", {"id": "B:y", "depends_on": ["B:x"]}])
    assert counted(home.store()) == {}
    assert next_for(fleet, "bob").task_id == "A:x"
    assert next_for(fleet, "carol").task_id == "B:x"


# Many at once


def test_agents_who_ask_at_once_are_spread_over_the_features(fleet: Coordinator) -> None:
    fleet.add_tasks(tasks=[f"F{n}:{edge}" for n in range(8) for edge in ("x", "y")])
    together = threading.Barrier(8)

    def ask(n: int) -> str | None:
        together.wait()
        return next_task(fleet, f"agent-{n}")

    with ThreadPoolExecutor(8) as pool:
        granted = list(pool.map(ask, range(8)))
    assert sorted(str(name).partition(":")[0] for name in granted) == [f"F{n}" for n in range(8)]


def test_a_feature_behind_many_that_have_nothing_ready_is_found(fleet: Coordinator) -> None:
    """More features wait than are looked at for one request."""
    fleet.add_tasks(tasks=[{"id": "Z:wait", "state": "backlog"}, "Z:ready", "free"])
    fleet.add_tasks(tasks=[{"id": f"F{n:03}:x", "depends_on": ["free"]} for n in range(200)])
    assert next_task(fleet, "bob") == "Z:ready"
    assert next_task(fleet, "bob") == "free"
    assert next_task(fleet, "bob") is None


def test_features_in_flight_are_passed_over_without_a_look_at_their_tasks(home: Home) -> None:
    store = home.gated()
    fleet = home.connect(store)
    fleet.set_policy(policy={"order": "closest-to-done"})
    held = [f"H{n:03}:x" for n in range(200)]
    fleet.add_tasks(tasks=[*held, "F:x", "F:y"])
    fleet.batch_claim(task_ids=held, session_id="other", agent_id="other")
    store.calls.clear()
    assert next_for(fleet, "bob").task_id == "F:x"
    asked = [given for name, given in store.calls if name == "find"]
    assert sum(query.kind == FEATURE for query in asked) == 4  # pages of 64
    assert [query.waits_on for query in asked if query.waits_on] == [("@F",)]


# Beside other policies


def test_among_the_nearest_features_what_shares_no_modules_comes_first(fleet: Coordinator) -> None:
    fleet.set_policy(policy={"overlap": "avoid"})
    fleet.add_tasks(
        tasks=[
            {"id": "held", "modules": ["api"]},
            {"id": "A:x", "modules": ["api"]},
            {"id": "B:x", "modules": ["web"]},
            {"id": "B:y", "modules": ["web"]},
        ]
    )
    fleet.claim_task(task_id="held", session_id="s2", agent_id="other").require()
    assert next_task(fleet, "bob") == "B:x"
    fleet.set_policy(policy={"overlap": "forbid"})
    assert next_task(fleet, "carol") is None
    assert next_task(fleet, "bob") == "B:y"
    assert next_task(fleet, "bob") is None
    assert fleet.claim_next(session_id="s-bob", agent_id="bob").limit == "overlap"


def test_where_tracks_are_kept_in_order_a_near_feature_does_not_overtake(
    fleet: Coordinator,
) -> None:
    fleet.set_policy(policy={"track_order": "enforce"})
    fleet.add_tasks(
        tasks=[
            {"id": "A-001-x", "feature": "FAR"},
            {"id": "B-001-x", "feature": "FAR"},
            {"id": "A-002-x", "feature": "NEAR"},
        ]
    )
    assert next_task(fleet, "bob") == "A-001-x"
    assert next_task(fleet, "bob") == "B-001-x"
    assert next_task(fleet, "carol") is None


def test_roles_and_reservations_narrow_what_a_feature_offers(fleet: Coordinator) -> None:
    fleet.add_tasks(
        tasks=[
            {"id": "A:x", "roles": ["tester"]},
            {"id": "B:x", "assigned_to": "bob"},
            "C:x",
            "C:y",
        ]
    )
    assert next_task(fleet, "carol", agent_role="coder") == "C:x"
    assert next_task(fleet, "bob", agent_role="coder") == "B:x"
    assert next_task(fleet, "dave", agent_role="tester") == "A:x"


def test_one_who_waits_gets_the_task_that_opens(fleet: Coordinator) -> None:
    fleet.add_tasks(tasks=["A:x", {"id": "A:y", "depends_on": ["A:x"]}])
    held = fleet.claim_task(task_id="A:x").require()
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(next_task, fleet, "bob", wait_seconds=20)
        fleet.submit_result(task_id="A:x", generation=held.generation)
        assert waiting.result(20) == "A:y"


# What a feature hears


def test_a_feature_follows_all_that_becomes_of_its_tasks(
    fleet: Coordinator, tmp_path: Path
) -> None:
    store = fleet.engine.store
    plan = {"tasks": [{"id": f"A:{edge}"} for edge in "wxyz"]}
    fleet.import_plan(source=plan)
    finish(fleet, "A:x")
    fleet.cancel_task(task_id="A:y")
    assert counted(store) == {"A": (["A:w", "A:z"], ["A:x", "A:y"])}
    fleet.reset_task(task_id="A:x")
    fleet.add_tasks(tasks=[{"id": "A-001-x", "feature": "A"}, {"id": "B:done", "state": "done"}])
    fleet.import_plan(source={"tasks": [{"id": "A:w"}, {"id": "A:x"}]}, prune=True)
    assert counted(store) == {
        "A": (["A:w", "A:x"], ["A-001-x", "A:y", "A:z"]),
        "B": ([], ["B:done"]),
    }
    assert check(store) == []


def test_opening_a_store_in_another_order_writes_nothing_and_its_features_are_not_counted(
    tmp_path: Path,
) -> None:
    url = f"sqlite://{tmp_path / 'genlock.db'}"
    with genlock.connect(url, create=True) as fleet:
        fleet.add_tasks(tasks=["A:x", "A:y"])
        finish(fleet, "A:x")
        before = len(fleet.read_events().events)
    with genlock.connect(url) as fleet:
        assert len(fleet.read_events().events) == before
        assert counted(fleet.engine.store) == {}
        fleet.set_policy(policy={"order": "closest-to-done"})
        assert counted(fleet.engine.store) == {"A": (["A:y"], ["A:x"])}
        assert check(fleet.engine.store) == []


def test_a_preview_says_how_much_of_the_feature_is_left(fleet: Coordinator) -> None:
    fleet.add_tasks(tasks=["A:x", "A:y", "A:z"])
    finish(fleet, "A:y")
    found = fleet.preview_next()
    assert found.task is not None
    assert found.because == (
        "it is ready, and comes first in the order closest-to-done",
        "of its feature A 2 tasks are unfinished, 1 finished",
    )


def test_a_feature_record_is_under_its_name(fleet: Coordinator) -> None:
    fleet.add_tasks(tasks=["A:x"])
    key = Key(*PLACE, FEATURE, "A")
    stored = fleet.engine.store.load([key], with_index=True).records[key]
    assert stored.index is not None
    assert (stored.index.pool, stored.index.order) == ("~feature", "00019999A")
