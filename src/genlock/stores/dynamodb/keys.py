"""Keys and items: how the table stores everything, and records and events as attributes.

Names are joined by a tab, which sorts before every character of a usual name; a tab inside a name
is escaped. So different lists of names are joined differently, and joined names sort as the lists
do. Attributes have short names because every item pays for them.

| item | attributes |
|---|---|
| record | `v` version, `d` digest, `b` body, `st` state, `po` pool, `od` order, `du` due_at |
| | `se` session, `pa` parent, `wa` waits_on; of the indexes: `rs`, `ds`, `sp`, `ss`, `pp` |
| event | `k` kind, `i` id, `v` version, `d` digest, `b` body; a tombstone has none of them |
| history | by the last version of a change: `n` number of events, `p` position of the last |
| base | `b` base, `v` the first version that is kept |
| head | `h` last position given, `so` position up to which there are no gaps |
| | `pt` last purged position, `pu` number of purges |
| meta | `bi` birth, `e` epoch, `f` format |
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from functools import cache
from typing import Any, NamedTuple

from genlock.errors import BadArgument, OverLimit
from genlock.store import Change, Index, Key, NewEvent, RecordedEvent, Stored

HASH_BYTES = 2048
SORT_BYTES = 1024
"""The largest hash and sort key that DynamoDB takes."""

POOL_BYTES = 400
"""The longest name of a pool in the index: order and id need room behind it."""

PART = "\t"
_ESCAPE = "\n"
_ESCAPED = str.maketrans({PART: _ESCAPE + "1", _ESCAPE: _ESCAPE + "2"})

NUMBER_DIGITS = 16
_DUE_DIGITS = 20
_DUE_ZERO = 2**63

_PLAIN = "="
_PAST_PLAIN = ">"


class At(NamedTuple):
    """The key of an item."""

    pk: str
    sk: str


class Span(NamedTuple):
    """A range of sort keys, including both ends."""

    low: str
    high: str


META = At("meta", "meta")
PLACES = "places"


def joined(*names: str) -> str:
    """Joins the names to one text."""
    return check_text(
        PART.join(
            [
                name.translate(_ESCAPED) if PART in name or _ESCAPE in name else name
                for name in names
            ]
        )
    )


def parted(text: str) -> list[str]:
    """Splits a joined text into its names."""
    return [
        name.replace(_ESCAPE + "1", PART).replace(_ESCAPE + "2", _ESCAPE)
        for name in text.split(PART)
    ]


def beginning_with(*names: str) -> Span:
    """All joined names that begin with these."""
    start = joined(*names)
    return Span(start + PART, start + _ESCAPE)


def plain(name: str) -> str:
    """A name as a sort key, which may not be empty."""
    return check_text(_PLAIN + name)


def name_of(sort: str) -> str:
    """Returns the name of a sort key."""
    return sort[1:]


EVERY_NAME = Span(_PLAIN, _PAST_PLAIN)


def number(value: int) -> str:
    """Formats a position or version so that it sorts."""
    return f"{value:0{NUMBER_DIGITS}d}"


def numbers(first: int, last: int | None = None) -> Span:
    """Returns the range from the first to the last, or from the first on."""
    return Span(number(first), number(last) if last is not None else "9" * NUMBER_DIGITS)


# Items


def place_at(tenant: str, project: str) -> At:
    """The item that lists a project."""
    return At(PLACES, joined(tenant, project))


def head_at(tenant: str, project: str) -> At:
    """The head of a feed, apart from the feed, because every commit writes it."""
    return At(joined("head", tenant, project), "head")


def feed_of(tenant: str, project: str) -> str:
    """The collection of a project's events, by position."""
    return joined("feed", tenant, project)


def records_of(tenant: str, project: str, kind: str) -> str:
    """The collection of records of one kind, by id."""
    return joined("record", tenant, project, kind)


def record_at(key: Key) -> At:
    """A record."""
    return At(records_of(key.tenant, key.project, key.kind), plain(key.id))


def history_of(key: Key) -> str:
    """The collection with the positions of a record's events, by version, and with its base."""
    return joined("history", *key)


def base_at(key: Key) -> At:
    """The base of a record. It sorts behind every version."""
    return At(history_of(key), "base")


def waits_of(tenant: str, project: str, kind: str, dependency: str) -> str:
    """The collection of the records that wait on one, by id."""
    return joined("waits", tenant, project, kind, dependency)


def wait_at(key: Key, dependency: str) -> At:
    """The entry that lists a record under a dependency."""
    return At(waits_of(key.tenant, key.project, key.kind, dependency), plain(key.id))


# Indexes


def pool_name(pool: str) -> str:
    """A pool's name in the index: a digest if it is too long for a sort key."""
    return (
        pool
        if len(pool) * 4 <= POOL_BYTES
        else "#" + hashlib.sha256(check_text(pool).encode()).hexdigest()
    )


