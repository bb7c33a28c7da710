"""Auditing: which places there are, and which items belong to none of them.

The places are a list that is kept; for the rest every item of the table is looked at. Most who ask want the places only, so that is done
for whoever looks at the faults.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from typing import overload

from genlock.stores.dynamodb import finding, keys
from genlock.stores.dynamodb.items import int_of
from genlock.stores.dynamodb.table import Table

_KINDS = {"head": "the head of a feed", "feed": "an event", "record": "a record", "history": "a history", "waits": "an entry of who waits"}


class Faults(Sequence[str]):
    """Found when they are looked at for the first time."""

    def __init__(self, find: Callable[[], list[str]]) -> None:
        self._find = find

    @cached_property
    def _found(self) -> list[str]:
        return self._find()

    @overload
    def __getitem__(self, at: int) -> str: ...
    @overload
    def __getitem__(self, at: slice) -> Sequence[str]: ...
    def __getitem__(self, at: int | slice) -> str | Sequence[str]:
        return self._found[at]

    def __len__(self) -> int:
        return len(self._found)


def places_in(table: Table) -> list[tuple[str, str]]:
    """A place at which nothing was ever written does not count."""
    listed = finding.places(table)
    heads = table.get_many([keys.head_at(*place) for place in listed])
    return [place for place in listed if int_of(heads.get(keys.head_at(*place), {}), "h")]


def faults_of(table: Table) -> list[str]:
    """Looks at the keys of everything there is."""
    return sorted(set(_strays(table, set(finding.places(table)))))


def _strays(table: Table, places: set[tuple[str, str]]) -> Iterator[str]:
    for item in table.scan("#pk, #sk"):
        what, *names = keys.parted(item["pk"]["S"])
        if what in _KINDS and tuple(names[:2]) not in places:
            yield f"{_KINDS[what]} belongs to {'/'.join(names[:2])}, which is not listed"
        elif what not in _KINDS and what not in (keys.META.pk, keys.PLACES):
            yield f"the item {item['pk']['S']!r} {item['sk']['S']!r} is not Genlock's"
