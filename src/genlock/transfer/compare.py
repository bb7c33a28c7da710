"""Compares a finished copy with its source: a replay check of the copy, then every feed and record.

Only the recovery notes may differ, as each store has its own (resume.py).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import zip_longest

from genlock.core.keys import KINDS, SETTLED, Key
from genlock.engine.replay_check import Fault, check
from genlock.engine.scan import pages_of, records_of
from genlock.errors import StoreCorrupt
from genlock.store import Store
from genlock.transfer.bulk_reader import BulkReadStore, prefetched

_PAGE = 2000
_SHOWN = 5

_COMPARED = [kind for kind in KINDS if kind != SETTLED]

Facts = tuple[Key, int, bytes, bytes]
Place = tuple[str, str]
Progress = Callable[[str, int, int | None], None]


class CopyDiffers(StoreCorrupt):
    """The target differs from the source."""


def compare(
    source: Store,
    target: Store,
    places: list[Place],
    progress: Progress,
    *,
    ordered: bool,
    moved: Callable[[], bool],
) -> None:
    """Raises `CopyDiffers` if anything but positions differs. If the source has moved meanwhile,
    the copy is not at fault, and the caller handles it."""
    faults = _differences(source, target, places, progress, ordered=ordered)
    if faults and not moved():
        _complain("the target differs from the source", faults)
    replayed = 0

    def note(records: int) -> None:
        nonlocal replayed
        replayed += records
        progress("replaying", replayed, None)

    faults = [f"{fault.where}: {fault.what}" for fault in _replay(target, note)]
    if faults:
        _complain("the target is not the fold of its events", faults)


def _replay(target: Store, note: Callable[[int], None]) -> list[Fault]:
    """Runs the replay check, with prefetch if the store is remote, because each record takes two
    reads."""
    if not target.limits.shared:
        return check(target, progress=note)
    with BulkReadStore(target) as store:
        return check(store, progress=note)


def _complain(what: str, faults: list[str]) -> None:
    more = f"\n  and {len(faults) - _SHOWN} more" if len(faults) > _SHOWN else ""
    raise CopyDiffers(
        f"{what}; do not use it:\n" + "\n".join(f"  {fault}" for fault in faults[:_SHOWN]) + more
    )


def _differences(
    source: Store, target: Store, places: list[Place], progress: Progress, *, ordered: bool
) -> list[str]:
    faults = []
    ours, theirs = source.load([]).epoch, target.load([]).epoch
    if theirs <= ours:
        faults.append(f"its epoch is {theirs}, the source's {ours}")
    done = 0
    for place in places:
        for kind in _COMPARED:
            for pair in zip_longest(_records(source, place, kind), _records(target, place, kind)):
                done += 1
                if pair[0] != pair[1]:
                    faults.append(f"{_name(*pair)} is not the same record")
            progress("comparing", done, None)
        if ordered:
            for at, pair in enumerate(
                zip_longest(_events(source, place), _events(target, place)), 1
            ):
                done += 1
                if pair[0] != pair[1]:
                    faults.append(f"{_name(*pair)} is not the same event, number {at} of its feed")
                    break  # the rest is shifted
                if not at % _PAGE:
                    progress("comparing", done, None)
    return faults


def _name(ours: Facts | None, theirs: Facts | None) -> str:
    key, version, _, _ = next(facts for facts in (ours, theirs) if facts is not None)
    return f"{key.tenant}/{key.project} {key.kind} {key.id} at version {version}"


def _records(store: Store, place: Place, kind: str) -> Iterator[Facts]:
    for stored in records_of(store, *place, kind):
        yield stored[:4]


def _events(store: Store, place: Place) -> Iterator[Facts]:
    for page in prefetched(pages_of(store, place, limit=_PAGE)):
        for recorded in page.events:
            if recorded.key.kind != SETTLED:
                yield recorded[:4]
