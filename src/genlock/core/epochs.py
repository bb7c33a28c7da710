"""The number of an epoch.

Two histories of one store (a backup restored twice, a copy and its original, two promoted replicas)
know nothing of each other. Yet they must never begin the same epoch: both would grant its
generations. So the number is derived from the time. All stores have the same reference time.
Seconds since the creation of a store would not do: a copy is created later than its source and
would repeat its numbers.

Two raises in different seconds have different numbers, whatever histories they belong to, as long
as the clocks are right. Within one second they have the same number in one of sixteen cases;
`genlock.stores.epoch_guard` ensures that no coordinator uses an epoch before its second is over.
"""

from __future__ import annotations

from genlock.errors import BadArgument

GENERATIONS_PER_EPOCH = 1_000_000

REFERENCE = 1_767_225_600
"""2026-01-01 00:00:00 UTC, in seconds since 1970."""

DIGITS = 16
"""The number of epochs that may begin in one second: one for each value of the random digit."""

MAX_EPOCH = 2**53 // GENERATIONS_PER_EPOCH - 1
"""Generations stay below 2^53, which JSON can hold. Time alone reaches the last epoch in November
2043."""


class EpochsExhausted(BadArgument):
    """There is no epoch left to begin: an operator raised it to the last one."""


def next_epoch(last: int, second: int, digit: int) -> int:
    """Returns the epoch to begin after `last`, in this second since 1970. `digit` is a random
    number below 16.

    A clock that is before the reference, or beyond the room that generations have, is ignored: the
    result is then the last epoch plus one. Raises `EpochsExhausted` if that has no room either.
    """
    assert 0 <= digit < DIGITS, digit
    made = (second - REFERENCE) * DIGITS + digit
    return check_epoch(max(last + 1, made) if made <= MAX_EPOCH else last + 1)


def check_epoch(epoch: int) -> int:
    """Returns the epoch if its generations fit into the range."""
    if epoch > MAX_EPOCH:
        raise EpochsExhausted(
            f"epoch {epoch:,} is above {MAX_EPOCH:,}, the last whose generations JSON can hold"
        )
    return epoch
