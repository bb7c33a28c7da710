"""After an outage, what fell due during it counts as live for a while: 40 % of its lease, at most a
minute."""

from __future__ import annotations

from datetime import datetime, timedelta

import pytest
from msgspec.structs import replace

from genlock.core.facts import OutageGrace
from genlock.core.model import Claim, SessionRecord
from genlock.core.reasons import Cause, ClaimState
from genlock.core.task.view import overdue, spared_until
from genlock.testing.clock import START


def at(seconds: float) -> datetime:
    return START + timedelta(seconds=seconds)


def claim(lease: float, grace: float = 0.0) -> Claim:
    return Claim("claim-1", "s", "a", 1, at(0), at(0), at(lease), lease, grace)


@pytest.mark.parametrize(
    ("lease", "outage_grace"), [(1, 0.4), (30, 12), (150, 60), (300, 60), (7200, 60)]
)
def test_it_lasts_for_forty_percent_of_the_lease_and_a_minute_at_most(
    lease: float, outage_grace: float
) -> None:
    outage = OutageGrace(since=at(0.5), back=at(10_000))
    assert spared_until(claim(lease), outage) == at(10_000 + outage_grace)
    assert overdue(claim(lease), at(10_000 + outage_grace - 0.001), outage_grace=outage) is None
    assert overdue(claim(lease), at(10_000 + outage_grace), outage_grace=outage) is Cause.LEASE_OVER


def test_what_fell_due_before_the_newest_event_has_no_excuse() -> None:
    assert (
        overdue(claim(30), at(100), outage_grace=OutageGrace(since=at(29.999), back=at(100)))
        is None
    )
    assert (
        overdue(claim(30), at(100), outage_grace=OutageGrace(since=at(30), back=at(100)))
        is Cause.LEASE_OVER
    )
    assert overdue(claim(30), at(100)) is Cause.LEASE_OVER


def test_a_grace_counts_as_part_of_the_lease() -> None:
    outage = OutageGrace(since=at(50), back=at(100))
    assert overdue(claim(30, grace=60), at(95), outage_grace=outage) is None
    assert overdue(claim(30, grace=60), at(111), outage_grace=outage) is None
    assert overdue(claim(30, grace=60), at(112), outage_grace=outage) is Cause.LEASE_OVER
    assert overdue(claim(30, grace=10), at(101), outage_grace=outage) is Cause.LEASE_OVER


def test_what_falls_due_just_after_the_return_is_spared_too() -> None:
    """Its holder could not renew either."""
    outage = OutageGrace(since=at(20), back=at(25))
    assert overdue(claim(30), at(36.9), outage_grace=outage) is None
    assert overdue(claim(30), at(37), outage_grace=outage) is Cause.LEASE_OVER


def test_a_lease_that_was_granted_after_the_return_lasts_its_own_length() -> None:
    outage = OutageGrace(since=at(-100), back=at(0))
    for lease in (1, 30, 300):
        assert overdue(claim(lease), at(lease), outage_grace=outage) is Cause.LEASE_OVER


def test_a_claim_that_was_found_to_be_over_never_lives_again() -> None:
    found = replace(claim(30), state=ClaimState.EXPIRED)
    outage = OutageGrace(since=at(0), back=at(100))
    assert spared_until(found, outage) is None
    assert overdue(found, at(100), outage_grace=outage) is Cause.LEASE_OVER


def test_a_holder_that_is_known_to_be_gone_is_not_waited_for() -> None:
    outage = OutageGrace(since=at(0), back=at(100))
    ended = SessionRecord("s", at(0), at(50), ended_at=at(50))
    assert overdue(claim(30), at(100), holder=ended, outage_grace=outage) is Cause.SESSION_ENDED
    assert overdue(claim(30), at(100), gone=True, outage_grace=outage) is Cause.PROCESS_GONE
