"""In which epoch a commit was decided.

If the epoch has risen between a load and the commit that was decided on it, it was decided on a history that may be lost: it might give
out a generation that was given out there too. The port does not carry the epoch from load to commit, so it is remembered here, by key:
one thread may load and another commit.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable

from genlock.store import Key

MOST = 50_000
"""So many keys are remembered; most of them were only looked at. When there are more, all are forgotten."""


class Decided:
    """For each key the lowest epoch in which it was read since the last commit of it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._epochs: dict[Key, int] = {}
        self._only: int | None = None
        """The epoch of all of them, as long as there is only one."""
        self._last: int | None = None

    def loaded(self, keys: Iterable[Key], epoch: int) -> None:
        """These were read in this epoch, whether they were there or not."""
        with self._lock:
            if len(self._epochs) > MOST or not self._epochs:
                self._epochs.clear()
                self._only = epoch
            self._last = epoch
            if self._only == epoch:
                self._epochs.update(dict.fromkeys(keys, epoch))
                return
            self._only = None
            for key in keys:
                self._epochs[key] = min(epoch, self._epochs.get(key, epoch))

    def found(self, keys: Iterable[Key], epoch: int | None) -> None:
        """These were read no earlier than in this epoch; None if nobody knows."""
        if epoch is not None:
            self.loaded(keys, epoch)

    @property
    def last(self) -> int | None:
        """The epoch of the last load."""
        return self._last

    def use(self, keys: Iterable[Key]) -> int | None:
        """The epoch for a commit of these; None if they were never read. What is read after it counts anew."""
        with self._lock:
            pop = self._epochs.pop
            known = [epoch for epoch in [pop(key, None) for key in keys] if epoch is not None]
        return min(known) if known else None
