"""Two tenants with the same projects, tasks, sessions, agents and operations on one store never
meet."""

from __future__ import annotations

from math import inf
from typing import Any, NamedTuple

import pytest

import genlock
from genlock.core.keys import TASK, TENANT
from genlock.engine.scan import payloads_of
from genlock.errors import BadArgument, CursorLost, ResultNotFound, StoreUnavailable
from genlock.store import Query, Store
from tests.engine.gated_store import Home, raising

NAMES: dict[str, Any] = {"project_id": "apollo", "session_id": "s", "agent_id": "a", "user_id": "u"}
LARGE = {"text": "x" * 40_000}
"""A result that is kept as a payload."""


class Tenants(NamedTuple):
    """Two who use the same names, and the store that they share without knowing."""

    acme: genlock.Coordinator
    globex: genlock.Coordinator
    store: Store


@pytest.fixture(name="tenants")
def _tenants(home: Home) -> Tenants:
    acme, globex = (home.connect(tenant_id=tenant, **NAMES) for tenant in ("acme", "globex"))
    for fleet in (acme, globex):
        fleet.add_tasks(tasks=["A", {"id": "B", "depends_on": ["A"]}])
    return Tenants(acme, globex, home.store())


def test_each_is_granted_the_same_task_at_its_own_generation(tenants: Tenants) -> None:
    first = tenants.acme.claim_task(task_id="A", operation_id="one")
    tenants.acme.force_release(task_id="A", take_over=True)
    assert first.claim is not None
    claims = [fleet.claim_task(task_id="A", operation_id="two").claim for fleet in tenants[:2]]
    assert [claim.generation for claim in claims if claim] == [2, 1]


def test_an_operation_of_one_is_new_to_the_other(tenants: Tenants) -> None:
    tenants.globex.add_tasks(tasks=["C"])
    first = tenants.acme.claim_next(operation_id="same")
    second = tenants.globex.claim_next(operation_id="same")
    assert (first.task_id, second.task_id) == ("A", "A")
    assert tenants.globex.claim_next(operation_id="other").task_id == "C"
    assert tenants.acme.claim_next(operation_id="same").task_id == "A"
    assert tenants.acme.claim_next(operation_id="other").task_id is None


def test_a_completion_of_one_opens_nothing_of_the_other(tenants: Tenants) -> None:
    assert tenants.acme.claim_task(task_id="A").success
    assert tenants.acme.submit_result(
        task_id="A", generation=1, result_data={"by": "acme"}
    ).accepted
    assert tenants.acme.get_task_state(task_id="B").state == "PENDING"
    assert tenants.globex.get_task_state(task_id="A").state == "PENDING"
    assert tenants.globex.get_task_state(task_id="B").state == "BLOCKED"
    refused = tenants.globex.submit_result(task_id="A", generation=1, result_data={"by": "globex"})
    assert refused.reason == "FUTURE_GENERATION"
    assert tenants.acme.list_refused_results() == ()


def test_payloads_of_the_same_bytes_are_each_one_s_own(tenants: Tenants) -> None:
    for fleet in tenants[:2]:
        assert fleet.claim_task(task_id="A").success
    assert tenants.acme.submit_result(task_id="A", generation=1, result_data=LARGE).accepted
    digest = tenants.acme.get_task_state(task_id="A").result.digest  # type: ignore[union-attr]
    with pytest.raises(ResultNotFound):
        tenants.globex.read_result(task_id="A", digest=digest)
    assert tenants.globex.submit_result(task_id="A", generation=1, result_data=LARGE).accepted
    (theirs,) = payloads_of(tenants.store, [("acme", "apollo")])
    tenants.store.payloads().drop(*theirs)
    with pytest.raises(ResultNotFound):
        tenants.acme.read_result(task_id="A")
    assert tenants.globex.read_result(task_id="A") == LARGE


