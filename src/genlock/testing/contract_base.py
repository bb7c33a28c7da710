"""The base of all clauses: opens a store, and declares its capabilities."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Protocol

import pytest

from genlock.store import Change, Clock, Committed, Conflict, Store


class Another(Protocol):
    """Opens another handle on the data of this test, or on other data `elsewhere`. It is closed
    when the test ends."""

    def __call__(self, clock: Clock | None = None, *, elsewhere: str = "here") -> Store: ...


class ContractBase:
    """The hook and the capabilities; see `StoreContract`."""

    persistent: bool = True
    """Is all data kept when the store is opened again after its last handle was closed?"""
    processes: bool = True
    """Can other processes open the same data?"""
    payloads_supported: bool = True
    """Does it store payloads?"""

    def open(self, place: Path, clock: Clock | None = None) -> Store:
        """Opens a handle on the data of `place`, a folder that is empty at first. Called again for
        another handle on the same data."""
        raise NotImplementedError

    @contextmanager
    def handles(self, place: Path) -> Iterator[Another]:
        """Opens handles below `place` and closes them all in the end."""
        with ExitStack() as stack:

            def another(clock: Clock | None = None, *, elsewhere: str = "here") -> Store:
                folder = place / elsewhere
                folder.mkdir(exist_ok=True)
                store = self.open(folder, clock)
                stack.callback(store.close)
                return store

            yield another

    @pytest.fixture(name="another")
    def _another(self, tmp_path: Path) -> Iterator[Another]:
        with self.handles(tmp_path) as another:
            yield another

    @pytest.fixture(name="store")
    def _store(self, another: Another) -> Store:
        return another()

    def needs(self, capability: str) -> None:
        """Skips a clause about a capability that this store does not claim."""
        if not getattr(self, capability):
            pytest.skip(f"this store does not claim to be: {capability}")


def commit(store: Store, *changes: Change) -> list[int]:
    """Commits changes that must fit. Returns their positions."""
    answers = store.commit(changes)
    assert len(answers) == len(changes), (
        f"{len(changes)} changes were answered by {len(answers)} answers"
    )
    positions = []
    for change, answer in zip(changes, answers, strict=True):
        assert isinstance(answer, Committed), (
            f"{change.key} at {change.read_version} should have been written, but: {answer}"
        )
        positions.append(answer.position)
    return positions


def must_conflict(store: Store, *changes: Change) -> None:
    """Commits changes that must all conflict."""
    answers = store.commit(changes)
    assert [isinstance(answer, Conflict) for answer in answers] == [True] * len(changes), (
        f"should all be conflicts: {answers}"
    )
