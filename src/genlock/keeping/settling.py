"""A copy is settled as far as its source was.

How far a project is settled is kept as a cursor, and cursors of the source are lost in the copy: whoever settles there would read the
whole feed again, and repeat every reaction of a long history. So the copy gets a note of its own, at the event that the source's stood
before. From then on its `settled` record has a history of its own (ADR 17).
"""

from __future__ import annotations

from genlock.core.codec import decode_record
from genlock.core.keys import SETTLED, Key
from genlock.core.model import SettledRecord
from genlock.engine.counts import Counts
from genlock.engine.settle import Settler
from genlock.engine.walk import pages_of
from genlock.errors import BadArgument, CursorLost
from genlock.store import EventQuery, Store

_PAGE = 2000

Place = tuple[str, str]
Event = tuple[Key, int]


def has_own_note(source: Store, target: Store, place: Place) -> bool:
    """Has the target a note that is not the source's?"""
    key = Key(*place, SETTLED, SETTLED)
    stored = target.load([key]).records.get(key)
    if stored is None:
        return False
    events = source.read_events(EventQuery(*place, record=key, after_version=stored.version - 1, limit=1)).events
    return [event.digest for event in events] != [stored.digest]


def settle_alike(source: Store, target: Store, place: Place) -> None:
    """Notes in the target how far the source is settled. Where the source has no note, or one that is lost, neither has the target."""
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
        Settler(target, Counts(target), "local").begin_at(place, cursor)


def _note(store: Store, place: Place) -> str | None:
    key = Key(*place, SETTLED, SETTLED)
    stored = store.load([key]).records.get(key)
    record = decode_record(SETTLED, stored.body) if stored is not None else None
    return record.cursor if isinstance(record, SettledRecord) else None


def _stands_before(target: Store, place: Place, following: Event | None) -> bool:
    """Is the target's note at the right place already?"""
    theirs = _note(target, place)
    try:
        return theirs is not None and _following(target, place, theirs) == following
    except (BadArgument, CursorLost):  # the source's note, of which this store understands nothing
        return False


def _following(store: Store, place: Place, cursor: str) -> Event | None:
    """The first event after the cursor; notes themselves ask nothing of anyone, and do not count."""
    for page in pages_of(store, place, cursor):
        for recorded in page.events:
            if recorded.key.kind != SETTLED:
                return recorded.key, recorded.version
    return None


def _cursor_before(store: Store, place: Place, event: Event | None) -> str | None:
    """The cursor right before this event, or at the end; None at the beginning."""
    if event is None:
        return store.read_events(EventQuery(*place, tail=True)).cursor
    after: str | None = None
    for page in pages_of(store, place, limit=_PAGE):
        names = [(recorded.key, recorded.version) for recorded in page.events]
        if event in names:
            cursors = store.read_events(EventQuery(*place, after=after, limit=_PAGE, cursors=True)).cursors
            return [after, *cursors][names.index(event)]
        after = page.cursor
    return None
