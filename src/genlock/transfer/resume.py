"""Resumes a copy: determines whether the target holds nothing, a prefix of the source, or foreign
data.

A copy stores no note of its progress; it is derived from the target. Every record there must be at
a version that it had in the source, with the same digest. The feed of the source is read up to the
target's end, and the copy continues from there. Events that the source has purged since are purged
in the target, too.

The target's epoch is not evidence of foreign data. It may be above the source's, because some
servers raise it when they restart. Work in a later epoch would have left events that the source
does not have.

The recovery note (`settled`) is an exception. It holds a cursor up to which a project was
recovered, and cursors of the source are invalid in the copy. Without a note the first recovery
would read the whole feed and repeat every reaction. So the copy gets a note of its own, at the
event before which the source's note stands, and its `settled` record has a history of its own (ADR
17).
"""

from __future__ import annotations

from typing import NamedTuple

from genlock.core.codec import decode_base, decode_record
from genlock.core.keys import KINDS, SETTLED, Key
from genlock.core.model import SettledRecord
from genlock.engine.limits import Counts
from genlock.engine.recovery import Recovery
from genlock.engine.scan import pages_of, records_of
from genlock.errors import BadArgument, CursorLost, NotAllowed, StoreCorrupt
from genlock.store import EventQuery, RecordedEvent, Store
from genlock.transfer.bulk_reader import prefetched

Place = tuple[str, str]
Event = tuple[Key, int]


def has_own_note(source: Store, target: Store, place: Place) -> bool:
    """Does the target have a note of its own?"""
    key = Key(*place, SETTLED, SETTLED)
    stored = target.load([key]).records.get(key)
    if stored is None:
        return False
    events = source.read_events(
        EventQuery(*place, record=key, after_version=stored.version - 1, limit=1)
    ).events
    return [event.digest for event in events] != [stored.digest]


def settle_alike(source: Store, target: Store, place: Place) -> None:
    """Records in the target how far the recovery of the source has come. If the source has no note,
    or a lost one, the target gets none."""
    ours = _note(source, place)
    if ours is None:
        return
    try:
        following = _following(source, place, ours)
    except CursorLost:
        return
    if _stands_before(target, place, following):
        return
    cursor = _cursor_before(target, place, following)
    if cursor is not None:
        Recovery(target, Counts(target), "local").begin_at(place, cursor)


def _note(store: Store, place: Place) -> str | None:
    key = Key(*place, SETTLED, SETTLED)
    stored = store.load([key]).records.get(key)
    record = decode_record(SETTLED, stored.body) if stored is not None else None
    return record.cursor if isinstance(record, SettledRecord) else None


def _stands_before(target: Store, place: Place, following: Event | None) -> bool:
    """Is the target's note at the right event already?"""
    theirs = _note(target, place)
    try:
        return theirs is not None and _following(target, place, theirs) == following
    except (BadArgument, CursorLost):  # the source's note, whose cursor this store rejects
        return False


def _following(store: Store, place: Place, cursor: str) -> Event | None:
    """Returns the first event after the cursor. Notes need no reactions and do not count."""
    for page in pages_of(store, place, cursor):
        for recorded in page.events:
            if recorded.key.kind != SETTLED:
                return recorded.key, recorded.version
    return None


def _cursor_before(store: Store, place: Place, event: Event | None) -> str | None:
    """Returns the cursor right before this event, or at the end; None at the beginning."""
    if event is None:
        return store.read_events(EventQuery(*place, tail=True)).cursor
    after: str | None = None
    for page in pages_of(store, place, limit=_PAGE):
        names = [(recorded.key, recorded.version) for recorded in page.events]
        if event in names:
            cursors = store.read_events(
                EventQuery(*place, after=after, limit=_PAGE, cursors=True)
            ).cursors
            return [after, *cursors][names.index(event)]
        after = page.cursor
    return None


_PAGE = 2000
MAX_VERSION = 2**62


class TargetTaken(NotAllowed):
    """The target holds data that is not from this source."""


class Beginning(NamedTuple):
    """The part of one project that the target has."""

    place: tuple[str, str]
    cursor: str | None = None
    """A cursor of the source's feed. The target has all events before it."""
    events: int = 0
    """The number of events before the cursor."""
    beyond: int = 0
    """The number of events in the target that come after others that are missing."""
    is_empty: bool = True
    bases: tuple[tuple[Key, int, bytes], ...] = ()
    """Bases of records whose first events the source has purged: records at the base itself, and
    records of which the target keeps more."""
    own_note: bool = False
    """Does the target have a recovery note of its own? A finished copy has."""
    ahead: int = 0
    """Events in the target that follow missing ones in the source: a non-atomic commit was
    interrupted."""
    purged: int = 0
    """The number of records of which the source keeps fewer events than the target."""


