"""Those who wait for a task, by project and in order of arrival.

Often a thousand agents wait for one task. So nothing here is done for each of them when one is served, when somebody else comes, or
when a batch is gathered.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator

from genlock.engine.jobs import Item, NextTask

Place = tuple[str, str]
Twins = tuple[Place, str, str]


def twins_of(request: NextTask) -> Twins:
    """What requests have in common that are one and the same, asked more than once: project, session and operation id."""
    return request.key.place, request.by.session, request.operation


class Waiting:
    """Requests for a next task that have found none. Only the lane's own thread comes here."""

    def __init__(self) -> None:
        self._at: dict[Place, dict[int, Item]] = {}
        self._twins: dict[Twins, dict[int, Item]] = {}
        """The same, by whose they are and by operation id, where they have one."""
        self._size = 0
        self.first_end: float | None = None
        """When the first of them gives up, or one that is gone would have."""
        self._wake_at: float | None = None
        """When they are to look again although nothing has happened."""
        self.quiet: set[Place] = set()
        """Where they have found nothing at all, and nothing has happened since."""

    def __len__(self) -> int:
        return self._size

    @property
    def places(self) -> Iterable[Place]:
        """Where somebody waits."""
        return self._at.keys()

    def add(self, item: Item) -> None:
        """It is to look, or to look again; at its old place if it has waited before."""
        request = item.request
        assert isinstance(request, NextTask)
        group = self._at.setdefault(request.key.place, {})
        if item.number not in group:
            self._size += 1
            if request.operation:
                self._twins.setdefault(twins_of(request), {})[item.number] = item
            in_order = not group or item.number > next(reversed(group))
            group[item.number] = item
            if not in_order:
                self._at[request.key.place] = dict(sorted(group.items()))
        if self.first_end is None or request.wait_until < self.first_end:
            self.first_end = request.wait_until

    def remove(self, item: Item) -> None:
        """It is served, or goes."""
        place = item.request.key.place
        group = self._at.get(place, {})
        if group.pop(item.number, None) is not None:
            self._size -= 1
            self._part(item)
        if not group and place in self._at:
            del self._at[place]
            # From now on nobody is told when that changes.
            self.quiet.discard(place)

    def _part(self, item: Item) -> None:
        request = item.request
        if isinstance(request, NextTask) and request.operation:
            twins = self._twins[twins_of(request)]
            del twins[item.number]
            if not twins:
                del self._twins[twins_of(request)]

    def at(self, place: Place) -> Iterator[Item]:
        """Those who wait there; who was cancelled meanwhile is not among them any more.

        Behind one who was served come those who wait under the same operation id: what it was given is theirs too, and all there may be."""
        for item in list(self._at.get(place, {}).values()):
            if self._is_there(item):
                yield item
                for twin in self._left_by(item):
                    if self._is_there(twin):
                        yield twin

    def _is_there(self, item: Item) -> bool:
        """Does it wait still? If nobody waits for it any more, it goes now."""
        if item.number not in self._at.get(item.request.key.place, {}):
            return False
        if item.job is None or item.job.cancelled:
            self.remove(item)
            return False
        return True

    def _left_by(self, item: Item) -> list[Item]:
        """Its twins, if it is gone."""
        request = item.request
        if not isinstance(request, NextTask) or not request.operation or item.number in self._at.get(request.key.place, {}):
            return []
        return list(self._twins.get(twins_of(request), {}).values())

    def late(self, now: float) -> list[Item]:
        """Those whose time is up. They are taken out."""
        if self.first_end is None or self.first_end > now:
            return []
        ends = [(item.request.wait_until, item) for group in self._at.values() for item in group.values()]  # type: ignore[union-attr]
        late = [item for end, item in ends if end <= now]
        for item in late:
            self.remove(item)
        self.first_end = min((end for end, _ in ends if end > now), default=None)
        return late

    @property
    def next_end(self) -> float | None:
        """When something is to be done about any of them, if nothing happens before."""
        ends = [end for end in (self.first_end, self._wake_at) if end is not None]
        return min(ends) if self._size and ends else None

    def wake_by(self, instant: float) -> None:
        """They are to look again at this instant at the latest."""
        passed = self._wake_at is None or self._wake_at <= time.monotonic()
        self._wake_at = instant if passed or self._wake_at is None else min(self._wake_at, instant)

    def is_time(self, now: float) -> bool:
        """Has that instant come?"""
        return self._wake_at is not None and self._wake_at <= now

    def all(self) -> list[Item]:
        """Everybody."""
        return [item for group in self._at.values() for item in group.values()]
