"""A commit of a round: its changes on their way into the store, at once or in two steps, and what has become of each.

In two steps, what can be done without waiting is done first, and the waiting may be another thread's. So the lane's thread encodes what is
sent and reads what comes back, and the one beside it needs the interpreter for nothing: had it to wait for that as well, after the
server, a commit would take half as long again whenever the lane is busy.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from functools import partial

from genlock.engine.outages import Outages
from genlock.errors import Closed, GenlockError, OutcomeUnknown, OverLimit, StoreError, StoreUnavailable
from genlock.store import Change, Committed, Conflict, EventQuery, Sent, Store, send

Answer = Committed | Conflict | GenlockError

NOT_YET = Conflict()
"""A change of unknown outcome that is not there: to be decided again, and perhaps done all the same by a server that is slow."""


class Commit:
    """Of one round. Used by one thread at a time."""

    def __init__(self, store: Store, outages: Outages | None) -> None:
        self._store = store
        self._outages = outages
        self.changes: list[Change] = []
        self.seconds = 0.0
        """How long it took."""
        self._began = 0.0
        self._sent: Sent | None = None

    def send(self) -> None:
        """The first step. More than the store takes at once is left for the second."""
        self._began = time.perf_counter()
        if len(self.changes) <= self._store.limits.batch:
            self._sent = send(self._store, self.changes)

    def wait(self) -> None:
        """Between the steps: until there is something to be heard."""
        if self._sent is not None:
            self._sent.wait()
        self.seconds = time.perf_counter() - self._began

    def write(self, until: float) -> list[Answer]:
        """The second step, or all of it."""
        if self._sent is not None:
            return list(self._outcomes(self._sent.answers, self.changes, until))
        answers: list[Answer] = []
        batch = self._store.limits.batch
        began = time.perf_counter()
        for start in range(0, len(self.changes), batch):
            answers += self._commit(self.changes[start : start + batch], until)
        self.seconds = time.perf_counter() - began
        return answers

    def _commit(self, changes: list[Change], until: float) -> Sequence[Answer]:
        return self._outcomes(partial(self._store.commit, changes), changes, until)

    def _outcomes(self, commit: Callable[[], Sequence[Answer]], changes: list[Change], until: float) -> Sequence[Answer]:
        try:
            return commit()
        except OutcomeUnknown as unknown:
            return [self._find_out(change, unknown, until) for change in changes]
        except OverLimit as error:
            # Nothing was written because of one of them: the others, who may be anybody's, are not to suffer for it.
            half = len(changes) // 2
            return [*self._commit(changes[:half], until), *self._commit(changes[half:], until)] if half else [error]
        except (StoreError, Closed) as error:
            if isinstance(error, StoreUnavailable):
                self._was_away()
            return [error] * len(changes)

    def _was_away(self) -> None:
        """The store could not be reached: what falls due meanwhile may have an excuse."""
        if self._outages is not None:
            self._outages.lost()

    def _find_out(self, change: Change, unknown: OutcomeUnknown, until: float) -> Answer:
        """The connection broke inside the commit: our digest at the version we wrote means that it was done."""
        first, number = change.events[0], len(change.events)
        query = EventQuery(change.key.tenant, change.key.project, record=change.key, after_version=first.version - 1, limit=number)
        pause = 0.002
        while True:
            try:
                events = self._store.read_events(query).events
            except Closed:
                return unknown  # nobody can look any more
            except StoreError:
                self._was_away()
                if time.monotonic() > until:
                    return unknown
                time.sleep(pause)
                pause = min(pause * 2, 0.5)
                continue
            if not events:
                return NOT_YET
            return Committed(events[-1].position) if events[0].digest == first.digest else Conflict()
