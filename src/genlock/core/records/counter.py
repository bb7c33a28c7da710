"""Counters: the numbers for new ids.

1. A counter gives out the next `count` numbers under its prefix; none is given out twice.
2. The first time in each epoch the counter skips `SKIPPED_IDS` numbers: the store may have lost the
   record that they were given out, and no generation guards an id as it guards a claim (ADR 44). A
   new counter does so too, because its earlier creation may be lost.
"""

from __future__ import annotations

from typing import Final

from genlock.core import commands as c
from genlock.core import events as e
from genlock.core.decision import Decision, RecordKind, decide_one
from genlock.core.facts import Facts
from genlock.core.keys import COUNTER
from genlock.core.model import CounterRecord
from genlock.errors import BadArgument

SKIPPED_IDS: Final = 1_000
"""The numbers that a counter skips when the epoch has risen. Root ids have only four characters: a
larger number would soon use them up."""


def decide_take_ids(record: CounterRecord | None, command: c.TakeIds, facts: Facts) -> Decision:
    """Gives out the next `count` numbers; the outcome is the last of them."""
    if command.count < 1:
        raise BadArgument(f"one id or more can be taken, not {command.count}")
    last, epoch = (record.value, record.epoch) if record else (0, 0)
    if facts.epoch > epoch:
        last, epoch = last + SKIPPED_IDS, facts.epoch
    value = last + command.count
    return decide_one(
        record,
        command,
        facts,
        _taken,
        e.IdsTaken,
        value,
        prefix=command.prefix,
        value=value,
        count=command.count,
        epoch=epoch,
    )


def _taken(_: CounterRecord | None, event: e.IdsTaken) -> CounterRecord:
    return CounterRecord(
        prefix=event.prefix, value=event.value, updated_at=event.timestamp, epoch=event.epoch
    )


RECORD = RecordKind(
    kind=COUNTER,
    record=CounterRecord,
    commands={c.TakeIds: decide_take_ids},
    begins=e.IdsTaken,
    folds={e.IdsTaken: _taken},
)
