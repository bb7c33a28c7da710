"""What of a source its target has already: nothing, a beginning, or something else.

A copy leaves no note of how far it has come. What is in the target tells: every record there must be at a version that it had in the
source, with that version's digest; but for the note of how far the target is settled, which may be its own. The feed of the source is
then read up to where the target ends, and the copy goes on from there. What the source has purged since is purged in the target too.

The target's epoch tells nothing. It may be above the source's: there are servers that raise it when they are restarted, and whoever has
worked in a later epoch has left events that the source does not have.
"""

from __future__ import annotations

from typing import NamedTuple

from genlock.core.codec import decode_base
from genlock.core.keys import KINDS, SETTLED, Key
from genlock.engine.walk import pages_of, records_of
from genlock.errors import NotAllowed, StoreCorrupt
from genlock.keeping.ahead import ahead
from genlock.keeping.settling import has_own_note
from genlock.store import EventQuery, Recorded, Store

_PAGE = 2000
MAX_VERSION = 2**62


class TargetTaken(NotAllowed):
    """The target holds what did not come from this source."""


class Beginning(NamedTuple):
    """What of one project is in the target."""

    place: tuple[str, str]
    cursor: str | None = None
    """In the source's feed: all before it is in the target."""
    events: int = 0
    """So many."""
    beyond: int = 0
    """And so many behind it, among others that are not."""
    is_empty: bool = True
    bases: tuple[tuple[Key, int, bytes], ...] = ()
    """Of records whose first events the source does not keep: of those that stand right there, and of those that keep more."""
    own_note: bool = False
    """Has the target said by an event of its own how far it is settled? A copy that was finished has: see settling.py."""
    ahead: int = 0
    """Events in the target that follow others, in the source, that are not: a commit was broken off that was not all or nothing."""
    purged: int = 0
    """Records of which the source has kept less than the target."""


def beginnings(source: Store, target: Store) -> list[Beginning]:
    """Of every project of the source; `TargetTaken` if there is anything else in the target. Writes nothing."""
    places = sorted(source.audit().places)
    foreign = sorted(set(target.audit().places) - set(places))
    if foreign:
        raise _taken(f"project {'/'.join(foreign[0])}")
    return [beginning(source, target, place) for place in places]


def is_purged_since(source: Store, target: Store) -> bool:
    """Has the source dropped events that the target still has?"""
    try:
        return any(each.purged for each in beginnings(source, target))
    except TargetTaken:
        return False


def beginning(source: Store, target: Store, place: tuple[str, str]) -> Beginning:
    """Of one project."""
    there = {stored.key: (stored.version, stored.digest) for kind in KINDS for stored in records_of(target, *place, kind)}
    if not there:
        return Beginning(place)
    own_note = has_own_note(source, target, place)
    if own_note:
        del there[Key(*place, SETTLED, SETTLED)]
    walk = _Walk(there)
    cursor, events, beyond = None, 0, 0
    for page in ahead(pages_of(source, place, limit=_PAGE)):
        kept = [recorded for recorded in page.events if not own_note or recorded.key.kind != SETTLED]
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
    return Beginning(place, cursor, events, beyond, False, tuple(bases), own_note, walk.ahead, len(purged))


class _Walk:
    """The source's feed, compared with the records of the target."""

    def __init__(self, there: dict[Key, tuple[int, bytes]]) -> None:
        self._there = there
        self.unmet = dict(there)
        """Records whose last event has not come yet."""
        self.purged: dict[Key, int] = {}
        """Records whose first events the source does not keep any more, and the first that it does."""
        self.is_missing = False
        self.ahead = 0
        self._met: set[Key] = set()

    def meet(self, recorded: Recorded) -> bool:
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
    """Of a record that is not at any event that the source has kept, it must be the base."""
    base = source.read_events(EventQuery(*key.place, record=key, limit=1)).base
    kept_from = (0, b"") if base is None else decode_base(key.kind, base)[:2]
    if kept_from[0] > version:
        raise _behind(key, version, kept_from[0])
    if base is None or kept_from != (version, digest):
        raise _taken(f"{_name(key)} at version {version}")
    return key, version, base


def _later_base(source: Store, key: Key, version: int) -> tuple[Key, int, bytes]:
    """Of a record that has kept more in the target than in the source."""
    base = source.read_events(EventQuery(*key.place, record=key, limit=1)).base
    if base is None:
        raise StoreCorrupt(f"{_name(key)}: its first events are missing in the source; type: genlock doctor")
    kept_from = decode_base(key.kind, base)[0]
    if kept_from > version:  # purged once more, since its events were read
        raise _behind(key, version, kept_from)
    return key, kept_from, base


def _first_kept(store: Store, key: Key) -> int:
    events = store.read_events(EventQuery(*key.place, record=key, limit=1)).events
    return events[0].version if events else MAX_VERSION


def _name(key: Key) -> str:
    return f"{key.kind} {key.id} of {key.tenant}/{key.project}"


def _taken(what: str) -> TargetTaken:
    return TargetTaken(f"the target holds {what}, which is not in the source; nothing was written: name an empty store")


def _behind(key: Key, version: int, kept_from: int) -> TargetTaken:
    return TargetTaken(
        f"the target holds {_name(key)} at version {version}, and the source has kept nothing before version {kept_from + 1}: it was "
        "purged since that was copied; empty the target and copy again, and let nobody purge the source meanwhile"
    )
