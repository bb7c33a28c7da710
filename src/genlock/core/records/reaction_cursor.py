"""The reaction cursor: the position up to which a project's feed was searched for reactions that a
crash cut off.

1. The cursor moves only from where the caller read it. If another coordinator has moved it in the
   meantime, nothing changes.
"""

from __future__ import annotations

from genlock.core import commands as c
from genlock.core import events as e
from genlock.core.decision import Decision, RecordKind, decide_one
from genlock.core.facts import Facts
from genlock.core.keys import SETTLED
from genlock.core.model import SettledRecord
from genlock.core.reasons import Verdict


def decide_move_settled(
    record: SettledRecord | None, command: c.MoveSettled, facts: Facts
) -> Decision:
    if record is not None and record.cursor != command.seen:
        return Decision(Verdict.UNCHANGED)
    if record is not None and record.cursor == command.cursor:
        return Decision(Verdict.UNCHANGED)
    return decide_one(
        record, command, facts, _moved, e.Settled, Verdict.DONE, cursor=command.cursor
    )


def _moved(_: SettledRecord | None, event: e.Settled) -> SettledRecord:
    return SettledRecord(cursor=event.cursor, updated_at=event.timestamp)


RECORD = RecordKind(
    kind=SETTLED,
    record=SettledRecord,
    commands={c.MoveSettled: decide_move_settled},
    begins=e.Settled,
    folds={e.Settled: _moved},
)
