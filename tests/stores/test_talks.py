"""Talks share their trips."""

from __future__ import annotations

from collections.abc import Sequence

from genlock.stores.talks import Talk, hold, hold_all


class Server:
    """Answers every question with itself, twice; its trips are noted."""

    def __init__(self) -> None:
        self.trips: list[list[str]] = []

    def __call__(self, questions: Sequence[str]) -> list[str]:
        self.trips.append(list(questions))
        return [question * 2 for question in questions]


def asking(*questions: str) -> Talk[list[str]]:
    answers: list[str] = []
    for question in questions:
        answers += [(yield question)]
    return answers


def test_each_trip_has_the_next_question_of_every_talk_that_goes_on() -> None:
    server = Server()
    assert hold_all([asking("a", "b"), asking("c"), asking(), asking("d", "e", "f")], server) == [
        ["aa", "bb"],
        ["cc"],
        [],
        ["dd", "ee", "ff"],
    ]
    assert server.trips == [["a", "c", "d"], ["b", "e"], ["f"]]


def test_one_talk_is_held_to_its_end() -> None:
    server = Server()
    assert hold(asking("a", "b"), server) == ["aa", "bb"]
    assert server.trips == [["a"], ["b"]]


def test_who_asks_nothing_makes_no_trip() -> None:
    server = Server()
    assert hold(asking(), server) == []
    assert not server.trips
