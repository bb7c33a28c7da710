"""The clock of DynamoDB, from the dates of its answers."""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from genlock.stores.dynamodb.connection import ServerClock

START = datetime(2031, 5, 6, 7, 8, 9, tzinfo=UTC)


class Exchange:
    """A server whose clock is `ahead` of the monotonic time of this host, and answers of it."""

    def __init__(self, ahead: float) -> None:
        self.ahead, self.clock, self.began = ahead, ServerClock(), time.monotonic()

    def answer(self, after: float, *, takes: float = 0.0, stamped: float = 0.5) -> None:
        """An answer so many seconds later, stamped somewhere on its way."""
        asked = self.began + after
        instant = START + timedelta(seconds=self.ahead + after + takes * stamped)
        self.clock.observe(format_datetime(instant, usegmt=True), asked, asked + takes)

    @property
    def error(self) -> float:
        """By how much the clock is ahead of the server's, in seconds."""
        return (
            (self.clock.now() - START).total_seconds()
            - self.ahead
            - (time.monotonic() - self.began)
        )


@given(
    ahead=st.floats(0, 10),
    answers=st.lists(
        st.tuples(st.floats(0, 20), st.floats(0, 0.5), st.floats(0, 1)), min_size=1, max_size=40
    ).map(sorted),
)
def test_the_clock_is_never_ahead_of_the_servers_and_less_than_two_seconds_behind(
    ahead: float, answers: list[tuple[float, float, float]]
) -> None:
    exchange = Exchange(ahead)
    for after, takes, stamped in answers:
        exchange.answer(after, takes=takes, stamped=stamped)
    assert -2.0 < exchange.error < 0.05


def test_many_answers_tell_the_time_to_some_milliseconds() -> None:
    exchange = Exchange(0.37)
    for number in range(500):
        exchange.answer(number * 0.0137, takes=0.004)
    assert abs(exchange.error) < 0.03


@pytest.mark.parametrize("step", [-86400.0, -3.0, 3.0, 86400.0])
def test_a_server_whose_clock_is_set_is_followed(step: float) -> None:
    exchange = Exchange(100_000.0)
    exchange.answer(0.0)
    exchange.ahead += step
    exchange.answer(0.1)
    assert -1.2 < exchange.error < 0.05


def test_until_a_server_has_spoken_the_hosts_clock_serves() -> None:
    clock = ServerClock()
    clock.observe("no date", 0.0, 0.0)
    assert abs((clock.now() - datetime.now(UTC)).total_seconds()) < 5
