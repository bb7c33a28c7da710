"""Loading records by their keys: half of the hot path, in one round trip."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import msgspec
from psycopg.pq.abc import PGresult

from genlock.errors import StoreCorrupt
from genlock.store import Index, Key, Stored
from genlock.stores.postgres.link import Link
from genlock.stores.postgres.wire import decode_int, ints, texts
from genlock.stores.talks import Talk
from genlock.typed_json import convert, decoder

_decode = decoder(tuple[str, ...]).decode
_stored = partial(tuple.__new__, Stored)  # half of what the class itself takes


def load(statement: str, keys: Sequence[Key]) -> Talk[tuple[dict[Key, Stored], int, int]]:
    """The records, the epoch and the server's time in microseconds, of one instant."""
    shelves: dict[tuple[str, ...], int] = {}
    on_shelves = [shelves.setdefault(key[:3], len(shelves) + 1) for key in keys]
    columns = [texts([shelf[field] for shelf in shelves]) for field in range(3)]
    result: PGresult = yield statement, [*columns, ints(on_shelves), texts([key[3] for key in keys])]
    value = result.get_value
    found: dict[Key, Stored] = {}
    epoch = now = None
    for row in range(result.ntuples):
        at, version = decode_int(value(row, 0) or b""), decode_int(value(row, 1) or b"")
        if at > 0:
            key = keys[at - 1]
            found[key] = _stored((key, version, value(row, 2), value(row, 3), None, None, None))
        elif at == 0:
            epoch = version
        else:
            now = version
    if epoch is None or now is None:
        raise StoreCorrupt("the row that says of which birth and epoch the store is, is missing")
    return found, epoch, now


def load_with_index(link: Link, statement: str, keys: Sequence[Key]) -> dict[Key, Stored]:
    """For checks: one by one, so that what is damaged can be named."""
    found = {}
    for key in keys:
        for version, digest, body, state, pool, order, due_at, session, parent, waits in link.rows(statement, *key):
            try:
                index = convert((state, pool, order, due_at, session, parent, _decode(str(waits))), _Fields)
            except msgspec.MsgspecError as error:
                raise StoreCorrupt(f"{'/'.join(key[:2])} {key.kind} {key.id} has a field that cannot be read ({error})") from error
            found[key] = Stored(key, version, digest, body, index=Index(*index))  # type: ignore[arg-type]
    return found


_Fields = tuple[str, str | None, str | None, int | None, str | None, str | None, tuple[str, ...]]
