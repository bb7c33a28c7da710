"""Beginning an epoch: its number says in which second it was taken, and nobody uses it before that
is over."""

from __future__ import annotations

import time

import pytest

from genlock.stores.epoch_guard import EpochNumber

NOW = 1_795_032_000  # 444,902,400 / 16 seconds after 2026-01-01


class Time:
    """It passes when somebody waits, and when it is told to."""

    def __init__(self, passed: float) -> None:
        self.passed = passed
        self.pauses: list[float] = []

    def pause(self, seconds: float) -> None:
        self.passed += seconds
        self.pauses.append(seconds)

    def taken(self, digit: int) -> EpochNumber:
        return EpochNumber(
            NOW + self.passed, digit, monotonic=lambda: self.passed, pause=self.pause
        )


def test_a_number_is_used_when_its_second_is_over() -> None:
    time = Time(0.25)
    number = time.taken(3)
    assert number.above(0) == 444_902_403
    assert time.pauses == [pytest.approx(0.76)]
    assert number.above(0) == 444_902_403
    assert len(time.pauses) == 1


def test_nothing_is_waited_for_once_the_second_is_over() -> None:
    time = Time(0.25)
    number = time.taken(3)
    time.passed = 1.5
    assert number.above(444_902_500) == 444_902_501
    assert time.pauses == []


def test_two_rises_one_after_the_other_differ_whatever_their_digits() -> None:
    """Neither knows of the other: the second takes its number when the first one's second is
    over."""
    time = Time(0.1)
    for digit in range(16):
        for other in range(16):
            first = time.taken(digit).above(0)
            second = time.taken(other).above(0)
            assert first < second


def test_by_the_clock_of_the_machine_the_next_second_has_begun() -> None:
    taken = time.time()
    EpochNumber().wait()
    assert int(time.time()) > int(taken)
