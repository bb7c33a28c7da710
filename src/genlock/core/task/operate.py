"""Commands on a task that are not fenced: its definition, and the operators' commands.

Those that supersede a claim raise the generation. They supersede a live claim only with `take_over`
(docs/adr/0045)."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any, TypeAlias

import msgspec
from msgspec.structs import replace

from genlock.core import codec
from genlock.core import commands as c
from genlock.core import events as e
from genlock.core.decision import Decision, require
from genlock.core.facts import Facts
from genlock.core.ids import parse_task_id
from genlock.core.keys import TASK
from genlock.core.model import Task, TaskRecord
from genlock.core.policy import MAX_DEFINITION_BYTES, MAX_DEPENDENCIES, Policy
from genlock.core.reasons import FINISHED, ClaimState, Status, Verdict, Waiting
from genlock.core.results import AddResult, Holder, OperatorResult
from genlock.core.task.claims import unknown
from genlock.core.task.completion import Submission, complete_or_escalate
from genlock.core.task.draft import TaskDraft, work_product_ref
from genlock.core.task.hold import hold
from genlock.core.task.relate import SYSTEM, grant, late_fan_in
from genlock.core.task.review import end_review
from genlock.core.task.view import holder_of, overdue, shown
from genlock.errors import BadArgument, LiveClaim, NotAllowed, OperationMismatch, TaskExists

Operation: TypeAlias = (
    c.EditTask
    | c.ForceRelease
    | c.AssignTask
    | c.ResetTask
    | c.CancelTask
    | c.HoldTask
    | c.ReopenTask
    | c.AdoptResult
    | c.SpawnSubtasks
)
"""The commands that a task's record remembers by operation id."""

EARLIER_ACTS = 7
"""The number of operations that a record remembers besides the last. A repeat comes seconds later,
not days: see docs/adr/0031."""

FIXED_FIELDS = frozenset(
    {
        "id",
        "track",
        "sequence",
        "feature",
        "edge",
        "parent",
        "depth",
        "spawned_from",
        "assigned_to",
        "assigned_at",
    }
)
"""The fields that an edit cannot change: the id and its parts; reservations belong to
`assign_task`."""


def decide_add(record: TaskRecord | None, command: c.AddTask, facts: Facts) -> Decision:
    """Adds a task, blocked on all its dependencies. Only once it exists is it checked whether some
    are done already. A task that was finished elsewhere is finished at once."""
    task = command.task
    check_size(task)
    if record is not None and is_finished_elsewhere(record, command.finished):
        draft = TaskDraft(record, command, facts)
        _finish(draft, command)
        return draft.decided(AddResult(Verdict.DONE, task.id, draft.task.state, ("state",)))
    if record is not None:
        unchanged = AddResult(Verdict.UNCHANGED, task.id, record.state)
        if command.announced and task.parent is not None and record.task.parent != task.parent:
            # The parent must be notified that the id is taken.
            parent = c.CheckRelated(
                command.key.beside(TASK, task.parent), command.by, others=((task.id, 0),)
            )
            return Decision(unchanged, record=record, followups=(parent,))
        if command.announced or without_reservation(record.task) == without_reservation(task):
            return Decision(unchanged)
        raise TaskExists(
            f"task {task.id!r} exists already, with another definition; edit it instead"
        )
    draft = TaskDraft(None, command, facts)
    add_task(draft, task, backlog=command.backlog)
    if command.finished is not None:
        _finish(draft, command)
    return draft.decided(AddResult(Verdict.DONE, task.id, draft.task.state))


def add_task(draft: TaskDraft, task: Task, *, backlog: bool) -> None:
    """Adds the task to the draft."""
    facts, until = draft.facts, None
    if task.assigned_to is not None:
        task = replace(task, assigned_at=facts.now)
        until = _reserved_until(task, facts.now, facts.policy, None)
    draft.emit(
        e.TaskAdded,
        task=task,
        order=facts.policy.order,
        backlog=backlog,
        early=_early(task, facts.now),
        assigned_until=until,
        spawn_mode=task.coordination_mode,
        waiting=_waiting(task),
    )


