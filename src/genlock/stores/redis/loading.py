"""Loading records by their keys: half of the hot path, in one script."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

from genlock.errors import StoreCorrupt
from genlock.store import Key, Stored
from genlock.stores.redis.link import Argument, Run
from genlock.stores.redis.wire import Names, field_of, index_in, split_head
from genlock.stores.redis.writing import gone
from genlock.stores.talks import Talk

_stored = partial(tuple.__new__, Stored)  # half of what the class itself takes


def load(
    names: Names, birth: bytes, keys: Sequence[Key], where: str, *, with_index: bool = False
) -> Talk[tuple[dict[Key, Stored], int, int]]:
    """The records, the epoch and the server's time in microseconds, of one instant."""
    places: dict[tuple[str, str], list[Key]] = {}
    for key in keys:
        places.setdefault(key[:2], []).append(key)
    told: list[Argument] = []
    for mine in places.values():
        told.append(len(mine))
        told += [field_of(kind, id) for _, _, kind, id in mine]
    said: list[Any] = yield Run("load", [names.store, *(names.place(*place) for place in places)], told)
    epoch = epoch_in(said[0], birth, where)
    seconds, microseconds = said[1]
    found: dict[Key, Stored] = {}
    for at, mine in enumerate(places.values()):
        for key, head, body in zip(mine, said[2 + 2 * at], said[3 + 2 * at], strict=True):
            if head is not None:
                found[key] = _record(key, head, body, with_index)
    return found, epoch, int(seconds) * 1_000_000 + int(microseconds)


def epoch_in(store: list[Any], birth: bytes, where: str) -> int:
    """The epoch, if this is still the store that was opened."""
    if store[0] != birth:
        raise gone(where)
    return int(store[1])


def _record(key: Key, head: bytes, body: bytes | None, with_index: bool) -> Stored:
    version, digest, packed = split_head(head)
    if body is None:
        raise StoreCorrupt(f"{'/'.join(key[:2])} {key.kind} {key.id} has no body")
    return _stored((key, version, digest, body, None, None, index_in(packed) if with_index else None))
