"""Auditing: which places there are, and which items belong to none of them."""

from __future__ import annotations

from collections.abc import Iterator

from genlock.store import Audit
from genlock.stores.dynamodb import finding, keys
from genlock.stores.dynamodb.items import int_of
from genlock.stores.dynamodb.table import Table

_KINDS = {"head": "the head of a feed", "feed": "an event", "record": "a record", "history": "a history", "waits": "an entry of who waits"}


def audit(table: Table) -> Audit:
    """Looks at the keys of everything there is. A place at which nothing was ever written does not count."""
    listed = finding.places(table)
    heads = table.get_many([keys.head_at(*place) for place in listed])
    places = [place for place in listed if int_of(heads.get(keys.head_at(*place), {}), "h")]
    return Audit(places, sorted(set(_strays(table, set(listed)))))


def _strays(table: Table, places: set[tuple[str, str]]) -> Iterator[str]:
    for item in table.scan("#pk, #sk"):
        what, *names = keys.parted(item["pk"]["S"])
        if what in _KINDS and tuple(names[:2]) not in places:
            yield f"{_KINDS[what]} belongs to {'/'.join(names[:2])}, which is not listed"
        elif what not in _KINDS and what not in (keys.META.pk, keys.PLACES):
            yield f"the item {item['pk']['S']!r} {item['sk']['S']!r} is not Genlock's"
