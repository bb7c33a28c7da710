"""Answers as bytes: a long one in pieces has the bytes that it has as a whole."""

from __future__ import annotations

import weakref
from typing import Any

import msgspec
import pytest

from genlock.core.plan import Plan
from genlock.core.results import Feed, FeedEvent
from genlock.errors import TaskNotFound
from genlock.wire.answers import PIECE, encode_answer, encode_in_pieces, from_wire, to_wire


def _events(number: int) -> tuple[FeedEvent, ...]:
    return tuple(
        FeedEvent(at, f"c{at}", "task", f"t{at}", "TASK_ADDED", {"said": 'é"\n\0'})
        for at in range(number)
    )


class Two(msgspec.Struct, omit_defaults=True):
    """With two fields that may be long, and one that may be anything."""

    said: str
    many: list[int] = []
    none: int | None = None
    named: dict[str, Any] = {}


@pytest.mark.parametrize(
    "answer",
    [
        None,
        5,
        (),
        _events(0),
        _events(PIECE),
        _events(PIECE + 1),
        _events(3 * PIECE),
        Feed(_events(10), "cursor", False),
        Feed(_events(2 * PIECE + 7), "\0000\0", True),
        {f"k{at}": (at, None) for at in range(2 * PIECE + 1)},
        {"good": 1, "bad": TaskNotFound("there is none")},
        dict.fromkeys(map(str, range(PIECE + 1)), TaskNotFound("there is none")),
        Two("\0000\0"),
        Two('"\\u00000"', list(range(PIECE + 1)), None, {"0": "\0001\0"}),
        Two("\0001\0", list(range(5 * PIECE)), 1, {str(at): [at] for at in range(4 * PIECE)}),
        {"deep": list(range(3 * PIECE))},
    ],
)
def test_a_long_answer_in_pieces_has_the_bytes_that_it_has_as_a_whole(answer: Any) -> None:
    assert b"".join(encode_in_pieces(answer)) == encode_answer(answer)


def test_a_plan_in_pieces_has_the_bytes_that_it_has_as_a_whole() -> None:
    import genlock

    with genlock.connect("memory://") as fleet:
        fleet.add_tasks(tasks=[{"id": f"A-{at:04d}", "title": "x"} for at in range(PIECE + 200)])
        plan = fleet.get_plan()
    assert isinstance(plan, Plan)
    whole = encode_answer(plan)
    pieces = encode_in_pieces(from_wire(to_wire(plan)))
    assert b"".join(pieces) == whole
    assert max(map(len, pieces)) < len(whole)


def test_what_is_long_is_written_and_freed_a_piece_at_a_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Entry(msgspec.Struct, weakref=True, frozen=True):
        number: int

    alive: weakref.WeakSet[Entry] = weakref.WeakSet()
    seen: list[int] = []

    def made() -> Feed:
        entries = [Entry(at) for at in range(5 * PIECE)]
        for entry in entries:
            alive.add(entry)
        return Feed(tuple(entries), "c", False)  # type: ignore[arg-type]

    class Noting:
        def __init__(self, inner: Any) -> None:
            self._inner = inner

        def encode(self, value: Any) -> bytes:
            seen.append(len(alive))
            encoded: bytes = self._inner.encode(value)
            return encoded

    from genlock.wire import answers

    monkeypatch.setattr(answers, "_encoder", Noting(answers._encoder))
    held = [made()]
    pieces = encode_in_pieces(held.pop())
    assert max(map(len, pieces)) < 20 * PIECE
    assert seen == [5 * PIECE, 5 * PIECE, 4 * PIECE, 3 * PIECE, 2 * PIECE, PIECE]
