"""A sorted list that stays cheap when it is long: pieces of a few hundred, so that nothing is moved far."""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterator
from typing import Any

PIECE = 512

Item = tuple[Any, ...]


class Ordered:
    """Distinct items in ascending order."""

    def __init__(self) -> None:
        self._pieces: list[list[Item]] = []
        self._lasts: list[Item] = []

    def __bool__(self) -> bool:
        return bool(self._pieces)

    def add(self, item: Item) -> None:
        """Puts it in its place."""
        if not self._pieces:
            self._pieces.append([])
            self._lasts.append(item)
        at = min(bisect_left(self._lasts, item), len(self._pieces) - 1)
        piece = self._pieces[at]
        insort(piece, item)
        if len(piece) > 2 * PIECE:
            self._pieces[at : at + 1] = [piece[:PIECE], piece[PIECE:]]
            self._lasts[at : at + 1] = [piece[PIECE - 1], piece[-1]]
        else:
            self._lasts[at] = piece[-1]

    def remove(self, item: Item) -> None:
        """Takes it out; it must be there."""
        at = bisect_left(self._lasts, item)
        piece = self._pieces[at]
        del piece[bisect_left(piece, item)]
        if piece:
            self._lasts[at] = piece[-1]
        else:
            del self._pieces[at], self._lasts[at]

    def after(self, item: Item) -> Iterator[Item]:
        """All that are greater. The beginning of an item is less than the item, so () is before all of them."""
        at = bisect_right(self._lasts, item)
        if at == len(self._pieces):
            return
        piece = self._pieces[at]
        yield from piece[bisect_right(piece, item) :]
        for piece in self._pieces[at + 1 :]:
            yield from piece
