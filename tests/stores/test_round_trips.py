"""Exchanges with a server share round trips."""

from __future__ import annotations

from collections.abc import Sequence

from genlock.stores.round_trips import Exchange, complete, complete_all


class Server:
    """Answers every request with itself, twice; its trips are noted."""

    def __init__(self) -> None:
        self.trips: list[list[str]] = []

    def __call__(self, requests: Sequence[str]) -> list[str]:
        self.trips.append(list(requests))
        return [request * 2 for request in requests]


def asking(*requests: str) -> Exchange[list[str]]:
    answers: list[str] = []
    for request in requests:
        answers += [(yield request)]
    return answers


def test_each_round_trip_has_the_next_request_of_every_exchange() -> None:
    server = Server()
    assert complete_all(
        [asking("a", "b"), asking("c"), asking(), asking("d", "e", "f")], server
    ) == [
        ["aa", "bb"],
        ["cc"],
        [],
        ["dd", "ee", "ff"],
    ]
    assert server.trips == [["a", "c", "d"], ["b", "e"], ["f"]]


def test_one_exchange_is_completed() -> None:
    server = Server()
    assert complete(asking("a", "b"), server) == ["aa", "bb"]
    assert server.trips == [["a"], ["b"]]


def test_an_exchange_without_requests_makes_no_round_trip() -> None:
    server = Server()
    assert complete(asking(), server) == []
    assert not server.trips
