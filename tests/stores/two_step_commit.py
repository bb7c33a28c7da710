"""A commit in one step, and in two with the waiting done by another thread, as the engine does
it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor

import pytest

from genlock.store import Change, Committed, Conflict, Store, start_commit
from genlock.testing.concurrency import PATIENCE

Committing = Callable[[Store, Sequence[Change]], Sequence[Committed | Conflict]]


def in_one(store: Store, changes: Sequence[Change]) -> Sequence[Committed | Conflict]:
    return store.commit(changes)


def in_two(store: Store, changes: Sequence[Change]) -> Sequence[Committed | Conflict]:
    assert store.limits.starts
    sent = start_commit(store, changes)
    with ThreadPoolExecutor(1) as beside:
        beside.submit(sent.wait).result(PATIENCE)
    return sent.answers()


either_way = pytest.mark.parametrize("committing", [in_one, in_two], ids=["one step", "two steps"])
