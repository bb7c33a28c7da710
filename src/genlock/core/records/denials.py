"""Denials: counts of denied claims, with callers and reasons.

1. A coordinator merges its denials and reports them in batches; a record holds the sums of one
   coordinator and one hour, the events hold the details.
"""

from __future__ import annotations

from typing import Any

from genlock.core import commands as c
from genlock.core import events as e
from genlock.core.decision import Decision, Draft, RecordKind
from genlock.core.facts import Facts
from genlock.core.keys import ACCESS
from genlock.core.model import AccessRecord
from genlock.core.reasons import Verdict


def decide_note_denials(
    record: AccessRecord | None, command: c.NoteDenials, facts: Facts
) -> Decision:
    draft: Draft[Any] = Draft(record, command, facts)
    events = tuple(
        e.ClaimDenied(
            timestamp=draft.at,
            tenant_id=command.key.tenant,
            project_id=command.key.project,
            task_id=denial.task,
            session_id=denial.session,
            agent_id=denial.agent,
            access_id=command.key.id,
            reason=denial.reason,
            count=denial.count,
            holder_session_id=denial.holder_session,
            holder_agent_id=denial.holder_agent,
            metadata={"last": denial.at},
        )
        for denial in command.denials
    )
    for event in events:
        record = _denied(record, event)
    return Decision(Verdict.DONE, events, record)


def _denied(record: AccessRecord | None, event: e.ClaimDenied) -> AccessRecord:
    denials = dict(record.denials) if record else {}
    denials[event.reason] = denials.get(event.reason, 0) + event.count
    return AccessRecord(id=event.access_id, updated_at=event.timestamp, denials=denials)


RECORD = RecordKind(
    kind=ACCESS,
    record=AccessRecord,
    commands={c.NoteDenials: decide_note_denials},
    begins=e.ClaimDenied,
    folds={e.ClaimDenied: _denied},
)