def is_finished_elsewhere(record: TaskRecord, finished: Status | None) -> bool:
    """Does a plan that has the task as finished finish it here? Not if work on it has begun."""
    return (
        finished is not None
        and record.state not in FINISHED
        and not record.granted
        and record.claim is None
    )


def _finish(draft: TaskDraft, command: c.AddTask) -> None:
    """Finishes a task that was finished elsewhere, in the name of the coordinator. After this it
    can never be granted."""
    generation = draft.next_generation()
    if command.finished is Status.CANCELLED:
        draft.emit(
            e.TaskCancelled,
            generation=generation,
            previous_state=draft.task.state,
            reason="cancelled before it was added",
        )
        return
    grant(draft, SYSTEM, generation, lease_seconds=0.0)
    reference = work_product_ref(command.key, generation, draft.facts)
    complete_or_escalate(
        draft,
        Submission(
            content=command.content, reference=reference, by=SYSTEM, finished_elsewhere=True
        ),
    )


def _waiting(task: Task) -> Waiting:
    """Returns the kind of thing that `waiting_for` names: a task, if it could be the id of one."""
    if not task.waiting_for:
        return Waiting.NOTHING
    try:
        name = parse_task_id(task.waiting_for).text
    except BadArgument:
        return Waiting.TEXT
    return Waiting.TASK if name == task.waiting_for != task.id else Waiting.TEXT


def decide_edit(record: TaskRecord | None, command: c.EditTask, facts: Facts) -> Decision:
    """Changes the definition. A live claim stays; new dependencies block the task once it is
    free."""
    record = require(record, unknown(command))
    if is_repeated(record, command, e.TaskEdited):
        return Decision(
            AddResult(Verdict.DONE, record.task.id, record.state, tuple(sorted(command.changes)))
        )
    changes: dict[str, Any] = {
        name: value
        for name, value in command.changes.items()
        if getattr(record.task, name) != value
    }
    fixed = sorted(FIXED_FIELDS & changes.keys())
    if fixed:
        raise BadArgument(f"{fixed[0]} of a task cannot be edited")
    if record.task.id in changes.get("depends_on", ()):
        raise BadArgument(f"task {record.task.id!r} cannot depend on itself")
    moves = moves_in_backlog(record, command.backlog)
    changed = tuple(sorted([*changes, "state"] if moves else changes))
    if not changed:
        return Decision(AddResult(Verdict.UNCHANGED, record.task.id, record.state))
    task = replace(record.task, **changes)
    check_size(task)
    draft = TaskDraft(record, command, facts)
    change_definition(
        draft, task, changed, backlog=command.backlog if moves else None, **asked(command)
    )
    return draft.decided(AddResult(Verdict.DONE, task.id, draft.task.state, changed))


def change_definition(
    draft: TaskDraft,
    task: Task,
    changed: tuple[str, ...],
    *,
    backlog: bool | None = None,
    **known_by: Any,
) -> None:
    """Replaces the definition by `task`, which differs in these fields."""
    record = draft.task
    early = _early(task, draft.facts.now) if "not_before" in changed else record.early
    draft.emit(
        e.TaskEdited,
        task=task,
        changed=changed,
        early=early,
        backlog=backlog,
        waiting=_waiting(task) if "waiting_for" in changed else None,
        spawn_mode=task.coordination_mode if "coordination_mode" in changed else None,
        **known_by,
    )
    if record.state is Status.BLOCKED:
        late_fan_in(draft)


