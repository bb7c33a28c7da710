"""Waiting for a feed to move.

`PRAGMA data_version` tells whether anything was committed. Polling it every few milliseconds takes
1 % of a core and more. So a waiter watches the log with inotify, and polls shortly after a write to
it. (Polling at the write itself is too early: a commit becomes readable once it is synced.) Without
inotify the waiter polls more often.
"""

from __future__ import annotations

import time
from collections.abc import Sequence

import apsw

from genlock.retry import Backoff
from genlock.stores.cursors import CursorPosition, decode_cursor
from genlock.stores.file_watch import WatchedFile
from genlock.stores.sqlite.connections import QUERIES
from genlock.stores.sqlite.reads import feed_state

SOON = 0.002
"""Seconds from a write to the log to the first poll, and between polls while others keep
writing."""
LATER = 0.25
"""Seconds between polls while nothing is written. Needed only if a notification is lost."""
LOOKS = Backoff(SOON, LATER, jitter=0)
BLIND = 0.01
"""Seconds between polls where writes cannot be detected."""

_DATA_VERSION = QUERIES["data_version"]


def wait(
    db: apsw.Connection,
    watch: WatchedFile,
    projects: Sequence[tuple[str, str]],
    after: Sequence[str],
    timeout: float,
) -> None:
    """Returns when one of the feeds no longer ends at its cursor, after `timeout` seconds, or when
    told to stop."""
    deadline = time.monotonic() + timeout
    places = [
        (tenant, project, decode_cursor(cursor))
        for (tenant, project), cursor in zip(projects, after, strict=True)
    ]
    while True:
        # Reads the version first: a commit in between is then seen as a change.
        version = db.execute(_DATA_VERSION).get
        if any(_has_moved(db, *place) for place in places):
            return
        if not _await_change(db, version, watch, deadline):
            return


def _await_change(db: apsw.Connection, version: int, watch: WatchedFile, deadline: float) -> bool:
    """Was anything committed since that version? If not, the time is up or the store is closed.

    The first pauses are short even without a write: an earlier write may just become readable. Then
    they double.
    """
    quiet = 1
    while not watch.stopped and (left := deadline - time.monotonic()) > 0:
        pause = LOOKS.pause(quiet) if watch.works else BLIND
        if watch.await_write(min(pause, left)):
            quiet = 1
            watch.sleep(min(SOON, left))
        else:
            quiet += 1
        if db.execute(_DATA_VERSION).get != version:
            return True
    return False


def _has_moved(db: apsw.Connection, tenant: str, project: str, place: CursorPosition) -> bool:
    """Has the feed moved past its cursor? True for a lost cursor, too: the next read reports it."""
    state, _ = feed_state(db, tenant, project)
    return (place.birth, place.epoch, place.feed, place.position) != (
        state.birth,
        state.epoch,
        state.feed,
        state.head,
    )
