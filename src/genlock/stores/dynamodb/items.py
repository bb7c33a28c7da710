"""Items: records and events as DynamoDB's attributes, and back. The names are short because every item pays for them.

| item | attributes |
|---|---|
| record | `v` version, `d` digest, `b` body, `st` state, `po` pool, `od` order, `du` due_at, `se` session, `pa` parent, `wa` waits_on; of the indexes: `rs`, `ds`, `sp`, `ss`, `pp` |
| event | `k` kind, `i` id, `v` version, `d` digest, `b` body; a tombstone has none of them |
| history | by the last version of a change: `n` how many events it had, `p` the position of the last |
| base | `b` base, `v` the first version that is kept |
| head | `h` last position given, `so` position up to which there are no holes, `pt` last purged position, `pu` number of purges |
| meta | `bi` birth, `e` epoch, `f` format |
"""  # noqa: E501 - a table

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache
from typing import Any

from genlock.store import Change, Index, Key, NewEvent, Recorded, Stored
from genlock.stores.dynamodb import keys
from genlock.stores.dynamodb.keys import At

Item = Mapping[str, Mapping[str, Any]]
"""An item as the driver gives and takes it: each attribute with its type."""

INDEX_FIELDS = "#pk, #sk, #v, #d, #st, #po, #od, #du, #se, #pa, #wa, #rs, #ds, #sp, #ss, #pp"
"""All of a record but its body."""


@cache
def names_in(*expressions: str) -> dict[str, str]:
    """`ExpressionAttributeNames` for these. All names are written #name: many of the short ones, too, are reserved words."""
    return {found: found[1:] for expression in expressions for found in re.findall(r"#\w+", expression)}


def text(value: str) -> dict[str, str]:
    return {"S": value}


def whole(value: int) -> dict[str, str]:
    return {"N": str(value)}


def binary(value: bytes) -> dict[str, bytes]:
    return {"B": value}


def key_item(at: At) -> dict[str, Any]:
    """The key alone."""
    return {"pk": text(at.pk), "sk": text(at.sk)}


def at_of(item: Item) -> At:
    """Where an item is."""
    return At(item["pk"]["S"], item["sk"]["S"])


def int_of(item: Item, name: str, default: int = 0) -> int:
    """A number in an item that need not have it."""
    return int(item[name]["N"]) if name in item else default


def _text_of(item: Item, name: str) -> str | None:
    return item[name]["S"] if name in item else None


# Records


def record_item(change: Change) -> dict[str, Any]:
    """A record as it is after the change."""
    key, index = change.key, change.index
    item = key_item(keys.record_at(key)) | {
        "v": whole(change.version), "d": binary(change.digest), "b": binary(change.body), "st": text(index.state),
    }  # fmt: skip
    if index.order is not None:
        item["od"] = text(index.order)
    if index.pool is not None:
        item |= {"po": text(index.pool), "rs": text(keys.ready_sort(index, key.id))}
    if index.due_at is not None:
        item |= {"du": whole(index.due_at), "ds": text(keys.due_sort(index.due_at, key.id))}
    if index.session is not None:
        session = keys.session_hash(key.tenant, key.kind, index.session)
        item |= {"se": text(index.session), "sp": text(session), "ss": text(keys.joined(key.project, key.id))}
    if index.parent is not None:
        item |= {"pa": text(index.parent), "pp": text(keys.parent_hash(key, index.parent))}
    if index.waits_on:
        item["wa"] = {"L": [text(name) for name in index.waits_on]}
    return item


def waits_in(item: Item) -> tuple[str, ...]:
    """What a record waits on."""
    return tuple([name["S"] for name in item["wa"]["L"]]) if "wa" in item else ()


def index_in(item: Item, waits_on: tuple[str, ...]) -> Index:
    """The index fields of a record."""
    return Index(
        state=item["st"]["S"],
        pool=_text_of(item, "po"),
        order=_text_of(item, "od"),
        due_at=int(item["du"]["N"]) if "du" in item else None,
        session=_text_of(item, "se"),
        parent=_text_of(item, "pa"),
        waits_on=waits_on,
    )


def stored_in(item: Item, key: Key, *, found: bool = False) -> Stored:
    """A record; with its pool and order if it was `found`."""
    pool, order = (_text_of(item, "po"), _text_of(item, "od")) if found else (None, None)
    return Stored(key, int(item["v"]["N"]), item["d"]["B"], item["b"]["B"], pool, order)


# Events


def event_item(key: Key, event: NewEvent, position: int) -> dict[str, Any]:
    """An event in its feed."""
    at = At(keys.feed_of(key.tenant, key.project), keys.number(position))
    return key_item(at) | {
        "k": text(key.kind), "i": text(key.id), "v": whole(event.version), "d": binary(event.digest), "b": binary(event.body),
    }  # fmt: skip


def tombstone(feed: str, position: int) -> dict[str, Any]:
    """A position at which there is no event, and never will be."""
    return key_item(At(feed, keys.number(position)))


def position_of(item: Item) -> int:
    """The position of an event or tombstone."""
    return int(item["sk"]["S"])


def is_event(item: Item) -> bool:
    """Is it an event, and no tombstone?"""
    return "v" in item


def recorded_in(item: Item, tenant: str, project: str) -> Recorded:
    """An event as it is kept."""
    key = Key(tenant, project, item["k"]["S"], item["i"]["S"])
    return Recorded(key, int(item["v"]["N"]), item["d"]["B"], item["b"]["B"], position_of(item))