def moves_in_backlog(record: TaskRecord, backlog: bool | None) -> bool:
    """Is the task to be taken out of the backlog because a plan no longer has it there, or put
    there because a plan has it there now?

    A plan gives the state in which a task starts. A task that was begun, or was opened although the
    plan has it in the backlog, stays open."""
    if (
        backlog is None
        or backlog is record.backlog
        or record.state not in (Status.BACKLOG, Status.PENDING, Status.BLOCKED, Status.HELD)
    ):
        return False
    return not backlog or (not record.generation and not record.opened)


def decide_reorder(record: TaskRecord | None, command: c.ReorderTask, facts: Facts) -> Decision:
    """Records the project's new order strategy."""
    if record is None or record.order is command.order:
        return Decision(Verdict.UNCHANGED)
    draft = TaskDraft(record, command, facts)
    draft.emit(e.TaskReordered, order=command.order)
    return draft.decided(Verdict.DONE)


def decide_force_release(
    record: TaskRecord | None, command: c.ForceRelease, facts: Facts
) -> Decision:
    """Supersedes the claim, expired or not. Its generation is stale from now on."""
    draft = TaskDraft(require(record, unknown(command)), command, facts)
    if is_repeated(draft.task, command, e.ClaimSuperseded):
        return draft.decided(_done(draft, command))
    if draft.task.claim is None:
        return draft.decided(_result(draft, None))
    check_not_held(draft, command)
    holder = _holder(draft)
    supersede(draft, "unlock", **noted(command, holder))
    return draft.decided(_result(draft, holder))


def decide_assign(record: TaskRecord | None, command: c.AssignTask, facts: Facts) -> Decision:
    """Reserves the task for one agent; a live claim is superseded."""
    record = require(record, unknown(command))
    draft = TaskDraft(record, command, facts)
    if is_repeated(record, command, e.TaskAssigned, command.agent):
        return draft.decided(_done(draft, command))
    _refuse_if(record, command, Status.COMPLETED, Status.CANCELLED)
    check_not_held(draft, command)
    holder = _holder(draft)
    if record.claim is not None:
        supersede(draft, "assign")
    until = _reserved_until(record.task, facts.now, facts.policy, command.hours)
    draft.emit(
        e.TaskAssigned, assigned_to=command.agent, assigned_until=until, **asked(command, holder)
    )
    return draft.decided(_result(draft, holder))


def decide_reset(record: TaskRecord | None, command: c.ResetTask, facts: Facts) -> Decision:
    """Resets the task, which must be done again. Result and claim leave the record, but not its
    history."""
    draft = TaskDraft(require(record, unknown(command)), command, facts)
    if is_repeated(draft.task, command, e.TaskReset):
        return draft.decided(_done(draft, command))
    if command.if_completed and draft.task.state is not Status.COMPLETED:
        return draft.decided(_result(draft, None))
    check_not_held(draft, command)
    holder = _holder(draft)
    before = draft.task.state
    end_review(draft, "the task was reset")
    draft.emit(
        e.TaskReset,
        generation=draft.next_generation(),
        previous_state=before,
        **noted(command, holder),
        **_loser(draft),
    )
    return draft.decided(_result(draft, holder))


def decide_cancel(record: TaskRecord | None, command: c.CancelTask, facts: Facts) -> Decision:
    """Cancels the task. Its holder is fenced off."""
    record = require(record, unknown(command))
    draft = TaskDraft(record, command, facts)
    if is_repeated(record, command, e.TaskCancelled):
        return draft.decided(_done(draft, command))
    _refuse_if(record, command, Status.COMPLETED)
    if record.state is Status.CANCELLED:
        return draft.decided(_result(draft, None))
    check_not_held(draft, command)
    holder = _holder(draft)
    end_review(draft, command.reason or "the task was cancelled")
    draft.emit(
        e.TaskCancelled,
        generation=draft.next_generation(),
        previous_state=record.state,
        reason=command.reason,
        **asked(command, holder),
        **_loser(draft),
    )
    return draft.decided(_result(draft, holder))


