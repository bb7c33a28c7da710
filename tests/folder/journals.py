"""Stores without task files for a test of their journals."""

from __future__ import annotations

from pathlib import Path

from genlock.store import Change
from genlock.stores.folder import FolderStore, open_folder
from genlock.testing.contract_base import commit
from genlock.testing.sample import make_change, make_key


def opened(place: Path, **options: str) -> FolderStore:
    text = "".join(f"&{name}={value}" for name, value in options.items())
    return open_folder(f"folder://{place}?layout=none{text}")


def journal_of(place: Path) -> Path:
    return place / "state" / "genlock" / "journal"


def filled(place: Path, number: int = 6) -> list[Change]:
    """A store with some changes."""
    store = opened(place)
    changes: list[Change] = []
    for at in range(number):
        change = make_change(make_key(f"A-{at % 3}"), changes[at - 3] if at > 2 else None)
        commit(store, change)
        changes.append(change)
    store.close()
    return changes
