"""The metrics of GC 8.1 and ours: each moves when it should, by as much as it should, and by
nothing else."""

from __future__ import annotations

import asyncio
import re
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from msgspec import Raw
from prometheus_client import parser
from prometheus_client.openmetrics import parser as openmetrics_parser
from starlette.applications import Starlette
from starlette.routing import Route

import genlock
from genlock.core import events as e
from genlock.core.commands import ClaimTask, Content, SubmitResult
from genlock.core.model import Process
from genlock.core.reasons import ClaimReason, RenewReason, SubmitReason
from genlock.engine.processes import identify
from genlock.errors import BadArgument, GenlockError, StoreUnavailable
from genlock.reads.reader import StoreReader
from genlock.service.metrics import Metrics, collector, metrics_endpoint, table, tallies
from genlock.service.metrics.collector import Census
from genlock.service.metrics.table import Kind
from tests.engine.gated_store import (
    GatedStore,
    Home,
    answered,
    caller,
    claim,
    complete,
    granted,
    next_for,
    raising,
    submit,
    task_key,
    writing,
)
from tests.resource_limits import no_threads
from tests.servers.service import Hosted

MINE = {"tenant": "default", "project": "default"}


@pytest.fixture(params=["memory", "sqlite"])
def home(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Home]:
    place = Home(request.param, tmp_path)
    try:
        yield place
    finally:
        place.close()


class Observed:
    """A coordinator with its metrics, and what they have come to."""

    def __init__(self, home: Home, store: GatedStore | None = None, **options: Any) -> None:
        self.metrics = Metrics(**options)
        self.fleet = home.connect(store, observer=self.metrics)
        self.metrics.attach(self.fleet.reader)

    def value(self, name: str, **labels: str) -> float:
        """Of one series; 0 if there is none."""
        return self.values().get((name, *sorted(labels.items())), 0)

    def of(self, name: str, **labels: str) -> float:
        """Of one series of the default project."""
        return self.value(name, **MINE, **labels)

    def values(self) -> dict[tuple[Any, ...], float]:
        self.fleet.sweep(
            project_id="nowhere"
        )  # whoever is answered now was told of later than all before
        page, _ = self.metrics.page()
        return {
            (sample.name, *sorted(sample.labels.items())): sample.value
            for family in parser.text_string_to_metric_families(page.decode())
            for sample in family.samples
        }


@pytest.fixture
def seen(home: Home) -> Observed:
    return Observed(home)


# The table


def test_the_eleven_of_gc_8_1_have_its_names_labels_and_buckets() -> None:
    place = ("tenant", "project")
    assert [
        (metric.name, metric.kind.value, metric.labels, metric.buckets) for metric in table.GC
    ] == [
        ("claims_total", "counter", (*place, "result"), ()),
        ("results_total", "counter", (*place, "result"), ()),
        ("lease_renewals_total", "counter", (*place, "result"), ()),
        ("lease_expirations_total", "counter", place, ()),
        ("generation_increments_total", "counter", place, ()),
        ("active_claims", "gauge", place, ()),
        ("pending_tasks", "gauge", place, ()),
        ("completed_tasks", "gauge", place, ()),
        ("claim_duration_seconds", "histogram", place, (1, 5, 15, 60, 300, 900, 3600)),
        ("task_completion_time_seconds", "histogram", place, (10, 60, 300, 900, 3600, 7200)),
        ("generations_per_task", "histogram", place, (1, 2, 3, 5, 10, 20, 50)),
    ]


def test_every_reason_has_a_word_and_those_of_gc_are_its_own() -> None:
    assert set(table.CLAIM_WORDS) == set(ClaimReason)
    assert set(table.RESULT_WORDS) == set(SubmitReason)
    assert set(table.RENEWAL_WORDS) == set(RenewReason)
    assert {"granted", "denied_active", "denied_completed"} <= set(table.CLAIM_WORDS.values())
    assert {"accepted", "stale_generation", "session_mismatch", "no_claim"} <= set(
        table.RESULT_WORDS.values()
    )
    assert set(table.RENEWAL_WORDS.values()) == {"renewed", "failed"}


