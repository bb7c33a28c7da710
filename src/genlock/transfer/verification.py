"""Verifies that a store still contains what was written: the replay check, and the payloads."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from genlock.engine.replay_check import Fault as Fault
from genlock.engine.replay_check import check as replay_faults
from genlock.engine.scan import unused_payloads as unused_payloads
from genlock.store import Store
from genlock.transfer.backup import Lost, lost_payloads

Progress = Callable[[str, int, int | None], None]
"""Called with the step, the amount done, and the total if known."""

__all__ = ["Fault", "Verified", "replay_faults", "unused_payloads", "verify"]


class Verified(NamedTuple):
    """The findings of a verification."""

    records: int
    faults: Sequence[Fault]
    lost: list[Lost]
    """Payloads."""

    @property
    def all_faults(self) -> list[Fault]:
        """All faults, including the lost payloads."""
        lost = [
            Fault("/".join(each.key[:2]) + f" {each.key.kind} {each.key.id}", each.what)
            for each in self.lost
        ]
        return [*self.faults, *lost]


def verify(
    store: Store, progress: Progress, *, still: bool, records: int | None = None
) -> Verified:
    """Checks the chain of every record, its fold, its index fields, every feed and every payload;
    `records` is their number, if known.

    Unless the store is `still`, others may write while it is read, and their writes can look like
    faults. Then every fault is checked again, and counts only if it is found both times.
    """
    count = 0

    def note_progress(more: int) -> None:
        nonlocal count
        count += more
        progress("replaying", count, records)

    faults = replay_faults(store, progress=note_progress)
    lost = lost_payloads(
        store, progress=lambda done, total: progress("reading payloads", done, total)
    )
    if faults and not still:
        again = set(replay_faults(store))
        faults = [fault for fault in faults if fault in again]
    if lost and not still:
        lost = lost_payloads(store, among=lost)
    return Verified(count, faults, lost)
