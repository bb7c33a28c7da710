"""Loading records by their keys: half of the hot path, in one round trip."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import msgspec

from genlock.errors import StoreCorrupt
from genlock.store import Index, Key, Stored
from genlock.stores.mysql.link import Answer, Link, Row
from genlock.stores.mysql.queries import Queries
from genlock.stores.talks import Talk
from genlock.typed_json import convert, decoder

_decode = decoder(tuple[str, ...]).decode
_stored = partial(tuple.__new__, Stored)  # half of what the class itself takes

AT_ONCE = 64
"""Records that are looked at in one packet."""

Shelf = tuple[str, str, str]


def load(queries: Queries, keys: Sequence[Key]) -> Talk[tuple[dict[Key, Stored], int, int]]:
    """The records, the epoch and the server's time in microseconds, of one instant."""
    shelves = list(shelves_of(keys).items())
    parts = [queries["load"].filled()]
    for at, ((tenant, project, kind), names) in enumerate(shelves, 1):
        parts.append(queries["load_shelf"].filled(shelf=at, tenant=tenant, project=project, kind=kind, names=tuple(names)))
    answer: Answer = yield b"\nUNION ALL\n".join(parts)
    (_, epoch, now, *_), *rows = answer.rows or ((0, None, None),)
    if epoch is None:
        raise StoreCorrupt("the row that says of which birth and epoch the store is, is missing")
    found: dict[Key, Stored] = {}
    for at, name, version, digest, body in rows:
        _, names = shelves[at - 1]
        key = names[name.decode()]
        found[key] = _stored((key, int(version), digest, body, None, None, None))
    # In the order in which they were asked for, as every store has them.
    return {key: found[key] for key in keys if key in found}, int(epoch), int(now)


def shelves_of(keys: Sequence[Key]) -> dict[Shelf, dict[str, Key]]:
    """The keys by tenant, project and kind, and on each shelf by name."""
    shelves: dict[Shelf, dict[str, Key]] = {}
    for key in keys:
        shelves.setdefault(key[:3], {})[key[3]] = key
    return shelves


def load_with_index(link: Link, queries: Queries, keys: Sequence[Key]) -> dict[Key, Stored]:
    """For checks: each by statements of its own, so that what is damaged can be named; many of them in a packet."""
    found = {}
    for start in range(0, len(keys), AT_ONCE):
        some = keys[start : start + AT_ONCE]
        parts = []
        for tenant, project, kind, name in some:
            parts.append(queries["load_index"].filled(tenant=tenant, project=project, kind=kind, name=name))
            parts.append(queries["load_waits"].filled(tenant=tenant, project=project, kind=kind, name=name))
        answers = link.run(b";\n".join(parts))
        for key, records, waits in zip(some, answers[::2], answers[1::2], strict=True):
            for row in records.rows:
                found[key] = _with_index(key, row, waits.rows)
    return found


def _with_index(key: Key, row: Row, entries: Sequence[Row]) -> Stored:
    version, digest, body, *fields = row
    try:
        state, pool, order, due_at, session, parent, listed = convert(_texts(fields), _Fields)
        # Of what the record waits on only that which can be found by: both copies must agree for it to be seen.
        there = {dependency.decode() for (dependency,) in entries}
        waits = tuple([each for each in _decode(listed or "[]") if each in there])
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise StoreCorrupt(f"{'/'.join(key[:2])} {key.kind} {key.id} has a field that cannot be read ({error})") from error
    return Stored(key, version, digest, body, index=Index(state, pool, order, due_at, session, parent, waits))


def _texts(fields: list[object]) -> tuple[object, ...]:
    return tuple([field.decode() if isinstance(field, bytes) else field for field in fields])


_Fields = tuple[str, str | None, str | None, int | None, str | None, str | None, str | None]
