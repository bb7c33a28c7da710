"""Refused results: submissions that were refused, kept so that no work is lost.

1. A refused submission with content is kept under a name made of task, generation, session and
   digest. The same submission refused again is the same record.
2. A discarded result that is submitted and refused again is kept again. So is one that a task
   adopted and then lost by a reset: it is no longer the result of any task.
3. An adopted result cannot be discarded while it is the task's result. The task decides whether it
   is: the news of the adoption or the reset may not have reached this record yet.
4. A result that a review rejected is kept once. The reaction that keeps it may be repeated, also
   after the result was discarded.
5. A result that was discarded while a task adopted it stays discarded. The task has a copy.
"""

from __future__ import annotations

from typing import Any, Final

from msgspec.structs import replace

from genlock.core import commands as c
from genlock.core import events as e
from genlock.core.decision import Decision, RecordKind, decide_one
from genlock.core.facts import Facts
from genlock.core.index import Index
from genlock.core.keys import REFUSED
from genlock.core.model import NO_DATA, RefusedRecord, TaskRecord, for_user
from genlock.core.reasons import RefusedState, Verdict
from genlock.errors import NotAllowed, ResultNotFound

REVIEW_REJECTED: Final = "REVIEW_REJECTED"
"""The reason recorded for a result that a review rejected."""


def decide_keep(record: RefusedRecord | None, command: c.KeepRefused, facts: Facts) -> Decision:
    """Keeps a refused result. Rules 1, 2 and 4. The outcome is the record that is kept."""
    if record is not None and REVIEW_REJECTED == command.reason == record.reason:
        return Decision(record)
    adopted = record is not None and record.state is RefusedState.ADOPTED
    if record is not None and (
        record.state is RefusedState.KEPT or (adopted and _counts(record, facts))
    ):
        return Decision(record)
    content = command.content
    if record is not None and adopted:
        # The record already has a payload with the same bytes.
        content = replace(content, payload_id=record.payload_id)
    return decide_one(
        record,
        command,
        facts,
        _rejected,
        e.ResultRejected,
        actor=for_user(command.by.actor, facts.session.user if facts.session else ""),
        task_id=command.task,
        generation=command.generation,
        submitted_generation=command.generation,
        current_generation=command.current_generation,
        rejection_reason=command.reason,
        work_lost=True,
        work_product_ref=command.work_product_ref,
        digest=content.digest,
        size=content.size,
        result_data=content.data,
        payload=content.payload,
        payload_id=content.payload_id,
        reference=content.reference,
        manifest=content.manifest,
        metadata=_measures(command, content.size, facts),
    )


def _measures(command: c.KeepRefused, size: int, facts: Facts) -> dict[str, Any]:
    """Returns the size of the result, and how long its session had worked on it (GC 8.2)."""
    measures: dict[str, Any] = {"result_size_bytes": size}
    if command.claimed_at is not None:
        worked = (facts.now - command.claimed_at).total_seconds()
        measures["processing_time_seconds"] = round(max(0.0, worked), 3)
    return measures


def decide_mark_adopted(
    record: RefusedRecord | None, command: c.MarkAdopted, facts: Facts
) -> Decision:
    """Records an adoption. Rule 5."""
    record = _refused(record, command)
    if record.state is not RefusedState.KEPT:
        return Decision(Verdict.UNCHANGED)
    return decide_one(
        record,
        command,
        facts,
        _adopted,
        e.ResultAdopted,
        Verdict.DONE,
        task_id=record.task,
        generation=record.generation,
    )


def decide_discard(
    record: RefusedRecord | None, command: c.DiscardRefused, facts: Facts
) -> Decision:
    """Discards a refused result. Rule 3. The outcome is the discarded record; the bytes of its
    payload, if any, may be deleted."""
    record = _refused(record, command)
    if _counts(record, facts):
        raise NotAllowed(f"refused result {command.key.id!r} was adopted; it is the task's result")
    if record.state is RefusedState.DISCARDED:
        return Decision(record)
    return decide_one(
        record,
        command,
        facts,
        _discarded,
        e.ResultDiscarded,
        task_id=record.task,
        generation=record.generation,
    )


def _counts(record: RefusedRecord, facts: Facts) -> bool:
    """Is this the task's result? The task knows earlier than this record (rule 3)."""
    return (
        record.state is RefusedState.ADOPTED
        if facts.task is None
        else _is_result_of(facts.task, record)
    )


def _is_result_of(task: TaskRecord, record: RefusedRecord) -> bool:
    """Has the task adopted this refused result?"""
    result = task.result
    adopted = (record.digest, record.generation, record.session)
    return (
        result is not None
        and (result.digest, result.adopted_generation, result.adopted_session) == adopted
    )


def _refused(record: RefusedRecord | None, command: c.Command) -> RefusedRecord:
    if record is None:
        raise ResultNotFound(
            f"there is no refused result {command.key.id!r} in project {command.key.project!r}"
        )
    return record


def _rejected(_: RefusedRecord | None, event: e.ResultRejected) -> RefusedRecord:
    return RefusedRecord(
        task=event.task_id,
        generation=event.submitted_generation,
        session=event.session_id,
        agent=event.agent_id,
        digest=event.digest,
        reason=event.rejection_reason,
        current_generation=event.current_generation,
        work_product_ref=event.work_product_ref,
        size=event.size,
        submitted_at=event.timestamp,
        updated_at=event.timestamp,
        data=event.result_data,
        payload=event.payload,
        payload_id=event.payload_id,
        reference=event.reference,
        manifest=event.manifest,
    )


def _adopted(record: RefusedRecord, event: e.ResultAdopted) -> RefusedRecord:
    return replace(record, updated_at=event.timestamp, state=RefusedState.ADOPTED)


def _discarded(record: RefusedRecord, event: e.ResultDiscarded) -> RefusedRecord:
    return replace(record, updated_at=event.timestamp, state=RefusedState.DISCARDED, data=NO_DATA)


def _index(record: RefusedRecord) -> Index:
    return Index(state=record.state, parent=record.task)


RECORD = RecordKind(
    kind=REFUSED,
    record=RefusedRecord,
    commands={
        c.KeepRefused: decide_keep,
        c.MarkAdopted: decide_mark_adopted,
        c.DiscardRefused: decide_discard,
    },
    begins=e.ResultRejected,
    folds={
        e.ResultRejected: _rejected,
        e.ResultAdopted: _adopted,
        e.ResultDiscarded: _discarded,
    },
    index_of=_index,
)
