"""Waiting for a feed to move."""

from __future__ import annotations

import time
from collections.abc import Collection, Sequence

from genlock.stores.moves import Moves
from genlock.stores.places import decode_cursor
from genlock.stores.postgres.waking import Lend, Listener
from genlock.stores.postgres.wire import byteas, ints, rows_of, texts

LOOK = 0.5
"""Seconds between looks while we can hear: only in case a notification is lost."""
DEAF = 0.05
"""Seconds between looks while we cannot."""


def wait(
    lend: Lend,
    statement: str,
    moves: Moves,
    listener: Listener,
    projects: Sequence[tuple[str, str]],
    after: Sequence[str],
    timeout: float,
    hearing: bool,
) -> Collection[int]:
    """Returns when one of the feeds is no longer where its cursor is, after `timeout` seconds, or when the store is closed.

    The marks of those that are known to have moved while one slept; for who is `hearing`, elsewhere.
    """
    deadline = time.monotonic() + timeout
    places = [decode_cursor(cursor) for cursor in after]
    marks = {place.feed: cursor for place, cursor in zip(places, after, strict=True)}
    values = [
        texts([tenant for tenant, _ in projects]),
        texts([project for _, project in projects]),
        byteas([place.birth for place in places]),
        ints([place.epoch for place in places]),
        ints([place.position for place in places]),
    ]
    # Who has just read these cursors need not look again whether they are still the ends: he would have been told.
    looked = moves.since_look(marks, hearing=hearing) if listener.hears else None
    sleep = moves.hear if hearing else moves.wait
    while not moves.closed:
        if looked is not None:
            since, looked = looked, None
        else:
            # The number before the look: what moves in between counts as later.
            since = dict.fromkeys(marks, moves.now())
            with lend() as link:
                if any(moved for (moved,) in rows_of(link.call(statement, values))):
                    break
        left = deadline - time.monotonic()
        if left <= 0:
            break
        listener.want()
        moved = sleep(since, min(left, LOOK if listener.hears else DEAF))
        if moved:
            return moved
    return ()
