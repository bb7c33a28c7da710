"""Facts: all inputs of a decision other than the record. The engine gathers them; the core only
reads them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from itertools import chain
from typing import NamedTuple

from msgspec import Struct

from genlock.core import commands as c
from genlock.core.agent_roles import NO_ROLES, AgentRoles, roles_in_force
from genlock.core.keys import REFUSED, SESSION, TASK, Key
from genlock.core.model import (
    KnownState,
    Overlap,
    Record,
    RefusedRecord,
    SessionRecord,
    Task,
    TaskRecord,
)
from genlock.core.observation import Observation
from genlock.core.policy import PROFILES, Policy, TenantLimits
from genlock.core.reasons import ClaimState, SpawnMode, Status


class ObservedTask(NamedTuple):
    """Another task, as of its last read."""

    version: int
    status: Status
    parent: str | None = None
    task: Task | None = None
    """Its definition."""


class OutageGrace(NamedTuple):
    """After an outage of the coordinator or its store, in which no claim could be renewed. Claims
    that fell due because of it count as live for a while."""

    since: datetime
    """The time of the project's newest event before the outage. Claims that fell due later may have
    done so because of it."""
    back: datetime
    """The time at which both were available again."""


class Facts(Struct, frozen=True, kw_only=True, gc=False):
    """The facts as of the time when the records were loaded."""

    now: datetime
    epoch: int = 0
    policy: Policy = Policy()
    limits: TenantLimits = PROFILES["local"]
    fresh: str = "0" * 32
    """32 random hex digits, for ids."""
    session: SessionRecord | None = None
    """The caller's own session, if it is known."""
    holder: SessionRecord | None = None
    """The session of the present holder, if it is not the caller's."""
    holder_gone: bool = False
    """Is the holder's process known to be gone?"""
    holder_heard: datetime | None = None
    """The last time the holder changed any task, if neither its own record nor its claim shows that
    it lives."""
    others: Mapping[str, ObservedTask] = {}
    """The tasks that the command names, as far as they exist."""
    refused: RefusedRecord | None = None
    """For an adoption: the refused result to adopt."""
    task: TaskRecord | None = None
    """For a refused result that is kept or discarded: its task."""
    observation: Observation | None = None
    """The changes of another tool in the task's files."""
    outage_grace: OutageGrace | None = None
    """Set after an outage, for coordinators that grant one."""
    claims: int | None = None
    """The number of the tenant's live claims, if they are limited."""
    sessions: int | None = None
    """The number of the tenant's active sessions, if they are limited."""
    on_track: tuple[str, ...] = ()
    """For a claim with `tracks: strict`: the other agents on the task's track."""
    overlaps: tuple[Overlap, ...] = ()
    """For a claim with `overlap` on: the work in flight that shares modules with the task."""
    agent_roles: AgentRoles = NO_ROLES
    """The project's table of roles, as it is stored."""
    earlier_in_track: tuple[str, ...] = ()
    """For a claim with `track_order: enforce`: unfinished tasks that come before this one."""

    @property
    def roles_in_force(self) -> AgentRoles:
        """Returns the table by which claims and results are decided."""
        return roles_in_force(self.agent_roles, self.policy)


def keys_from_command(command: c.Command) -> tuple[Key, ...]:
    """Returns the keys of other records that the decision needs and that the command alone names.
    For claims, the caller's own session comes first."""
    kind = type(command)
    if kind is c.ClaimTask or kind is c.RenewLease or kind is c.ReportProgress:
        return (command.key.beside(SESSION, command.by.session),)
    if kind is c.SubmitResult:
        return ()
    if isinstance(command, c.CheckRelated):
        return tuple([command.key.beside(TASK, other) for other, _ in command.others])
    if kind is c.AdoptResult:
        return (command.key.beside(REFUSED, command.refused),)  # type: ignore[attr-defined]
    if isinstance(command, c.KeepRefused):
        return (
            command.key.beside(TASK, command.task),
            command.key.beside(SESSION, command.by.session),
        )
    if isinstance(command, (c.SpawnSubtasks, c.AnnounceChildren)):
        return tuple([command.key.beside(TASK, child.id) for child in command.children])
    return ()


