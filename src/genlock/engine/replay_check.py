"""The replay check: reads every event and every record, and reports every inconsistency.

For each record: the events are numbered without a gap, each carries the digest of its predecessor
and has the digest it is stored under, they fold (from the base, if there is one) to exactly the
stored bytes, version and digest, and the stored index fields match the record. For each feed:
positions without gaps or duplicates, versions of a record in order, and every event's record known.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from hashlib import sha256

from msgspec import Struct

from genlock.core.codec import decode_base, decode_event, decode_record, encode_record
from genlock.core.events import Event
from genlock.core.keys import KINDS, Key, refused_id
from genlock.core.model import (
    AccessRecord,
    CounterRecord,
    FeatureRecord,
    KeyRecord,
    ProjectRecord,
    Record,
    RefusedRecord,
    SessionRecord,
    TaskRecord,
    TenantRecord,
)
from genlock.core.rules import evolve, index_of
from genlock.engine.scan import records_of
from genlock.errors import StoreCorrupt, StoreForeign
from genlock.store import EventQuery, RecordedEvent, Store, Stored

_PAGE = 500


class Fault(Struct, frozen=True):
    """One deviation from the data that was written."""

    where: str
    what: str


def check(store: Store, *, progress: Callable[[int], None] | None = None) -> list[Fault]:
    """Returns all faults of a store. A sound store has none."""
    try:
        audit = store.audit()
    except StoreCorrupt as error:
        return [Fault("store", str(error))]
    faults = [Fault("store", what) for what in audit.faults]
    for place in audit.places:
        faults += check_place(store, place, progress)
    return faults


def check_place(
    store: Store, place: tuple[str, str], progress: Callable[[int], None] | None = None
) -> list[Fault]:
    """Returns the faults of one project."""
    faults: list[Fault] = []
    keys: list[Key] = []
    for kind in KINDS:
        try:
            keys += [stored.key for stored in records_of(store, *place, kind)]
        except StoreCorrupt as error:
            faults.append(Fault(f"{place[0]}/{place[1]} {kind}", str(error)))
    purged = 0
    for key in keys:
        try:
            stored = store.load([key], with_index=True).records.get(key)
            history = _History(store, key)
        except StoreCorrupt as error:
            faults.append(Fault(_where(key), str(error)))
            continue
        if stored is None:
            faults.append(Fault(_where(key), "is listed but cannot be read"))
            continue
        purged += history.purged
        faults += [Fault(_where(key), what) for what in _check_record(stored, history)]
        if progress is not None:
            progress(1)
    return faults + _check_feed(store, place, set(keys), purged)


class _History:
    """A record's base and events."""

    def __init__(self, store: Store, key: Key) -> None:
        self.events: list[RecordedEvent] = []
        self.base: bytes | None = None
        self.version, self.digest, self.record = 0, b"", None
        after = 0
        while True:
            page = store.read_events(
                EventQuery(key.tenant, key.project, record=key, after_version=after, limit=_PAGE)
            )
            self.base = page.base if after == 0 else self.base
            self.events += page.events
            if not page.more:
                break
            after = page.events[-1].version
        self.fault: str | None = None
        if self.base is not None:
            try:
                self.version, self.digest, self.record = decode_base(key.kind, self.base)
            except (StoreCorrupt, StoreForeign) as error:
                self.fault = f"its base: {error}"

    @property
    def purged(self) -> int:
        """Returns the number of events that are no longer kept."""
        return self.version


def _check_record(stored: Stored, history: _History) -> Iterator[str]:
    key = stored.key
    try:
        yield from _check_chain(stored, history)
        record = decode_record(key.kind, stored.body)
    except (StoreCorrupt, StoreForeign) as error:
        yield str(error)
        return
    if _name_of(record) not in (None, key.id):
        yield f"says that it is {_name_of(record)!r}"
    wanted = index_of(record)
    if stored.index is not None and stored.index != wanted:
        for field in wanted.__struct_fields__:
            kept, asked = getattr(stored.index, field), getattr(wanted, field)
            same = sorted(kept) == sorted(asked) if field == "waits_on" else kept == asked
            if not same:
                yield (
                    f"index field {field} is {kept!r}, the record says "
                    f"{str(asked) if isinstance(asked, str) else asked!r}"
                )


