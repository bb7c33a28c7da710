"""Waiting for a feed to move.

Whether anything has been committed is told by `PRAGMA data_version`. To ask for it every few milliseconds takes a hundredth of a core
and more; so the log is watched, too, and asking is left to the moments after it was written to. (The write itself is too early:
what it writes can be read only when it has been synced.) Without a notice of writes there is still asking.
"""

from __future__ import annotations

import time
from collections.abc import Sequence

import apsw

from genlock.stores.places import Place, decode_cursor
from genlock.stores.sqlite.feed import feed_state
from genlock.stores.sqlite.notice import Notice
from genlock.stores.sqlite.queries import QUERIES

SOON = 0.002
"""Seconds between a write to the log and the first look, and between looks while others write all the time."""
LATER = 0.25
"""Seconds between looks when nothing is written: only in case a notice is lost."""
BLIND = 0.01
"""Seconds between looks where writes cannot be noticed."""

_DATA_VERSION = QUERIES["data_version"]


def wait(db: apsw.Connection, notice: Notice, projects: Sequence[tuple[str, str]], after: Sequence[str], timeout: float) -> None:
    """Returns when one of the feeds is no longer where its cursor is, after `timeout` seconds, or when told to stop."""
    deadline = time.monotonic() + timeout
    places = [(tenant, project, decode_cursor(cursor)) for (tenant, project), cursor in zip(projects, after, strict=True)]
    while True:
        # The version before the look: what changes in between is seen as a change.
        version = db.execute(_DATA_VERSION).get
        if any(_has_moved(db, *place) for place in places):
            return
        if not _await_change(db, version, notice, deadline):
            return


def _await_change(db: apsw.Connection, version: int, notice: Notice, deadline: float) -> bool:
    """Has anything been committed since that version? If not, there is no time left, or no sense in waiting.

    The pauses begin short also without a notice: what was written before we watched may just become readable. Then they double.
    """
    pause = SOON if notice.works else BLIND
    while not notice.stopped and (left := deadline - time.monotonic()) > 0:
        if notice.watch(min(pause, left)):
            pause = SOON
            notice.sleep(min(SOON, left))
        elif notice.works:
            pause = min(2 * pause, LATER)
        if db.execute(_DATA_VERSION).get != version:
            return True
    return False


def _has_moved(db: apsw.Connection, tenant: str, project: str, place: Place) -> bool:
    """Also if the cursor is lost: reading will say so."""
    state, _ = feed_state(db, tenant, project)
    return (place.birth, place.epoch, place.feed, place.position) != (state.birth, state.epoch, state.feed, state.head)
