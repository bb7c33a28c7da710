"""The keeper: it renews, it says when a claim is lost, and nothing keeps it from either."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import threading
import time
import weakref
from collections.abc import Iterator

import pytest

from genlock.errors import Closed, StoreUnavailable
from genlock.worker import schedule
from genlock.worker.keeper import Keeper
from genlock.worker.kept_claim import ClaimLost, Loss
from tests.eventually import eventually
from tests.worker.fleets import Held, Worker, working


@pytest.fixture
def worker() -> Iterator[Worker]:
    with working("T", "U", "V") as worker:
        yield worker


def threads() -> list[str]:
    return sorted(
        each.name
        for each in threading.enumerate()
        if each.name in ("genlock-keeper", "genlock-sender")
    )


def test_a_kept_claim_outlives_its_lease_many_times(worker: Worker) -> None:
    kept = worker.keep("T")
    eventually(lambda: len(worker.way.renewals) >= 8, "eight renewals")
    assert not kept.is_lost
    assert worker.fleet.get_task_state(task_id="T").generation == kept.generation
    assert worker.fleet.submit_result(task_id="T", generation=kept.generation).accepted


def test_the_first_renewal_comes_at_10_to_40_percent_and_later_ones_at_30_to_40(
    worker: Worker,
) -> None:
    kept = worker.keep("T", 2.0)
    began = kept.sent
    assert 0.2 <= kept.due - began <= 0.8
    eventually(lambda: kept.sent > began, "the first renewal")
    assert 0.6 <= kept.due - kept.sent <= 0.8


def test_one_round_trip_renews_all_claims_of_the_session(worker: Worker) -> None:
    for task in "TUV":
        worker.keep(task)
    eventually(lambda: len(worker.way.renewals) >= 6, "six round trips")
    assert set(worker.way.renewals[-1].tasks) == {"T", "U", "V"}


def test_a_claim_taken_away_by_an_operator_is_lost_as_taken(worker: Worker) -> None:
    lost: list[str] = []
    kept = worker.keep("T", on_lost=lambda kept: lost.append(kept.task_id))
    other = worker.keep("U")
    worker.fleet.force_release(task_id="T", take_over=True)
    assert kept.lost.wait(10)
    assert kept.reason is Loss.TAKEN
    with pytest.raises(ClaimLost, match="T at generation 1 is lost: it was taken over") as raised:
        kept.check()
    assert raised.value.reason == "taken"
    eventually(lambda: lost == ["T"], "the callback")
    other.check()


def test_a_claim_that_cannot_be_renewed_is_lost_as_outage_before_its_lease_ends(
    worker: Worker,
) -> None:
    def away() -> None:
        raise StoreUnavailable("away")

    worker.way.before = away
    kept = worker.keep("T")
    granted = schedule.now()
    assert kept.lost.wait(10)
    assert (kept.reason, schedule.now() <= granted + 1.0) == (Loss.OUTAGE, True)
    assert len(worker.way.renewals) > 2  # it tried more than once


def test_a_renewal_that_is_never_answered_does_not_keep_the_loss_from_being_noticed(
    worker: Worker,
) -> None:
    worker.way.before = held = Held()
    kept = worker.keep("T")
    granted = schedule.now()
    assert kept.lost.wait(10)
    assert held.reached.is_set()
    assert (kept.reason, schedule.now() <= granted + 1.0) == (Loss.OUTAGE, True)
    held.go_on.set()


def test_an_outage_shorter_than_the_lease_costs_no_claim(worker: Worker) -> None:
    failures = iter(range(5))

    def away() -> None:
        if next(failures, None) is not None:
            raise StoreUnavailable("away")

    worker.way.before = away
    kept = worker.keep("T", 2.0)
    began = kept.sent
    eventually(lambda: kept.sent > began, "a renewal that succeeded")
    assert len(worker.way.renewals) >= 6
    assert (kept.attempts, kept.is_lost) == (0, False)


def test_the_keeper_survives_any_exception(worker: Worker) -> None:
    errors = iter([RuntimeError("a bug"), OSError("a socket"), MemoryError(), KeyError("x")])

    def broken() -> None:
        for error in errors:
            raise error

    worker.way.before = broken
    kept = worker.keep("T", 2.0)
    eventually(lambda: len(worker.way.renewals) >= 6, "renewals after four exceptions")
    assert not kept.is_lost


def test_a_renewal_in_flight_while_submitting_is_no_loss(worker: Worker) -> None:
    kept = worker.keep("T")
    worker.way.before = held = Held()
    assert held.reached.wait(10)
    with worker.keeper.ending(kept):
        assert worker.fleet.submit_result(task_id="T", generation=1).accepted
        before = len(worker.way.renewals)
        held.go_on.set()
        eventually(lambda: len(worker.way.renewals) > before, "another renewal, refused")
    worker.keeper.remove(kept)
    assert not kept.is_lost
    assert worker.keeper.claims == ()


def test_a_claim_that_was_removed_while_its_renewal_was_under_way_is_not_lost(
    worker: Worker,
) -> None:
    kept = worker.keep("T")
    worker.way.before = held = Held()
    assert held.reached.wait(10)
    worker.fleet.release_claim(task_id="T", expected_generation=1)
    worker.keeper.remove(kept)
    held.go_on.set()
    other = worker.keep("U")
    eventually(lambda: other.due > other.sent + 0.3, "a renewal of the other claim")
    assert not kept.is_lost


def test_a_callback_that_blocks_keeps_no_other_claim_from_being_renewed(worker: Worker) -> None:
    stuck = Held()
    lost = worker.keep("T", on_lost=lambda kept: stuck())
    other = worker.keep("U")
    worker.fleet.force_release(task_id="T", take_over=True)
    assert lost.lost.wait(10)
    assert stuck.reached.wait(10)
    seen = len(worker.way.renewals)
    eventually(lambda: len(worker.way.renewals) > seen + 3, "renewals meanwhile")
    assert not other.is_lost
    stuck.go_on.set()


def test_a_claim_that_is_dropped_is_not_renewed_any_more(worker: Worker) -> None:
    kept = worker.keep("T")
    kept.drop()
    eventually(lambda: worker.keeper.claims == (), "the claim to be forgotten")
    eventually(
        lambda: worker.fleet.claim_task(task_id="T", session_id="heir", agent_id="h").success,
        "somebody else to be granted the task",
    )


def test_the_threads_end_without_claims_and_start_again(
    worker: Worker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("genlock.worker.keeper._IDLE_SECONDS", 0.05)
    eventually(lambda: threads() == [], "the threads of other tests to end")
    for task in "TU":
        kept = worker.keep(task)
        assert threads() == ["genlock-keeper", "genlock-sender"]
        eventually(lambda: worker.way.renewals, "a renewal")
        worker.way.renewals.clear()
        worker.keeper.remove(kept)
        eventually(lambda: threads() == [], "the threads to end")


def test_a_keeper_without_claims_does_not_keep_its_fleet_alive(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("genlock.worker.keeper._IDLE_SECONDS", 0.05)
    with working("T") as worker:
        kept = worker.keep("T")
        seen = weakref.ref(worker.way)
        worker.keeper.remove(kept)
        eventually(lambda: threads() == [], "the threads to end")
        del worker, kept
    gc.collect()
    assert seen() is None


def test_a_closed_keeper_releases_what_it_holds(worker: Worker) -> None:
    kept = worker.keep("T", 60)
    assert worker.keeper.close(release=True, within=5)
    assert worker.fleet.get_task_state(task_id="T").claim is None
    assert not kept.is_lost
    with pytest.raises(Closed):
        worker.keep("U", 60)


def test_a_release_that_is_not_answered_holds_up_the_end_no_longer_than_allowed(
    worker: Worker,
) -> None:
    worker.keep("T", 60)
    worker.way.before = held = Held()
    began = time.monotonic()
    assert not worker.keeper.close(release=True, within=0.25)
    assert time.monotonic() - began < 5
    held.go_on.set()


def test_a_claim_that_was_waited_for_is_renewed_before_it_is_handed_out(worker: Worker) -> None:
    claim = worker.claim("T")
    asked = schedule.now() - 30  # so long ago that by this alone it would be lost
    kept = worker.keeper.add(claim, asked=asked)
    assert [renewal.tasks for renewal in worker.way.renewals] == [("T",)]
    assert not kept.is_lost


def test_a_claim_that_was_lost_while_it_was_waited_for_is_lost_at_once(worker: Worker) -> None:
    claim = worker.claim("T")
    worker.fleet.force_release(task_id="T", take_over=True)
    kept = worker.keeper.add(claim, asked=schedule.now() - 30)
    assert (kept.lost.is_set(), kept.reason) == (True, Loss.TAKEN)
    assert worker.keeper.claims == ()


def test_the_lease_takes_another_length_with_the_next_renewal(worker: Worker) -> None:
    kept = worker.keep("T", 1.0, lease_seconds=90.0)
    eventually(lambda: kept.lease_seconds == 90.0, "the new length")
    claim = worker.fleet.get_task_state(task_id="T").claim
    assert claim is not None
    assert claim.lease_seconds == 90.0


def test_a_lease_that_the_tenants_limit_cuts_short_is_trusted_no_longer_than_granted(
    worker: Worker,
) -> None:
    worker.fleet.set_tenant(limits={"max_lease_duration_seconds": 2.0})
    kept = worker.keep("T", 1.0, lease_seconds=90.0)
    eventually(lambda: kept.wanted_seconds is None, "the renewal")
    assert kept.lease_seconds == 2.0


FORKED = """
import os, sys, threading
from genlock.worker import schedule
from tests.worker.fleets import working

with working("T", "U") as worker:
    worker.keep("T", 600)
    worker.keeper._changed.acquire()          # somebody holds the lock when the process forks
    child = os.fork()
    if child == 0:
        assert worker.keeper.claims == ()
        names = {each.name for each in threading.enumerate()}
        assert not names & {"genlock-keeper", "genlock-sender"}, names
        worker.keeper.close(release=True)
        os._exit(7)
    worker.keeper._changed.release()
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
    assert worker.fleet.get_task_state(task_id="T").claim is not None
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
def test_a_forked_child_keeps_none_of_its_parents_claims() -> None:
    ended = subprocess.run(
        [sys.executable, "-c", FORKED], capture_output=True, text=True, timeout=60, check=False
    )
    assert (ended.returncode, ended.stderr) == (0, "")


def test_closing_twice_and_closing_an_unused_keeper_is_fine(worker: Worker) -> None:
    idle = Keeper(worker.way)
    assert idle.close(release=True)
    assert idle.close()