def decide_hold(record: TaskRecord | None, command: c.HoldTask, facts: Facts) -> Decision:
    """Puts the task on hold: it is not granted, but a present holder keeps its claim. If it is on
    hold already, this becomes a further reason."""
    record = require(record, unknown(command))
    draft = TaskDraft(record, command, facts)
    if is_repeated(record, command, e.TaskHeld):
        return draft.decided(_done(draft, command))
    _refuse_if(record, command, Status.COMPLETED, Status.CANCELLED)
    if record.state is Status.IN_REVIEW:
        raise NotAllowed(
            f"task {command.key.id!r} is IN_REVIEW, and nobody is granted it; approve or reject "
            "its result"
        )
    # A hold that time would lift becomes one that only a person lifts. A call without a reason adds
    # nothing to the reasons there are.
    if command.reason or record.hold is None or record.hold.until is not None:
        hold(draft, command.reason or "held by an operator", **asked(command))
    return draft.decided(_result(draft, None))


def decide_reopen(record: TaskRecord | None, command: c.ReopenTask, facts: Facts) -> Decision:
    """Lifts every hold, or else takes a task out of the backlog. The counts of failures and grants
    restart."""
    record = require(record, unknown(command))
    draft = TaskDraft(record, command, facts)
    if is_repeated(record, command, e.TaskReopened):
        return draft.decided(_done(draft, command))
    _refuse_if(record, command, Status.COMPLETED, Status.CANCELLED)
    if record.state is Status.HELD or record.backlog:
        # Lifting a hold does not declare the task ready: one step at a time.
        held = record.state is Status.HELD
        draft.emit(
            e.TaskReopened, backlog=held and record.backlog, opened=not held, **noted(command)
        )
        late_fan_in(draft)
    return draft.decided(_result(draft, None))


def is_repeated(
    record: TaskRecord, command: Operation, kind: type[e.TaskEvent], whom: str = ""
) -> bool:
    """Was this operation done, and only its answer lost? Then it is not repeated, whatever has
    happened since."""
    act = record.remembered(command.operation, command.by.session)
    if act is None:
        return False
    what = f"{kind.__struct_config__.tag} {whom}".rstrip()
    if act.what != what:
        raise OperationMismatch(
            f"operation {command.operation!r} was another act on {record.task.id!r} ({act.what}); "
            "use a new id"
        )
    if act.arguments and act.arguments != _digest_of(command):
        raise OperationMismatch(
            f"operation {command.operation!r} was this act on {record.task.id!r} with other "
            "arguments; use a new id"
        )
    return True


def noted(command: Operation, superseded: Holder | None = None) -> dict[str, Any]:
    """Returns event fields by which a repeat is recognised, and the holder whose claim is
    superseded. Empty if the operation cannot be repeated."""
    if not command.operation:
        return {}
    known = {"operation": command.operation, "remembers": EARLIER_ACTS}
    return known if superseded is None else known | {"superseded": superseded}


def asked(command: Operation, superseded: Holder | None = None) -> dict[str, Any]:
    """Does the same as `noted`, for an operation with arguments."""
    return (
        noted(command, superseded) | {"arguments": _digest_of(command)} if command.operation else {}
    )


def _digest_of(command: Operation) -> str:
    """Returns a short digest of the request, to tell it from a different request under the same
    operation id of the same session."""
    if isinstance(command, c.SpawnSubtasks):
        # Its children may have generated names by now, and different ones at every repeat.
        return command.arguments
    arguments = {
        name: getattr(command, name)
        for name in command.__struct_fields__
        if name not in _OF_EVERY_ACT
    }
    return digest_of(arguments)


def digest_of(arguments: Any) -> str:
    """Returns a short digest that tells arguments apart."""
    digest = codec.digest_of(msgspec.json.encode(arguments, order="sorted")).hex()
    return digest[:16]


