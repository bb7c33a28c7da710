"""When leases are renewed: the arithmetic, and what a thousand agents make of it together."""

from __future__ import annotations

import time
from collections import Counter
from random import Random

import pytest

from genlock.worker import schedule


@pytest.mark.parametrize(
    ("lease", "trusted"), [(1.0, 0.8), (30.0, 24.0), (50.0, 40.0), (300.0, 290.0), (3600.0, 3590.0)]
)
def test_a_lease_is_trusted_until_a_fifth_or_ten_seconds_before_its_end(
    lease: float, trusted: float
) -> None:
    assert schedule.trusted_until(100.0, lease) == pytest.approx(100.0 + trusted)


def test_retries_double_from_a_hundredth_of_the_lease_up_to_five_seconds() -> None:
    random = Random(1)
    pauses = [schedule.retry(0.0, attempt, 300.0, random) for attempt in range(1, 8)]
    for pause, most in zip(pauses, [3, 5, 5, 5, 5, 5, 5], strict=True):
        assert most / 2 <= pause <= most


def test_the_clock_of_leases_goes_on_while_the_machine_sleeps() -> None:
    if hasattr(time, "CLOCK_BOOTTIME"):
        assert abs(schedule.now() - time.clock_gettime(time.CLOCK_BOOTTIME)) < 1


@pytest.mark.parametrize("seed", range(10))
def test_a_thousand_agents_that_claim_within_a_second_never_renew_in_step(seed: int) -> None:
    """In no second are there more than one and a half times the mean."""
    random, lease, seconds = Random(seed), 30.0, 600
    in_second: Counter[int] = Counter()
    for _ in range(1000):
        sent = random.uniform(0, 1)
        at = schedule.first_renewal(sent, lease, random)
        while at < seconds:
            in_second[int(at)] += 1
            at = schedule.later_renewal(at, lease, random)
    steady = [in_second[second] for second in range(60, seconds)]
    mean = sum(steady) / len(steady)
    assert 90 < mean < 100  # 1,000 agents, each 10.5 s
    assert max(in_second.values()) <= 1.5 * mean
