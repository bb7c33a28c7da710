"""The bytes of records and events, prefixed with their format number, and the chain of digests.

    1{"task":{…},"state":"PENDING",…}                    a record
    1{"version":3,"previous":"ab12…","event":{…}}        an event in its envelope

An event carries the digest of the event before it in the same record. A store compares the digest
of the last event when it swaps a record. Encoding is deterministic: the encoded fold of the events
is the stored record, byte for byte.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from functools import partial
from typing import Any, Final, NamedTuple, TypeVar

import msgspec
from msgspec import Raw, Struct

from genlock.core import keys, model
from genlock.core.events import Event
from genlock.errors import StoreCorrupt, StoreForeign
from genlock.typed_json import decoder


def _load_digest(data: bytes) -> bytes:
    """Replaces itself at the first call, so that callers that only read need not load OpenSSL.
    Copying a hash is faster than creating one."""
    global digest_of
    from hashlib import sha256

    blank = sha256().copy

    def digest(data: bytes) -> bytes:
        hashed = blank()
        hashed.update(data)
        return hashed.digest()

    digest_of = digest
    return digest(data)


digest_of: Callable[[bytes], bytes] = _load_digest
"""SHA-256. Call it as `codec.digest_of`: the first call replaces the function."""

FORMAT = b"1"
_START = FORMAT + b"{"
_SHORT = 4096
"""Below this size, which nearly all records have, a copy is faster than a view."""

T = TypeVar("T")

_encoder = msgspec.json.Encoder()
encode_json = _encoder.encode


class Envelope(Struct, frozen=True, gc=False):
    """An event with its position in its record's chain."""

    version: int
    previous: str
    event: Event


class EventSummary(Struct, frozen=True, gc=False):
    """Only the type, time and author of an event, for callers that scan many: decoding no more
    takes a third of the time."""

    event_type: str
    timestamp: datetime
    session_id: str = ""


class _Glanced(Struct, frozen=True, gc=False):
    event: EventSummary


class Base(Struct, frozen=True):
    """A record folded up to a version. It replaces the events that are no longer kept."""

    version: int
    digest: str
    record: Raw
    sum: str
    """A checksum of the other three fields. The fold forgets much of a base, so nothing else would
    reveal a change to it."""


class EncodedEvent(NamedTuple):
    """An event as bytes, with its number and digest."""

    version: int
    digest: bytes
    body: bytes


_sealed = partial(tuple.__new__, EncodedEvent)  # takes half the time of the class itself

_RECORDS: Final[dict[str, type[model.Record]]] = {
    keys.TASK: model.TaskRecord,
    keys.SESSION: model.SessionRecord,
    keys.REFUSED: model.RefusedRecord,
    keys.PROMOTION: model.PromotionRecord,
    keys.COUNTER: model.CounterRecord,
    keys.PROJECT: model.ProjectRecord,
    keys.TENANT: model.TenantRecord,
    keys.ACCESS: model.AccessRecord,
    keys.SETTLED: model.SettledRecord,
    keys.KEY: model.KeyRecord,
    keys.FEATURE: model.FeatureRecord,
}


def encode_record(record: model.Record) -> bytes:
    """Encodes a record."""
    return FORMAT + encode_json(record)


def decode_record(kind: str, body: bytes) -> model.Record:
    """Decodes a record."""
    record = _RECORDS.get(kind)
    if record is None:
        raise StoreCorrupt(f"there is no kind of record {kind!r}")
    return _decode(decoder(record), body)


def encode_event(event: Event, version: int, previous: bytes) -> EncodedEvent:
    """Encodes an event and computes its digest, chained to the event before it."""
    body = FORMAT + encode_json(Envelope(version, previous.hex(), event))
    return _sealed((version, digest_of(body), body))


def decode_event(body: bytes) -> Envelope:
    """Decodes an event."""
    return _decode(decoder(Envelope), body)


def glance_at_event(body: bytes) -> EventSummary:
    """Decodes only the summary of an event."""
    return _decode(decoder(_Glanced), body).event


_TYPE = b'"event_type":"'


def event_type_of(body: bytes) -> str:
    """Returns the type of an encoded event without reading the rest. The type comes first in an
    event."""
    start = body.find(_TYPE) + len(_TYPE)
    return body[start : body.find(b'"', start)].decode()


def encode_base(version: int, digest: bytes, record: model.Record) -> bytes:
    """Encodes a base."""
    body = encode_json(record)
    return FORMAT + encode_json(
        Base(version, digest.hex(), Raw(body), _sum_of(version, digest.hex(), body))
    )


def decode_base(kind: str, body: bytes) -> tuple[int, bytes, model.Record]:
    """Returns the version, digest and record of a base."""
    base = _decode(decoder(Base), body)
    try:
        digest = bytes.fromhex(base.digest)
    except ValueError:
        raise StoreCorrupt(f"a digest that is none: {base.digest[:80]!r}") from None
    if base.sum != _sum_of(base.version, base.digest, bytes(base.record)):
        raise StoreCorrupt("a base that is not what its sum says")
    return base.version, digest, decode_record(kind, FORMAT + bytes(base.record))


def _sum_of(version: int, digest: str, record: bytes) -> str:
    return digest_of(f"{version} {digest} ".encode() + record).hex()


def event_to_builtins(event: Event) -> dict[str, Any]:
    """Returns the event as plain JSON values, for feeds and logs."""
    plain: dict[str, Any] = msgspec.json.decode(encode_json(event))
    return plain


def _decode(typed: msgspec.json.Decoder[T], body: bytes) -> T:
    if body[:2] != _START:
        digits = body[: body.find(b"{")]
        if digits.isdigit():
            raise StoreForeign(
                f"written in format {digits.decode()}, this version knows {FORMAT.decode()}; "
                "install a newer genlock"
            )
        raise StoreCorrupt(f"bytes that are no record or event: {body[:20]!r}…")
    try:
        return typed.decode(body[1:] if len(body) < _SHORT else memoryview(body)[1:])
    except msgspec.MsgspecError as error:
        raise StoreCorrupt(f"bytes that cannot be read ({error}): {body[:60]!r}…") from None
    except UnicodeDecodeError as error:
        raise StoreCorrupt(f"bytes that are no UTF-8 ({error.reason} at {error.start})") from None
    except RecursionError:
        raise StoreCorrupt("bytes that are nested without end") from None