def ready_sort(index: Index, id: str) -> str:
    """Returns the sort key by pool, order and id. Records without an order come first."""
    assert index.pool is not None
    return joined(pool_name(index.pool), "" if index.order is None else _PLAIN + index.order, id)


def due_sort(due_at: int, id: str) -> str:
    """Returns the sort key by instant and id."""
    return f"{due_at + _DUE_ZERO:0{_DUE_DIGITS}d}{_PLAIN}{id}"


def due_until(due_at: int) -> Span:
    """Returns the range up to this instant."""
    return Span("0", f"{due_at + _DUE_ZERO:0{_DUE_DIGITS}d}{_PAST_PLAIN}")


def session_hash(tenant: str, kind: str, session: str) -> str:
    """The records of one kind that a session has."""
    return joined(tenant, kind, session)


def parent_hash(key: Key, parent: str) -> str:
    """The children of one record."""
    return joined(key.tenant, key.project, key.kind, parent)


def check_sizes(key: Key, *, hashes: tuple[str, ...], sorts: tuple[str, ...]) -> None:
    """Raises `OverLimit` if names are too long together."""
    for texts, most in ((hashes, HASH_BYTES), (sorts, SORT_BYTES)):
        for text in texts:
            if len(text) * 4 > most and len(text.encode()) > most:
                raise OverLimit(
                    f"the names of {'/'.join(key)[:200]} have {len(text.encode())} bytes together; "
                    f"this store takes {most}"
                )


def check_text(text: str) -> str:
    """Returns the text. Raises `BadArgument` if it cannot be stored."""
    try:
        _ = text.isascii() or text.encode()
    except UnicodeEncodeError as error:
        raise BadArgument(f"there is text that cannot be stored ({error})") from error
    return text


Item = Mapping[str, Mapping[str, Any]]
"""An item in the driver's form: each attribute with its type."""

INDEX_FIELDS = "#pk, #sk, #v, #d, #st, #po, #od, #du, #se, #pa, #wa, #rs, #ds, #sp, #ss, #pp"
"""All attributes of a record except its body."""


@cache
def names_in(*expressions: str) -> dict[str, str]:
    """Returns `ExpressionAttributeNames` for these. All names are written #name, because many short
    ones are reserved words."""
    return {
        found: found[1:] for expression in expressions for found in re.findall(r"#\w+", expression)
    }


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
    """Returns the key of an item."""
    return At(item["pk"]["S"], item["sk"]["S"])


def int_of(item: Item, name: str, default: int = 0) -> int:
    """A number in an item, or the default."""
    return int(item[name]["N"]) if name in item else default


def _text_of(item: Item, name: str) -> str | None:
    return item[name]["S"] if name in item else None


# Records


def record_item(change: Change) -> dict[str, Any]:
    """Returns the item of a record after the change."""
    key, index = change.key, change.index
    item = key_item(record_at(key)) | {
        "v": whole(change.version), "d": binary(change.digest), "b": binary(change.body),
        "st": text(index.state),
    }  # fmt: skip
    if index.order is not None:
        item["od"] = text(index.order)
    if index.pool is not None:
        item |= {"po": text(index.pool), "rs": text(ready_sort(index, key.id))}
    if index.due_at is not None:
        item |= {"du": whole(index.due_at), "ds": text(due_sort(index.due_at, key.id))}
    if index.session is not None:
        session = session_hash(key.tenant, key.kind, index.session)
        item |= {
            "se": text(index.session),
            "sp": text(session),
            "ss": text(joined(key.project, key.id)),
        }
    if index.parent is not None:
        item |= {"pa": text(index.parent), "pp": text(parent_hash(key, index.parent))}
    if index.waits_on:
        item["wa"] = {"L": [text(name) for name in index.waits_on]}
    return item


def waits_in(item: Item) -> tuple[str, ...]:
    """The dependencies of a record."""
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
    at = At(feed_of(key.tenant, key.project), number(position))
    return key_item(at) | {
        "k": text(key.kind), "i": text(key.id), "v": whole(event.version),
        "d": binary(event.digest), "b": binary(event.body),
    }  # fmt: skip


def tombstone(feed: str, position: int) -> dict[str, Any]:
    """A position without an event, now and for ever."""
    return key_item(At(feed, number(position)))


def position_of(item: Item) -> int:
    """The position of an event or tombstone."""
    return int(item["sk"]["S"])


def is_event(item: Item) -> bool:
    """Is it an event rather than a tombstone?"""
    return "v" in item


def recorded_in(item: Item, tenant: str, project: str) -> RecordedEvent:
    """Decodes an event from its item."""
    key = Key(tenant, project, item["k"]["S"], item["i"]["S"])
    return RecordedEvent(
        key, int(item["v"]["N"]), item["d"]["B"], item["b"]["B"], position_of(item)
    )