def keys_from_record(record: Record | None, command: c.Command) -> tuple[Key, ...]:
    """Returns the keys of further records that the decision needs, once the record is known."""
    key, kind = command.key, type(command)
    if kind is c.DiscardRefused:
        return (key.beside(TASK, record.task),) if isinstance(record, RefusedRecord) else ()
    if not isinstance(record, TaskRecord):
        return ()
    if kind is c.SubmitResult or kind is c.AdoptResult:
        # Children only, finished or not: the holder need not care whether a dependency was reset.
        # Other callers are refused anyway.
        fits = command.generation in (None, record.generation)  # type: ignore[attr-defined]
        children = _tasks(key, record.children) if record.children and fits else ()
        return children if kind is c.SubmitResult else (*_holder(record, command), *children)
    if kind is c.ClaimTask:
        # Also those that count as finished: their reset may be committed although this task has not
        # been notified yet.
        return (*_holder(record, command), *inputs_of(key, record))
    if kind is c.CheckDue or kind is c.ObserveTask:
        # A completion may be committed although this task has not been notified yet.
        return (
            *_holder(record, command),
            *_tasks(key, _unfinished(record.dependencies), _inputs_to_check(record)),
        )
    if isinstance(command, c.CheckRelated):
        # Before the news of the last children arrives, nothing completes the parent.
        heard = {other for other, _ in command.others}
        return (
            _tasks(key, _inputs_to_check(record))
            if heard.issuperset(_unfinished(record.children))
            else ()
        )
    if kind in _TAKES_AWAY:
        return _holder(record, command)
    if kind in _COMPLETES_REVIEW:
        return _tasks(key, record.children)
    if isinstance(command, c.SpawnSubtasks):
        return _tasks(key, _inputs_to_check(record, command.mode))
    return _tasks(key, _inputs_to_check(record)) if kind in _MAY_FAN_IN else ()


_MAY_FAN_IN = frozenset({c.EditTask, c.ReopenTask})
"""Commands that may complete a fan-out, besides the split into one, news of its children and a
check of what is due."""

_TAKES_AWAY = frozenset({c.ForceRelease, c.AssignTask, c.ResetTask, c.CancelTask})
"""Commands that must be explicit about superseding a live claim. The holder's session and process
help decide whether it is live."""


_COMPLETES_REVIEW = frozenset({c.ApproveReview, c.ReportEvaluation})


def inputs_of(key: Key, record: TaskRecord) -> tuple[Key, ...]:
    """Returns the tasks that a claim of this one depends on: all that it waits for or has waited
    for."""
    return (
        _tasks(key, record.dependencies, record.children)
        if record.dependencies or record.children
        else ()
    )


def _inputs_to_check(record: TaskRecord, mode: SpawnMode | None = None) -> Iterable[str]:
    """Returns the ids to check before a fan-out is completed, or a task that a split turns into
    one. Every child and dependency must be finished at that moment, whatever earlier news said."""
    return (
        chain(record.dependencies, record.children)
        if (mode or record.spawn_mode) is SpawnMode.FAN_OUT_FAN_IN
        else _unfinished(record.children)
    )


def _unfinished(heard: Mapping[str, KnownState]) -> list[str]:
    return [other for other, news in heard.items() if not news.finished]


def _holder(record: TaskRecord, command: c.Command) -> tuple[Key, ...]:
    claim = record.claim
    if claim is None or claim.state is not ClaimState.ACTIVE or claim.session == command.by.session:
        return ()
    return (command.key.beside(SESSION, claim.session),)


def _tasks(key: Key, *names: Iterable[str]) -> tuple[Key, ...]:
    return tuple([key.beside(TASK, other) for group in names for other in group])
