"""The back-off that every retry of Genlock uses."""

from __future__ import annotations

import pytest

from genlock.retry import Backoff, Retry

STEADY = Backoff(first=0.1, longest=0.5, jitter=0)


@pytest.mark.parametrize(
    ("failures", "seconds"), [(1, 0.1), (2, 0.2), (3, 0.4), (4, 0.5), (5, 0.5), (100_000, 0.5)]
)
def test_backoff_doubles_until_the_longest_pause(failures: int, seconds: float) -> None:
    assert STEADY.pause(failures) == pytest.approx(seconds)


def test_backoff_grows_by_another_factor() -> None:
    assert Backoff(first=0.1, longest=9, factor=3, jitter=0).pause(3) == pytest.approx(0.9)


@pytest.mark.parametrize(("jitter", "least", "lowest"), [(1.0, 0.0, 0.05), (0.5, 0.2, 0.225)])
def test_backoff_jitter_is_the_random_share_of_a_pause(
    jitter: float, least: float, lowest: float
) -> None:
    backoff = Backoff(first=0.4, longest=0.4, jitter=jitter)
    drawn = [backoff.pause(1) for _ in range(1000)]
    assert least <= min(drawn) < lowest
    assert 0.375 < max(drawn) <= 0.4


def test_retry_pauses_longer_after_each_failure_and_gives_up_at_the_deadline() -> None:
    retry = Retry(STEADY, until=10.0)
    assert [retry.failed(now) for now in (9.0, 9.1, 9.3)] == pytest.approx([0.1, 0.2, 0.4])
    assert retry.failed(10.0) is None
    assert retry.failed(11.0) is None


def test_retry_never_pauses_beyond_the_deadline() -> None:
    assert Retry(STEADY, until=10.0).failed(9.96) == pytest.approx(0.04)


def test_retry_without_a_deadline_goes_on() -> None:
    retry = Retry(STEADY)
    assert [retry.failed(1e9) for _ in range(6)][-1] == 0.5
