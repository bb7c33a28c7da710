"""Lengths of time in Python and over HTTP: numbers of seconds, or texts as people write them. And
the one sentence about leases of a wrong length."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

import genlock
from genlock.core.definition import define_task
from genlock.core.durations import lease_bounds, read_seconds
from genlock.core.reasons import ClaimReason
from genlock.errors import BadArgument
from genlock.settings import check_lease_seconds
from tests.servers.service import serving


@pytest.fixture(scope="module", params=["library", "service"])
def fleet(request: pytest.FixtureRequest) -> Iterator[genlock.Coordinator]:
    if request.param == "library":
        with genlock.connect("memory://", session_id="s", agent_id="a") as fleet:
            yield fleet
        return
    with (
        serving() as service,
        genlock.connect(service.url, session_id="s", agent_id="a") as fleet,
    ):
        yield fleet


@pytest.mark.parametrize(
    ("given", "seconds"), [("90s", 90.0), ("5m", 300.0), ("1h30m", 5400.0), ("45", 45.0), (7, 7.0)]
)
def test_a_lease_is_a_number_of_seconds_or_a_text(
    fleet: genlock.Coordinator, given: Any, seconds: float
) -> None:
    name = f"T-{given}"
    fleet.add_tasks(tasks=[name])
    claim = fleet.claim_task(task_id=name, lease_duration_seconds=given).require()
    assert claim.lease_seconds == seconds
    renewed = fleet.renew_lease(task_id=name, generation=1, lease_duration_seconds=given)
    assert renewed.lease_seconds == seconds
    assert fleet.explain(task_id=name, lease_duration_seconds=given).because
    assert fleet.release_claim(task_id=name, generation=1).success
    assert fleet.claim_next(lease_duration_seconds=given).require().lease_seconds == seconds
    fleet.cancel_task(task_id=name, take_over=True)


def test_a_wait_is_a_number_of_seconds_or_a_text(fleet: genlock.Coordinator) -> None:
    assert fleet.claim_next(wait_seconds="0.01s").reason is ClaimReason.NOTHING_READY
    fleet.add_tasks(tasks=["W"])
    assert fleet.claim_next(wait_seconds="1m").success
    fleet.cancel_task(task_id="W", take_over=True)


def test_the_end_and_the_overlap_of_a_key_are_texts_too(fleet: genlock.Coordinator) -> None:
    made = fleet.create_key(name="ci", role="agent", expires_in_seconds="2d").key
    assert made.expires_at is not None
    assert (made.expires_at - made.created_at).total_seconds() == pytest.approx(172800, abs=5)
    fleet.rotate_key(key_id=made.key_id, overlap_seconds="5m")


@pytest.mark.parametrize("given", ["soon", "5 minutes", "5w", "", "-5m", "m"])
def test_an_unknown_unit_is_named_with_what_to_write(
    fleet: genlock.Coordinator, given: str
) -> None:
    wanted = "is no length of time: write seconds, or 90s, 5m, 1h30m or 2d"
    with pytest.raises(BadArgument) as raised:
        fleet.claim_next(wait_seconds=given)
    assert str(raised.value).endswith(f"wait_seconds {given!r} {wanted}")
    with pytest.raises(BadArgument, match=wanted):
        fleet.claim_task(task_id="T", lease_duration_seconds=given)


@pytest.mark.parametrize("given", [True, float("nan"), None, [], "367d"])
def test_what_is_no_length_of_time_or_too_long_is_refused(given: object) -> None:
    with pytest.raises(BadArgument, match="wait_seconds is a number from 0 to 60, or a length of"):
        read_seconds("wait_seconds", given, 0, 60)


def test_lease_bounds_are_told_in_one_sentence_everywhere() -> None:
    """By the core that denies a claim, and by each check before it."""
    assert lease_bounds(5, 30, 3600) == "a lease lasts at least 30 s and at most 3600 s, not 5 s"
    assert lease_bounds(0.5, 1, None) == "a lease lasts at least 1 s, not 0.5 s"
    with genlock.connect("memory://", session_id="s", agent_id="a", profile="default") as fleet:
        fleet.add_tasks(tasks=["T"])
        for lease, side in (("5s", "under the limit min_"), ("2h", "over the limit max_")):
            denied = fleet.claim_task(task_id="T", lease_duration_seconds=lease)
            asked = {"5s": "5", "2h": "7200"}[lease]
            assert denied.detail.startswith(side)
            assert denied.detail.endswith(
                f": a lease lasts at least 30 s and at most 3600 s, not {asked} s"
            )
            assert denied.detail in fleet.explain(task_id="T", lease_duration_seconds=lease).because
        for wrong in (0, "0s"):
            with pytest.raises(BadArgument) as raised:
                fleet.claim_task(task_id="T", lease_duration_seconds=wrong)
            assert str(raised.value).endswith(
                "lease_duration_seconds: a lease lasts over 0 s and at most 31622400 s, not 0 s"
            )
    with pytest.raises(BadArgument, match="lease_seconds: a lease lasts over 0 s and at most"):
        check_lease_seconds("0")
    with pytest.raises(BadArgument, match="lease_seconds: a lease lasts over 0 s and at most"):
        define_task({"id": "T", "lease_seconds": 0})
