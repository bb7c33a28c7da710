"""What serving those who ask for a next task will have to know, so that it can be asked for in one trip.

Where the store is far away, a trip is most of what a call takes. Of what is foreseen some may not be needed, and what was not is asked for
when it is: nothing rests on it.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable, Sequence
from itertools import chain, islice

from genlock.core.keys import Key
from genlock.engine.jobs import Item, NextTask
from genlock.engine.next import first_due, heads_for, held_by, session_of
from genlock.engine.waiting import Place, Waiting
from genlock.store import Query

MOST_SESSIONS = 16
"""Of those who are first in a project. Often a thousand wait for one task."""


def foresee(asking: Sequence[Item], places: Iterable[Place], waiting: Waiting, busy: int) -> tuple[list[Key], list[Query]]:
    """The keys and queries for those who ask, and for those who wait in these places and look again; `busy` tasks are under way."""
    now = time.monotonic()
    keys: dict[Key, None] = {}
    queries: dict[Query, None] = {}
    eager = [item for item in asking if _looks(item.request, item, waiting, now)]
    looking: Collection[Place] = {*places, *(item.request.key.place for item in eager)}
    for place in looking:
        here = chain(waiting.at(place) if place in places else (), (item for item in eager if item.request.key.place == place))
        first = list(islice(here, MOST_SESSIONS))
        if not first:
            continue
        keys.update(dict.fromkeys(map(session_of, first)))
        queries[first_due(*place)] = None
        queries[Query(*place, heads=heads_for(len(asking) + len(waiting), first[0].attempt, busy))] = None
    for item in eager:
        if item.request.operation and not item.waited:  # type: ignore[union-attr]
            queries[held_by(item.request)] = None  # type: ignore[arg-type]
    return list(keys), list(queries)


def _looks(request: object, item: Item, waiting: Waiting, now: float) -> bool:
    """Will it look for a task? Who comes to wait where there is nothing, or goes from there, is told so without a look."""
    if not isinstance(request, NextTask):
        return False
    return request.key.place not in waiting.quiet or not (request.wait_until > now or item.waited)
