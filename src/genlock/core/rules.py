"""decide, evolve and react: the whole core behind three functions.

decide(record, command, facts)   what to answer, what has happened, what the record is then, what to ask of others
evolve(record, event)            what a record is after an event
react(key, record, event, version)   what a record's event asks of other records
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

from msgspec.structs import replace

from genlock.core import api_keys, others
from genlock.core import commands as c
from genlock.core import events as e
from genlock.core.decision import Decision
from genlock.core.facts import Facts
from genlock.core.index import MET
from genlock.core.keys import TASK, Key
from genlock.core.model import Record, RefusedRecord, TaskRecord
from genlock.core.results import SubmissionResult
from genlock.core.task import claims, due, operate, relate, spawn
from genlock.core.task.fold import evolve_task

_DECIDE: dict[type, Callable[[Any, Any, Facts], Decision]] = {
    c.AddTask: operate.decide_add,
    c.EditTask: operate.decide_edit,
    c.ReorderTask: operate.decide_reorder,
    c.ClaimTask: claims.decide_claim,
    c.RenewLease: claims.decide_renew,
    c.ReleaseClaim: claims.decide_release,
    c.SubmitResult: claims.decide_submit,
    c.SpawnSubtasks: spawn.decide_spawn,
    c.AdoptResult: spawn.decide_adopt,
    c.ForceRelease: operate.decide_force_release,
    c.AssignTask: operate.decide_assign,
    c.ResetTask: operate.decide_reset,
    c.CancelTask: operate.decide_cancel,
    c.HoldTask: operate.decide_hold,
    c.ReopenTask: operate.decide_reopen,
    c.CheckDue: due.decide_check_due,
    c.Hear: relate.decide_hear,
    c.KeepRefused: others.decide_keep,
    c.MarkAdopted: others.decide_mark_adopted,
    c.DiscardRefused: others.decide_discard,
    c.RegisterSession: others.decide_register,
    c.HeartbeatSession: others.decide_heartbeat,
    c.EndSession: others.decide_end,
    c.TakeIds: others.decide_take_ids,
    c.ChangeProject: others.decide_change_project,
    c.NoteEpoch: others.decide_note_epoch,
    c.ChangeTenant: others.decide_change_tenant,
    c.NoteDenials: others.decide_note_denials,
    c.MoveSettled: others.decide_move_settled,
    c.CreateKey: api_keys.decide_create,
    c.RotateKey: api_keys.decide_rotate,
    c.RevokeKey: api_keys.decide_revoke,
}


def decide(record: Record | None, command: c.Command, facts: Facts) -> Decision:
    """What this command does to this record. Pure; raises only for the caller's own mistakes."""
    return _DECIDE[type(command)](record, command, facts)


def amended(decision: Decision, also: Decision) -> Decision:
    """The decision, once what it asked of another record is done: what was kept before is named as it was kept."""
    if isinstance(decision.outcome, SubmissionResult) and isinstance(also.outcome, RefusedRecord):
        return replace(decision, outcome=replace(decision.outcome, work_product_ref=also.outcome.work_product_ref))
    return decision


def evolve(kind: str, record: Record | None, event: e.Event) -> Record:
    """What the record is after this event."""
    if kind == TASK:
        return evolve_task(record, event)  # type: ignore[arg-type]
    return others.evolve_other(record, event)


class Reaction(NamedTuple):
    """A command to another record, or to every task that has `waits_on` in its index."""

    command: c.Command
    waits_on: str | None = None


_reaction = partial(tuple.__new__, Reaction)  # half of what the class itself takes


def react(key: Key, record: Record, event: e.Event, version: int) -> list[Reaction]:
    """What this event, the one numbered `version` of this record, asks of others. Repeating it is always safe."""
    react_to = _REACT.get(type(event))
    return react_to(key, record, event, version) if react_to is not None else []


def reacts(event: e.Event) -> bool:
    """Could this event ask anything of others?"""
    return type(event) in _REACT


def _hear(key: Key, about: str, version: int, *, reset: bool = False) -> c.Hear:
    return c.Hear(key, relate.SYSTEM, others=((about, version),), reset=reset)


def _added(key: Key, record: TaskRecord, event: e.TaskAdded, version: int) -> list[Reaction]:
    reactions = []
    task = event.task
    if task.depends_on:
        # Only now that the task exists and waits are its dependencies looked at: a completion in between finds it waiting.
        reactions.append(Reaction(c.Hear(key, relate.SYSTEM, others=tuple((other, 0) for other in task.depends_on))))
    if task.parent is not None:
        reactions.append(Reaction(_hear(key.beside(TASK, task.parent), key.id, version)))
    return reactions


def _edited(key: Key, record: TaskRecord, event: e.TaskEdited, version: int) -> list[Reaction]:
    if "depends_on" not in event.changed or not event.task.depends_on:
        return []
    return [Reaction(c.Hear(key, relate.SYSTEM, others=tuple((other, 0) for other in event.task.depends_on)))]


def _finished(key: Key, record: TaskRecord, event: e.ResultAccepted | e.TaskCancelled, version: int) -> list[Reaction]:
    name, parent = key.id, record.task.parent
    reactions: list[Reaction] = [_reaction((c.Hear(key, relate.SYSTEM, ((name, version),)), name))]
    if parent is not None:
        reactions.append(Reaction(_hear(key.beside(TASK, parent), name, version)))
    return reactions


def _accepted(key: Key, record: TaskRecord, event: e.ResultAccepted, version: int) -> list[Reaction]:
    reactions = _finished(key, record, event, version)
    if event.adopted_session is not None:
        by = c.Caller(event.session_id, event.agent_id, event.actor)
        reactions.append(Reaction(c.MarkAdopted(claims.adopted_key(key, event), by)))
    return reactions


def _reset(key: Key, record: TaskRecord, event: e.TaskReset, version: int) -> list[Reaction]:
    told = _hear(key, key.id, version, reset=True)
    reactions = [Reaction(told, MET + key.id), Reaction(told, key.id)]
    if record.task.parent is not None:
        reactions.append(Reaction(_hear(key.beside(TASK, record.task.parent), key.id, version, reset=True)))
    return reactions


def _heard(key: Key, record: TaskRecord, event: e.News, version: int) -> list[Reaction]:
    """Look once more at those it heard of: one that was reset before this was written could not know whom to tell.

    At which version each of them moved is not known: the one that was heard of is that at which it was seen.
    """
    return [Reaction(c.Hear(key, relate.SYSTEM, others=tuple((other, 0) for other in event.others)))]


def _spawned(key: Key, record: TaskRecord, event: e.SubtasksSpawned, version: int) -> list[Reaction]:
    by = c.Caller(event.session_id, event.agent_id, event.actor)
    return [Reaction(c.AddTask(key.beside(TASK, child.id), by, task=child)) for child in event.children]


_REACT: dict[type[e.Occurrence], Callable[[Key, Any, Any, int], list[Reaction]]] = {
    e.TaskAdded: _added,
    e.TaskEdited: _edited,
    e.ResultAccepted: _accepted,
    e.TaskCancelled: _finished,
    e.TaskReset: _reset,
    e.SubtasksSpawned: _spawned,
    e.DependencyMet: _heard,
    e.DependencyCancelled: _heard,
    e.DependencyReopened: _heard,
    e.ChildAdded: _heard,
    e.ChildFinished: _heard,
    e.ChildReopened: _heard,
}

REACTING = tuple(str(kind.__struct_config__.tag) for kind in _REACT)
"""The names of the events that may ask something of others."""