def test_feeds_counts_and_searches_show_only_one_s_own(tenants: Tenants) -> None:
    tenants.globex.add_tasks(tasks=["C", "D"])
    assert tenants.globex.claim_task(task_id="C").success
    assert [event.id for event in tenants.acme.read_events().events if event.kind == TASK] == [
        "A",
        "B",
    ]
    assert [event.id for event in tenants.globex.read_events().events if event.kind == TASK] == [
        "A",
        "B",
        "C",
        "D",
        "C",
    ]
    assert tenants.store.find(Query("acme", "apollo"), count_by="state").counts == {
        "PENDING": 1,
        "BLOCKED": 1,
    }
    assert tenants.store.find(Query("acme"), count_by="project").counts == {"apollo": 2}
    assert [record.key.tenant for record in tenants.store.find(Query("acme")).records] == [
        "acme"
    ] * 2
    assert tenants.store.find(Query("acme", session="s")).records == []
    assert [
        record.key
        for record in tenants.store.find(Query("acme", "apollo", waits_on=("A",))).records
    ] == [("acme", "apollo", "task", "B")]
    assert tenants.acme.get_active_claims_for_session() == ()
    assert tenants.acme.list_sessions() == ()
    assert [track.in_progress for track in tenants.acme.track_progress().values()] == [0]


def test_a_cursor_of_one_is_no_cursor_of_the_other(tenants: Tenants) -> None:
    cursor = tenants.acme.read_events().cursor
    with pytest.raises(CursorLost):
        tenants.globex.read_events(after=cursor)


def test_what_one_adds_is_nothing_for_those_who_wait_of_the_other(tenants: Tenants) -> None:
    assert tenants.globex.claim_task(task_id="A").success
    tenants.acme.add_tasks(tasks=["C"])
    assert tenants.globex.claim_next(wait_seconds=0.3).task_id is None
    assert tenants.globex.next_id() == tenants.acme.next_id() == "0001"


def test_limits_policies_and_the_end_of_a_session_concern_one_s_own(tenants: Tenants) -> None:
    tenants.acme.set_policy(limits={"max_concurrent_claims": 1})
    for fleet in tenants[:2]:
        fleet.add_tasks(tasks=["C"])
        assert fleet.claim_task(task_id="A").success
    assert [fleet.claim_task(task_id="C").reason for fleet in tenants[:2]] == [
        "DENIED_LIMIT",
        "GRANTED",
    ]
    tenants.acme.end_session()
    assert tenants.acme.get_task_state(task_id="A").claim is None
    assert tenants.globex.get_task_state(task_id="A").claim is not None
    assert tenants.globex.claim_task(task_id="C").success


PLACES = [
    ("a", "b"),
    ("b", "a"),
    ("a", "a"),
    ("a.b", "a"),
    ("a", "b.a"),
    ("ab", "a"),
    ("a", "ba"),
    ("a-", "-b"),
    ("A", "b"),
]


def test_places_whose_names_are_alike_are_apart_however_often_each_is_named(home: Home) -> None:
    fleet = home.connect()
    for _ in range(2):
        for number, (tenant, project) in enumerate(PLACES):
            fleet.add_tasks(tasks=[f"t-{number}"], tenant_id=tenant, project_id=project)
    for number, (tenant, project) in enumerate(PLACES):
        assert [one.task.id for one in fleet.ready(tenant_id=tenant, project_id=project)] == [
            f"t-{number}"
        ]
        # And by default, which is named by nobody.
        assert [
            one.task.id for one in home.connect(tenant_id=tenant, project_id=project).ready()
        ] == [f"t-{number}"]


@pytest.mark.parametrize(
    "name", ["", ".", "..", "_", "*", "a/b", "a b", "é", "x" * 65, 1, True, [], {}, ("a",), b"a"]
)
def test_what_is_no_name_is_refused_every_time_also_beside_one_that_was_good(
    home: Home, name: Any
) -> None:
    fleet = home.connect()
    fleet.add_tasks(tasks=["t"], tenant_id="a", project_id="b")
    for _ in range(3):
        for what, place in (("tenant", (name, "b")), ("project", ("a", name))):
            with pytest.raises(BadArgument, match=f"^{what} "):
                fleet.ready(tenant_id=place[0], project_id=place[1])
        assert len(fleet.ready(tenant_id="a", project_id="b")) == 1


def test_a_tenant_that_could_not_be_listed_is_listed_by_the_next_call(home: Home) -> None:
    """Monitors and admins find a project by its tenant's record: nothing may be written beside a
    tenant that has none."""
    store = home.gated()
    fleet = home.connect(store, deadline_seconds=0.1)
    away = raising(StoreUnavailable("for a while"))
    store.on(
        "commit",
        when=lambda changes: any(change.key.kind == TENANT for change in changes),
        before=away,
        times=inf,
    )
    with pytest.raises(StoreUnavailable):
        fleet.add_tasks(tasks=["T"])
    store.clear()

    fleet.add_tasks(tasks=["T"])

    assert [tenant.tenant_id for tenant in fleet.list_tenants()] == ["default"]
