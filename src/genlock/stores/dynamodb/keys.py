"""Where in the table everything is: the keys of its items, and the sort keys of its indexes.

Names are joined by a tab, which sorts before every sign that a name can have; in case one has a tab in it, it is written in another
way. So no two lists of names are joined alike, and joined names sort as the lists do.
"""

from __future__ import annotations

import hashlib
from typing import NamedTuple

from genlock.errors import BadArgument, OverLimit
from genlock.store import Index, Key

HASH_BYTES = 2048
SORT_BYTES = 1024
"""What DynamoDB takes as the two parts of a key."""

POOL_BYTES = 400
"""Of a pool's name, in the index; order and id have to find room behind it."""

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
    """A range of sort keys; both ends belong to it."""

    low: str
    high: str


META = At("meta", "meta")
PLACES = "places"


def joined(*names: str) -> str:
    """The names as one text."""
    return check_text(PART.join([name.translate(_ESCAPED) if PART in name or _ESCAPE in name else name for name in names]))


def parted(text: str) -> list[str]:
    """The names again."""
    return [name.replace(_ESCAPE + "1", PART).replace(_ESCAPE + "2", _ESCAPE) for name in text.split(PART)]


def beginning_with(*names: str) -> Span:
    """All joined names that begin with these."""
    start = joined(*names)
    return Span(start + PART, start + _ESCAPE)


def plain(name: str) -> str:
    """A name as a sort key, which may not be empty."""
    return check_text(_PLAIN + name)


def name_of(sort: str) -> str:
    """The name again."""
    return sort[1:]


EVERY_NAME = Span(_PLAIN, _PAST_PLAIN)


def number(value: int) -> str:
    """A position or version, so that it sorts."""
    return f"{value:0{NUMBER_DIGITS}d}"


def numbers(first: int, last: int | None = None) -> Span:
    """All from the first to the last, or from the first on."""
    return Span(number(first), number(last) if last is not None else "9" * NUMBER_DIGITS)


# Items


def place_at(tenant: str, project: str) -> At:
    """That there is such a project."""
    return At(PLACES, joined(tenant, project))


def head_at(tenant: str, project: str) -> At:
    """The head of a feed. Apart from the feed: everyone who writes writes here."""
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
    """The collection that says at which positions a record's events are, by version; and its base."""
    return joined("history", *key)


def base_at(key: Key) -> At:
    """The base of a record. It sorts behind every version."""
    return At(history_of(key), "base")


def waits_of(tenant: str, project: str, kind: str, dependency: str) -> str:
    """The collection of those who wait on one, by id."""
    return joined("waits", tenant, project, kind, dependency)


def wait_at(key: Key, dependency: str) -> At:
    """That a record waits on another."""
    return At(waits_of(key.tenant, key.project, key.kind, dependency), plain(key.id))


# Indexes


def pool_name(pool: str) -> str:
    """A pool as it stands in the index. It may be as long as one likes, and a sort key may not."""
    return pool if len(pool) * 4 <= POOL_BYTES else "#" + hashlib.sha256(check_text(pool).encode()).hexdigest()


def ready_sort(index: Index, id: str) -> str:
    """By pool, order and id; whoever has no order comes first."""
    assert index.pool is not None
    return joined(pool_name(index.pool), "" if index.order is None else _PLAIN + index.order, id)


def due_sort(due_at: int, id: str) -> str:
    """By instant and id."""
    return f"{due_at + _DUE_ZERO:0{_DUE_DIGITS}d}{_PLAIN}{id}"


def due_until(due_at: int) -> Span:
    """All up to this instant."""
    return Span("0", f"{due_at + _DUE_ZERO:0{_DUE_DIGITS}d}{_PAST_PLAIN}")


def session_hash(tenant: str, kind: str, session: str) -> str:
    """The records of one kind that a session has."""
    return joined(tenant, kind, session)


def parent_hash(key: Key, parent: str) -> str:
    """The children of one record."""
    return joined(key.tenant, key.project, key.kind, parent)


def check_sizes(key: Key, *, hashes: tuple[str, ...], sorts: tuple[str, ...]) -> None:
    """`OverLimit` if names are too long together."""
    for texts, most in ((hashes, HASH_BYTES), (sorts, SORT_BYTES)):
        for text in texts:
            if len(text) * 4 > most and len(text.encode()) > most:
                raise OverLimit(f"the names of {'/'.join(key)[:200]} have {len(text.encode())} bytes together; this store takes {most}")


def check_text(text: str) -> str:
    """The same; `BadArgument` if it cannot be stored."""
    try:
        _ = text.isascii() or text.encode()
    except UnicodeEncodeError as error:
        raise BadArgument(f"there is text that cannot be stored ({error})") from error
    return text
