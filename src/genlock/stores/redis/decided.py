"""In which epoch a thread's next commit was decided.

A lane loads, decides and commits in one thread. If the epoch has risen between its load and its commit, it has decided on a history that
may be lost: it might give out a generation that was given out there too. The port does not carry the epoch from load to commit, so it
is remembered here.
"""

from __future__ import annotations

import threading


class Decided(threading.local):
    """The lowest epoch that this thread has loaded since its last commit; None if it never loaded anything."""

    def __init__(self) -> None:
        self._epoch: int | None = None
        self._used = True

    def loaded(self, epoch: int) -> None:
        """Something was loaded in this epoch."""
        self._epoch = epoch if self._used or self._epoch is None else min(self._epoch, epoch)
        self._used = False

    def use(self) -> int | None:
        """The epoch for a commit. What is loaded after it counts anew."""
        self._used = True
        return self._epoch
