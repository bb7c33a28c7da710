"""Was a commit decided in the history that it is to be written to?

A server that was promoted, or put back to an earlier instant, goes on with a history that may lack what was acknowledged before. Whoever
first writes to it raises the epoch. What was decided on records that were read before that must not be written after it: a record may
be the same in both histories, while the generation that was decided on it has been granted in the one that is lost.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable

from genlock.store import Key
from genlock.stores.decided import Decided


class Histories:
    """Of one store: in which epoch its records were read, and in which it is, as far as the servers have said."""

    def __init__(self) -> None:
        self.decided = Decided()
        self._lock = threading.Lock()
        self._present: int | None = None

    @property
    def present(self) -> int | None:
        """The highest epoch that a server has told; None if none has."""
        return self._present

    def heard(self, epoch: int | None) -> None:
        """A server has said that it is in this epoch; None if it does not say."""
        with self._lock:
            if epoch is not None:
                self._present = max(epoch, self._present or 0)

    def admits(self, keys: Iterable[Key], began: int | None) -> bool:
        """May changes of these be written? `began` is what was present when their commit began: one that sees it rise writes nothing."""
        present, decided = self._present, self.decided.use(keys)
        if present is None:
            return True
        return (began is None or began == present) and (decided is None or decided >= present)
