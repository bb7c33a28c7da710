"""Everything in a store as JSON lines, in an order that depends on the content alone.

    {"type": "store", "format": 1, "genlock": "0.1.0", "epoch": 0}
    {"type": "record", "tenant", "project", "kind", "id", "version", "digest", "record": {…}}
    {"type": "event", "tenant", "project", "kind", "id", "position", "version", "digest",
        "event": {…}}
    {"type": "payload", "tenant", "project", "task", "digest", "data": …}
    {"type": "end", "records": 12, "events": 40, "payloads": 0}

The store comes first. Then, project by project, its records by kind and id, its events by position,
and results that are too large for a record. The end comes last: an export without it is incomplete.

The digest of an event is the stored one, and the digest of a record is that of its last event.
Times are ISO 8601 in UTC.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import msgspec
from msgspec import Raw

from genlock.core.keys import KINDS, Key, payload_task
from genlock.engine.scan import pages_of, payloads_of, read_whole, records_of
from genlock.errors import ResultNotFound, StoreCorrupt
from genlock.store import Store
from genlock.typed_json import decode

FORMAT = 1

_encode = msgspec.json.Encoder().encode


def export(
    store: Store, version: str, progress: Callable[[int], None] | None = None
) -> Iterator[bytes]:
    """Yields the lines. They are a snapshot of one instant if the store is: see
    `SQLiteStore(instant=True)`."""
    yield _encode(
        {"type": "store", "format": FORMAT, "genlock": version, "epoch": store.load([]).epoch}
    )
    counts = {"records": 0, "events": 0, "payloads": 0}
    places = sorted(store.audit().places)
    payloads = _by_place(store)
    for place in places:
        for name, lines in (("records", _records), ("events", _events)):
            for line in lines(store, place):
                counts[name] += 1
                yield line
                if progress is not None:
                    progress(1)
        for key, digest in payloads.get(place, ()):
            counts["payloads"] += 1
            yield _payload(store, key, digest)
    yield _encode({"type": "end", **counts})


def _records(store: Store, place: tuple[str, str]) -> Iterator[bytes]:
    for kind in KINDS:
        for stored in records_of(store, *place, kind):
            yield _line(
                "record",
                stored.key,
                version=stored.version,
                digest=stored.digest.hex(),
                record=_body(stored.key, stored.body),
            )


def _events(store: Store, place: tuple[str, str]) -> Iterator[bytes]:
    for page in pages_of(store, place):
        for recorded in page.events:
            key, body = recorded.key, _body(recorded.key, recorded.body)
            event = _event(key, body)
            yield _line(
                "event",
                key,
                position=recorded.position,
                version=recorded.version,
                digest=recorded.digest.hex(),
                event=event,
            )


class _Envelope(msgspec.Struct):
    """An event whose bytes are passed on unchanged."""

    event: Raw


def _event(key: Key, body: Raw) -> Raw:
    try:
        return decode(bytes(body), _Envelope).event
    except msgspec.MsgspecError as error:
        raise _damaged(key, bytes(body)) from error


def _by_place(store: Store) -> dict[tuple[str, str], list[tuple[Key, str]]]:
    """Returns each result once, by its task and digest, wherever its bytes are stored."""
    found: dict[tuple[str, str], dict[tuple[str, str], Key]] = {}
    for key, digest in payloads_of(store):
        found.setdefault(key.place, {}).setdefault((payload_task(key), digest), key)
    return {
        place: [(keys[each], each[1]) for each in sorted(keys)] for place, keys in found.items()
    }


def _payload(store: Store, key: Key, digest: str) -> bytes:
    """Returns one result as JSON; null if its bytes are missing or damaged, so that the rest can be
    exported."""
    try:
        data = Raw(read_whole(store.payloads(), key, digest))
    except ResultNotFound:
        data = Raw(b"null")
    return _encode(
        {
            "type": "payload",
            "tenant": key.tenant,
            "project": key.project,
            "task": payload_task(key),
            "digest": digest,
            "data": data,
        }
    )


def _body(key: Key, body: bytes) -> Raw:
    """Returns the JSON that follows the digits of the format. It is passed on unchanged, so this
    checks that it can be read."""
    start = body.find(b"{")
    try:
        str(body, "utf-8")
        if start < 1:
            raise _damaged(key, body)
        return decode(body[start:], Raw).copy()
    except (UnicodeDecodeError, msgspec.MsgspecError) as error:
        raise _damaged(key, body) from error


def _damaged(key: Key, body: bytes) -> StoreCorrupt:
    return StoreCorrupt(
        f"{key.tenant}/{key.project} {key.kind} {key.id} is no JSON: {body[:20]!r}…; type: genlock "
        "doctor"
    )


def _line(what: str, key: Key, **fields: Any) -> bytes:
    return _encode(
        {
            "type": what,
            "tenant": key.tenant,
            "project": key.project,
            "kind": key.kind,
            "id": key.id,
            **fields,
        }
    )