def beginnings(source: Store, target: Store) -> list[Beginning]:
    """Returns the beginnings of all projects. Raises `TargetTaken` if the target holds anything
    else. Writes nothing."""
    places = sorted(source.audit().places)
    foreign = sorted(set(target.audit().places) - set(places))
    if foreign:
        raise _taken(f"project {'/'.join(foreign[0])}")
    return [beginning(source, target, place) for place in places]


def is_purged_since(source: Store, target: Store) -> bool:
    """Has the source purged events that the target still has?"""
    try:
        return any(each.purged for each in beginnings(source, target))
    except TargetTaken:
        return False


def beginning(source: Store, target: Store, place: tuple[str, str]) -> Beginning:
    """Returns the beginning of one project."""
    there = {
        stored.key: (stored.version, stored.digest)
        for kind in KINDS
        for stored in records_of(target, *place, kind)
    }
    if not there:
        return Beginning(place)
    own_note = has_own_note(source, target, place)
    if own_note:
        del there[Key(*place, SETTLED, SETTLED)]
    walk = _Walk(there)
    cursor, events, beyond = None, 0, 0
    for page in prefetched(pages_of(source, place, limit=_PAGE)):
        kept = [
            recorded for recorded in page.events if not own_note or recorded.key.kind != SETTLED
        ]
        met = sum([walk.meet(recorded) for recorded in kept])
        if not walk.is_missing:
            cursor, events = page.cursor, events + len(page.events)
            continue
        beyond += met
        if not walk.unmet:
            break
    bases = [_base(source, key, *walk.unmet[key]) for key in walk.unmet]
    purged = [key for key, first in walk.purged.items() if _first_kept(target, key) < first]
    bases += [_later_base(source, key, there[key][0]) for key in purged]
    return Beginning(
        place, cursor, events, beyond, False, tuple(bases), own_note, walk.ahead, len(purged)
    )


class _Walk:
    """The source's feed, compared with the records of the target."""

    def __init__(self, there: dict[Key, tuple[int, bytes]]) -> None:
        self._there = there
        self.unmet = dict(there)
        """Records whose last event was not reached yet."""
        self.purged: dict[Key, int] = {}
        """Records whose first events the source has purged, and the first version that it keeps."""
        self.is_missing = False
        self.ahead = 0
        self._met: set[Key] = set()

    def meet(self, recorded: RecordedEvent) -> bool:
        """Is this event in the target?"""
        version, digest = self._there.get(recorded.key, (0, b""))
        if recorded.version > version:
            self.is_missing = True
            return False
        self.ahead += self.is_missing
        if recorded.version > 1 and recorded.key not in self._met:
            self.purged[recorded.key] = recorded.version
        self._met.add(recorded.key)
        if recorded.version == version:
            if recorded.digest != digest:
                raise _taken(f"{_name(recorded.key)} at version {version} with another history")
            del self.unmet[recorded.key]
        return True


def _base(source: Store, key: Key, version: int, digest: bytes) -> tuple[Key, int, bytes]:
    """Returns the base of a record whose present version matches none of the events that the source
    keeps."""
    base = source.read_events(EventQuery(*key.place, record=key, limit=1)).base
    kept_from = (0, b"") if base is None else decode_base(key.kind, base)[:2]
    if kept_from[0] > version:
        raise _behind(key, version, kept_from[0])
    if base is None or kept_from != (version, digest):
        raise _taken(f"{_name(key)} at version {version}")
    return key, version, base


def _later_base(source: Store, key: Key, version: int) -> tuple[Key, int, bytes]:
    """Returns the base of a record of which the target keeps more events than the source."""
    base = source.read_events(EventQuery(*key.place, record=key, limit=1)).base
    if base is None:
        raise StoreCorrupt(
            f"{_name(key)}: its first events are missing in the source; type: genlock doctor"
        )
    kept_from = decode_base(key.kind, base)[0]
    if kept_from > version:  # purged again after its events were read
        raise _behind(key, version, kept_from)
    return key, kept_from, base


def _first_kept(store: Store, key: Key) -> int:
    events = store.read_events(EventQuery(*key.place, record=key, limit=1)).events
    return events[0].version if events else MAX_VERSION


def _name(key: Key) -> str:
    return f"{key.kind} {key.id} of {key.tenant}/{key.project}"


def _taken(what: str) -> TargetTaken:
    return TargetTaken(
        f"the target holds {what}, which is not in the source; nothing was written: name an empty "
        "store"
    )


def _behind(key: Key, version: int, kept_from: int) -> TargetTaken:
    return TargetTaken(
        f"the target holds {_name(key)} at version {version}, and the source has kept nothing "
        f"before version {kept_from + 1}: it was "
        "purged since that was copied; empty the target and copy again, and let nobody purge the "
        "source meanwhile"
    )