def test_all_that_is_in_the_table_is_on_the_page_and_nothing_else(seen: Observed) -> None:
    seen.metrics.count_request("claim", 200, 0.001)
    seen.fleet.add_tasks(tasks=["T"])
    submit(seen.fleet, "T", "alice", 7)
    page, _ = seen.metrics.page()
    found = {
        (family.name + "_total" * (family.type == "counter"), family.type, family.documentation)
        for family in parser.text_string_to_metric_families(page.decode())
    }
    assert found == {
        (f"genlock_{metric.name}", metric.kind.value, metric.help)
        for metric in (*table.GC, *table.OURS)
    }


# Counters


def test_claims_are_counted_by_their_answer(home: Home, seen: Observed) -> None:
    fleet = seen.fleet
    fleet.add_tasks(
        tasks=[
            "T",
            "done",
            {"id": "held"},
            {"id": "mine", "assigned_to": "zoe"},
            {"id": "drawn", "roles": ["architect"]},
            {"id": "blocked", "depends_on": ["held"]},
            "short",
        ]
    )
    complete(fleet, "done")
    fleet.hold_task(task_id="held", reason="wait")
    before = seen.values()
    for task, lease in {
        "T": 300,
        "done": 300,
        "held": 300,
        "mine": 300,
        "drawn": 300,
        "blocked": 300,
        "short": 0.5,
    }.items():
        claim(fleet, task, "alice", lease)
    claim(fleet, "T", "bob")
    claim(fleet, "T", "carol")
    next_for(fleet, "alice", tracks="A")
    with pytest.raises(GenlockError):
        claim(fleet, "unknown", "alice")
    after = seen.values()

    moved = {
        word: after[key] - before[key]
        for word in (*table.CLAIM_WORDS.values(), table.ERROR)
        for key in [("genlock_claims_total", *sorted({**MINE, "result": word}.items()))]
    }
    assert moved == {
        "granted": 1,
        "denied_active": 2,
        "denied_completed": 1,
        "denied_held": 1,
        "denied_assigned": 1,
        "denied_role": 1,
        "denied_blocked": 1,
        "denied_limit": 1,
        "nothing_ready": 1,
        "error": 1,
    }


def test_claim_next_is_a_claim(seen: Observed) -> None:
    seen.fleet.add_tasks(tasks=["T"])
    next_for(seen.fleet, "alice")
    assert seen.of("genlock_claims_total", result="granted") == 1


def test_results_are_counted_by_their_answer_and_refused_ones_that_were_kept(
    home: Home, seen: Observed
) -> None:
    fleet = seen.fleet
    fleet.add_tasks(tasks=["T", "U", "V", {"id": "W", "human_required": True}])
    granted(fleet, "T", "alice")
    granted(fleet, "V", "alice")
    granted(fleet, "W", "alice")
    fleet.spawn_subtasks(
        task_id="V",
        generation=1,
        subtasks=["one"],
        keep=True,
        session_id="s-alice",
        agent_id="alice",
    )
    submit(fleet, "T", "alice", 0)
    submit(fleet, "T", "alice", 9)
    submit(fleet, "T", "bob", 1)
    submit(fleet, "U", "bob", 0)
    submit(fleet, "V", "alice", 1)
    submit(fleet, "T", "alice", 1)
    submit(fleet, "T", "alice", 1, "other")
    submit(fleet, "W", "alice", 1)
    with suppress(GenlockError):
        submit(fleet, "unknown", "alice", 1)

    counted = {
        word: seen.of("genlock_results_total", result=word)
        for word in (*table.RESULT_WORDS.values(), table.ERROR)
    }
    assert counted == dict.fromkeys(counted, 1)
    refused = {
        reason: seen.of("genlock_refused_results_total", reason=reason) for reason in SubmitReason
    }
    assert refused == {
        reason: float(reason not in (SubmitReason.ACCEPTED, SubmitReason.CONVERGENCE_ESCALATED))
        for reason in SubmitReason
    }
    waiting = fleet.get_review(task_id="W")
    fleet.reject_review(task_id="W", generation=1, digest=waiting.digest)
    assert seen.of("genlock_refused_results_total", reason="REVIEW_REJECTED") == 1


def test_an_adopted_result_is_an_accepted_one(seen: Observed) -> None:
    fleet = seen.fleet
    fleet.add_tasks(tasks=["T"])
    granted(fleet, "T", "alice")
    refused = submit(fleet, "T", "bob", 0).refused_id
    assert refused is not None
    fleet.adopt_result(task_id="T", refused_id=refused, take_over=True)
    assert seen.of("genlock_results_total", result="accepted") == 1
    assert seen.of("genlock_generations_per_task_count") == 1


