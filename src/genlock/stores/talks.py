"""Talks: what a store asks its server and what it makes of the answers, as generators, so that several can share their trips.

def find(query) -> Talk[Page]:
    rows = yield statement
    return page
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from typing import Any, TypeAlias, TypeVar

from genlock.stores.sending import Course

R = TypeVar("R")

Talk: TypeAlias = Generator[Any, Any, R]
"""Yields questions, is sent their answers, and returns what it wanted to know. What these are is between it and the store's link."""


def hold(talk: Talk[R], exchange: Callable[[Sequence[Any]], Sequence[Any]]) -> R:
    """Carries one talk to its end."""
    result: R = hold_all([talk], exchange)[0]
    return result


def held(talk: Talk[R], exchanged: Callable[[Sequence[Any]], Course[Sequence[Any]]]) -> Course[R]:
    """The same in steps: once its question has been asked, one may do something else."""
    answer: Any = None
    while True:
        try:
            question = talk.send(answer)
        except StopIteration as end:
            result: R = end.value
            return result
        (answer,) = yield from exchanged([question])


def hold_all(talks: Sequence[Talk[Any]], exchange: Callable[[Sequence[Any]], Sequence[Any]]) -> list[Any]:
    """Carries all of them to their ends. Each trip, which `exchange` makes, has the next question of every one that goes on."""
    results: list[Any] = [None] * len(talks)
    answers: dict[int, Any] = dict.fromkeys(range(len(talks)))
    while answers:
        questions: dict[int, Any] = {}
        for at, answer in answers.items():
            try:
                questions[at] = talks[at].send(answer)
            except StopIteration as end:
                results[at] = end.value
        answers = dict(zip(questions, exchange(list(questions.values())), strict=True)) if questions else {}
    return results
