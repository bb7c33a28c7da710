"""Reports of progress: how far the work is, notes on it, and its cost.

They are fenced like a renewal, in the same order: another generation → GENERATION_MISMATCH; no
claim at it → NO_CLAIM; another session → SESSION_MISMATCH; overdue → ALREADY_EXPIRED; else
RECORDED. A report extends no lease. A report without news writes nothing.

The record keeps a bounded part: one fraction, the cost by unit, the last notes, and the worktree of
the generation. A generation reports what it has cost *up to now*, so that a repeated report counts
nothing twice. The costs of all generations are added up. A worktree belongs to one generation: a
later one must not write where a zombie may still be at work.
"""

from __future__ import annotations

from genlock.core import commands as c
from genlock.core import events as e
from genlock.core.decision import Decision, require
from genlock.core.facts import Facts
from genlock.core.model import ProgressLog, TaskRecord
from genlock.core.reasons import ProgressReason
from genlock.core.results import ProgressResult, TaskProgress
from genlock.core.task.claims import unknown
from genlock.core.task.draft import TaskDraft
from genlock.core.task.view import overdue


def decide_progress(record: TaskRecord | None, command: c.ReportProgress, facts: Facts) -> Decision:
    """Records a report by the rules above."""
    record = require(record, unknown(command))
    refusal = _refusal(record, command, facts)
    if refusal is not None:
        return Decision(ProgressResult(False, refusal, record.generation))
    answer = ProgressResult(True, ProgressReason.RECORDED, record.generation)
    if _says_nothing_new(record.progress, command):
        return Decision(answer, record=record)
    assert record.claim is not None
    draft = TaskDraft(record, command, facts)
    draft.emit(
        e.ProgressReported,
        agent_id=command.by.agent or record.claim.agent,
        fraction=command.fraction,
        note=command.note,
        cost=command.cost,
        worktree_path=command.worktree_path,
    )
    return draft.decided(answer)


def _refusal(record: TaskRecord, command: c.ReportProgress, facts: Facts) -> ProgressReason | None:
    claim = record.claim
    if record.generation != command.generation:
        return ProgressReason.GENERATION_MISMATCH
    if claim is None:
        return ProgressReason.NO_CLAIM
    if claim.session != command.by.session:
        return ProgressReason.SESSION_MISMATCH
    if overdue(claim, facts.now, facts.session, outage_grace=facts.outage_grace) is not None:
        return ProgressReason.ALREADY_EXPIRED
    return None


def _says_nothing_new(log: ProgressLog | None, command: c.ReportProgress) -> bool:
    told = (command.fraction, command.worktree_path)
    if told == (None, None) and not command.note and not command.cost:
        return True
    if log is None or log.generation != command.generation:
        return False
    if command.worktree_path not in (None, log.worktree_path):
        return False
    last = log.notes[-1] if log.notes else None
    same_note = not command.note or (
        last is not None and (last.generation, last.text) == (log.generation, command.note)
    )
    same_fraction = command.fraction is None or command.fraction == log.fraction
    return same_note and same_fraction and {**log.cost, **command.cost} == log.cost


def task_progress(log: ProgressLog | None) -> TaskProgress | None:
    """Returns the log as shown in answers."""
    if log is None:
        return None
    cost = {
        unit: round(log.earlier_cost.get(unit, 0.0) + log.cost.get(unit, 0.0), 9)
        for unit in {**log.earlier_cost, **log.cost}
    }
    return TaskProgress(
        log.generation, log.updated_at, log.fraction, cost, log.notes, log.worktree_path
    )