def test_renewals_are_renewed_or_failed(home: Home, seen: Observed) -> None:
    fleet = seen.fleet
    fleet.add_tasks(tasks=["T"])
    granted(fleet, "T", "alice", lease=30)
    for session, generation in [("s-alice", 1), ("s-alice", 2), ("s-bob", 1)]:
        fleet.renew_lease(task_id="T", expected_generation=generation, session_id=session)
    home.clock.advance(30)
    fleet.renew_lease(task_id="T", expected_generation=1, session_id="s-alice")
    with pytest.raises(GenlockError):
        fleet.renew_lease(task_id="unknown", expected_generation=1, session_id="s-alice")

    assert seen.of("genlock_lease_renewals_total", result="renewed") == 1
    assert seen.of("genlock_lease_renewals_total", result="failed") == 3 + 1


def test_expired_and_orphaned_claims_are_counted_once_each(home: Home, seen: Observed) -> None:
    fleet = seen.fleet
    fleet.add_tasks(tasks=["T", "U"])
    granted(fleet, "T", "alice", lease=30)
    granted(fleet, "U", "bob")
    fleet.end_session(session_id="s-bob")
    home.clock.advance(30)
    fleet.sweep()
    fleet.sweep()
    granted(fleet, "T", "carol")

    assert seen.of("genlock_lease_expirations_total") == 1
    assert seen.of("genlock_claims_orphaned_total") == 0  # its session gave it back as it ended


def test_an_orphan_is_no_expiration(home: Home, seen: Observed) -> None:
    fleet = seen.fleet
    fleet.add_tasks(tasks=["T"])
    here = identify()
    assert here is not None
    gone = Process(here.host, here.boot, 2**22 + 1, 1, here.namespace)
    with home.connect(process=gone, session_id="s-alice", agent_id="alice") as lost:
        lost.claim_task(task_id="T")
    granted(fleet, "T", "bob")

    assert (
        seen.of("genlock_claims_orphaned_total"),
        seen.of("genlock_lease_expirations_total"),
    ) == (1, 0)
    assert seen.of("genlock_claim_duration_seconds_count") == 1


def test_a_holder_that_falls_silent_is_counted_once_each_time(home: Home, seen: Observed) -> None:
    fleet = seen.fleet
    fleet.add_tasks(tasks=["T"])
    fleet.set_policy(policy={"stale_threshold_seconds": 600})
    granted(fleet, "T", "alice", lease=3600)
    home.clock.advance(601)
    fleet.sweep()
    fleet.sweep()
    assert seen.of("genlock_claims_stale_total") == 1
    fleet.renew_lease(task_id="T", generation=1, session_id="s-alice")
    home.clock.advance(601)
    fleet.sweep()
    assert seen.of("genlock_claims_stale_total") == 2
    assert seen.of("genlock_lease_expirations_total") == 0


def test_a_generation_that_rises_is_counted_however_it_rises(home: Home, seen: Observed) -> None:
    fleet = seen.fleet
    fleet.add_tasks(tasks=["T"])
    granted(fleet, "T", "alice", lease=30)  # 1
    home.clock.advance(30)
    granted(fleet, "T", "bob")  # 2
    fleet.force_release(task_id="T", take_over=True)  # 3, not granted
    granted(fleet, "T", "carol")  # takes 3
    submit(fleet, "T", "carol", 3)
    fleet.reset_task(task_id="T")  # 4
    fleet.cancel_task(task_id="T")  # 4 was never granted
    generation = fleet.get_task_state(task_id="T").generation

    assert seen.of("genlock_generation_increments_total") == generation


# Histograms


