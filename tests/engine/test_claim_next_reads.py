"""One load brings what a request for a next task is likely to need, and nothing rests on the
guess."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from msgspec.structs import replace

from genlock.core.events import ClaimAcquired
from genlock.store import Key, Query, Snapshot, Store
from tests.engine.gated_store import GatedStore, Home, later, writing


class Far(GatedStore):
    """A store to which one looks in one trip. Only trips of the engine's own are noted, not what
    they are made of."""

    def __init__(self, inner: Store) -> None:
        super().__init__(inner)
        self.limits = replace(inner.limits, starts=True)

    def load(
        self, keys: Sequence[Key], queries: Sequence[Query] = (), *, with_index: bool = False
    ) -> Snapshot:
        return self._passed(
            "load with queries" if queries else "load",
            (keys, queries),
            lambda: self.inner.load(keys, queries, with_index=with_index),
        )

    def trips(self) -> list[str]:
        """What has reached the store since this was last asked, but for what watches and keeps
        house."""
        names = [
            name
            for name, _ in self.calls
            if name in ("load with queries", "load", "find", "commit")
        ]
        self.calls.clear()
        return names


@pytest.fixture
def far(home: Home) -> Far:
    return Far(home.store())


def test_a_request_for_the_next_task_takes_two_trips(home: Home, far: Far) -> None:
    fleet = home.connect(far, session_id="alice", agent_id="alice")
    fleet.add_tasks(tasks=["T-1", "T-2", "T-3"])
    fleet.register_session()
    far.trips()
    assert fleet.claim_next().success
    assert far.trips() == ["load with queries", "commit"]
    assert fleet.claim_next(operation_id="once").success
    assert far.trips() == ["load with queries", "commit"]


def test_the_same_request_again_gets_the_same_task_by_what_was_foreseen(
    home: Home, far: Far
) -> None:
    fleet = home.connect(far, session_id="alice", agent_id="alice")
    fleet.add_tasks(tasks=["T-1", "T-2"])
    first = fleet.claim_next(operation_id="once").claim
    again = fleet.claim_next(operation_id="once").claim
    assert first is not None
    assert again is not None
    assert (again.id, again.task_id) == (first.id, first.task_id)


def test_what_another_has_taken_since_it_was_foreseen_is_not_granted_twice(
    home: Home, far: Far
) -> None:
    """The other comes between the look and the commit, every time for the first two."""
    fleet, rival = (
        home.connect(far, session_id="alice", agent_id="alice"),
        home.connect(session_id="bob", agent_id="bob"),
    )
    fleet.add_tasks(tasks=["T-1", "T-2", "T-3"])
    taken: list[str] = []

    def take() -> None:
        claim = rival.claim_next().claim
        assert claim is not None
        taken.append(claim.task_id)

    far.on("commit", when=writing(ClaimAcquired), before=take, times=2)
    granted = fleet.claim_next().claim
    assert granted is not None
    assert len(taken) == 2
    assert {granted.task_id, *taken} == {"T-1", "T-2", "T-3"}


def test_who_waits_is_served_in_two_trips_when_a_task_comes(home: Home, far: Far) -> None:
    fleet, other = home.connect(far, session_id="alice", agent_id="alice"), home.connect()
    fleet.register_session()
    watched = home.stop()
    far.on("wait", before=watched)
    waiting = later(lambda: fleet.claim_next(wait_seconds=60))
    watched.wait()
    watched.open()
    other.add_tasks(tasks=["T-1"])
    granted = waiting.result(60)
    assert granted.claim is not None
    assert far.trips()[-2:] == ["load with queries", "commit"]


def test_what_time_opens_is_found_also_where_it_was_foreseen(home: Home, far: Far) -> None:
    fleet = home.connect(far)
    fleet.add_tasks(tasks=["T-1"])
    assert (
        fleet.claim_next(session_id="alice", agent_id="alice", lease_duration_seconds=30).claim
        is not None
    )
    assert not fleet.claim_next(session_id="bob", agent_id="bob").success
    home.clock.advance(31)
    taken = fleet.claim_next(session_id="bob", agent_id="bob").claim
    assert taken is not None
    assert taken.generation == 2