_OF_EVERY_ACT = frozenset({"key", "by", "operation", "backlog", "take_over"})
"""The fields that are not arguments. Only the import of a plan sets the backlog, and an import has
no operation id. `take_over` is a permission: the effect is the same with it and without."""


def check_not_held(
    draft: TaskDraft,
    command: c.ForceRelease | c.AssignTask | c.ResetTask | c.CancelTask | c.AdoptResult,
) -> None:
    """Raises LiveClaim if the command would supersede a live claim, even the caller's own, without
    `take_over`."""
    claim, facts = draft.task.claim, draft.facts
    if (
        claim is None
        or command.take_over
        or overdue(
            claim,
            facts.now,
            facts.holder,
            facts.holder_gone,
            facts.outage_grace,
            facts.holder_heard,
        )
        is not None
    ):
        return
    until = "without a lease" if claim.expires_at is None else f"until {shown(claim.expires_at)}"
    raise LiveClaim(
        f"task {command.key.id!r} is held by {claim.agent} (session {claim.session}) "
        f"{until}; take_over=True "
        "takes the claim away, and what its holder still submits is refused, and kept"
    )


def supersede(draft: TaskDraft, verb: str, **repeatable: Any) -> None:
    """Supersedes the claim without granting a new one."""
    draft.emit(
        e.ClaimSuperseded,
        generation=draft.next_generation(),
        previous_generation=draft.task.generation,
        superseded_by=verb,
        **repeatable,
        **_loser(draft),
    )


def _loser(draft: TaskDraft) -> dict[str, Any]:
    """Returns the session that loses its claim, as fields of the event."""
    claim = draft.task.claim
    return {"holder_session_id": claim.session, "holder_agent_id": claim.agent} if claim else {}


def check_size(task: Task) -> None:
    """Refuses a definition that is too long, before it is stored."""
    if len(task.depends_on) > MAX_DEPENDENCIES:
        raise BadArgument(
            f"task {task.id!r} has {len(task.depends_on)} dependencies, at most "
            f"{MAX_DEPENDENCIES}; put a task between"
        )
    size = len(msgspec.json.encode(task))
    if size > MAX_DEFINITION_BYTES:
        raise BadArgument(
            f"the definition of task {task.id!r} has {size:,} bytes, at most "
            f"{MAX_DEFINITION_BYTES:,} are kept; "
            "put the long text into a file and name it"
        )


def without_reservation(task: Task) -> Task:
    """Returns the definition as a plan would give it."""
    return replace(task, assigned_to=None, assigned_at=None)


def _early(task: Task, now: datetime) -> bool:
    return task.not_before is not None and now < task.not_before


def _reserved_until(task: Task, now: datetime, policy: Policy, hours: float | None) -> datetime:
    if hours is None:
        hours = (
            task.lock_timeout_hours
            if task.lock_timeout_hours is not None
            else policy.lock_timeout_hours
        )
    return now + timedelta(hours=hours)


def _refuse_if(record: TaskRecord, command: c.Command, *states: Status) -> None:
    if record.state in states:
        raise NotAllowed(
            f"task {command.key.id!r} is {record.state}; to have it done again, reset it"
        )


def _holder(draft: TaskDraft) -> Holder | None:
    claim = draft.task.claim
    return holder_of(claim, alive=claim.state is ClaimState.ACTIVE) if claim else None


def _done(draft: TaskDraft, command: Operation) -> OperatorResult:
    """Answers a repeated operation: DONE, with the present state of the task and the holder
    superseded then."""
    act = draft.task.remembered(command.operation, command.by.session)
    return OperatorResult(
        Verdict.DONE,
        command.key.id,
        draft.task.state,
        draft.task.generation,
        act.superseded if act else None,
    )


def _result(draft: TaskDraft, superseded: Holder | None) -> OperatorResult:
    verdict = Verdict.DONE if draft.events else Verdict.UNCHANGED
    return OperatorResult(
        verdict, draft.command.key.id, draft.task.state, draft.task.generation, superseded
    )