def test_a_claim_lasts_from_its_grant_to_its_end(home: Home, seen: Observed) -> None:
    fleet = seen.fleet
    fleet.add_tasks(tasks=["given", "done", "lapsed", "taken", "open"])
    for task in ("given", "done", "taken", "open"):
        granted(fleet, task, "alice", lease=600)
    granted(fleet, "lapsed", "alice", lease=30)
    home.clock.advance(10)
    fleet.release_claim(task_id="given", expected_generation=1, session_id="s-alice")  # 10
    home.clock.advance(50)
    submit(fleet, "done", "alice", 1)  # 60
    granted(
        fleet, "lapsed", "bob", lease=600
    )  # 30: to the end of its lease, not to when that was found
    fleet.force_release(task_id="taken", take_over=True)  # 60

    assert seen.of("genlock_claim_duration_seconds_count") == 4
    assert seen.of("genlock_claim_duration_seconds_sum") == 10 + 60 + 30 + 60
    buckets = {
        le: seen.of("genlock_claim_duration_seconds_bucket", le=le)
        for le in ("5.0", "15.0", "60.0", "3600.0", "+Inf")
    }
    assert buckets == {"5.0": 0, "15.0": 1, "60.0": 4, "3600.0": 4, "+Inf": 4}


def test_a_claim_that_lapsed_and_then_submits_ended_once(home: Home, seen: Observed) -> None:
    fleet = seen.fleet
    fleet.add_tasks(tasks=["T"])
    granted(fleet, "T", "alice", lease=30)
    home.clock.advance(40)
    fleet.sweep()
    submit(fleet, "T", "alice", 1)

    assert (
        seen.of("genlock_claim_duration_seconds_count"),
        seen.of("genlock_claim_duration_seconds_sum"),
    ) == (1, 30)
    assert (
        seen.of("genlock_task_completion_time_seconds_count"),
        seen.of("genlock_task_completion_time_seconds_sum"),
    ) == (1, 40)


def test_a_task_s_time_and_generations_are_known_when_it_is_completed(
    home: Home, seen: Observed
) -> None:
    fleet = seen.fleet
    fleet.add_tasks(tasks=["T", "U"])
    granted(fleet, "T", "alice", lease=30)
    home.clock.advance(30)
    granted(fleet, "T", "bob")
    home.clock.advance(45)
    assert seen.of("genlock_task_completion_time_seconds_count") == 0
    submit(fleet, "T", "bob", 2)

    assert (
        seen.of("genlock_task_completion_time_seconds_count"),
        seen.of("genlock_task_completion_time_seconds_sum"),
    ) == (1, 45)
    assert (
        seen.of("genlock_generations_per_task_count"),
        seen.of("genlock_generations_per_task_sum"),
    ) == (1, 2)
    assert seen.of("genlock_generations_per_task_bucket", le="1.0") == 0
    assert seen.of("genlock_generations_per_task_bucket", le="2.0") == 1


def test_a_claim_and_its_result_in_one_change_are_counted_like_any(seen: Observed) -> None:
    """Both are decided on one record before anything is written."""
    seen.fleet.add_tasks(tasks=["T"])
    content = Content(digest="d", size=4, data=Raw(b"true"))
    job = seen.fleet.engine.submit(
        [
            ClaimTask(task_key("T"), caller("alice"), 30.0),
            SubmitResult(task_key("T"), caller("alice"), 1, content),
        ]
    )
    assert [answer.reason for answer in answered(job)] == ["GRANTED", "ACCEPTED"]

    assert seen.of("genlock_generations_per_task_count") == 1
    assert seen.of("genlock_claim_duration_seconds_count") == 1
    assert seen.of("genlock_generation_increments_total") == 1


def test_fan_in_is_no_work_and_its_task_is_completed_all_the_same(seen: Observed) -> None:
    fleet = seen.fleet
    fleet.add_tasks(tasks=["T"])
    granted(fleet, "T", "alice")
    spawned = fleet.spawn_subtasks(
        task_id="T",
        generation=1,
        subtasks=["one"],
        mode="fan-out-fan-in",
        session_id="s-alice",
        agent_id="alice",
    )
    complete(fleet, spawned.children[0])
    assert fleet.get_task_state(task_id="T").state == "COMPLETED"

    assert seen.of("genlock_generations_per_task_count") == 2
    assert seen.of("genlock_task_completion_time_seconds_count") == 1
    assert seen.of("genlock_claim_duration_seconds_count") == 2  # the spawn's, and the subtask's


# Gauges


def test_tasks_are_counted_in_the_store_by_state(seen: Observed) -> None:
    seen.fleet.add_tasks(tasks=["T", "U", "V", {"id": "W", "depends_on": ["U"]}])
    granted(seen.fleet, "T", "alice")
    complete(seen.fleet, "V")

    assert seen.of("genlock_active_claims") == 1
    assert seen.of("genlock_pending_tasks") == 1
    assert seen.of("genlock_completed_tasks") == 1
    assert seen.of("genlock_tasks", state="BLOCKED") == 1