def _name_of(record: Record) -> str | None:
    """Returns the record's own id, if it has one."""
    if isinstance(record, TaskRecord):
        return record.task.id
    if isinstance(record, RefusedRecord):
        return refused_id(record.task, record.generation, record.session, record.digest)
    if isinstance(record, CounterRecord):
        return record.prefix
    if isinstance(record, FeatureRecord):
        return record.name
    if isinstance(record, (AccessRecord, SessionRecord, ProjectRecord, TenantRecord, KeyRecord)):
        return record.id
    return None


def _check_chain(stored: Stored, history: _History) -> Iterator[str]:
    """Folds the events and compares the result with the record."""
    key = stored.key
    if history.fault is not None:
        yield history.fault
        return
    version, digest, record = history.version, history.digest, history.record
    for recorded in history.events:
        if recorded.version != version + 1:
            yield f"event {version + 1} is missing or doubled: the next one is {recorded.version}"
            return
        envelope = decode_event(recorded.body)
        if sha256(recorded.body).digest() != recorded.digest:
            yield f"event {recorded.version} is not what its digest says"
            return
        if envelope.version != recorded.version or envelope.previous != digest.hex():
            yield f"event {recorded.version} does not follow its predecessor"
            return
        event = envelope.event
        if (event.tenant_id, event.project_id) != key[:2]:
            yield f"event {recorded.version} belongs to {event.tenant_id}/{event.project_id}"
            return
        record = folded(key, record, recorded, event)
        version, digest = recorded.version, recorded.digest
    if record is None:
        yield "has no events"
    elif (version, digest) != (stored.version, stored.digest):
        yield (
            f"is at version {stored.version}, its events end at {version}, or its digest is not "
            "the last event's"
        )
    elif encode_record(record) != stored.body:
        yield "is not what its events amount to"


def folded(key: Key, record: Record | None, recorded: RecordedEvent, event: Event) -> Record:
    try:
        return evolve(key.kind, record, event)
    except (AttributeError, TypeError) as error:
        raise StoreCorrupt(
            f"event {recorded.version} cannot have happened to it ({error})"
        ) from None


def _check_feed(store: Store, place: tuple[str, str], keys: set[Key], purged: int) -> list[Fault]:
    """Checks positions, the order of versions, and that no event belongs to an unknown record."""
    faults: list[Fault] = []
    gaps: list[Fault] = []
    last: dict[Key, int] = {}
    position, missing, voids, cursor, where = 0, 0, 0, None, f"{place[0]}/{place[1]} feed"
    while True:
        try:
            page = store.read_events(EventQuery(*place, after=cursor, limit=_PAGE))
        except StoreCorrupt as error:
            return [*faults, Fault(where, str(error))]
        for recorded in page.events:
            at, name = recorded.position, _where(recorded.key)
            if recorded.key not in keys:
                faults.append(
                    Fault(where, f"position {at} is an event of an unknown record {name}")
                )
            if at != position + 1:
                missing += at - position - 1
                gaps.append(
                    Fault(
                        where, f"position {position + 1} is missing: the next one is {at}, {name}"
                    )
                )
            if recorded.version != last.get(recorded.key, recorded.version - 1) + 1:
                faults.append(
                    Fault(
                        where,
                        f"{name}: version {recorded.version} at position {at} is out of order",
                    )
                )
            last[recorded.key] = recorded.version
            position = at
        voids += page.voids
        cursor = page.cursor
        if not page.more:
            break
    missing += page.position - position - voids
    if missing > purged:
        # Purged events leave gaps, and the bases say how many (fewer in a copy, which has one
        # position for all that was purged before it); any further gap is a loss.
        faults.append(
            Fault(
                where,
                f"{missing} positions up to {page.position} are missing, {purged} of them purged",
            )
        )
        faults += gaps
    return faults


def _where(key: Key) -> str:
    return f"{key.tenant}/{key.project} {key.kind} {key.id}"