def test_whoever_has_a_task_that_is_held_meanwhile_is_counted_among_the_claims(
    seen: Observed,
) -> None:
    seen.fleet.add_tasks(tasks=["T", "U", "V"])
    granted(seen.fleet, "T", "alice")
    granted(seen.fleet, "U", "bob")
    seen.fleet.hold_task(task_id="U")
    seen.fleet.hold_task(task_id="V")

    assert seen.fleet.get_task_state(task_id="U").claim is not None
    assert (seen.of("genlock_active_claims"), seen.of("genlock_tasks", state="HELD")) == (2, 2), (
        "and V has nobody"
    )


def test_projects_are_found_that_this_coordinator_has_not_touched(home: Home) -> None:
    home.connect().add_tasks(tasks=["T"], project_id="apollo")
    seen = Observed(home)
    assert seen.value("genlock_pending_tasks", tenant="default", project="apollo") == 1


class Timed:
    """A census by a clock of the test's own, and the questions it has asked the store."""

    def __init__(self, store: GatedStore, counted: tallies.Tallies) -> None:
        self.now = 1000.0
        self.store = store
        self.census = Census(StoreReader(store), counted, clock=lambda: self.now)

    def asked(self) -> list[str]:
        before = len(self.store.calls)
        self.census.refresh()
        return [query.project for method, query in self.store.calls[before:] if method == "count"]


def test_the_store_is_asked_seldom_and_first_about_what_has_moved(home: Home) -> None:
    store, counted = home.gated(), tallies.Tallies()
    fleet = home.connect(store, observer=counted)
    for project in ("apollo", "gemini"):
        fleet.add_tasks(tasks=["T", "U"], project_id=project)
    timed = Timed(store, counted)
    assert sorted(timed.asked()) == ["apollo", "gemini"]
    assert timed.asked() == []  # just asked

    claim(fleet, "T", "alice", project_id="apollo")
    fleet.sweep()
    timed.now += collector.MOVED_SECONDS - 1
    assert timed.asked() == []
    timed.now += 1
    assert timed.asked() == ["apollo"]  # the other has not moved
    timed.now += collector.MOVED_SECONDS
    assert timed.asked() == []
    timed.now += collector.OTHERS_SECONDS
    assert timed.asked() == [
        "gemini",
        "apollo",
    ]  # somebody else may have moved them; what was asked longest ago comes first


def test_where_no_thread_can_be_started_old_figures_stand_until_one_can(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, counted = home.gated(), tallies.Tallies()
    home.connect(store, observer=counted).add_tasks(tasks=["T"], project_id="apollo")
    timed = Timed(store, counted)
    with no_threads(monkeypatch) as refused:
        assert timed.asked() == []
    assert refused == {"genlock-census"}
    assert timed.asked() == ["apollo"]


def test_many_projects_are_asked_about_a_second_at_a_time(home: Home) -> None:
    store, counted = home.gated(), tallies.Tallies()
    fleet = home.connect(store, observer=counted)
    for number in range(12):
        fleet.add_tasks(tasks=["T"], project_id=f"p-{number}")
    timed = Timed(store, counted)

    def a_quarter_second() -> None:
        timed.now += 0.25

    store.on("count", before=a_quarter_second, times=1000)
    asked = [timed.asked() for _ in range(3)]
    assert [len(places) for places in asked] == [4, 4, 4]
    assert len({place for places in asked for place in places}) == 12


def test_a_store_that_hangs_or_fails_makes_old_figures_and_no_scrape_that_hangs(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(collector, "MOVED_SECONDS", 0.0)
    store = home.gated()
    seen = Observed(home, store)
    seen.fleet.add_tasks(tasks=["T", "U"])
    assert seen.of("genlock_pending_tasks") == 2
    granted(seen.fleet, "T", "alice")

    store.on("count", before=raising(StoreUnavailable("the store is away")))
    assert seen.of("genlock_pending_tasks") == 2
    stop = home.stop()
    store.on("count", before=stop)
    census_of = seen.metrics._census
    assert census_of is not None
    census_of.refresh(wait_seconds=0.01)
    stop.wait()
    census_of.refresh(wait_seconds=0.01)  # there is one under way: no second one is begun
    assert [thread.name for thread in threading.enumerate()].count("genlock-census") == 1
    stop.open()
    assert seen.of("genlock_pending_tasks") == 1


# Lanes and requests


def test_lanes_say_how_many_wait_and_batches_how_large_they_were(seen: Observed) -> None:
    tasks = [f"T-{number}" for number in range(40)]
    seen.fleet.add_tasks(tasks=tasks)
    before = seen.values()
    seen.fleet.batch_claim(task_ids=tasks, agent_id="a", session_id="s")
    after = seen.values()

    def moved(name: str, **labels: str) -> float:
        key = (name, *sorted(labels.items()))
        return after[key] - before[key]

    assert (
        moved("genlock_batch_size_bucket", le="+Inf")
        - moved("genlock_batch_size_bucket", le="32.0")
        == 1
    )
    assert moved("genlock_commit_duration_seconds_count") >= 1
    assert (
        moved("genlock_load_duration_seconds_count")
        == moved("genlock_decide_duration_seconds_count")
        >= 2
    )
    assert moved("genlock_lane_gathered_depth_count") == moved("genlock_batch_size_count")
    assert (
        after["genlock_lane_depth", ("lane", "0")],
        after["genlock_lane_waiters", ("lane", "0")],
    ) == (0, 0)


def test_conflicts_and_second_commits_are_counted(home: Home) -> None:
    store, other = home.gated(), home.connect()
    seen = Observed(home, store)
    seen.fleet.add_tasks(tasks=["T", {"id": "U", "depends_on": ["T"]}])
    seconds = seen.value("genlock_second_commits_total")
    store.on("commit", when=writing(e.ClaimAcquired, "T"), before=lambda: claim(other, "T", "bob"))
    claim(seen.fleet, "T", "alice")
    assert seen.value("genlock_commit_conflicts_total") == 1
    submit(seen.fleet, "T", "bob", 1)
    assert seen.value("genlock_second_commits_total") > seconds


def test_requests_are_counted_by_route_and_status_and_timed_by_route(seen: Observed) -> None:
    for status, seconds in [(200, 0.002), (200, 0.2), (409, 0.02)]:
        seen.metrics.count_request("claim_task", status, seconds)
    seen.metrics.sse_clients = lambda: 3

    assert seen.value("genlock_http_requests_total", route="claim_task", status="200") == 2
    assert seen.value("genlock_http_requests_total", route="claim_task", status="409") == 1
    assert seen.value("genlock_http_request_duration_seconds_count", route="claim_task") == 3
    assert (
        seen.value("genlock_http_request_duration_seconds_bucket", route="claim_task", le="0.025")
        == 2
    )
    assert seen.value("genlock_sse_clients") == 3
    labels = next(dict(key[1:]) for key in seen.values() if key[0] == "genlock_build_info")
    assert labels["version"] == genlock.__version__
    assert labels["store"]


# Names and bounds


def test_the_prefix_is_what_one_wants(home: Home) -> None:
    seen = Observed(home, prefix="coditect")
    names = {key[0] for key in seen.values()}
    assert "coditect_batch_size_count" in names
    assert all(name.startswith("coditect_") for name in names)


@pytest.mark.parametrize("prefix", ["", "1st", "a-b", "a b", "ä", "a" * 65, "a\n"])
def test_a_prefix_that_is_no_name_is_refused(prefix: str) -> None:
    with pytest.raises(BadArgument, match="the prefix of metrics is a letter"):
        Metrics(prefix=prefix)


def test_beyond_so_many_projects_the_rest_is_counted_together(home: Home) -> None:
    seen = Observed(home, most_places=3)
    for number in range(6):
        seen.fleet.add_tasks(tasks=["T"], project_id=f"p-{number}")
        seen.fleet.claim_task(task_id="T", project_id=f"p-{number}", agent_id="a", session_id="s")
    counted = {
        key: value
        for key, value in seen.values().items()
        if key[0] == "genlock_claims_total" and ("result", "granted") in key
    }

    assert sum(counted.values()) == 6
    assert len(counted) == 4
    assert (
        seen.value("genlock_claims_total", tenant="_other", project="_other", result="granted") == 3
    )


def test_names_that_nobody_has_used_make_no_series(seen: Observed) -> None:
    for number in range(50):
        with suppress(GenlockError):
            seen.fleet.claim_task(
                task_id="T", project_id=f"guess-{number}", agent_id="a", session_id="s"
            )
        seen.fleet.claim_next(project_id=f"guess-{number}", agent_id="a", session_id="s")

    projects = {dict(key[1:]).get("project") for key in seen.values()}
    assert not any(project and project.startswith("guess") for project in projects)
    assert (
        seen.value("genlock_claims_total", tenant="_other", project="_other", result="error") == 50
    )
    assert (
        seen.value(
            "genlock_claims_total", tenant="_other", project="_other", result="nothing_ready"
        )
        == 50
    )


# The page


@pytest.mark.parametrize(
    ("accept", "content_type", "parse"),
    [
        ("", "text/plain; version=0.0.4; charset=utf-8", parser.text_string_to_metric_families),
        (
            "text/plain;version=abc",
            "text/plain; version=0.0.4; charset=utf-8",
            parser.text_string_to_metric_families,
        ),
        (
            "application/openmetrics-text;version=1.0.0,text/plain;q=0.5",
            "application/openmetrics-text; version=1.0.0; charset=utf-8",
            openmetrics_parser.text_string_to_metric_families,
        ),
        (
            "application/openmetrics-text;version=\r\nx",
            "application/openmetrics-text; version=1.0.0; charset=utf-8",
            openmetrics_parser.text_string_to_metric_families,
        ),
    ],
)
def test_the_page_can_be_read_in_both_formats(
    seen: Observed, accept: str, content_type: str, parse: Callable[[str], Any]
) -> None:
    complete_one(seen)
    page, given = seen.metrics.page(accept)
    assert given == content_type
    families = {family.name: family for family in parse(page.decode())}
    assert {metric.name for metric in table.GC if metric.kind is Kind.HISTOGRAM} <= {
        re.sub("^genlock_", "", name) for name in families
    }


def complete_one(seen: Observed) -> None:
    seen.fleet.add_tasks(tasks=["T"])
    complete(seen.fleet, "T")


def test_the_page_is_served(seen: Observed) -> None:
    complete_one(seen)
    app = Starlette(routes=[Route("/metrics", metrics_endpoint(seen.metrics))])
    with Hosted(app) as service:
        plain = service.http.get("/metrics")
        openmetrics = service.http.get(
            "/metrics", headers={"accept": "application/openmetrics-text"}
        )

    assert (plain.status_code, openmetrics.status_code) == (200, 200)
    assert plain.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
    assert 'genlock_completed_tasks{project="default",tenant="default"} 1.0' in plain.text
    assert openmetrics.headers["content-type"].startswith("application/openmetrics-text")
    assert openmetrics.text.endswith("# EOF\n")
    seen.metrics.close()


def test_however_many_ask_the_page_is_made_once_a_second(
    seen: Observed, monkeypatch: pytest.MonkeyPatch
) -> None:
    complete_one(seen)
    made: list[str] = []
    stop = threading.Event()

    def counted(accept: str = "") -> tuple[bytes, str]:
        made.append(accept)
        assert stop.wait(20)
        return b"page", "text/plain"

    monkeypatch.setattr(seen.metrics, "page", counted)
    monkeypatch.setattr("genlock.service.metrics.metrics._PAGE_SECONDS", 3600.0)

    async def twenty() -> list[tuple[bytes, str]]:
        asking = [asyncio.ensure_future(seen.metrics.page_soon("")) for _ in range(20)]
        await asyncio.sleep(0)  # all of them have asked
        stop.set()
        return await asyncio.gather(*asking)

    assert set(asyncio.run(twenty())) == {(b"page", "text/plain")}
    assert made == [""]
    seen.metrics.close()


def test_counting_a_request_costs_about_a_microsecond() -> None:
    """Generously bounded: that it is a dozen and not a hundred, on whatever machine."""
    count = Metrics().count_request
    best = min(_seconds(lambda: count("claim_task", 200, 0.001), 1000) for _ in range(20))
    assert best < 12e-6


def _seconds(call: Callable[[], None], times: int) -> float:
    start = time.perf_counter()
    for _ in range(times):
        call()
    return (time.perf_counter() - start) / times
